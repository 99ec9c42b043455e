//! The tables as SQL: how they are made, and their comments.

use super::resource::Resource;
use crate::sql;

/// Column with what no other column takes (docs/architecture.md, "Values").
pub(crate) const EXTRA_COLUMN: &str = "_extra";
/// Column with the time at which this version was written (docs/architecture.md, "Values").
pub(crate) const SYNCED_AT_COLUMN: &str = "_synced_at";

impl Resource {
    /// `CREATE TABLE` in `schema`, without comments.
    pub(crate) fn create_table(&self, schema: &str, history: bool) -> String {
        let mut lines: Vec<String> = self
            .columns
            .iter()
            .map(|c| format!("{} {}", sql::ident(&c.name), c.kind.sql()))
            .collect();
        lines.push(format!("{SYNCED_AT_COLUMN} TIMESTAMPTZ"));
        lines.push(format!("{EXTRA_COLUMN} VARCHAR"));
        if history {
            lines.push("_valid_from TIMESTAMPTZ".to_owned());
            lines.push("_valid_to TIMESTAMPTZ".to_owned());
            lines.push("_change VARCHAR".to_owned());
        }
        format!(
            "CREATE TABLE {}.{} (\n  {}\n)",
            sql::ident(schema),
            sql::ident(&self.table),
            lines.join(",\n  ")
        )
    }

    /// `COMMENT ON` for the table and each of its columns.
    pub(crate) fn comments(&self, schema: &str, history: bool) -> Vec<String> {
        let table = format!("{}.{}", sql::ident(schema), sql::ident(&self.table));
        let about = if history {
            format!("Earlier versions of the rows of main.{}. {}", self.table, self.comment)
        } else {
            self.comment.clone()
        };
        let mut all = vec![comment_on_table(&table, &about)];
        let mut column = |name: &str, comment: &str| {
            all.push(comment_on_column(&table, name, comment));
        };
        for c in &self.columns {
            column(&c.name, &c.comment);
        }
        for (name, comment) in OWN_COLUMNS {
            column(name, comment);
        }
        if history {
            for (name, comment) in HISTORY_COLUMNS {
                column(name, comment);
            }
        }
        all
    }
}

/// `table` is quoted already.
pub(crate) fn comment_on_table(table: &str, comment: &str) -> String {
    format!("COMMENT ON TABLE {table} IS {}", sql::text(comment))
}

/// `table` is quoted already.
pub(crate) fn comment_on_column(table: &str, column: &str, comment: &str) -> String {
    format!("COMMENT ON COLUMN {table}.{} IS {}", sql::ident(column), sql::text(comment))
}

/// The columns that every table has beside the source's, with their comments.
pub(crate) const OWN_COLUMNS: [(&str, &str); 2] = [
    (SYNCED_AT_COLUMN, "When this version of the row was written; an unchanged row keeps it"),
    (
        EXTRA_COLUMN,
        "JSON object of the record's fields that no column takes and of values that did not fit \
         theirs; NULL when there are none",
    ),
];

/// The columns that history tables have beside these.
pub(crate) const HISTORY_COLUMNS: [(&str, &str); 3] = [
    ("_valid_from", "When this version was written"),
    ("_valid_to", "When it was replaced or left"),
    ("_change", "What ended it: updated, deleted, or hidden from the search"),
];
