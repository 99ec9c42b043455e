//! In what a configuration and its resource files are others than those that a store was last written
//! with. Bringing the store up to them is what [`super::align`] does, for `sync` and `run` alone.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use duckdb::Connection;
use serde::Serialize;

use super::definition::{definition, without_privacy_and_zone};
use super::schema::meta;
use super::state::{FIRST_MONTH, fetched};
use super::undescribed::class_name;
use super::{privacy, reports};
use crate::catalog::{Catalog, Column, Group, NotedRows, Resource, TABLE_ROWS};
use crate::config::Config;
use crate::error::Result;
use crate::scope::Month;
use crate::sql::query;

/// Tables that are named; the rest is counted.
const MOST_NAMED: usize = 5;

/// In what a configuration is another than the one that a store was last written with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub(crate) struct ConfigDifference {
    /// A sentence for people.
    pub(crate) what: String,
    /// What becomes of it.
    pub(crate) then: String,
}

impl ConfigDifference {
    /// Of what only `sync` and `run` bring the store up to.
    pub(super) fn of_store(what: String) -> ConfigDifference {
        let then = "the store stays as it is, and `casemirror sync` brings it up to that";
        ConfigDifference { what, then: then.to_owned() }
    }
}

impl From<ConfigDifference> for String {
    fn from(difference: ConfigDifference) -> String {
        difference.what
    }
}

impl fmt::Display for ConfigDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.then)
    }
}

/// What is another, each as a sentence for people; empty where the store would stay as it is.
///
/// # Errors
/// `Store`.
pub(super) fn differences(
    conn: &Connection,
    config: &Config,
    catalog: &Catalog,
) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut compare = |key: &str, here: &str, there: Option<String>| {
        if let Some(there) = there.filter(|there| there != here) {
            found.push(format!("{key} is {here:?} here, and was {there:?}"));
        }
    };
    let source = &config.source;
    // A command that calls nobody may not know it.
    if !source.client_id.is_empty() {
        compare(
            "source",
            &format!("{} {}", source.base_url, source.client_id),
            meta(conn, "origin")?,
        );
    }
    let zone = source.time_zone.iana_name().unwrap_or("UTC");
    compare("source.time_zone", zone, meta(conn, "calendar_zone")?);
    compare("journals.level", &config.journals.level.to_string(), meta(conn, "journal_level")?);
    if let Some([identifiers, contact_details]) = privacy::modes(conn)? {
        let mode = |mode| format!("{mode:?}").to_lowercase();
        for (key, here, there) in [
            ("privacy.identifiers", config.privacy.identifiers, identifiers),
            ("privacy.contact_details", config.privacy.contact_details, contact_details),
        ] {
            compare(key, &mode(here), Some(mode(there)));
        }
    }
    let tables = of_tables(conn, config, catalog)?;
    if tables.is_empty() {
        let digest = reports::digest(catalog.resources(), &config.history.tables);
        if meta(conn, "reports")?.is_some_and(|known| known != digest) {
            found.push(
                "the reports are defined otherwise by this version, or by history.tables"
                    .to_owned(),
            );
        }
    }
    found.extend(tables);
    Ok(found)
}

/// The same of a store that has been written, or of what was published of it: with `resources.disable`, too.
///
/// # Errors
/// `Store`.
pub(crate) fn all_differences(
    conn: &Connection,
    config: &Config,
    catalog: &Catalog,
) -> Result<Vec<String>> {
    let mut found = differences(conn, config, catalog)?;
    found.extend(disabled(conn, config)?);
    Ok(found)
}

/// In what `resources.disable` is another than in the last run, as a sentence. A run of whatever command follows it, so
/// that none is refused for it.
///
/// # Errors
/// `Store`.
fn disabled(conn: &Connection, config: &Config) -> Result<Option<String>> {
    let there: BTreeSet<String> = query(
        conn,
        "SELECT table_name FROM sync.resources WHERE status = 'disabled' AND because_of IS NULL",
        |row| row.get(0),
    )?
    .into_iter()
    .collect();
    let here: BTreeSet<String> = config.resources.disable.iter().cloned().collect();
    let names = |tables: &BTreeSet<String>| match tables.is_empty() {
        true => "no table".to_owned(),
        false => named(&tables.iter().map(String::as_str).collect::<Vec<_>>()),
    };
    Ok((here != there).then(|| {
        format!("resources.disable names {} here, and named {}", names(&here), names(&there))
    }))
}

/// In how far `journals.since` is another than the first month that the schedules were told to read. A run of whatever
/// command leaves that to the next one of `schedule.journals`, so that none is refused for it.
///
/// # Errors
/// `Store`.
pub(super) fn first_day(conn: &Connection, config: &Config) -> Result<Option<ConfigDifference>> {
    let there = meta(conn, FIRST_MONTH)?.and_then(|text| text.parse::<Month>().ok());
    let (Some(day), Some(there)) = (config.journals.since, there) else { return Ok(None) };
    let then = match Month::of(day).cmp(&there) {
        Ordering::Equal => return Ok(None),
        Ordering::Less => {
            "the next run of schedule.journals reads the months before; `casemirror journals --from ...` reads them now"
        }
        Ordering::Greater => "what was read of the months before stays",
    };
    Ok(Some(ConfigDifference {
        what: format!(
            "journals.since is {day} here, and the journals are mirrored from {} on",
            there.first()
        ),
        then: then.to_owned(),
    }))
}

/// What the resource files say otherwise.
fn of_tables(conn: &Connection, config: &Config, catalog: &Catalog) -> Result<Vec<String>> {
    let known = columns(conn)?;
    let noted = Noted::of(conn, catalog)?;
    let (mut new, mut redefined) = (Vec::new(), Vec::new());
    for resource in catalog.resources() {
        let Some(columns) = known.get(&resource.table) else {
            new.push(resource.table.as_str());
            continue;
        };
        let same = resource.columns.len() == columns.len()
            && resource.columns.iter().all(|column| {
                let there = columns.get(&column.name);
                there.is_some_and(|there| there.is_of(config, column))
            });
        if !same || !noted.is_of(resource) {
            redefined.push(resource.table.as_str());
        }
    }
    let gone = known.keys().map(String::as_str).filter(|table| catalog.get(table).is_none());
    let gone: Vec<&str> = gone.collect();
    let said = [
        (new, "described by resource files, and not in the store"),
        (redefined, "described otherwise by resource files"),
        (gone, "in the store, and described by no resource file"),
    ];
    let said = said.into_iter().filter(|(tables, _)| !tables.is_empty());
    Ok(said.map(|(tables, what)| format!("{what}: {}", named(&tables))).collect())
}

fn named(tables: &[&str]) -> String {
    let named = tables.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
    match tables.len().saturating_sub(MOST_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// What the store says of a column.
struct Known {
    definition: String,
    /// Its privacy class; `None` where that was not noted yet.
    class: Option<String>,
}

impl Known {
    /// Whether a resource file says the same. What becomes of a class, and the zone, are the configuration's.
    fn is_of(&self, config: &Config, column: &Column) -> bool {
        let here = definition(config, column);
        without_privacy_and_zone(&self.definition) == without_privacy_and_zone(&here)
            && self.class.as_ref().is_none_or(|class| *class == class_name(column))
    }
}

/// The columns of the tables in the store.
fn columns(conn: &Connection) -> Result<BTreeMap<String, BTreeMap<String, Known>>> {
    let mut tables: BTreeMap<String, BTreeMap<String, Known>> = BTreeMap::new();
    let rows: Vec<(String, String, Known)> = query(
        conn,
        "SELECT table_name, column_name, c.definition, c.class FROM sync.columns c \
         JOIN (SELECT table_name FROM sync.resources) USING (table_name)",
        |row| {
            let known = Known { definition: row.get(2)?, class: row.get(3)? };
            Ok((row.get(0)?, row.get(1)?, known))
        },
    )?;
    for (table, column, known) in rows {
        tables.entry(table).or_default().insert(column, known);
    }
    Ok(tables)
}

/// What the store says of its tables beside their columns.
struct Noted {
    rows: NotedRows,
    read_with: BTreeMap<String, String>,
    /// The tables that are refreshed by other change dates than it says.
    refreshed_otherwise: BTreeSet<String>,
}

impl Noted {
    fn of(conn: &Connection, catalog: &Catalog) -> Result<Noted> {
        let read_with = query(
            conn,
            "SELECT table_name, read_with FROM sync.resources WHERE read_with IS NOT NULL",
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(Noted {
            rows: NotedRows::parse(meta(conn, TABLE_ROWS)?.as_deref()).unwrap_or_default(),
            read_with: read_with.into_iter().collect(),
            refreshed_otherwise: fetched::refreshed_otherwise(conn, catalog)?,
        })
    }

    /// Whether a resource file says the same, where it is noted.
    fn is_of(&self, resource: &Resource) -> bool {
        let table = &resource.table;
        self.rows.get(table).is_none_or(|rows| rows.is_of(resource))
            && self.read_with.get(table).is_none_or(|with| with == resource.read_with())
            && !self.refreshed_otherwise.contains(table)
    }
}

/// The tables of the catalog that the store has, with all that deciding what is stale looks at.
///
/// # Errors
/// `Store`.
pub(super) fn described(conn: &Connection, catalog: &Catalog) -> Result<Catalog> {
    let known = columns(conn)?;
    let has = |table: &str, column: &str| known.get(table).is_some_and(|c| c.contains_key(column));
    let looks_at = |resource: &Resource| -> BTreeSet<(String, String)> {
        let condition = resource.condition.iter().map(|on| (on.table.clone(), on.column.clone()));
        let lookups = resource.lookup.iter().flat_map(|lookup| {
            lookup.tables.iter().map(|(table, _)| (table.clone(), lookup.column.clone()))
        });
        let each = match &resource.group {
            Group::ForEach(each) => Some((each.table.clone(), each.column.clone())),
            _ => None,
        };
        condition.chain(lookups).chain(each).collect()
    };
    Ok(catalog.only(|resource| {
        known.contains_key(&resource.table)
            && known.contains_key(resource.read_with())
            && looks_at(resource).iter().all(|(table, column)| has(table, column))
    }))
}
