//! Forgetting a person: no value of a contact stays in rows, history, rejects and findings, and none comes
//! in again (docs/architecture.md, "Forgetting").
//!
//! Of the rows about the person every text goes. Elsewhere those texts go that tell of the person: values with a
//! privacy class, and names of several words; but rows about others keep their own. What they are is judged in one place, by the list of
//! keyed hashes that the decoder asks too ([`Forgotten`]).

use std::collections::{BTreeMap, BTreeSet};

use duckdb::{Connection, params};
use jiff::Timestamp;
use serde_json::Value;

use super::erasure;
use super::rewriting::{Texts, touched};
use crate::catalog::{Catalog, Column, EXTRA_COLUMN, Person, Resource, class_of_name};
use crate::decode::{Cleared, Entry, Forgotten, Part};
use crate::error::Result;
use crate::sql::{self, db, instant_param, query, scalar_i64};

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

/// What was taken out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Rows that were rewritten, by `schema.table.column`; of rows about the person by `schema.table`.
    pub(crate) rows: BTreeMap<String, usize>,
    /// How many texts are kept out wherever they come.
    pub(crate) texts: usize,
    /// How many of the person's texts are looked for nowhere else, because they tell too little.
    pub(crate) common: usize,
    /// How many of the person's details stand in rows about other people too, where they stay.
    pub(crate) shared: usize,
    /// There was a row about the person.
    pub(crate) was_known: bool,
    /// Something is kept out that was not before.
    pub(crate) is_new: bool,
}

impl Taken {
    fn count(&mut self, place: String, rows: usize) {
        if rows > 0 {
            *self.rows.entry(place).or_default() += rows;
        }
    }
}

/// Who is forgotten.
///
/// # Errors
/// Those of the store.
pub(super) fn forgotten(conn: &Connection, key: [u8; 32]) -> Result<Forgotten> {
    let rows: Vec<(String, Option<u32>, Option<u64>, u64)> =
        query(conn, "SELECT kind, words, first_word, hash FROM sync.forgotten", |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?;
    let mut forgotten = Forgotten::nobody(key);
    for (kind, words, first, hash) in rows {
        match (kind.as_str(), words, first) {
            (TEXT, Some(words), Some(first)) => forgotten.add(Entry::Text { words, first, hash }),
            (NUMBER, Some(digits), _) => forgotten.add(Entry::Number { digits, hash }),
            _ => forgotten.add(Entry::Contact { hash }),
        }
    }
    Ok(forgotten)
}

const CONTACT: &str = "contact";
const TEXT: &str = "text";
const NUMBER: &str = "number";

/// Takes a person out of the rows and adds what is to be kept out to the list, within a transaction. The
/// files are to follow ([`erasure::note`]).
///
/// # Errors
/// Those of the store.
pub(super) fn forget(
    conn: &Connection,
    catalog: &Catalog,
    key: [u8; 32],
    contact: i64,
) -> Result<Taken> {
    let mut forgotten = forgotten(conn, key)?;
    let mut taken = Taken::default();
    let mut parts = BTreeSet::new();
    let about = |resource: &Resource| resource.person.clone();
    let mut entries = BTreeSet::from([forgotten.contact(contact)]);
    let (mut texts, mut shared) = (BTreeSet::new(), BTreeSet::new());
    for resource in catalog.resources() {
        let Some(person) = about(resource) else { continue };
        taken.was_known |= is_there(conn, resource, &person, contact)?;
        for (text, is_name) in telling(conn, resource, &person, contact)? {
            let of_text = forgotten.entries_of(&text, is_name);
            // A mask of the platform's is a hash like any other, and stands in everybody's row.
            let is_mask = forgotten.is_hash(&text)
                && is_of_others(conn, resource, contact, &text, |column| column.class.is_some())?;
            match of_text.first().filter(|_| !is_mask) {
                Some(own) => {
                    texts.insert(*own);
                    for other in catalog.resources() {
                        let is_kept = |column: &Column| other.is_own_detail(column);
                        if !is_name && is_of_others(conn, other, contact, &text, is_kept)? {
                            shared.insert(*own);
                        }
                    }
                }
                None => {
                    taken.common += 1;
                    continue;
                }
            }
            parts.extend(forgotten.parts_of(&text));
            entries.extend(of_text);
        }
    }
    taken.texts = texts.len();
    taken.shared = shared.len();
    for entry in entries {
        taken.is_new |= note(conn, entry)?;
        forgotten.add(entry);
    }
    for resource in catalog.resources() {
        if let Some(person) = about(resource) {
            rows_about(conn, resource, &person, contact, &mut taken)?;
        }
        elsewhere(conn, resource, &forgotten, &parts, &mut taken)?;
    }
    for (table, column, is_list) in left_behind(conn, catalog)? {
        let texts = Texts { table: &table, column: &column, is_list };
        let rows = texts.rewrite(conn, &among(&column, is_list, &parts), |text| {
            // What no column takes is JSON there too.
            if is_list || column == EXTRA_COLUMN {
                json(&forgotten, text)
            } else {
                plain(&forgotten, text)
            }
        })?;
        taken.count(format!("{}.{column}", table.replace('"', "")), rows);
    }
    for (table, column, is_json) in REPEATED {
        let after =
            |text: &str| if is_json { json(&forgotten, text) } else { plain(&forgotten, text) };
        let rows = Texts::of(table, column).rewrite(conn, &among(column, false, &parts), after)?;
        taken.count(format!("{table}.{column}"), rows);
    }
    // Of whom no row is left there can be something in what was published before, and in free blocks of the store. Who
    // was forgotten before, and is in no row, is nowhere.
    if taken.is_new || !taken.rows.is_empty() {
        erasure::note(conn)?;
    }
    Ok(taken)
}

/// Puts it on the list; whether it was not there.
fn note(conn: &Connection, entry: Entry) -> Result<bool> {
    let (kind, words, first, hash) = match entry {
        Entry::Contact { hash } => (CONTACT, None, None, hash),
        Entry::Text { words, first, hash } => (TEXT, Some(words), Some(first), hash),
        Entry::Number { digits, hash } => (NUMBER, Some(digits), None, hash),
    };
    let known = "SELECT 1 FROM sync.forgotten WHERE kind = ? AND hash = ?";
    conn.execute(
        &format!(
            "INSERT INTO sync.forgotten BY NAME SELECT ? AS kind, ?::BIGINT AS words, \
               ?::UBIGINT AS first_word, ?::UBIGINT AS hash, ?::TIMESTAMPTZ AS forgotten_at \
             WHERE NOT EXISTS ({known})"
        ),
        params![kind, words, first, hash, instant_param(Timestamp::now()), kind, hash],
    )
    .map(|rows| rows > 0)
    .map_err(|e| db("cannot write sync.forgotten", e))
}

/// The person's texts that may tell of it wherever they stand, and whether each is a name.
fn telling(
    conn: &Connection,
    resource: &Resource,
    person: &Person,
    contact: i64,
) -> Result<BTreeSet<(String, bool)>> {
    let mut all = BTreeSet::new();
    for place in PLACES {
        let rows = format!("{} WHERE {} = {contact}", of(place, resource), sql::ident(&person.id));
        for column in resource.columns.iter().filter(|c| resource.is_free_text(c)) {
            let is_name = person.known_by.contains(&column.name);
            if column.class.is_none() && !is_name {
                continue;
            }
            let name = sql::ident(&column.name);
            let each = if column.kind.list { format!("unnest({name})") } else { name };
            let texts: Vec<Option<String>> =
                query(conn, &format!("SELECT DISTINCT {each} FROM {rows}"), |row| row.get(0))?;
            all.extend(texts.into_iter().flatten().map(|text| (text, is_name)));
        }
        let extras: Vec<Option<String>> =
            query(conn, &format!("SELECT DISTINCT {EXTRA_COLUMN} FROM {rows}"), |row| row.get(0))?;
        for extra in extras.into_iter().flatten() {
            if let Ok(value) = serde_json::from_str(&extra) {
                classed(&value, false, &mut all);
            }
        }
    }
    Ok(all)
}

/// Whether a text stands in one of these columns of rows that are not about the person.
fn is_of_others(
    conn: &Connection,
    resource: &Resource,
    contact: i64,
    text: &str,
    is_looked_at: impl Fn(&Column) -> bool,
) -> Result<bool> {
    let text = sql::text(text);
    let looked_at = resource.columns.iter().filter(|c| resource.is_free_text(c) && is_looked_at(c));
    let holds: Vec<String> = looked_at
        .map(|column| {
            let name = sql::ident(&column.name);
            if column.kind.list {
                format!("coalesce(list_contains({name}, {text}), false)")
            } else {
                format!("{name} = {text}")
            }
        })
        .collect();
    if holds.is_empty() {
        return Ok(false);
    }
    let of_others = resource.person.as_ref().map_or_else(
        || "true".to_owned(),
        |person| format!("{} <> {contact}", sql::ident(&person.id)),
    );
    let rows = PLACES.map(|place| {
        format!(
            "(SELECT count(*) FROM {} WHERE {of_others} AND ({}))",
            of(place, resource),
            holds.join(" OR ")
        )
    });
    Ok(scalar_i64(conn, &format!("SELECT {}", rows.join(" + ")))? > 0)
}

/// The texts in JSON of fields whose name has a class, and of what is within them.
fn classed(value: &Value, is_classed: bool, to: &mut BTreeSet<(String, bool)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                classed(value, is_classed || class_of_name(name).is_some(), to);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| classed(item, is_classed, to)),
        Value::String(text) if is_classed => drop(to.insert((text.clone(), false))),
        Value::Number(number) if is_classed => drop(to.insert((number.to_string(), false))),
        _ => {}
    }
}

fn is_there(conn: &Connection, resource: &Resource, person: &Person, contact: i64) -> Result<bool> {
    let id = sql::ident(&person.id);
    let rows = PLACES.map(|place| format!("SELECT {id} FROM {}", of(place, resource)));
    let rows = rows.join(" UNION ALL ");
    Ok(scalar_i64(conn, &format!("SELECT count(*) FROM ({rows}) WHERE {id} = {contact}"))? > 0)
}

const PLACES: [&str; 2] = ["main", "history"];

fn of(place: &str, resource: &Resource) -> String {
    format!("{place}.{}", sql::ident(&resource.table))
}

/// Of the rows about the person every text goes, and so does what may be one of them elsewhere.
fn rows_about(
    conn: &Connection,
    resource: &Resource,
    person: &Person,
    contact: i64,
    taken: &mut Taken,
) -> Result<()> {
    let id = sql::ident(&person.id);
    let texts = resource.columns.iter().filter(|c| resource.is_free_text(c));
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
    forgotten: &Forgotten,
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
                if kind.list { json(forgotten, text) } else { plain(forgotten, text) }
            })?;
            taken.count(format!("{place}.{}.{name}", resource.table), rows);
            rewritten += rows;
        }
        let rows = Texts::of(&table, EXTRA_COLUMN).rewrite(
            conn,
            &among(EXTRA_COLUMN, false, parts),
            |text| json(forgotten, text),
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

fn plain(forgotten: &Forgotten, text: &str) -> Option<String> {
    match forgotten.clear(text) {
        Cleared::Same => Some(text.to_owned()),
        Cleared::Gone => None,
        Cleared::Without(rest) => Some(rest),
    }
}

fn json(forgotten: &Forgotten, text: &str) -> Option<String> {
    Some(forgotten.clear_json(text).unwrap_or_else(|| text.to_owned()))
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
