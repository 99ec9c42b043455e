//! Taking a person's texts out of everything that is stored already.

use std::collections::BTreeSet;

use duckdb::{Connection, params};

use super::{Known, PLACES, Taken, is_there, of};
use crate::catalog::{Catalog, Column, EXTRA_COLUMN, Person, Resource};
use crate::decode::{Forgotten, Part};
use crate::error::Result;
use crate::mirror::rewriting::{Texts, touched};
use crate::sql::{self, db, query};

/// Columns of the daemon's own state that repeat what the source or its rows said, and whether as JSON.
const REPEATED: [(&str, &str, bool); 12] = [
    ("sync.rejects", "value", true),
    ("sync.drift", "example", true),
    ("sync.restatements", "before", false),
    ("sync.restatements", "after", false),
    ("sync.verifications", "what", false),
    ("sync.verifications", "source", false),
    ("sync.verifications", "mirror", false),
    ("sync.verifications", "difference", false),
    ("sync.failures", "error", false),
    ("sync.runs", "error", false),
    ("sync.resources", "reason", false),
    ("sync.journal_scopes", "name", false),
];

/// Takes what the list has out of all rows; `known` says where it may stand.
///
/// # Errors
/// Those of the store.
pub(super) fn all(
    conn: &Connection,
    catalog: &Catalog,
    list: &Forgotten,
    known: &Known,
    taken: &mut Taken,
) -> Result<()> {
    let parts = &known.parts;
    for resource in catalog.resources() {
        if let Some(person) = &resource.person {
            for contact in &known.contacts {
                rows_about(conn, resource, person, *contact, taken)?;
            }
        }
        elsewhere(conn, resource, list, parts, taken)?;
    }
    for (table, column, is_list) in left_behind(conn, catalog)? {
        let texts = Texts { table: &table, column: &column, is_list };
        // What no column takes is JSON there too.
        let is_json = is_list || column == EXTRA_COLUMN;
        let rows = texts
            .rewrite(conn, &among(&column, is_list, parts), |text| left_of(list, text, is_json))?;
        taken.count(format!("{}.{column}", table.replace('"', "")), rows);
    }
    for (table, column, is_json) in REPEATED {
        let rows =
            Texts::of(table, column)
                .rewrite(conn, &among(column, false, parts), |text| left_of(list, text, is_json))?;
        taken.count(format!("{table}.{column}"), rows);
    }
    // A field has a name in any case.
    let rows =
        Texts::of("sync.drift", "field").rewrite(conn, &among("field", false, parts), |name| {
            Some(list.name_without(name.to_owned()))
        })?;
    taken.count("sync.drift.field".to_owned(), rows);
    Ok(())
}

fn left_of(list: &Forgotten, text: &str, is_json: bool) -> Option<String> {
    if is_json { Some(list.json_without(text)) } else { list.text_without(text) }
}

/// Of the rows about the person every text goes, with what is its own beside that; and so does what may be one of them
/// elsewhere.
fn rows_about(
    conn: &Connection,
    resource: &Resource,
    person: &Person,
    contact: i64,
    taken: &mut Taken,
) -> Result<()> {
    let id = sql::ident(&person.id);
    let texts = resource.columns.iter().filter(|c| resource.goes_with_person(c));
    let texts: Vec<String> =
        texts.map(|c| sql::ident(&c.name)).chain([EXTRA_COLUMN.to_owned()]).collect();
    let none: Vec<String> = texts.iter().map(|text| format!("{text} = NULL")).collect();
    let mut rewritten = 0;
    for place in PLACES {
        let table = of(place, resource);
        let rows = conn
            .execute(
                &format!(
                    "UPDATE {table} SET {} WHERE {id} = ? AND coalesce({}) IS NOT NULL",
                    none.join(", "),
                    texts
                        .iter()
                        .map(|text| format!("{text}::VARCHAR"))
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
                [contact],
            )
            .map_err(|e| db(&format!("cannot rewrite {table}"), e))?;
        taken.count(format!("{place}.{}", resource.table), rows);
        rewritten += rows;
    }
    // Of a record whose key has more than the person's id, that is where it begins.
    let rows = conn
        .execute(
            "UPDATE sync.rejects SET value = NULL WHERE table_name = ? AND value IS NOT NULL \
               AND (record_key = ? OR starts_with(record_key, ? || '/'))",
            params![resource.table, contact.to_string(), contact.to_string()],
        )
        .map_err(|e| db("cannot rewrite sync.rejects", e))?;
    taken.count("sync.rejects.value".to_owned(), rows);
    if is_there(conn, resource, person, contact)? {
        // Whose record an example is from is not kept, and it need not stand in a row any more.
        let rows = conn
            .execute(
                "UPDATE sync.drift SET example = NULL WHERE table_name = ? AND example IS NOT NULL",
                [&resource.table],
            )
            .map_err(|e| db("cannot rewrite sync.drift", e))?;
        taken.count("sync.drift.example".to_owned(), rows);
    }
    if rewritten > 0 {
        touched(conn, &resource.table)?;
    }
    Ok(())
}

/// Of all other rows those texts go that tell of the person.
fn elsewhere(
    conn: &Connection,
    resource: &Resource,
    list: &Forgotten,
    parts: &BTreeSet<Part>,
    taken: &mut Taken,
) -> Result<()> {
    let columns = resource.columns.iter().filter(|c| !resource.stays_known(c));
    let mut rewritten = 0;
    for place in PLACES {
        let table = of(place, resource);
        for Column { name, kind, .. } in columns.clone() {
            let texts = Texts { table: &table, column: name, is_list: kind.list };
            let rows = texts.rewrite(conn, &among(name, kind.list, parts), |text| {
                left_of(list, text, kind.list)
            })?;
            taken.count(format!("{place}.{}.{name}", resource.table), rows);
            rewritten += rows;
        }
        let rows = Texts::of(&table, EXTRA_COLUMN).rewrite(
            conn,
            &among(EXTRA_COLUMN, false, parts),
            |text| left_of(list, text, true),
        )?;
        taken.count(format!("{place}.{}.{EXTRA_COLUMN}", resource.table), rows);
        rewritten += rows;
    }
    if rewritten > 0 {
        touched(conn, &resource.table)?;
    }
    Ok(())
}

/// Columns of text in the history of tables that no resource file describes any more: which table, quoted,
/// which column, and whether it has lists.
fn left_behind(conn: &Connection, catalog: &Catalog) -> Result<Vec<(String, String, bool)>> {
    let described = catalog.resources().iter().map(|resource| resource.table.as_str());
    query(
        conn,
        &format!(
            "SELECT table_name, column_name, data_type LIKE '%[]' FROM duckdb_columns() \
             WHERE database_name = current_database() AND schema_name = 'history' \
               AND data_type IN ('VARCHAR', 'VARCHAR[]') AND column_name <> '_change' \
               AND table_name NOT IN ({})",
            sql::texts(described)
        ),
        |row| {
            Ok((
                format!("history.{}", sql::ident(&row.get::<_, String>(0)?)),
                row.get(1)?,
                row.get(2)?,
            ))
        },
    )
}

/// SQL for the rows in which one of the texts may stand: the list itself is asked about these alone.
fn among(column: &str, is_list: bool, parts: &BTreeSet<Part>) -> String {
    if parts.contains(&Part::Word(String::new())) {
        return "true".to_owned();
    }
    let column = sql::ident(column);
    let text =
        if is_list { format!("to_json(t.{column})::VARCHAR") } else { format!("t.{column}") };
    let gap = sql::text(&Part::gap());
    let each = parts.iter().map(|part| match part {
        Part::Word(word) => format!("contains(lower({text}), {})", sql::text(word)),
        Part::Digits(digits) => {
            format!("contains(translate({text}, {gap}, ''), {})", sql::text(digits))
        }
        Part::Hashed => format!(
            "contains({text}, '@') OR regexp_matches(translate({text}, {gap}, ''), '[0-9]{{{}}}')",
            Part::LEAST_DIGITS
        ),
    });
    each.chain(["false".to_owned()]).collect::<Vec<_>>().join(" OR ")
}
