//! The reports in the lake: views with the published file's own SQL, which name tables with their schema and never a
//! database, so that they answer under whatever name the lake is attached. Macros are there too, and answer where the
//! lake is the current catalog (`USE`), as in the published file.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::engine::{Engine, LAKE, PUBLISHED};
use crate::error::{Error, Kind, Result};
use crate::sql;
use crate::text::hex;

/// What reports read of the daemon's own state by way of a view.
const STATE: [&str; 2] = ["known_months", "read_scopes"];

/// What comes before columns that a `*` leaves out.
const EXCLUDE: &str = "EXCLUDE (";

/// The views and macros of the published file.
pub(super) struct Views {
    views: Vec<View>,
    macros: Vec<Macro>,
}

struct View {
    schema: String,
    name: String,
    sql: String,
    comment: Option<String>,
}

struct Macro {
    name: String,
    parameters: Vec<String>,
    sql: String,
    is_table: bool,
}

impl Views {
    /// # Errors
    /// `Lake`.
    pub(super) fn read(engine: &Engine) -> Result<Views> {
        let views = engine.query(
            "read what is published",
            &format!(
                "SELECT schema_name, view_name, sql, comment FROM duckdb_views() \
                 WHERE database_name = '{PUBLISHED}' AND NOT internal \
                   AND (schema_name = 'report' OR schema_name = 'sync' AND view_name IN ({})) ORDER BY ALL",
                sql::texts(STATE)
            ),
            |row| {
                Ok(View { schema: row.get(0)?, name: row.get(1)?, sql: row.get(2)?, comment: row.get(3)? })
            },
        )?;
        let macros = engine.query(
            "read what is published",
            &format!(
                "SELECT function_name, list_aggregate(parameters, 'string_agg', ','), macro_definition, \
                   function_type = 'table_macro' \
                 FROM duckdb_functions() WHERE database_name = '{PUBLISHED}' AND schema_name = 'report' \
                   AND function_type IN ('macro', 'table_macro') ORDER BY ALL"
            ),
            |row| {
                let parameters: Option<String> = row.get(1)?;
                let parameters = parameters.unwrap_or_default();
                let parameters = parameters.split(',').filter(|p| !p.is_empty()).map(str::to_owned);
                Ok(Macro {
                    name: row.get(0)?,
                    parameters: parameters.collect(),
                    sql: row.get(2)?,
                    is_table: row.get(3)?,
                })
            },
        )?;
        Ok(Views { views, macros })
    }

    /// While it stands, the lake has them as they are.
    pub(super) fn digest(&self) -> String {
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text.as_bytes());
        };
        for view in &self.views {
            [&view.schema, &view.name, &in_order(&view.sql)].into_iter().for_each(|text| add(text));
            add(view.comment.as_deref().unwrap_or_default());
        }
        for of in &self.macros {
            add(&of.name);
            of.parameters.iter().for_each(|parameter| add(parameter));
            add(&in_order(&of.sql));
        }
        hex(&digest.finalize())
    }

    /// Puts them in the place of those that the lake has.
    ///
    /// # Errors
    /// `Lake`.
    pub(super) fn write(&self, engine: &Engine) -> Result<()> {
        let there = engine.query(
            "read the lake",
            &format!(
                "SELECT 'VIEW', schema_name, view_name FROM duckdb_views() WHERE database_name = '{LAKE}' AND NOT internal \
                 UNION ALL SELECT if(function_type = 'table_macro', 'MACRO TABLE', 'MACRO'), schema_name, function_name \
                 FROM duckdb_functions() WHERE database_name = '{LAKE}' AND function_type IN ('macro', 'table_macro')"
            ),
            |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?)),
        )?;
        for (kind, schema, name) in there {
            engine.run(
                "replace a report of the lake",
                &format!("DROP {kind} {LAKE}.{}.{}", sql::ident(&schema), sql::ident(&name)),
            )?;
        }
        // Names within them are found in the current catalog while they are made.
        engine.run("use the lake", &format!("USE {LAKE}"))?;
        let written = self.write_in_order(engine);
        engine.run("leave the lake", "USE memory")?;
        written
    }

    /// Each after those that it names.
    fn write_in_order(&self, engine: &Engine) -> Result<()> {
        let mut open: BTreeSet<usize> = (0..self.views.len()).collect();
        while !open.is_empty() {
            let names = |view: &View, other: &View| view.names(&other.schema, &other.name);
            let is_next = |at: &usize| {
                open.iter()
                    .all(|other| other == at || !names(&self.views[*at], &self.views[*other]))
            };
            let Some(next) = open.iter().copied().find(is_next) else {
                return Err(Error::new(Kind::Internal, "reports name each other in a circle"));
            };
            open.remove(&next);
            self.views[next].write(engine)?;
        }
        self.macros.iter().try_for_each(|of| of.write(engine))
    }
}

/// SQL with the columns of each `EXCLUDE (...)` in their order: DuckDB keeps them as a set, which has another order each
/// time that a file is opened.
fn in_order(sql: &str) -> String {
    let mut parts = sql.split(EXCLUDE);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (columns, rest) = part.split_once(')').unwrap_or((part, ""));
        let mut columns: Vec<&str> = columns.split(", ").collect();
        columns.sort_unstable();
        text += &format!("{EXCLUDE}{}){rest}", columns.join(", "));
    }
    text
}

impl View {
    /// Whether its SQL names another view.
    fn names(&self, schema: &str, name: &str) -> bool {
        let body = self.body().unwrap_or_default();
        let full = format!("{schema}.{name}");
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
        body.match_indices(&full).any(|(at, _)| {
            let (before, after) = (&body[..at], &body[at + full.len()..]);
            !before.ends_with(is_of_word) && !after.starts_with(is_of_word)
        })
    }

    /// Its query, behind the first `AS`: DuckDB prints `CREATE VIEW schema.name AS SELECT ...;`.
    fn body(&self) -> Option<&str> {
        let (_, body) = self.sql.split_once(" AS ")?;
        Some(body.trim_end().trim_end_matches(';'))
    }

    fn write(&self, engine: &Engine) -> Result<()> {
        let name = format!("{}.{}", sql::ident(&self.schema), sql::ident(&self.name));
        let doing = format!("make {}.{} in the lake", self.schema, self.name);
        let body = self.body().ok_or_else(|| {
            Error::new(Kind::Internal, format!("the SQL of {name} is not as DuckDB prints it"))
        })?;
        engine.run(&doing, &format!("CREATE VIEW {name} AS {body}"))?;
        match &self.comment {
            Some(comment) => {
                engine.run(&doing, &format!("COMMENT ON VIEW {name} IS {}", sql::text(comment)))
            }
            None => Ok(()),
        }
    }
}

impl Macro {
    fn write(&self, engine: &Engine) -> Result<()> {
        let parameters = sql::idents(self.parameters.iter().map(String::as_str));
        let table = if self.is_table { "TABLE " } else { "" };
        engine.run(
            &format!("make report.{} in the lake", self.name),
            &format!(
                "CREATE MACRO report.{}({parameters}) AS {table}{}",
                sql::ident(&self.name),
                self.sql
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_are_left_out_have_no_order() {
        let sql = |first: &str, second: &str| {
            let one = format!("SELECT * EXCLUDE ({first}) FROM (SELECT 1 AS a, f(b) FROM t)");
            format!("{one} UNION ALL SELECT * EXCLUDE ({second}) REPLACE (1 AS e) FROM u")
        };
        let ordered = sql("_change, _valid_from, _valid_to", "c");
        assert_eq!(in_order(&sql("_valid_to, _change, _valid_from", "c")), ordered);
        assert_eq!(in_order(&ordered), ordered);
        assert_ne!(in_order(&sql("_valid_to, _change", "c")), ordered);
        assert_eq!(in_order("SELECT 1"), "SELECT 1");
    }
}
