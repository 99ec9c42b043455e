//! What needs somebody, as the store and the process say.

use std::collections::{BTreeMap, BTreeSet};

use duckdb::Connection;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::disk::Disk;
use crate::error::{Kind, Result};
use crate::mirror::{PublishLag, State, UnbelievedScopes, asked_tables, of_tables};
use crate::pulse::{Feeds, Pulse};
use crate::scope::FailureKind;
use crate::session::Session;
use crate::sql::{self, query};
use crate::status::{lake_standing, parquet_lag, published_lag, subscriptions_lag};
use crate::text::{counted, hex};

/// What is told of one condition at most; what comes beyond it is counted, and not told as new.
const MOST_SUBJECTS: usize = 1_000;

/// What is out of reach for less is tried again meanwhile.
pub(super) const LONG_BEHIND: SignedDuration = SignedDuration::from_hours(1);

/// A thing that begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Condition {
    /// A verification has found a difference that stands.
    Difference,
    /// A journal's month does not add up to the platform's own sum, or has none.
    Sum,
    /// An answer is not believed, or the guard holds removals back.
    Doubt,
    /// The change feeds are not read.
    Feed,
    /// The disk of the store fills.
    Disk,
    /// Tables have failed, as a whole or in part, for an hour.
    Failing,
    /// Nothing could be published for an hour.
    Published,
    /// The place of the Parquet snapshots has lacked the newest for an hour.
    Parquet,
    /// Nothing could be carried to the lake for an hour.
    Lake,
    /// The webhook subscriptions could not be made for an hour.
    Subscriptions,
    /// The daemon could not go on, and has not followed the source since.
    Stopped,
}

/// What is said of a condition that holds, and of what it is made up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) text: String,
    /// By what each control, month or scope is known again; nothing that could be a person's.
    pub(super) subjects: BTreeSet<String>,
}

/// What is so now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) holding: BTreeMap<Condition, Holding>,
    /// When something of each table failed last that fails now; `None`: it is not known. What has done so for long is found
    /// by what was seen before ([`super::Known::seeing`]).
    pub(super) failing: Option<BTreeMap<String, Timestamp>>,
    /// Of these it cannot be said: what held still does, and what did not does not.
    pub(super) unknown: BTreeSet<Condition>,
    /// When each change of a closed month was found, in microseconds since 1970.
    pub(super) restatements: Vec<i64>,
}

impl Look {
    /// What is so; `ends` where the daemon cannot go on.
    ///
    /// # Errors
    /// Those of reading the store.
    pub(super) fn at(
        conn: &Connection,
        session: &Session,
        pulse: &Pulse,
        ends: Option<Kind>,
    ) -> Result<Look> {
        let state = State::new(conn);
        let mut look = Look { restatements: restatements(conn)?, ..Look::default() };
        let standing = state.verified().standing_differences()?;
        look.holds(Condition::Difference, standing.iter().map(|found| &found.what), |n| {
            let what = counted(n, "control");
            format!("the mirror differs from the source in {what}, see sync.verifications")
        });
        // Every few seconds all journals cannot be added up: what each cycle finds is kept.
        let months = state.controls().last_control_months()?;
        look.holds(Condition::Sum, months.iter(), |n| {
            let have = if n == 1 { "does not match its" } else { "do not match their" };
            let what = format!("{} of the journals {have} sum", counted(n, "month"));
            format!("{what} at the platform, or there is none, see report.journal_reconciliation")
        });
        let tables = state.statuses().all()?;
        let asked = asked_tables(session.catalog(), &tables);
        look.failing = Some(failing(conn, &asked)?);
        let unbelieved = UnbelievedScopes::of(conn, &asked)?;
        let doubted = unbelieved.all();
        let tables: BTreeSet<&str> =
            doubted.iter().filter_map(|scope| scope.split(' ').next()).collect();
        look.holds(Condition::Doubt, doubted.iter(), |n| {
            let (what, are) = (counted(n, "answer"), if n == 1 { "is" } else { "are" });
            let tables = tables.iter().copied().collect::<Vec<_>>().join(", ");
            format!(
                "{what} of the platform would remove too much and {are} not believed yet ({tables}), \
                 see sync.failures"
            )
        });
        let feeds = pulse.feeds(&session.config().feed);
        if feeds != Feeds::Polled {
            // Started is not yet going on.
            look.unknown.insert(Condition::Stopped);
        }
        look.says_it_ends(ends);
        match feeds {
            Feeds::Polled => {}
            Feeds::Starting(_) => drop(look.unknown.insert(Condition::Feed)),
            Feeds::Stalled(lag) => {
                look.holds(Condition::Feed, [&lag.what], |_| {
                    format!("changes do not arrive: {}", lag.what)
                });
            }
        }
        match Disk::of(session.store().path()) {
            Some(disk) if disk.is_short() => {
                look.holds(Condition::Disk, [""], |_| "the disk of the store fills".to_owned());
            }
            Some(disk) if disk.is_ample() => {}
            _ => drop(look.unknown.insert(Condition::Disk)),
        }
        // As long as it was tried: a daemon that was away for a night has not tried yet.
        let is_long = |lag: &PublishLag| lag.failed_at.duration_since(lag.since) >= LONG_BEHIND;
        let lag = published_lag(conn, session.config())?.filter(is_long);
        look.holds(Condition::Published, lag.iter().map(|lag| &lag.address), |_| {
            "nothing could be published for an hour: readers have what was there before".to_owned()
        });
        let lag = parquet_lag(conn, session.config())?.filter(is_long);
        let lag = lag.as_ref();
        look.holds(Condition::Parquet, lag.map(|lag| &lag.address), |_| {
            let root = lag.map_or("", |lag| lag.address.as_str());
            format!("{root} has lacked the newest Parquet snapshot for an hour")
        });
        let lake = lake_standing(session.config(), conn)?;
        let failed = lake.filter(|lake| lake.failed_for().is_some_and(|time| time >= LONG_BEHIND));
        look.holds(Condition::Lake, failed.iter().map(|_| ""), |_| {
            "nothing could be carried to the lake for an hour: its readers have what was there before"
                .to_owned()
        });
        let lag = subscriptions_lag(conn, session.config())?.filter(is_long);
        look.holds(Condition::Subscriptions, lag.iter().map(|lag| &lag.address), |_| {
            "the webhook subscriptions could not be made what serve.public_url wants for an hour, see \
             `casemirror status`"
                .to_owned()
        });
        Ok(look)
    }

    /// That the daemon cannot go on, where `ends` says so.
    pub(super) fn says_it_ends(&mut self, ends: Option<Kind>) {
        self.holds(Condition::Stopped, ends.iter().map(|_| ""), |_| {
            let why = ends.map_or("", why_it_ends);
            format!("the daemon cannot go on and has stopped: {why} (its log has more)")
        });
    }

    /// A condition holds where there are subjects.
    pub(super) fn holds<S: AsRef<str>>(
        &mut self,
        condition: Condition,
        subjects: impl IntoIterator<Item = S>,
        text: impl FnOnce(usize) -> String,
    ) {
        let mut count = 0;
        let all = subjects.into_iter().inspect(|_| count += 1);
        let subjects: BTreeSet<String> = match condition {
            // What holds is one thing, however it is said.
            Condition::Feed
            | Condition::Disk
            | Condition::Published
            | Condition::Parquet
            | Condition::Lake
            | Condition::Subscriptions
            | Condition::Stopped => all.map(|_| String::new()).collect(),
            Condition::Difference | Condition::Sum | Condition::Doubt | Condition::Failing => all
                .map(|subject| hex(&Sha256::digest(subject.as_ref())[..8]))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .take(MOST_SUBJECTS)
                .collect(),
        };
        if count > 0 {
            self.holding.insert(condition, Holding { text: text(count), subjects });
        }
    }
}

/// Why a daemon cannot go on, without any text of the platform's.
fn why_it_ends(kind: Kind) -> &'static str {
    match kind {
        Kind::Credentials => "the platform refuses source.client_id and source.client_secret",
        Kind::Tenant => "the store was filled from another customer's data",
        Kind::Config => "its configuration is wrong",
        Kind::StoreGone => "its store was removed, or another was put in its place",
        Kind::StoreDown | Kind::StoreNewer | Kind::StoreOlder => "its store is not open",
        _ => "something went wrong that it cannot mend",
    }
}

/// When something of each table that is asked for failed last, of what fails now: what is waited for, or not believed, has
/// not failed. The feeds have a condition of their own.
fn failing(conn: &Connection, asked: &[&str]) -> Result<BTreeMap<String, Timestamp>> {
    let others = FailureKind::names(&[
        FailureKind::Lag,
        FailureKind::Suspect,
        FailureKind::NotShown,
        FailureKind::NotAsked,
        FailureKind::Doubted,
        FailureKind::Held,
    ]);
    let failed = query(
        conn,
        &format!(
            "SELECT table_name, epoch_us(max(last_at)) FROM sync.failures \
             WHERE coalesce(kind, '') NOT IN ({others}) AND last_at IS NOT NULL AND {} GROUP BY table_name",
            of_tables(asked)
        ),
        |row| Ok((row.get::<_, String>(0)?, row.get(1)?)),
    )?;
    let failed = failed.into_iter();
    Ok(failed.filter_map(|(table, at)| Some((table, sql::from_micros(Some(at))?))).collect())
}

/// When each of the changes of closed months was found, the newest 10,000.
fn restatements(conn: &Connection) -> Result<Vec<i64>> {
    query(
        conn,
        "SELECT epoch_us(changed_at) FROM sync.restatements WHERE changed_at IS NOT NULL \
         ORDER BY changed_at DESC LIMIT 10000",
        |row| row.get(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_made_up_of_what_cannot_be_read_from_it() {
        let mut look = Look::default();
        look.holds(Condition::Sum, [""; 0], |_| unreachable!("there is nothing"));
        assert_eq!(look, Look::default());
        let names = ["costs of Ola Nordmann", "cases"];
        look.holds(Condition::Difference, names, |n| format!("{n} controls"));
        let held = &look.holding[&Condition::Difference];
        assert_eq!((held.text.as_str(), held.subjects.len()), ("2 controls", 2));
        assert!(held.subjects.iter().all(|subject| subject.len() == 16), "{held:?}");
        // The text of a feed counts seconds, and is one thing all the same.
        for seconds in ["181 s ago", "191 s ago"] {
            look.holds(Condition::Feed, [seconds], |_| seconds.to_owned());
            assert_eq!(look.holding[&Condition::Feed].subjects, BTreeSet::from([String::new()]));
        }
    }
}
