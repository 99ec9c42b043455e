//! What is special: keys that look at another key, or that are not needed by every command. What
//! holds for one key alone stands with it, in `keys`.
//!
//! A rule over two keys belongs to one of them, where it is reported. The other one is only looked
//! at ([`Reader::peek`]): what is wrong with it is noted where it is read itself.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use super::notation::named_zone;
use super::parquet_root::{BucketUrl, ParquetRoot};
use super::places::lead_to_one;
use super::reader::{Reader, Scope};
use super::violation::{Origin, nearest};
use super::{HistoryTables, TableNames};
use crate::durable::with_suffix;

/// A secret is a line of text; a larger file is some other file.
const LARGEST_SECRET_BYTES: u64 = 64 * 1024;

/// The platform's address for commands that never call it.
pub(super) fn nowhere() -> Url {
    // The top-level domain `invalid` is reserved for names that lead nowhere (RFC 2606).
    Url::parse("http://source.invalid/").expect("it is a valid address")
}

pub(super) fn base_url(r: &mut Reader, key: &str) -> Option<Url> {
    let url = r.filled_in(key, Reader::web_address)?;
    if url.scheme() == "http" && !is_this_machine(&url) {
        r.cautions.push(format!(
            "{key} = {url}: the secret and all data travel unencrypted; https:// would hide them"
        ));
    }
    Some(url)
}

/// Tables are named that there are.
pub(super) fn tables_are_there(r: &mut Reader, tables: TableNames) {
    let named = ["resources.disable", "history.tables"]
        .map(|key| (key, r.quietly(|r| r.names(key, "")).unwrap_or_default()));
    if named.iter().all(|(_, names)| names.is_empty()) {
        return;
    }
    let Some(known) = tables(r.peek_path("resources.dir").as_deref()) else { return };
    for (key, names) in named {
        let unknown = names.iter().filter(|name| !known.contains(name));
        let told: Vec<String> = unknown
            .map(|name| match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => format!("there is no table {name:?}; did you mean {near:?}?"),
                None => format!("there is no table {name:?}; `casemirror schema` lists them"),
            })
            .collect();
        if !told.is_empty() {
            r.refuse(key, told.join(", and "));
        }
    }
}

/// Whether the address leads to the machine that asks.
pub(crate) fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// A file of the configuration that holds `key` and that others may read is told.
pub(super) fn check_origin_mode(r: &mut Reader, key: &str) {
    if let Origin::File { path, .. } = r.origin(key) {
        check_mode(r, key, Path::new(&path));
    }
}

/// A file with the secret that others may read is told.
fn check_mode(r: &mut Reader, key: &str, path: &Path) {
    // What cannot be looked at has been told, or is no file.
    let Ok(found) = std::fs::metadata(path) else { return };
    let mode = found.permissions().mode() & 0o777;
    if found.is_file() && mode & 0o077 != 0 {
        r.cautions.push(format!(
            "{} holds {key} and has mode {mode:04o}: others may read it; `chmod 600` makes it yours alone",
            path.display()
        ));
    }
}

/// A file that holds secrets, which are read when they are needed.
pub(super) fn secret_file(r: &mut Reader, key: &str) -> Option<PathBuf> {
    let path = r.existing_path(key, "must name a file that exists", Path::is_file)?;
    check_mode(r, key, &path);
    Some(path)
}

pub(super) fn client_id(r: &mut Reader, key: &str) -> Option<String> {
    r.filled_in(key, |r, key| r.text(key, "must be the client id that the platform has given you"))
}

/// The secret itself or the first line of the file that holds it; never both.
pub(super) fn client_secret(r: &mut Reader, inline: &str) -> Option<SecretString> {
    let file = "source.client_secret_file";
    match (r.is_set(inline), r.is_set(file)) {
        (true, true) => {
            let other = r.origin(inline);
            r.refuse(file, format!("{inline} is set, too ({other}); only one of them may be"));
            None
        }
        (false, true) => {
            let path = r.path(file)?;
            match read_secret(&path) {
                Ok(secret) => {
                    check_mode(r, inline, &path);
                    let text = secret.expose_secret();
                    if text.trim() != text {
                        r.cautions.push(format!(
                            "{file}: {} has a blank before or behind the secret, which is taken as a part of it",
                            path.display()
                        ));
                    }
                    Some(secret)
                }
                Err(problem) => {
                    r.refuse(file, format!("{}: {problem}", path.display()));
                    None
                }
            }
        }
        (_, false) => {
            let secret = r.filled_in(inline, |r, key| {
                r.text(
                    key,
                    "must be the client secret that the platform has given you, unless \
                     source.client_secret_file names a file that holds it",
                )
            })?;
            check_origin_mode(r, inline);
            Some(SecretString::from(secret))
        }
    }
}

/// The content of a secret file without the byte order mark and the line end that editors put there.
fn read_secret(path: &Path) -> Result<SecretString, String> {
    let length = std::fs::metadata(path).map_err(|error| format!("cannot read it: {error}"))?.len();
    if length > LARGEST_SECRET_BYTES {
        return Err(format!("has {length} bytes, which is no client secret"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read it: {error}"))?;
    // As the files of TOML are read: a byte order mark, which some editors put there, is none of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let secret = text.trim_end_matches(['\n', '\r']);
    if secret.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    if secret.contains('\n') {
        return Err("has more than one line".to_owned());
    }
    Ok(SecretString::from(secret))
}

pub(super) fn ca_file(r: &mut Reader, key: &str) -> Option<Option<PathBuf>> {
    r.optional(key, |r, key| {
        r.existing_path(key, "must name a PEM file that exists", Path::is_file)
    })
}

/// What casemirror writes, and with which endings other files of its own stand beside each, in the order in
/// which they are compared.
const WRITTEN: [(&str, &[&str]); 7] = [
    (
        "store.path",
        &["", ".wal", ".secrets", ".sock", ".tmp", ".hints", ".publishing", ".lake.tmp"],
    ),
    ("feed.ledger", &[""]),
    ("publish.database", &["", ".wal"]),
    ("publish.parquet", &["", "/latest", "/snapshots", "/closings"]),
    ("publish.views", &["", ".wal"]),
    ("lake.catalog", &["", ".wal"]),
    ("lake.data", &[""]),
];

/// Folders that are casemirror's alone, by whose place they lie beside or below: what is in them is replaced and removed.
const REPLACED: [(&str, &str); 4] = [
    ("store.path", ".tmp"),
    ("publish.parquet", "/latest"),
    ("publish.parquet", "/snapshots"),
    ("publish.parquet", "/closings"),
];

/// Of [`WRITTEN`], the files of DuckDB's.
const OF_DUCKDB: [&str; 4] = ["store.path", "publish.database", "publish.views", "lake.catalog"];

/// Schemas of a store and of what is published, and those of DuckDB's own. (A database of a file that is called `main`,
/// `system` or `temp` gets another name.)
const SCHEMAS: [&str; 5] = ["history", "report", "sync", "information_schema", "pg_catalog"];

/// The schema by whose name DuckDB would call the database in this file: by the name of the file up to its first dot.
fn schema_called_so(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let name = name.split('.').find(|part| !part.is_empty())?;
    SCHEMAS.into_iter().find(|schema| schema.eq_ignore_ascii_case(name))
}

impl Reader {
    /// Refuses a file whose database could not be told apart from a schema in it: `report.cases` would be either's.
    fn not_called_as_a_schema(&mut self, key: &str, path: &Path) -> Option<()> {
        let Some(schema) = schema_called_so(path) else { return Some(()) };
        let shown = path.display();
        let rule = format!(
            "must have another name than {schema}: DuckDB calls a file's database so, too, and could not tell it from \
             the schema {schema} in it: {shown}"
        );
        self.refuse(key, rule);
        None
    }

    /// Whether it is read for a command that never calls the platform.
    pub(super) fn is_offline(&self) -> bool {
        matches!(self.scope, Scope::Offline)
    }

    /// A key that is only needed to log in: commands that never call the platform do not look at
    /// it, and have `offline` in its place.
    pub(super) fn for_login<T>(
        &mut self,
        key: &str,
        offline: T,
        read: impl FnOnce(&mut Self, &str) -> Option<T>,
    ) -> Option<T> {
        match self.scope {
            Scope::Whole => read(self, key),
            Scope::Offline => Some(offline),
        }
    }

    /// The same for a key that such a command only compares with what the store was filled from: a value
    /// that is right is taken.
    pub(super) fn where_right<T>(
        &mut self,
        key: &str,
        offline: T,
        read: impl FnOnce(&mut Self, &str) -> Option<T>,
    ) -> Option<T> {
        match self.scope {
            Scope::Whole => read(self, key),
            Scope::Offline => Some(self.quietly(|r| read(r, key)).unwrap_or(offline)),
        }
    }

    /// A time zone by its name, or that of `other` where the key is empty.
    pub(super) fn time_zone_or_that_of(&mut self, key: &str, other: &str) -> Option<TimeZone> {
        if self.is_set(key) { self.time_zone(key) } else { self.peek(other, named_zone) }
    }

    /// A file, or a folder, that casemirror writes; no two of [`WRITTEN`] may be one, and none may lie in what is
    /// [`REPLACED`].
    pub(super) fn written_path(&mut self, key: &str) -> Option<PathBuf> {
        let path = self.path(key)?;
        if OF_DUCKDB.contains(&key) && path.as_os_str().as_encoded_bytes().contains(&b'?') {
            // Its log would be called otherwise than all who look for one think.
            let shown = path.display();
            let rule = format!("must have no ? in it, which ends the name for DuckDB: {shown}");
            self.refuse(key, rule);
            return None;
        }
        // DuckLake gives the database of its catalog a name of its own.
        if OF_DUCKDB.contains(&key) && key != "lake.catalog" {
            self.not_called_as_a_schema(key, &path)?;
        }
        let at = WRITTEN.iter().position(|(written, _)| *written == key)?;
        let (earlier, own) = (&WRITTEN[..at], WRITTEN[at].1);
        for (other, endings) in earlier {
            let Some(place) = self.peek_path(other) else { continue };
            let pairs = own.iter().flat_map(|here| endings.iter().map(move |there| (here, there)));
            for (here, there) in pairs {
                let (ours, theirs) = (with_suffix(&path, here), with_suffix(&place, there));
                if lead_to_one(&ours, &theirs) {
                    let beside = if (*here, *there) == ("", "") {
                        String::new()
                    } else {
                        format!(", to which {} belongs", theirs.display())
                    };
                    self.refuse(key, format!("must be another file than {other}{beside}"));
                    return None;
                }
            }
        }
        for (owner, ending) in REPLACED {
            let Some(place) = self.peek_path(owner).filter(|_| owner != key) else { continue };
            let folder = with_suffix(&place, ending);
            if path.ancestors().skip(1).any(|above| lead_to_one(above, &folder)) {
                let text = format!("must not lie in {}, which {owner} replaces", folder.display());
                self.refuse(key, text);
                return None;
            }
        }
        Some(path)
    }

    /// The day from which something is read.
    pub(super) fn first_day(&mut self, key: &str) -> Option<Date> {
        let day = self.day(key)?;
        // Of a typed year nobody would hear: nothing is missing from a mirror that is to have nothing.
        if day > Zoned::now().date().saturating_add(1.day()) {
            self.cautions.push(format!(
                "{key} = {day} lies in the future: nothing is read of the time before"
            ));
        }
        Some(day)
    }

    /// `store.path`. A link to the store is followed: what stands beside the store has one place, whoever names it
    /// in which way.
    pub(super) fn store_path(&mut self, key: &str) -> Option<PathBuf> {
        let path = self.written_path(key)?;
        if path.is_dir() {
            self.refuse(key, format!("must be a file, and {} is a folder", path.display()));
            return None;
        }
        if !path.is_symlink() {
            return Some(path);
        }
        let found = std::fs::canonicalize(&path);
        let found = found
            .map_err(|e| self.refuse(key, format!("{} is a link: {e}", path.display())))
            .ok()?;
        self.not_called_as_a_schema(key, &found)?;
        for own in [".secrets", ".hints"] {
            let (left, due) = (with_suffix(&path, own), with_suffix(&found, own));
            let is_left = left.metadata().is_ok_and(|file| file.len() > 0);
            if is_left && !due.exists() {
                self.refuse(
                    key,
                    format!(
                        "is a link, and what belongs to the store stands beside its file: move {} to {}",
                        left.display(),
                        due.display()
                    ),
                );
                return None;
            }
        }
        Some(found)
    }

    /// `publish.parquet`: a folder that casemirror writes, or an address of an object store.
    pub(super) fn parquet_root(&mut self, key: &str) -> Option<ParquetRoot> {
        match self.peek(key, |text| BucketUrl::is_one(text).then(|| BucketUrl::parse(text))) {
            Some(Ok(url)) => Some(ParquetRoot::Bucket(url)),
            Some(Err(rule)) => {
                self.refuse(key, rule);
                None
            }
            None => self.written_path(key).map(ParquetRoot::Folder),
        }
    }

    /// `publish.views`, which shows what is in `publish.parquet`: off by itself where that is off or no folder,
    /// refused where somebody has set it.
    pub(super) fn views_path(&mut self, key: &str) -> Option<Option<PathBuf>> {
        let parquet = "publish.parquet";
        let rule = match (self.is_set(parquet), self.peek(parquet, |t| Some(BucketUrl::is_one(t))))
        {
            (false, _) => "publish.parquet must be set, too: the views show what is there",
            (true, Some(true)) => {
                "publish.parquet must be a folder, too: the views cannot read an object store"
            }
            (true, _) => return self.optional(key, Reader::written_path),
        };
        // The configuration that `init` writes names the default.
        if self.is_set(key) && self.origin(key) != Origin::Default && !self.has_default(key) {
            self.refuse(key, rule);
            return None;
        }
        Some(None)
    }

    /// `serve.webhooks`, which the status page must leave free.
    pub(super) fn webhooks_address(&mut self, key: &str) -> Option<SocketAddr> {
        let own = self.listen_address(key)?;
        let page = self.peek("serve.listen", |text| text.parse::<SocketAddr>().ok());
        // Port 0 asks the system for a free one, so two of them never meet.
        if page == Some(own) && own.port() != 0 {
            self.refuse(key, "must be another address than serve.listen");
            return None;
        }
        Some(own)
    }

    /// `serve.public_url`, which leads to `serve.webhooks`.
    pub(super) fn public_address(&mut self, key: &str) -> Option<Url> {
        let url = self.web_address(key)?;
        if !self.is_set("serve.webhooks") {
            self.refuse(key, "serve.webhooks must be set, too: nothing would answer there");
            return None;
        }
        Some(url)
    }

    /// Table names, or all of them.
    pub(super) fn names_or_all(&mut self, key: &str) -> Option<HistoryTables> {
        if self.is_word(key, "all") {
            return Some(HistoryTables::All);
        }
        self.names(key, "must be \"all\" or a list of table names, such as [\"cases\", \"costs\"]")
            .map(HistoryTables::These)
    }
}
