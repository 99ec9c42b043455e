//! DuckDB's official extensions that a lake needs, of exactly the version that is built in. They are in a folder of
//! casemirror's own, beside the store, and nothing is loaded from elsewhere; DuckDB checks their signatures, and
//! unsigned ones are never allowed.

use std::fs;
use std::path::{Path, PathBuf};

use duckdb::{Config, Connection};

use super::errand::Errand;
use crate::durable::{self, Access, Replacement};
use crate::error::{self, Error, Kind, Result};
use crate::sql;

/// Those of every kind of lake.
const ALL: [&str; 3] = ["ducklake", "postgres_scanner", "httpfs"];
/// How deep below the folder that the user names they are looked for.
const DEPTH: usize = 6;

/// What was installed.
pub(crate) struct Installed {
    /// DuckDB's version.
    pub(crate) version: String,
    pub(crate) folder: PathBuf,
    pub(crate) names: [&'static str; 3],
}

/// Where the extensions are: beside the store.
pub(super) fn folder(store: &Path) -> PathBuf {
    store.with_file_name("extensions")
}

fn file_name(name: &str) -> String {
    format!("{name}.duckdb_extension")
}

/// A DuckDB in memory that loads nothing by itself.
pub(super) fn duckdb() -> Result<Connection> {
    Config::default()
        .enable_autoload_extension(false)
        .and_then(|c| c.with("autoinstall_known_extensions", "false"))
        .and_then(Connection::open_in_memory_with_flags)
        .map_err(|e| sql::db("cannot start DuckDB", e))
}

/// The version that is built in, `v1.5.5`, and what it calls this machine, `linux_amd64`.
fn build(conn: &Connection) -> Result<(String, String)> {
    let read = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, String>(0));
    read("SELECT library_version FROM pragma_version()")
        .and_then(|version| Ok((version, read("SELECT platform FROM pragma_platform()")?)))
        .map_err(|e| sql::db("cannot ask DuckDB for its version", e))
}

/// Where an extension of this build is within `folder`, as DuckDB's own installer puts it.
fn place(folder: &Path, version: &str, platform: &str, name: &str) -> PathBuf {
    folder.join(version).join(platform).join(file_name(name))
}

/// Loads the extensions.
///
/// # Errors
/// `Config` where one is not installed, with the command that does it; `Lake` where DuckDB refuses one.
pub(super) fn load(conn: &Connection, folder: &Path, names: &[&'static str]) -> Result<()> {
    let (version, platform) = build(conn)?;
    for name in names {
        let path = place(folder, &version, &platform, name);
        if !path.exists() {
            let text = format!(
                "DuckDB's extension {name} {version} is not installed in {}: `casemirror lake install` fetches it",
                folder.display()
            );
            return Err(Error::new(Kind::Config, text));
        }
        load_file(conn, &path, name)?;
    }
    Ok(())
}

/// Whether the extensions that this lake needs are there and are taken.
///
/// # Errors
/// Those of [`load`].
pub(crate) fn check(errand: &Errand) -> Result<()> {
    load(&duckdb()?, &errand.extensions, &errand.extensions())
}

fn load_file(conn: &Connection, path: &Path, name: &str) -> Result<()> {
    let shown = path.display();
    conn.execute_batch(&format!("LOAD {}", sql::path(path)?)).map_err(|e| {
        Error::caused(
            Kind::Lake,
            format!("DuckDB does not take {shown} as its extension {name}"),
            e,
        )
    })
}

/// Installs the extensions beside the store: from the official repository, or from a folder that has them
/// somewhere. Each is tried before it takes its place.
///
/// # Errors
/// `Lake` where the repository does not answer, or DuckDB refuses a file; `Config` where the folder lacks one; `Io`.
pub(crate) fn install(store: &Path, from: Option<&Path>) -> Result<Installed> {
    let to = folder(store);
    let conn = duckdb()?;
    let (version, platform) = build(&conn)?;
    durable::make_private_folder(&to).map_err(|e| error::io("create", &to, e))?;
    let names = ALL;
    match from {
        None => {
            for name in names {
                fetch(&conn, &to, name)?;
            }
        }
        Some(from) => {
            for name in names {
                let file = find(from, &file_name(name), &version, DEPTH)?.ok_or_else(|| {
                    let text = format!(
                        "--from {}: there is no {} of DuckDB {version}",
                        from.display(),
                        file_name(name)
                    );
                    Error::new(Kind::Usage, text)
                })?;
                copy(&file, &place(&to, &version, &platform, name), name)?;
            }
        }
    }
    // As a lake loads them, all in one process.
    load(&duckdb()?, &to, &names)?;
    Ok(Installed { version, folder: to, names })
}

/// By DuckDB's own installer, from the official repository.
fn fetch(conn: &Connection, to: &Path, name: &'static str) -> Result<()> {
    let folder = sql::text(&to.display().to_string());
    conn.execute_batch(&format!(
        "SET extension_directory = {folder}; FORCE INSTALL {name} FROM core"
    ))
    .map_err(|e| {
        let text = format!(
            "cannot fetch DuckDB's extension {name} from the official repository; where this machine has no way to \
             it, `casemirror lake install --from DIR` takes it from a folder"
        );
        Error::caused(Kind::Lake, text, e)
    })
}

/// The file of this name within `folder`, below a folder that is named by the version where there are several.
fn find(folder: &Path, name: &str, version: &str, depth: usize) -> Result<Option<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    collect(folder, name, depth, &mut found)?;
    found.sort();
    let of_version = |path: &PathBuf| path.components().any(|c| c.as_os_str() == version);
    let exact = found.iter().find(|path| of_version(path)).cloned();
    Ok(exact.or_else(|| found.into_iter().next()))
}

fn collect(folder: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |e| error::io("look into", folder, e);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() && depth > 0 {
            collect(&path, name, depth - 1, found)?;
        } else if !kind.is_dir() && entry.file_name() == name {
            found.push(path);
        }
    }
    Ok(())
}

/// Tries a file, and puts a copy in its place.
fn copy(from: &Path, to: &Path, name: &str) -> Result<()> {
    let folder = to.parent().unwrap_or(Path::new("."));
    durable::make_private_folder(folder).map_err(|e| error::io("create", folder, e))?;
    // DuckDB takes the name of an extension from that of its file.
    load_file(&duckdb()?, from, name)?;
    let replacement = Replacement::of(to)?;
    fs::copy(from, replacement.path()).map_err(|e| error::io("copy", from, e))?;
    replacement.finish(Access::AsCreated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_command_that_brings_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = load(&duckdb().unwrap(), folder.path(), &["ducklake"]).unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.to_string().contains("`casemirror lake install`"), "{error}");
        let error =
            install(&folder.path().join("store.duckdb"), Some(folder.path())).err().unwrap();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(
            error.to_string().contains("there is no ducklake.duckdb_extension of DuckDB v1.5.5"),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_is_no_signed_extension_is_refused_and_takes_no_place() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        fs::create_dir(&from).unwrap();
        for name in ALL {
            fs::write(from.join(file_name(name)), vec![7; 4096]).unwrap();
        }
        let store = folder.path().join("store.duckdb");
        let error = install(&store, Some(&from)).err().unwrap();
        assert_eq!(error.kind(), Kind::Lake);
        let mut found = Vec::new();
        collect(&super::folder(&store), &file_name("ducklake"), DEPTH, &mut found).unwrap();
        assert!(found.is_empty(), "{found:?}");
    }
}
