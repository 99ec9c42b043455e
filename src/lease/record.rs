//! What the register says of a lease, as JSON.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};

/// How this version writes it. A later one is not read.
const FORMAT: u32 = 1;

/// A machine in one of its boots. All processes there share a ledger, and with it a lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Host {
    /// Drawn once, beside the ledger.
    pub(crate) machine: String,
    /// A copy of a machine has the same name and another boot.
    pub(crate) boot: String,
}

/// Who holds a lease or waits for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Party {
    pub(crate) host: Host,
    /// For people: `db7 (process 4242)`.
    pub(crate) name: String,
}

/// Somebody who would take it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waiting {
    pub(super) party: Party,
    /// Counts up while it waits.
    pub(super) beat: u64,
}

/// The lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    format: u32,
    pub(crate) holder: Party,
    /// For so long after it began to write this the holder asks the feeds, where it knows of others who wait.
    valid_for_ms: u64,
    /// Counts up with each writing of the holder's.
    pub(super) renewal: u64,
    /// By the holder's clock, for people.
    pub(crate) renewed_at: Timestamp,
    /// What the holder before had under way has arrived by now, and left the window.
    pub(super) settled: bool,
    /// Nobody holds it any more.
    pub(crate) released: bool,
    pub(super) waiting: Vec<Waiting>,
    /// Those who waited when the holder last wrote: it gives the feeds up for them when it cannot renew.
    pub(super) acknowledged: Vec<Host>,
}

impl Record {
    /// Taken by `holder` just now.
    pub(super) fn taken(holder: Party, valid_for: Duration, waiting: Vec<Waiting>) -> Record {
        Record {
            format: FORMAT,
            holder,
            valid_for_ms: u64::try_from(valid_for.as_millis()).unwrap_or(u64::MAX),
            renewal: 0,
            renewed_at: Timestamp::now(),
            settled: false,
            released: false,
            waiting,
            acknowledged: Vec::new(),
        }
    }

    /// # Errors
    /// `StoreNewer` for one of a later version, `Config` for what is none.
    pub(crate) fn parse(content: &[u8], place: &str) -> Result<Record> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let none = || {
            let what = "holds what is no lease of casemirror's, so that nobody asks the feeds: remove that row or object";
            Error::new(Kind::Config, format!("{place} {what}"))
        };
        let Format { format } = serde_json::from_slice(content).map_err(|_| none())?;
        if format > FORMAT {
            let text = format!("the lease in {place} was written by a newer version of casemirror");
            return Err(Error::new(Kind::StoreNewer, text));
        }
        serde_json::from_slice(content).map_err(|_| none())
    }

    /// # Errors
    /// `Internal`.
    pub(super) fn content(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|e| Error::caused(Kind::Internal, "a lease is no JSON", e))
    }

    /// The same as the next writing after `before` by its own holder.
    pub(super) fn renewing(
        self,
        before: &Record,
        settled: bool,
        acknowledged: Vec<Host>,
    ) -> Record {
        Record { renewal: before.renewal + 1, settled, acknowledged, ..self }
    }

    pub(super) fn valid_for(&self) -> Duration {
        Duration::from_millis(self.valid_for_ms)
    }

    /// Whether its holder has done nothing since the other one.
    pub(crate) fn is_held_as(&self, other: &Record) -> bool {
        let by_holder = |r: &Record| (r.holder.host.clone(), r.renewal, r.released);
        by_holder(self) == by_holder(other)
    }

    /// Names of those who wait, and whether the holder knows of each.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&str, bool)> {
        self.waiting.iter().map(|Waiting { party, .. }| {
            (party.name.as_str(), self.acknowledged.contains(&party.host))
        })
    }

    /// The same, given back.
    pub(crate) fn given_back(&self) -> Record {
        Record { released: true, ..self.clone() }
    }

    /// The same without one who waited.
    pub(crate) fn without(&self, host: &Host) -> Record {
        let mut record = self.clone();
        record.waiting.retain(|waiting| waiting.party.host != *host);
        record.acknowledged.retain(|known| known != host);
        record
    }
}
