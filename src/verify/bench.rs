//! What every comparison works with.

use std::sync::{Arc, Mutex, PoisonError};

use duckdb::Connection;

use crate::catalog::{Catalog, Resource};
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::extract::Extractor;
use crate::mirror::{Books, ResourceRow, State, Store, Writer};

/// The store, the source, and what could not be compared.
pub struct Bench {
    pub config: Arc<Config>,
    pub catalog: Arc<Catalog>,
    pub store: Arc<Store>,
    pub writer: Writer,
    pub extractor: Extractor,
    problems: Mutex<Vec<String>>,
}

/// When an attempt asked.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// The last page of a feed that had moved something by then.
    pub sequence: i64,
    /// Microseconds of our clock.
    pub at: i64,
}

impl Bench {
    /// Nothing is asked yet.
    pub fn new(
        config: Arc<Config>,
        catalog: Arc<Catalog>,
        store: Arc<Store>,
        writer: Writer,
        extractor: Extractor,
    ) -> Bench {
        Bench { config, catalog, store, writer, extractor, problems: Mutex::default() }
    }

    /// A connection for reading.
    pub fn reader(&self) -> Result<Connection> {
        self.store.connection()
    }

    /// Notes the moment before the source is asked.
    ///
    /// # Errors
    /// Those of the store.
    pub fn now(&self) -> Result<Asked> {
        let sequence = State::new(&self.reader()?).sequence()?;
        Ok(Asked { sequence, at: jiff::Timestamp::now().as_microsecond() })
    }

    /// The tables that are read: enabled, permitted, there.
    pub(super) fn active(&self) -> Result<Vec<Arc<Resource>>> {
        let conn = self.reader()?;
        let rows = Books::new(&conn).resources()?;
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
        let rows = Books::new(&self.reader()?).resources()?;
        let row = rows.get(name).filter(|row| !row.is_asked());
        Ok(row.map(|row| format!("{name} is {}", row.status)))
    }

    /// Notes what cannot be compared, because the source does not answer it.
    ///
    /// # Errors
    /// What makes all further calls senseless.
    pub(super) fn cannot(&self, what: &str, error: Error) -> Result<()> {
        match error.kind() {
            Kind::Credentials
            | Kind::Tls
            | Kind::Store
            | Kind::DiskFull
            | Kind::Cancelled
            | Kind::Internal => Err(error),
            _ => {
                self.unknown(format!("{what} cannot be verified: {}", error.chain()));
                Ok(())
            }
        }
    }

    pub(super) fn unknown(&self, problem: String) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// What could not be compared, in words.
    pub fn problems(&self) -> Vec<String> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
