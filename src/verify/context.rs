//! What every comparison works with.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use duckdb::Connection;

use super::asking::Reach;
use crate::catalog::{Catalog, Resource};
use crate::config::Config;
use crate::cycle::{ends_run, is_out_of_reach};
use crate::error::{Error, Kind, Result};
use crate::extract::Extractor;
use crate::mirror::{ResourceRow, State, Store, Writer};
use crate::scope::TableStatus;

/// The store, the source, and what could not be compared.
pub(crate) struct Context {
    pub(crate) config: Arc<Config>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) store: Arc<Store>,
    pub(crate) writer: Writer,
    pub(crate) extractor: Extractor,
    found: Mutex<Unknown>,
    /// Of all comparisons together: their endpoints are different ones.
    reach: Mutex<Reach>,
}

/// What could not be compared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unknown {
    /// In words: the source did not answer, or not as it should.
    pub(crate) problems: Vec<String>,
    /// In words: the mirror knows that it is not as the source has it: pending, failed, rejected.
    pub(crate) left_out: Vec<String>,
    /// How many things these are.
    pub(crate) count: usize,
    /// How many of them are months that have no control.
    pub(crate) without_control: usize,
    /// The kind of the first error.
    pub(crate) kind: Option<Kind>,
}

/// When an attempt asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// The last page of a feed that had moved something by then.
    pub(crate) sequence: i64,
    /// Microseconds of our clock.
    pub(crate) at: i64,
}

impl Context {
    /// Nothing is asked yet.
    pub(crate) fn new(
        config: Arc<Config>,
        catalog: Arc<Catalog>,
        store: Arc<Store>,
        writer: Writer,
        extractor: Extractor,
    ) -> Context {
        Context {
            config,
            catalog,
            store,
            writer,
            extractor,
            found: Mutex::default(),
            reach: Mutex::default(),
        }
    }

    /// A connection for reading.
    pub(crate) fn reader(&self) -> Result<Connection> {
        self.store.connection()
    }

    /// Notes the moment before the source is asked.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn now(&self) -> Result<Asked> {
        let sequence = State::new(&self.reader()?).sequence()?;
        Ok(Asked { sequence, at: jiff::Timestamp::now().as_microsecond() })
    }

    /// The tables that are read: enabled, permitted, there.
    pub(super) fn active(&self) -> Result<Vec<Arc<Resource>>> {
        let conn = self.reader()?;
        let rows = State::new(&conn).statuses().all()?;
        let asked = |r: &&Arc<Resource>| {
            r.read.is_some() && rows.get(&r.table).is_some_and(ResourceRow::is_asked)
        };
        Ok(self.catalog.resources().iter().filter(asked).cloned().collect())
    }

    /// The table, where it is read.
    pub(super) fn table(&self, name: &str) -> Result<Option<Arc<Resource>>> {
        Ok(self.active()?.into_iter().find(|r| r.table == name))
    }

    /// Why a table is not read, in words: `None` where it is.
    pub(super) fn why_not(&self, name: &str) -> Result<Option<String>> {
        Ok(self.not_read_as(name)?.map(|status| format!("{name} is {status}")))
    }

    /// Why there is nothing to ask for a table that is read, in words: `None` where there is.
    pub(super) fn why_nothing_is_asked(&self, name: &str) -> Result<Option<String>> {
        let rows = State::new(&self.reader()?).statuses().all()?;
        let row = rows.get(name).filter(|row| row.has_nothing_to_ask(&rows));
        Ok(row.and_then(|row| row.reason.clone()))
    }

    /// As what a table is not read: `None` where it is.
    pub(super) fn not_read_as(&self, name: &str) -> Result<Option<TableStatus>> {
        let rows = State::new(&self.reader()?).statuses().all()?;
        Ok(rows.get(name).filter(|row| !row.is_asked()).map(|row| row.status))
    }

    /// Notes that so many comparisons that were begun come to nothing, because their table is not read any more.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn broken_off(&self, table: &str, what: &str, count: usize) -> Result<()> {
        if let Some(why) = self.why_not(table)? {
            self.unknown_many(format!("{what} cannot be verified: {why}"), count);
        }
        Ok(())
    }

    /// A table has answered.
    pub(super) fn answered(&self, table: &str) {
        self.reach().answered(table);
    }

    /// Whether the source is out of reach, whatever is asked.
    pub(super) fn is_lost(&self) -> bool {
        self.reach().is_lost()
    }

    /// Whether nothing more is asked of a table.
    pub(super) fn gives_up(&self, table: &str) -> bool {
        self.reach().gives_up(table)
    }

    /// A call for a table failed: notes what cannot be compared for it, and whether the source can be
    /// reached.
    ///
    /// # Errors
    /// What makes all further calls senseless.
    pub(super) async fn failed(&self, table: &str, what: &str, error: Error) -> Result<()> {
        let asks_another = self.reach().failed(table, error.kind());
        self.after(asks_another, what, error).await
    }

    /// The same of a call for a journal's month.
    ///
    /// # Errors
    /// What makes all further calls senseless.
    pub(super) async fn month_failed(&self, table: &str, what: &str, error: Error) -> Result<()> {
        let asks_another = self.reach().month_failed(table, error.kind());
        self.after(asks_another, what, error).await
    }

    async fn after(&self, asks_another: bool, what: &str, error: Error) -> Result<()> {
        if asks_another {
            if is_out_of_reach(self.extractor.client()).await {
                self.reach().lost();
            } else {
                self.reach().reached();
            }
        }
        self.cannot(what, error)
    }

    /// Notes what cannot be compared, because the source does not answer it.
    ///
    /// # Errors
    /// What makes all further calls senseless.
    pub(super) fn cannot(&self, what: &str, error: Error) -> Result<()> {
        if ends_run(error.kind()) {
            return Err(error);
        }
        self.found().kind.get_or_insert(error.kind());
        self.unknown(format!("{what} cannot be verified: {}", error.chain()));
        Ok(())
    }

    /// Notes what the source does not say.
    pub(super) fn unknown(&self, problem: String) {
        self.unknown_many(problem, 1);
    }

    /// Notes that it does not say so many things.
    pub(super) fn unknown_many(&self, problem: String, count: usize) {
        let mut found = self.found();
        if count > 0 && !found.problems.contains(&problem) {
            found.problems.push(problem);
            found.count += count;
        }
    }

    /// Notes what is known not to be as the source has it; `status` says why.
    pub(super) fn leave_out(&self, what: String, count: usize) {
        let mut found = self.found();
        if count > 0 {
            found.left_out.push(what);
            found.count += count;
        }
    }

    /// Notes so many controls that cannot be read; `what`: in words, where no cycle says it.
    pub(super) fn without_control(&self, what: Option<String>, controls: usize) {
        let mut found = self.found();
        found.count += controls;
        found.without_control += controls;
        if controls > 0 {
            found.left_out.extend(what);
        }
    }

    /// What could not be compared.
    pub(crate) fn could_not(&self) -> Unknown {
        self.found().clone()
    }

    fn reach(&self) -> MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(&self) -> MutexGuard<'_, Unknown> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
