//! What the tables and columns are, as `COMMENT ON` in the store: readers of the published file look
//! there.

use std::collections::HashSet;

use duckdb::Connection;
use sha2::{Digest, Sha256};

use super::schema::{meta, set_meta};
use crate::catalog::{Catalog, Resource, comment_on_column, comment_on_table};
use crate::error::Result;
use crate::sql::{self, db, query, transaction};
use crate::text::hex;

/// Key of `sync.meta`: which comments the store has.
const META: &str = "comments";

/// Gives the tables the comments of their files, where they have others.
///
/// A table is a transaction of its own. DuckDB copies a table's whole description for each comment, and
/// keeps the copies until the transaction ends: for all tables at once they were 100 MB.
pub(super) fn describe(conn: &Connection, catalog: &Catalog) -> Result<()> {
    let digest = digest(catalog);
    if meta(conn, META)?.as_deref() == Some(digest.as_str()) {
        return Ok(());
    }
    let said = said(conn)?;
    for resource in catalog.resources() {
        for (schema, history) in PLACES {
            let mut wanted = resource.comments(schema, history);
            wanted.retain(|comment| !said.contains(comment));
            if wanted.is_empty() {
                continue;
            }
            transaction(conn, || {
                conn.execute_batch(&wanted.join(";\n"))
                    .map_err(|e| db(&format!("cannot describe {schema}.{}", resource.table), e))
            })?;
        }
    }
    transaction(conn, || set_meta(conn, META, &digest))
}

/// Columns were made that no catalog asked for: whether they have their comments is not known.
pub(super) fn look_again(conn: &Connection) -> Result<()> {
    set_meta(conn, META, "")
}

/// Where a table stands, and whether that is history.
const PLACES: [(&str, bool); 2] = [("main", false), ("history", true)];

/// A text that moves with the comments.
fn digest(catalog: &Catalog) -> String {
    let mut hasher = Sha256::new();
    let of =
        |resource: &Resource| PLACES.map(|(schema, history)| resource.comments(schema, history));
    for comment in catalog.resources().iter().flat_map(|resource| of(resource)).flatten() {
        hasher.update(comment);
    }
    hex(&hasher.finalize())
}

/// The comments that the store has, as the statements that give them.
fn said(conn: &Connection) -> Result<HashSet<String>> {
    let table = |schema: &str, name: &str| format!("{}.{}", sql::ident(schema), sql::ident(name));
    let of_tables = query(
        conn,
        "SELECT schema_name, table_name, comment FROM duckdb_tables() \
         WHERE database_name = current_database() AND comment IS NOT NULL",
        |row| {
            let (schema, name): (String, String) = (row.get(0)?, row.get(1)?);
            Ok(comment_on_table(&table(&schema, &name), &row.get::<_, String>(2)?))
        },
    )?;
    let of_columns = query(
        conn,
        "SELECT schema_name, table_name, column_name, comment FROM duckdb_columns() \
         WHERE database_name = current_database() AND comment IS NOT NULL",
        |row| {
            let (schema, name): (String, String) = (row.get(0)?, row.get(1)?);
            let column: String = row.get(2)?;
            Ok(comment_on_column(&table(&schema, &name), &column, &row.get::<_, String>(3)?))
        },
    )?;
    Ok(of_tables.into_iter().chain(of_columns).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Config;
    use crate::mirror::Store;
    use crate::sql::scalar_i64;

    #[test]
    fn all_tables_have_the_comments_of_their_files_and_one_that_is_lost_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let url = "http://127.0.0.1:1/".parse().unwrap();
        let config = Config::for_demo(url, "id", String::from("secret").into(), folder.path());
        let catalog = Arc::new(Catalog::load(None).unwrap());
        let store = Store::open(&config, &catalog).unwrap();
        let conn = store.connection().unwrap();
        let without = "SELECT count(*) FROM duckdb_columns() WHERE comment IS NULL \
                       AND database_name = current_database() AND schema_name IN ('main', 'history')";
        assert_eq!(scalar_i64(&conn, without).unwrap(), 0);
        // As a process that was killed between two tables leaves it.
        conn.execute_batch(
            "COMMENT ON COLUMN history.notes.id IS NULL; COMMENT ON TABLE main.cases IS 'other'; \
             DELETE FROM sync.meta WHERE key = 'comments'",
        )
        .unwrap();
        describe(&conn, &catalog).unwrap();
        assert_eq!(scalar_i64(&conn, without).unwrap(), 0);
        let said = said(&conn).unwrap();
        let lacking = catalog.resources().iter().flat_map(|resource| {
            PLACES.map(|(schema, history)| resource.comments(schema, history))
        });
        assert_eq!(lacking.flatten().find(|comment| !said.contains(comment)), None);
    }
}
