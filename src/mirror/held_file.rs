//! Whether the store's file is still where it was opened.
//!
//! A process goes on with a file that was removed, or that another one took the place of: DuckDB writes to what nobody
//! finds again, makes its log where the other file has its own, and removes that one at its end.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use duckdb::Connection;

use super::{Store, log};
use crate::error::{Error, Kind, Result};
use crate::sql;

/// The file that this process holds, and its name.
#[derive(Debug, Clone)]
pub(crate) struct HeldFile {
    path: PathBuf,
    /// `None`: the store is in memory.
    file: Option<&'static File>,
}

impl HeldFile {
    /// That of an open store.
    ///
    /// # Errors
    /// `Io`, `Store`.
    pub(crate) fn of(store: &Store) -> Result<HeldFile> {
        let in_memory = "SELECT count(*) FROM duckdb_databases() \
                         WHERE database_name = current_database() AND path IS NULL";
        let is_in_memory = sql::scalar_i64(&store.connection()?, in_memory)? > 0;
        let file = if is_in_memory { None } else { Some(store.file()?) };
        Ok(HeldFile { path: store.path().to_owned(), file })
    }

    /// Refuses to write where the name leads to no file, or to another one. `conn` leaves the log alone from then on.
    ///
    /// # Errors
    /// `StoreGone`; `Store`.
    pub(crate) fn check(&self, conn: &Connection) -> Result<()> {
        let Some(file) = self.file else { return Ok(()) };
        let what = match (self.path.metadata(), file.metadata()) {
            (Ok(there), Ok(held)) if (there.dev(), there.ino()) == (held.dev(), held.ino()) => {
                return Ok(());
            }
            (Ok(_), Ok(_)) => "another file was put in the place of",
            (Err(e), _) if e.kind() == ErrorKind::NotFound => "somebody has removed or renamed",
            // What cannot be asked now may be there all the same.
            _ => return Ok(()),
        };
        // Its log would be that of the other file.
        log::leave(conn)?;
        let text = format!(
            "{what} the store {} while this process was working on it: nothing more is written",
            self.path.display()
        );
        Err(Error::new(Kind::StoreGone, text))
    }
}
