//! The reports' totals equal a computation from the source's own state that shares nothing with
//! theirs: whole øre and another clock library.

use std::collections::{BTreeMap, BTreeSet};

use casemirror::sandbox::{Act, Facet, Fault, ListEdit, Rule};
use chrono::{DateTime, Datelike, Utc};
use chrono_tz::Europe::Oslo;
use duckdb::Connection;
use serde_json::Value;

use crate::support::follow::{assert_status, brisk, change, lines, shown_cases, unthrottled};
use crate::support::{World, one};

/// A row of `report.total_cost`: kind, both totals in øre, what is missing, what is not known.
type Total = (String, Option<i64>, Option<i64>, Vec<String>, Vec<String>);

fn rows<'s>(state: &'s Value, table: &str) -> impl Iterator<Item = &'s Value> {
    state["tables"][table].as_array().unwrap().iter()
}

/// A canonical amount, such as `"-12.30"`, in øre.
fn ore(cell: &Value) -> Option<i64> {
    let text = cell.as_str()?;
    let (_, decimals) = text.split_once('.').unwrap();
    assert_eq!(decimals.len(), 2, "{text}");
    Some(text.replace('.', "").parse().unwrap())
}

fn instant(cell: &Value) -> Option<DateTime<Utc>> {
    Some(cell.as_str()?.parse().unwrap())
}

/// Reference 4.7 as it is written there. `unknown` says which components of a case were not read.
fn total_costs(state: &Value, unknown: impl Fn(i64, &str) -> bool) -> BTreeMap<i64, Total> {
    let mut by_case: BTreeMap<(&str, i64), Vec<&Value>> = BTreeMap::new();
    for (table, rows) in state["tables"].as_object().unwrap() {
        for row in rows.as_array().unwrap() {
            if let Some(case_id) = row["case_id"].as_i64() {
                by_case.entry((table, case_id)).or_default().push(row);
            }
        }
    }
    let of_case = |table, case_id| by_case.get(&(table, case_id)).into_iter().flatten().copied();
    let cell = |table: &'static str, column: &str, case_id: i64| {
        of_case(table, case_id).next().and_then(|row| ore(&row[column]))
    };
    rows(state, "cases")
        .map(|case| {
            let id = case["id"].as_i64().unwrap();
            let resale = case["assignment_type"]
                .as_str()
                .is_some_and(|text| text.starts_with("ResaleOfContractPosition"));
            let debt = cell("common_conditions", "debt", id);
            let components: Vec<(&str, Option<i64>)> = if resale {
                let of = |column: &str| cell("resale_information", column, id);
                vec![
                    ("debt", debt),
                    ("entry_into_contract", of("entry_into_contract")),
                    ("original_sale_price", of("original_sale_price")),
                    ("sum_original_buyer_costs", of("sum_original_buyer_costs")),
                    ("customer_changes", of("customer_changes")),
                    ("other_buyer_costs", of("other_buyer_costs")),
                ]
            } else {
                let buyer: Vec<i64> = of_case("costs", id)
                    .filter(|c| c["cost_type"] == "Buyer" && c["selected"] == true)
                    .filter(|c| c["deleted"] != true)
                    .filter_map(|c| ore(&c["amount"]))
                    .collect();
                let price = cell("case_conditions", "asking_price", id)
                    .or_else(|| cell("property_conditions", "asking_price", id))
                    .or_else(|| ore(&case["asking_price"]));
                vec![
                    ("buyer_costs", (!buyer.is_empty()).then(|| buyer.iter().sum())),
                    ("document_cost", cell("document_costs", "amount", id)),
                    ("debt", debt),
                    ("asking_price", price),
                ]
            };
            let value = |name: &str| {
                let found = components.iter().find(|(n, _)| *n == name);
                found.and_then(|(_, value)| *value).unwrap_or(0)
            };
            let names = |wanted: &dyn Fn(&str, Option<i64>) -> bool| -> Vec<String> {
                let chosen = components.iter().filter(|(name, value)| wanted(name, *value));
                chosen.map(|(name, _)| (*name).to_owned()).collect()
            };
            let open = names(&|name, _| unknown(id, name));
            let missing = names(&|name, value| value.is_none() && !unknown(id, name));
            let price = if resale { "original_sale_price" } else { "asking_price" };
            let is_open = !open.is_empty() || missing.iter().any(|name| name == price);
            let sum: i64 = components.iter().map(|(_, value)| value.unwrap_or(0)).sum();
            let (total, once) = if resale {
                // The reference names the original buyer costs twice, and not the others.
                let total = sum - value("other_buyer_costs") + value("sum_original_buyer_costs");
                (total, sum)
            } else {
                (sum, sum)
            };
            let kind = if resale { "resale" } else { "regular" };
            let shown = |ore: i64| (!is_open).then_some(ore);
            (id, (kind.to_owned(), shown(total), shown(once), missing, open))
        })
        .collect()
}

fn reported_costs(conn: &Connection) -> BTreeMap<i64, Total> {
    let mut statement = conn
        .prepare(
            "SELECT case_id, kind, (total_cost * 100)::BIGINT, (total_cost_once * 100)::BIGINT, \
               array_to_string(missing, ','), array_to_string(unknown, ',') \
             FROM report.total_cost",
        )
        .unwrap();
    let names = |text: String| -> Vec<String> {
        text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let rows = statement
        .query_map([], |row| {
            let total =
                (row.get(1)?, row.get(2)?, row.get(3)?, names(row.get(4)?), names(row.get(5)?));
            Ok((row.get(0)?, total))
        })
        .unwrap();
    rows.map(Result::unwrap).collect()
}

/// Signed cases per local month (`2026-10-01`) and office, of those that `counts` lets through.
fn signed(
    state: &Value,
    counts: impl Fn(DateTime<Utc>) -> bool,
) -> BTreeMap<(String, i64, String), i64> {
    let offices: BTreeMap<i64, String> = rows(state, "offices")
        .map(|o| (o["id"].as_i64().unwrap(), o["name"].as_str().unwrap().to_owned()))
        .collect();
    let mut all = BTreeMap::new();
    for case in rows(state, "cases").filter(|case| case["assignment_type"] != "Valuation") {
        let Some(at) = instant(&case["case_activated_date"]).filter(|at| counts(*at)) else {
            continue;
        };
        let local = at.with_timezone(&Oslo);
        let month = format!("{:04}-{:02}-01", local.year(), local.month());
        let office = case["office_id"].as_i64().unwrap();
        *all.entry((month, office, offices[&office].clone())).or_default() += 1;
    }
    all
}

fn reported_signed(conn: &Connection) -> BTreeMap<(String, i64, String), i64> {
    let mut statement = conn
        .prepare("SELECT month::VARCHAR, office_id, office, signed_cases FROM report.signed_cases")
        .unwrap();
    let rows = statement
        .query_map([], |row| Ok(((row.get(0)?, row.get(1)?, row.get(2)?), row.get(3)?)))
        .unwrap();
    rows.map(Result::unwrap).collect()
}

/// Signs a case at exactly this instant.
fn sign(world: &World, case_id: i64, at: &str) {
    let dates = BTreeMap::from([("CaseActivatedDate".to_owned(), Some(at.to_owned()))]);
    let act = Act::Touch { case_ids: vec![case_id], modified: None, dates };
    world.sandbox.act(&act).unwrap();
}

fn refuse(world: &World, path: &str, status: u16) {
    world.sandbox.fault(Rule {
        method: None,
        path: path.to_owned(),
        query: None,
        nth: 1,
        count: None,
        fault: Fault::Refuse { status, headers: Default::default(), body: "{}".to_owned() },
    });
}

#[test]
fn total_costs_of_regular_sales_and_both_kinds_of_resale_are_exact() {
    let world = brisk(unthrottled(150));
    let resales = ["ResaleOfContractPositionConsumer", "ResaleOfContractPositionProff"];
    for assignment in resales {
        let assignment = Some(assignment.to_owned());
        world.sandbox.act(&Act::NewCase { project: false, assignment }).unwrap();
    }
    world.sync();
    let mut expected = total_costs(&world.sandbox.state(), |_, _| false);
    assert_eq!(reported_costs(&world.published()), expected);

    // A sale without any asking price is rare: sell until there is one.
    let lacks_price = |costs: &BTreeMap<i64, Total>| {
        costs.values().any(|total| total.3.iter().any(|name| name == "asking_price"))
    };
    for _ in 0..20 {
        if lacks_price(&expected) {
            break;
        }
        for _ in 0..25 {
            let assignment = Some("Sale".to_owned());
            world.sandbox.act(&Act::NewCase { project: false, assignment }).unwrap();
        }
        expected = total_costs(&world.sandbox.state(), |_, _| false);
    }
    world.sync();
    assert_eq!(reported_costs(&world.published()), expected);

    // The world has every kind of sale and of gap that the report distinguishes.
    let types: BTreeSet<String> = lines(
        &world.published(),
        "SELECT DISTINCT assignment_type FROM report.total_cost WHERE kind = 'resale'",
    )
    .into_iter()
    .collect();
    assert_eq!(types.len(), 2, "{types:?}");
    let missing: BTreeSet<&str> =
        expected.values().flat_map(|total| total.3.iter().map(String::as_str)).collect();
    for name in ["document_cost", "debt", "asking_price", "customer_changes", "original_sale_price"]
    {
        assert!(missing.contains(name), "no sale lacks its {name}: {missing:?}");
    }
    assert!(expected.values().any(|total| total.1.is_none()));
    assert!(expected.values().any(|total| total.1 != total.2));

    // And it follows.
    let cases = shown_cases(&world);
    for (case_id, facet) in cases[20..].iter().zip([
        Facet::Description,
        Facet::Cost,
        Facet::CostAdded,
        Facet::CostRemoved,
    ]) {
        change(&world, *case_id, facet);
    }
    world.sync();
    let after = total_costs(&world.sandbox.state(), |_, _| false);
    assert_ne!(after, expected);
    assert_eq!(reported_costs(&world.published()), after);
}

#[test]
fn a_component_that_is_not_known_leaves_the_total_open() {
    let world = brisk(unthrottled(60));
    let regular = *shown_cases(&world)
        .iter()
        .find(|id| {
            let state = world.sandbox.tables(&["cases"]);
            rows(&state, "cases").any(|c| c["id"] == **id && c["assignment_type"] == "Sale")
        })
        .unwrap();
    // One case's document cost fails.
    refuse(&world, &format!("/api/Properties/{regular}/PublicTaxes/DocumentCost"), 400);
    assert_status(&world.run(&["sync"]), 3);
    let failing = |id: i64, name: &str| id == regular && name == "document_cost";
    let expected = total_costs(&world.sandbox.state(), failing);
    assert_eq!(expected[&regular].4, ["document_cost"]);
    assert_eq!(reported_costs(&world.published()), expected);

    // Then the conditions with the debt are withdrawn: what was read of them counts no more.
    refuse(&world, "/api/Properties/*/CommonConditions", 403);
    for case_id in &shown_cases(&world)[20..50] {
        change(&world, *case_id, Facet::Nothing);
    }
    world.run(&["sync"]);
    let debt_too = |id: i64, name: &str| name == "debt" || failing(id, name);
    let expected = total_costs(&world.sandbox.state(), debt_too);
    assert!(expected.values().all(|total| total.1.is_none()));
    assert_eq!(reported_costs(&world.published()), expected);
}

/// The one case that changed is the only one that is asked, so that no call to its tables succeeds.
#[test]
fn a_failed_call_for_one_case_leaves_open_the_totals_of_no_other() {
    let world = brisk(unthrottled(60));
    world.bootstrap();
    let sales = world.sandbox.tables(&["cases", "commission_sharing"]);
    let has_row = |table: &str, key: &str, id: i64| rows(&sales, table).any(|r| r[key] == id);
    let one = shown_cases(&world)
        .into_iter()
        .find(|id| has_row("cases", "id", *id) && has_row("commission_sharing", "case_id", *id))
        .unwrap();
    refuse(&world, &format!("/api/Properties/{one}/CommonConditions"), 500);
    refuse(&world, &format!("/api/Conditions/Cases/{one}/EstimatedCosts/false"), 500);
    change(&world, one, Facet::Nothing);
    assert_status(&world.run(&["sync"]), 3);

    let expected = total_costs(&world.sandbox.state(), |id, name| id == one && name == "debt");
    assert_eq!(expected[&one].4, ["debt"]);
    assert_eq!(reported_costs(&world.published()), expected);
    let open = "SELECT DISTINCT c.case_id FROM report.commission c \
                JOIN main.estimated_costs e USING (case_id) \
                WHERE c.commission_amount IS NULL AND e.commission_amount IS NOT NULL";
    let of_case = lines(&world.published(), open);
    assert!(of_case.iter().all(|row| *row == format!("{{'case_id': {one}}}")), "{of_case:?}");

    // Known again once it answers.
    world.sandbox.clear_faults();
    Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch("UPDATE sync.failures SET next_at = first_at")
        .unwrap();
    world.sync();
    let expected = total_costs(&world.sandbox.state(), |_, _| false);
    assert_eq!(reported_costs(&world.published()), expected);
    world.assert_equal();
}

#[test]
fn the_total_cost_of_then_is_known_of_a_case_that_left_since() {
    let world = brisk(unthrottled(12));
    let assignment = Some("ResaleOfContractPositionProff".to_owned());
    world.sandbox.act(&Act::NewCase { project: false, assignment }).unwrap();
    world.sync();
    let cost =
        |from: &str| lines(&world.published(), &format!("SELECT * FROM {from} ORDER BY ALL"));
    let now: String =
        world.published().query_row("SELECT now()::VARCHAR", [], |row| row.get(0)).unwrap();
    let was = cost("report.total_cost");
    assert!(reported_costs(&world.published()).values().all(|total| total.4.is_empty()));
    let gone = shown_cases(&world)[3];
    world.sandbox.act(&Act::DeleteCase { case_id: gone }).unwrap();
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_ne!(cost("report.total_cost"), was);
    assert_eq!(cost(&format!("report.total_cost_as_of('{now}')")), was);
}

/// Whatever is read later, a report of then lacks what could not be read then.
#[test]
fn the_total_cost_of_then_counts_nothing_as_empty_that_was_read_later() {
    let world = brisk(unthrottled(12));
    let cost =
        |from: &str| lines(&world.published(), &format!("SELECT * FROM {from} ORDER BY ALL"));
    let mut seen: Vec<(String, Vec<String>)> = Vec::new();
    let mut sync = |sets: &[&str], status: i32| {
        // What failed does not wait.
        if let Some((at, _)) = seen.last() {
            let retry = format!("UPDATE sync.failures SET next_at = TIMESTAMPTZ '{at}'");
            Connection::open(world.path("data/store.duckdb"))
                .unwrap()
                .execute_batch(&retry)
                .unwrap();
        }
        let args: Vec<&str> = ["sync"].iter().chain(sets).copied().collect();
        assert_status(&world.run(&args), status);
        let now = one::<String>(&world.published(), "SELECT now()::VARCHAR");
        seen.push((now, cost("report.total_cost")));
        seen.last().map(|(_, was)| was.clone()).unwrap_or_default()
    };
    let no_documents = ["--set", r#"resources.disable=["document_costs"]"#];
    let shown = shown_cases(&world);
    refuse(&world, &format!("/api/Properties/{}/CommonConditions", shown[3]), 400);
    let open = sync(&no_documents, 3);
    let without = "SELECT count(*) FROM report.total_cost \
                   WHERE kind = 'regular' AND NOT list_contains(unknown, 'document_cost')";
    assert_eq!(one::<i64>(&world.published(), without), 0);
    world.sandbox.clear_faults();
    let with_debt = sync(&no_documents, 0);
    assert_ne!(with_debt, open);
    let whole = sync(&[], 0);
    assert_ne!(whole, with_debt);
    // Not read for a while, and then again.
    assert_eq!(sync(&no_documents, 0), with_debt);
    assert_eq!(sync(&[], 0), whole);
    // A case whose buyer costs cannot be read at first.
    world
        .sandbox
        .act(&Act::NewCase { project: false, assignment: Some("Sale".to_owned()) })
        .unwrap();
    let new = shown_cases(&world).into_iter().find(|id| !shown.contains(id)).unwrap();
    refuse(&world, &format!("/api/Conditions/Cases/{new}/Costs/*"), 400);
    sync(&[], 3);
    world.sandbox.clear_faults();
    sync(&[], 0);
    world.sandbox.act(&Act::DeleteCase { case_id: new }).unwrap();
    assert_eq!(sync(&["--full"], 0), whole);
    for (nth, (then, was)) in seen.iter().enumerate() {
        assert_eq!(cost(&format!("report.total_cost_as_of('{then}')")), *was, "{nth}: {then}");
    }
}

#[test]
fn versions_keep_their_order_when_the_clock_was_set_back() {
    let world = brisk(unthrottled(8));
    world.sync();
    // What was written while the clock was an hour ahead.
    let ahead = "UPDATE main.activities SET _synced_at = make_timestamp(epoch_us(_synced_at) + 3600000000); \
                 UPDATE sync.freshness SET last_change = make_timestamp(epoch_us(last_change) + 3600000000) \
                 WHERE table_name = 'activities'";
    Connection::open(world.path("data/store.duckdb")).unwrap().execute_batch(ahead).unwrap();
    for _ in 0..2 {
        for case_id in shown_cases(&world) {
            change(&world, case_id, Facet::ActivityEdited);
        }
        world.sync();
    }
    let versions = |which: &str| {
        let sql = format!(
            "WITH v AS (SELECT case_id, id, _valid_from, _valid_to FROM history.activities UNION ALL \
               SELECT case_id, id, _synced_at, 'infinity'::TIMESTAMPTZ FROM main.activities) \
             SELECT count(*) FROM v {which}"
        );
        one::<i64>(&world.store(), &sql)
    };
    let ended = versions("WHERE _valid_to < 'infinity'");
    assert!(ended >= 16, "{ended}");
    assert_eq!(versions("WHERE _valid_from >= _valid_to"), 0);
    let other = "v.case_id = o.case_id AND v.id = o.id AND v._valid_from < o._valid_from";
    assert_eq!(versions(&format!("JOIN v o ON {other} AND v._valid_to > o._valid_from")), 0);
}

/// Tables of which more scopes were read than there should be, or of which not all were.
fn odd_freshness(world: &World, which: &str) -> Vec<String> {
    lines(
        &world.published(),
        &format!(
            "SELECT table_name, scopes_known, scopes_fetched FROM report.freshness WHERE {which} \
             ORDER BY ALL"
        ),
    )
}

#[test]
fn no_table_has_more_scopes_read_than_there_should_be() {
    let world = brisk(unthrottled(60));
    let assignment = Some("ResaleOfContractPositionProff".to_owned());
    world.sandbox.act(&Act::NewCase { project: false, assignment }).unwrap();
    world.journals_since("2026-10-01");
    world.sync();
    let tables = "SELECT table_name FROM report.freshness WHERE scopes_known > 0";
    assert!(lines(&world.published(), tables).len() > 40);
    // Everything was read once: what was ever read is what there should be.
    assert_eq!(odd_freshness(&world, "scopes_fetched <> scopes_known"), [""; 0]);

    // What there should be becomes less: scopes that were read remain in the store.
    for edit in [ListEdit::Added, ListEdit::Changed, ListEdit::Removed] {
        world.sandbox.act(&Act::ProcessingBasis { edit }).unwrap();
    }
    // Few enough for the guard.
    for case_id in shown_cases(&world).into_iter().take(10) {
        change(&world, case_id, Facet::SaleTextSwitched);
    }
    world.sync();
    assert_eq!(odd_freshness(&world, "scopes_fetched > scopes_known"), [""; 0]);
}

#[test]
fn an_asking_price_is_open_where_one_before_it_is_not_known() {
    let world = brisk(unthrottled(60));
    refuse(&world, "/api/Properties/*/Conditions", 403);
    world.run(&["sync"]);
    let state = world.sandbox.state();
    let expected = total_costs(&state, |_, name| name == "asking_price");
    assert_eq!(reported_costs(&world.published()), expected);
}

#[test]
fn signed_cases_fall_into_the_months_of_the_source() {
    let world = brisk(unthrottled(300));
    world.sync();
    let edges = [
        // Summer time began on 29 March 2026 and ended on 25 October.
        ("2026-02-28T22:59:59.999Z", "2026-02-01"),
        ("2026-02-28T23:00:00.000Z", "2026-03-01"),
        ("2026-03-29T00:59:59.999Z", "2026-03-01"),
        ("2026-03-29T01:00:00.000Z", "2026-03-01"),
        ("2026-03-31T21:59:59.999Z", "2026-03-01"),
        ("2026-03-31T22:00:00.000Z", "2026-04-01"),
        ("2026-10-24T23:59:59.999Z", "2026-10-01"),
        ("2026-10-25T02:00:00.000Z", "2026-10-01"),
        ("2026-10-31T22:59:59.999Z", "2026-10-01"),
        ("2026-10-31T23:00:00.000Z", "2026-11-01"),
        ("2025-12-31T22:59:59.999Z", "2025-12-01"),
        ("2025-12-31T23:00:00.000Z", "2026-01-01"),
    ];
    let sales = world.sandbox.tables(&["cases"]);
    let cases: Vec<i64> = rows(&sales, "cases")
        .filter(|case| case["assignment_type"] == "Sale")
        .map(|case| case["id"].as_i64().unwrap())
        .collect();
    for ((at, _), case_id) in edges.iter().zip(&cases[20..]) {
        sign(&world, *case_id, at);
    }
    world.sync();
    let state = world.sandbox.state();
    let published = world.published();
    assert_eq!(reported_signed(&published), signed(&state, |_| true));

    for ((at, month), case_id) in edges.iter().zip(&cases[20..]) {
        let month_of_case = format!(
            "SELECT DISTINCT c.month::VARCHAR AS m FROM report.calendar c, main.cases m \
             WHERE m.id = {case_id} AND m.case_activated_date >= c.starts_at \
               AND m.case_activated_date < c.ends_at"
        );
        assert_eq!(lines(&published, &month_of_case), [format!("{{'m': {month}}}")], "{at}");
    }

    // The macro counts the same between two instants, both included.
    for (from, to) in [
        (edges[1].0, edges[4].0),
        (edges[8].0, edges[9].0),
        (edges[9].0, edges[9].0),
        (edges[5].0, edges[8].0),
    ] {
        let (first, last): (DateTime<Utc>, DateTime<Utc>) =
            (from.parse().unwrap(), to.parse().unwrap());
        let mut expected: BTreeMap<(i64, String), i64> = BTreeMap::new();
        for ((_, office, name), n) in signed(&state, |at| at >= first && at <= last) {
            *expected.entry((office, name)).or_default() += n;
        }
        let sql = format!(
            "SELECT office_id, office, signed_cases \
             FROM report.signed_cases_between('{from}', '{to}')"
        );
        let mut statement = published.prepare(&sql).unwrap();
        let rows =
            statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?))).unwrap();
        let reported: BTreeMap<(i64, String), i64> = rows.map(Result::unwrap).collect();
        assert!(!expected.is_empty());
        assert_eq!(reported, expected, "{from} to {to}");
    }
}

#[test]
fn what_history_does_not_hold_is_never_shown_as_what_was() {
    let world = brisk(unthrottled(12));
    let now = || one::<String>(&world.published(), "SELECT now()::VARCHAR");
    let refused = |from: &str| {
        let conn = world.published();
        let asked = conn.query_row(&format!("SELECT count(*) FROM {from}"), [], |row| row.get(0));
        asked.map(|rows: i64| panic!("{from} answers with {rows} rows")).unwrap_err().to_string()
    };
    let lost = "report.signed_cases_lost";
    // Only costs keep their versions: signed cases of then are not known, nor which were lost.
    let sync = |sets: &[&str]| {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        assert_status(&world.run(&["sync"].into_iter().chain(sets).collect::<Vec<_>>()), 0);
    };
    let only_costs = r#"history.tables=["costs"]"#;
    sync(&[only_costs]);
    let unkept = "history.tables does not name cases";
    for from in ["signed_cases_as_of(now())", "journals_as_of('cases', now())"] {
        let said = refused(&format!("report.{from}"));
        assert!(said.contains(unkept), "{said}");
    }
    assert!(refused(lost).contains("does not exist"));
    assert!(refused("report.total_cost_as_of(now())").contains("history.tables does not name"));
    // Journals have their history whatever is named.
    for kept in ["costs", "revenue_journals"] {
        let rows = format!("SELECT count(*) FROM report.journals_as_of('{kept}', now())");
        assert!(one::<i64>(&world.published(), &rows) > 0, "{kept}");
    }
    // Before the store was there, nobody kept anything.
    let said = refused("report.journals_as_of('costs', '2001-01-01 00:00:00+00')");
    assert!(said.contains("the history of costs is whole from"), "{said}");

    // From when they keep them, they answer, and for no time before.
    let before = now();
    sync(&["history.tables=all"]);
    let said = refused(&format!("report.signed_cases_as_of('{before}')"));
    assert!(said.contains("is whole from"), "{said}");
    let as_of = |at: &str| {
        lines(&world.published(), &format!("FROM report.signed_cases_as_of({at}) ORDER BY ALL"))
    };
    let signed = || lines(&world.published(), "FROM report.signed_cases ORDER BY ALL");
    assert_eq!(as_of("now()"), signed());
    let (then, was) = (now(), signed());
    let gone: i64 = one(
        &world.store(),
        "SELECT min(id) FROM main.cases WHERE assignment_type <> 'Valuation' \
           AND case_activated_date IS NOT NULL",
    );
    world.sandbox.act(&Act::DeleteCase { case_id: gone }).unwrap();
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(lines(&world.published(), &format!("SELECT case_id FROM {lost}")).len(), 1);
    assert_eq!(as_of(&format!("'{then}'")), was);

    // In another zone the versions hold other instants than the source would tell now.
    let zone = "source.time_zone=Atlantic/Azores";
    sync(&[zone]);
    assert!(refused(&format!("report.signed_cases_as_of('{then}')")).contains("is whole from"));
    assert_eq!(lines(&world.published(), &format!("SELECT case_id FROM {lost}")).len(), 0);
    assert_eq!(as_of("now()"), signed());
    // What leaves since all was read in the new zone is told, however old its row is.
    let signed_since: i64 = one(
        &world.store(),
        "SELECT min(id) FROM main.cases WHERE assignment_type <> 'Valuation' \
           AND case_activated_date IS NOT NULL",
    );
    world.sandbox.act(&Act::DeleteCase { case_id: signed_since }).unwrap();
    assert_status(&world.run(&["sync", "--full", "--set", zone]), 0);
    let told = lines(&world.published(), &format!("SELECT case_id FROM {lost}"));
    assert_eq!(told, [format!("{{'case_id': {signed_since}}}")]);
    // What is not kept any more is taken back; the versions stay.
    sync(&[zone, only_costs]);
    assert!(refused("report.signed_cases_as_of(now())").contains(unkept));
    assert!(refused(lost).contains("does not exist"));
    assert!(one::<i64>(&world.store(), "SELECT count(*) FROM history.cases") > 0);
}
