//! What is mirrored, how fresh it is, what failed and what waits: `casemirror status`, which `text` and
//! `--json` show alike.

mod fault;
mod findings;
mod health;
mod lake;

use std::collections::BTreeMap;

use duckdb::Connection;
use jiff::Timestamp;
use serde::Serialize;

use crate::catalog::Catalog;
use crate::config::{Config, ParquetRoot};
use crate::error::{Error, Kind, Result};
use crate::lease::Standing as LeaseStanding;
use crate::mirror::{
    ConfigDifference, FailureRow, PublishLag, PublishPlace, Residue, RunLog, RunRow,
    STAY_IN_SNAPSHOTS, State, Store, stay_in_snapshots,
};
use crate::pending::{self, Pending};
use crate::pulse::Feeds;
use crate::text::counted;
use crate::ticks::Ticks;

pub(crate) use fault::Fault;
use findings::Findings;
use health::halts;
pub(crate) use health::{Health, store_fails};
pub(crate) use lake::{Lake, standing as lake_standing};

/// Runs and failures that are shown.
const LATEST_RUNS: usize = 5;
const MOST_FAILURES: usize = 100;

/// The whole of it. Instants are texts in UTC, to the second: people read them.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Status {
    pub(crate) store: String,
    pub(crate) database: String,
    pub(crate) tenant: Option<String>,
    /// Every change up to here is proven to be in, but for what is pending: `feed_overlap` behind the last poll
    /// at least, as rows may appear late in the feed.
    pub(crate) watermark: Option<String>,
    /// When the feed of the cases was last read completely: what it told by then is in, but for what is pending.
    pub(crate) polled_at: Option<String>,
    /// `feed.overlap`, as it is written in the configuration.
    pub(crate) feed_overlap: String,
    /// When the cases were last listed completely.
    pub(crate) listed_at: Option<String>,
    pub(crate) late_rows: LateRows,
    pub(crate) complete: bool,
    pub(crate) tables: Vec<Table>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) runs: Vec<Run>,
    pub(crate) verified: Option<Verified>,
    /// What is not as it should be: each makes the exit status 3.
    pub(crate) problems: Vec<String>,
    /// What waits for its turn, which is no failure.
    pub(crate) waiting: Vec<String>,
    /// Until when the platform wants no call at all,
    pub(crate) calls_held_until: Option<String>,
    /// and no call to the change feeds.
    pub(crate) feeds_held_until: Option<String>,
    /// Since when nothing can be published,
    pub(crate) published_behind_since: Option<String>,
    /// and since when the place of the Parquet snapshots has no new one though there should be one.
    pub(crate) parquet_behind_since: Option<String>,
    /// Of `lake.catalog`, where there is one.
    pub(crate) lake: Option<Lake>,
    /// Whose turn it is to ask the change feeds, where several hosts may be configured for one API user.
    pub(crate) lease: Option<LeaseStanding>,
    /// In what the configuration is another than the one that the store was last written with.
    pub(crate) differences: Vec<ConfigDifference>,
}

/// How late rows appeared in the feeds, as the last listing found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct LateRows {
    pub(crate) cases: Option<String>,
    pub(crate) contacts: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Table {
    pub(crate) table: String,
    pub(crate) status: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) since: Option<String>,
    pub(crate) rows: i64,
    pub(crate) last_change: Option<String>,
    pub(crate) last_checked: Option<String>,
    /// Scopes.
    pub(crate) pending: usize,
    /// Why, in a line.
    pub(crate) pending_reason: Option<String>,
    /// How many scopes for each reason.
    pub(crate) pending_reasons: BTreeMap<String, usize>,
    /// Values that do not fit; of a table that is not asked for, too.
    pub(crate) rejected: i64,
    /// It is read, with the table that its rows come with: what is noted of it is a problem.
    #[serde(skip)]
    pub(crate) is_asked: bool,
}

impl Table {
    /// Values that do not fit and that somebody has to look at.
    pub(crate) fn open_rejects(&self) -> i64 {
        if self.is_asked { self.rejected } else { 0 }
    }
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Failure {
    pub(crate) table: String,
    pub(crate) scope: i64,
    pub(crate) attempts: i64,
    pub(crate) next_try: Option<String>,
    pub(crate) kind: String,
    pub(crate) error: String,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Run {
    pub(crate) run_id: i64,
    pub(crate) command: String,
    pub(crate) started_at: Option<String>,
    pub(crate) ended_at: Option<String>,
    /// `None` where it has not ended.
    pub(crate) outcome: Option<String>,
    /// It has not ended yet; without an outcome otherwise, its process was killed.
    pub(crate) under_way: bool,
    pub(crate) exit_status: Option<i64>,
    pub(crate) calls: Option<i64>,
    pub(crate) error: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Verified {
    pub(crate) at: String,
    pub(crate) comparisons: i64,
    pub(crate) differences: i64,
    pub(crate) unsettled: i64,
    /// What could not be compared: controls that could not be read, and what was left out.
    pub(crate) not_compared: i64,
    /// Of that: where the mirror itself knows to be otherwise, and says so elsewhere.
    pub(crate) left_out: i64,
    /// What differed, and that no later verification has found gone.
    pub(crate) standing: Vec<Standing>,
}

/// A difference, which makes the exit status 4. Its values may be a person's: they are in
/// `sync.verifications`.
#[derive(Debug, Serialize)]
pub(crate) struct Standing {
    pub(crate) what: String,
    pub(crate) since: String,
}

impl Status {
    /// Of an open store. `differences`: [`Status::differences`].
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn collect(
        config: &Config,
        catalog: &Catalog,
        store: &Store,
        differences: Vec<ConfigDifference>,
    ) -> Result<Status> {
        let conn = store.connection()?;
        let (state, log) = (State::new(&conn), RunLog::new(&conn));
        let pending = pending::collect(&conn, config, catalog)?;
        let findings = Findings::of(&conn, config, catalog)?;
        let watermark = state.feed("cases")?.bound.and_then(|b| Ticks::new(b).to_timestamp());
        let (mut tables, mut problems) = (Vec::new(), Vec::new());
        for (name, fresh) in state.freshness(catalog)? {
            let Some(row) = findings.resources.get(&name) else { continue };
            let stale = pending.get(&name);
            problems.extend(findings.problems(&name, row, catalog));
            tables.push(findings.table(name, row, fresh, stale, catalog));
        }
        problems.extend(findings.beside_the_catalog());
        problems.extend(state.standings().listing_problem()?);
        problems.extend(state.controls().control_problems()?);
        problems.extend(erased_values(&conn, config)?);
        let lag = published_lag(&conn, config)?;
        problems.extend(lag.as_ref().map(|lag| behind_text("publish.database", lag)));
        let snapshots_lag = parquet_lag(&conn, config)?;
        problems.extend(snapshots_lag.as_ref().map(|lag| behind_text("publish.parquet", lag)));
        let verified = verified(&state)?;
        if let Some(last) = verified.as_ref().filter(|last| last.unread() > 0) {
            let n = last.unread();
            problems.push(format!(
                "the last verification could not read {n} control(s), see sync.verifications"
            ));
        }
        let lake = Lake::of(config, &conn)?;
        problems.extend(lake.as_ref().and_then(Lake::problem));
        let lease = match config.lease_place() {
            Some(_) => LeaseStanding::parse(state.meta(LeaseStanding::KEY)?.as_deref()),
            None => None,
        };
        problems.extend(lease.as_ref().and_then(LeaseStanding::problem));
        problems.extend(subscriptions_lag(&conn, config)?.map(|lag| {
            let why = lag.error;
            format!(
                "the webhook subscriptions could not be made what serve.public_url wants: {why}"
            )
        }));
        let runs = log.runs(LATEST_RUNS)?;
        problems.extend(last_failure(&runs));
        let held =
            log.feeds_held_until(config.limits.retry_after.max(config.feed.per), Timestamp::now())?;
        let held_text = held.map(|until| {
            format!(
                "the change feeds, until {}: the platform asks for it with Retry-After, or has left too many \
                 calls without an answer (`casemirror sync --now` asks them all the same)",
                shown(until)
            )
        });
        let all_held = state.calls_held_until(config.limits.retry_after, Timestamp::now())?;
        let all_held_text = all_held.map(|until| {
            format!(
                "all calls, until {}: the platform asks for it with Retry-After (`casemirror sync --now` calls all \
                 the same)",
                shown(until)
            )
        });
        let settling = lease.as_ref().and_then(LeaseStanding::waits);
        let holds = all_held_text.into_iter().chain(held_text);
        let waiting = holds.chain(settling).chain(waits(&pending)).collect();
        Ok(Status {
            store: store.path().display().to_string(),
            database: config.publish.database.display().to_string(),
            tenant: state.meta("tenant")?,
            watermark: watermark.map(shown),
            polled_at: state.polled_at("cases")?.map(shown),
            feed_overlap: humantime::format_duration(config.feed.overlap).to_string(),
            listed_at: state.meta("listed_at")?.and_then(|at| at.parse().ok()).map(shown),
            late_rows: LateRows {
                cases: state.meta("late_rows_cases")?,
                contacts: state.meta("late_rows_contacts")?,
            },
            complete: pending::is_complete_by(&conn, &pending, catalog)?,
            tables,
            failures: log.failures(MOST_FAILURES)?.into_iter().map(Failure::from).collect(),
            runs: runs.into_iter().map(Run::from).collect(),
            verified,
            problems,
            waiting,
            calls_held_until: all_held.map(shown),
            feeds_held_until: held.map(shown),
            published_behind_since: lag.map(|lag| shown(lag.since)),
            parquet_behind_since: snapshots_lag.map(|lag| shown(lag.since)),
            lake,
            lease,
            differences,
        })
    }

    /// The same, told by the process that holds the store and began `last_run`: without an end that one is under
    /// way. All others without one were killed. `fault`: what the store's last transaction failed with. `feeds`: how the
    /// polls stand, where it is a daemon.
    pub(crate) fn of_holder(
        mut self,
        last_run: i64,
        fault: Option<&str>,
        feeds: Option<&Feeds>,
    ) -> Status {
        self.problems.splice(0..0, halts(fault, feeds));
        for run in &mut self.runs {
            run.under_way = run.outcome.is_none() && run.run_id == last_run;
        }
        self
    }

    /// Scopes that wait to be fetched, of all tables.
    pub(crate) fn pending(&self) -> usize {
        self.tables.iter().map(|table| table.pending).sum()
    }

    /// As JSON, for programs.
    ///
    /// # Errors
    /// `Internal`.
    pub(crate) fn to_json(&self) -> Result<String> {
        // By way of a value: its keys are sorted, whatever the order of the fields.
        serde_json::to_value(self)
            .map(|value| format!("{value:#}\n"))
            .map_err(|e| Error::caused(Kind::Internal, "the status cannot be shown as JSON", e))
    }

    /// 4 while a difference stands, else 3 when something is not as it should be, else 0
    /// (docs/architecture.md, "Commands").
    pub(crate) fn exit_status(&self) -> u8 {
        match &self.verified {
            Some(verified) if !verified.standing.is_empty() => 4,
            _ if self.problems.is_empty() => 0,
            _ => 3,
        }
    }
}

/// Since when nothing can be published, if so.
pub(crate) fn published_lag(conn: &Connection, config: &Config) -> Result<Option<PublishLag>> {
    let address = config.publish.database.display().to_string();
    PublishLag::of(conn, PublishPlace::Database, &address)
}

/// Since when the place of `publish.parquet` is behind, if it is.
pub(crate) fn parquet_lag(conn: &Connection, config: &Config) -> Result<Option<PublishLag>> {
    let address = config.publish.parquet.as_ref().map(ParquetRoot::address);
    address.map_or(Ok(None), |address| PublishLag::of(conn, PublishPlace::Parquet, &address))
}

/// Since when the webhook subscriptions are not what `serve.public_url` wants, if so.
pub(crate) fn subscriptions_lag(conn: &Connection, config: &Config) -> Result<Option<PublishLag>> {
    let address = config.serve.public_url.as_ref().map(ToString::to_string);
    address.map_or(Ok(None), |address| PublishLag::of(conn, PublishPlace::Subscriptions, &address))
}

fn behind_text(key: &str, lag: &PublishLag) -> String {
    let PublishLag { address, since, error, .. } = lag;
    format!("{key}: {address} is behind since {}: {error}", shown(*since))
}

/// Where values that were erased from the rows still stand, and what takes them out.
fn erased_values(conn: &Connection, config: &Config) -> Result<Vec<String>> {
    let with_parquet = config.publish.parquet.is_some();
    let mut places = Vec::new();
    let mut all = Vec::new();
    if Residue::Store.is_in(conn)? {
        all.push(
            "values that were erased are still in free blocks of the store's file: the next start of `casemirror \
             sync` or `run` takes them out, given room on the disk"
                .to_owned(),
        );
    }
    for (residue, place) in
        [(Residue::Published, "the published file"), (Residue::Snapshots, "the Parquet snapshots")]
    {
        if residue.is_in(conn)? && (residue != Residue::Snapshots || with_parquet) {
            places.push(place);
        }
    }
    if !places.is_empty() {
        all.push(format!(
            "values that were erased are still in {}: the next publishing takes them out",
            places.join(", ")
        ));
    }
    if stay_in_snapshots(conn, config)? {
        all.push(STAY_IN_SNAPSHOTS.to_owned());
    }
    Ok(all)
}

impl Verified {
    /// Controls that could not be read.
    pub(crate) fn unread(&self) -> i64 {
        self.not_compared - self.left_out
    }
}

fn verified(state: &State<'_>) -> Result<Option<Verified>> {
    let Some(last) = state.verified().last_verification()? else { return Ok(None) };
    let standing = state.verified().standing_differences()?;
    Ok(Some(Verified {
        at: shown(last.at),
        comparisons: last.comparisons,
        differences: last.differences,
        unsettled: last.unsettled,
        not_compared: last.not_compared,
        left_out: last.left_out,
        standing: standing
            .into_iter()
            .map(|found| Standing { what: found.what, since: shown(found.at) })
            .collect(),
    }))
}

/// What waits, in one line per reason.
fn waits(pending: &Pending) -> Vec<String> {
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (table, waiting) in pending {
        for (reason, scopes) in waiting.told() {
            let tables = by_reason.entry(reason).or_default();
            tables.push(format!("{table} ({})", counted(scopes, "scope")));
        }
    }
    by_reason.iter().map(|(reason, tables)| format!("{}: {reason}", tables.join(", "))).collect()
}

/// What the last run that ended failed with: what it should have done, publishing too, may be undone.
/// One that was refused for its usage or configuration (2) has begun nothing.
fn last_failure(runs: &[RunRow]) -> Option<String> {
    let last = runs.iter().find(|run| run.outcome.is_some() && run.exit_status != Some(2))?;
    let failed = last.outcome.as_deref() == Some("failed");
    let error = last.error.as_deref().unwrap_or("no error was noted");
    failed.then(|| fault::failed_run_text(&last.command, error))
}

impl From<RunRow> for Run {
    fn from(run: RunRow) -> Run {
        Run {
            run_id: run.run_id,
            command: run.command,
            started_at: run.started_at.map(shown),
            ended_at: run.ended_at.map(shown),
            outcome: run.outcome,
            under_way: false,
            exit_status: run.exit_status,
            calls: run.calls,
            error: run.error,
        }
    }
}

impl From<FailureRow> for Failure {
    fn from(failure: FailureRow) -> Failure {
        Failure {
            table: failure.table,
            scope: failure.id,
            attempts: failure.attempts,
            next_try: failure.next_at.map(shown),
            kind: failure.kind,
            error: failure.error,
        }
    }
}

fn shown(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending::PendingTable;

    #[test]
    fn each_table_is_named_with_as_many_scopes_as_wait_for_that_reason() {
        let mut costs = PendingTable::default();
        costs.add(42, "changed", false);
        costs.add(1, "never fetched", true);
        let mut notes = PendingTable::default();
        notes.add(6, "never fetched", true);
        let pending: Pending = [("costs".to_owned(), costs), ("notes".to_owned(), notes)].into();
        let lines =
            ["costs (42 scopes): changed", "costs (1 scope), notes (6 scopes): never fetched"];
        assert_eq!(waits(&pending), lines);
    }
}
