//! The documented writes of external entries and bank transfers.

use super::*;

#[tokio::test]
async fn an_external_entry_brings_its_entry_or_draft_along() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[10];
    let post = async |order: Json| {
        caller.send(Method::POST, "/api/Economics/ExternalEntries", Some(order)).await.unwrap()
    };
    let (entries, drafts) = (caller.rows("entries").len(), caller.rows("entry_drafts").len());
    let before = caller.feed_row(id).await.unwrap();
    let made = body(
        post(json!({"CaseId": id, "EntryNumber": 7, "SupplierName": "Strøm & \"Vann\"",
            "Amount": -1234.5, "EntryDefinitionId": 202, "CreateEntryDraft": true,
            "PostingDate": "2026-01-02T03:04:05.1234567+01:00"}))
        .await,
    )
    .await;
    let rows = caller.rows("external_entries");
    let row = rows.iter().find(|row| row["id"] == made["Id"]).unwrap();
    assert_eq!(
        (&row["amount"], &row["posting_date"]),
        (&json!("-1234.50"), &json!("2026-01-02T02:04:05.123456Z"))
    );
    assert_eq!(caller.rows("entry_drafts").len(), drafts + 1);
    assert!(made["EntryDraftId"].is_i64() && made["EntryId"].is_null());
    let after = caller.feed_row(id).await.unwrap();
    assert_ne!(before["TransactionChangedDate"], after["TransactionChangedDate"]);
    let both = json!({"CaseId": id, "EntryNumber": 8, "Amount": 1, "EntryDefinitionId": 201,
        "CreateEntry": true});
    assert!(post(both).await.status().is_success());
    assert_eq!(caller.rows("entries").len(), entries + 1);
    for (order, expected) in [
        (json!({"CaseId": id, "EntryNumber": 7, "Amount": 1, "CreateEntry": true}), 400),
        (json!({"CaseId": id, "EntryNumber": 7, "Amount": 1.005}), 400),
        (json!({"CaseId": 7, "EntryNumber": 7, "Amount": 1}), 404),
    ] {
        assert_eq!(post(order.clone()).await.status().as_u16(), expected, "{order}");
    }
}

#[tokio::test]
async fn a_bank_transfer_is_changed_by_who_made_it_until_somebody_takes_it_further() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[10];
    let of_case = || {
        let mut rows = caller.rows("bank_transfers");
        rows.retain(|row| row["case_id"] == id);
        rows
    };
    while !of_case().is_empty() {
        caller.change(id, Facet::BankTransferRemoved);
    }
    let path = format!("/api/Integrations/Invoicing/Cases/{id}/BankTransfers");
    let order = json!({"BankTransferTypeId": 3, "Amount": 500, "AccountNumber": "86011117947",
        "ReceiverName": "Kari Nordmann", "ReceiverIsACompany": false});
    let made = body(caller.send(Method::POST, &path, Some(order)).await.unwrap()).await;
    assert_eq!(made["BankTransferStatus"], "Hold");
    let one = format!("{path}/{}", made["Id"]);
    let patch = async |order: Json| {
        caller.send(Method::PATCH, &one, Some(order)).await.unwrap().status().as_u16()
    };
    assert_eq!(patch(json!({"KidNumber": "0042", "Amount": 600.01})).await, 200);
    let rows = of_case();
    assert_eq!((&rows[0]["kid_number"], &rows[0]["amount"]), (&json!("0042"), &json!("600.01")));
    assert_eq!(patch(json!({"Colour": "red"})).await, 400);
    caller.change(id, Facet::BankTransferEdited);
    assert_eq!(patch(json!({"Amount": 1})).await, 409);
    let missing = caller.send(Method::PATCH, &format!("{path}/1"), Some(json!({}))).await.unwrap();
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
}
