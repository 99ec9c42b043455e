//! What a report is made from: while nothing of it has changed, its file is that of the snapshot before
//! (docs/architecture.md, "Published means finished").
//!
//! A report that is linked though it has changed is worse than any that is written for nothing. So what it
//! reads is every relation that its SQL, and the SQL of every view that it reads, names in whatever place;
//! and one that calls a function that is not known to depend on its arguments alone is always written.

use std::collections::{BTreeMap, BTreeSet};

use duckdb::Connection;

use super::manifest;
use super::parts::Counters;
use crate::error::Result;
use crate::sql;

/// Rows up to which a table that nothing counts is read to see whether it has changed. `report.calendar` has
/// 73,414.
const COMPARED_ROWS: i64 = 100_000;

/// What may stand before a parenthesis: functions of their arguments alone, types and words of SQL.
const PURE: [&str; 40] = [
    "all",
    "and",
    "any",
    "arg_max",
    "arg_min",
    "as",
    "bool_or",
    "cast",
    "coalesce",
    "concat_ws",
    "contains",
    "count",
    "count_star",
    "decimal",
    "else",
    "exclude",
    "exists",
    "filter",
    "from",
    "having",
    "in",
    "join",
    "len",
    "list_value",
    "max",
    "min",
    "not",
    "on",
    "or",
    "over",
    "select",
    "strftime",
    "string_split",
    "sum",
    "then",
    "union",
    "using",
    "values",
    "when",
    "where",
];

/// Words of SQL that are the time or chance without a parenthesis.
const NEVER_THE_SAME: [&str; 7] = [
    "current_date",
    "current_time",
    "current_timestamp",
    "localtime",
    "localtimestamp",
    "sample",
    "tablesample",
];

/// The relations of the store, and as far as they were asked for, what state they are in.
pub(super) struct Inputs<'a> {
    conn: &'a Connection,
    counters: &'a Counters,
    relations: Vec<Relation>,
    /// By name in small letters: positions in `relations`.
    named: BTreeMap<String, Vec<usize>>,
    states: BTreeMap<usize, Option<String>>,
    zone: Option<String>,
}

/// A table or a view.
struct Relation {
    schema: String,
    name: String,
    is: Is,
}

enum Is {
    Table { rows: i64, sql: String },
    View { sql: String },
}

/// What a report's SQL consists of, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Dot,
    Open,
    Other,
}

impl<'a> Inputs<'a> {
    pub(super) fn read(conn: &'a Connection, counters: &'a Counters) -> Result<Inputs<'a>> {
        let tables = sql::query(
            conn,
            "SELECT schema_name, table_name, estimated_size, sql FROM duckdb_tables() \
             WHERE database_name = current_database()",
            |row| {
                let rows = row.get::<_, Option<i64>>(2)?.unwrap_or(i64::MAX);
                let is = Is::Table { rows, sql: row.get(3)? };
                Ok(Relation { schema: row.get(0)?, name: row.get(1)?, is })
            },
        )?;
        let views = sql::query(
            conn,
            "SELECT schema_name, view_name, sql FROM duckdb_views() \
             WHERE database_name = current_database() AND NOT internal",
            |row| {
                let is = Is::View { sql: row.get(2)? };
                Ok(Relation { schema: row.get(0)?, name: row.get(1)?, is })
            },
        )?;
        let zone =
            sql::query(conn, "SELECT value FROM sync.meta WHERE key = 'calendar_zone'", |row| {
                row.get(0)
            })?;
        let mut relations = tables;
        relations.extend(views);
        let mut named: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, relation) in relations.iter().enumerate() {
            named.entry(relation.name.to_lowercase()).or_default().push(at);
        }
        let zone = zone.into_iter().next();
        Ok(Inputs { conn, counters, relations, named, states: BTreeMap::new(), zone })
    }

    /// A text that is another one when a report may have other rows or columns: when its SQL, what it reads
    /// or the zone has changed. `None`: it is not known.
    pub(super) fn of_report(&mut self, name: &str) -> Result<Option<String>> {
        let Some(read) = self.read_by("report", name) else { return Ok(None) };
        let mut text = format!("zone {:?}\n", self.zone);
        for at in read {
            let Some(state) = self.state(at)? else { return Ok(None) };
            let Relation { schema, name, .. } = &self.relations[at];
            text.push_str(&format!("{schema}.{name} {state}\n"));
        }
        Ok(Some(manifest::fingerprint(&text)))
    }

    /// All relations that one is made from, itself among them. `None`: it may be made from something
    /// else too.
    fn read_by(&self, schema: &str, name: &str) -> Option<BTreeSet<usize>> {
        let is_it = |r: &Relation| r.schema == schema && r.name == name;
        let mut to_read = vec![self.relations.iter().position(is_it)?];
        let mut read = BTreeSet::new();
        while let Some(at) = to_read.pop() {
            if read.insert(at)
                && let Is::View { sql } = &self.relations[at].is
            {
                to_read.extend(self.named_in(&tokens(sql))?);
            }
        }
        Some(read)
    }

    /// The relations that a view's SQL names. `None`: it calls what may give something else each time.
    fn named_in(&self, tokens: &[Token]) -> Option<Vec<usize>> {
        // A name that is no word would not be found.
        let odd = self.named.iter().filter(|(name, _)| !name.chars().all(is_of_word));
        let mut found: Vec<usize> = odd.flat_map(|(_, at)| at).copied().collect();
        for (at, token) in tokens.iter().enumerate() {
            let Token::Word(word) = token else { continue };
            let is_called = tokens.get(at + 1) == Some(&Token::Open);
            if NEVER_THE_SAME.contains(&word.as_str())
                || is_called && !PURE.contains(&word.as_str())
            {
                return None;
            }
            let Some(named) = self.named.get(word) else { continue };
            let before = at.checked_sub(2).map(|before| &tokens[before..at]);
            let qualified: Vec<usize> = match before {
                Some([Token::Word(schema), Token::Dot]) => {
                    let of = |r: &Relation| r.schema.to_lowercase() == *schema;
                    named.iter().copied().filter(|at| of(&self.relations[*at])).collect()
                }
                _ => Vec::new(),
            };
            // Without its schema it may be any of them.
            found.extend(if qualified.is_empty() { named } else { &qualified });
        }
        Some(found)
    }

    /// A text that moves with the columns and rows of a table and with the SQL of a view. `None`: nothing
    /// tells whether the table has changed.
    fn state(&mut self, at: usize) -> Result<Option<String>> {
        if let Some(state) = self.states.get(&at) {
            return Ok(state.clone());
        }
        let Relation { schema, name, is } = &self.relations[at];
        let counted = (schema == "main").then(|| self.counters.of_all(name)).flatten();
        let state = match is {
            Is::View { sql } => Some(sql.clone()),
            Is::Table { rows, sql } => {
                let rows = match counted {
                    Some(counted) => Some(counted),
                    None if *rows <= COMPARED_ROWS => Some(self.digest(schema, name)?),
                    None => None,
                };
                rows.map(|rows| format!("{sql} {rows}"))
            }
        };
        self.states.insert(at, state.clone());
        Ok(state)
    }

    /// A digest of the rows of a table, whatever their order.
    fn digest(&self, schema: &str, name: &str) -> Result<String> {
        let sql = format!(
            "SELECT concat_ws('/', count(*), sum(hash(_row)), bit_xor(hash(_row))) FROM {}.{} AS _row",
            sql::ident(schema),
            sql::ident(name)
        );
        let digest = sql::query(self.conn, &sql, |row| row.get(0))?;
        Ok(digest.into_iter().next().unwrap_or_default())
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// SQL as DuckDB prints it. What stands in quotes counts like anything else.
fn tokens(sql: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut word = String::new();
    for c in sql.chars().chain([' ']) {
        if is_of_word(c) {
            word.extend(c.to_lowercase());
            continue;
        }
        if !word.is_empty() {
            tokens.push(Token::Word(std::mem::take(&mut word)));
        }
        match c {
            '.' => tokens.push(Token::Dot),
            '(' => tokens.push(Token::Open),
            c if c.is_whitespace() || c == '"' => {}
            _ => tokens.push(Token::Other),
        }
    }
    tokens
}

#[cfg(test)]
mod tests;
