//! What failed and waits for its next attempt (`sync.failures`).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::execute;
use crate::config::JournalLevel;
use crate::error::{Kind, Result};
use crate::mirror::guard::NOTHING;
use crate::mirror::unreadable::places;
use crate::scope::{FailureKind, FeedName, Place, ScopeId, backoff};
use crate::sql::{self, db, instant, instant_param, query, scalar_i64};

/// The part of the failures of the table `cases` that stands for the listing of all of them.
pub(in crate::mirror) const LISTING: &str = "listing";

/// Scopes that failed.
pub(crate) struct Failures<'c> {
    pub(in crate::mirror) conn: &'c Connection,
}

impl Failures<'_> {
    /// Until when failed scopes wait: by table and id, in microseconds of our clock.
    pub(crate) fn failures(&self) -> Result<HashMap<(String, i64), i64>> {
        let rows = sql::query(
            self.conn,
            "SELECT table_name, id, epoch_us(next_at) FROM sync.failures WHERE part = ''",
            |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)),
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Whether an answer said at `before` or earlier, and none otherwise since, that the rows of a scope,
    /// or of one of the values that its calls go through, are gone.
    pub(crate) fn is_gone_since(
        &self,
        table: &str,
        id: i64,
        value: Option<&str>,
        before: Timestamp,
    ) -> Result<bool> {
        let of_value = value.map_or(String::new(), |value| {
            format!("OR contains(digest, {})", sql::text(&lacking(value)))
        });
        Ok(scalar_i64(
            self.conn,
            &format!(
                "SELECT count(*) FROM sync.failures WHERE table_name = {} AND id = {id} \
                   AND part = '' AND kind IN ({}) AND first_at <= {} \
                   AND (digest = '{NOTHING}' {of_value})",
                sql::text(table),
                FailureKind::names(&FailureKind::GONE),
                instant(before)
            ),
        )? > 0)
    }

    /// How many scopes of a table answered 403 since any of them answered otherwise.
    pub(crate) fn forbidden_scopes(&self, table: &str) -> Result<u64> {
        let ids = self.forbidden_since(table, "", &last_answer(table))?;
        Ok(ids.into_iter().collect::<HashSet<i64>>().len() as u64)
    }

    /// Whether a call of the search that fills a table answered 403 at `before` or earlier, and none otherwise since.
    pub(crate) fn search_is_refused_since(&self, table: &str, before: Timestamp) -> Result<bool> {
        let refused = format!(
            "SELECT count(*) FROM sync.failures WHERE table_name = {} AND kind = '{}' \
               AND first_at <= {} AND first_at > coalesce(({}), '-infinity'::TIMESTAMPTZ)",
            sql::text(table),
            FailureKind::of(Kind::Forbidden),
            instant(before),
            last_answer(table)
        );
        Ok(scalar_i64(self.conn, &refused)? > 0)
    }

    /// How many journals of a table answered 403 since any of its months answered otherwise. Where every
    /// `wanted` one did, each of their months counts: a brokerage may have one office only.
    pub(crate) fn forbidden_journals(
        &self,
        table: &str,
        level: JournalLevel,
        wanted: &[i64],
    ) -> Result<u64> {
        let answered = format!(
            "SELECT max(greatest(sent_at, read_at)) FROM sync.journal_months WHERE table_name = {}",
            sql::text(table)
        );
        let mut months: HashMap<i64, u64> = HashMap::new();
        for id in self.forbidden_since(table, &format!("{level}/"), &answered)? {
            *months.entry(id).or_default() += 1;
        }
        let all = wanted.iter().all(|id| months.contains_key(id));
        Ok(if all { months.values().sum() } else { months.len() as u64 })
    }

    /// The ids of a table's scopes, of parts that begin so, that answered 403 when they were last asked, since
    /// `answered`, a query of an instant.
    fn forbidden_since(&self, table: &str, part: &str, answered: &str) -> Result<Vec<i64>> {
        // Earlier versions kept the first time alone.
        sql::query(
            self.conn,
            &format!(
                "SELECT id FROM sync.failures WHERE table_name = {} AND kind = '{}' AND starts_with(part, {}) \
                   AND coalesce(last_at, first_at) > coalesce(({answered}), '-infinity'::TIMESTAMPTZ)",
                sql::text(table),
                FailureKind::of(Kind::Forbidden),
                sql::text(part)
            ),
            |row| row.get(0),
        )
    }

    /// Forgets that scopes of a table answered 403: the table as a whole is forbidden now.
    pub(crate) fn forget_forbidden(&self, table: &str) -> Result<()> {
        execute(
            self.conn,
            "DELETE FROM sync.failures WHERE table_name = ? AND kind = ?",
            params![table, FailureKind::of(Kind::Forbidden).name()],
        )
    }

    /// The listing of all cases, as failures know it.
    pub(crate) fn listing() -> ScopeId {
        Self::listing_of(Place::Cases.table())
    }

    /// The listing by one search, as failures know it.
    pub(crate) fn listing_of(table: &str) -> ScopeId {
        ScopeId { table: table.to_owned(), id: 0, part: LISTING.to_owned() }
    }

    /// A page of the listing by a search answered 403. Answers of that search since an earlier one speak against that.
    pub(crate) fn listing_refused(
        &self,
        run_id: i64,
        now: Timestamp,
        table: &str,
        why: &str,
    ) -> Result<()> {
        let listing = Self::listing_of(table);
        let kind = FailureKind::of(Kind::Forbidden);
        self.forget(&format!(
            "{} AND kind = '{kind}' AND first_at <= ({})",
            is_of(&listing),
            last_answer(table)
        ))?;
        self.fail(run_id, now, &listing, &Failure::new(kind, why)).map(drop)
    }

    /// The listing by a search was answered: it is not refused any more.
    pub(crate) fn listing_is_not_refused(&self, table: &str) -> Result<()> {
        let kind = FailureKind::of(Kind::Forbidden);
        self.forget(&format!("{} AND kind = '{kind}'", is_of(&Self::listing_of(table))))
    }

    fn forget(&self, condition: &str) -> Result<()> {
        execute(self.conn, &format!("DELETE FROM sync.failures WHERE {condition}"), params![])
    }

    /// The cases were listed, and the listing is believed.
    pub(crate) fn listing_is_well(&self) -> Result<()> {
        self.succeed(&Self::listing())
    }

    /// A change feed, as failures know it.
    pub(crate) fn feed_scope(feed: FeedName) -> ScopeId {
        let (table, _, _) = places(feed);
        ScopeId { table: table.to_owned(), id: 0, part: String::new() }
    }

    /// Whether a change feed could not be read when it was last asked.
    pub(crate) fn feed_is_unread(&self, feed: FeedName) -> Result<bool> {
        self.has_failed(&Self::feed_scope(feed))
    }

    /// Whether a scope failed when it was last read.
    pub(crate) fn has_failed(&self, scope: &ScopeId) -> Result<bool> {
        Ok(scalar_i64(
            self.conn,
            &format!("SELECT count(*) FROM sync.failures WHERE {}", is_of(scope)),
        )? > 0)
    }

    /// Whether a scope answered 403 at `before` or earlier, and none otherwise since.
    pub(crate) fn is_forbidden_since(&self, scope: &ScopeId, before: Timestamp) -> Result<bool> {
        let forbidden = format!(
            "SELECT count(*) FROM sync.failures WHERE {} AND kind = '{}' AND first_at <= {}",
            is_of(scope),
            FailureKind::of(Kind::Forbidden),
            instant(before)
        );
        Ok(scalar_i64(self.conn, &forbidden)? > 0)
    }

    /// A scope failed before, and does not any more.
    pub(crate) fn succeed(&self, scope: &ScopeId) -> Result<()> {
        execute(
            self.conn,
            "DELETE FROM sync.failures WHERE table_name = ? AND id = ? AND part = ?",
            params![scope.table, scope.id, scope.part],
        )
    }

    /// Notes that a scope could not be read; returns when it may be tried again.
    pub(crate) fn fail(
        &self,
        run_id: i64,
        now: Timestamp,
        scope: &ScopeId,
        failure: &Failure<'_>,
    ) -> Result<Timestamp> {
        fail(self.conn, run_id, now, scope, failure)
    }

    /// Notes that a scope answered 404, or its calls for these values did: an equal answer is believed
    /// `doubt` after the first.
    pub(crate) fn fail_gone(
        &self,
        run_id: i64,
        now: Timestamp,
        scope: &ScopeId,
        (values, why): (&[String], &str),
        doubt: Duration,
    ) -> Result<Timestamp> {
        let lacking = digest_of_404(values);
        // What else is held of the scope waits for an answer that is believed to be complete.
        let held = self
            .digest(scope)?
            .filter(|kept| kept.split_once(AND_HELD).is_some_and(|(values, _)| values == lacking));
        let failure = Failure {
            kind: FailureKind::NotFound,
            error: why,
            digest: Some(held.as_ref().unwrap_or(&lacking)),
            not_before: Some(doubt),
        };
        self.fail(run_id, now, scope, &failure)
    }

    /// What the last answer that lacked rows of a scope had instead.
    fn digest(&self, scope: &ScopeId) -> Result<Option<String>> {
        let digests = query(
            self.conn,
            &format!("SELECT digest FROM sync.failures WHERE {}", is_of(scope)),
            |row| row.get(0),
        )?;
        Ok(digests.into_iter().next().flatten())
    }
}

/// A query of when any scope of a table last answered.
fn last_answer(table: &str) -> String {
    format!("SELECT max(fetched_at) FROM sync.fetched WHERE table_name = {}", sql::text(table))
}

/// SQL that holds for the failure of this scope.
fn is_of(scope: &ScopeId) -> String {
    format!(
        "table_name = {} AND id = {} AND part = {}",
        sql::text(&scope.table),
        scope.id,
        sql::text(&scope.part)
    )
}

/// SQL that holds for the failures of these tables. The listing of all cases is that of both tables of cases.
pub(crate) fn of_tables(tables: &[impl AsRef<str>]) -> String {
    let names = || tables.iter().map(AsRef::as_ref);
    let is_listed = names().any(|table| table == Place::Projects.table());
    let listing = if is_listed {
        format!(" OR table_name = 'cases' AND part = {}", sql::text(LISTING))
    } else {
        String::new()
    };
    format!("(table_name IN ({}){listing})", sql::texts(names().chain([""])))
}

/// SQL that holds for what failed, and not for what merely waits for the search, which may lag for so long
/// (`source.search_delay`). Each wait is as long as all before it together: where the next attempt comes twice
/// as late as the search may lag, the last one was made after that, and in vain.
pub(in crate::mirror) fn is_failed(search_delay: Duration) -> String {
    let longest = search_delay.as_micros().saturating_mul(2);
    format!(
        "NOT (kind IN ({}) AND epoch_us(next_at) - epoch_us(first_at) <= {longest})",
        FailureKind::names(&FailureKind::OF_THE_SEARCH)
    )
}

/// What a 404 for one of the values that a scope's calls go through is noted as.
fn lacking(value: &str) -> String {
    format!("{value}={NOTHING};")
}

/// Between the values that answered 404 and what is held of a scope's other rows.
const AND_HELD: char = '|';

/// The digest of an answer of which the calls for these values were 404, and of which the guard or a doubt
/// holds rows: either is confirmed by itself.
pub(in crate::mirror) fn digest_of_held(values: &[String], held: &str) -> String {
    format!("{}{AND_HELD}{held}", digest_of_404(values))
}

/// The digest of answers of which those for these values were 404; of none: the scope's own was.
fn digest_of_404(values: &[String]) -> String {
    if values.is_empty() {
        return NOTHING.to_owned();
    }
    let mut values: Vec<String> = values.iter().map(|value| lacking(value)).collect();
    values.sort_unstable();
    values.concat()
}

/// Why a scope could not be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure<'a> {
    pub(crate) kind: FailureKind,
    pub(crate) error: &'a str,
    /// Of an answer that says that rows are gone: what it says is there. Only an equal one confirms it.
    pub(crate) digest: Option<&'a str>,
    /// It is not tried again before this has passed, however short the backoff.
    pub(crate) not_before: Option<Duration>,
}

impl<'a> Failure<'a> {
    /// One that is tried again after its backoff.
    pub(crate) fn new(kind: FailureKind, error: &'a str) -> Failure<'a> {
        Failure { kind, error, digest: None, not_before: None }
    }
}

/// Notes that a scope could not be read; returns when it may be tried again.
pub(in crate::mirror) fn fail(
    conn: &Connection,
    run_id: i64,
    now: Timestamp,
    scope: &ScopeId,
    failure: &Failure<'_>,
) -> Result<Timestamp> {
    let Failure { kind, error, digest, not_before } = *failure;
    // The time of a commit is ahead of a clock that was set back.
    let now = now.min(Timestamp::now());
    let of_scope = is_of(scope);
    let before = query(
        conn,
        &format!(
            "SELECT attempts, epoch_us(first_at), kind, digest FROM sync.failures WHERE {of_scope}"
        ),
        |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, i64>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, Option<String>>(3)?,
            ))
        },
    )?
    .pop();
    let attempts = before.as_ref().map_or(0, |(n, ..)| *n) + 1;
    let wait = backoff(attempts as u32).max(not_before.unwrap_or_default());
    let next = now + wait;
    let failed = |e| db("cannot note a failure", e);
    if kind == FailureKind::NotAsked && before.is_some() {
        // What its last call failed with stands.
        let again = format!(
            "UPDATE sync.failures SET run_id = ?, attempts = ?, next_at = ?::TIMESTAMPTZ WHERE {of_scope}"
        );
        conn.execute(&again, params![run_id, attempts, instant_param(next)]).map_err(failed)?;
        return Ok(next);
    }
    // Two answers confirm each other only when they are equal and nothing else came between them.
    let same = before.filter(|(_, _, was, said)| {
        let alike = was == kind.name()
            || kind.says_gone() && FailureKind::GONE.iter().any(|gone| was == gone.name());
        alike && said.as_deref() == digest
    });
    let first = same.and_then(|(_, us, ..)| Timestamp::from_microsecond(us).ok()).unwrap_or(now);
    conn.execute_batch(&format!("DELETE FROM sync.failures WHERE {of_scope}")).map_err(failed)?;
    conn.execute(
        "INSERT INTO sync.failures \
           (table_name, id, part, run_id, attempts, first_at, next_at, kind, error, digest, last_at) \
         VALUES (?, ?, ?, ?, ?, ?::TIMESTAMPTZ, ?::TIMESTAMPTZ, ?, ?, ?, ?::TIMESTAMPTZ)",
        params![
            scope.table,
            scope.id,
            scope.part,
            run_id,
            attempts,
            instant_param(first),
            instant_param(next),
            kind.name(),
            error,
            digest,
            instant_param(now)
        ],
    )
    .map_err(failed)?;
    Ok(next)
}

#[cfg(test)]
mod tests;
