//! What became of values that a test has written into an answer: in the store, in the published
//! database and in its snapshot.

use casemirror::sandbox::Rule;
use duckdb::Connection;

use super::World;
use super::follow::{UNTHROTTLED, brisk, unthrottled};
use super::scripted::{fault, garbage};

/// A table whose rows come from a list of one case.
pub(crate) struct Listed {
    pub(crate) table: &'static str,
    /// `{}` stands for the case.
    pub(crate) path: &'static str,
    /// Which of the case's rows come from there; their key is the case, this and the id.
    pub(crate) part: Option<(&'static str, &'static str)>,
}

pub(crate) const ACTIVITIES: Listed =
    Listed { table: "activities", path: "/api/Cases/{}/Activities", part: None };
pub(crate) const COSTS: Listed = Listed {
    table: "costs",
    path: "/api/Conditions/Cases/{}/Costs/Buyer",
    part: Some(("cost_type", "Buyer")),
};
pub(crate) const NOTES: Listed = Listed { table: "notes", path: "/api/Notes/Case/{}", part: None };
pub(crate) const EXTERNAL_ENTRIES: Listed =
    Listed { table: "external_entries", path: "/api/Cases/{}/ExternalEntries", part: None };

/// A field's value as it is sent (nothing: the field is not there), as the column holds it, and why
/// it does not fit.
pub(crate) type Sent<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

/// A value that the column takes.
pub(crate) fn fits<'a>(json: &'a str, stored: &'a str) -> Sent<'a> {
    (json, Some(stored), None)
}

/// A value that says that there is none.
pub(crate) fn none(json: &str) -> Sent<'_> {
    (json, None, None)
}

/// A value that the column does not take.
pub(crate) fn misfit<'a>(json: &'a str, error: &'a str) -> Sent<'a> {
    (json, None, Some(error))
}

/// A small world, and what a run of `sync` mirrors of it when answers are scripted.
pub(crate) struct Scripted {
    pub(crate) world: World,
    pub(crate) case_id: i64,
}

impl Scripted {
    pub(crate) fn new() -> Scripted {
        let world = brisk(unthrottled(3));
        world.publish_snapshots();
        let case_id = world.sandbox.case_ids()[1];
        Scripted { world, case_id }
    }

    /// Answers for the case's list with these records, from now on.
    pub(crate) fn answer(&self, list: &Listed, records: &[String]) {
        let path = list.path.replace("{}", &self.case_id.to_string());
        self.world.sandbox.fault(fault(&path, None, garbage(&format!("[{}]", records.join(",")))));
    }

    /// Answers a call to this path with this body, from now on.
    pub(crate) fn answer_at(&self, path: &str, query: Option<&str>, body: &str) {
        let rule = fault(path, None, garbage(body));
        self.world.sandbox.fault(Rule { query: query.map(str::to_owned), ..rule });
    }

    /// Adds resource files of the user's own.
    pub(crate) fn add_resource(&self, table: &str, text: &str) {
        std::fs::create_dir_all(self.world.path("own")).unwrap();
        std::fs::write(self.world.path("own").join(format!("{table}.toml")), text).unwrap();
        self.world.configure(&format!("{UNTHROTTLED}[resources]\ndir = \"own\"\n"));
    }

    /// Runs `sync`; where a value did not fit, the run ends incomplete and says where.
    #[track_caller]
    pub(crate) fn sync(&self, misfits: bool) {
        let output = self.world.run(&["sync"]);
        super::follow::assert_status(&output, if misfits { 3 } else { 0 });
    }

    /// Rows of `SELECT {what} FROM <table> {rest}`, each cell as text: the same in the store, in the
    /// published database, and in the snapshot.
    #[track_caller]
    pub(crate) fn everywhere(
        &self,
        table: &str,
        what: &str,
        rest: &str,
    ) -> Vec<Vec<Option<String>>> {
        let (store, published) = (self.world.store(), self.world.published());
        let folder = self.world.path("data/parquet/latest");
        // A journal has a file per month.
        let snapshot = format!("read_parquet('{}/{table}/*.parquet')", folder.display());
        let select = |conn: &Connection, from: &str| {
            texts(conn, &format!("SELECT {what} FROM {from} {rest}"))
        };
        let stored = select(&store, &format!("main.{table}"));
        assert_eq!(select(&published, &format!("main.{table}")), stored, "published {table}");
        assert_eq!(select(&published, &snapshot), stored, "snapshot of {table}");
        stored
    }

    /// These columns of the list's rows, by id, the same everywhere.
    #[track_caller]
    pub(crate) fn rows(&self, list: &Listed, what: &str) -> Vec<Vec<Option<String>>> {
        let part = list.part.map_or(String::new(), |(column, is)| format!("AND {column} = '{is}'"));
        let rest = format!("WHERE case_id = {} {part} ORDER BY id", self.case_id);
        self.everywhere(list.table, what, &rest)
    }

    /// Open rejects of a table, the same in the store and in the published database.
    #[track_caller]
    pub(crate) fn rejects(&self, table: &str) -> Vec<Vec<Option<String>>> {
        let sql = format!(
            "SELECT record_key, column_name, value, error FROM sync.rejects \
             WHERE table_name = '{table}' AND resolved_at IS NULL ORDER BY ALL"
        );
        let stored = texts(&self.world.store(), &sql);
        assert_eq!(texts(&self.world.published(), &sql), stored, "published rejects of {table}");
        stored
    }

    /// Sends one record for each value of a field, mirrors them, and asserts what each column holds,
    /// what was kept beside it, and what was noted. `cell` is the column as text.
    #[track_caller]
    pub(crate) fn assert_values(
        &self,
        list: &Listed,
        field: &str,
        cell: &str,
        values: &[Sent<'_>],
    ) {
        let records: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(n, (json, _, _))| match *json {
                "" => format!(r#"{{"Id":{}}}"#, n + 1),
                json => format!(r#"{{"Id":{},"{field}":{json}}}"#, n + 1),
            })
            .collect();
        assert!(records.len() < 100, "a full hundred may be the first page of more");
        self.answer(list, &records);
        self.sync(values.iter().any(|(_, _, error)| error.is_some()));

        let stored = self.rows(list, &format!("id, {cell}, _extra"));
        assert_eq!(stored.len(), values.len(), "rows of {}", list.table);
        for ((json, column, error), row) in values.iter().zip(&stored) {
            assert_eq!(row[1].as_deref(), *column, "{field} sent as {json}");
            let extra = error.map(|_| format!(r#"{{"{field}":{json}}}"#));
            assert_eq!(row[2], extra, "_extra of {field} sent as {json}");
        }
        let mut noted: Vec<Vec<Option<String>>> = values
            .iter()
            .enumerate()
            .filter_map(|(n, (json, _, error))| {
                let key = self.key_of(list, n + 1);
                let column = cell_column(cell);
                error.map(|error| vec![Some(key), Some(column), text(json), text(error)])
            })
            .collect();
        noted.sort();
        let mut rejects = self.rejects(list.table);
        rejects.sort();
        assert_eq!(rejects, noted);
    }

    /// A record's key as rejects show it.
    pub(crate) fn key_of(&self, list: &Listed, id: usize) -> String {
        match list.part {
            Some((_, part)) => format!("{}/{part}/{id}", self.case_id),
            None => format!("{}/{id}", self.case_id),
        }
    }
}

/// The name of the column in `to_json(column)` or `column`.
fn cell_column(cell: &str) -> String {
    cell.trim_start_matches("to_json(").trim_end_matches(')').to_owned()
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Rows of a query, each cell as text.
pub(crate) fn texts(conn: &Connection, sql: &str) -> Vec<Vec<Option<String>>> {
    let sql = format!("SELECT COLUMNS(*)::VARCHAR FROM ({sql})");
    let mut statement = conn.prepare(&sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let mut rows = statement.query([]).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let mut all = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let columns = row.as_ref().column_count();
        all.push((0..columns).map(|i| row.get(i).unwrap()).collect());
    }
    all
}
