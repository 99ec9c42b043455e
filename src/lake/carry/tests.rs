use std::collections::BTreeMap;

use super::*;
use crate::counter;
use crate::lake::differing::LARGE;
use crate::lake::tables::{Change, Column, Noted};

fn counters(parts: &[(&str, i64)]) -> Option<BTreeMap<String, i64>> {
    Some(parts.iter().map(|(part, counter)| ((*part).to_owned(), *counter)).collect())
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn table(changes: Option<BTreeMap<String, i64>>) -> Table {
    let column = |name: &str, kind: &str| Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        comment: None,
    };
    Table {
        schema: "main".to_owned(),
        name: "revenue_journals".to_owned(),
        columns: vec![column("id", "BIGINT"), column("journal_month", "DATE")],
        comment: None,
        identity: vec!["id".to_owned()],
        is_key: true,
        moving: Vec::new(),
        moving_since: String::new(),
        only_grows: false,
        has_months: true,
        size: 0,
        mark: "mark".to_owned(),
        changes,
        noted: None,
    }
}

#[test]
fn only_counters_that_stand_let_a_table_or_a_month_be_left_alone() {
    let columns: Vec<(String, String)> =
        [("id", "BIGINT"), ("journal_month", "DATE")].map(|(n, k)| (n.into(), k.into())).into();
    let before = |mark: &str, changes| TableState {
        mark: mark.to_owned(),
        changes,
        last_change: None,
        is_partly_compared: false,
    };
    let way =
        |now, before: Option<&TableState>| Way::of(&table(now), before, Some(&columns), false);
    let then = before("mark", counters(&[("", 1), ("2026-10", 4), ("2026-11", 5)]));
    let months = |months: &[&str]| Way::Differences(Among::Months(texts(months)));
    for (now, expected) in [
        (counters(&[("", 1), ("2026-10", 4), ("2026-11", 5)]), Way::Nothing),
        (counters(&[("", 1), ("2026-10", 9), ("2026-11", 5)]), months(&["2026-10"])),
        (counters(&[("", 1), ("2026-11", 5), ("2026-12", 1)]), months(&["2026-10", "2026-12"])),
        // What belongs to no month moved: it may be in any.
        (counters(&[("", 2), ("2026-10", 9), ("2026-11", 5)]), Way::Differences(Among::All)),
        (None, Way::Differences(Among::All)),
    ] {
        assert_eq!(way(now.clone(), Some(&then)), expected, "{now:?}");
    }
    let same = counters(&[("", 1)]);
    assert_eq!(way(same.clone(), Some(&before("other", same.clone()))), Way::Anew);
    assert_eq!(way(same.clone(), None), Way::Anew, "the lake does not say how it came to its rows");
    let wider = [columns.clone(), vec![("more".into(), "BIGINT".into())]].concat();
    let known = before("mark", same.clone());
    assert_eq!(Way::of(&table(same.clone()), Some(&known), Some(&wider), false), Way::Anew);
    assert_eq!(Way::of(&table(same), Some(&known), None, false), Way::New);
}

const CASES: i64 = 20_000;
/// Two notes a case, without the dearer way of what the lake is made of: DuckDB on both sides.
const NOTES: &str = "SELECT n // 2 AS case_id, n % 2 AS id, n // 4000 % 5 AS line_number, \
                       make_timestamp(1793491200000000 + n // 7 * 1000000)::TIMESTAMPTZ AS _synced_at, 'note ' || n AS note \
                     FROM range(40000) r(n)";

/// Both sides with the same rows.
struct Sides {
    engine: Engine,
    table: Table,
}

impl Sides {
    /// A table of these rows, of which `identity` tells them apart and `moving` moves with them.
    fn new(rows: &str, identity: &[&str], moving: &[&str]) -> Sides {
        let engine = Engine::in_memory().unwrap();
        for database in [PUBLISHED, LAKE] {
            engine.run("x", &format!("CREATE TABLE {database}.main.notes AS {rows}")).unwrap();
        }
        let columns = engine
            .query("x", &format!("DESCRIBE {PUBLISHED}.main.notes"), |row| {
                Ok(Column { name: row.get(0)?, kind: row.get(1)?, comment: None })
            })
            .unwrap();
        let table = Table {
            name: "notes".to_owned(),
            columns,
            identity: texts(identity),
            moving: texts(moving),
            has_months: false,
            size: LARGE,
            ..table(None)
        };
        Sides { engine, table }
    }

    fn notes() -> Sides {
        Sides::new(NOTES, &["case_id", "id"], &["_synced_at", "line_number"])
    }

    fn run(&self, sql: &str) {
        self.engine.run("change a side", sql).unwrap();
    }

    fn one(&self, sql: &str) -> i64 {
        self.engine.one("look", sql).unwrap()
    }

    /// Makes the lake equal, and asserts that it is.
    fn carry(&self, among: Among) -> Rows {
        let rows = Way::Differences(among).go(&self.engine, &self.table).unwrap();
        self.assert_equal();
        rows
    }

    fn assert_equal(&self) {
        for (one, other) in [(PUBLISHED, LAKE), (LAKE, PUBLISHED)] {
            let more = format!(
                "SELECT count(*) FROM (FROM {one}.main.notes EXCEPT ALL FROM {other}.main.notes)"
            );
            assert_eq!(self.one(&more), 0, "{one} has more");
        }
    }
}

#[test]
fn whatever_differs_is_written_and_nothing_else_is() {
    let later = "now() AS _synced_at, 'changed' AS note";
    let changed = |case_ids: &str| {
        format!(
            "CREATE OR REPLACE TEMP TABLE n AS FROM published.main.notes WHERE case_id {case_ids}; \
             DELETE FROM published.main.notes WHERE case_id {case_ids}; \
             INSERT INTO published.main.notes SELECT * REPLACE ({later}) FROM temp.n"
        )
    };
    let lake_row = "(case_id, id, line_number, _synced_at, note)";
    let told = [
        ("nothing", String::new(), (0, 0)),
        ("later rows", changed("BETWEEN 100 AND 109"), (20, 20)),
        (
            "new rows",
            "INSERT INTO published.main.notes SELECT * REPLACE (case_id + 100000 AS case_id) \
             FROM published.main.notes WHERE case_id < 5"
                .to_owned(),
            (10, 0),
        ),
        ("rows that are gone", "DELETE FROM published.main.notes WHERE case_id = 7".to_owned(), (0, 2)),
        (
            "rows that were set back",
            "UPDATE published.main.notes SET _synced_at = TIMESTAMPTZ '2020-01-01 00:00:00+00', note = 'old' \
             WHERE case_id = 8"
                .to_owned(),
            (2, 2),
        ),
        (
            "a column that moves without a later time",
            "UPDATE published.main.notes SET line_number = 9 WHERE case_id = 9 AND id = 0".to_owned(),
            (1, 1),
        ),
        (
            "two rows that exchanged their times",
            "UPDATE published.main.notes SET _synced_at = \
               make_timestamp(1796083200000000 + (1 - id) * 1000000)::TIMESTAMPTZ WHERE case_id = 10"
                .to_owned(),
            (2, 2),
        ),
        (
            "rows of the lake's own",
            format!("INSERT INTO lake.main.notes {lake_row} VALUES (11, 5, 0, now(), 'more'), (-1, 0, 0, now(), NULL)"),
            (0, 2),
        ),
        ("rows that the lake lost", "DELETE FROM lake.main.notes WHERE case_id = 12".to_owned(), (2, 0)),
        (
            "a row that the lake has twice",
            "INSERT INTO lake.main.notes FROM lake.main.notes WHERE case_id = 13 AND id = 0".to_owned(),
            (1, 2),
        ),
        ("all rows", changed("IS NOT NULL"), (40_008, 40_008)),
        ("a table that is empty now", "DELETE FROM published.main.notes".to_owned(), (0, 40_008)),
    ];
    // By sums first, and by all rows at once.
    for size in [LARGE, LARGE - 1] {
        let mut sides = Sides::notes();
        sides.run(
            "UPDATE lake.main.notes SET _synced_at = make_timestamp(1796083200000000 + id * 1000000)::TIMESTAMPTZ \
             WHERE case_id = 10; \
             UPDATE published.main.notes SET _synced_at = make_timestamp(1796083200000000 + id * 1000000)::TIMESTAMPTZ \
             WHERE case_id = 10",
        );
        sides.table.size = size;
        for (what, sql, (written, removed)) in &told {
            sides.run(sql);
            let rows = sides.carry(Among::All);
            assert_eq!(rows, Rows { written: *written, removed: *removed }, "{what}, {size}");
        }
    }
}

#[test]
fn rows_of_a_large_table_are_compared_only_where_sums_differ() {
    let mut sides = Sides::notes();
    let compared = |sides: &Sides| {
        sides.carry(Among::All);
        (
            sides.one("SELECT count(*) FROM temp.published_rows"),
            sides.one("SELECT count(*) FROM temp.lake_rows"),
        )
    };
    sides.run("UPDATE published.main.notes SET _synced_at = now() WHERE case_id = 500");
    let (published, lake) = compared(&sides);
    assert!((2..50).contains(&published) && (2..50).contains(&lake), "{published}, {lake}");
    sides.run("UPDATE published.main.notes SET _synced_at = now() WHERE case_id = 501");
    sides.table.size = LARGE - 1;
    assert_eq!(compared(&sides), (2 * CASES, 2 * CASES));
}

#[test]
fn rows_without_a_key_are_told_apart_by_all_that_they_hold_and_counted() {
    let all = ["case_id", "part", "_number"];
    for size in [LARGE, LARGE - 1] {
        // Columns may be called as what is made of them here.
        let mut sides = Sides::new(
            "SELECT CASE WHEN n % 3 > 0 THEN n // 10 END AS case_id, NULL::VARCHAR AS part, 1 AS _number \
             FROM range(20000) r(n)",
            &all[..2],
            &[],
        );
        sides.table.is_key = false;
        sides.table.size = size;
        assert_eq!(sides.carry(Among::All), Rows::default());
        sides.run("DELETE FROM published.main.notes WHERE rowid IN (1, 3)");
        // Nine rows of ten hold a case, and each third row none.
        let rows = sides.carry(Among::All);
        assert!(rows.removed > rows.written, "{rows:?}");
        let left = sides.one("SELECT count(*) FROM lake.main.notes");
        assert_eq!(left, 19_998);
        sides.run("INSERT INTO lake.main.notes FROM lake.main.notes WHERE case_id = 77");
        sides.carry(Among::All);
    }
}

/// The store has noted these changes of a table of notes, each with the cases whose rows it wrote.
fn note(sides: &mut Sides, changes: &[(i64, &str)]) {
    let lines: Vec<String> =
        changes.iter().map(|(n, scopes)| format!("('notes', {n}, {scopes}::BIGINT[])")).collect();
    sides.run(&format!(
        "CREATE SCHEMA IF NOT EXISTS published.sync; CREATE OR REPLACE TABLE published.sync.changed_scopes AS \
         FROM (VALUES ('others', 2, [502]), {}) v(table_name, counter, scopes)",
        lines.join(", ")
    ));
    sides.table.noted = Some(Noted { scope: "case_id".to_owned(), changes: BTreeMap::new() });
}

#[test]
fn only_rows_of_the_scopes_that_changed_are_compared() {
    let mut sides = Sides::notes();
    note(&mut sides, &[(1, "[503]"), (2, "[500, 501]"), (3, "[501, 777777]"), (4, "[504]")]);
    sides.run(
        "UPDATE published.main.notes SET _synced_at = now() WHERE case_id BETWEEN 500 AND 505; \
         DELETE FROM published.main.notes WHERE case_id = 501 AND id = 0; \
         INSERT INTO published.main.notes SELECT * REPLACE (777777 AS case_id) FROM published.main.notes WHERE case_id = 9",
    );
    let among = |changes| Way::Differences(Among::Changes(changes));
    let rows = among(2..=3).go(&sides.engine, &sides.table).unwrap();
    assert_eq!(rows, Rows { written: 5, removed: 4 });
    assert_eq!(
        sides.one("SELECT count(*) FROM temp.lake_rows"),
        4,
        "of two cases, and of no others"
    );
    let rows = among(1..=2).go(&sides.engine, &sides.table).unwrap();
    assert_eq!(rows, Rows { written: 2, removed: 2 }, "503 was left alone before");
    // What is not noted is found where all is compared.
    assert_eq!(sides.carry(Among::All), Rows { written: 6, removed: 6 });
    assert_eq!(sides.carry(Among::Changes(1..=4)), Rows::default());
    // So many are no fewer than all.
    note(&mut sides, &[(5, "range(50001)")]);
    sides.run("UPDATE published.main.notes SET _synced_at = TIMESTAMPTZ '2020-01-01 00:00:00+00' WHERE case_id = 777777");
    assert_eq!(sides.carry(Among::Changes(5..=5)), Rows { written: 2, removed: 2 });
}

#[test]
fn scopes_are_asked_for_only_where_every_change_since_is_noted_with_them() {
    let columns: Vec<(String, String)> =
        [("id", "BIGINT"), ("journal_month", "DATE")].map(|(n, k)| (n.into(), k.into())).into();
    let table = |counter: i64, noted: &[(i64, &str, bool)]| {
        let changes = noted.iter().map(|(number, id, has_scopes)| {
            (counter::of(*number), Change { id: (*id).to_owned(), has_scopes: *has_scopes })
        });
        let noted = Noted { scope: "id".to_owned(), changes: changes.collect() };
        Table {
            has_months: false,
            noted: Some(noted),
            ..table(counters(&[("", counter::of(counter))]))
        }
    };
    let then = table(7, &[(6, "f", true), (7, "g", false)]).state(false);
    assert_eq!(then.last_change.as_deref(), Some("g"));
    let way = |table: &Table, then: &TableState| Way::of(table, Some(then), Some(&columns), false);
    let changes = |of: std::ops::RangeInclusive<i64>| {
        let first = counter::of(of.start() - 1) + 1;
        Way::Differences(Among::Changes(first..=counter::of(*of.end())))
    };
    let (all, nine) =
        (Way::Differences(Among::All), [(7, "g", false), (8, "h", true), (9, "i", true)]);
    assert_eq!(way(&table(9, &nine), &then), changes(8..=9));
    assert_eq!(way(&table(8, &nine), &then), changes(8..=8), "later ones are not published yet");
    assert_eq!(way(&table(7, &nine), &then), Way::Nothing);
    for (counter, noted, why) in [
        (9, &[(7, "g", false), (9, "i", true)][..], "one was not noted"),
        (9, &[(7, "g", false), (8, "h", false), (9, "i", true)], "one may have written any"),
        (9, &nine[1..], "it is not known which one the lake has"),
        (
            9,
            &[(7, "G", false), (8, "h", true), (9, "i", true)],
            "the store was put back, and went another way",
        ),
        (6, &[(6, "f", true), (7, "g", false)], "the store was put back"),
        (7, &[(7, "G", true)], "the store was put back, and came as far again"),
        (6, &[], "nothing was noted"),
    ] {
        assert_eq!(way(&table(counter, noted), &then), all, "{why}");
    }
    let of_before = TableState { changes: counters(&[("", 7)]), ..then.clone() };
    let noted = Noted {
        scope: "id".to_owned(),
        changes: [(7, "g", false), (counter::of(1), "h", true)]
            .map(|(at, id, has_scopes)| (at, Change { id: id.to_owned(), has_scopes }))
            .into(),
    };
    let now = Table {
        has_months: false,
        noted: Some(noted),
        ..super::tests::table(counters(&[("", counter::of(1))]))
    };
    assert_eq!(way(&now, &of_before), all, "a version before counted otherwise");
    let unnoted = TableState { last_change: None, ..then.clone() };
    assert_eq!(way(&table(9, &nine), &unnoted), all);
    let by_months =
        TableState { changes: counters(&[("", counter::of(7)), ("2026-01", 1)]), ..then.clone() };
    assert_eq!(way(&table(9, &nine), &by_months), all);
    // When house is kept nothing that is noted is believed, nor what was not looked at because of it.
    let whole = |table: &Table, then: &TableState| Way::of(table, Some(then), Some(&columns), true);
    assert_eq!(whole(&table(9, &nine), &then), all);
    assert_eq!(whole(&table(7, &nine), &then), Way::Nothing);
    let partly = TableState { is_partly_compared: true, ..then.clone() };
    assert_eq!(whole(&table(7, &nine), &partly), all);
    assert_eq!(way(&table(7, &nine), &partly), Way::Nothing);
    let compares_partly = |way: Way, then| way.compares_partly(Some(then));
    assert!(compares_partly(changes(8..=9), &then) && !compares_partly(all, &partly));
    assert!(compares_partly(Way::Nothing, &partly) && !compares_partly(Way::Nothing, &then));
}

#[test]
fn only_the_months_that_moved_are_compared() {
    let rows = "SELECT n AS id, DATE '2026-01-01' + to_months((n % 12)::INT) AS journal_month, n AS amount, \
                  TIMESTAMPTZ '2026-11-01 00:00:00+00' AS _synced_at FROM range(24000) r(n)";
    let rows = format!("SELECT * REPLACE (journal_month::DATE AS journal_month) FROM ({rows})");
    for size in [LARGE, LARGE - 1] {
        let mut sides = Sides::new(&rows, &["id", "journal_month"], &["_synced_at"]);
        sides.table.has_months = true;
        sides.table.size = size;
        sides.run(
            "UPDATE published.main.notes SET _synced_at = now(), amount = 0 WHERE id IN (0, 12, 4)",
        );
        let months = Among::Months(texts(&["2026-01", "2026-02"]));
        let rows = Way::Differences(months).go(&sides.engine, &sides.table).unwrap();
        assert_eq!(rows, Rows { written: 2, removed: 2 });
        assert_eq!(
            sides.carry(Among::Months(texts(&["2026-05"]))),
            Rows { written: 1, removed: 1 }
        );
    }
}

#[test]
fn history_gets_its_later_rows_and_is_compared_where_these_are_not_all() {
    let rows = "SELECT n AS case_id, TIMESTAMPTZ '2026-11-01 00:00:00+00' AS _valid_from, \
                  make_timestamp(1793491200000000 + n * 1000000)::TIMESTAMPTZ AS _valid_to, 'updated' AS _change \
                FROM range(20000) r(n)";
    for size in [LARGE, LARGE - 1] {
        let mut sides = Sides::new(rows, &["case_id", "_valid_from", "_valid_to", "_change"], &[]);
        sides.table.only_grows = true;
        sides.table.size = size;
        // To the microsecond.
        sides.run(
            "INSERT INTO published.main.notes SELECT * REPLACE (make_timestamp(epoch_us(_valid_to) + 1)::TIMESTAMPTZ AS _valid_to) \
             FROM published.main.notes WHERE case_id = 19999",
        );
        sides.run("CREATE TEMP TABLE gone AS SELECT 0 AS untouched");
        let later = |sides: &Sides| Way::Later(Among::All).go(&sides.engine, &sides.table).unwrap();
        assert_eq!(later(&sides), Rows { written: 1, removed: 0 });
        sides.assert_equal();
        assert_eq!(sides.one("SELECT untouched FROM temp.gone"), 0, "nothing was compared");
        sides.run("UPDATE lake.main.notes SET _valid_to = make_timestamp(epoch_us(_valid_to) - 1)::TIMESTAMPTZ WHERE case_id = 5; DELETE FROM lake.main.notes WHERE case_id = 6");
        assert_eq!(later(&sides), Rows { written: 2, removed: 1 });
        sides.assert_equal();
        assert_eq!(later(&sides), Rows::default());
        // As many rows, and not the same ones: where nothing is believed all are compared.
        sides.run("UPDATE lake.main.notes SET _change = 'removed' WHERE case_id = 7");
        assert_eq!(later(&sides), Rows::default());
        assert_eq!(sides.carry(Among::All), Rows { written: 1, removed: 1 });
    }
}

#[test]
fn only_history_that_the_store_itself_has_carried_is_believed_until_house_is_kept() {
    let columns: Vec<(String, String)> =
        [("id", "BIGINT"), ("journal_month", "DATE")].map(|(n, k)| (n.into(), k.into())).into();
    let history = |counter: i64, ids: &[(i64, &str)]| {
        let changes = ids.iter().map(|(number, id)| {
            (counter::of(*number), Change { id: (*id).to_owned(), has_scopes: true })
        });
        let noted = Noted { scope: "id".to_owned(), changes: changes.collect() };
        let counter = counters(&[("", counter::of(counter))]);
        Table { only_grows: true, has_months: false, noted: Some(noted), ..table(counter) }
    };
    let then = history(7, &[(7, "g")]).state(false);
    let way = |table: &Table, whole| Way::of(table, Some(&then), Some(&columns), whole);
    let (later, all) = (Way::Later(Among::All), Way::Differences(Among::All));
    let now = history(8, &[(7, "g"), (8, "h")]);
    assert_eq!(way(&now, false), later);
    assert_eq!(way(&now, true), all, "house is kept");
    assert_eq!(way(&history(8, &[(7, "G"), (8, "h")]), false), all, "the store was put back");
    assert_eq!(way(&history(7, &[(7, "G")]), false), all, "and came as far again");
    assert_eq!(way(&history(8, &[(8, "h")]), false), all, "nobody knows");
    assert_eq!(way(&history(7, &[(7, "g")]), false), Way::Nothing);
    assert!(later.compares_partly(Some(&then)) && !all.compares_partly(Some(&then)));
}

#[test]
fn where_row_numbers_mean_other_rows_all_are_written_anew() {
    for (gone, come) in
        [("VALUES (3), (50000)", "VALUES (3), (4)"), ("VALUES (3)", "VALUES (3), (50000)")]
    {
        let sides = Sides::notes();
        sides.run("DELETE FROM published.main.notes WHERE rowid = 4");
        for (table, rows) in [("gone", gone), ("come", come)] {
            sides.run(&format!("CREATE TEMP TABLE {table} AS FROM ({rows}) v(_number)"));
        }
        let differing = Differing {
            gone: sides.one("SELECT count(*) FROM temp.gone").unsigned_abs(),
            come: sides.one("SELECT count(*) FROM temp.come").unsigned_abs(),
        };
        replace(&sides.engine, &sides.table, differing).unwrap();
        sides.assert_equal();
    }
}
