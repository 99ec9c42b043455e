//! The searches, and how lists page.

use super::*;

#[tokio::test]
async fn the_search_lags_behind_and_the_feed_does_not() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[20];
    caller.sandbox.control(Control::FreezeSearch {});
    let query = format!("$filter=Id eq {id}");
    let which =
        if caller.search("Property", &query).await[0].is_null() { "Project" } else { "Property" };
    let before = caller.search(which, &query).await;
    caller.change(id, Facet::Activity);
    caller.change(id, Facet::Bid);
    assert_eq!(caller.search(which, &query).await, before);
    caller.sandbox.control(Control::SearchLag { ms: 0 });
    let after = caller.search(which, &query).await;
    assert_ne!(after[0]["BidChangedDate"], before[0]["BidChangedDate"]);
}

#[tokio::test]
async fn searches_name_their_columns_and_select_from_them() {
    let caller = Caller::new(quiet()).await;
    for (which, columns) in [("Property", 206), ("Project", 157), ("Contact", 40)] {
        let list = caller.search(which, "$select=").await;
        assert_eq!(list.as_array().unwrap().len(), columns, "{which}");
    }
    let rows = caller.search("Property", "$select=Id, Office&$top=2&$count=true").await;
    assert_eq!(rows["Results"][0].as_object().unwrap().len(), 2);
    assert!(rows["Count"].as_i64().unwrap() > 2);
}

#[tokio::test]
async fn signed_cases_can_be_counted_as_the_reference_says() {
    let caller = Caller::new(quiet()).await;
    let (from, to) = ("2020-01-01T00:00:00Z", "2040-01-01T00:00:00Z");
    let query = format!(
        "$filter=CaseActivatedDate ge datetime'{from}' and CaseActivatedDate le datetime'{to}' and \
         AssignmentType ne 'Valuation'&$orderby=CreatedDate desc&$inlinecount=allpages&$top=1"
    );
    let expected = caller.rows("cases").into_iter().filter(|row| {
        !row["case_activated_date"].is_null() && row["assignment_type"] != "Valuation"
    });
    assert_eq!(caller.search("Property", &query).await["Count"], expected.count());
}

#[tokio::test]
async fn long_lists_are_paged_and_the_default_is_a_hundred() {
    let caller = Caller::new(quiet()).await;
    let case_ids = caller.sandbox.case_ids();
    let activities = format!("/api/Cases/{}/Activities", case_ids[4]);
    assert_eq!(caller.get(&activities).await.as_array().unwrap().len(), 100);
    let counted = caller.get(&format!("{activities}?$inlinecount=allpages&$top=5")).await;
    assert_eq!(counted["Count"], 250);
    let entries = format!("/api/Integrations/Bookkeeping/Cases/{}/Entries", case_ids[6]);
    assert_eq!(caller.get(&entries).await.as_array().unwrap().len(), 100);
    assert_eq!(caller.get(&format!("{entries}?$skip=100")).await.as_array().unwrap().len(), 30);
}
