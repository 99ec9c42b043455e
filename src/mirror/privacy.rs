//! Privacy that became stricter: what is stored already is rewritten, history included, as if it had
//! been stored so (docs/architecture.md, "Privacy").
//!
//! A column with a class that is new, or that takes its value from elsewhere now, is stricter too: what
//! it takes was kept in `_extra` and shown in drift, rejects and restatements. Only what became stricter
//! is touched, and what was hashed before is not hashed again: a hash says of itself that it is one
//! ([`Privacy::hash`]), so it does not matter which of the rows were stored while the class was kept.
//! Relaxing a setting is no matter of this module: it makes the table stale, and history stays as it was.

use duckdb::Connection;

use super::changes::count_changes;
use super::rewriting::{Texts, touched};
use super::state::count;
use super::{erasure, schema};
use crate::catalog::{Catalog, Class, Column, EXTRA_COLUMN, Group, Origin, Resource};
use crate::config::{self, PrivacyMode};
use crate::decode::{Classes, Privacy};
use crate::error::Result;
use crate::sql::{self, db, query, scalar_i64};

/// Key of `sync.meta`: the modes of both classes that the store was last opened with.
const MODES: &str = "privacy";

/// A mode as it stands in the store.
pub(super) fn parse_mode(text: &str) -> Option<PrivacyMode> {
    [PrivacyMode::Keep, PrivacyMode::Hash, PrivacyMode::Drop]
        .into_iter()
        .find(|mode| format!("{mode:?}") == text)
}

/// Takes out what earlier versions kept of records that hold secrets ([`Resource::shows_secrets`]), beside their columns.
///
/// # Errors
/// `Store`.
pub(super) fn hide_secrets(conn: &Connection, catalog: &Catalog) -> Result<()> {
    let mut hidden = 0;
    for resource in catalog.resources().iter().filter(|resource| resource.shows_secrets()) {
        let (table, name) = (sql::ident(&resource.table), sql::text(&resource.table));
        let mut rows = 0;
        for schema in ["main", "history"] {
            let extra = format!(
                "UPDATE {schema}.{table} SET {EXTRA_COLUMN} = NULL WHERE {EXTRA_COLUMN} IS NOT NULL"
            );
            rows += count(conn, &extra)?;
        }
        if rows > 0 {
            count_changes(conn, &resource.table, [""])?;
        }
        let examples = format!(
            "UPDATE sync.drift SET example = NULL WHERE table_name = {name} AND example IS NOT NULL"
        );
        hidden += rows + count(conn, &examples)?;
    }
    if hidden > 0 {
        erasure::note(conn)?;
    }
    Ok(())
}

/// A column whose values are to hide more than they do.
pub(super) struct Stricter<'r> {
    pub(crate) resource: &'r Resource,
    pub(crate) column: &'r Column,
    pub(crate) mode: PrivacyMode,
}

/// Whether a class as such became stricter since the store was last opened: fields without a column
/// follow it by their names.
pub(super) fn stricter_classes(
    conn: &Connection,
    now: &config::Privacy,
) -> Result<Option<config::Privacy>> {
    let Some([identifiers, contact_details]) = modes(conn)? else { return Ok(None) };
    // What did not become stricter is kept as it is.
    let step = |before, now| if now > before { now } else { PrivacyMode::Keep };
    let step = config::Privacy {
        identifiers: step(identifiers, now.identifiers),
        contact_details: step(contact_details, now.contact_details),
    };
    let nothing =
        step.identifiers == PrivacyMode::Keep && step.contact_details == PrivacyMode::Keep;
    Ok((!nothing).then_some(step))
}

/// The modes of identifiers and contact details that the store was last written with.
pub(super) fn modes(conn: &Connection) -> Result<Option<[PrivacyMode; 2]>> {
    let Some(text) = schema::meta(conn, MODES)? else { return Ok(None) };
    let mut modes = text.split('|').map(|mode| parse_mode(mode).unwrap_or(PrivacyMode::Keep));
    let mut next = || modes.next().unwrap_or(PrivacyMode::Keep);
    Ok(Some([next(), next()]))
}

/// Keeps the modes that the store was opened with.
pub(super) fn note_modes(conn: &Connection, now: &config::Privacy) -> Result<()> {
    let modes = format!("{:?}|{:?}", now.identifiers, now.contact_details);
    schema::set_meta(conn, MODES, &modes)
}

/// Rewrites what is stored: the values of `columns`, and what `_extra`, rejects, drift and restatements
/// repeat of them or, by its name, falls under a class that `step` hides.
pub(super) fn rewrite(
    conn: &Connection,
    catalog: &Catalog,
    columns: &[Stricter<'_>],
    step: Option<&config::Privacy>,
    key: [u8; 32],
) -> Result<()> {
    tracing::info!(columns = columns.len(), "privacy is stricter now: what is stored is rewritten");
    erasure::note(conn)?;
    for stricter in columns {
        let mut written = 0;
        for place in ["main", "history"] {
            written += column_values(conn, stricter, place, key)?;
        }
        if written > 0 {
            touched(conn, &stricter.resource.table)?;
        }
    }
    let keep =
        config::Privacy { identifiers: PrivacyMode::Keep, contact_details: PrivacyMode::Keep };
    let by_name = Privacy::new(step.unwrap_or(&keep), key);
    // Findings of verify show cells of any table: what is told apart no more is not kept.
    let findings = conn
        .execute(
            "UPDATE sync.verifications SET source = NULL, mirror = NULL \
             WHERE difference IS NOT NULL AND (source IS NOT NULL OR mirror IS NOT NULL)",
            [],
        )
        .map_err(|e| db("cannot rewrite sync.verifications", e))?;
    for resource in catalog.resources() {
        let of_table: Vec<&Stricter<'_>> =
            columns.iter().filter(|t| t.resource.table == resource.table).collect();
        let classes = classes(catalog, resource, columns, &by_name, key);
        if !classes.hides_columns() && step.is_none() {
            continue;
        }
        let rewritten = findings
            + extras(conn, resource, &classes)?
            + rejects(conn, resource, &classes)?
            + drift(conn, resource, &classes)?
            + restatements(conn, resource, &of_table, &classes, key)?;
        if rewritten > 0 {
            touched(conn, &resource.table)?;
        }
    }
    Ok(())
}

/// What is to be hidden in JSON of a table, the lists of its child tables included.
fn classes<'a>(
    catalog: &Catalog,
    resource: &Resource,
    columns: &[Stricter<'_>],
    by_name: &'a Privacy,
    key: [u8; 32],
) -> Classes<'a> {
    let mut classes = Classes::new(by_name);
    let takes_bare = |column: &Column| match &resource.group {
        Group::Child(child) => child.scalar.as_ref() == Some(&column.name),
        _ => false,
    };
    for stricter in columns.iter().filter(|t| t.resource.table == resource.table) {
        let column = stricter.column;
        match column.origin {
            Origin::Field => classes.hide_field(column.path.clone(), hiding(stricter, key)),
            // A bare value is kept under its column's name.
            Origin::Scalar => {
                classes.hide_field(vec![column.name.clone()], hiding(stricter, key));
            }
            Origin::Path | Origin::Position | Origin::Parent => {}
        }
        if takes_bare(column) || column.origin == Origin::Scalar {
            classes.hide_bare(hiding(stricter, key));
        }
    }
    for child in catalog.children(&resource.table) {
        if let Group::Child(list) = &child.group {
            let of_child = self::classes(catalog, child, columns, by_name, key);
            classes.add_list(list.field.clone(), of_child);
        }
    }
    classes
}

/// The privacy of one stricter column, whatever its class.
fn hiding(stricter: &Stricter<'_>, key: [u8; 32]) -> Privacy {
    let modes = config::Privacy { identifiers: stricter.mode, contact_details: stricter.mode };
    Privacy::new(&modes, key)
}

/// A text that stood in the column, as it stands there now.
fn hidden(stricter: &Stricter<'_>, text: &str, key: [u8; 32]) -> Option<String> {
    hiding(stricter, key).text(Some(Class::Identifier), text.into()).map(|text| text.into_owned())
}

/// Rewrites the values of a column; returns how many rows that were.
fn column_values(
    conn: &Connection,
    stricter: &Stricter<'_>,
    place: &str,
    key: [u8; 32],
) -> Result<usize> {
    let Stricter { resource, column, mode } = stricter;
    let table = format!("{place}.{}", sql::ident(&resource.table));
    let name = sql::ident(&column.name);
    let failed = |e| db(&format!("cannot rewrite {table}.{}", column.name), e);
    match mode {
        PrivacyMode::Keep => Ok(0),
        PrivacyMode::Drop => conn
            .execute(&format!("UPDATE {table} SET {name} = NULL WHERE {name} IS NOT NULL"), [])
            .map_err(failed),
        PrivacyMode::Hash => {
            let texts = Texts { table: &table, column: &column.name, is_list: column.kind.list };
            texts.rewrite(conn, "true", |before| {
                if column.kind.list {
                    hidden_list(stricter, before, key)
                } else {
                    hidden(stricter, before, key)
                }
            })
        }
    }
}

fn hidden_list(stricter: &Stricter<'_>, json: &str, key: [u8; 32]) -> Option<String> {
    let items: Vec<Option<String>> = serde_json::from_str(json).ok()?;
    let items: Vec<Option<String>> =
        items.into_iter().map(|item| item.and_then(|item| hidden(stricter, &item, key))).collect();
    Some(serde_json::json!(items).to_string())
}

fn extras(conn: &Connection, resource: &Resource, classes: &Classes<'_>) -> Result<usize> {
    let mut rewritten = 0;
    for place in ["main", "history"] {
        let table = format!("{place}.{}", sql::ident(&resource.table));
        rewritten += Texts::of(&table, EXTRA_COLUMN).rewrite(conn, "true", |text| {
            // An object of which nothing is left is none.
            Some(classes.object(text)).filter(|text| text != "{}")
        })?;
    }
    Ok(rewritten)
}

fn rejects(conn: &Connection, resource: &Resource, classes: &Classes<'_>) -> Result<usize> {
    let of_table = format!("table_name = {}", sql::text(&resource.table));
    let names = || resource.columns.iter().map(|column| column.name.as_str());
    let value = Texts::of("sync.rejects", "value");
    let orphans = format!("{of_table} AND column_name NOT IN ({})", sql::texts(names()));
    let mut rewritten = value.rewrite(conn, &orphans, |value| classes.orphan(value))?;
    for column in &resource.columns {
        let among = format!("{of_table} AND column_name = {}", sql::text(&column.name));
        let path = match column.origin {
            Origin::Scalar => std::slice::from_ref(&column.name),
            _ => &column.path,
        };
        rewritten += value.rewrite(conn, &among, |value| classes.misfit(path, value))?;
    }
    Ok(rewritten)
}

fn drift(conn: &Connection, resource: &Resource, classes: &Classes<'_>) -> Result<usize> {
    let of_table = format!("table_name = {}", sql::text(&resource.table));
    let fields: Vec<String> =
        query(conn, &format!("SELECT DISTINCT field FROM sync.drift WHERE {of_table}"), |row| {
            row.get(0)
        })?;
    let mut rewritten = 0;
    for field in fields {
        let among = format!("{of_table} AND field = {}", sql::text(&field));
        let path: Vec<String> = field.split('.').map(str::to_owned).collect();
        rewritten += Texts::of("sync.drift", "example")
            .rewrite(conn, &among, |example| classes.example(&path, example))?;
    }
    Ok(rewritten)
}

/// Restatements repeat values of journals and, by the name of their field, of their annotations.
fn restatements(
    conn: &Connection,
    resource: &Resource,
    columns: &[&Stricter<'_>],
    classes: &Classes<'_>,
    key: [u8; 32],
) -> Result<usize> {
    let journal = resource.read_with();
    if scalar_i64(
        conn,
        &format!("SELECT count(*) FROM sync.restatements WHERE journal = {}", sql::text(journal)),
    )? == 0
    {
        return Ok(0);
    }
    let mut rewritten = 0;
    let of_column = |name: &str| {
        let shown = if journal == resource.table {
            format!("column_name = {}", sql::text(name))
        } else {
            format!("column_name LIKE 'annotations[%].' || {}", sql::text(name))
        };
        format!("journal = {} AND {shown}", sql::text(journal))
    };
    for column in ["before", "after"] {
        let texts = Texts::of("sync.restatements", column);
        for stricter in columns {
            let among = of_column(&stricter.column.name);
            rewritten += texts.rewrite(conn, &among, |text| hidden(stricter, text, key))?;
        }
        let extra = of_column(EXTRA_COLUMN);
        rewritten += texts.rewrite(conn, &extra, |text| Some(classes.object(text)))?;
    }
    Ok(rewritten)
}
