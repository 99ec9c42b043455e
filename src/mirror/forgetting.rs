//! Forgetting a person: no value of a contact stays in rows, history, rejects and findings, and none comes
//! in again (docs/architecture.md, "Forgetting").
//!
//! Of the rows about the person every text goes. Elsewhere those texts go that tell of the person: values with a
//! privacy class that have the form of their kind, and names of several words; but rows about others keep their own, and
//! what a column that is about no person says is everybody's. What they are is judged in one place, by the list of
//! keyed hashes that the decoder asks too ([`Forgotten`]).

mod common;
mod kept_out;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};

use duckdb::Connection;

use super::erasure;
use crate::catalog::{Catalog, Class, Column, EXTRA_COLUMN, Person, Resource};
use crate::decode::{Entry, Forgotten, Learned, Part, Telling};
use crate::error::Result;
use crate::sql::{self, query, scalar_i64};

pub(super) use kept_out::{any_text, forgotten};

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
    /// There was one of a table that names persons: without it nothing of the person is known but the id.
    pub(crate) was_named: bool,
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
    let list = forgotten(conn, key)?;
    let mut taken = Taken::default();
    let common = common::entries(conn, catalog, &list)?;
    let known = Known::of(conn, catalog, (&list, &common), contact, &[], &mut taken)?;
    take_out(conn, catalog, &list.with(known.entries.clone()), &known, &mut taken)?;
    Ok(taken)
}

/// The same for persons on the list of whom more is known now: what rows about them said when they came, which the decoder
/// has left out of these, goes from all other rows and is kept out from now on. To be called within the transaction that
/// has brought the rows. Returns the list to go by when that is committed; `None` where nothing is new.
///
/// # Errors
/// Those of the store.
pub(super) fn learn(
    conn: &Connection,
    catalog: &Catalog,
    list: &Forgotten,
    learned: &[Learned],
) -> Result<Option<Forgotten>> {
    let contacts: BTreeSet<i64> = learned.iter().map(|learned| learned.contact).collect();
    let (mut all, mut taken) = (Known::default(), Taken::default());
    let common = common::entries(conn, catalog, list)?;
    for contact in contacts {
        all.add(Known::of(conn, catalog, (list, &common), contact, learned, &mut taken)?);
    }
    all.entries.retain(|entry| !list.has(*entry));
    if all.entries.is_empty() {
        return Ok(None);
    }
    let list = list.with(all.entries.clone());
    take_out(conn, catalog, &list, &all, &mut taken)
        .map_err(|e| e.within("a forgotten person cannot be taken out of the rows of others"))?;
    // How many, and no word of whom or what.
    tracing::info!(
        texts = taken.texts,
        rows = taken.rows.values().sum::<usize>(),
        "a row about a forgotten person came: what tells of the person is taken out of other rows, and kept out"
    );
    Ok(Some(list))
}

/// What is known of persons, and is to be kept out.
#[derive(Default)]
struct Known {
    contacts: BTreeSet<i64>,
    entries: BTreeSet<Entry>,
    /// How SQL finds the rows in which the texts may stand.
    parts: BTreeSet<Part>,
}

impl Known {
    /// What the rows about a person say and, of what was learned, the texts that they said when they came.
    fn of(
        conn: &Connection,
        catalog: &Catalog,
        (list, common): (&Forgotten, &BTreeSet<Entry>),
        contact: i64,
        learned: &[Learned],
        taken: &mut Taken,
    ) -> Result<Known> {
        let mut known = Known {
            contacts: BTreeSet::from([contact]),
            entries: BTreeSet::from([list.contact(contact)]),
            parts: BTreeSet::new(),
        };
        let (mut texts, mut shared) = (BTreeSet::new(), BTreeSet::new());
        for resource in catalog.resources() {
            let Some(person) = &resource.person else { continue };
            let is_there = is_there(conn, resource, person, contact)?;
            taken.was_known |= is_there;
            taken.was_named |= is_there && !person.known_by.is_empty();
            let mut telling = telling(conn, resource, person, contact)?;
            let own = |of: &&Learned| of.contact == contact && of.table == resource.table;
            telling.extend(learned.iter().filter(own).flat_map(|of| of.texts.iter().cloned()));
            for Telling { text, class } in telling {
                let of_text = list.entries_of(&text, class);
                // A mask of the platform's is a hash like any other, and stands in everybody's row. Numbers of persons are
                // masked; a telephone that another one has too is shared.
                let is_masked = |column: &Column| column.class == Some(Class::Identifier);
                let is_mask =
                    list.is_hash(&text) && is_of_others(conn, resource, contact, &text, is_masked)?;
                let is_common =
                    class.is_some() && of_text.iter().any(|entry| common.contains(entry));
                let Some(own) = of_text.first().filter(|_| !is_mask && !is_common) else {
                    taken.common += 1;
                    continue;
                };
                texts.insert(*own);
                // Who has typed it is told; nobody reads what is learned.
                for other in
                    catalog.resources().iter().filter(|_| learned.is_empty() && class.is_some())
                {
                    let is_kept = |column: &Column| other.is_own_detail(column);
                    if is_of_others(conn, other, contact, &text, is_kept)? {
                        shared.insert(*own);
                    }
                }
                known.parts.extend(list.parts_of(&text));
                known.entries.extend(of_text);
            }
        }
        taken.texts += texts.len();
        taken.shared += shared.len();
        Ok(known)
    }

    fn add(&mut self, other: Known) {
        self.contacts.extend(other.contacts);
        self.entries.extend(other.entries);
        self.parts.extend(other.parts);
    }
}

/// Puts what is known on the list of the store, which is `list` then, and takes it out of everything that is stored.
fn take_out(
    conn: &Connection,
    catalog: &Catalog,
    list: &Forgotten,
    known: &Known,
    taken: &mut Taken,
) -> Result<()> {
    for entry in &known.entries {
        taken.is_new |= kept_out::note(conn, *entry)?;
    }
    sweep::all(conn, catalog, list, known, taken)?;
    // Of whom no row is left there can be something in what was published before, and in free blocks of the store. Who
    // was forgotten before, and is in no row, is nowhere.
    if taken.is_new || !taken.rows.is_empty() {
        erasure::note(conn)?;
    }
    Ok(())
}

/// The texts that tell of the person in the rows about it.
fn telling(
    conn: &Connection,
    resource: &Resource,
    person: &Person,
    contact: i64,
) -> Result<BTreeSet<Telling>> {
    let mut all = BTreeSet::new();
    for place in PLACES {
        let rows = format!("{} WHERE {} = {contact}", of(place, resource), sql::ident(&person.id));
        for column in resource.columns.iter().filter(|c| resource.tells_of_person(c)) {
            let name = sql::ident(&column.name);
            let each = if column.kind.list { format!("unnest({name})") } else { name };
            let texts: Vec<Option<String>> =
                query(conn, &format!("SELECT DISTINCT {each} FROM {rows}"), |row| row.get(0))?;
            all.extend(texts.into_iter().flatten().map(|text| Telling::of(text, resource, column)));
        }
        let extras: Vec<Option<String>> =
            query(conn, &format!("SELECT DISTINCT {EXTRA_COLUMN} FROM {rows}"), |row| row.get(0))?;
        for extra in extras.into_iter().flatten() {
            if let Ok(value) = serde_json::from_str(&extra) {
                Telling::in_extra(&value, None, &mut all);
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
