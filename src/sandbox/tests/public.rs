//! What the public sees and does.

use super::*;

/// A call without a token.
async fn publicly(caller: &Caller, method: Method, path: &str, order: Option<Json>) -> Response {
    let url = format!("{}{path}", caller.sandbox.base_url());
    let mut call = caller.http.request(method, url);
    if let Some(order) = order {
        call = call.body(order.to_string());
    }
    call.send().await.unwrap()
}

fn guid_of(caller: &Caller, id: i64) -> String {
    let rows = caller.rows("public_showings");
    let row = rows.iter().find(|row| row["case_id"] == id).unwrap();
    row["case_guid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_next_six_showings_are_public() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[20];
    for _ in 0..8 {
        caller.change(id, Facet::Showing);
    }
    let path = format!("/api/Public/Properties/{}/Showings", guid_of(&caller, id));
    let wire = body(publicly(&caller, Method::GET, &path, None).await).await;
    let rows: Vec<Json> =
        caller.rows("public_showings").into_iter().filter(|row| row["case_id"] == id).collect();
    assert_eq!((rows.len(), wire.as_array().unwrap().len()), (6, 6));
    for (cells, wire) in rows.iter().zip(wire.as_array().unwrap()) {
        assert_same_row(cells, wire, &path);
    }
    for nobody in ["7", "00000000-0000-4000-8000-000000000000"] {
        let path = format!("/api/Public/Properties/{nobody}/Showings");
        let answer = publicly(&caller, Method::GET, &path, None).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    }
    assert_eq!(publicly(&caller, Method::GET, "/api/Offices", None).await.status(), 401);
}

#[tokio::test]
async fn a_stakeholder_is_a_new_contact_with_a_role_and_what_it_consented_to() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[20];
    caller.change(id, Facet::Showing);
    let path = format!("/api/Public/Cases/{}/Stakeholders", guid_of(&caller, id));
    let post = async |order: Json| publicly(&caller, Method::POST, &path, Some(order)).await;
    let showing = |caller: &Caller| {
        let rows = caller.rows("public_showings");
        rows.into_iter().find(|row| row["case_id"] == id).unwrap()
    };
    let basis = caller.get("/api/ProcessingBases/Newest").await[0].clone();
    let (shown, before) = (showing(&caller), caller.feed_row(id).await.unwrap());
    let relations = caller.rows("processing_basis_relations").len();
    let made = body(
        post(json!({"FirstName": "Ñandú", "SurName": "Ødegård", "Telephone": "40000000",
            "CheckedProcessingBases": [basis["Guid"]], "ShowingActivityGuid": shown["guid"],
            "NumberOfParticipants": 2, "ContactMethodType": "Showing", "Comments": "-",
            "NotificationLanguage": "Norwegian", "PrivateShowing": false}))
        .await,
    )
    .await;
    let contact = caller.get(&format!("/api/Contacts/{}", made["ContactId"])).await;
    assert_eq!(
        (&contact["Name"], &contact["PhoneNumber"]),
        (&json!("Ñandú Ødegård"), &json!("+47 40000000"))
    );
    let roles = caller.rows("case_roles");
    assert!(roles.iter().any(|row| row["contact_id"] == made["ContactId"] && row["case_id"] == id));
    let given = caller.rows("processing_basis_relations");
    assert_eq!(given.len(), relations + 1);
    assert_eq!(given.last().unwrap()["processing_basis_model_id"], basis["Id"]);
    let participants = |row: &Json| row["number_of_participants"].as_i64().unwrap();
    assert_eq!(participants(&showing(&caller)), participants(&shown) + 2);
    let after = caller.feed_row(id).await.unwrap();
    for date in ["CaseEntityChangedDate", "ActivityChangedDate"] {
        assert_ne!(before[date], after[date]);
    }
    for order in [
        json!({"FirstName": "A", "SurName": "B"}),
        json!({"FirstName": " ", "SurName": "B", "Email": "a@example.no"}),
        json!({"FirstName": "A", "SurName": "B", "Email": "a@example.no", "Surname": "C"}),
        json!({"FirstName": "A", "SurName": "B", "Email": "a@example.no",
            "CheckedProcessingBases": ["00000000-0000-4000-8000-000000000000"]}),
    ] {
        assert_eq!(post(order.clone()).await.status(), StatusCode::BAD_REQUEST, "{order}");
    }
}

#[tokio::test]
async fn who_asks_for_an_identity_number_is_noted() {
    let caller = Caller::new(quiet()).await;
    let digits = caller.get("/api/Persons/50001/FullIdentityNumber").await;
    assert_eq!(digits.as_str().unwrap().len(), 5);
    assert_eq!(caller.sandbox.stats().never_to_do, ["GET /api/Persons/50001/FullIdentityNumber?"]);
}
