//! Which tables the lake has, and what decides that one of them has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use sha2::{Digest, Sha256};

use super::engine::{Engine, PUBLISHED};
use super::shown::{self, TableState};
use super::state::{self, State};
use crate::catalog::{EXTRA_COLUMN, LINE_NUMBER, NotedRows, TABLE_ROWS, TableRows};
use crate::counter;
use crate::error::Result;
use crate::sql;
use crate::text::hex;

/// The column of a journal's month, by which its files are parted.
const MONTH: &str = "journal_month";
const HISTORY: [&str; 3] = ["_valid_from", "_valid_to", "_change"];

/// A table of the published file, as it is to be in the lake.
pub(super) struct Table {
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) columns: Vec<Column>,
    pub(super) comment: Option<String>,
    /// Columns that tell its rows apart; never NULL where `is_key`.
    pub(super) identity: Vec<String>,
    pub(super) is_key: bool,
    /// Columns that move with every change of a row, beside its identity.
    pub(super) moving: Vec<String>,
    /// Since when these are what they are ([`TableRows::since`]).
    pub(super) moving_since: String,
    /// Rows are only added to it, each with a later `_valid_to`.
    pub(super) only_grows: bool,
    /// Its rows are parted by `journal_month`.
    pub(super) has_months: bool,
    /// About how many rows are published.
    pub(super) size: u64,
    /// While it stands, `moving` moves with every change; when it does not, all rows are written anew.
    pub(super) mark: String,
    /// The store's change counters by part, where it counts the table's changes: equal ones mean equal rows.
    pub(super) changes: Option<BTreeMap<String, i64>>,
    /// Of its changes those that the store has noted, where one can be told by whose rows it wrote.
    pub(super) noted: Option<Noted>,
}

/// The noted changes of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Noted {
    /// The column of its identity that says whose a row is.
    pub(super) scope: String,
    /// By what each moved the table's counter to.
    pub(super) changes: BTreeMap<i64, Change>,
}

/// A noted change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) id: String,
    /// It is noted whose rows it wrote.
    pub(super) has_scopes: bool,
}

/// One of its columns.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) comment: Option<String>,
}

impl Table {
    /// `main.cases`: what it is called in what the lake says of itself.
    pub(super) fn path(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// Its name within a database.
    pub(super) fn within(&self, database: &str) -> String {
        format!("{database}.{}.{}", sql::ident(&self.schema), sql::ident(&self.name))
    }

    /// Its columns, quoted.
    pub(super) fn all_columns(&self) -> String {
        sql::idents(self.columns.iter().map(|column| column.name.as_str()))
    }

    /// What is remembered of it when the lake is equal to it.
    pub(super) fn state(&self, is_partly_compared: bool) -> TableState {
        TableState {
            mark: self.mark.clone(),
            changes: self.changes.clone(),
            last_change: self.last_change().cloned(),
            is_partly_compared,
        }
    }

    /// The id of the last change of its rows, where the store has noted it.
    pub(super) fn last_change(&self) -> Option<&String> {
        let last = self.noted.as_ref()?.changes.get(&self.counter()?)?;
        Some(&last.id)
    }

    /// Since the lake was as `before` says, changes that moved the counter to these have written rows, and of each one it
    /// is noted whose: the scopes of all of them are all that can differ. `None` where that is not known.
    pub(super) fn noted_since(&self, before: &TableState) -> Option<RangeInclusive<i64>> {
        let (noted, now) = (self.noted.as_ref()?, self.counter()?);
        let then = before.changes.as_ref().and_then(whole)?;
        let since = then.checked_add(1)?..=now;
        if !self.knows(before) || since.is_empty() {
            return None;
        }
        let with_scopes =
            noted.changes.range(since.clone()).filter(|(_, change)| change.has_scopes);
        // A version before did not count in these bits.
        if counter::count(then) == 0 {
            return None;
        }
        let changes = counter::count(now).abs_diff(counter::count(then));
        (with_scopes.count() as u64 == changes).then_some(since)
    }

    /// Whether its store has come by the state that the lake had before: the change that was the last one then it has noted.
    pub(super) fn knows(&self, before: &TableState) -> bool {
        let then = before.changes.as_ref().and_then(whole);
        let change =
            self.noted.as_ref().zip(then).and_then(|(noted, then)| noted.changes.get(&then));
        change.is_some_and(|change| before.last_change.as_ref() == Some(&change.id))
    }

    /// How often any of its rows were changed, where that is one number.
    fn counter(&self) -> Option<i64> {
        self.changes.as_ref().and_then(whole)
    }

    fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|c| c.name == column)
    }
}

/// The counter of all of a table, where it has no other.
fn whole(changes: &BTreeMap<String, i64>) -> Option<i64> {
    changes.get("").copied().filter(|_| changes.len() == 1)
}

/// All tables that the lake is to have, in the order of their names.
///
/// # Errors
/// `Lake`.
pub(super) fn all(engine: &Engine) -> Result<Vec<Table>> {
    let mut tables = read(engine)?;
    let definitions = Definitions::read(engine)?;
    // By what the file was made with: the resource files may be others now. One of an earlier version says nothing.
    let rows = NotedRows::parse(shown::meta(engine, TABLE_ROWS)?.as_deref()).unwrap_or_default();
    let (changes, noted) = (changes(engine)?, noted(engine)?);
    for table in &mut tables {
        match table.schema.as_str() {
            "main" | "history" => {
                let noted = noted.get(&table.name).cloned().unwrap_or_default();
                describe(table, rows.get(&table.name), &definitions, noted);
                table.changes = changes.get(&table.name).cloned();
            }
            "sync" => describe_state(table),
            _ => {}
        }
        if table.identity.is_empty() {
            table.identity = table.columns.iter().map(|c| c.name.clone()).collect();
            table.is_key = false;
        }
        table.mark = definitions.mark(table);
    }
    Ok(tables)
}

fn read(engine: &Engine) -> Result<Vec<Table>> {
    let which = format!(
        "database_name = '{PUBLISHED}' AND (schema_name IN ('main', 'history') \
           OR schema_name = 'report' AND table_name = 'calendar' \
           OR schema_name = 'sync' AND table_name IN ({}))",
        sql::texts(state::names())
    );
    let mut tables: BTreeMap<(String, String), Table> = engine
        .query(
            "read what is published",
            &format!(
                "SELECT schema_name, table_name, comment, estimated_size FROM duckdb_tables() WHERE {which}"
            ),
            |row| {
                let of = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
                Ok((of.0, of.1, row.get(2)?, row.get::<_, i64>(3)?.unsigned_abs()))
            },
        )?
        .into_iter()
        .map(|(schema, name, comment, size)| {
            let table = Table {
                schema: schema.clone(),
                name: name.clone(),
                columns: Vec::new(),
                comment,
                identity: Vec::new(),
                is_key: false,
                moving: Vec::new(),
                moving_since: String::new(),
                only_grows: false,
                has_months: false,
                size,
                mark: String::new(),
                changes: None,
                noted: None,
            };
            ((schema, name), table)
        })
        .collect();
    let columns = engine.query(
        "read what is published",
        &format!(
            "SELECT schema_name, table_name, column_name, data_type, comment FROM duckdb_columns() \
             WHERE {which} ORDER BY column_index"
        ),
        |row| {
            let of = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
            Ok((of, Column { name: row.get(2)?, kind: row.get(3)?, comment: row.get(4)? }))
        },
    )?;
    for (of, column) in columns {
        let Some(table) = tables.get_mut(&of) else { continue };
        if of.0 != "sync" || State::of(&of.1).is_none_or(|state| state.has(&column.name)) {
            table.columns.push(column);
        }
    }
    Ok(tables.into_values().collect())
}

/// A mirrored table, or the earlier versions of its rows.
fn describe(
    table: &mut Table,
    rows: Option<&TableRows>,
    definitions: &Definitions,
    noted: BTreeMap<i64, Change>,
) {
    table.has_months = table.columns.iter().any(|c| c.name == MONTH && c.kind == "DATE");
    // What no resource file describes any more is compared whole.
    let Some(rows) = rows.filter(|rows| rows.key.iter().all(|key| table.has(key))) else {
        return;
    };
    table.identity = rows.key.clone();
    table.is_key = !rows.has_gaps;
    table.noted = rows.scope.clone().map(|scope| Noted { scope, changes: noted });
    if table.schema == "history" {
        table.identity.extend(HISTORY.map(str::to_owned));
        table.only_grows = true;
        return;
    }
    // A row keeps its `_synced_at` when only these change (docs/architecture.md, "Values").
    let volatile = rows.volatile.iter().map(String::as_str);
    let mut moving: BTreeSet<&str> = volatile.chain(["_synced_at", LINE_NUMBER]).collect();
    let redefined = definitions.redefined(&table.name);
    if !redefined.is_empty() || definitions.later.contains(&table.name) {
        moving.insert(EXTRA_COLUMN);
        moving.extend(redefined);
    }
    let moving: Vec<String> = moving.into_iter().map(str::to_owned).collect();
    table.moving =
        moving.into_iter().filter(|c| table.has(c) && !table.identity.contains(c)).collect();
    table.moving_since.clone_from(&rows.since);
}

fn describe_state(table: &mut Table) {
    let Some(state) = State::of(&table.name) else { return };
    table.identity = state.key.iter().map(|column| (*column).to_owned()).collect();
    if !state.key.is_empty() && !state.only_added {
        let others = table.columns.iter().map(|c| c.name.clone());
        table.moving = others.filter(|c| !table.identity.contains(c)).collect();
    }
}

/// How the store's columns are defined, and how often values were erased from its rows.
struct Definitions {
    /// Table, column, definition, and the number of the catalog since which it is so.
    columns: Vec<(String, String, String, i64)>,
    /// Tables that were defined anew after they were made: a column that was dropped, or a child table that took a field,
    /// changes `_extra`, and leaves nothing in `columns`.
    later: BTreeSet<String>,
    erasures: String,
    /// Of the store: an upgrade may rewrite rows, those of history too.
    format: String,
}

impl Definitions {
    fn read(engine: &Engine) -> Result<Definitions> {
        let columns = engine.query(
            "read what is published",
            &format!(
                "SELECT table_name, column_name, definition, since FROM {PUBLISHED}.sync.columns ORDER BY ALL"
            ),
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )?;
        let later: Vec<String> = engine.query(
            "read what is published",
            &format!(
                "SELECT table_name FROM {PUBLISHED}.sync.resources GROUP BY ALL HAVING max(definition) > 1"
            ),
            |row| row.get(0),
        )?;
        let later = later.into_iter().collect();
        let meta = |key| shown::meta(engine, key).map(Option::unwrap_or_default);
        Ok(Definitions {
            columns,
            later,
            erasures: meta(shown::ERASURES)?,
            format: meta("format")?,
        })
    }

    /// Columns that were defined anew after their table was made: they change without a new `_synced_at`.
    fn redefined(&self, table: &str) -> Vec<&str> {
        let own = || self.columns.iter().filter(|(of, ..)| of == table);
        let first = own().map(|(.., since)| *since).min().unwrap_or_default();
        own().filter(|(.., since)| *since > first).map(|(_, column, ..)| column.as_str()).collect()
    }

    fn mark(&self, table: &Table) -> String {
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text.as_bytes());
        };
        add(&self.erasures);
        add(&self.format);
        for column in &table.columns {
            add(&column.name);
            add(&column.kind);
        }
        table.identity.iter().chain(&table.moving).for_each(|column| add(column));
        if !table.moving_since.is_empty() {
            add(&table.moving_since);
        }
        table.noted.iter().for_each(|noted| add(&noted.scope));
        if matches!(table.schema.as_str(), "main" | "history") {
            for (_, column, definition, since) in
                self.columns.iter().filter(|(of, ..)| *of == table.name)
            {
                add(column);
                add(definition);
                add(&since.to_string());
            }
        }
        hex(&digest.finalize())
    }
}

/// The changes in `sync.changed_scopes`, by table and number. A file of an earlier version has none.
fn noted(engine: &Engine) -> Result<BTreeMap<String, BTreeMap<i64, Change>>> {
    let doing = "read what is published";
    let is_there: bool = engine.one(
        doing,
        &format!(
            "SELECT count(*) > 0 FROM duckdb_tables() WHERE database_name = '{PUBLISHED}' \
               AND schema_name = 'sync' AND table_name = 'changed_scopes'"
        ),
    )?;
    if !is_there {
        return Ok(BTreeMap::new());
    }
    let rows: Vec<(String, i64, Change)> = engine.query(
        doing,
        &format!(
            "SELECT table_name, counter, change::VARCHAR, scopes IS NOT NULL \
             FROM {PUBLISHED}.sync.changed_scopes"
        ),
        |row| Ok((row.get(0)?, row.get(1)?, Change { id: row.get(2)?, has_scopes: row.get(3)? })),
    )?;
    let mut noted: BTreeMap<String, BTreeMap<i64, Change>> = BTreeMap::new();
    for (table, counter, change) in rows {
        noted.entry(table).or_default().insert(counter, change);
    }
    Ok(noted)
}

/// `sync.changes`, by table and part.
fn changes(engine: &Engine) -> Result<BTreeMap<String, BTreeMap<String, i64>>> {
    let rows: Vec<(String, String, i64)> = engine.query(
        "read what is published",
        &format!("SELECT table_name, part, counter FROM {PUBLISHED}.sync.changes"),
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let mut changes: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
    for (table, part, counter) in rows {
        changes.entry(table).or_default().insert(part, counter);
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::lake::carry::{Rows, Way};
    use crate::lake::differing::Among;
    use crate::lake::engine::LAKE;

    /// A table of a mirror, as the published file and the lake have it.
    fn published(engine: &Engine, name: &str) -> Table {
        let catalog = Catalog::load(None).unwrap();
        let (resource, noted) =
            (catalog.get(name).unwrap(), NotedRows::of(&catalog, None, String::new));
        let columns = resource.columns.iter().map(|c| format!("{} VARCHAR", sql::ident(&c.name)));
        let columns = columns.collect::<Vec<_>>().join(", ");
        for database in [PUBLISHED, LAKE] {
            let table = format!("{database}.main.{}", sql::ident(name));
            engine
                .run("x", &format!("CREATE TABLE {table} ({columns}, _synced_at TIMESTAMPTZ)"))
                .unwrap();
        }
        let columns = engine
            .query("x", &format!("DESCRIBE {PUBLISHED}.main.{}", sql::ident(name)), |row| {
                Ok(Column { name: row.get(0)?, kind: row.get(1)?, comment: None })
            })
            .unwrap();
        let mut table = Table {
            schema: "main".to_owned(),
            name: name.to_owned(),
            columns,
            comment: None,
            identity: Vec::new(),
            is_key: false,
            moving: Vec::new(),
            moving_since: String::new(),
            only_grows: false,
            has_months: false,
            size: 1,
            mark: String::new(),
            changes: None,
            noted: None,
        };
        let definitions = Definitions {
            columns: Vec::new(),
            later: BTreeSet::new(),
            erasures: String::new(),
            format: String::new(),
        };
        describe(&mut table, noted.get(name), &definitions, BTreeMap::new());
        table
    }

    #[test]
    fn a_file_of_an_earlier_version_has_noted_nothing() {
        let engine = Engine::in_memory().unwrap();
        assert_eq!(noted(&engine).unwrap(), BTreeMap::new());
        engine
            .run(
                "x",
                &format!(
                    "CREATE SCHEMA {PUBLISHED}.sync; \
                     CREATE TABLE {PUBLISHED}.sync.changed_scopes AS \
                       SELECT 'notes' AS table_name, n AS counter, uuid() AS change, \
                         CASE WHEN n <> 2 THEN [n] END AS scopes FROM range(1, 4) r(n)"
                ),
            )
            .unwrap();
        let noted = noted(&engine).unwrap();
        let numbers: Vec<i64> = noted["notes"].keys().copied().collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert!(!noted["notes"][&2].has_scopes && noted["notes"][&3].has_scopes);
    }

    #[test]
    fn events_of_no_case_and_of_no_time_come_too() {
        let engine = Engine::in_memory().unwrap();
        assert!(published(&engine, "cases").is_key);
        let events = published(&engine, "events");
        engine
            .run(
                "x",
                &format!(
                    "INSERT INTO {PUBLISHED}.main.events (event_type, id, case_id, occurred_at, _synced_at) VALUES \
                       ('HyperlinkChanged', '1', NULL, '2026-11-20', '2026-11-20'), \
                       ('HyperlinkChanged', NULL, '7', NULL, '2026-11-20'), \
                       ('HyperlinkChanged', NULL, '7', NULL, '2026-11-20')"
                ),
            )
            .unwrap();
        let all = Way::Differences(Among::All);
        let carry = || all.go(&engine, &events).unwrap();
        assert_eq!(carry(), Rows { written: 3, removed: 0 });
        assert_eq!(carry(), Rows::default());
    }
}
