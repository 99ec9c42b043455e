use duckdb::Connection;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use serde_json::value::RawValue;

use super::super::Store;
use super::*;
use crate::catalog::Catalog;
use crate::config::Config;
use crate::counter;
use crate::decode::{Context, Decoder, Param, Params, Privacy};
use crate::scope::{AnswerDigest, Place, Version};
use crate::ticks::Ticks;

mod learning;

struct Mirror {
    _folder: tempfile::TempDir,
    _store: Store,
    conn: Connection,
    catalog: Arc<Catalog>,
    context: Context,
    settings: Settings,
    known: KnownScopes,
    now: Timestamp,
    /// What the source said last: notes by case.
    notes: BTreeMap<i64, Vec<i64>>,
    /// The latest times that rows of notes, and their scopes, have ever had.
    latest: [Option<i64>; 2],
}

/// An answer: a case and how many notes it has.
type Answer = (i64, i64);

fn digest((_, notes): Answer) -> AnswerDigest {
    AnswerDigest::new(notes.unsigned_abs())
}

impl Mirror {
    /// One in which nothing holds removals back.
    fn new() -> Mirror {
        Mirror::open(true)
    }

    fn open(allow_removals: bool) -> Mirror {
        let folder = tempfile::tempdir().unwrap();
        let url = "http://127.0.0.1:1/".parse().unwrap();
        let secret = String::from("secret").into();
        let config = Config::for_demo(url, "id", secret, folder.path());
        let catalog = Arc::new(Catalog::load(None).unwrap());
        let store = Store::open(&config, &catalog).unwrap();
        Mirror {
            conn: store.connection().unwrap(),
            _folder: folder,
            _store: store,
            context: Context {
                zone: config.source.time_zone.clone(),
                privacy: Privacy::new(&config.privacy, [7; 32]),
                disabled: Arc::new([]),
                generation: 1,
            },
            settings: Settings {
                notes_scopes: true,
                ..Settings::new(&config, &catalog, allow_removals)
            },
            catalog,
            known: KnownScopes::default(),
            now: "2026-01-10T00:00:00Z".parse().unwrap(),
            notes: BTreeMap::new(),
            latest: [None, None],
        }
    }

    /// As a store that was just made.
    fn begin_anew(&mut self) {
        self.conn.execute_batch("DELETE FROM main.notes; DELETE FROM sync.fetched_scopes").unwrap();
        self.known = KnownScopes::default();
        self.notes.clear();
    }

    fn load(&self, (case_id, notes): Answer) -> Load {
        let records: Vec<String> =
            (1..=notes).map(|id| format!("{{\"Id\": {id}, \"Unheard\": 1}}")).collect();
        let params = Params::from([("case_id".to_owned(), Param::Int(case_id))]);
        self.load_records("notes", case_id, &records, &params, Some(digest((case_id, notes))))
    }

    fn load_records(
        &self,
        table: &str,
        id: i64,
        records: &[String],
        params: &Params,
        digest: Option<AnswerDigest>,
    ) -> Load {
        let resource = self.catalog.get(table).unwrap();
        let mut decoder = Decoder::new(&self.catalog, resource, &self.context, records.len());
        for json in records {
            let raw: &RawValue = serde_json::from_str(json).unwrap();
            decoder.push(raw.get(), params);
        }
        Load {
            decoded: decoder.finish().unwrap(),
            scopes: vec![LoadedScope {
                id,
                part: String::new(),
                version: Version::Known("v".to_owned()),
                complete: true,
                sent_at: self.now,
                dated_at: None,
                digest,
                hint: None,
            }],
            kind: LoadKind::Scopes,
            records: 0,
            not_found: false,
            lacking: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// The same answer, where it was found to be the mirrored one before it was decoded.
    fn unchanged(&self, answer: Answer) -> Load {
        let decoder =
            Decoder::new(&self.catalog, self.catalog.get("notes").unwrap(), &self.context, 0);
        Load { decoded: decoder.finish().unwrap(), kind: LoadKind::Unchanged, ..self.load(answer) }
    }

    /// Commits answers of which each is decoded only where it is not what is mirrored before the first.
    fn commit_what_changed(&mut self, answers: &[Answer], goes_well: bool) {
        let said = |(case, notes): &Answer| (*case, (1..=*notes).collect::<Vec<i64>>());
        let mut now = self.notes.clone();
        let loads = answers.iter().map(|answer| {
            let (case, notes) = said(answer);
            if self.notes.get(&case) == Some(&notes) {
                self.unchanged(*answer)
            } else {
                now.insert(case, notes);
                self.load(*answer)
            }
        });
        self.write(loads.collect(), goes_well);
        if goes_well {
            self.notes = now;
        }
    }

    fn write(&mut self, loads: Vec<Load>, goes_well: bool) {
        let (rows, counter) = (self.rows_as_written(), self.counter());
        self.now += std::time::Duration::from_secs(1);
        self.conn.execute_batch("BEGIN").unwrap();
        let (settings, list) = (&self.settings, self.context.privacy.forgotten());
        let applied =
            apply(&self.conn, settings, 1, self.now, loads, &list, &mut self.known).unwrap();
        self.conn.execute_batch(if goes_well { "COMMIT" } else { "ROLLBACK" }).unwrap();
        if let Some(list) = applied.list {
            if goes_well {
                self.context.privacy.learn(list);
            }
            // Rows of any scope were rewritten: a gap says so.
            return;
        }
        // Whoever follows the changes that were noted since has all rows that were written.
        let noted = self.noted();
        let since: Vec<&Vec<i64>> = noted.range(counter + 1..).map(|(_, scopes)| scopes).collect();
        assert_eq!(since.len() as i64, self.counter() - counter);
        let written = &rows ^ &self.rows_as_written();
        for (case_id, ..) in written {
            assert!(since.iter().any(|scopes| scopes.contains(&case_id)), "{case_id}: {since:?}");
        }
    }

    fn rows_as_written(&self) -> BTreeSet<(i64, i64, i64)> {
        let sql = "SELECT case_id, id, epoch_us(_synced_at) FROM main.notes";
        let rows = query(&self.conn, sql, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.unwrap().into_iter().collect()
    }

    /// How often notes have changed.
    fn counter(&self) -> i64 {
        let sql = "SELECT coalesce(max(counter), 0) FROM sync.changes WHERE table_name = 'notes'";
        counter::count(self.conn.query_row(sql, [], |row| row.get(0)).unwrap())
    }

    /// Whose notes each change wrote.
    fn noted(&self) -> BTreeMap<i64, Vec<i64>> {
        let sql = "SELECT counter, unnest(scopes) FROM sync.changed_scopes \
                   WHERE table_name = 'notes' ORDER BY ALL";
        let mut noted: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (counter, scope) in self.pairs(sql) {
            noted.entry(counter::count(counter)).or_default().push(scope);
        }
        noted
    }

    /// Commits answers, or takes the commit back.
    fn commit(&mut self, answers: &[Answer], goes_well: bool) {
        let loads = answers.iter().map(|answer| self.load(*answer)).collect();
        self.write(loads, goes_well);
        if goes_well {
            for (case_id, notes) in answers {
                self.notes.insert(*case_id, (1..=*notes).collect());
            }
        }
    }

    fn pairs(&self, sql: &str) -> Vec<(i64, i64)> {
        query(&self.conn, sql, |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    fn times(&self, sql: &str) -> [Option<i64>; 2] {
        self.conn.query_row(sql, [], |row| Ok([row.get(0)?, row.get(1)?])).unwrap()
    }

    fn assert_true(&mut self) {
        let of_rows = self.times(
            "SELECT epoch_us((SELECT max(written) FROM (SELECT _synced_at AS written FROM main.notes \
               UNION ALL SELECT _valid_from FROM history.notes))), \
             epoch_us((SELECT max(fetched_at) FROM sync.fetched WHERE table_name = 'notes'))",
        );
        self.latest = [of_rows[0].max(self.latest[0]), of_rows[1].max(self.latest[1])];
        let kept = self.times(
            "SELECT epoch_us(last_change), epoch_us(last_checked) FROM sync.freshness \
             WHERE table_name = 'notes'",
        );
        assert_eq!(kept, self.latest);
        let rows = self.pairs("SELECT case_id, id FROM main.notes ORDER BY ALL");
        let said: Vec<(i64, i64)> =
            self.notes.iter().flat_map(|(case, ids)| ids.iter().map(|id| (*case, *id))).collect();
        assert_eq!(rows, said);
        let fetched =
            self.pairs("SELECT id, count(*) FROM sync.fetched_scopes GROUP BY id ORDER BY id");
        let answered: Vec<(i64, i64)> = self.notes.keys().map(|case| (*case, 1)).collect();
        assert_eq!(fetched, answered);
    }
}

#[test]
fn rows_are_what_was_said_last_however_answers_are_put_together() {
    let answers = prop::collection::vec((1..6_i64, 0..4_i64), 1..5);
    let commits = prop::collection::vec((answers, prop::bool::weighted(0.8), 0..3_u8), 1..8);
    let mirror = std::cell::RefCell::new(Mirror::new());
    TestRunner::new(Cases { cases: 24, ..Cases::default() })
        .run(&commits, |commits| {
            let mirror = &mut mirror.borrow_mut();
            mirror.begin_anew();
            for (answers, goes_well, how) in commits {
                if how == 0 {
                    // The next process.
                    mirror.known = KnownScopes::default();
                }
                match how {
                    1 => mirror.commit_what_changed(&answers, goes_well),
                    _ => mirror.commit(&answers, goes_well),
                }
                mirror.assert_true();
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn an_answer_that_is_mirrored_is_fetched_and_one_that_is_no_more_is_to_be_read_again() {
    let mut mirror = Mirror::new();
    let fetched = |mirror: &Mirror| {
        mirror.pairs("SELECT id, epoch_ms(fetched_at) FROM sync.fetched_scopes ORDER BY id")
    };
    mirror.commit(&[(1, 2), (2, 2)], true);
    let first = fetched(&mirror);
    let known = [mirror.unchanged((1, 2)), mirror.unchanged((2, 2))];
    // While both were being read again, case 2 was committed as something else.
    mirror.commit(&[(2, 3)], true);
    mirror.write(known.into(), true);
    mirror.assert_true();
    assert_eq!(fetched(&mirror), [(1, first[0].1 + 2000), (2, first[1].1 + 1000)]);
}

#[test]
fn a_change_is_noted_with_the_cases_whose_rows_it_wrote() {
    let mut mirror = Mirror::new();
    let last = |mirror: &Mirror| mirror.noted().last_key_value().unwrap().1.clone();
    mirror.commit(&[(1, 2), (2, 1), (3, 1), (4, 1)], true);
    assert_eq!(last(&mirror), [1, 2, 3, 4]);
    // One gets a row and one loses one; the other two are as they were.
    mirror.commit(&[(1, 2), (2, 2), (3, 0), (4, 1)], true);
    assert_eq!(last(&mirror), [2, 3]);
    // The case is gone.
    let notes = mirror.catalog.get("notes").unwrap().as_ref();
    let (settings, mut outcome) = (&mirror.settings, Outcome::default());
    let take = |ids: &str, outcome: &mut Outcome| {
        removal::take_rows(&mirror.conn, settings, notes, ids, "deleted", mirror.now, outcome)
    };
    take("SELECT unnest([2, 3])", &mut outcome).unwrap();
    assert_eq!(outcome.tables["notes"].deleted, 2);
    assert_eq!(last(&mirror), [2], "case 3 had none");
    assert_eq!(mirror.noted().len() as i64, mirror.counter());
    // Without a lake nothing is noted, and what comes after that shows a gap.
    let (noted, counter) = (mirror.noted(), mirror.counter());
    let settings = Settings { notes_scopes: false, ..mirror.settings.clone() };
    mirror.conn.execute_batch("BEGIN").unwrap();
    let load = mirror.load((9, 1));
    let list = mirror.context.privacy.forgotten();
    apply(&mirror.conn, &settings, 1, mirror.now, vec![load], &list, &mut mirror.known).unwrap();
    mirror.conn.execute_batch("COMMIT").unwrap();
    assert_eq!((mirror.noted(), mirror.counter()), (noted, counter + 1));
}

#[test]
fn what_belongs_to_no_scope_of_the_answer_is_compared() {
    let mut mirror = Mirror::new();
    mirror.commit(&[(1, 2)], true);
    // A service that sends the notes of another case.
    let mut load = mirror.load((2, 2));
    load.scopes[0].id = 3;
    mirror.write(vec![load], true);
    mirror.commit(&[(2, 2)], true);
    assert_eq!(
        mirror.pairs("SELECT case_id, count(*) FROM main.notes GROUP BY case_id ORDER BY ALL"),
        [(1, 2), (2, 2)]
    );
}

/// Versions of a processing basis say themselves which id is theirs.
#[test]
fn a_row_that_several_answers_have_is_taken_once_and_the_last_one_wins() {
    let mut mirror = Mirror::new();
    let answer = |mirror: &Mirror, id: i64, days: [&str; 2]| {
        let [first, second] = days;
        let records = [
            format!("{{\"Id\": 5, \"Version\": 1, \"HideOnStatus\": \"{first}\"}}"),
            format!("{{\"Id\": 7, \"Version\": 2, \"HideOnStatus\": \"{second}\"}}"),
        ];
        mirror.load_records("processing_bases", id, &records, &Params::new(), None)
    };
    let rows = |mirror: &Mirror, schema: &str| -> Vec<(i64, String)> {
        let rows = format!("SELECT id, hide_on_status FROM {schema}.processing_bases ORDER BY ALL");
        query(&mirror.conn, &rows, |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    let row = |id: i64, text: &str| (id, text.to_owned());
    // The first for an empty table, the others for rows that are there.
    mirror.write(vec![answer(&mirror, 5, ["a", "a"]), answer(&mirror, 7, ["a", "a"])], true);
    assert_eq!(rows(&mirror, "main"), [row(5, "a"), row(7, "a")]);
    assert_eq!(rows(&mirror, "history"), []);
    mirror.write(vec![answer(&mirror, 5, ["b", "b"]), answer(&mirror, 7, ["b", "c"])], true);
    assert_eq!(rows(&mirror, "main"), [row(5, "b"), row(7, "c")]);
    assert_eq!(rows(&mirror, "history"), [row(5, "a"), row(7, "a"), row(7, "b")]);
}

/// A page of a search is of as many scopes as it has records.
#[test]
fn what_is_told_by_column_of_a_page_may_be_of_any_of_its_cases() {
    let mirror = Mirror::new();
    let records: Vec<String> =
        (1..=10_002).map(|id| format!("{{\"Id\": {id}, \"AskingPrice\": \"much\"}}")).collect();
    let mut load = mirror.load_records("cases", 1, &records, &Params::new(), None);
    let of_first = load.scopes[0].clone();
    load.scopes = (1..=10_002).map(|id| LoadedScope { id, ..of_first.clone() }).collect();
    load.kind = LoadKind::Search { place: Place::Cases, answered_at: Ticks::from(mirror.now) };
    let rejects = rejects::of(&[load]);
    let scopes: Vec<&str> = rejects[10_000..].iter().map(|(scope, _)| scope.as_str()).collect();
    assert_eq!(scopes.len(), 10_002);
    assert_eq!((scopes[0], scopes[10_001]), ("1", "10002"));
}

#[test]
fn a_change_is_counted_and_a_new_field_noted_once_per_commit() {
    let mut mirror = Mirror::new();
    let counted = |mirror: &Mirror| {
        mirror.pairs("SELECT counter, 0 FROM sync.changes WHERE table_name = 'notes' AND part = ''")
    };
    mirror.commit(&[(1, 2), (2, 1)], true);
    let first = counted(&mirror);
    assert_eq!(first.len(), 1);
    mirror.commit(&[(1, 2), (2, 1)], true);
    assert_eq!(counted(&mirror), first, "nothing was written");
    mirror.commit(&[(1, 1), (2, 3)], true);
    let moved = counted(&mirror)[0].0;
    assert_eq!(counter::count(moved), counter::count(first[0].0) + 1);
    assert_eq!(
        mirror.pairs("SELECT count(*), 0 FROM sync.drift WHERE field = 'Unheard'"),
        [(1, 0)]
    );
}

#[test]
fn a_condition_whose_value_does_not_fit_decides_nothing() {
    let mut mirror = Mirror::new();
    let texts = |mirror: &Mirror| {
        mirror.pairs("SELECT case_id, id FROM main.dynamic_sale_texts ORDER BY ALL")
    };
    let params = Params::from([("case_id".to_owned(), Param::Int(7))]);
    let load = |mirror: &Mirror, table: &str, records: &[&str]| {
        let records: Vec<String> = records.iter().map(|record| (*record).to_owned()).collect();
        mirror.load_records(table, 7, &records, &params, None)
    };
    let uses = |mirror: &Mirror, value: &str| {
        load(mirror, "dynamic_sale_text_use", &[&format!("{{\"Value\": {value}}}")])
    };
    let used = uses(&mirror, "true");
    let two = load(&mirror, "dynamic_sale_texts", &["{\"Id\": 1}", "{\"Id\": 2}"]);
    mirror.write(vec![used, two], true);
    assert_eq!(texts(&mirror), [(7, 1), (7, 2)]);

    // Twice: the first time nothing is noted of the value yet.
    for _ in 0..2 {
        let unfit = uses(&mirror, "\"true\"");
        mirror.write(vec![unfit], true);
        assert_eq!(texts(&mirror), [(7, 1), (7, 2)]);
    }
    // By one that fits it is decided at once.
    let unused = uses(&mirror, "false");
    mirror.write(vec![unused], true);
    assert_eq!(texts(&mirror), []);
}

#[test]
fn an_answer_that_comes_after_its_case_has_left_the_table_puts_no_rows_back() {
    let mut mirror = Mirror::new();
    let texts = |mirror: &Mirror| {
        mirror.pairs("SELECT case_id, id FROM main.dynamic_sale_texts ORDER BY ALL")
    };
    let params = Params::from([("case_id".to_owned(), Param::Int(7))]);
    let load = |mirror: &Mirror, table: &str, record: &str| {
        mirror.load_records(table, 7, &[record.to_owned()], &params, None)
    };
    let answer = |mirror: &Mirror| load(mirror, "dynamic_sale_texts", "{\"Id\": 1}");
    // Of a case without a row there, as a hidden one, nothing is known that would rule it out.
    let late = answer(&mirror);
    mirror.write(vec![late], true);
    assert_eq!(texts(&mirror), [(7, 1)]);
    let unused = load(&mirror, "dynamic_sale_text_use", "{\"Value\": false}");
    mirror.write(vec![unused], true);
    assert_eq!(texts(&mirror), []);
    let late = answer(&mirror);
    mirror.write(vec![late], true);
    assert_eq!(texts(&mirror), []);
    let fetched = "SELECT count(*), 0 FROM sync.fetched WHERE table_name = 'dynamic_sale_texts'";
    assert_eq!(mirror.pairs(fetched), [(0, 0)], "it is read when it is used again");
    let used = load(&mirror, "dynamic_sale_text_use", "{\"Value\": true}");
    let text = answer(&mirror);
    mirror.write(vec![used, text], true);
    assert_eq!(texts(&mirror), [(7, 1)]);
}

fn records(ids: impl Iterator<Item = i64>) -> Vec<String> {
    ids.map(|id| format!("{{\"Id\": {id}}}")).collect()
}

#[test]
fn what_is_held_of_a_list_stays_held_whatever_came_with_it() {
    let mut mirror = Mirror::open(false);
    let tags = |mirror: &Mirror| mirror.pairs("SELECT id, 0 FROM main.file_tags ORDER BY id").len();
    let answer = |mirror: &mut Mirror, ids: std::ops::RangeInclusive<i64>| {
        let load = mirror.load_records("file_tags", 0, &records(ids), &Params::new(), None);
        mirror.write(vec![load], true);
    };
    answer(&mut mirror, 1..=12);
    for _ in 0..3 {
        answer(&mut mirror, 101..=160);
        assert_eq!(tags(&mirror), 72, "the twelve that are lacking stay");
    }
    // Nor do the sixty leave at once: which of the two answers is right nobody knows.
    answer(&mut mirror, 1..=11);
    assert_eq!(tags(&mirror), 72);
}

#[test]
fn what_is_doubted_of_a_scope_stays_doubted_whatever_came_with_it() {
    let mut mirror = Mirror::open(false);
    let params = Params::from([("case_id".to_owned(), Param::Int(7))]);
    let notes = |mirror: &Mirror| mirror.pairs("SELECT case_id, id FROM main.notes").len();
    let answer = |mirror: &mut Mirror, ids: std::ops::RangeInclusive<i64>| {
        let load = mirror.load_records("notes", 7, &records(ids), &params, None);
        mirror.write(vec![load], true);
    };
    // Another case, so that the guard over the table holds nothing.
    let other = Params::from([("case_id".to_owned(), Param::Int(8))]);
    let many = mirror.load_records("notes", 8, &records(1..=5000), &other, None);
    mirror.write(vec![many], true);
    answer(&mut mirror, 1..=12);
    // Each time another answer, and then the same one again at once.
    for (last, have) in [(101, 5013), (102, 5014), (102, 5014), (103, 5015)] {
        answer(&mut mirror, 101..=last);
        assert_eq!(notes(&mirror), have);
    }
    mirror.now += std::time::Duration::from_secs(601);
    answer(&mut mirror, 101..=103);
    assert_eq!(notes(&mirror), 5003, "an equal answer confirms it, source.doubt later");
}

#[test]
fn an_ordinary_loss_is_believed_also_after_an_answer_that_was_doubted() {
    let mut mirror = Mirror::open(false);
    let answer = |mirror: &mut Mirror, case_id: i64, notes: i64| {
        let params = Params::from([("case_id".to_owned(), Param::Int(case_id))]);
        let load = mirror.load_records("notes", case_id, &records(1..=notes), &params, None);
        mirror.write(vec![load], true);
        mirror.pairs("SELECT case_id, id FROM main.notes WHERE case_id = 7").len()
    };
    answer(&mut mirror, 8, 5000);
    assert_eq!(answer(&mut mirror, 7, 100), 100);
    assert_eq!(answer(&mut mirror, 7, 0), 100, "doubted");
    assert_eq!(answer(&mut mirror, 7, 85), 85);
}
