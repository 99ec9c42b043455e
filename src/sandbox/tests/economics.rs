//! Estimates, commission sharing, definitions.

use super::*;

#[tokio::test]
async fn the_state_equals_the_estimates_and_the_sharing_of_every_case() {
    let caller = Caller::new(quiet()).await;
    let estimates = caller.rows("estimated_costs");
    let sharing = caller.rows("commission_sharing");
    for id in caller.sandbox.case_ids() {
        let path = format!("/api/Conditions/Cases/{id}/EstimatedCosts/false");
        let wire = caller.get(&path).await;
        let cells = estimates.iter().find(|row| row["case_id"] == id);
        match cells {
            Some(cells) => assert_same_row(cells, &wire, &path),
            None => assert!(wire.is_null(), "{path}"),
        }
        for kind in ["Amount", "Percent"] {
            let path = format!("/api/Salaries/Cases/{id}/CommissionSharing/Type/{kind}");
            let wire = caller.get(&path).await;
            let cells = sharing.iter().filter(|row| row["case_id"] == id && row["type"] == kind);
            assert_eq!(cells.clone().count(), wire.as_array().unwrap().len(), "{path}");
            for (cells, wire) in cells.zip(wire.as_array().unwrap()) {
                assert_same_row(cells, wire, &path);
            }
        }
    }
    assert!(caller.sandbox.stats().never_to_do.is_empty());
}

#[tokio::test]
async fn shares_are_percent_and_of_a_few_cases_fractions() {
    let caller = Caller::new(Options { cases: 200, ..quiet() }).await;
    let mut sums = std::collections::BTreeMap::<i64, f64>::new();
    let rows = caller.rows("commission_sharing");
    for row in rows.iter().filter(|row| row["type"] == "Percent") {
        let share: f64 = row["percentage"].as_str().unwrap().parse().unwrap();
        *sums.entry(row["case_id"].as_i64().unwrap()).or_default() += share;
    }
    let near = |goal: f64| sums.values().filter(|sum| (**sum - goal).abs() < 0.001).count();
    assert_eq!(near(100.0) + near(1.0), sums.len());
    assert!(near(1.0) > 3 && near(100.0) > 100);
    let extra = |kind: &str| {
        rows.iter().filter(|row| row["type"] == kind && !row["extra_payment"].is_null()).count()
    };
    assert!(extra("Amount") > 20 && extra("Percent") > 5);
}

#[tokio::test]
async fn to_recalculate_estimates_changes_them_and_is_noted() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[3];
    let rows = || {
        let mut rows = caller.rows("estimated_costs");
        rows.retain(|row| row["case_id"] == id);
        rows
    };
    caller.change(id, Facet::EstimatedCosts);
    let before = (rows(), caller.feed_row(id).await);
    let path = format!("/api/Conditions/Cases/{id}/EstimatedCosts");
    caller.get(&format!("{path}/true")).await;
    assert_ne!((rows(), caller.feed_row(id).await), before);
    assert_eq!(caller.sandbox.stats().never_to_do, [format!("GET {path}/true?")]);
    let (status, _) = caller.ask(Method::GET, &format!("{path}/maybe")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn facets_of_the_economy_change_it() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[10];
    for (facet, table, more) in [
        (Facet::CommissionAdded, "commission_sharing", 1),
        (Facet::Commission, "commission_sharing", 0),
        (Facet::CommissionRemoved, "commission_sharing", -1),
        (Facet::EstimatedCosts, "estimated_costs", 0),
    ] {
        let before = caller.rows(table);
        caller.change(id, facet);
        let after = caller.rows(table);
        assert_ne!(before, after, "{facet:?}");
        assert_eq!(after.len() as i64 - before.len() as i64, more, "{facet:?}");
    }
}

#[tokio::test]
async fn definitions_are_listed_by_category_and_at_both_addresses() {
    let caller = Caller::new(quiet()).await;
    let at = |path: &str| format!("/api/{path}");
    let main = at("Integrations/Bookkeeping/ExtendedEntryDefinitions");
    let other = at("Economics/ExtendedEntryDefinitions");
    let truth = caller.rows("extended_entry_definitions");
    let all = caller.get(&format!("{main}?$top=500&$inlinecount=allpages")).await;
    assert_eq!(all["Count"], truth.len());
    assert_eq!(caller.get(&main).await.as_array().unwrap().len(), 100);
    for (cells, wire) in truth.iter().zip(all["Results"].as_array().unwrap()) {
        assert_same_row(cells, wire, &main);
    }
    let deleted = truth.iter().filter(|row| row["is_deleted"] == true).count();
    assert!(deleted > 0);
    let listed = caller.get(&format!("{other}?$top=500")).await.as_array().unwrap().len();
    assert_eq!(listed, truth.len() - deleted);
    assert_eq!(caller.get(&format!("{other}?includeDeleted=true&$top=500")).await, all["Results"]);

    let rows = caller.rows("entry_definitions");
    for category in ["PropertyForSale", "Plot"] {
        let wire =
            caller.get(&at(&format!("Economics/{category}/EntryDefinitions?$top=500"))).await;
        let cells: Vec<&Json> =
            rows.iter().filter(|row| row["case_category"] == category).collect();
        assert_eq!(cells.len(), wire.as_array().unwrap().len());
        for (cells, wire) in cells.into_iter().zip(wire.as_array().unwrap()) {
            let mut cells = cells.clone();
            cells.as_object_mut().unwrap().remove("case_category");
            assert_same_row(&cells, wire, category);
        }
    }
    let (status, _) = caller.ask(Method::GET, &at("Economics/Castle/EntryDefinitions")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn definitions_change_and_stay_when_they_are_removed() {
    let caller = Caller::new(quiet()).await;
    let count = caller.rows("extended_entry_definitions").len();
    let of_sales = || {
        let mut rows = caller.rows("entry_definitions");
        rows.retain(|row| row["case_category"] == "PropertyForSale");
        rows
    };
    let before = of_sales();
    for (edit, all, listed) in [
        (ListEdit::Added, count + 1, before.len() + 1),
        (ListEdit::Changed, count + 1, before.len() + 1),
        (ListEdit::Removed, count + 1, before.len()),
    ] {
        caller.sandbox.act(&Act::Definition { edit }).unwrap();
        assert_eq!(caller.rows("extended_entry_definitions").len(), all, "{edit:?}");
        assert_eq!(of_sales().len(), listed, "{edit:?}");
    }
    assert_ne!(of_sales()[0], before[0]);
}

#[tokio::test]
async fn a_service_can_have_only_the_other_address() {
    let options = Options { definitions_at: DefinitionsAt::Economics, ..quiet() };
    let caller = Caller::new(options).await;
    let (status, _) =
        caller.ask(Method::GET, "/api/Integrations/Bookkeeping/ExtendedEntryDefinitions").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    caller.get("/api/Economics/ExtendedEntryDefinitions?includeDeleted=true").await;
}
