//! The journals, at all three levels.

use std::collections::BTreeSet;

use super::*;

const PARENTS: [&str; 3] = ["journal_level", "journal_id", "journal_month"];

fn at_noon() -> Options {
    Options { origin: Some("2026-11-20T11:00:00Z".to_owned()), ..quiet() }
}

impl Caller {
    async fn journal(&self, path: &str, from: &str, to: &str) -> Vec<Json> {
        let answer = self.get(&format!("/api/{path}?fromDate={from}&toDate={to}")).await;
        answer.as_array().unwrap().clone()
    }

    fn journal_rows(&self, level: Level, table: &str) -> Vec<Json> {
        let state = self.sandbox.journal_tables(level, None, &[table]);
        state["tables"][table].as_array().unwrap().clone()
    }

    fn of_month(&self, table: &str, office: i64, month: &str) -> Vec<Json> {
        let mut rows = self.journal_rows(Level::Offices, table);
        rows.retain(|row| {
            row["journal_id"] == office && row["journal_month"] == format!("{month}-01")
        });
        rows
    }

    fn edit(&self, journal: Journal, month: &str, edit: JournalEdit, line: usize) -> Outcome {
        let (month, line) = (month.to_owned(), Some(line));
        self.sandbox.act(&Act::Journal { journal, office_id: 12, month, edit, line }).unwrap()
    }
}

/// A line without its number.
fn content(row: &Json) -> Json {
    let mut row = row.clone();
    row.as_object_mut().unwrap().remove("line_number");
    row
}

#[tokio::test]
async fn the_state_equals_the_answers_at_all_three_levels() {
    let caller = Caller::new(at_noon()).await;
    for level in Level::ALL {
        for journal in Journal::ALL {
            let truth = caller.journal_rows(level, journal.table());
            assert!(truth.len() > 100, "{} of {}", journal.table(), level.name());
            let annotations = journal.annotations().map(|table| caller.journal_rows(level, table));
            let ids: BTreeSet<i64> =
                truth.iter().map(|row| row["journal_id"].as_i64().unwrap()).collect();
            for id in ids {
                let path = format!("{}/{id}/{}", level.segment(), journal.segment());
                let wire = caller.journal(&path, "2026-03-01", "2026-03-31").await;
                let of_month = |row: &&Json| {
                    row["journal_id"] == id
                        && row["journal_month"] == "2026-03-01"
                        && row["journal_level"] == level.name()
                };
                let cells: Vec<&Json> = truth.iter().filter(of_month).collect();
                assert_eq!(cells.len(), wire.len(), "{path}");
                for (number, (cells, wire)) in (1_i64..).zip(cells.into_iter().zip(&wire)) {
                    assert_eq!(cells["line_number"], number);
                    let mut own = cells.clone();
                    for key in PARENTS.iter().chain(&["line_number"]) {
                        own.as_object_mut().unwrap().remove(*key);
                    }
                    assert_same_row(&own, wire, &path);
                    let listed = wire["Annotations"].as_array().map_or(0, Vec::len);
                    let of_line = annotations
                        .iter()
                        .flatten()
                        .filter(|row| of_month(row) && row["line_number"] == number);
                    let positions: Vec<i64> =
                        of_line.map(|row| row["position"].as_i64().unwrap()).collect();
                    assert_eq!(positions, (1..=listed as i64).collect::<Vec<_>>(), "{path}");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_lines_of_a_company_and_of_the_chain_are_those_of_their_offices() {
    let caller = Caller::new(at_noon()).await;
    let sorted = |level| {
        let mut lines: Vec<String> = caller
            .journal_rows(level, "revenue_journals")
            .iter()
            .map(|row| {
                let mut row = content(row);
                for key in ["journal_level", "journal_id"] {
                    row.as_object_mut().unwrap().remove(key);
                }
                row.to_string()
            })
            .collect();
        lines.sort();
        lines
    };
    let offices = sorted(Level::Offices);
    assert_eq!(sorted(Level::BrokerCompanies), offices);
    assert_eq!(sorted(Level::Chain), offices);
}

#[tokio::test]
async fn a_month_in_parts_is_the_month() {
    let caller = Caller::new(at_noon()).await;
    for path in ["Offices/11/CaseJournals", "Chain/1/RevenueJournals"] {
        for (month, days) in [("2025-10", 31), ("2026-03", 31), ("2026-02", 28)] {
            let whole =
                caller.journal(path, &format!("{month}-01"), &format!("{month}-{days}")).await;
            let mut parts = Vec::new();
            for day in 1..=days {
                let day = format!("{month}-{day:02}");
                parts.extend(caller.journal(path, &day, &day).await);
            }
            assert_eq!(parts, whole, "{path} {month}");
        }
    }
}

#[tokio::test]
async fn the_sum_counts_what_annotations_changed() {
    let caller = Caller::new(at_noon()).await;
    let path = "/api/BrokerCompanies/3/RevenueJournals/Sum";
    let body = json!({"FromDate": "2026-03-01", "ToDate": "2026-03-31"});
    let answer = caller.send(Method::PUT, path, Some(body)).await.unwrap();
    let wire = super::body(answer).await;
    let mine = |row: &&Json| row["journal_id"] == 3 && row["journal_month"] == "2026-03-01";
    let ore = |cell: &Json| {
        cell.as_str().map_or(0, |text| crate::sandbox::wire::parse_money(text).unwrap())
    };
    let level = Level::BrokerCompanies;
    let lines = caller.journal_rows(level, "revenue_journals");
    let changes = caller.journal_rows(level, "revenue_journal_annotations");
    let changed: i64 = changes.iter().filter(mine).map(|row| ore(&row["payment_change"])).sum();
    let paid: i64 = lines.iter().filter(mine).map(|row| ore(&row["payment"])).sum();
    assert_ne!(changed, 0);
    let sums = caller.journal_rows(level, "revenue_journal_sums");
    let sum = sums.iter().find(mine).unwrap();
    assert_eq!(ore(&sum["total_payment"]), paid + changed);
    assert!(same(&sum["total_payment"], &wire["TotalPayment"]));
    assert!(same(&sum["total_purchase_price"], &wire["TotalPurchasePrice"]));
    assert_eq!(caller.sandbox.stats().writes, 0);
}

#[tokio::test]
async fn two_years_of_journals_hold_what_makes_them_difficult() {
    let caller = Caller::new(at_noon()).await;
    let lines = caller.journal_rows(Level::Offices, "revenue_journals");
    let months: BTreeSet<&str> =
        lines.iter().map(|row| row["journal_month"].as_str().unwrap()).collect();
    assert_eq!(
        (months.len(), months.first(), months.last()),
        (24, Some(&"2024-12-01"), Some(&"2026-11-01"))
    );
    assert!(caller.of_month("revenue_journals", 12, "2026-04").is_empty(), "a month without lines");
    let contents: BTreeSet<String> = lines.iter().map(|row| content(row).to_string()).collect();
    assert!(contents.len() < lines.len(), "equal lines");
    let keys: BTreeSet<String> =
        lines.iter().map(|row| row["revenue_referral_key"].to_string()).collect();
    assert!(keys.len() * 2 < lines.len(), "keys that repeat");
    let amounts: Vec<&str> = lines.iter().filter_map(|row| row["payment"].as_str()).collect();
    assert!(amounts.iter().any(|amount| amount.starts_with('-')));
    assert!(amounts.iter().any(|amount| !amount.ends_with("00")));
    assert!(amounts.len() < lines.len());
    let dates: Vec<&str> = lines.iter().filter_map(|row| row["revenue_date"].as_str()).collect();
    assert!(dates.contains(&"2026-02-28T23:00:00.000000Z"), "the first instant of a month");
    assert!(dates.contains(&"2026-03-31T21:59:59.999999Z"), "the last instant of a month");
    let wire = caller.journal("Chain/1/CaseJournals", "2025-01-01", "2025-12-31").await;
    for list in [Some(json!([])), Some(Json::Null), None] {
        assert!(wire.iter().any(|line| line.get("Annotations") == list.as_ref()), "{list:?}");
    }
    for odd in ["2025-03-30T02:30:00", "2025-10-26T02:30:00"] {
        assert!(wire.iter().any(|line| line["ReceivedDate"] == odd), "{odd}");
    }
}

#[tokio::test]
async fn edits_do_what_they_say_in_closed_months_too() {
    let caller = Caller::new(at_noon()).await;
    let journal = Journal::RevenueJournals;
    let rows = || caller.of_month("revenue_journals", 12, "2025-02");
    let contents = || rows().iter().map(content).collect::<Vec<_>>();
    let before = contents();
    let outcome = caller.edit(journal, "2025-02", JournalEdit::Amount, 2);
    let place = outcome.journal.unwrap();
    assert_eq!((place.office_id, place.month.as_str(), place.line_number), (12, "2025-02", 2));
    let edited = contents();
    let differing: Vec<usize> = (0..before.len()).filter(|n| before[*n] != edited[*n]).collect();
    assert_eq!(differing, [1]);
    assert_ne!(before[1]["payment"], edited[1]["payment"]);

    caller.edit(journal, "2025-02", JournalEdit::Inserted, 1);
    assert_eq!(contents()[1..], edited, "a line on top");
    let outcome = caller.edit(journal, "2025-02", JournalEdit::Appended, 1);
    assert_eq!(outcome.journal.unwrap().line_number as usize, before.len() + 2);
    assert_eq!(contents()[1..=before.len()], edited, "a line below");
    caller.edit(journal, "2025-02", JournalEdit::Late, 1);
    assert_eq!(contents().len(), before.len() + 3);
    caller.edit(journal, "2025-02", JournalEdit::Doubled, 3);
    assert_eq!(contents()[2], contents()[3]);
    caller.edit(journal, "2025-02", JournalEdit::Removed, 1);
    assert_eq!(contents().len(), before.len() + 3);

    let annotations = || caller.of_month("revenue_journal_annotations", 12, "2025-02");
    let sum = || caller.of_month("revenue_journal_sums", 12, "2025-02")[0]["total_payment"].clone();
    let (many, total) = (annotations().len(), sum());
    caller.edit(journal, "2025-02", JournalEdit::Annotated, 1);
    assert_eq!(annotations().len(), many + 1);
    let annotated = sum();
    assert_ne!(annotated, total);
    caller.edit(journal, "2025-02", JournalEdit::AnnotationEdited, 1);
    assert_ne!(sum(), annotated);
    caller.edit(journal, "2025-02", JournalEdit::AnnotationRemoved, 1);
    assert_eq!(annotations().len(), many);

    for (office_id, month, edit) in [
        (12, "2025-2", JournalEdit::Amount),
        (9, "2025-02", JournalEdit::Amount),
        (12, "2025-02", JournalEdit::Removed),
    ] {
        let (month, line) = (month.to_owned(), Some(100));
        let act = Act::Journal { journal, office_id, month, edit, line };
        assert!(caller.sandbox.act(&act).is_err(), "{act:?}");
    }
    let act = r#"{"act":"journal","journal":"settlement_journals","office_id":12,
        "month":"2025-02","edit":"annotated"}"#;
    assert!(caller.sandbox.act(&serde_json::from_str(act).unwrap()).is_err());
}

#[tokio::test]
async fn a_living_world_posts_lines_in_the_current_month_only() {
    let caller = Caller::new(at_noon()).await;
    let tables = || {
        let mut all = Vec::new();
        for journal in Journal::ALL {
            all.extend(caller.journal_rows(Level::Offices, journal.table()));
        }
        all
    };
    let (before, current) = (tables(), "2026-11-01");
    caller.sandbox.act(&Act::Tick { events: 60 }).unwrap();
    let after = tables();
    assert!(after.len() > before.len());
    let closed = |rows: Vec<Json>| -> Vec<Json> {
        rows.into_iter().filter(|row| row["journal_month"] != current).collect()
    };
    assert_eq!(closed(before), closed(after));
}

#[tokio::test]
async fn journals_page_as_they_are_told_to() {
    let caller = Caller::new(Options { journal_lines: Some(700), ..at_noon() }).await;
    let path = "/api/Offices/13/RevenueJournals?fromDate=2026-01-01&toDate=2026-01-31";
    let whole = caller.get(&format!("{path}&$top=5&$skip=3")).await;
    let whole = whole.as_array().unwrap();
    assert_eq!(whole.len(), 700);
    let numbers = async |query: &str, paging: JournalPaging| {
        caller.sandbox.control(Control::JournalPaging { paging });
        let lines = caller.get(&format!("{path}{query}")).await;
        let lines = lines.as_array().unwrap().clone();
        let at = whole.windows(lines.len()).position(|part| part == lines);
        (at.unwrap(), lines.len())
    };
    assert_eq!(numbers("", JournalPaging::SkipTop).await, (0, 100));
    assert_eq!(numbers("&$top=250&$skip=600", JournalPaging::SkipTop).await, (600, 100));
    let skips = JournalPaging::Truncates { lines: 300, skips: true };
    assert_eq!(numbers("&$top=500", skips).await, (0, 300));
    assert_eq!(numbers("&$skip=600", skips).await, (600, 100));
    let never_skips = JournalPaging::Truncates { lines: 300, skips: false };
    assert_eq!(numbers("&$skip=300", never_skips).await, (0, 300));
}

#[tokio::test]
async fn a_heavy_journal_is_read_by_the_day() {
    let heavy = HeavyJournal { office_id: 12, days: 3, answer: HeavyAnswer::GatewayTimeout };
    let caller = Caller::new(Options { heavy_journal: Some(heavy), ..at_noon() }).await;
    let call = async |path: &str, to: &str| {
        let path = format!("/api/{path}/RevenueJournals?fromDate=2026-01-01&toDate={to}");
        caller.send(Method::GET, &path, None).await.unwrap().status().as_u16()
    };
    assert_eq!(call("Offices/12", "2026-01-04").await, 504);
    assert_eq!(call("Offices/12", "2026-01-03").await, 200);
    assert_eq!(call("Offices/11", "2026-01-31").await, 200);
    assert_eq!(call("Chain/1", "2026-01-31").await, 504);
    let heavy = HeavyJournal { answer: HeavyAnswer::Unavailable, ..heavy };
    caller.sandbox.control(Control::HeavyJournal { heavy: Some(heavy) });
    assert_eq!(call("Offices/12", "2026-01-31").await, 503);
    let body = json!({"FromDate": "2026-01-01", "ToDate": "2026-01-31"});
    let sum = caller.send(Method::PUT, "/api/Offices/12/RevenueJournals/Sum", Some(body)).await;
    assert_eq!(sum.unwrap().status(), StatusCode::OK);
    caller.sandbox.control(Control::HeavyJournal { heavy: None });
    assert_eq!(call("Offices/12", "2026-01-31").await, 200);
}

#[tokio::test]
async fn journals_need_their_permission_a_period_and_somebody_who_has_them() {
    let caller = Caller::new(at_noon()).await;
    for (path, expected) in [
        ("Offices/11/CaseJournals", 400),
        ("Offices/11/CaseJournals?fromDate=2026-01-01", 400),
        ("Offices/11/CaseJournals?fromDate=2026-01-02&toDate=2026-01-01", 400),
        ("Offices/11/CaseJournals?fromDate=2026-01-02T00:00:00&toDate=2026-02-01", 400),
        ("Offices/999/CaseJournals?fromDate=2026-01-01&toDate=2026-01-31", 404),
        ("Chain/2/CaseJournals?fromDate=2026-01-01&toDate=2026-01-31", 404),
        ("Offices/11/OtherJournals?fromDate=2026-01-01&toDate=2026-01-31", 404),
    ] {
        let (status, _) = caller.ask(Method::GET, &format!("/api/{path}")).await;
        assert_eq!(status.as_u16(), expected, "{path}");
    }
    let permission = "OfficeAdministration - Read".to_owned();
    caller.sandbox.control(Control::Withdraw { permission: permission.clone() });
    let path = "/api/Offices/11/DepotJournals?fromDate=2026-01-01&toDate=2026-01-31";
    let (status, body) = caller.ask(Method::GET, path).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(body["MissingPermissions"], json!([permission]));
    for journal in ["RevenueJournals", "SettlementJournals"] {
        caller.get(&path.replace("DepotJournals", journal)).await;
    }
}

#[tokio::test]
async fn the_state_of_journals_can_be_asked_by_level_and_month() {
    let caller = Caller::new(at_noon()).await;
    let url = format!(
        "{}/sandbox/state?tables=depot_journals&level=chain&since=2026-10",
        caller.sandbox.control_url()
    );
    let answer = super::body(caller.http.get(url).send().await.unwrap()).await;
    let expected =
        caller.sandbox.journal_tables(Level::Chain, Some("2026-10"), &["depot_journals"]);
    assert_eq!(answer, expected);
    let rows = answer["tables"]["depot_journals"].as_array().unwrap();
    let months: BTreeSet<&str> =
        rows.iter().map(|row| row["journal_month"].as_str().unwrap()).collect();
    assert_eq!(months, BTreeSet::from(["2026-10-01", "2026-11-01"]));
}
