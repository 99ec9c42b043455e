//! Worlds with a lake, and what its readers see.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use casemirror::sandbox::Options;
use duckdb::{Config, Connection};

use super::follow::{self, UNTHROTTLED};
use super::objects::{self, ObjectStore};
use super::postgres::{PASSWORD, Postgres};
use super::{World, binary, one, shown};
use crate::readers::environment;

/// The extensions, installed once for all tests by `casemirror lake install`; `None` where they may be missing.
fn extensions() -> Option<&'static Path> {
    static INSTALLED: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        let packages = packages()?;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("casemirror.toml"), "[store]\npath = \"store.duckdb\"\n")
            .unwrap();
        let mut install = binary();
        install.current_dir(folder.path()).args(["lake", "install", "--from"]).arg(packages);
        let output = install.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        let extensions = folder.path().join("extensions");
        Some((folder, extensions))
    });
    installed.as_ref().map(|(_, extensions)| extensions.as_path())
}

/// Where the environment for the tests of the lake has its packages.
pub(crate) fn packages() -> Option<PathBuf> {
    let bin = environment("lake")?;
    let versions = fs::read_dir(bin.parent().unwrap().join("lib")).unwrap();
    let packages = versions.map(|entry| entry.unwrap().path().join("site-packages"));
    packages.into_iter().find(|path| path.exists())
}

/// The file of one of the installed extensions.
fn extension(name: &str) -> PathBuf {
    let mut folder = extensions().unwrap().to_owned();
    // By version and machine.
    for _ in 0..2 {
        folder = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    }
    folder.join(format!("{name}.duckdb_extension"))
}

/// A world that publishes to a lake.
pub(crate) struct LakeWorld {
    pub(crate) world: World,
    catalog: String,
    data: &'static str,
    schema: String,
    /// Statements by which a reader comes to the data.
    access: String,
}

/// A folder of the world's.
const FOLDER: &str = "data/lake";
/// A place in the bucket.
pub(crate) const PLACE: &str = "team/lake";

impl LakeWorld {
    /// With a DuckDB file as its catalog; `None` where the extensions are missing and may be.
    pub(crate) fn in_a_file(cases: usize) -> Option<LakeWorld> {
        let world = World::with(follow::unthrottled(cases));
        LakeWorld::of(world, "data/lake.ducklake".to_owned(), "main")
    }

    /// With its data in a bucket.
    pub(crate) fn in_a_bucket(cases: usize, store: &ObjectStore) -> Option<LakeWorld> {
        let mut lake = LakeWorld::in_a_file(cases)?;
        lake.data = "s3://mirror/team/lake";
        lake.find_store_at(store.port);
        lake.access = format!(
            "LOAD '{}'; CREATE SECRET (TYPE s3, KEY_ID 'AKIAMIRROR', SECRET '{}', REGION 'us-east-1', \
               ENDPOINT '127.0.0.1:{}', URL_STYLE 'path', USE_SSL false);",
            extension("httpfs").display(),
            objects::SECRET,
            store.port
        );
        lake.configure(UNTHROTTLED, "");
        Some(lake)
    }

    /// Tells the program at which port the object store answers.
    pub(crate) fn find_store_at(&self, port: u16) {
        self.write_secrets(&format!(
            "s3_key_id = \"AKIAMIRROR\"\ns3_secret = \"{}\"\ns3_region = \"us-east-1\"\n\
             s3_endpoint = \"127.0.0.1:{port}\"\ns3_url_style = \"path\"\ns3_use_ssl = false\n",
            objects::SECRET
        ));
    }

    fn write_secrets(&self, text: &str) {
        let secrets = self.world.path("lake.toml");
        fs::write(&secrets, text).unwrap();
        fs::set_permissions(secrets, Permissions::from_mode(0o600)).unwrap();
    }

    /// With its catalog in PostgreSQL.
    pub(crate) fn in_postgres(
        cases: usize,
        postgres: &Postgres,
        schema: &str,
    ) -> Option<LakeWorld> {
        LakeWorld::over(follow::unthrottled(cases), postgres, schema)
    }

    /// The same over a brokerage with other options.
    pub(crate) fn over(options: Options, postgres: &Postgres, schema: &str) -> Option<LakeWorld> {
        let catalog = format!("postgres:{}", postgres.connection());
        LakeWorld::of(World::with(options), catalog, schema)
    }

    fn of(world: World, catalog: String, schema: &str) -> Option<LakeWorld> {
        let installed = extensions()?;
        fs::create_dir_all(world.path("data")).unwrap();
        symlink(installed, world.path("data/extensions")).unwrap();
        let (schema, access) = (schema.to_owned(), String::new());
        let lake = LakeWorld { world, catalog, data: FOLDER, schema, access };
        lake.write_secrets(&format!("postgres_password = \"{PASSWORD}\"\n"));
        lake.configure(UNTHROTTLED, "");
        Some(lake)
    }

    /// Writes the configuration: `before` comes before the lake's section, `more` is added to that.
    pub(crate) fn configure(&self, before: &str, more: &str) {
        self.world.configure(&format!(
            "{before}[lake]\ncatalog = \"{}\"\ndata = \"{}\"\nschema = \"{}\"\nsecret_file = \"lake.toml\"\n\
             {more}",
            self.catalog, self.data, self.schema
        ));
    }

    /// The lake, as a reader has it.
    pub(crate) fn reader(&self) -> Connection {
        self.readers().connect()
    }

    /// The lake, as somebody has it who may write to it.
    pub(crate) fn meddler(&self) -> Connection {
        Readers(self.readers().0.replace(", READ_ONLY", "")).connect()
    }

    /// A lake that somebody else has in the same catalog.
    pub(crate) fn another(&self, schema: &str) -> Connection {
        let ours = format!("METADATA_SCHEMA '{}', READ_ONLY", self.schema);
        let data = self.world.path(schema).display().to_string();
        let theirs = format!("METADATA_SCHEMA '{schema}', DATA_PATH '{data}'");
        Readers(self.readers().0.replace(&ours, &theirs)).connect()
    }

    /// What a reader has to know.
    pub(crate) fn readers(&self) -> Readers {
        let mut catalog = self.catalog.clone();
        if catalog.starts_with("postgres:") {
            catalog += &format!(" password={PASSWORD}");
        } else {
            catalog = self.world.path(&catalog).display().to_string();
        }
        let (access, schema) = (&self.access, &self.schema);
        Readers(format!(
            "{access} ATTACH 'ducklake:{catalog}' AS lake (METADATA_SCHEMA '{schema}', READ_ONLY)"
        ))
    }

    /// Asserts that the lake is the published file: every table and report of it, cell by cell, their columns and
    /// comments; and that it says so.
    pub(crate) fn assert_equal(&self) {
        let conn = self.beside_the_published();
        let relations = relations(&conn, "published");
        assert!(relations.len() > 80, "{relations:?}");
        assert_eq!(relations, self::relations(&conn, "lake"));
        relations.iter().for_each(|(schema, name)| assert_same_rows(&conn, schema, name));
        // DuckLake keeps no comments of a view's columns.
        let columns = |database: &str| {
            format!(
                "SELECT schema_name, table_name, column_index, column_name, data_type, \
                   CASE WHEN schema_name = 'report' AND table_name <> 'calendar' THEN NULL ELSE comment END \
                 FROM duckdb_columns() WHERE database_name = '{database}' \
                   AND schema_name IN ('main', 'history', 'report')"
            )
        };
        let (lake, published) = (columns("lake"), columns("published"));
        let different: Option<String> = one(
            &conn,
            &format!(
                "SELECT string_agg(DISTINCT schema_name || '.' || table_name || '.' || column_name) \
                 FROM (({lake}) EXCEPT ALL ({published}))"
            ),
        );
        assert_eq!(different, None);
        let uncommented: i64 = one(
            &conn,
            "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'lake' AND schema_name = 'main' \
             AND comment IS NULL",
        );
        assert_eq!(uncommented, 0);
    }

    /// Asserts the same of the rows of the tables, which the reports are made of.
    pub(crate) fn assert_equal_tables(&self) {
        let conn = self.beside_the_published();
        let relations = relations(&conn, "published");
        let tables = relations.iter().filter(|(schema, _)| schema != "report");
        tables.for_each(|(schema, name)| assert_same_rows(&conn, schema, name));
    }

    /// Both, which name the same snapshot.
    fn beside_the_published(&self) -> Connection {
        let conn = self.reader();
        let file = self.world.path("data/casemirror.duckdb");
        conn.execute_batch(&format!("ATTACH '{}' AS published (READ_ONLY)", file.display()))
            .unwrap();
        let id: String = one(&conn, "SELECT snapshot_id FROM lake.sync.lake_snapshot");
        let published: String = one(&conn, "SELECT snapshot_id FROM published.report.snapshot");
        assert_eq!(id, published);
        conn
    }

    /// The first and the last snapshot of the lake in which a report was made that it has now.
    pub(crate) fn reports_since(&self) -> (i64, i64) {
        let catalog = format!("__ducklake_metadata_lake.{}", self.schema);
        let since = format!(
            "SELECT min(begin_snapshot), max(begin_snapshot) FROM (\
               SELECT begin_snapshot FROM {catalog}.ducklake_view WHERE end_snapshot IS NULL \
               UNION ALL SELECT begin_snapshot FROM {catalog}.ducklake_macro WHERE end_snapshot IS NULL)"
        );
        self.reader().query_row(&since, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    /// Runs `lake publish`; returns what it printed.
    pub(crate) fn publish(&self) -> String {
        let output = self.world.run(&["lake", "publish"]);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        assert_no_secret(&output);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Files below the folder of the lake's data.
    pub(crate) fn files(&self) -> usize {
        count(&self.world.path(FOLDER))
    }
}

/// How a lake is attached.
pub(crate) struct Readers(String);

impl Readers {
    pub(crate) fn connect(&self) -> Connection {
        let conn = in_memory();
        conn.execute_batch(&self.0).unwrap();
        conn
    }
}

fn assert_same_rows(conn: &Connection, schema: &str, name: &str) {
    let different: i64 = one(
        conn,
        &format!(
            "SELECT count(*) FROM (SELECT * EXCLUDE (_n), sum(_n) AS _n FROM (\
               SELECT *, 1 AS _n FROM lake.{schema}.\"{name}\" \
               UNION ALL SELECT *, -1 AS _n FROM published.{schema}.\"{name}\") \
             GROUP BY ALL) WHERE _n <> 0"
        ),
    );
    assert_eq!(different, 0, "{schema}.{name} differs");
}

/// A DuckDB with the extensions.
pub(crate) fn in_memory() -> Connection {
    let config = Config::default().enable_autoload_extension(false).unwrap();
    let conn = Connection::open_in_memory_with_flags(config).unwrap();
    for name in ["ducklake", "postgres_scanner"] {
        conn.execute_batch(&format!("LOAD '{}'", extension(name).display())).unwrap();
    }
    conn
}

/// Asserts that neither the password of the catalog nor the key of the object store is in a word of it.
pub(crate) fn assert_no_secret(output: &Output) {
    for secret in [PASSWORD, objects::SECRET] {
        assert!(!shown(output).contains(secret), "{}", shown(output));
    }
}

fn relations(conn: &Connection, database: &str) -> Vec<(String, String)> {
    conn.prepare(&format!(
        "SELECT schema_name, table_name FROM duckdb_tables() \
           WHERE database_name = '{database}' AND schema_name IN ('main', 'history', 'report') \
         UNION ALL SELECT schema_name, view_name FROM duckdb_views() \
           WHERE database_name = '{database}' AND schema_name = 'report' ORDER BY ALL"
    ))
    .unwrap()
    .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
    .unwrap()
    .map(Result::unwrap)
    .collect()
}

fn count(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
}
