//! The list of what is kept out, as the store has it (`sync.forgotten`).

use duckdb::{Connection, params};
use jiff::Timestamp;

use crate::decode::{Entry, Forgotten};
use crate::error::Result;
use crate::sql::{self, db, instant_param, query, scalar_i64};

/// Who is forgotten.
///
/// # Errors
/// Those of the store.
pub(in crate::mirror) fn forgotten(conn: &Connection, key: [u8; 32]) -> Result<Forgotten> {
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

/// Whether a text of anybody is kept out.
///
/// # Errors
/// Those of the store.
pub(in crate::mirror) fn any_text(conn: &Connection) -> Result<bool> {
    let texts = format!("SELECT count(*) FROM sync.forgotten WHERE kind <> {}", sql::text(CONTACT));
    Ok(scalar_i64(conn, &texts)? > 0)
}

const CONTACT: &str = "contact";
const TEXT: &str = "text";
const NUMBER: &str = "number";

/// Puts it on the list; whether it was not there.
pub(super) fn note(conn: &Connection, entry: Entry) -> Result<bool> {
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
