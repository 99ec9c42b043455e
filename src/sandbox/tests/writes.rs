//! The documented writes.

use super::*;

#[tokio::test]
async fn documented_writes_change_the_state_and_the_right_dates() {
    let caller = Caller::new(quiet()).await;
    let truth = caller.rows("costs");
    let cost = truth.iter().find(|row| row["cost_type"] == "Buyer").unwrap();
    let (id, cost_id) = (cost["case_id"].as_i64().unwrap(), &cost["id"]);
    let drafts = format!("/api/Integrations/Bookkeeping/Cases/{id}/EntryDrafts");
    let before = caller.feed_row(id).await.unwrap();
    let order = json!({"EntryDefinitionId": 202, "Amount": 1234.5, "Description": "\"Ny\""});
    let made = caller.send(Method::POST, &drafts, Some(order)).await.unwrap();
    assert_eq!(made.status(), StatusCode::OK);
    let made = body(made).await;
    assert_eq!(made["Source"], "IntegrationsBookkeepingApi");
    let row = caller.rows("entry_drafts").into_iter().find(|row| row["id"] == made["Id"]).unwrap();
    assert_eq!(row["amount"], "1234.50");
    let after = caller.feed_row(id).await.unwrap();
    assert_ne!(before["TransactionChangedDate"], after["TransactionChangedDate"]);

    let path = format!("/api/Conditions/Properties/{id}/Costs/{cost_id}/Buyer");
    let changed =
        caller.send(Method::PATCH, &path, Some(json!({"Amount": 7.07, "Selected": true}))).await;
    assert_eq!(body(changed.unwrap()).await["Amount"], json!(7.07));
    let last = caller.feed_row(id).await.unwrap();
    assert_eq!(last["TransactionChangedDate"], after["TransactionChangedDate"]);
    assert_ne!(last["ModifiedDate"], after["ModifiedDate"]);

    let entries = format!("/api/Integrations/Bookkeeping/Cases/{id}/Entries");
    for (path, order) in [
        (&drafts, json!({"EntryDefinitionId": 201, "Amount": 1})),
        (&drafts, json!({"EntryDefinitionId": 202, "Amount": 1.005})),
        (&drafts, json!({"EntryDefinitionId": 9, "Amount": 1})),
        (&entries, json!({"EntryDefinitionId": 202, "Amount": 1, "EntryDate": "2026-01-01"})),
        (&entries, json!({"EntryDefinitionId": 201, "Amount": 1})),
        (&entries, json!({"EntryDefinitionId": 201, "Amount": 1, "Colour": "red"})),
    ] {
        let refused = caller.send(Method::POST, path, Some(order.clone())).await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{order}");
    }
    assert_eq!(caller.sandbox.stats().writes, 8);
}
