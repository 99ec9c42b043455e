//! What needs somebody, as the store and the process say.

use std::collections::BTreeMap;

use duckdb::Connection;
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::error::Result;
use crate::mirror::{ResourceRow, RunLog, State};
use crate::pulse::Pulse;
use crate::scope::{FailureKind, REVENUE};
use crate::session::Session;
use crate::sql::{query, scalar_i64};
use crate::text::counted;

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
}

/// What is so now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// Each with its message.
    pub(super) holding: BTreeMap<Condition, String>,
    /// When each change of a closed month was found, in microseconds since 1970.
    pub(super) restatements: Vec<i64>,
}

impl Look {
    /// # Errors
    /// Those of reading the store.
    pub(super) fn at(conn: &Connection, session: &Session, pulse: &Pulse) -> Result<Look> {
        let state = State::new(conn);
        let mut holding = BTreeMap::new();
        let standing = state.verified().standing_differences()?.len();
        if standing > 0 {
            let what =
                format!("the mirror differs from the source in {}", counted(standing, "control"));
            holding.insert(Condition::Difference, format!("{what}, see sync.verifications"));
        }
        // Every few seconds all journals cannot be added up: what each cycle finds is kept.
        let is_asked =
            RunLog::new(conn).resources()?.get(REVENUE).is_some_and(ResourceRow::is_asked);
        if is_asked && !state.controls().last_control_problems()?.is_empty() {
            let what = "journals do not match the platform's own sums, or there is none";
            holding.insert(Condition::Sum, format!("{what}, see report.journal_reconciliation"));
        }
        let doubted = doubted(conn)?;
        if doubted > 0 {
            let what = counted(usize::try_from(doubted).unwrap_or(usize::MAX), "answer");
            let text =
                format!("{what} of the platform would remove too much and are not believed yet");
            holding.insert(Condition::Doubt, format!("{text}, see sync.failures"));
        }
        if pulse.is_stalled(&session.config().feed) {
            let why = pulse.lag(&session.config().feed).unwrap_or_default();
            holding.insert(Condition::Feed, format!("changes do not arrive: {why}"));
        }
        if Disk::of(session.store().path()).is_some_and(|disk| disk.is_short()) {
            holding.insert(Condition::Disk, "the disk of the store fills".to_owned());
        }
        Ok(Look { holding, restatements: restatements(conn)? })
    }
}

fn doubted(conn: &Connection) -> Result<i64> {
    let kinds = FailureKind::names(&[FailureKind::Doubted, FailureKind::Held]);
    scalar_i64(
        conn,
        &format!(
            "SELECT (SELECT count(*) FROM sync.failures WHERE kind IN ({kinds})) \
               + (SELECT count(*) FROM sync.journal_months WHERE doubted_at IS NOT NULL AND wanted)"
        ),
    )
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
