//! Scopes that nothing names any more and of which nothing is mirrored: nobody asks for them again, so that what failed
//! of them, or did not fit, is over.

use std::collections::BTreeSet;

use duckdb::Connection;
use jiff::Timestamp;

use super::removal::forget_scopes;
use super::state::{ids, list};
use crate::catalog::{Catalog, Group, Resource};
use crate::error::Result;
use crate::sql;

/// Forgets those of contacts, and of tables that are read per row of another.
///
/// # Errors
/// Those of the store.
pub(crate) fn forget_unnamed(conn: &Connection, catalog: &Catalog, now: Timestamp) -> Result<()> {
    let troubled: BTreeSet<String> = sql::query(
        conn,
        "SELECT table_name FROM sync.failures UNION \
         SELECT table_name FROM sync.rejects WHERE resolved_at IS NULL",
        |row| row.get(0),
    )?
    .into_iter()
    .collect();
    for resource in catalog.resources() {
        let Some(naming) = naming(resource) else { continue };
        let children = catalog.children(&resource.table).map(AsRef::as_ref);
        let tables: Vec<&str> =
            std::iter::once(resource.as_ref()).chain(children).map(|r| r.table.as_str()).collect();
        if !tables.iter().any(|table| troubled.contains(*table)) {
            continue;
        }
        let of_tables = sql::texts(tables.iter().copied());
        let mut unnamed: BTreeSet<i64> = ids(
            conn,
            &format!(
                "SELECT id FROM sync.failures WHERE table_name IN ({of_tables}) AND part = '' \
                 UNION SELECT TRY_CAST(scope AS BIGINT) FROM sync.rejects \
                   WHERE table_name IN ({of_tables}) AND resolved_at IS NULL \
                     AND TRY_CAST(scope AS BIGINT) IS NOT NULL"
            ),
        )?
        .into_iter()
        .collect();
        for (column, relation) in naming {
            if unnamed.is_empty() {
                break;
            }
            // Only those: the relation may have millions of rows.
            let named = ids(
                conn,
                &format!(
                    "SELECT DISTINCT {column} FROM {relation} WHERE {column} IN ({})",
                    list(&unnamed)
                ),
            )?;
            for id in named {
                unnamed.remove(&id);
            }
        }
        if !unnamed.is_empty() {
            let unnamed = format!("SELECT unnest([{}])", list(&unnamed));
            forget_scopes(conn, tables.into_iter(), &unnamed, now)?;
        }
    }
    Ok(())
}

/// What names the scopes of a table, as columns of relations (SQL); `None` for tables whose scopes stay whatever names
/// them.
fn naming(resource: &Resource) -> Option<Vec<(String, String)>> {
    let column =
        |column: &str, table: &str| (sql::ident(column), format!("main.{}", sql::ident(table)));
    match &resource.group {
        Group::Ids if resource.table == "contacts" => Some(vec![
            column("contact_id", "case_roles"),
            ("contact_id".to_owned(), "sync.seen_contacts".to_owned()),
            ("id".to_owned(), "(FROM sync.hints WHERE table_name = 'contacts')".to_owned()),
            column("id", "contacts"),
        ]),
        Group::ForEach(each) if each.list.is_none() => {
            Some(vec![column(&each.column, &each.table), column(&each.param, &resource.table)])
        }
        Group::Ids
        | Group::ForEach(_)
        | Group::Case
        | Group::List
        | Group::Child(_)
        | Group::Events
        | Group::Journal(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;
    use crate::mirror::state::batch;

    #[test]
    fn what_failed_or_did_not_fit_is_over_once_nothing_names_it() {
        let conn = fixture::store(None, 2026..=2026);
        let catalog = Catalog::load(None).unwrap();
        batch(
            &conn,
            "INSERT INTO main.offices BY NAME SELECT 17 AS id; \
             INSERT INTO main.accounts BY NAME SELECT 18 AS office_id, 1 AS id; \
             INSERT INTO main.case_roles BY NAME SELECT 1 AS case_id, \
               unnest([2, 3]) AS id, unnest([17, NULL]) AS contact_id; \
             INSERT INTO main.contacts BY NAME SELECT 18 AS id; \
             INSERT INTO sync.hints BY NAME SELECT 'contacts' AS table_name, 20 AS id; \
             INSERT INTO sync.failures BY NAME SELECT 'contacts' AS table_name, 20 AS id, '' AS part, \
               1 AS attempts, 'server' AS kind, 'a webhook named it' AS error; \
             INSERT INTO sync.failures BY NAME SELECT table_name, id, '' AS part, 1 AS attempts, \
               'server' AS kind, 'why' AS error FROM (SELECT unnest([17, 18, 19]) AS id), \
               (SELECT unnest(['accounts', 'contacts', 'notes']) AS table_name); \
             INSERT INTO sync.rejects BY NAME SELECT table_name, scope, 'k' AS record_key \
               FROM (SELECT unnest(['17', '18', '19', 'all']) AS scope), \
               (SELECT unnest(['accounts', 'contacts', 'notes']) AS table_name)",
        )
        .unwrap();
        forget_unnamed(&conn, &catalog, "2026-06-01T00:00:00Z".parse().unwrap()).unwrap();
        let left = |sql: &str| -> Vec<String> { sql::query(&conn, sql, |row| row.get(0)).unwrap() };
        assert_eq!(
            left("SELECT table_name || ' ' || id FROM sync.failures ORDER BY ALL"),
            [
                "accounts 17",
                "accounts 18",
                "contacts 17",
                "contacts 18",
                "contacts 20",
                "notes 17",
                "notes 18",
                "notes 19"
            ]
        );
        assert_eq!(
            left(
                "SELECT table_name || ' ' || scope FROM sync.rejects \
                 WHERE resolved_at IS NOT NULL ORDER BY ALL"
            ),
            ["accounts 19", "contacts 19"]
        );
    }
}
