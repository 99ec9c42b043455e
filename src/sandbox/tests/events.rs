//! What subscribers are told, act by act.

use super::*;
use crate::sandbox::world::registers::EVENT_TYPES;

/// A sandbox with a subscription of every event type. Its address is of another machine, so that
/// nothing leaves; what was emitted is recorded all the same.
async fn told_everything() -> Caller {
    let caller = Caller::new(Options { cases: 8, ..quiet() }).await;
    for event in EVENT_TYPES {
        subscribe(&caller, event, "https://all.example.no/krok").await;
    }
    caller
}

pub(super) async fn subscribe(caller: &Caller, event: &str, url: &str) -> Json {
    let order = json!({"EventType": event, "Url": url});
    let made = caller.send(Method::POST, "/api/WebHooks/Subscribe", Some(order)).await.unwrap();
    assert_eq!(made.status(), StatusCode::OK);
    body(made).await
}

/// The events that something causes, without those for the subscriptions of the seed.
fn told_by<T>(caller: &Caller, cause: impl FnOnce() -> T) -> (T, Vec<Json>) {
    let before = caller.sandbox.deliveries().latest.last().map_or(0, |last| last.id);
    let done = cause();
    let new = caller.sandbox.deliveries().latest.into_iter().filter(|one| one.id > before);
    let new = new.filter(|one| one.url == "https://all.example.no/krok");
    (done, new.map(|one| serde_json::from_str(&one.body).unwrap()).collect())
}

fn kinds(events: &[Json]) -> Vec<&str> {
    events.iter().map(|event| event["EventType"].as_str().unwrap()).collect()
}

/// What a facet tells, on a case that is new but for the facets before it; the transfer date apart.
fn kinds_of(facet: Facet) -> &'static [&'static str] {
    match facet {
        Facet::Activity | Facet::Showing => &["AktivitetCreated"],
        Facet::ActivityEdited => &["AktivitetChanged"],
        Facet::ActivityRemoved => &["AktivitetDeleted"],
        Facet::RoleAdded | Facet::ContactAdded => &["InteressentCreated"],
        Facet::RoleRemoved => &["InteressentDeleted"],
        Facet::Publication | Facet::PublicationRemoved => &["PublicationChanged"],
        // To `BiddingStarted`, and from there back to `Active`.
        Facet::Bid | Facet::Activated => &["CaseStatusChanged"],
        Facet::Sold => &["CaseStatusChanged", "CaseSold", "InteressentCreated"],
        Facet::Settled => &["CaseStatusChanged", "SettlementStatusChanged"],
        Facet::Information => &["SellerInsuranceChanged"],
        Facet::SaleText
        | Facet::SaleTextAdded
        | Facet::SaleTextRemoved
        | Facet::SaleTextSwitched => &["DynamicSaleTextChanged"],
        Facet::Description
        | Facet::Transaction
        | Facet::Draft
        | Facet::DraftRemoved
        | Facet::Cost
        | Facet::CostAdded
        | Facet::CostRemoved
        | Facet::Image
        | Facet::ImageRemoved
        | Facet::ImageReordered
        | Facet::Attachment
        | Facet::AttachmentRemoved
        | Facet::FileElsewhere
        | Facet::FileShared
        | Facet::EstimatedCosts
        | Facet::Commission
        | Facet::CommissionAdded
        | Facet::CommissionRemoved
        | Facet::ExternalEntry
        | Facet::ExternalEntryRemoved
        | Facet::BankTransfer
        | Facet::BankTransferEdited
        | Facet::BankTransferRemoved
        | Facet::Note
        | Facet::NoteEdited
        | Facet::NoteRemoved
        | Facet::Association
        | Facet::AssociationRemoved
        | Facet::Nothing => &[],
    }
}

fn new_case(caller: &Caller) -> i64 {
    let act = Act::NewCase { project: false, assignment: Some("Sale".to_owned()) };
    caller.sandbox.act(&act).unwrap().case_ids[0]
}

fn transfer_date(caller: &Caller, id: i64) -> Json {
    let rows = caller.rows("cases");
    rows.into_iter().find(|row| row["id"] == id).unwrap()["transfer_date"].clone()
}

#[tokio::test]
async fn every_facet_tells_what_the_reference_names_and_nothing_else() {
    let caller = told_everything().await;
    let id = new_case(&caller);
    let mut transfers = 0;
    // The second time a list can be longer, a status the same.
    for facet in Facet::ALL {
        let before = transfer_date(&caller, id);
        let (_, events) = told_by(&caller, || caller.change(id, facet));
        let mut told = kinds(&events);
        let moved = transfer_date(&caller, id) != before;
        assert_eq!(told.contains(&"AppropriationDateChanged"), moved, "{facet:?}");
        transfers += usize::from(moved);
        told.retain(|kind| *kind != "AppropriationDateChanged");
        assert_eq!(told, kinds_of(facet), "{facet:?}");
        for event in events {
            let at = event["EventCreatedDate"].as_str().unwrap();
            assert!(Ticks::parse(at, false).is_some() && !at.ends_with('Z'), "{at}");
        }
    }
    for _ in 0..40 {
        let before = transfer_date(&caller, id);
        let (_, events) = told_by(&caller, || caller.change(id, Facet::Activity));
        let moved = transfer_date(&caller, id) != before;
        assert_eq!(kinds(&events).contains(&"AppropriationDateChanged"), moved);
        transfers += usize::from(moved);
    }
    assert!(transfers > 0);
}

#[tokio::test]
async fn payloads_hold_the_ids_of_the_reference_and_no_more() {
    let caller = told_everything().await;
    let (outcome, events) = told_by(&caller, || {
        caller.sandbox.act(&Act::NewCase { project: false, assignment: None }).unwrap()
    });
    let id = outcome.case_ids[0];
    let roles: Vec<Json> =
        caller.rows("case_roles").into_iter().filter(|row| row["case_id"] == id).collect();
    let mut expected = vec![json!({"CaseId": id})];
    expected.extend(
        roles
            .iter()
            .map(|row| json!({"Id": row["id"], "ContactId": row["contact_id"], "CaseId": id})),
    );
    assert!(expected.len() > 2);
    let payloads = |events: &[Json]| -> Vec<Json> {
        events.iter().map(|event| event["Payload"].clone()).collect()
    };
    assert_eq!(payloads(&events), expected);
    assert_eq!(kinds(&events)[..2], ["OppdragCreated", "InteressentCreated"]);

    let role = expected.last().unwrap().clone();
    let edit = Act::EditRole { case_id: id, role_id: None };
    let (_, events) = told_by(&caller, || caller.sandbox.act(&edit).unwrap());
    assert_eq!(
        (kinds(&events), payloads(&events)),
        (vec!["InteressentChanged"], vec![role.clone()])
    );
    let (_, events) = told_by(&caller, || caller.change(id, Facet::RoleRemoved));
    assert_eq!(payloads(&events), [json!({"Id": role["Id"]})]);

    let (shown, events) = told_by(&caller, || caller.change(id, Facet::Showing));
    let activity = json!({"Id": shown.ids[0], "CaseId": id, "Type": 3});
    assert_eq!(payloads(&events), std::slice::from_ref(&activity));
    let (_, events) = told_by(&caller, || caller.change(id, Facet::ActivityEdited));
    assert_eq!(payloads(&events), [activity]);
    let (_, events) = told_by(&caller, || caller.change(id, Facet::ActivityRemoved));
    assert_eq!(payloads(&events), [json!({"Id": shown.ids[0], "CaseId": id})]);

    let (published, events) = told_by(&caller, || caller.change(id, Facet::Publication));
    let payload = json!({"CaseId": id, "PublicationId": published.ids[0], "Type": 1});
    assert_eq!(payloads(&events), [payload]);
    let (_, events) = told_by(&caller, || caller.change(id, Facet::Information));
    assert_eq!(payloads(&events), [json!({"PropertyId": id})]);
    let (_, events) = told_by(&caller, || caller.change(id, Facet::Sold));
    assert_eq!(payloads(&events)[..2], [json!({"CaseId": id}), json!({"CaseId": id})]);
    // Sold once is sold.
    let (_, events) = told_by(&caller, || caller.change(id, Facet::Sold));
    assert_eq!(kinds(&events), ["InteressentCreated"]);

    // A read that is none creates what is not there yet, the portal's other listing too.
    for (existing, listings) in [("true", 0), ("false", 1)] {
        let before = caller.sandbox.deliveries().latest.len();
        caller.get(&format!("/api/Cases/{id}/Publications?returnOnlyExisting={existing}")).await;
        let new = caller.sandbox.deliveries().latest.split_off(before);
        let told = new.iter().filter(|one| one.body.contains("\"Type\":150")).count();
        assert_eq!(told, listings, "returnOnlyExisting={existing}");
    }
}

#[tokio::test]
async fn a_sale_text_says_whether_all_of_it_has_to_be_read() {
    let caller = told_everything().await;
    let id = caller.sandbox.case_ids()[2];
    let guid =
        caller.rows("cases").into_iter().find(|row| row["id"] == id).unwrap()["guid"].clone();
    for facet in [Facet::SaleTextAdded, Facet::SaleTextRemoved, Facet::SaleTextSwitched] {
        let (_, events) = told_by(&caller, || caller.change(id, facet));
        let [event] = &events[..] else { panic!("{facet:?}: {events:?}") };
        assert_eq!(event["Payload"], json!([{"Id": id, "Guid": guid}]));
        assert_eq!((&event["RequireReload"], event.as_object().unwrap().len()), (&json!(true), 4));
    }
    let (edited, events) = told_by(&caller, || caller.change(id, Facet::SaleText));
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(event["Payload"], json!([{"Id": id, "Guid": guid}]));
    assert_eq!((&event["RequireReload"], event.as_object().unwrap().len()), (&json!(false), 6));
    assert_eq!(event["DynamicSaleTextHeaderId"], edited.ids[0]);
    assert_eq!(event["UpdatedDateTime"], event["EventCreatedDate"]);
}

#[tokio::test]
async fn a_default_of_the_sale_text_is_told_and_moves_no_date() {
    let caller = told_everything().await;
    let cases = caller.sandbox.case_ids()[2..4].to_vec();
    let feed = "/api/Integrations/RecentlyModified/Cases?$top=100&$orderby=CaseId";
    let (dates, texts) = (caller.get(feed).await, caller.rows("dynamic_sale_texts"));
    let act = Act::DefaultSaleText { case_ids: cases.clone() };
    let (_, events) = told_by(&caller, || caller.sandbox.act(&act).unwrap());
    let told: Vec<&Json> = events.iter().map(|event| &event["Payload"][0]["Id"]).collect();
    assert_eq!(told, [&json!(cases[0]), &json!(cases[1])]);
    assert!(events.iter().all(|event| event["RequireReload"] == false));
    assert_eq!(caller.get(feed).await, dates);
    assert_ne!(caller.rows("dynamic_sale_texts"), texts);
    // Its date is that of the definition, which is older.
    let dated = |event: &Json, field: &str| Ticks::parse(event[field].as_str().unwrap(), false);
    for event in &events {
        assert!(dated(event, "UpdatedDateTime") < dated(event, "EventCreatedDate"));
    }
}

#[tokio::test]
async fn people_and_offices_tell_of_themselves() {
    let caller = told_everything().await;
    let (employees, offices) =
        (caller.get("/api/Employees").await, caller.get("/api/Offices").await);
    let (employee, office) = (&employees[0], &offices[0]);
    let employee_id = employee["Id"].as_i64().unwrap();
    let office_id = office["Id"].as_i64().unwrap();
    let elsewhere = offices[1]["Id"].as_i64().unwrap();
    let person = json!({"EmployeeId": employee_id, "EmployeeGuid": employee["Guid"]});
    let place = json!({"OfficeId": office_id, "OfficeGuid": office["Guid"]});
    let added = ListEdit::Added;
    for (act, expected) in [
        (Act::EditEmployee { employee_id }, Some(("EmployeeChanged", &person))),
        (
            Act::MoveEmployee { employee_id, office_id: elsewhere },
            Some(("EmployeeChanged", &person)),
        ),
        (
            Act::EditContact { contact_id: Some(employee_id), at: None },
            Some(("EmployeeChanged", &person)),
        ),
        (Act::EditOffice { office_id }, Some(("OfficeChanged", &place))),
        (Act::CloseOffice { office_id }, Some(("OfficeChanged", &place))),
        (Act::EditContact { contact_id: Some(50_001), at: None }, None),
        (Act::NewContact {}, None),
        (Act::SplitOffice { office_id: elsewhere }, None),
        (Act::Account { office_id: elsewhere, edit: added }, None),
        (Act::Definition { edit: added }, None),
        (Act::ProcessingBasis { edit: added }, None),
        (Act::FileTag { edit: added }, None),
        (Act::HideCase { case_id: caller.sandbox.case_ids()[2], silent: false }, None),
    ] {
        let (_, events) = told_by(&caller, || caller.sandbox.act(&act).unwrap());
        let told: Vec<(&str, &Json)> =
            kinds(&events).into_iter().zip(events.iter().map(|event| &event["Payload"])).collect();
        assert_eq!(told, expected.into_iter().collect::<Vec<_>>(), "{act:?}");
    }
}

#[tokio::test]
async fn who_registers_for_a_showing_is_a_role_and_a_participant() {
    let caller = told_everything().await;
    let id = new_case(&caller);
    let showing = caller.change(id, Facet::Showing).ids[0];
    let shown = caller.rows("public_showings");
    let shown = shown.iter().find(|row| row["case_id"] == id).unwrap();
    let before = caller.sandbox.deliveries().latest.len();
    let path = format!("/api/Public/Cases/{}/Stakeholders", shown["case_guid"].as_str().unwrap());
    let order = json!({"FirstName": "A", "SurName": "B", "Email": "a@example.no",
        "ShowingActivityGuid": shown["guid"]});
    let made = body(caller.send(Method::POST, &path, Some(order)).await.unwrap()).await;
    let new = caller.sandbox.deliveries().latest.split_off(before);
    let events: Vec<Json> =
        new.iter().map(|one| serde_json::from_str(&one.body).unwrap()).collect();
    assert_eq!(kinds(&events), ["InteressentCreated", "ActivityParticipantCreated"]);
    assert_eq!(events[0]["Payload"], made);
    let participant = &events[1]["Payload"];
    assert!(participant["Id"].is_i64());
    assert_eq!(
        *participant,
        json!({"Id": participant["Id"], "CaseId": id, "StakeholderId": made["Id"],
            "ContactId": made["ContactId"], "ActivityId": showing, "Type": 3})
    );
}
