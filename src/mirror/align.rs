//! Bringing the store's tables up to the catalog: tables and columns that it lacks are made, those that
//! no file describes any more leave, and what is defined anew makes every scope stale and no version
//! (docs/architecture.md, "Values").

use std::collections::{BTreeMap, BTreeSet};

use duckdb::{Connection, params};

use super::definition::{definition, differ_in_mode_alone, is_tighter, mode};
use super::privacy::{self, Stricter};
use super::schema::{meta, set_meta};
use super::state::State;
use super::state::fetched::FetchedScopes;
use super::undescribed;
use super::{forgetting, freshness};
use crate::catalog::{Catalog, Column, EXTRA_COLUMN, Resource};
use crate::config::{Config, PrivacyMode};
use crate::error::Result;
use crate::scope::{DueReason, Mark};
use crate::sql::{self, db, instant_param, query};

/// Creates tables and columns that the catalog has and the store lacks, and notes which definitions
/// are new.
pub(super) fn align(
    conn: &Connection,
    config: &Config,
    catalog: &Catalog,
    key: [u8; 32],
) -> Result<()> {
    let freed = undescribed::take_out(conn, catalog)?;
    let mut alignment = Alignment::begin(conn, config)?;
    for resource in catalog.resources() {
        alignment.table(resource, freed.contains(&resource.table))?;
    }
    alignment.end(catalog, key)
}

/// The number of the catalog that the store was last brought up to: the next with each that defines
/// something anew.
pub(super) fn generation(conn: &Connection) -> Result<i64> {
    Ok(meta(conn, "definition")?.and_then(|v| v.parse().ok()).unwrap_or(1))
}

/// The store and the catalog on their way to each other.
struct Alignment<'a> {
    conn: &'a Connection,
    config: &'a Config,
    /// The tables of the store, without those that came back just now.
    in_store: BTreeSet<String>,
    /// What the store's columns are defined as, by table.
    known: BTreeMap<String, BTreeMap<String, String>>,
    /// The number of the catalog that the store was last brought up to, and of this one: the next, if
    /// anything moved.
    generation: i64,
    newest: i64,
    /// Texts of somebody are kept out.
    any_forgotten: bool,
    stricter: Vec<Stricter<'a>>,
    /// What `sync.columns` has to say anew.
    defined: Vec<Defined<'a>>,
    /// Whether there is a table that is not as it was.
    any_changed: bool,
}

/// A row of `sync.columns`.
struct Defined<'a> {
    table: &'a str,
    column: &'a Column,
    definition: String,
    since: i64,
}

/// What a table is to the store that it is brought up in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The store has never had it.
    New,
    /// Its file was away: its history is there.
    Away,
    There,
}

impl<'a> Alignment<'a> {
    fn begin(conn: &'a Connection, config: &'a Config) -> Result<Alignment<'a>> {
        let tables = query(conn, "SELECT table_name FROM sync.resources", |row| row.get(0))?;
        let columns: Vec<(String, String, String)> =
            query(conn, "SELECT table_name, column_name, definition FROM sync.columns", |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        let mut known: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for (table, column, definition) in columns {
            known.entry(table).or_default().insert(column, definition);
        }
        let generation = generation(conn)?;
        Ok(Alignment {
            conn,
            config,
            in_store: tables.into_iter().collect(),
            known,
            generation,
            newest: generation,
            any_forgotten: forgetting::any_text(conn)?,
            stricter: Vec::new(),
            defined: Vec::new(),
            any_changed: false,
        })
    }

    /// Brings one table up to its file. `freed`: a table that was read with it has left.
    fn table(&mut self, resource: &'a Resource, freed: bool) -> Result<()> {
        let known = self.known.remove(&resource.table);
        let before = match &known {
            None => Before::New,
            Some(_) if !self.in_store.contains(&resource.table) => Before::Away,
            Some(_) => Before::There,
        };
        let known = known.unwrap_or_default();
        match before {
            Before::New => self.create(resource)?,
            Before::Away => undescribed::revive(self.conn, resource)?,
            Before::There => {}
        }
        if before != Before::There {
            self.enter(resource)?;
        }
        // A child table is fetched with its parent, whose `_extra` its field leaves or enters.
        let is_new_child = before != Before::There
            && resource.read_with() != resource.table
            && self.in_store.contains(resource.read_with());
        let mut moved = is_new_child || freed;
        for column in &resource.columns {
            let was = known.get(&column.name);
            let is_new_table = before == Before::New;
            moved |= self.column(resource, column, was, is_new_table, is_new_child)?;
        }
        for column in known.keys().filter(|column| resource.column(column).is_none()) {
            drop_column(self.conn, &resource.table, column)?;
            moved = true;
        }
        if moved {
            self.newest = self.generation + 1;
            self.read_anew(resource)?;
        }
        if moved || before != Before::There {
            self.any_changed = true;
        }
        Ok(())
    }

    fn create(&self, resource: &Resource) -> Result<()> {
        for (schema, history) in [("main", false), ("history", true)] {
            self.conn
                .execute_batch(&resource.create_table(schema, history))
                .map_err(|e| db(&format!("cannot make {schema}.{}", resource.table), e))?;
        }
        Ok(())
    }

    /// A table begins in the store.
    fn enter(&self, resource: &Resource) -> Result<()> {
        let now = instant_param(jiff::Timestamp::now());
        self.conn
            .execute(
                "INSERT INTO sync.resources (table_name, status, since, answered, definition, \
                   read_with, history_since) \
                 VALUES (?, 'ok', ?::TIMESTAMPTZ, false, ?, ?, ?::TIMESTAMPTZ)",
                // Nobody kept what it held before, here or at the source.
                params![resource.table, now, self.generation, resource.read_with(), now],
            )
            .map(drop)
            .map_err(|e| db("cannot write sync.resources", e))
    }

    /// Brings one column up to its file, as `was` defined before; returns whether that makes the table
    /// stale.
    fn column(
        &mut self,
        resource: &'a Resource,
        column: &'a Column,
        was: Option<&String>,
        is_new_table: bool,
        is_new_child: bool,
    ) -> Result<bool> {
        let now = definition(self.config, column);
        if was == Some(&now) {
            return Ok(false);
        }
        let mode = mode(self.config, column);
        let is_tighter = was.is_some_and(|was| is_tighter(was, &now));
        // Of texts from which a forgotten person was taken out, what is left is hashed; what is fetched from now on is
        // hashed as a whole.
        let differs_from_fetched =
            self.any_forgotten && mode == PrivacyMode::Hash && !resource.stays_known(column);
        if is_tighter && !differs_from_fetched {
            // What is fetched from now on is what is stored when that is rewritten: nothing is stale.
            self.conn
                .execute(
                    "UPDATE sync.columns SET definition = ? WHERE table_name = ? AND column_name = ?",
                    params![now, resource.table, column.name],
                )
                .map_err(|e| db("cannot write sync.columns", e))?;
            self.stricter.push(Stricter { resource, column, mode });
            return Ok(false);
        }
        // What the column takes from now on was kept elsewhere, as if it had no class.
        let takes_other = was.is_none_or(|was| !differ_in_mode_alone(was, &now));
        let is_new_here = takes_other && (!is_new_table || is_new_child);
        if mode != PrivacyMode::Keep && (is_new_here || is_tighter) {
            self.stricter.push(Stricter { resource, column, mode });
        }
        if !is_new_table {
            self.newest = self.generation + 1;
            redefine(self.conn, resource, column, was, &now)?;
        }
        let since = if is_new_table { self.generation } else { self.newest };
        self.defined.push(Defined { table: &resource.table, column, definition: now, since });
        Ok(!is_new_table)
    }

    /// Everything of a table, and of the one that it is read with, is read again.
    fn read_anew(&self, resource: &Resource) -> Result<()> {
        for table in BTreeSet::from([resource.table.as_str(), resource.read_with()]) {
            self.conn
                .execute(
                    "UPDATE sync.resources SET definition = ? WHERE table_name = ?",
                    params![self.newest, table],
                )
                .and_then(|_| {
                    self.conn.execute(
                        "UPDATE sync.journal_months SET due = ? WHERE table_name = ? AND complete",
                        params![DueReason::Redefined.name(), table],
                    )
                })
                .map_err(|e| db("cannot make a table stale", e))?;
            let these = format!("SELECT {}", sql::text(table));
            FetchedScopes::new(self.conn).mark_tables(&these, Mark::Redefined)?;
        }
        Ok(())
    }

    /// Writes what was found, and what follows from it for other tables.
    fn end(self, catalog: &Catalog, key: [u8; 32]) -> Result<()> {
        let conn = self.conn;
        self.write_columns()?;
        if self.any_changed {
            freshness::enter(conn)?;
            // A new table or column makes the resource stale everywhere.
            conn.execute_batch(
                "UPDATE sync.seen SET dirty = true WHERE NOT removed; \
                 UPDATE sync.seen_contacts SET dirty = true",
            )
            .map_err(|e| db("cannot make all cases stale", e))?;
            set_meta(conn, "contacts_planned_at", "")?;
        }
        let privacy = &self.config.privacy;
        let step = privacy::stricter_classes(conn, privacy)?;
        if !self.stricter.is_empty() || step.is_some() {
            privacy::rewrite(conn, catalog, &self.stricter, step.as_ref(), key)?;
        }
        undescribed::note_files(conn, catalog)?;
        undescribed::hide(conn, catalog, privacy, step.as_ref())?;
        privacy::note_modes(conn, privacy)?;
        set_meta(conn, "definition", &self.newest.to_string())
    }

    /// One statement for all columns: a new store has some 1,500.
    fn write_columns(&self) -> Result<()> {
        let failed = |e| db("cannot write sync.columns", e);
        let conn = self.conn;
        if self.defined.is_empty() {
            return Ok(());
        }
        conn.execute_batch(
            "CREATE OR REPLACE TEMP TABLE stage_columns AS SELECT * FROM sync.columns LIMIT 0",
        )
        .map_err(failed)?;
        let mut appender = conn.appender("stage_columns").map_err(failed)?;
        for defined in &self.defined {
            let Defined { table, column, definition, since } = defined;
            let class = undescribed::class_name(column);
            appender
                .append_row(params![table, column.name, definition, since, class])
                .map_err(failed)?;
        }
        appender.flush().map_err(failed)?;
        drop(appender);
        conn.execute_batch(
            "DELETE FROM sync.columns WHERE (table_name, column_name) IN \
               (SELECT (table_name, column_name) FROM stage_columns); \
             INSERT INTO sync.columns BY NAME SELECT * FROM stage_columns; \
             DROP TABLE stage_columns",
        )
        .map_err(failed)
    }
}

/// Gives a column its new type, or makes it. A value that the new type cannot hold becomes NULL until
/// it is fetched again, which the new definition brings about.
fn redefine(
    conn: &Connection,
    resource: &Resource,
    column: &Column,
    before: Option<&String>,
    now: &str,
) -> Result<()> {
    let type_of = |definition: &str| definition.split('|').next().unwrap_or("").to_owned();
    let same_type = before.is_some_and(|b| type_of(b) == type_of(now));
    if same_type {
        return Ok(());
    }
    let (name, kind) = (sql::ident(&column.name), column.kind.sql());
    for schema in ["main", "history"] {
        let table = format!("{schema}.{}", sql::ident(&resource.table));
        let sql = if before.is_some() {
            format!(
                "ALTER TABLE {table} ALTER {name} SET DATA TYPE {kind} USING TRY_CAST({name} AS {kind})"
            )
        } else {
            format!("ALTER TABLE {table} ADD COLUMN {name} {kind}")
        };
        conn.execute_batch(&sql)
            .map_err(|e| db(&format!("cannot change {table}.{name} to {kind}"), e))?;
    }
    Ok(())
}

/// A column that the resource file no longer has leaves the table; its values go to `_extra` with
/// the next fetch, those of its earlier versions go with it.
fn drop_column(conn: &Connection, table: &str, column: &str) -> Result<()> {
    tracing::warn!(
        "{table}.{column} is in no resource file any more: the column leaves, with what history has of it"
    );
    // It may look at the column; the next publishing makes it whole again.
    State::new(conn).unread().show(&[])?;
    for schema in ["main", "history"] {
        let sql = format!(
            "ALTER TABLE {schema}.{} DROP COLUMN {}",
            sql::ident(table),
            sql::ident(column)
        );
        conn.execute_batch(&sql)
            .map_err(|e| db(&format!("cannot drop {schema}.{table}.{column}"), e))?;
    }
    conn.execute(
        "DELETE FROM sync.columns WHERE table_name = ? AND column_name = ?",
        [table, column],
    )
    .map(drop)
    .map_err(|e| db("cannot write sync.columns", e))
}

/// Per table, the columns whose definition is newer than the table, and since which generation.
pub(super) type Redefined = BTreeMap<String, Vec<(String, i64)>>;

/// The columns whose definition is newer than their table, `_extra` with them, with the generation
/// since which they are what they are. It changes only when the store is opened.
pub(super) fn redefined(conn: &Connection) -> Result<Redefined> {
    let mut all = Redefined::new();
    let newer = query(
        conn,
        "SELECT c.table_name, c.column_name, c.since FROM sync.columns c \
         JOIN (SELECT table_name, min(since) AS since FROM sync.columns GROUP BY table_name) t \
           ON t.table_name = c.table_name AND c.since > t.since",
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    for (table, column, since) in newer {
        all.entry(table).or_default().push((column, since));
    }
    // A dropped column moves values into `_extra` without leaving a row in sync.columns.
    let generations: Vec<(String, i64)> = query(
        conn,
        "SELECT table_name, coalesce(max(definition), 1) FROM sync.resources GROUP BY table_name",
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let generations: BTreeMap<String, i64> = generations.into_iter().collect();
    let tables: BTreeSet<String> = all.keys().chain(generations.keys()).cloned().collect();
    for table in tables {
        let generation = generations.get(&table).copied().unwrap_or(1);
        let newest = all.get(&table).into_iter().flatten().map(|(_, since)| *since).max();
        let extra = newest.unwrap_or(1).max(generation);
        if extra > 1 {
            all.entry(table).or_default().push((EXTRA_COLUMN.to_owned(), extra));
        }
    }
    Ok(all)
}
