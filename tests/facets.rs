//! What changes at the source and what the mirror makes of it: facet by facet exactly the calls of the
//! refresh rule of each table, and every table equal whatever the service makes of paging.

use std::collections::{BTreeMap, BTreeSet};

use casemirror::catalog::Catalog;
use casemirror::sandbox::{Act, Facet, Journal, JournalEdit, ListEdit, Options, Outcome, Paging};
use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use rstest::rstest;
use serde_json::Value;

use crate::evidence::alter;
use crate::support::follow::{
    UNTHROTTLED, assert_status, brisk, calls, change, idle_calls, shown_cases, unthrottled,
};
use crate::support::scripted::{fault, refuse};
use crate::support::{World, one, shown};

const PROPERTY_SEARCH: &str = "POST /api/Search/AdvancedPropertySearch";
const PROJECT_SEARCH: &str = "POST /api/Search/AdvancedProjectSearch";
const CONTACT_SEARCH: &str = "POST /api/Search/AdvancedContactSearch";

/// `source.search_delay` of these tests.
const SEARCH_DELAY: TimeDelta = TimeDelta::seconds(1);

/// The eleven change dates of a case.
const DATES: [&str; 11] = [
    "ModifiedDate",
    "ActivityChangedDate",
    "AttachmentChangedDate",
    "BidChangedDate",
    "CaseActivatedDate",
    "CaseEntityChangedDate",
    "CaseSoldDate",
    "DescriptionChangedDate",
    "ImageChangedDate",
    "PublicationChangedDate",
    "TransactionChangedDate",
];

/// A table: which dates make it stale (none: any of them), and the calls that read it.
/// `{}` is the case, `{guid}` its GUID.
type Refresh = (&'static str, &'static [&'static str], &'static [&'static str]);

/// The refresh column, written out by hand.
const REFRESH: &[Refresh] = &[
    ("case_roles", &["CaseEntityChangedDate"], &["GET /api/Cases/{}/Roles"]),
    ("activities", &["ActivityChangedDate"], &["GET /api/Cases/{}/Activities"]),
    ("publications", &["PublicationChangedDate"], &["GET /api/Cases/{}/Publications"]),
    (
        "case_files",
        &["AttachmentChangedDate", "ImageChangedDate"],
        &["POST /api/Cases/{}/Directory/Search"],
    ),
    ("notes", &[], &["GET /api/Notes/Case/{}"]),
    ("settlement_statuses", &[], &["GET /api/Properties/{}/SettlementStatuses"]),
    ("property_information", &[], &["GET /api/Properties/{}/Information"]),
    ("property_conditions", &[], &["GET /api/Conditions/Properties/{}"]),
    ("case_conditions", &[], &["GET /api/Properties/{}/Conditions"]),
    ("common_conditions", &[], &["GET /api/Properties/{}/CommonConditions"]),
    (
        "costs",
        &[],
        &["GET /api/Conditions/Cases/{}/Costs/Buyer", "GET /api/Conditions/Cases/{}/Costs/Seller"],
    ),
    ("document_costs", &[], &["GET /api/Properties/{}/PublicTaxes/DocumentCost"]),
    ("resale_information", &[], &["GET /api/Properties/{}/ResaleInformation"]),
    ("estimated_costs", &[], &["GET /api/Conditions/Cases/{}/EstimatedCosts/false"]),
    (
        "commission_sharing",
        &[],
        &[
            "GET /api/Salaries/Cases/{}/CommissionSharing/Type/Amount",
            "GET /api/Salaries/Cases/{}/CommissionSharing/Type/Percent",
        ],
    ),
    ("housing_associations", &[], &["GET /api/Properties/{}/HousingAssociation"]),
    ("dynamic_sale_text_use", &[], &["GET /api/DynamicSaleText/Cases/{}/UseDynamicSaleText"]),
    ("dynamic_sale_texts", &[], &["GET /api/DynamicSaleText/Cases/{}/DynamicSaleTextItems"]),
    (
        "entries",
        &["TransactionChangedDate"],
        &["GET /api/Integrations/Bookkeeping/Cases/{}/Entries"],
    ),
    (
        "entry_drafts",
        &["TransactionChangedDate"],
        &["GET /api/Integrations/Bookkeeping/Cases/{}/EntryDrafts"],
    ),
    ("external_entries", &["TransactionChangedDate"], &["GET /api/Cases/{}/ExternalEntries"]),
    (
        "bank_transfers",
        &["TransactionChangedDate"],
        &["GET /api/Integrations/Invoicing/Cases/{}/BankTransfers"],
    ),
    ("public_showings", &["ActivityChangedDate"], &["GET /api/Public/Properties/{guid}/Showings"]),
];

/// The tables that searches fill, those that come with another, and those that schedules read.
const OTHERS: &[&str] = &[
    "cases",
    "projects",
    "contacts",
    "case_file_access",
    "employees",
    "employee_offices",
    "offices",
    "accounts",
    "entry_definitions",
    "extended_entry_definitions",
    "processing_bases",
    "processing_basis_relations",
    "file_tags",
    "api_permissions",
    "webhook_subscriptions",
    "case_journals",
    "depot_journals",
    "revenue_journals",
    "settlement_journals",
    "case_journal_annotations",
    "revenue_journal_annotations",
    "revenue_journal_sums",
    EVENTS,
];

/// What webhooks alone tell: no call fills it.
const EVENTS: &str = "events";

/// Facets that no date but `ModifiedDate` tells of, and the tables that they leave behind.
const NARROW: &[(Facet, &str)] = &[
    (Facet::RoleRemoved, "case_roles"),
    (Facet::ImageReordered, "case_files"),
    (Facet::FileElsewhere, "case_files"),
    (Facet::FileShared, "case_file_access"),
];

/// What one change of a case has to cause.
struct Expected {
    tables: BTreeSet<&'static str>,
    calls: BTreeMap<String, u64>,
}

fn expected(world: &World, outcome: &Outcome) -> Expected {
    let case_id = outcome.case_ids[0];
    let state = world.sandbox.tables(&["cases", "projects", "dynamic_sale_text_use"]);
    let row_of = |table: &str, key: &str| -> Option<Value> {
        let rows = state["tables"][table].as_array().unwrap();
        rows.iter().find(|row| row[key] == case_id).cloned()
    };
    let (table, search) = match row_of("cases", "id") {
        Some(_) => ("cases", PROPERTY_SEARCH),
        None => ("projects", PROJECT_SEARCH),
    };
    let row = row_of(table, "id").unwrap();
    // What a case does not have is not asked for.
    let has = |table: &str| match table {
        "resale_information" => row["assignment_type"].as_str().unwrap().starts_with("Resale"),
        "dynamic_sale_texts" => {
            row_of("dynamic_sale_text_use", "case_id").is_some_and(|row| row["value"] == true)
        }
        _ => true,
    };
    let mut expected = Expected { tables: [table].into(), calls: idle_calls() };
    for (table, dates, calls) in REFRESH {
        let stale = dates.is_empty() || dates.iter().any(|date| outcome.moved.contains_key(*date));
        if stale && has(table) {
            expected.tables.insert(table);
            for call in *calls {
                let guid = row["guid"].as_str().unwrap();
                let call = call.replace("{}", &case_id.to_string()).replace("{guid}", guid);
                expected.calls.insert(call, 1);
            }
        }
    }
    let modified = outcome.moved["ModifiedDate"].as_deref().unwrap();
    expected.calls.insert(search.to_owned(), searches(world, search, modified));
    if !outcome.contact_ids.is_empty() {
        expected.tables.insert("contacts");
        let times = searches(world, CONTACT_SEARCH, modified);
        expected.calls.insert(CONTACT_SEARCH.to_owned(), times);
    }
    expected
}

/// Twice where the first search came before `ModifiedDate` + `source.search_delay` by the server's
/// clock of whole seconds, else once.
fn searches(world: &World, search: &str, modified: &str) -> u64 {
    let instant = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
    let log = world.sandbox.stats().log;
    let first = log.iter().find(|call| format!("{} {}", call.method, call.path) == search);
    let first = instant(&first.unwrap_or_else(|| panic!("no {search}")).at);
    let date = first.duration_trunc(TimeDelta::seconds(1)).unwrap();
    1 + u64::from(date < instant(modified) + SEARCH_DELAY)
}

/// A line of the table that the test prints.
struct Followed {
    facet: Facet,
    moved: Vec<String>,
    tables: BTreeSet<&'static str>,
    expected: u64,
    made: u64,
}

/// Changes a facet of a case, runs `sync`, and asserts the calls and the rows.
fn follow(world: &World, case_id: i64, facet: Facet) -> Followed {
    world.sandbox.reset_stats();
    let outcome = change(world, case_id, facet);
    world.sync();
    let (made, expected) = (calls(world), expected(world, &outcome));
    assert_eq!(made, expected.calls, "{facet:?} of case {case_id}: {outcome:?}");
    let mut differing = world.differences();
    if let Some((_, table)) = NARROW.iter().find(|(narrow, _)| *narrow == facet) {
        assert!(!differing.is_empty(), "{facet:?} of case {case_id} did nothing");
        // A file and those it is shared with are of one answer.
        let table = if table.starts_with("case_file") { "case_file" } else { table };
        differing.retain(|difference| !difference.starts_with(table));
        assert_eq!(differing, [""; 0], "{facet:?} of case {case_id}");
        assert_status(&world.run(&["sync", "--full"]), 0);
        world.assert_equal();
    } else {
        assert_eq!(differing, [""; 0], "{facet:?} of case {case_id}");
    }
    Followed {
        facet,
        moved: outcome.moved.into_keys().collect(),
        tables: expected.tables,
        expected: expected.calls.values().sum(),
        made: made.values().sum(),
    }
}

/// A case that has all there is: a resale with a dynamic sale text, files, roles, costs and so on.
fn case_with_everything(world: &World) -> i64 {
    let assignment = Some("ResaleOfContractPositionConsumer".to_owned());
    let act = Act::NewCase { project: false, assignment };
    let case_id = world.sandbox.act(&act).unwrap().case_ids[0];
    let adds = |facet: &&Facet| !format!("{facet:?}").ends_with("Removed");
    for facet in Facet::ALL.iter().filter(adds) {
        change(world, case_id, *facet);
    }
    let uses = world.sandbox.tables(&["dynamic_sale_text_use"]);
    let uses = uses["tables"]["dynamic_sale_text_use"].as_array().unwrap();
    if uses.iter().any(|row| row["case_id"] == case_id && row["value"] == false) {
        change(world, case_id, Facet::SaleTextSwitched);
    }
    case_id
}

#[test]
fn the_tables_of_these_tests_are_those_of_the_catalog() {
    let ours: BTreeSet<&str> =
        REFRESH.iter().map(|(table, _, _)| *table).chain(OTHERS.iter().copied()).collect();
    let catalog = Catalog::load(None).unwrap();
    assert_eq!(ours, catalog.names().into_iter().collect());
    assert_eq!(ours.len(), REFRESH.len() + OTHERS.len());
}

#[test]
fn every_facet_is_followed_by_exactly_the_calls_that_it_makes_stale() {
    let followed: Vec<Followed> = std::thread::scope(|scope| {
        let groups: Vec<_> = Facet::ALL
            .chunks(12)
            .map(|facets| {
                scope.spawn(move || {
                    let world = brisk(unthrottled(8));
                    let cases: Vec<i64> =
                        facets.iter().map(|_| case_with_everything(&world)).collect();
                    world.sync();
                    world.assert_equal();
                    facets
                        .iter()
                        .zip(cases)
                        .map(|(facet, case_id)| follow(&world, case_id, *facet))
                        .collect::<Vec<Followed>>()
                })
            })
            .collect();
        groups.into_iter().flat_map(|group| group.join().unwrap()).collect()
    });
    assert_eq!(followed.len(), Facet::ALL.len());

    println!(
        "{:<23}{:>9}{:>6}{:>7}  dates that moved; tables read",
        "facet", "expected", "made", "ratio"
    );
    for line in &followed {
        let ratio = line.made as f64 / line.expected as f64;
        let tables: Vec<&str> = line.tables.iter().copied().collect();
        println!(
            "{:<23}{:>9}{:>6}{ratio:>7.2}  {}; {}",
            format!("{:?}", line.facet),
            line.expected,
            line.made,
            line.moved.join(" "),
            tables.join(" ")
        );
        assert_eq!(line.made, line.expected);
    }
    // Every table was read for some facet, and each with a date of its own left alone for others.
    for (table, dates, _) in REFRESH {
        let read = followed.iter().filter(|line| line.tables.contains(table)).count();
        println!("{table:<23}read after {read} of {} facets", followed.len());
        assert!(read > 0 && (dates.is_empty() || read < followed.len() / 2), "{table}: {read}");
    }
    let moved: BTreeSet<&str> =
        followed.iter().flat_map(|line| line.moved.iter().map(String::as_str)).collect();
    assert_eq!(moved, DATES.into());
}

#[test]
fn projects_are_followed_by_their_own_search() {
    let world = brisk(unthrottled(8));
    let act = Act::NewCase { project: true, assignment: Some("Sale".to_owned()) };
    let project = world.sandbox.act(&act).unwrap().case_ids[0];
    world.sync();
    world.assert_equal();
    for facet in [Facet::Nothing, Facet::Activity, Facet::Description] {
        let followed = follow(&world, project, facet);
        assert!(followed.tables.contains("projects"));
        assert!(!calls(&world).contains_key(PROPERTY_SEARCH));
    }
}

#[test]
fn an_edited_contact_is_searched_and_nothing_else_is_read() {
    let world = brisk(unthrottled(8));
    world.bootstrap();
    world.sandbox.reset_stats();
    let act = Act::EditContact { contact_id: Some(50_001), at: None };
    let outcome = world.sandbox.act(&act).unwrap();
    world.sync();
    let mut expected = idle_calls();
    let times = searches(&world, CONTACT_SEARCH, outcome.moved["ModifiedDate"].as_deref().unwrap());
    expected.insert(CONTACT_SEARCH.to_owned(), times);
    assert_eq!(calls(&world), expected);
    world.assert_equal();
}

/// Settings with which every run is the whole night's: all lists, all that changed, the journals.
const NIGHTLY: &str = "[schedule]\nreference = \"* * * * * *\"\nreconcile = \"* * * * * *\"\n\
                       journals = \"* * * * * *\"\n";

/// Changes everything that is no facet of a case.
fn change_the_rest(world: &World) {
    let month = jiff::Zoned::now().strftime("%Y-%m").to_string();
    let state = world.sandbox.tables(&["offices", "employees"]);
    let first = |table: &str| state["tables"][table][0]["id"].as_i64().unwrap();
    let (office_id, employee_id) = (first("offices"), first("employees"));
    let mut acts = vec![
        Act::NewCase { project: false, assignment: None },
        Act::NewCase { project: true, assignment: None },
        Act::EditContact { contact_id: Some(50_001), at: None },
        Act::NewContact {},
        Act::EditEmployee { employee_id },
        Act::EditOffice { office_id },
        Act::MoveEmployee { employee_id, office_id: office_id + 1 },
    ];
    // What comes and goes between two nights is in no list.
    for edit in [ListEdit::Removed, ListEdit::Changed, ListEdit::Added] {
        acts.extend([
            Act::Account { office_id, edit },
            Act::Definition { edit },
            Act::ProcessingBasis { edit },
            Act::Relation { edit },
            Act::FileTag { edit },
            Act::Subscription { edit },
        ]);
    }
    let journals = [
        Journal::CaseJournals,
        Journal::DepotJournals,
        Journal::RevenueJournals,
        Journal::SettlementJournals,
    ];
    for journal in journals {
        for edit in [JournalEdit::Inserted, JournalEdit::Amount, JournalEdit::Removed] {
            acts.push(Act::Journal { journal, office_id, month: month.clone(), edit, line: None });
        }
    }
    for journal in [Journal::CaseJournals, Journal::RevenueJournals] {
        let edit = JournalEdit::Annotated;
        acts.push(Act::Journal { journal, office_id, month: month.clone(), edit, line: None });
    }
    for act in acts {
        world.sandbox.act(&act).unwrap_or_else(|e| panic!("{act:?}: {e}"));
    }
}

/// Rows that hang on these cases, per table that has such.
fn rows_of(world: &World, cases: &[i64]) -> BTreeMap<&'static str, i64> {
    let list: Vec<String> = cases.iter().map(i64::to_string).collect();
    let tables = REFRESH.iter().map(|(table, _, _)| (*table, "case_id"));
    tables
        .chain([("case_file_access", "case_id"), ("cases", "id"), ("projects", "id")])
        .map(|(table, key)| {
            let within = format!("{key} IN ({})", list.join(", "));
            let sql = format!("SELECT count(*) FROM main.{table} WHERE {within}");
            (table, one(&world.store(), &sql))
        })
        .collect()
}

#[rstest]
#[case::pages_as_documented(Paging::Odata, "")]
#[case::knows_skip_only(Paging::SkipOnly, "")]
#[case::ignores_paging(Paging::IgnoresPaging, "")]
#[case::feed_from_date(Paging::Odata, "style = \"from_date\"\n")]
fn every_table_is_equal_after_bootstrap_every_change_and_deletions(
    #[case] paging: Paging,
    #[case] style: &str,
) {
    let world = brisk(Options { paging, ..unthrottled(18) });
    let feed = format!("{UNTHROTTLED}{style}");
    world.configure(&feed);
    let everything = case_with_everything(&world);
    let project = world
        .sandbox
        .act(&Act::NewCase { project: true, assignment: Some("Sale".to_owned()) })
        .unwrap()
        .case_ids[0];
    world.sync();
    world.assert_equal();
    for table in Catalog::load(None).unwrap().names().into_iter().filter(|t| *t != EVENTS) {
        let rows: i64 = one(&world.store(), &format!("SELECT count(*) FROM main.{table}"));
        assert!(rows > 0, "{table} is empty");
    }

    // Every facet; the cases with long lists are among those that change.
    for (facet, case_id) in Facet::ALL.iter().zip(shown_cases(&world).iter().cycle()) {
        change(&world, *case_id, *facet);
    }
    world.sync();
    let mut missed = world.differences();
    missed.retain(|difference| !NARROW.iter().any(|(_, table)| difference.starts_with(table)));
    assert_eq!(missed, [""; 0]);

    change_the_rest(&world);
    world.configure(&format!("{feed}{NIGHTLY}"));
    world.sync();
    world.assert_equal();

    // Cases with rows in every table that hangs on one go, with lists of hundreds among them.
    let long = world.sandbox.case_ids();
    let gone = [everything, project, long[4], long[5], long[9]];
    let before = rows_of(&world, &gone);
    assert!(before.values().all(|rows| *rows > 0), "{before:?}");
    for case_id in gone {
        world.sandbox.act(&Act::DeleteCase { case_id }).unwrap();
    }
    world.sync();
    world.assert_equal();
    let after = rows_of(&world, &gone);
    assert!(after.values().all(|rows| *rows == 0), "{after:?}");
}

#[rstest]
#[case::a_removed_role(Facet::RoleRemoved, "case_roles ", "should not be there")]
#[case::a_reordered_image(Facet::ImageReordered, "case_files ", " priority: ")]
#[case::a_file_in_another_folder(Facet::FileElsewhere, "case_files ", "is missing")]
#[case::a_file_shared_with_one_more(Facet::FileShared, "case_file_access ", "is missing")]
fn what_a_narrow_date_misses_is_right_after_the_nightly_reconciliation(
    #[case] facet: Facet,
    #[case] table: &str,
    #[case] how: &str,
) {
    let world = brisk(unthrottled(8));
    let case_id = case_with_everything(&world);
    world.sync();
    change(&world, case_id, facet);
    world.sync();
    let missed = world.differences();
    assert!(!missed.is_empty(), "a date tells of it");
    let expected = |difference: &String| difference.starts_with(table) && difference.contains(how);
    assert!(missed.iter().any(expected), "{missed:?}");

    world.configure(&format!("{UNTHROTTLED}[schedule]\nreconcile = \"* * * * * *\"\n"));
    world.sandbox.reset_stats();
    world.sync();
    world.assert_equal();
    // Of that case everything was read again, of the others nothing.
    let roles = |id: i64| calls(&world).get(&format!("GET /api/Cases/{id}/Roles")).copied();
    for id in world.sandbox.case_ids() {
        assert_eq!(roles(id), (id == case_id).then_some(1), "{id}");
    }
}

#[test]
fn what_a_narrow_date_misses_is_right_after_a_night_in_which_the_cases_cannot_be_listed() {
    let world = brisk(unthrottled(8));
    let case_id = case_with_everything(&world);
    world.sync();
    change(&world, case_id, Facet::RoleRemoved);
    world.sync();
    assert!(!world.differences().is_empty(), "a date tells of it");
    world.configure(&format!("{UNTHROTTLED}[schedule]\nreconcile = \"* * * * * *\"\n"));
    world.sandbox.fault(fault("/api/Search/AdvancedProjectSearch", None, refuse(500)));
    for times in [Some(1), None] {
        world.sandbox.reset_stats();
        assert_status(&world.run(&["sync"]), 3);
        let roles = calls(&world).get(&format!("GET /api/Cases/{case_id}/Roles")).copied();
        assert_eq!(roles, times);
    }
    assert_eq!(world.differences(), [""; 0]);
    // When it can be listed, that is no reason to look at the case again.
    world.sandbox.clear_faults();
    alter(&world, "UPDATE sync.failures SET next_at = first_at");
    world.sync();
    world.assert_equal();
}

#[test]
fn a_listing_that_is_tried_again_reads_the_feeds_of_the_last_days_no_second_time() {
    let world = brisk(unthrottled(8));
    world.sync();
    let due = "UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reconcile'";
    alter(&world, due);
    let failing =
        world.sandbox.fault(fault("/api/Search/AdvancedProjectSearch", None, refuse(500)));
    let polls = || {
        world.sandbox.reset_stats();
        let status = world.run(&["sync"]).status.code();
        let feed = "GET /api/Integrations/RecentlyModified/Cases";
        (status, calls(&world).get(feed).copied())
    };
    assert_eq!(polls(), (Some(3), Some(2)), "it was polled, and read once more");
    assert_eq!(polls(), (Some(3), Some(1)));
    world.sandbox.remove_fault(failing);
    alter(&world, "UPDATE sync.failures SET next_at = first_at");
    assert_eq!(polls(), (Some(0), Some(1)));
    // The next night both are done again.
    alter(&world, due);
    assert_eq!(polls(), (Some(0), Some(2)));
}

#[test]
fn a_withdrawn_consent_is_right_after_the_night() {
    let world = brisk(unthrottled(20));
    world.bootstrap();
    let act = Act::Relation { edit: ListEdit::Changed };
    let relation = world.sandbox.act(&act).unwrap().ids[0];
    world.sync();
    let checked =
        format!("SELECT is_checked FROM main.processing_basis_relations WHERE id = {relation}");
    assert!(one::<bool>(&world.store(), &checked), "no date tells of it");
    world.configure(&format!("{UNTHROTTLED}{NIGHTLY}"));
    world.sync();
    assert!(!one::<bool>(&world.store(), &checked));
    world.assert_equal();
}

/// Calls that are no GET and read all the same.
const READING: &[&str] = &[
    "POST /authtoken",
    PROPERTY_SEARCH,
    PROJECT_SEARCH,
    CONTACT_SEARCH,
    "POST /api/Cases/{case_id}/Directory/Search",
    "POST /api/ProcessingBases/Relations/Contacts/Extended",
    "PUT /api/Offices/{office_id}/RevenueJournals/Sum",
];

#[test]
fn no_call_changes_the_source_or_reads_an_identity_number() {
    let world = brisk(unthrottled(16));
    // All that the schedules do in a week, and every field as it comes.
    let week = "journals_recheck = \"* * * * * *\"\nverify = \"* * * * * *\"\n\
                [reconcile]\nreread = \"all\"\n";
    world.configure(&format!("{UNTHROTTLED}{NIGHTLY}{week}"));
    let unchanged_by = |args: &[&str]| {
        let state = || {
            let mut state = world.sandbox.state();
            // Showings begin whatever anyone does.
            state["tables"].as_object_mut().unwrap().remove("public_showings");
            state
        };
        let before = state();
        let output = world.run(args);
        assert_status(&output, 0);
        assert!(state() == before, "{args:?} changed the source: {}", shown(&output));
    };
    unchanged_by(&["sync"]);
    for (facet, case_id) in Facet::ALL.iter().zip(shown_cases(&world).iter().cycle()) {
        change(&world, *case_id, *facet);
    }
    change_the_rest(&world);
    unchanged_by(&["sync"]);
    world.assert_equal();
    let month = jiff::Zoned::now().strftime("%Y-%m-01").to_string();
    unchanged_by(&["journals", "--from", &month, "--to", &month]);
    unchanged_by(&["verify", "--sample", "16"]);
    unchanged_by(&["plan"]);
    unchanged_by(&["check"]);
    unchanged_by(&["sync", "--full"]);

    let report = world.sandbox.stats();
    assert_eq!(report.never_to_do, [""; 0]);
    assert_eq!(report.writes, 0);
    let mut others: BTreeSet<String> = report
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.method != "GET")
        .map(|endpoint| format!("{} {}", endpoint.method, endpoint.template))
        .collect();
    for reading in READING {
        assert!(others.remove(*reading), "{reading} was not made");
    }
    assert_eq!(others, BTreeSet::new());
    let numbers = report.endpoints.iter().filter(|e| e.template.contains("IdentityNumber"));
    assert_eq!(numbers.count(), 0);
}
