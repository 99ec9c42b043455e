//! Months of a case journal that are read again and again, each time a little different.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use duckdb::Connection;
use jiff::{Timestamp, ToSpan};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::Store;
use super::super::commit;
use super::super::content::MonthContent;
use super::super::first_load::KnownScopes;
use super::super::load::Settings;
use super::super::month_lines::{Line, MonthLines, journal_lines};
use crate::catalog::Catalog;
use crate::config::Config;
use crate::decode::{
    Context, Decoded, Decoder, Load, LoadKind, LoadedScope, Param, Params, Privacy,
};
use crate::scope::{JournalScope, Version};
use crate::sql::{query, scalar_i64};

/// A line as the source says it.
#[derive(Debug, Clone, Default, PartialEq)]
struct Said {
    key: Option<u8>,
    duration: u8,
    /// Moves by itself.
    status: u8,
    /// A field that no column takes.
    extra: u8,
    notes: Vec<u8>,
}

impl Said {
    fn of(key: u8, duration: u8, notes: &[u8]) -> Said {
        Said { key: Some(key), duration, notes: notes.to_vec(), ..Said::default() }
    }

    fn json(&self) -> Value {
        let notes: Vec<Value> =
            self.notes.iter().map(|note| json!({ "Annotation": note.to_string() })).collect();
        let mut line = json!({
            "CaseDuration": self.duration.to_string(),
            "CaseStatus": self.status.to_string(),
            "Annotations": notes,
        });
        if let Some(key) = self.key {
            line["CaseReferralKey"] = json!(key.to_string());
        }
        if self.extra > 0 {
            line["Newly"] = json!(self.extra);
        }
        line
    }

    /// What makes it the line that it is.
    fn content(&self) -> (Option<u8>, u8, Vec<u8>) {
        let mut notes = self.notes.clone();
        notes.sort_unstable();
        (self.key, self.duration, notes)
    }
}

/// A line as it was at some time: its name, what it says, and its annotations in order.
type Was = (i64, String);

struct Mirror {
    _folder: tempfile::TempDir,
    _store: Store,
    conn: Connection,
    catalog: Arc<Catalog>,
    context: Context,
    settings: Settings,
    now: Timestamp,
    /// The service's clock, where it is far behind.
    dated_at: Option<Timestamp>,
    journal_id: i64,
}

impl Mirror {
    fn new() -> Mirror {
        let folder = tempfile::tempdir().unwrap();
        let url = "http://127.0.0.1:1/".parse().unwrap();
        let mut config = Config::for_demo(url, "id", String::from("secret").into(), folder.path());
        config.store.threads = Some(1);
        let catalog = Arc::new(Catalog::load(None).unwrap());
        let store = Store::open(&config, &catalog).unwrap();
        let conn = store.connection().unwrap();
        let context = Context {
            zone: config.source.time_zone.clone(),
            privacy: Privacy::new(&config.privacy, [7; 32]),
            disabled: Arc::new([]),
            generation: 1,
        };
        let settings = Settings::new(&config, &catalog, true);
        let now = "2026-01-10T00:00:00Z".parse().unwrap();
        Mirror {
            _folder: folder,
            _store: store,
            conn,
            catalog,
            context,
            settings,
            now,
            dated_at: None,
            journal_id: 1,
        }
    }

    /// Another journal, of which nothing is known.
    fn another(&mut self) {
        self.journal_id += 1;
    }

    /// Loads an answer, and says when that was.
    fn read(&mut self, lines: &[Said], complete: bool) -> Timestamp {
        self.now += 1.second();
        let resource = self.catalog.get("case_journals").unwrap();
        let load = Load {
            decoded: self.decoded(lines),
            scopes: vec![LoadedScope {
                id: self.journal_id,
                part: "offices/2025-10".to_owned(),
                version: Version::Known(String::new()),
                complete,
                sent_at: self.now,
                dated_at: self.dated_at,
                digest: None,
                hint: None,
            }],
            kind: LoadKind::Journal,
            records: 0,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: false,
        };
        let said = MonthContent::decoded(&load.decoded).unwrap();
        self.conn.execute_batch("BEGIN").unwrap();
        commit::apply(
            &self.conn,
            &self.settings,
            1,
            self.now,
            vec![load],
            &self.context.privacy.forgotten(),
            &mut KnownScopes::default(),
        )
        .unwrap();
        self.conn.execute_batch("COMMIT").unwrap();
        if complete {
            let notes = self.catalog.children(&resource.table).next().map(AsRef::as_ref);
            let month = JournalScope::of(self.journal_id, "offices/2025-10").unwrap();
            let kept = MonthContent::mirrored(&self.conn, resource, notes, &month).unwrap();
            assert_eq!(kept, said, "a month is closed as what its answer said");
        }
        self.now
    }

    fn decoded(&self, lines: &[Said]) -> Decoded {
        let resource = self.catalog.get("case_journals").unwrap();
        let records: Vec<String> = lines.iter().map(|line| line.json().to_string()).collect();
        let mut decoder = Decoder::new(&self.catalog, resource, &self.context, 0);
        for json in &records {
            let params = Params::from([
                ("journal_level".to_owned(), Param::Text("offices".to_owned())),
                ("journal_id".to_owned(), Param::Int(self.journal_id)),
                ("journal_month".to_owned(), Param::Text("2025-10-01".to_owned())),
            ]);
            let raw: &RawValue = serde_json::from_str(json).unwrap();
            decoder.push(raw.get(), &params);
        }
        decoder.finish().unwrap()
    }

    fn complete(&mut self, lines: &[Said]) -> Timestamp {
        self.read(lines, true)
    }

    /// Names of the lines, in their order.
    fn ids(&self) -> Vec<i64> {
        let sql = format!(
            "SELECT line_id FROM main.case_journals WHERE journal_id = {} ORDER BY line_number",
            self.journal_id
        );
        query(&self.conn, &sql, |row| row.get(0)).unwrap()
    }

    /// Lines with their annotations, in order, joined by the name.
    fn lines(&self) -> Vec<Was> {
        self.joined(
            "SELECT *, line_number AS place FROM main.case_journals",
            "SELECT * FROM main.case_journal_annotations",
        )
    }

    /// The same as they were then: nobody knows in which order.
    fn lines_as_of(&self, then: Timestamp) -> BTreeSet<Was> {
        let as_of = |table: &str| {
            format!(
                "SELECT *, 0 AS place FROM main.{table} WHERE _synced_at <= '{then}' \
                 UNION ALL SELECT * EXCLUDE (_valid_from, _valid_to, _change), 0 AS place \
                 FROM history.{table} WHERE _valid_from <= '{then}' AND _valid_to > '{then}'"
            )
        };
        let all = self.joined(&as_of("case_journals"), &as_of("case_journal_annotations"));
        let set: BTreeSet<Was> = all.iter().cloned().collect();
        assert_eq!(set.len(), all.len(), "{all:?}");
        set
    }

    fn joined(&self, lines: &str, notes: &str) -> Vec<Was> {
        let id = self.journal_id;
        let sql = format!(
            "SELECT l.line_id, concat_ws('/', l.case_referral_key, l.case_duration, l._extra, n.notes) \
             FROM ({lines}) l LEFT JOIN ( \
               SELECT line_id, string_agg(position || ':' || annotation, ' ' ORDER BY position) AS notes \
               FROM ({notes}) WHERE journal_id = {id} GROUP BY line_id) n \
               ON n.line_id = l.line_id \
             WHERE l.journal_id = {id} ORDER BY l.place, l.line_id"
        );
        query(&self.conn, &sql, |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    fn count(&self, of: &str) -> i64 {
        scalar_i64(
            &self.conn,
            &format!("SELECT count(*) FROM {of} WHERE journal_id = {}", self.journal_id),
        )
        .unwrap()
    }

    /// Earlier versions of lines, of annotations, and restatements.
    fn told(&self) -> [i64; 3] {
        ["history.case_journals", "history.case_journal_annotations", "sync.restatements"]
            .map(|table| self.count(table))
    }
}

/// As [`Mirror::joined`] has a line.
fn shown(line: &Said) -> String {
    let notes: Vec<String> =
        line.notes.iter().zip(1..).map(|(note, n)| format!("{n}:{note}")).collect();
    let extra = (line.extra > 0).then(|| json!({ "Newly": line.extra }).to_string());
    let notes = (!notes.is_empty()).then(|| notes.join(" "));
    let cells = [line.key.map(|k| k.to_string()), Some(line.duration.to_string()), extra, notes];
    cells.into_iter().flatten().collect::<Vec<_>>().join("/")
}

#[test]
fn a_month_is_closed_when_both_clocks_have_come_to_its_close_day() {
    let mut mirror = Mirror::new();
    let is_closed = |mirror: &Mirror| {
        let closed = "SELECT count(*) FROM sync.journal_months WHERE closed_read_at IS NOT NULL";
        crate::sql::scalar_i64(&mirror.conn, closed).unwrap() == 1
    };
    // The month is over by both, and `journals.close_day` is the tenth.
    for (dated_at, expected) in [("2025-11-09T22:59:59Z", false), ("2025-11-09T23:00:00Z", true)] {
        mirror.dated_at = Some(dated_at.parse().unwrap());
        mirror.complete(&[Said::of(1, 1, &[])]);
        assert_eq!(is_closed(&mirror), expected, "{dated_at}");
    }
}

#[test]
fn lines_keep_their_names_when_one_is_put_on_top() {
    let mut mirror = Mirror::new();
    let mut lines = vec![Said::of(1, 1, &[7]), Said::of(2, 2, &[8, 9]), Said::of(3, 3, &[])];
    let first = mirror.complete(&lines);
    let before = mirror.lines();
    assert_eq!(mirror.ids(), [1, 2, 3]);
    lines.insert(0, Said::of(4, 4, &[5]));
    let second = mirror.complete(&lines);
    assert_eq!(mirror.ids(), [4, 1, 2, 3]);
    assert_eq!(mirror.told(), [0, 0, 1], "but for the new line nothing is told");
    lines[2].notes[0] = 6;
    mirror.complete(&lines);
    assert_eq!(mirror.ids(), [4, 1, 2, 3]);
    assert_eq!(mirror.lines_as_of(first), before.iter().cloned().collect());
    let with_one_more = before.into_iter().chain([(4, "4/4/1:5".to_owned())]).collect();
    assert_eq!(mirror.lines_as_of(second), with_one_more);
}

#[test]
fn the_name_of_a_line_that_left_is_not_given_again() {
    let mut mirror = Mirror::new();
    let line = Said::of(1, 1, &[7]);
    mirror.complete(std::slice::from_ref(&line));
    mirror.complete(&[]);
    mirror.complete(std::slice::from_ref(&line));
    assert_eq!(mirror.ids(), [2]);
    mirror.complete(&[line.clone(), line.clone()]);
    assert_eq!(mirror.ids(), [2, 3], "two equal lines are two");
    mirror.complete(std::slice::from_ref(&line));
    mirror.complete(&[line.clone(), line]);
    assert_eq!(mirror.ids(), [2, 4]);
}

#[test]
fn a_new_field_and_a_status_that_moves_are_no_restatements() {
    let mut mirror = Mirror::new();
    let mut lines = vec![Said::of(1, 1, &[7]), Said::of(1, 2, &[]), Said::of(1, 3, &[8])];
    mirror.complete(&lines);
    lines.iter_mut().for_each(|line| line.status = 2);
    mirror.complete(&lines);
    assert_eq!(mirror.told(), [0, 0, 0]);
    lines.iter_mut().for_each(|line| line.extra = 1);
    lines.rotate_left(1);
    mirror.complete(&lines);
    assert_eq!(mirror.told(), [3, 0, 0], "versions of the rows, and nothing that was restated");
    assert_eq!(mirror.ids(), [2, 3, 1]);
}

#[test]
fn annotations_are_paired_by_what_they_say() {
    let mut mirror = Mirror::new();
    mirror.complete(&[Said::of(1, 1, &[7, 8])]);
    mirror.complete(&[Said::of(1, 1, &[6, 7, 8])]);
    let told = "SELECT column_name || ' ' || coalesce(before, '-') || ' ' || after \
                FROM sync.restatements ORDER BY ALL";
    let told = |mirror: &Mirror| query(&mirror.conn, told, |row| row.get(0)).unwrap();
    let once: Vec<String> = told(&mirror);
    assert_eq!(once, ["annotations[1].annotation - 6"]);
    mirror.complete(&[Said::of(1, 1, &[8, 6, 7])]);
    assert_eq!(told(&mirror), once, "another order is nothing that was restated");
    mirror.complete(&[Said::of(1, 1, &[8, 5, 7])]);
    assert_eq!(told(&mirror), ["annotations[1].annotation - 6", "annotations[2].annotation 6 5"]);
    assert_eq!(mirror.lines(), [(1, "1/1/1:8 2:5 3:7".to_owned())]);
}

#[test]
fn an_incomplete_answer_takes_no_annotation_and_no_place() {
    let mut mirror = Mirror::new();
    mirror.complete(&[Said::of(1, 1, &[7, 8]), Said::of(2, 2, &[9])]);
    mirror.read(&[Said::of(1, 1, &[8])], false);
    assert_eq!(mirror.lines(), [(1, "1/1/1:8 2:7".to_owned()), (2, "2/2/1:9".to_owned())]);
    mirror.read(&[Said::of(3, 3, &[])], false);
    assert_eq!(mirror.ids(), [3, 1, 2]);
    let places = "SELECT DISTINCT l.line_number - a.line_number FROM main.case_journals l \
                  JOIN main.case_journal_annotations a USING (journal_id, line_id)";
    assert_eq!(query(&mirror.conn, places, |row| row.get::<_, i64>(0)).unwrap(), [0]);
}

/// What it lacks is there still: another line of the same key, or of none, is no change of that one.
#[test]
fn an_incomplete_answer_puts_no_line_in_place_of_another() {
    let mut mirror = Mirror::new();
    let keyless = |duration| Said { key: None, ..Said::of(0, duration, &[]) };
    let whole = [Said::of(1, 1, &[]), Said::of(1, 2, &[7]), keyless(3), Said::of(2, 4, &[])];
    mirror.complete(&whole);
    let before = mirror.lines();
    assert_eq!(before[3], (4, "2/4".to_owned()));
    let seen = [Said::of(1, 1, &[]), Said::of(1, 5, &[]), keyless(6), Said::of(2, 8, &[])];
    mirror.read(&seen, false);
    let mut lines = mirror.lines();
    lines.sort();
    assert_eq!(lines[..3], before[..3]);
    // The one of a key that no other has is known by it.
    assert_eq!((lines.len(), &lines[3]), (6, &(4, "2/8".to_owned())), "{lines:?}");
    mirror.complete(&whole);
    assert_eq!(mirror.lines(), before);
}

/// What becomes of a month between two readings; places are taken modulo what is there.
#[derive(Debug, Clone)]
enum Edit {
    Insert(usize, Option<u8>, u8, Vec<u8>),
    Double(usize, usize),
    Remove(usize),
    Move(usize, usize),
    Duration(usize, u8),
    Note(usize, usize, u8),
    Unnote(usize, usize),
    TurnNotes(usize),
    Status(u8),
    Extra(u8),
    Clear,
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = 0..9_usize;
    let value = 0..3_u8;
    let note = 0..4_u8;
    prop_oneof![
        6 => (place.clone(), proptest::option::of(value.clone()), value.clone(),
              proptest::collection::vec(note.clone(), 0..3))
            .prop_map(|(at, key, duration, notes)| Edit::Insert(at, key, duration, notes)),
        2 => (place.clone(), place.clone()).prop_map(|(of, at)| Edit::Double(of, at)),
        3 => place.clone().prop_map(Edit::Remove),
        3 => (place.clone(), place.clone()).prop_map(|(from, to)| Edit::Move(from, to)),
        2 => (place.clone(), value.clone()).prop_map(|(at, to)| Edit::Duration(at, to)),
        3 => (place.clone(), place.clone(), note).prop_map(|(l, at, n)| Edit::Note(l, at, n)),
        2 => (place.clone(), place.clone()).prop_map(|(line, at)| Edit::Unnote(line, at)),
        1 => place.prop_map(Edit::TurnNotes),
        1 => value.clone().prop_map(Edit::Status),
        1 => value.prop_map(Edit::Extra),
        1 => Just(Edit::Clear),
    ]
}

fn apply(lines: &mut Vec<Said>, edit: &Edit) {
    let n = lines.len();
    match edit {
        Edit::Insert(at, key, duration, notes) => {
            let line =
                Said { key: *key, duration: *duration, notes: notes.clone(), ..Said::default() };
            lines.insert(at % (n + 1), line);
        }
        Edit::Clear => lines.clear(),
        _ if n == 0 => {}
        Edit::Double(of, at) => lines.insert(at % (n + 1), lines[of % n].clone()),
        Edit::Remove(at) => drop(lines.remove(at % n)),
        Edit::Move(from, to) => {
            let line = lines.remove(from % n);
            lines.insert(to % n, line);
        }
        Edit::Duration(at, to) => lines[at % n].duration = *to,
        Edit::Note(line, at, note) => {
            let notes = &mut lines[line % n].notes;
            notes.insert(at % (notes.len() + 1), *note);
        }
        Edit::Unnote(line, at) => {
            let notes = &mut lines[line % n].notes;
            if !notes.is_empty() {
                notes.remove(at % notes.len());
            }
        }
        Edit::TurnNotes(line) => lines[line % n].notes.reverse(),
        Edit::Status(to) => lines.iter_mut().for_each(|line| line.status = *to),
        Edit::Extra(to) => lines.iter_mut().for_each(|line| line.extra = *to),
    }
}

/// The names of the lines that say the same, in order.
fn by_content(lines: &[Said], ids: &[i64]) -> BTreeMap<(Option<u8>, u8, Vec<u8>), Vec<i64>> {
    let mut all: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for (line, id) in lines.iter().zip(ids) {
        all.entry(line.content()).or_default().push(*id);
    }
    all
}

/// Readings: what is edited before each, and of how many lines it is, where it is not complete.
type Readings = Vec<(Vec<Edit>, Option<usize>)>;

fn plays(mirror: &mut Mirror, readings: &Readings) {
    mirror.another();
    let mut source: Vec<Said> = Vec::new();
    let mut mirrored: Vec<Said> = Vec::new();
    let mut gone: BTreeSet<i64> = BTreeSet::new();
    let mut ids: Vec<i64> = Vec::new();
    let mut states: Vec<(Timestamp, BTreeSet<Was>)> = Vec::new();
    for (edits, cut) in readings {
        edits.iter().for_each(|edit| apply(&mut source, edit));
        let answer = &source[..cut.unwrap_or(source.len()).min(source.len())];
        let then = mirror.read(answer, cut.is_none());
        let now = mirror.ids();
        let lines = mirror.lines();
        let named: BTreeSet<i64> = now.iter().copied().collect();
        assert_eq!(named.len(), now.len(), "a name is given once: {now:?}");
        assert!(named.is_disjoint(&gone), "{now:?} has one of {gone:?} again");
        if cut.is_none() {
            let said: Vec<String> = source.iter().map(shown).collect();
            let have: Vec<&String> = lines.iter().map(|(_, line)| line).collect();
            assert_eq!(have, said.iter().collect::<Vec<_>>());
            let after = by_content(&source, &now);
            // What an incomplete answer left behind has no model here.
            for (content, had) in by_content(&mirrored, &ids) {
                let has = after.get(&content).map_or(&[][..], Vec::as_slice);
                let kept = had.len().min(has.len());
                assert_eq!(had[..kept], has[..kept], "{content:?} is as it was");
            }
            gone.extend(ids.iter().filter(|id| !named.contains(id)));
            mirrored.clone_from(&source);
        } else {
            assert!(ids.iter().all(|id| named.contains(id)), "{ids:?} became {now:?}");
            mirrored.clear();
        }
        ids = now;
        states.push((then, lines.into_iter().collect()));
        for (then, state) in &states {
            assert_eq!(mirror.lines_as_of(*then), *state, "as of {then}, now {}", mirror.now);
        }
    }
}

#[test]
fn names_are_for_good_and_every_past_state_is_given_back() {
    let mirror = RefCell::new(Mirror::new());
    let cut = prop_oneof![6 => Just(None), 1 => (0..4_usize).prop_map(Some)];
    let reading = (proptest::collection::vec(edit(), 1..5), cut);
    let readings = proptest::collection::vec(reading, 2..7);
    let cases = Cases { cases: 24, failure_persistence: None, ..Cases::default() };
    TestRunner::new(cases)
        .run(&readings, |readings| {
            plays(&mut mirror.borrow_mut(), &readings);
            Ok(())
        })
        .unwrap();
}

#[test]
fn of_a_month_only_lines_that_may_differ_are_read_as_text() {
    let mut mirror = Mirror::new();
    let lines = [
        Said::of(1, 1, &[]),
        Said::of(2, 1, &[]),
        Said::of(3, 1, &[7]),
        Said { key: None, duration: 4, ..Said::default() },
        Said::of(5, 1, &[]),
        Said::of(6, 1, &[]),
    ];
    mirror.complete(&lines);
    let read = |lines: &[Said]| {
        let month =
            "journal_level = 'offices' AND journal_id = 1 AND journal_month = DATE '2025-10-01'";
        let decoded = mirror.decoded(lines);
        journal_lines(&mirror.conn, &decoded, "case_referral_key", month).unwrap()
    };
    let numbers = |lines: &[Line]| lines.iter().map(|line| line.number).collect::<Vec<_>>();
    let MonthLines { counts, source, mirror: mirrored } = read(&lines);
    assert_eq!((counts, numbers(&source), numbers(&mirrored)), ((6, 6), vec![3], vec![3]));
    assert_eq!(source, mirrored);
    // Another cell, a status that moves by itself, an annotation more, and a line less.
    let mut now = lines[..5].to_vec();
    now[0].duration = 9;
    now[1].status = 9;
    now[4].notes = vec![8];
    let MonthLines { counts, source, mirror: mirrored } = read(&now);
    assert_eq!((counts, numbers(&source)), ((5, 6), vec![1, 3, 5]));
    assert_eq!(numbers(&mirrored), [1, 3, 5, 6]);
    assert_eq!(source[2].notes.len(), 1);
}
