//! What the world holds, and what happens in it.

use super::*;

#[tokio::test]
async fn the_world_is_large_enough_and_the_same_for_a_seed() {
    let options = || Options { origin: Some("2026-11-20T12:00:00Z".to_owned()), ..quiet() };
    let caller = Caller::new(options()).await;
    assert!(caller.rows("offices").len() >= 5 && caller.rows("employees").len() >= 30);
    let again = Caller::new(options()).await;
    assert_eq!(caller.sandbox.state(), again.sandbox.state());
    let other = Caller::new(Options { seed: 2, ..options() }).await;
    assert_ne!(caller.sandbox.state(), other.sandbox.state());
}

#[tokio::test]
async fn all_contacts_are_named_by_roles_or_within_reach_of_the_feed() {
    let caller = Caller::new(quiet()).await;
    let now = caller.sandbox.shared.server_time();
    let from = now.plus_days(-364).exact();
    let feed =
        caller.get(&format!("/api/Integrations/RecentlyModified/Contacts?fromDate={from}")).await;
    let mut known = ids(&feed, "ContactId");
    known.extend(caller.rows("case_roles").iter().map(|row| row["contact_id"].as_i64().unwrap()));
    for row in caller.rows("contacts") {
        assert!(known.contains(&row["id"].as_i64().unwrap()), "{}", row["id"]);
    }
}

/// The dates that move with a facet beside `ModifiedDate`, sorted.
fn dates_of(facet: Facet) -> &'static [&'static str] {
    match facet {
        Facet::Activity | Facet::ActivityEdited | Facet::ActivityRemoved | Facet::Showing => {
            &["ActivityChangedDate"]
        }
        Facet::Description
        | Facet::Association
        | Facet::AssociationRemoved
        | Facet::SaleText
        | Facet::SaleTextAdded
        | Facet::SaleTextRemoved
        | Facet::SaleTextSwitched => &["DescriptionChangedDate"],
        Facet::RoleAdded | Facet::ContactAdded => &["CaseEntityChangedDate"],
        Facet::Transaction
        | Facet::Draft
        | Facet::DraftRemoved
        | Facet::ExternalEntry
        | Facet::ExternalEntryRemoved
        | Facet::BankTransfer
        | Facet::BankTransferEdited
        | Facet::BankTransferRemoved => &["TransactionChangedDate"],
        Facet::Bid => &["BidChangedDate"],
        Facet::Image | Facet::ImageRemoved => &["ImageChangedDate"],
        Facet::Attachment | Facet::AttachmentRemoved => &["AttachmentChangedDate"],
        Facet::Publication | Facet::PublicationRemoved => &["PublicationChangedDate"],
        Facet::Activated => &["CaseActivatedDate"],
        Facet::Sold => &["CaseEntityChangedDate", "CaseSoldDate"],
        Facet::RoleRemoved
        | Facet::Cost
        | Facet::CostAdded
        | Facet::CostRemoved
        | Facet::Settled
        | Facet::EstimatedCosts
        | Facet::Commission
        | Facet::CommissionAdded
        | Facet::CommissionRemoved
        | Facet::ImageReordered
        | Facet::FileElsewhere
        | Facet::FileShared
        | Facet::Note
        | Facet::NoteEdited
        | Facet::NoteRemoved
        | Facet::Information
        | Facet::Nothing => &[],
    }
}

#[tokio::test]
async fn every_facet_moves_exactly_its_dates() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[20];
    for facet in Facet::ALL {
        let expected = dates_of(facet);
        let before = caller.feed_row(id).await.unwrap();
        let outcome = caller.change(id, facet);
        let after = caller.feed_row(id).await.unwrap();
        let mut moved: Vec<&str> = before
            .as_object()
            .unwrap()
            .iter()
            .filter(|(field, value)| after[field.as_str()] != **value)
            .map(|(field, _)| field.as_str())
            .collect();
        moved.retain(|field| *field != "ModifiedDate");
        moved.sort_unstable();
        assert_eq!(moved, expected, "{facet:?}");
        assert!(after["ModifiedDate"] != before["ModifiedDate"]);
        assert_eq!(outcome.moved.len(), expected.len() + 1);
    }
}

#[tokio::test]
async fn events_of_the_worlds_own_accord_keep_the_feed_in_order() {
    let caller = Caller::new(quiet()).await;
    caller.sandbox.act(&Act::Tick { events: 300 }).unwrap();
    let feed = caller
        .get("/api/Integrations/RecentlyModified/Cases?$top=1000&$orderby=ModifiedDate")
        .await;
    let dates: Vec<Ticks> = feed
        .as_array()
        .unwrap()
        .iter()
        .map(|row| Ticks::parse(row["ModifiedDate"].as_str().unwrap(), false).unwrap())
        .collect();
    assert!(dates.is_sorted() && dates.len() > 60);
}

#[tokio::test]
async fn a_deleted_case_is_nowhere_once_the_index_knows() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[20];
    caller.sandbox.control(Control::FreezeSearch {});
    let all = caller.search("Property", "$top=1000&$select=Id").await;
    caller.sandbox.act(&Act::DeleteCase { case_id: id }).unwrap();
    assert_eq!(caller.search("Property", "$top=1000&$select=Id").await, all);
    assert!(caller.feed_row(id).await.is_none());
    let (status, _) = caller.ask(Method::GET, &format!("/api/Cases/{id}/Roles")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    caller.sandbox.control(Control::SearchLag { ms: 0 });
    let left = caller.search("Property", "$top=1000&$select=Id").await;
    assert!(!ids(&left, "Id").contains(&id));
}

#[tokio::test]
async fn a_hidden_case_leaves_the_search_alone() {
    let caller = Caller::new(quiet()).await;
    let id = ids(&caller.search("Property", "$top=1").await, "Id")[0];
    caller.sandbox.act(&Act::HideCase { case_id: id, silent: false }).unwrap();
    assert_eq!(caller.search("Property", &format!("$filter=Id eq {id}")).await, json!([]));
    assert!(caller.feed_row(id).await.is_some());
    caller.get(&format!("/api/Cases/{id}/Roles")).await;
    assert!(!caller.rows("cases").iter().any(|row| row["id"] == id));
    assert!(caller.rows("case_roles").iter().any(|row| row["case_id"] == id));
}

#[tokio::test]
async fn every_facet_changes_a_table_that_its_dates_make_stale() {
    let caller = Caller::new(quiet()).await;
    let ids = caller.sandbox.case_ids();
    for (n, facet) in Facet::ALL.into_iter().enumerate() {
        let table = match facet {
            Facet::Image
            | Facet::ImageRemoved
            | Facet::ImageReordered
            | Facet::Attachment
            | Facet::AttachmentRemoved
            | Facet::FileElsewhere => "case_files",
            Facet::FileShared => "case_file_access",
            Facet::Publication | Facet::PublicationRemoved => "publications",
            Facet::Note | Facet::NoteEdited | Facet::NoteRemoved => "notes",
            Facet::Information => "property_information",
            Facet::Association => "housing_associations",
            Facet::ExternalEntry | Facet::ExternalEntryRemoved => "external_entries",
            Facet::BankTransfer | Facet::BankTransferEdited | Facet::BankTransferRemoved => {
                "bank_transfers"
            }
            Facet::SaleTextSwitched => "dynamic_sale_text_use",
            Facet::Showing => "public_showings",
            Facet::Settled => "settlement_statuses",
            _ => continue,
        };
        let before = caller.rows(table);
        // The newest cases: their settlement has not come to its end.
        caller.change(ids[ids.len() - 1 - n % 10], facet);
        assert!(caller.rows(table) != before, "{facet:?}");
    }
}
