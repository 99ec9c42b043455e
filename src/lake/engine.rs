//! DuckDB with the published file and the lake, side by side, for one publishing.

use duckdb::Connection;

use super::attaching::address;
use super::differing::GROUP_BITS;
use super::errand::{Catalog, Errand};
use super::extensions;
use super::secrets::{Hider, Secrets};
use crate::config;
use crate::error::{Error, Kind, Result};
use crate::sql;

/// Names under which they are attached.
pub(super) const PUBLISHED: &str = "published";
pub(super) const LAKE: &str = "lake";
pub(super) const LOCK: &str = "lake_lock";

/// Rows of a row group of the lake's files, as of the Parquet snapshots: each thread holds one of all columns, and
/// DuckDB's 122,880 of the widest tables do not fit a store.memory_limit of 400 MB.
const ROW_GROUP_ROWS: usize = 16_384;
/// What a thread that writes the widest tables may need: long texts are held for a row group each.
const THREAD_BYTES: f64 = 800e6;
/// With less, 100,000 rows of long texts could not be written, nor the tables of a million cases compared.
const LEAST_MEMORY: &str = "1GB";
/// Rows of a journal's months that wait for their files.
const WAITING_ROWS: usize = 32_768;

/// Both, and what keeps others from publishing to this schema meanwhile.
pub(super) struct Engine {
    conn: Connection,
    pub(super) secrets: Secrets,
    /// Holds the lock by a transaction of PostgreSQL; `None` where the catalog is a file, which DuckDB locks.
    lock: Option<Connection>,
    hider: Hider,
    threads: Threads,
}

/// How many threads there are, as a count of what they do.
#[derive(Debug, Clone, Copy)]
struct Threads {
    /// That write rows with all columns.
    writing: usize,
    /// That read narrow columns: these need next to no memory.
    comparing: usize,
}

impl Engine {
    /// The published file alone; [`Engine::attach`] brings the lake.
    ///
    /// # Errors
    /// `Config`: an extension is missing, the secret file is wrong, or there is no published file yet. `Lake`: the
    /// catalog cannot be reached, or somebody else publishes to this schema.
    pub(super) fn open(errand: &Errand) -> Result<Engine> {
        if !errand.published.exists() {
            let text = format!(
                "there is no {} yet: `casemirror sync` publishes it, and the lake is made from it",
                errand.published.display()
            );
            return Err(Error::new(Kind::Config, text));
        }
        let engine = Engine::bare(errand)?;
        engine.configure(errand)?;
        extensions::load(&engine.conn, &errand.extensions, &errand.extensions())
            .map_err(|e| engine.hidden(e))?;
        if let Some(secret) = engine.secrets.object_store(&errand.data) {
            engine.run("use lake.secret_file", &secret)?;
        }
        let engine = engine.locked(errand)?;
        // Not before: another process that has the lock may be carrying a newer one.
        let published = sql::text(&errand.published.display().to_string());
        engine.run(
            "open the published file",
            &format!("ATTACH {published} AS {PUBLISHED} (READ_ONLY)"),
        )?;
        Ok(engine)
    }

    /// The lake's catalog alone, to be read: nothing is locked, made or changed. Data cannot be read: another tenant's may
    /// be in an object store of its own.
    ///
    /// # Errors
    /// `Config`: an extension is missing, or the secret file is wrong. `Lake`: the catalog cannot be reached, or has
    /// no such schema.
    pub(super) fn reading(errand: &Errand) -> Result<Engine> {
        let engine = Engine::bare(errand)?;
        extensions::load(&engine.conn, &errand.extensions, &errand.extensions())
            .map_err(|e| engine.hidden(e))?;
        let address = address(errand, &engine.secrets)?;
        engine.run(
            "open the lake",
            &format!(
                "ATTACH {} AS {LAKE} (METADATA_SCHEMA {}, READ_ONLY)",
                sql::text(&address),
                sql::text(&errand.schema)
            ),
        )?;
        Ok(engine)
    }

    /// The catalog's PostgreSQL alone, for a row of it.
    ///
    /// # Errors
    /// `Config`: an extension is missing, or the secret file is wrong. `Lake`: PostgreSQL cannot be reached.
    pub(super) fn catalog(errand: &Errand) -> Result<Engine> {
        let engine = Engine::bare(errand)?;
        engine.run("set up DuckDB", "SET threads = 1; SET memory_limit = '64MB'")?;
        extensions::load(&engine.conn, &errand.extensions, &["postgres_scanner"])
            .map_err(|e| engine.hidden(e))?;
        engine.attach_catalog(errand)?;
        Ok(engine)
    }

    fn bare(errand: &Errand) -> Result<Engine> {
        let secrets = Secrets::read(errand)?;
        let (hider, conn) = (secrets.hider(errand), extensions::duckdb()?);
        Ok(Engine { conn, secrets, lock: None, hider, threads: Threads::of(errand) })
    }

    /// Two empty databases in the places of the published file and of the lake.
    #[cfg(test)]
    pub(super) fn in_memory() -> Result<Engine> {
        let (secrets, hider) = (Secrets::default(), Hider::default());
        let (conn, threads) = (extensions::duckdb()?, Threads { writing: 1, comparing: 2 });
        let engine = Engine { conn, secrets, lock: None, hider, threads };
        for database in [PUBLISHED, LAKE] {
            engine.run("try it", &format!("ATTACH ':memory:' AS {database}"))?;
        }
        Ok(engine)
    }

    /// Attaches the catalog's PostgreSQL as it is; where the catalog is a file, nothing.
    fn attach_catalog(&self, errand: &Errand) -> Result<()> {
        let Catalog::Postgres(connection) = &errand.catalog else { return Ok(()) };
        let connection = sql::text(&self.secrets.connection(connection)?);
        self.run("reach the catalog", &format!("ATTACH {connection} AS {LOCK} (TYPE postgres)"))
    }

    /// Schema and name of the tables and views in these schemas of the lake.
    ///
    /// # Errors
    /// `Lake`.
    pub(super) fn relations(&self, schemas: &[&str]) -> Result<Vec<(String, String)>> {
        let schemas = sql::texts(schemas.iter().copied());
        self.query(
            "read the lake",
            &format!(
                "SELECT schema_name, table_name FROM duckdb_tables() \
                   WHERE database_name = '{LAKE}' AND schema_name IN ({schemas}) \
                 UNION ALL SELECT schema_name, view_name FROM duckdb_views() \
                   WHERE database_name = '{LAKE}' AND schema_name IN ({schemas}) AND NOT internal ORDER BY ALL"
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }

    fn configure(&self, errand: &Errand) -> Result<()> {
        let settings = [
            format!("SET memory_limit = {}", sql::text(memory_limit(errand))),
            format!("SET threads = {}", self.threads.writing),
            format!("SET temp_directory = {}", sql::text(&errand.spill.display().to_string())),
            "SET preserve_insertion_order = false".to_owned(),
            format!("SET partitioned_write_flush_threshold = {WAITING_ROWS}"),
            format!("SET perfect_ht_threshold = {GROUP_BITS}"),
        ];
        self.run("set up DuckDB", &settings.join("; "))
    }

    /// Takes the lock of this schema. PostgreSQL gives it back when the connection ends, however that comes.
    fn locked(mut self, errand: &Errand) -> Result<Engine> {
        if !matches!(errand.catalog, Catalog::Postgres(_)) {
            return Ok(self);
        }
        self.attach_catalog(errand)?;
        let lock = self.conn.try_clone().map_err(|e| sql::db("cannot open DuckDB twice", e))?;
        let name = sql::text(&format!("casemirror lake {}", errand.schema));
        let ask = format!("SELECT pg_try_advisory_xact_lock(hashtextextended({name}, 0))");
        let ask = in_postgres(&ask);
        // It rests while files are written, and a server that ends what rests would end the lock with it.
        let may_rest =
            in_postgres("SELECT set_config('idle_in_transaction_session_timeout', '0', true)");
        let is_ours: bool = lock
            .execute_batch("BEGIN")
            .and_then(|()| lock.query_row(&may_rest, [], |row| row.get::<_, String>(0)))
            .and_then(|_| lock.query_row(&ask, [], |row| row.get(0)))
            .map_err(|e| self.failed("lock the catalog", &e))?;
        if !is_ours {
            let text = format!(
                "another process publishes to the schema {} of the catalog just now: there is one writer per schema",
                errand.schema
            );
            return Err(Error::new(Kind::Lake, text));
        }
        self.lock = Some(lock);
        Ok(self)
    }

    /// Ends it; `well`: what was to be done is done. Where the catalog's PostgreSQL is away, or may be, nothing is closed:
    /// closing rolls back what is open, and DuckDB ends the whole process where that fails. The end of the process is
    /// near, and gives back the lock all the same.
    pub(super) fn close(self, well: bool) {
        if self.lock.is_some() && !(well && self.check_lock().is_ok()) {
            std::mem::forget(self);
        }
    }

    /// What files of a lake are to be like, which the lake remembers.
    ///
    /// # Errors
    /// `Lake`.
    pub(super) fn set_options(&self) -> Result<()> {
        self.run(
            "prepare the lake",
            &format!("CALL {LAKE}.set_option('parquet_row_group_size', {ROW_GROUP_ROWS})"),
        )
    }

    /// Whether nobody else can have begun to publish to this schema since the lock was taken.
    ///
    /// # Errors
    /// `Lake` where the connection that holds it is gone.
    pub(super) fn check_lock(&self) -> Result<()> {
        let Some(lock) = &self.lock else { return Ok(()) };
        lock.query_row(&in_postgres("SELECT 1"), [], |row| row.get::<_, i64>(0))
            .map(drop)
            .map_err(|e| self.failed("hold the catalog's lock", &e))
    }

    /// Runs statements; `doing` says what for, after "cannot".
    ///
    /// # Errors
    /// `Lake`, without secrets.
    pub(super) fn run(&self, doing: &str, sql: &str) -> Result<()> {
        self.conn.execute_batch(sql).map_err(|e| self.failed(doing, &e))
    }

    /// Does what reads narrow columns only, with all threads that there may be.
    ///
    /// # Errors
    /// Those of `work`; `Lake`.
    pub(super) fn comparing<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let set = |threads: usize| self.run("set up DuckDB", &format!("SET threads = {threads}"));
        set(self.threads.comparing)?;
        let found = work()?;
        set(self.threads.writing)?;
        Ok(found)
    }

    /// Runs one statement; returns how many rows it wrote.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub(super) fn write(&self, doing: &str, sql: &str) -> Result<u64> {
        let rows = self.conn.execute(sql, []).map_err(|e| self.failed(doing, &e))?;
        Ok(rows as u64)
    }

    /// All rows of a query.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub(super) fn query<T>(
        &self,
        doing: &str,
        sql: &str,
        read: impl FnMut(&duckdb::Row<'_>) -> duckdb::Result<T>,
    ) -> Result<Vec<T>> {
        let rows = || -> duckdb::Result<Vec<T>> {
            let mut statement = self.conn.prepare(sql)?;
            statement.query_map([], read)?.collect()
        };
        rows().map_err(|e| self.failed(doing, &e))
    }

    /// The one value of a query.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub(super) fn one<T: duckdb::types::FromSql>(&self, doing: &str, sql: &str) -> Result<T> {
        self.conn.query_row(sql, [], |row| row.get(0)).map_err(|e| self.failed(doing, &e))
    }

    fn hidden(&self, error: Error) -> Error {
        Error::new(error.kind(), self.hider.hide(&error.chain()))
    }

    /// DuckDB's words may hold the whole connection, with its password.
    fn failed(&self, doing: &str, error: &duckdb::Error) -> Error {
        Error::new(
            Kind::Lake,
            format!("cannot {doing}: {}", self.hider.hide(&error.to_string()).trim_end()),
        )
    }
}

/// A query as the catalog's PostgreSQL answers it, where that is attached.
pub(super) fn in_postgres(query: &str) -> String {
    format!("SELECT * FROM postgres_query({}, {})", sql::text(LOCK), sql::text(query))
}

/// A table of the lake's catalog, which is in this schema.
pub(super) fn in_catalog(schema: &str, table: &str) -> String {
    format!("__ducklake_metadata_{LAKE}.{}.{table}", sql::ident(schema))
}

/// `store.memory_limit`, or as much as is needed: this process is not the daemon's.
fn memory_limit(errand: &Errand) -> &str {
    let bytes = |limit: &str| config::memory_bytes(limit).unwrap_or_default();
    let own = errand.memory_limit.as_str();
    if bytes(own) < bytes(LEAST_MEMORY) { LEAST_MEMORY } else { own }
}

impl Threads {
    /// At least one that writes has the memory that it needs.
    fn of(errand: &Errand) -> Threads {
        let memory = config::memory_bytes(memory_limit(errand)).unwrap_or(THREAD_BYTES);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let comparing = errand.threads.unwrap_or(cores).max(1);
        // A limit of memory lies far below 2^53.
        Threads { writing: ((memory / THREAD_BYTES) as usize).clamp(1, comparing), comparing }
    }
}
