//! Publications, notes, and values that are unpleasant.

use super::*;

#[tokio::test]
async fn publications_are_created_by_a_read_that_is_none() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[3];
    let count = caller.rows("publications").len();
    let path = format!("/api/Cases/{id}/Publications");
    caller.get(&format!("{path}?returnOnlyExisting=true")).await;
    assert_eq!(caller.rows("publications").len(), count);
    let before = caller.feed_row(id).await.unwrap();
    caller.get(&format!("{path}?returnOnlyExisting=false")).await;
    assert!(caller.rows("publications").len() > count);
    let after = caller.feed_row(id).await.unwrap();
    assert_ne!(before["PublicationChangedDate"], after["PublicationChangedDate"]);
    assert_eq!(
        caller.sandbox.stats().never_to_do,
        [format!("GET {path}?returnOnlyExisting=false")]
    );
}

#[tokio::test]
async fn notes_on_economy_are_for_those_who_may_view_settlements() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[9];
    let path = format!("/api/Notes/Case/{id}");
    let kinds = async || -> Vec<String> {
        let notes = caller.get(&path).await;
        let kind = |note: &Json| note["NoteType"].as_str().unwrap().to_owned();
        notes.as_array().unwrap().iter().map(kind).collect()
    };
    let all = kinds().await;
    assert!(all.len() == 120 && all.contains(&"Economics".to_owned()));
    let permission = "SettlementView - Read".to_owned();
    caller.sandbox.control(Control::Withdraw { permission: permission.clone() });
    let some = kinds().await;
    assert!(!some.is_empty() && some.iter().all(|kind| kind != "Economics"));
    caller.sandbox.control(Control::Grant { permission });
    assert_eq!(kinds().await, all);
    caller.sandbox.control(Control::Withdraw { permission: "Notes - Read".to_owned() });
    assert_eq!(caller.ask(Method::GET, &path).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn notes_are_written_and_changed() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[3];
    let order = json!({"Message": "Ring \"selger\" 📞", "ContactIds": [50_001], "CaseIds": [id],
        "SharedWithCaseIds": [1], "OwnerId": id, "OwnerType": "Case"});
    let before = caller.feed_row(id).await.unwrap();
    let made = body(caller.send(Method::POST, "/api/Notes", Some(order)).await.unwrap()).await;
    let after = caller.feed_row(id).await.unwrap();
    assert_ne!(before["ModifiedDate"], after["ModifiedDate"]);
    let row = || caller.rows("notes").into_iter().find(|row| row["id"] == made["Id"]).unwrap();
    assert_eq!((&row()["message"], &row()["case_ids"]), (&made["Message"], &json!([id, 1])));

    let path = format!("/api/Notes/{}", made["Id"]);
    let change = json!({"IsImportant": true, "NoteType": "Economics"});
    caller.send(Method::PATCH, &path, Some(change)).await.unwrap();
    assert_eq!((&row()["is_important"], &row()["note_type"]), (&json!(true), &json!("Economics")));
    assert_eq!(row()["contact_ids"], Json::Null, "relations that are left out go");
    for (method, path, order, expected) in [
        (Method::PATCH, "/api/Notes/77", json!({}), 404),
        (Method::PATCH, path.as_str(), json!({"OwnerType": "Contact"}), 400),
        (
            Method::POST,
            "/api/Notes",
            json!({"Message": "", "OwnerId": 7, "OwnerType": "Case"}),
            404,
        ),
    ] {
        let answer = caller.send(method, path, Some(order)).await.unwrap();
        assert_eq!(answer.status().as_u16(), expected, "{path}");
    }
    caller.sandbox.control(Control::Withdraw { permission: "Bids - Write".to_owned() });
    let refused = caller.send(Method::PATCH, &path, Some(json!({}))).await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_sale_text_that_is_not_used_has_no_items() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[10];
    let items = format!("/api/DynamicSaleText/Cases/{id}/DynamicSaleTextItems");
    let uses = format!("/api/DynamicSaleText/Cases/{id}/UseDynamicSaleText");
    for _ in 0..2 {
        caller.change(id, Facet::SaleTextSwitched);
        let used = caller.get(&uses).await["Value"].as_bool().unwrap();
        assert_eq!(caller.get(&items).await.as_array().unwrap().is_empty(), !used);
        let rows = caller.rows("dynamic_sale_texts");
        assert_eq!(rows.iter().any(|row| row["case_id"] == id), used);
    }
}

#[tokio::test]
async fn an_association_that_goes_leaves_204() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[10];
    let path = format!("/api/Properties/{id}/HousingAssociation");
    caller.change(id, Facet::Association);
    assert_eq!(caller.get(&path).await["Type"], "HousingAssociation");
    caller.change(id, Facet::AssociationRemoved);
    assert_eq!(caller.ask(Method::GET, &path).await.0, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn the_world_holds_unpleasant_values() {
    let caller = Caller::new(Options { cases: 200, ..quiet() }).await;
    let any = |table: &str, column: &str, fits: &dyn Fn(&Json) -> bool| {
        let rows = caller.rows(table);
        assert!(rows.iter().any(|row| fits(&row[column])), "{table}.{column}");
    };
    let text = |wanted: &'static str| move |cell: &Json| cell == wanted;
    any("property_information", "details", &|cell| {
        cell.as_str().is_some_and(|text| text.len() > 200_000)
    });
    any("property_information", "contents", &text(""));
    any("property_information", "contents", &Json::is_null);
    for column in ["message", "created_date"] {
        any("notes", column, &Json::is_string);
    }
    for amount in ["9999999999999999.99", "-9999999999999999.99"] {
        any("external_entries", "amount", &text(amount));
        any("bank_transfers", "amount", &text(amount));
    }
    for (table, column, unlisted) in [
        ("publications", "status", "PublishQueued"),
        ("settlement_statuses", "settlement_status", "TilKontrollHosBank"),
        ("bank_transfers", "bank_transfer_status", "FrystAvBanken"),
        ("property_information", "seller_insurance_type", "UnderVurdering"),
        ("case_file_access", "case_role", "Ukjent"),
    ] {
        any(table, column, &text(unlisted));
    }
    any("notes", "_extra", &text("{\"Comments\":[{\"Id\":1,\"Text\":\"Sett 👀\"}]}"));
    for list in [json!([]), Json::Null] {
        any("notes", "contact_ids", &|cell| *cell == list);
        any("case_files", "file_tags", &|cell| *cell == list);
    }
    let mut on_wire = String::new();
    for id in caller.sandbox.case_ids() {
        let path = format!("/api/Properties/{id}/Information");
        let answer = caller.send(Method::GET, &path, None).await.unwrap();
        on_wire.push_str(&answer.text().await.unwrap());
    }
    for odd in ["-03-30T02:30:00\"", "-10-26T02:30:00\"", "\"0001-01-01T00:00:00\""] {
        assert!(on_wire.contains(odd), "{odd}");
    }
}
