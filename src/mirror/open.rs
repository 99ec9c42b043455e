//! Opening a store: to bring it up to a configuration, to write to it as it is, to look at it, or to plan on
//! it (docs/architecture.md, "Commands").
//!
//! Only `sync` and `run` chose the configuration that a store is brought up to: what privacy rewrites or a
//! resource file takes out does not come back. All others take the store as it is.

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use duckdb::{AccessMode, Connection};

use super::copies::check_not_newer;
use super::differences::{ConfigDifference, all_differences, described, differences, first_day};
use super::forgetting::{self, Taken, forgotten};
use super::founding::Founding;
use super::log::Bounds;
use super::overlay::{self, Overlay};
use super::schema::{self, FORMAT};
use super::storage::{connect, is_of_earlier_storage, open_error, raised};
use super::threads::Threads;
use super::{Residue, Store, align, erasure, secrets};
use crate::catalog::Catalog;
use crate::config;
use crate::decode::Privacy;
use crate::durable::{self, Access, Replacement};
use crate::error::{self, Error, Kind, Result};
use crate::sql::{self, db};

/// What a store is opened for by what writes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    /// It is brought up to this program, this configuration and these resource files.
    Applying,
    /// Only where it is up to them; a new one is made.
    AsItIs,
}

/// A store that is looked at, which changes nothing of it.
pub(crate) struct Looked {
    pub(crate) store: Store,
    /// The tables that the store has.
    pub(crate) catalog: Catalog,
    /// In what the configuration is another than the one that the store was last written with.
    pub(crate) differences: Vec<ConfigDifference>,
}

impl Store {
    /// Opens the store, makes it where there is none, and brings it up to this program, configuration and
    /// catalog. A store of an earlier version is copied first.
    ///
    /// # Errors
    /// `StoreLocked` naming the process that holds it, `StoreNewer`, `Store`, `DiskFull`, `Io`, and
    /// `Config` where `<store.path>.secrets` is not the one that the store needs.
    pub fn open(config: &config::Config, catalog: &Catalog) -> Result<Store> {
        Store::open_for(Writing::Applying, config, catalog, |_| Ok(()))
    }

    /// The same; [`Writing::AsItIs`] refuses a store that would have to be brought up to something. `check` may refuse
    /// the store that is there, or that none is, before anything is made or changed.
    ///
    /// # Errors
    /// Those of [`Store::open`] and of `check`; `StoreOlder`; `Config` naming what is another.
    pub(crate) fn open_for(
        writing: Writing,
        config: &config::Config,
        catalog: &Catalog,
        check: impl FnMut(Option<&Connection>) -> Result<()>,
    ) -> Result<Store> {
        let Opened { mut root, key, mut file } = opened(writing, config, catalog, check)?;
        if writing == Writing::Applying && Residue::Store.is_in(&root)? {
            remove_copies(&config.store.path)?;
            root = written_anew(root, config, &mut file)?;
        }
        let privacy = Privacy::new(&config.privacy, key).forgetting(forgotten(&root, key)?);
        Store::of(root, config, privacy, file)
    }

    /// Opens the store to read what it holds. It is neither upgraded nor rewritten, and the configuration
    /// is compared with the one that it was last written with.
    ///
    /// # Errors
    /// `StoreLocked` naming the process that holds it, `StoreNewer`, `StoreOlder`, `Store`, `Io` where
    /// there is none.
    pub(crate) fn look(config: &config::Config, catalog: &Catalog) -> Result<Looked> {
        let path = &config.store.path;
        if !is_there(path)? {
            return Err(no_store(path));
        }
        let root = connect(&config.store, path, AccessMode::ReadOnly)?;
        looked(root, config, catalog, None)
    }

    /// The store as a database in memory that reads the file's tables, or has empty ones where there is no
    /// file, and keeps to itself what the change feeds say ([`Overlay`]).
    ///
    /// # Errors
    /// Those of [`Store::look`].
    pub(crate) fn over(config: &config::Config, catalog: &Catalog) -> Result<Looked> {
        let path = &config.store.path;
        let root = connect(&config.store, Path::new(":memory:"), AccessMode::Automatic)?;
        if !is_there(path)? {
            schema::prepare(&root, config, catalog, |_| Ok(rand::random()))?;
            return looked(root, config, catalog, None);
        }
        let attach = format!(
            "ATTACH {} AS {} (READ_ONLY)",
            sql::text(&path.display().to_string()),
            overlay::STORE
        );
        root.execute_batch(&attach).map_err(|e| open_error(path, e))?;
        if !schema::is_store(&root, &sql::text(overlay::STORE))? {
            return Err(no_store_of_ours(path));
        }
        let overlay = Overlay::lay(&root, config.feed.calls)?;
        looked(root, config, catalog, Some(overlay))
    }

    fn of(
        root: Connection,
        config: &config::Config,
        privacy: Privacy,
        file: OnceLock<&'static File>,
    ) -> Result<Store> {
        let generation = align::generation(&root)?;
        let threads = Threads::of(&root, config.store.threads, &config.store.path)?;
        Ok(Store {
            root: Mutex::new(root),
            path: config.store.path.clone(),
            privacy,
            generation,
            file,
            threads: Arc::new(threads),
            bounds: Bounds::of(&config.store.memory_limit),
            overlay: None,
        })
    }
}

/// A store that is held, and is as it is to be.
struct Opened {
    root: Connection,
    /// The key of the privacy hashes.
    key: [u8; 32],
    /// See [`Store::file`].
    file: OnceLock<&'static File>,
}

fn opened(
    writing: Writing,
    config: &config::Config,
    catalog: &Catalog,
    mut check: impl FnMut(Option<&Connection>) -> Result<()>,
) -> Result<Opened> {
    let path = &config.store.path;
    let is_new = !is_there(path)?;
    if is_new {
        check(None)?;
    }
    if let Some(folder) = path.parent() {
        durable::make_private_folder(folder).map_err(|e| error::io("create", folder, e))?;
    }
    let began_at = SystemTime::now();
    let founding = if is_new { Some(Founding::of_new(path)?) } else { None };
    let mut root = connect(&config.store, path, AccessMode::Automatic)?;
    drop(founding);
    remove_spilled(path, began_at)?;
    let file = OnceLock::new();
    let format = schema::format(&root)?;
    match (format, writing) {
        (None, _) => check_is_empty(&root, path)?,
        (Some(format), Writing::AsItIs) => check_format(path, format)?,
        (Some(format), Writing::Applying) => check_not_newer(path, format)?,
    }
    // What follows may hide values, or make a copy, for good.
    if !is_new {
        check(format.map(|_| &root))?;
    }
    match (format, writing) {
        (None, _) => {}
        (Some(_), Writing::AsItIs) => refuse(path, &differences(&root, config, catalog)?)?,
        (Some(FORMAT), Writing::Applying) => {
            for difference in differences(&root, config, catalog)? {
                tracing::warn!("{difference}: the store is brought up to it now");
            }
            if let Some(difference) = first_day(&root, config)? {
                tracing::warn!("{difference}");
            }
        }
        (Some(format), Writing::Applying) => {
            // To be emptied, where the store is written anew.
            let both = File::options().read(true).write(true).open(path);
            let store = both.map_err(|e| error::io("open", path, e))?;
            // See `Store::file`.
            let store: &'static File = Box::leak(Box::new(store));
            keep_a_copy(&root, store, path, format)?;
            // Nothing has set it before.
            let _ = file.set(store);
        }
    }
    if writing == Writing::Applying && is_of_earlier_storage(&root)? {
        root = raised(root, &config.store)?;
    }
    let by = |known: Option<&str>| secrets::hash_key(path, known);
    let key = match (format, writing) {
        (Some(_), Writing::AsItIs) => schema::keep(&root, config, by)?,
        _ => schema::prepare(&root, config, catalog, by)?,
    };
    Ok(Opened { root, key, file })
}

/// Refuses what somebody else has made.
fn check_is_empty(conn: &Connection, path: &Path) -> Result<()> {
    let tables = "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database()";
    if sql::scalar_i64(conn, tables)? > 0 { Err(no_store_of_ours(path)) } else { Ok(()) }
}

pub(super) fn no_store_of_ours(path: &Path) -> Error {
    Error::new(Kind::Store, format!("{} is no store of casemirror", path.display()))
}

/// Takes a person out of the store and its file; the next publishing takes the person out of what is
/// published. The store must be what the configuration says. `only_try` says what would be taken out, and leaves
/// everything as it is.
///
/// # Errors
/// `Usage` where there is no such person and `unknown` is not set; those of [`Store::open_for`] as it is; `Io`
/// where there is no store.
pub(crate) fn forget(
    config: &config::Config,
    catalog: &Catalog,
    contact: i64,
    (only_try, unknown): (bool, bool),
) -> Result<Taken> {
    let path = &config.store.path;
    if !is_there(path)? {
        return Err(no_store(path));
    }
    let Opened { root, key, .. } = opened(Writing::AsItIs, config, catalog, |_| Ok(()))?;
    let forget = || {
        schema::bind_key(&root, key)?;
        let taken = forgetting::forget(&root, catalog, key, contact)?;
        if taken.was_known || unknown {
            return Ok(taken);
        }
        Err(Error::new(
            Kind::Usage,
            format!(
                "contact {contact} is not in the mirror, and nothing was changed; with --unknown it is kept \
                 out should it ever come"
            ),
        ))
    };
    if only_try {
        return sql::tried(&root, forget);
    }
    let taken = sql::transaction(&root, forget)?;
    if !Residue::Store.is_in(&root)? {
        return Ok(taken);
    }
    remove_copies(path)?;
    erasure::rewrite(&root, path).map_err(|e| {
        e.within(
            "the rows are rewritten, but free blocks of the store's file still hold what they were: run it \
             again, or `casemirror sync`, to have the file written anew",
        )
    })?;
    Ok(taken)
}

/// Whether there is a store that this user may read.
///
/// # Errors
/// `Io` where it is another user's.
pub(crate) fn is_there(path: &Path) -> Result<bool> {
    durable::is_readable(
        path,
        "the store and its folder are their owner's alone: use the user that casemirror runs as; what it \
         publishes can be placed outside that folder (publish.database, publish.parquet, publish.views)",
    )
}

pub(super) fn no_store(path: &Path) -> Error {
    let shown = path.display();
    Error::new(Kind::Io, format!("there is no store at {shown} yet: `casemirror sync` makes it"))
}

/// Takes what was erased out of the store's file too. Where that fails for now, the store is as good as
/// before, and the next start tries again.
fn written_anew(
    root: Connection,
    config: &config::Config,
    file: &mut OnceLock<&'static File>,
) -> Result<Connection> {
    let path = &config.store.path;
    tracing::info!(store = %path.display(), "the store is written anew: its file holds erased values");
    if let Err(error) = erasure::rewrite(&root, path) {
        tracing::warn!(
            error = error.chain(),
            "the store's file still holds values that were erased from its rows; the next sync tries again to \
             write it anew"
        );
        return Ok(root);
    }
    // With its last connection the lock on the file that was there goes, and then its bytes may.
    drop(root);
    if let Some(before) = file.take() {
        before.set_len(0).map_err(|e| error::io("empty the earlier file of", path, e))?;
    }
    connect(&config.store, path, AccessMode::Automatic)
}

fn looked(
    root: Connection,
    config: &config::Config,
    catalog: &Catalog,
    overlay: Option<Overlay>,
) -> Result<Looked> {
    let path = &config.store.path;
    let format = schema::format(&root)?.ok_or_else(|| no_store_of_ours(path))?;
    check_format(path, format)?;
    let others = match is_there(path)? {
        true => all_differences(&root, config, catalog)?,
        false => differences(&root, config, catalog)?,
    };
    let mut differences: Vec<ConfigDifference> =
        others.into_iter().map(ConfigDifference::of_store).collect();
    differences.extend(first_day(&root, config)?);
    let catalog = described(&root, catalog)?;
    // Nothing is decoded that is to be kept: no value ever meets this key.
    let privacy = Privacy::new(&config.privacy, rand::random());
    let store = Store { overlay, ..Store::of(root, config, privacy, OnceLock::new())? };
    Ok(Looked { store, catalog, differences })
}

pub(super) fn check_format(path: &Path, format: i64) -> Result<()> {
    let (kind, knows) = match format {
        FORMAT => return Ok(()),
        older if older < FORMAT => (Kind::StoreOlder, "works on"),
        _ => (Kind::StoreNewer, "knows"),
    };
    let shown = path.display();
    let mut text = format!(
        "the store {shown} has format {format}; this version of casemirror {knows} {FORMAT}"
    );
    let copy = copy_of(path, FORMAT);
    if kind == Kind::StoreNewer && copy.exists() {
        text += &format!("; as it was before that, it is kept as {}", copy.display());
    }
    Err(Error::new(kind, text))
}

fn refuse(path: &Path, differences: &[String]) -> Result<()> {
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        Kind::Config,
        format!(
            "the store {} was written with another configuration, which only `casemirror sync` and \
             `casemirror run` change:\n  {}",
            path.display(),
            differences.join("\n  ")
        ),
    ))
}

/// Behind the name of a store: what it was before it was upgraded to a format.
const COPY: &str = ".before-format-";

/// Where a store of this format is kept before it is upgraded.
fn copy_of(path: &Path, format: i64) -> PathBuf {
    durable::with_suffix(path, &format!("{COPY}{}", format + 1))
}

/// Where DuckDB puts what it has no memory for.
pub(super) fn spill_of(store: &Path) -> PathBuf {
    durable::with_suffix(store, ".tmp")
}

/// Removes what processes that were killed have spilled before this time: rows, which nobody else would ever remove. The
/// store is held, so nobody who reads it has spilled there.
fn remove_spilled(store: &Path, before: SystemTime) -> Result<()> {
    let folder = spill_of(store);
    let failed = |e| error::io("look into", &folder, e);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(());
        }
        Err(e) => return Err(failed(e)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let is_old = entry.metadata().and_then(|m| m.modified()).is_ok_and(|at| at < before);
        if is_old && entry.file_name().to_string_lossy().starts_with("duckdb_temp_") {
            durable::remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Copies hold what privacy hides now.
fn remove_copies(path: &Path) -> Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let prefix = format!("{}{COPY}", name.to_string_lossy());
    // One that a process was killed over.
    let unfinished = format!(".{prefix}");
    let failed = |e| error::io("look into", folder, e);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&prefix) || name.starts_with(&unfinished) {
            durable::remove(&entry.path())?;
            tracing::warn!(copy = %entry.path().display(), "removed: it held what privacy hides now");
        }
    }
    Ok(())
}

/// An earlier version cannot open what this one has upgraded: it is copied first, as it is.
fn keep_a_copy(root: &Connection, mut store: &File, path: &Path, format: i64) -> Result<()> {
    root.execute_batch("CHECKPOINT").map_err(|e| db("cannot work the log into the store", e))?;
    let copy = copy_of(path, format);
    let replacement = durable::remove_stale_of(&copy).and_then(|()| Replacement::of(&copy));
    let kept = replacement.and_then(|replacement| {
        let failed = |e| error::io("write", replacement.path(), e);
        let mut to = durable::create_private(replacement.path())?;
        store
            .seek(SeekFrom::Start(0))
            .and_then(|_| std::io::copy(&mut store, &mut to))
            .map_err(failed)?;
        drop(to);
        replacement.finish(Access::AsCreated)
    });
    kept.map_err(|e| {
        e.within(format!(
            "the store {} has format {format} and stays as it is: it is upgraded only when there is a copy of \
             it",
            path.display()
        ))
    })?;
    tracing::warn!(
        from = format,
        to = FORMAT,
        copy = %copy.display(),
        "the store is upgraded, which an earlier version of casemirror cannot open: the copy is as it was, \
         and may be removed when all is well"
    );
    Ok(())
}
