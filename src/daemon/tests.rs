//! Commands that were forwarded, with the daemon's controls in the test's hand.

mod publishing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};

use super::{Host, Manager, Session, Worker, run_tasks};
use crate::config::Config;
use crate::cycle::{Controls, Interrupt, JournalRequest, Options};
use crate::error::{Kind, Result};
use crate::journals::tables_of;
use crate::mirror::Writing;
use crate::progress::{Counts, Progress};
use crate::sandbox::{self, Fault, Rule, Sandbox, When};
use crate::scope::Month;

/// Months of the journals that are mirrored.
const MONTHS: i32 = 3;
const JOURNALS: &str = "/api/Offices/*Journals*";

/// A mirrored brokerage, and a daemon of which there are only its controls.
struct Place {
    sandbox: Sandbox,
    session: Arc<Session>,
    controls: Arc<Controls>,
    progress: Progress,
    folder: TempDir,
}

impl Place {
    async fn mirrored() -> Place {
        let options = sandbox::Options {
            cases: 4,
            gzip: false,
            feed_calls: 1000,
            feed_per: Duration::from_secs(1),
            ..sandbox::Options::default()
        };
        let sandbox = Sandbox::start(options).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[source]\nbase_url = \"{}\"\nclient_id = \"{}\"\nclient_secret = \"{}\"\n\
             search_delay = \"1s\"\n[limits]\nrequests_per_second = 2000\n\
             [feed]\nledger = \"feed-calls\"\ncalls = 1000\nper = \"1s\"\n[publish]\nparquet = \"\"\n\
             [journals]\nsince = \"{}-01\"\n",
            sandbox.base_url(),
            sandbox.client_id(),
            sandbox.client_secret(),
            this_month().plus(1 - MONTHS),
        );
        let path = folder.path().join("casemirror.toml");
        std::fs::write(&path, text).unwrap();
        let config = Config::load(&path, &[], |_| None).unwrap();
        let progress = Progress::silent();
        let session = Arc::new(Session::open(config, Writing::Applying, progress.clone()).unwrap());
        let controls = Arc::new(Controls::new(&session.polls().notifier));
        let own = Host::own(Arc::clone(&session), &Controls::alone());
        let done = own.run("sync", Options::default()).await.unwrap();
        assert_eq!(done.report.exit_status(), 0, "{:?}", done.report.problems);
        sandbox.reset_stats();
        Place { sandbox, session, controls, progress, folder }
    }

    fn host(&self) -> Host {
        Host {
            session: Arc::clone(&self.session),
            signals: self.controls.listen(),
            controls: Some(Arc::clone(&self.controls)),
            handled: Some(0),
            pulse: None,
        }
    }

    /// Holds the `nth` call to a journal with its answer in hand, sets the controls, lets it go.
    async fn interrupt_in_call(&self, nth: u64, interrupt: Interrupt) {
        let fault = Fault::Hold { name: "call".to_owned(), when: When::After };
        let path = JOURNALS.to_owned();
        self.sandbox.fault(Rule { method: None, path, query: None, nth, count: Some(1), fault });
        assert!(self.sandbox.wait_until_held("call").await);
        self.controls.set(interrupt);
        self.sandbox.release("call");
    }

    /// Calls to the journals by path and query.
    fn journal_calls(&self) -> BTreeMap<String, i32> {
        let mut calls = BTreeMap::new();
        for call in self.sandbox.stats().log.iter().filter(|c| c.path.contains("Journals")) {
            *calls.entry(format!("{}?{}", call.path, call.query)).or_default() += 1;
        }
        calls
    }

    fn count(&self, sql: &str) -> i64 {
        let conn = self.session.store().connection().unwrap();
        conn.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

fn this_month() -> Month {
    Month::of(jiff::Zoned::now().date())
}

/// What `casemirror journals` of all these months asks for.
fn all_journals() -> Options {
    let request = JournalRequest {
        also: Vec::new(),
        from: this_month().plus(1 - MONTHS),
        to: this_month(),
        ids: Vec::new(),
        planned: false,
        stays_open: false,
    };
    let only = tables_of(&[]).unwrap();
    Options { only, journals: Some(request), ..Options::default() }
}

/// Each month of each journal was asked once; the months of a sum are in the body of its call.
fn assert_each_was_asked_once(calls: &BTreeMap<String, i32>) {
    let once = |path: &str| if path.contains("/Sum") { MONTHS } else { 1 };
    assert!(calls.iter().all(|(path, times)| *times == once(path)), "{calls:?}");
    let offices = calls.keys().filter(|path| path.contains("/Sum")).count();
    assert!(offices > 1);
    assert_eq!(calls.len(), offices * (4 * MONTHS as usize + 1), "{calls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_counts_the_rows_of_every_table_and_begins_anew_with_each_run() {
    let place = Place::mirrored().await;
    let Counts { done, planned, rows, committed, calls } = place.progress.counts();
    let of_cases =
        "SELECT (SELECT count(*) FROM activities) + (SELECT count(*) FROM revenue_journals)";
    let least = u64::try_from(place.count(of_cases)).unwrap();
    let listed = "SELECT (SELECT count(*) FROM cases) + (SELECT count(*) FROM projects) \
                  + (SELECT count(*) FROM contacts)";
    assert!(committed > least + u64::try_from(place.count(listed)).unwrap(), "{committed}");
    assert!(rows >= committed, "{committed} of {rows}");
    assert_eq!(i64::try_from(calls), Ok(place.count("SELECT sum(calls) FROM sync.calls")));
    assert!(planned > 0 && done == planned, "{done} of {planned}");
    let nothing = place.host().run("sync", Options::default()).await.unwrap();
    assert_eq!(nothing.report.exit_status(), 0);
    let Counts { done, planned, rows, committed, calls } = place.progress.counts();
    assert_eq!((done, planned, rows, committed), (0, 0, 0, 0));
    assert!(calls < 10, "{calls}: it only asked whether anything moved");
}

#[tokio::test(flavor = "multi_thread")]
async fn journals_that_have_to_give_way_go_on_where_they_were() {
    let place = Place::mirrored().await;
    let interrupted = place.interrupt_in_call(9, Interrupt::Preempt);
    let host = place.host();
    let (ran, ()) = tokio::join!(host.run("journals", all_journals()), interrupted);
    let report = ran.unwrap().report;
    assert!(!report.interrupted);
    assert_eq!(report.exit_status(), 0, "{:?}", report.problems);
    assert_each_was_asked_once(&place.journal_calls());
    assert_eq!(place.count("SELECT count(*) FROM sync.runs WHERE command = 'journals'"), 2);
    assert_eq!(place.count("SELECT count(*) FROM sync.journal_months WHERE due IS NOT NULL"), 0);
}

/// What failed before it gave way is told at its end, though it waits for its next attempt then.
#[tokio::test(flavor = "multi_thread")]
async fn what_failed_before_they_gave_way_is_no_less_incomplete() {
    let place = Place::mirrored().await;
    let fault = Fault::Refuse { status: 400, headers: [].into(), body: String::new() };
    let path = "/api/Offices/11/DepotJournals".to_owned();
    place.sandbox.fault(Rule { method: None, path, query: None, nth: 1, count: None, fault });
    let interrupted = place.interrupt_in_call(9, Interrupt::Preempt);
    let host = place.host();
    let (ran, ()) = tokio::join!(host.run("journals", all_journals()), interrupted);
    let report = ran.unwrap().report;
    assert_eq!(report.exit_status(), 3);
    let failed = format!("depot_journals: {MONTHS} scopes failed");
    assert!(report.problems.iter().any(|p| p.contains(&failed)), "{:?}", report.problems);
}

#[tokio::test(flavor = "multi_thread")]
async fn journals_that_a_stop_ends_are_due_still_and_read_by_the_next_run() {
    let place = Place::mirrored().await;
    let interrupted = place.interrupt_in_call(9, Interrupt::Cancel);
    let host = place.host();
    let (ran, ()) = tokio::join!(host.run("journals", all_journals()), interrupted);
    assert_eq!(ran.unwrap_err().kind(), Kind::Cancelled);
    assert!(place.count("SELECT count(*) FROM sync.journal_months WHERE due = 'asked for'") > 0);
    let own = Host::own(Arc::clone(&place.session), &Controls::alone());
    let next = own.run("sync", Options::default()).await;
    assert_eq!(next.unwrap().report.exit_status(), 0);
    assert_each_was_asked_once(&place.journal_calls());
    assert_eq!(place.count("SELECT count(*) FROM sync.journal_months WHERE due IS NOT NULL"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_time_is_left_the_log_stays_for_the_next_start() {
    for (tidied_by, stays) in [(None, false), (Some(tokio::time::Instant::now()), true)] {
        let Place { sandbox, session, controls, progress, folder: _folder } =
            Place::mirrored().await;
        let log = crate::durable::with_suffix(session.store().path(), ".wal");
        let write = |conn: &duckdb::Connection| {
            conn.execute_batch("INSERT INTO sync.meta VALUES ('a test', 'x')")
                .map_err(|e| crate::sql::db("x", e))
        };
        session.polls().writer.run(write).await.unwrap();
        assert!(log.exists());
        session.close(tidied_by).await.unwrap();
        assert_eq!(Arc::strong_count(&session), 1, "its last connection closes here");
        drop((sandbox, session, controls, progress));
        assert_eq!(log.exists(), stays, "{tidied_by:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_has_died_ends_the_daemon() {
    let place = Place::mirrored().await;
    let writer = &place.session.polls().writer;
    let broken = writer.run(|_| -> Result<()> { panic!("a defect of the writer") }).await;
    assert_eq!(broken.unwrap_err().kind(), Kind::Dead);
    let (_jobs, inbox) = mpsc::channel(1);
    let manager = Arc::new(Manager::new(None));
    let tasks = run_tasks(
        Arc::clone(&place.session),
        Arc::clone(&place.controls),
        inbox,
        (Arc::default(), None),
        None,
        manager,
        || false,
    );
    assert_eq!(tasks.await.unwrap_err().kind(), Kind::Dead);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_cycle_gives_way_to_lists_that_are_named_and_to_what_failed_in_it() {
    let place = Place::mirrored().await;
    let (_jobs, inbox) = mpsc::channel(1);
    let worker = Worker {
        session: Arc::clone(&place.session),
        controls: Arc::clone(&place.controls),
        inbox,
        polled: watch::channel(true).1,
        activity: Arc::default(),
        manager: Arc::new(Manager::new(None)),
        pulse: Arc::default(),
    };
    let now = Timestamp::now();
    let began = now - Duration::from_secs(600);
    let hurries = |began| worker.hurries(began, now, now).unwrap();
    let says = |sql: &str| {
        place.session.store().connection().unwrap().execute_batch(sql).unwrap();
        [hurries(Some(began)), hurries(Some(now)), hurries(None)]
    };
    assert_eq!(says(""), [false; 3], "nothing waits");
    let hint = "INSERT INTO sync.hints (table_name, id, hinted_at, sequence) VALUES ('employees', 0, now(), 7)";
    assert_eq!(says(hint), [true, false, false]);
    let next_at = |at: Timestamp| format!("make_timestamp({})", at.as_microsecond());
    let failed = format!(
        "INSERT INTO sync.failures (table_name, id, part, attempts, first_at, next_at, kind, error) \
         VALUES ('employees', 0, '', 1, now(), {}, 'Server', '')",
        next_at(now + Duration::from_secs(1))
    );
    assert_eq!(says(&failed), [false; 3], "it waits for its time");
    let is_due = format!("UPDATE sync.failures SET next_at = {}", next_at(now));
    assert_eq!(says(&is_due), [true, false, false]);
    assert_eq!(
        says("UPDATE sync.failures SET kind = 'Lag'"),
        [false; 3],
        "its own cycle does that"
    );
}
