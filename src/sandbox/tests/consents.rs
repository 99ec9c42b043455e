//! Processing bases and their relations to contacts.

use super::*;

impl Caller {
    async fn relations(&self, order: Json) -> Vec<Json> {
        let path = "/api/ProcessingBases/Relations/Contacts/Extended";
        let answer = self.send(Method::POST, path, Some(order)).await.unwrap();
        assert!(answer.status().is_success());
        body(answer).await.as_array().unwrap().clone()
    }

    fn consent(&self, act: Act) -> i64 {
        self.sandbox.act(&act).unwrap().ids[0]
    }
}

fn window(from: &str, until: &str, offset: usize, limit: usize) -> Json {
    json!({"startDate": from, "endDate": until, "offset": offset, "limit": limit})
}

#[tokio::test]
async fn the_state_has_all_versions_of_all_bases() {
    let caller = Caller::new(quiet()).await;
    let truth = caller.rows("processing_bases");
    let newest = caller.get("/api/ProcessingBases/Newest").await;
    let mut wire = Vec::new();
    for basis in newest.as_array().unwrap() {
        assert_eq!((&basis["IsNewestVersion"], &basis["IsActive"]), (&json!(true), &json!(true)));
        let path = format!("/api/ProcessingBases/{}/VersionHistory", basis["Id"]);
        wire.extend(caller.get(&path).await.as_array().unwrap().clone());
    }
    assert_eq!(truth.len(), wire.len());
    assert!(truth.len() > newest.as_array().unwrap().len());
    for (cells, wire) in truth.iter().zip(&wire) {
        assert_same_row(cells, wire, "processing basis");
    }
    let (status, _) = caller.ask(Method::GET, "/api/ProcessingBases/7/VersionHistory").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn bases_come_get_versions_and_leave_the_newest() {
    let caller = Caller::new(quiet()).await;
    let count = async |path: &str| caller.get(path).await.as_array().unwrap().len();
    let newest = "/api/ProcessingBases/Newest";
    let (active, all) = (count(newest).await, caller.rows("processing_bases").len());
    caller.consent(Act::ProcessingBasis { edit: ListEdit::Added });
    assert_eq!(count(newest).await, active + 1);
    let id = caller.consent(Act::ProcessingBasis { edit: ListEdit::Changed });
    assert_eq!(count(newest).await, active + 1);
    let history = format!("/api/ProcessingBases/{id}/VersionHistory");
    let versions = caller.get(&history).await;
    let newest_ones = versions.as_array().unwrap().iter().filter(|v| v["IsNewestVersion"] == true);
    assert_eq!(newest_ones.count(), 1);
    let id = caller.consent(Act::ProcessingBasis { edit: ListEdit::Removed });
    assert_eq!(count(newest).await, active);
    assert!(count(&format!("/api/ProcessingBases/{id}/VersionHistory")).await > 0);
    assert_eq!(caller.rows("processing_bases").len(), all + 2);
}

#[tokio::test]
async fn relations_are_found_by_window_and_page() {
    let caller = Caller::new(Options { cases: 600, ..quiet() }).await;
    let truth = caller.rows("processing_basis_relations");
    let (from, until) = ("2010-01-01T00:00:00Z", "2040-01-01T00:00:00Z");
    let mut wire = Vec::new();
    while wire.len() % 100 == 0 {
        wire.extend(caller.relations(window(from, until, wire.len(), 100)).await);
    }
    assert_eq!(wire.len(), truth.len());
    for (cells, wire) in truth.iter().zip(&wire) {
        let mut cells = cells.clone();
        for (column, field) in
            [("processing_basis_model_id", "Id"), ("processing_basis_model_version", "Version")]
        {
            let cell = cells.as_object_mut().unwrap().remove(column).unwrap();
            assert_eq!(cell, wire["ProcessingBasisModel"][field]);
        }
        assert_same_row(&cells, wire, "relation");
    }
    let whole = caller.relations(window(from, until, 0, 1000)).await;
    let mut parts = caller.relations(window(from, "2025-01-01T00:00:00Z", 0, 1000)).await;
    parts.extend(caller.relations(window("2025-01-01T00:00:00.0000001Z", until, 0, 1000)).await);
    assert_eq!(parts, whole);
    let mut consents = window(from, until, 0, 1000);
    consents["type"] = json!("Consents");
    let some = caller.relations(consents).await;
    assert!(!some.is_empty() && some.len() < whole.len());
    let path = "/api/ProcessingBases/Relations/Contacts/Extended";
    for order in [window(from, until, 0, 1001), window("then", until, 0, 9), json!({"limit": 1})] {
        let refused = caller.send(Method::POST, path, Some(order.clone())).await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{order}");
    }
    assert_eq!(caller.sandbox.stats().writes, 0);
    caller.sandbox.control(Control::Withdraw { permission: "ProcessingBasis - Read".to_owned() });
    let refused = caller.send(Method::POST, path, Some(window(from, until, 0, 9))).await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_consent_that_is_taken_back_stays_in_its_window() {
    let caller = Caller::new(quiet()).await;
    let truth = || caller.rows("processing_basis_relations");
    let before = truth();
    let id = caller.consent(Act::Relation { edit: ListEdit::Changed });
    let index = before.iter().position(|row| row["id"] == id).unwrap();
    let after = truth();
    assert_eq!(
        (&before[index]["is_checked"], &after[index]["is_checked"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(before[index]["checked_date"], after[index]["checked_date"]);
    caller.consent(Act::Relation { edit: ListEdit::Added });
    assert_eq!(truth().len(), before.len() + 1);
    let gone = caller.consent(Act::Relation { edit: ListEdit::Removed });
    assert!(truth().iter().all(|row| row["id"] != gone));
    let new = caller.consent(Act::Relation { edit: ListEdit::Added });
    assert!(before.iter().all(|row| row["id"] != new), "ids are not used twice");
}
