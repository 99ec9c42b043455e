//! The lease of an API user: of all hosts that are configured for it, one asks the change feeds (docs/lake.md, "One
//! host asks the feeds").
//!
//! The throttle counts the calls of an API user, and its ledger is a file: it holds for one machine. Where machines
//! share a catalog or a bucket, a record there says which of them asks. It is changed only by who has read it as it is
//! ([`Register::write`]), and no clock of one host is compared with that of another: a holder counts from when it began
//! to write, a waiter from when it saw that.
//!
//! - [`record`]: what the record says.
//! - [`tenure`]: the rule, as functions of values: what to write after what was found, and whether the feeds are ours.
//! - [`standing`]: how it stands, for people.
//!
//! `source::lease` does it: it reads, writes and waits.

mod record;
mod standing;
mod tenure;

use std::fmt;

use futures::future::BoxFuture;

use crate::error::Result;

pub(crate) use record::{Host, Party, Record};
pub(crate) use standing::{Standing, State};
pub(crate) use tenure::{Stand, Tenure};

/// What a register holds, and which writing of it that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) content: Vec<u8>,
    /// Of the register's own making; another one after each writing.
    pub(crate) version: String,
}

/// What became of a writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    Done,
    /// Somebody else was faster, and nothing was written.
    Late,
    /// The register knows no writing on a condition, whoever writes, and nothing was written: no lease can be held there.
    Unsupported,
}

/// Where the record of one API user is, which every host that is configured alike reaches.
pub(crate) trait Register: Send + Sync + fmt::Debug {
    /// Where it is, in words that hold no secret.
    fn place(&self) -> String;

    /// What it holds; `None` where nothing was ever written.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    fn read(&self) -> BoxFuture<'_, Result<Option<Entry>>>;

    /// Writes, if it still holds what was read: `known` is its version, `None` that there was nothing.
    ///
    /// # Errors
    /// It may be written, or not.
    fn write<'a>(
        &'a self,
        content: Vec<u8>,
        known: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Written>>;
}

impl dyn Register {
    /// The record, and the version of this writing of it.
    ///
    /// # Errors
    /// Those of [`Register::read`] and [`Record::parse`].
    pub(crate) async fn record(&self) -> Result<Option<(Record, String)>> {
        let Some(entry) = self.read().await? else { return Ok(None) };
        Ok(Some((Record::parse(&entry.content, &self.place())?, entry.version)))
    }

    /// Writes a record, as [`Register::write`] does.
    ///
    /// # Errors
    /// Those of [`Register::write`].
    pub(crate) async fn put(&self, record: &Record, known: Option<&str>) -> Result<Written> {
        self.write(record.content()?, known).await
    }
}
