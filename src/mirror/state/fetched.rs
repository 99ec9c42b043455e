//! What was fetched: one row per case with a version per refresh rule, and exceptions
//! (`src/mirror/fetched.sql`).
//!
//! `sync.fetched` shows it as one row per table and scope, and `sync.read_scopes` only that it was read, by which a lake
//! need not have the rest. Statements of a commit and of a plan do not go through these views: they name the ids that
//! they are about ([`rows_of`]).

use std::collections::BTreeSet;

use duckdb::Connection;

use crate::catalog::{Catalog, Group, Refresh};
use crate::error::Result;
use crate::scope::{FetchStatus, Mark};
use crate::sql::{self, db, scalar_i64};

/// The number of the last mark: what is fetched now is newer than it.
pub(in crate::mirror) const MARK_NOW: &str =
    "(SELECT coalesce(max(greatest(mark, forgotten)), 0) FROM sync.fetched_marks)";

/// How many cases are folded at once when a store is brought up to this version. DuckDB takes some 100 KB for each:
/// ordered lists have a buffer per group.
const FOLDED_AT_ONCE: i64 = 1_000;

/// The exceptions and what is no case's, of these ids (SQL) or all, as `sync.fetched` shows them.
pub(in crate::mirror) fn exceptions(ids: Option<&str>) -> String {
    let scopes = among("sync.fetched_scopes", "id", ids);
    format!(
        "SELECT x.table_name, x.id, x.part, x.version, \
           CASE WHEN m.mark > x.mark THEN m.status ELSE x.status END AS status, \
           x.sent_at, x.fetched_at, x.definition, x.complete, x.again_at, x.digest \
         FROM {scopes} x LEFT JOIN sync.fetched_marks m ON m.table_name = x.table_name \
         WHERE (m.forgotten IS NULL OR m.forgotten <= x.mark)"
    )
}

/// What the rows of these cases, or of all, say of the scopes that no exception overrules.
fn folded(ids: Option<&str>) -> String {
    let cases = among("sync.fetched_cases", "case_id", ids);
    let scopes = among("sync.fetched_scopes", "id", ids);
    format!(
        "SELECT c.table_name, f.case_id AS id, '' AS part, f.versions[c.version_at] AS version, \
           CASE WHEN m.mark > f.mark THEN m.status ELSE f.status END AS status, \
           f.sent_at[c.times_at] AS sent_at, f.fetched_at[c.times_at] AS fetched_at, \
           c.definition, true AS complete, NULL::BIGINT AS again_at, \
           f.digests[c.times_at] AS digest \
         FROM {cases} f JOIN sync.fetched_coverage c ON c.coverage = f.coverage \
         ANTI JOIN (SELECT id, table_name FROM {scopes} WHERE part = '') x \
           ON x.id = f.case_id AND x.table_name = c.table_name \
         LEFT JOIN sync.fetched_marks m ON m.table_name = c.table_name \
         WHERE (m.forgotten IS NULL OR m.forgotten <= f.mark)"
    )
}

/// A table's rows with these ids, or all, taken before anything is joined to them.
fn among(table: &str, column: &str, ids: Option<&str>) -> String {
    ids.map_or_else(
        || table.to_owned(),
        |ids| format!("(SELECT * FROM {table} WHERE {column} IN ({ids}))"),
    )
}

/// The rows of `sync.fetched` with these ids (SQL: a query or a list), as a query that reads no others.
pub(in crate::mirror) fn rows_of(ids: &str) -> String {
    format!("{} UNION ALL {}", exceptions(Some(ids)), folded(Some(ids)))
}

/// Makes the tables of what was fetched, and the view.
pub(in crate::mirror) fn create(conn: &Connection) -> Result<()> {
    conn.execute_batch(include_str!("fetched.sql"))
        .map_err(|e| db("cannot create the store's state", e))
}

/// Makes the view `sync.fetched`.
pub(in crate::mirror) fn create_view(conn: &Connection) -> Result<()> {
    let comment = "Per table and scope: the change dates it was fetched at (version), whether that \
                   holds or why it is read again (status), and when";
    conn.execute_batch(&format!(
        "CREATE VIEW sync.fetched AS SELECT * EXCLUDE (digest) FROM ({} UNION ALL {}); \
         COMMENT ON VIEW sync.fetched IS {}",
        exceptions(None),
        folded(None),
        sql::text(comment)
    ))
    .map_err(|e| db("cannot create the store's state", e))
}

/// Notes by which dates the tables are refreshed that are read per case.
pub(in crate::mirror) fn note_rules(conn: &Connection, catalog: &Catalog) -> Result<()> {
    let failed = |e| db("cannot note what makes tables stale", e);
    let rules = rules_of(catalog);
    if noted_rules(conn)? == rules {
        return Ok(());
    }
    let rows: Vec<String> = rules
        .iter()
        .map(|(table, rule)| format!("({}, {})", sql::text(table), sql::text(rule)))
        .collect();
    conn.execute_batch("DELETE FROM sync.refresh_rules").map_err(failed)?;
    if rows.is_empty() {
        return Ok(());
    }
    conn.execute_batch(&format!("INSERT INTO sync.refresh_rules VALUES {}", rows.join(", ")))
        .map_err(failed)
}

/// The tables that resource files say to be refreshed by other dates than is noted.
pub(in crate::mirror) fn refreshed_otherwise(
    conn: &Connection,
    catalog: &Catalog,
) -> Result<BTreeSet<String>> {
    let (there, here) = (noted_rules(conn)?, rules_of(catalog));
    Ok(here.symmetric_difference(&there).map(|(table, _)| table.clone()).collect())
}

fn noted_rules(conn: &Connection) -> Result<BTreeSet<(String, String)>> {
    let noted = sql::query(conn, "SELECT table_name, rule FROM sync.refresh_rules", |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    Ok(noted.into_iter().collect())
}

/// With each table that is read per case, by which dates it is refreshed.
fn rules_of(catalog: &Catalog) -> BTreeSet<(String, String)> {
    let mut rules = BTreeSet::new();
    for resource in catalog.resources() {
        let is_case = match resource.group {
            Group::Case => true,
            Group::Ids => resource.table != "contacts",
            Group::List
            | Group::ForEach(_)
            | Group::Child(_)
            | Group::Events
            | Group::Journal(_) => false,
        };
        let rule = match &resource.refresh {
            Refresh::None => "none".to_owned(),
            Refresh::Any => "any".to_owned(),
            Refresh::Dates(change_dates) => {
                let change_dates: Vec<String> = change_dates
                    .iter()
                    .map(|change_date| (*change_date as usize).to_string())
                    .collect();
                change_dates.join(",")
            }
        };
        if is_case {
            rules.insert((resource.table.clone(), rule));
        }
    }
    rules
}

/// What was fetched, on one connection.
pub(in crate::mirror) struct FetchedScopes<'c> {
    conn: &'c Connection,
}

impl<'c> FetchedScopes<'c> {
    pub(in crate::mirror) fn new(conn: &'c Connection) -> FetchedScopes<'c> {
        FetchedScopes { conn }
    }

    /// Everything that was fetched of these tables (SQL) is read again.
    pub(in crate::mirror) fn mark_tables(&self, tables: &str, mark: Mark) -> Result<()> {
        self.write(&format!(
            "CREATE OR REPLACE TEMP TABLE stage_marked AS \
               SELECT DISTINCT t.table_name, {MARK_NOW} + 1 AS mark FROM ({tables}) t(table_name); \
             UPDATE sync.fetched_marks m SET status = '{mark}', mark = n.mark \
               FROM temp.stage_marked n WHERE m.table_name = n.table_name; \
             INSERT INTO sync.fetched_marks SELECT n.table_name, '{mark}', n.mark, 0 \
               FROM temp.stage_marked n WHERE NOT EXISTS \
                 (SELECT 1 FROM sync.fetched_marks m WHERE m.table_name = n.table_name); \
             DROP TABLE temp.stage_marked"
        ))
    }

    /// A table counts as never read.
    pub(in crate::mirror) fn forget_table(&self, table: &str) -> Result<()> {
        let name = sql::text(table);
        self.write(&format!(
            "DELETE FROM sync.fetched_scopes WHERE table_name = {name}; \
             CREATE OR REPLACE TEMP TABLE stage_marked AS \
               SELECT coalesce(max(status), 'current') AS status, coalesce(max(mark), 0) AS mark, \
                 {MARK_NOW} + 1 AS forgotten FROM sync.fetched_marks WHERE table_name = {name}; \
             DELETE FROM sync.fetched_marks WHERE table_name = {name}; \
             INSERT INTO sync.fetched_marks \
               SELECT {name}, status, mark, forgotten FROM temp.stage_marked; \
             DROP TABLE temp.stage_marked"
        ))
    }

    /// Everything that was fetched of cases of `sync.seen s` for which `condition` holds has this
    /// status.
    pub(in crate::mirror) fn mark_cases(&self, condition: &str, status: FetchStatus) -> Result<()> {
        self.write(&format!(
            "UPDATE sync.fetched_cases f SET status = '{status}' FROM sync.seen s \
               WHERE f.case_id = s.case_id AND {condition}; \
             UPDATE sync.fetched_scopes f SET status = '{status}' FROM sync.seen s \
               WHERE f.id = s.case_id AND f.part = '' AND {condition} \
                 AND f.table_name IN (SELECT table_name FROM sync.refresh_rules)"
        ))
    }

    /// The exceptions that `named` (a table of `table_name` and `id`) names have this status, and no answer of them is known
    /// to be loaded; see [`FetchedScopes::unfold`].
    pub(in crate::mirror) fn mark_scopes(&self, named: &str, status: FetchStatus) -> Result<()> {
        self.write(&format!(
            "UPDATE sync.fetched_scopes f SET status = '{status}', digest = NULL FROM {named} n \
               WHERE f.table_name = n.table_name AND f.id = n.id AND f.part = ''"
        ))
    }

    /// The cases among `ids` (SQL) whose row says something of these tables (SQL) become exceptions, so
    /// that one scope of them can be changed.
    pub(in crate::mirror) fn unfold(&self, tables: &str, ids: &str) -> Result<()> {
        self.write(&format!(
            "CREATE OR REPLACE TEMP TABLE stage_unfolded AS \
               SELECT f.case_id AS id FROM sync.fetched_cases f WHERE f.case_id IN ({ids}) \
                 AND f.coverage IN (SELECT coverage FROM sync.fetched_coverage \
                                    WHERE table_name IN ({tables}))"
        ))?;
        if scalar_i64(self.conn, "SELECT count(*) FROM temp.stage_unfolded")? == 0 {
            return Ok(());
        }
        let these = "SELECT id FROM temp.stage_unfolded";
        self.write(&format!(
            "INSERT INTO sync.fetched_scopes BY NAME \
               SELECT *, {MARK_NOW} AS mark FROM ({}); \
             DELETE FROM sync.fetched_cases WHERE case_id IN ({these})",
            folded(Some(these))
        ))
    }

    /// What was fetched of the cases among `ids` (SQL) becomes one row each, as far as it is current.
    /// `sync.fetched` shows the same before and after.
    pub(in crate::mirror) fn fold(&self, ids: &str) -> Result<()> {
        self.write(&format!(
            "CREATE OR REPLACE TEMP TABLE fold_ids AS \
               SELECT DISTINCT x.id FROM sync.fetched_scopes x WHERE x.part = '' AND x.id IN ({ids}) \
                 AND x.table_name IN (SELECT table_name FROM sync.refresh_rules)"
        ))?;
        if scalar_i64(self.conn, "SELECT count(*) FROM temp.fold_ids")? == 0 {
            return Ok(());
        }
        let these = "SELECT id FROM temp.fold_ids";
        let layout = "string_agg(concat_ws('/', table_name, coalesce(definition::VARCHAR, '-'), \
                      version_at), ',' ORDER BY table_name)";
        self.write(&format!(
            "CREATE OR REPLACE TEMP TABLE fold_rows AS \
               SELECT v.*, r.rule, v.status = 'current' AND v.complete AND v.again_at IS NULL \
                 AND v.version IS NOT NULL AS folds \
               FROM ({rows}) v JOIN sync.refresh_rules r ON r.table_name = v.table_name \
               WHERE v.part = ''; \
             CREATE OR REPLACE TEMP TABLE fold_taken AS \
               SELECT r.*, dense_rank() OVER (PARTITION BY r.id ORDER BY r.rule) AS version_at, \
                 row_number() OVER (PARTITION BY r.id ORDER BY r.table_name) AS times_at, \
                 row_number() OVER (PARTITION BY r.id, r.rule ORDER BY r.table_name) = 1 AS speaks \
               FROM temp.fold_rows r \
               JOIN (SELECT id, rule, arg_max(version, fetched_at) AS version FROM temp.fold_rows \
                     WHERE folds GROUP BY id, rule) v \
                 ON v.id = r.id AND v.rule = r.rule AND v.version = r.version \
               WHERE r.folds; \
             CREATE OR REPLACE TEMP TABLE fold_cases AS \
               SELECT id, {layout} AS layout, \
                 list(version ORDER BY version_at) FILTER (speaks) AS versions, \
                 list(sent_at ORDER BY times_at) AS sent_at, \
                 list(fetched_at ORDER BY times_at) AS fetched_at, \
                 list(digest ORDER BY times_at) AS digests \
               FROM temp.fold_taken GROUP BY id; \
             CREATE OR REPLACE TEMP TABLE fold_new AS \
               SELECT row_number() OVER (ORDER BY layout) \
                 + (SELECT coalesce(max(coverage), 0) FROM sync.fetched_coverage) AS coverage, \
                 min(id) AS id \
               FROM temp.fold_cases WHERE layout NOT IN \
                 (SELECT {layout} FROM sync.fetched_coverage GROUP BY coverage) \
               GROUP BY layout; \
             INSERT INTO sync.fetched_coverage \
               SELECT n.coverage, t.table_name, t.definition, t.version_at, t.times_at \
               FROM temp.fold_new n JOIN temp.fold_taken t ON t.id = n.id; \
             DELETE FROM sync.fetched_cases WHERE case_id IN ({these}); \
             INSERT INTO sync.fetched_cases BY NAME \
               SELECT n.id AS case_id, c.coverage, n.versions, n.sent_at, n.fetched_at, \
                 'current' AS status, {MARK_NOW} AS mark, n.digests \
               FROM temp.fold_cases n JOIN \
                 (SELECT coverage, {layout} AS layout FROM sync.fetched_coverage GROUP BY coverage) c \
                 ON c.layout = n.layout; \
             DELETE FROM sync.fetched_scopes WHERE part = '' AND id IN ({these}) \
               AND table_name IN (SELECT table_name FROM sync.refresh_rules); \
             INSERT INTO sync.fetched_scopes BY NAME \
               SELECT r.* EXCLUDE (rule, folds), {MARK_NOW} AS mark FROM temp.fold_rows r \
               WHERE NOT EXISTS (SELECT 1 FROM temp.fold_taken t \
                                 WHERE t.id = r.id AND t.table_name = r.table_name); \
             DROP TABLE temp.fold_rows; DROP TABLE temp.fold_taken; DROP TABLE temp.fold_cases; \
             DROP TABLE temp.fold_new; DROP TABLE temp.fold_ids",
            rows = rows_of(these)
        ))
    }

    /// Folds every case of the store, some at a time.
    pub(in crate::mirror) fn fold_all(&self) -> Result<()> {
        let mut after: Option<i64> = None;
        loop {
            let behind = after.map_or(String::new(), |id| format!("AND id > {id}"));
            let of_cases =
                "part = '' AND table_name IN (SELECT table_name FROM sync.refresh_rules)";
            let batch = format!(
                "SELECT DISTINCT id FROM sync.fetched_scopes WHERE {of_cases} {behind} \
                 ORDER BY id LIMIT {FOLDED_AT_ONCE}"
            );
            let last = sql::query(self.conn, &format!("SELECT max(id) FROM ({batch})"), |row| {
                row.get::<_, Option<i64>>(0)
            })?;
            let Some(last) = last.into_iter().next().flatten() else { return Ok(()) };
            let from = after.map_or(String::new(), |id| format!("id > {id} AND"));
            self.fold(&format!("SELECT id FROM sync.fetched_scopes WHERE {from} id <= {last}"))?;
            after = Some(last);
        }
    }

    fn write(&self, sql: &str) -> Result<()> {
        self.conn.execute_batch(sql).map_err(|e| db("cannot note what was fetched", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;

    /// Cases 1 to 4, as they were just read: two tables of one rule and one of another.
    fn store() -> Connection {
        let conn = fixture::store(None, 2026..=2026);
        for (n, (table, version)) in
            [("cases", "a"), ("costs", "a"), ("activities", "7"), ("entries", "null")]
                .into_iter()
                .enumerate()
        {
            conn.execute_batch(&format!(
                "INSERT INTO sync.fetched_scopes \
                 SELECT '{table}', i, '', '{version}' || i, 'current', \
                   ('2026-05-0' || i || ' 10:00:0{n}+00')::TIMESTAMPTZ, \
                   ('2026-05-0' || i || ' 10:00:1{n}+00')::TIMESTAMPTZ, 1, true, NULL, 0, \
                   CASE WHEN {n} < 3 THEN 10 * i + {n} END \
                 FROM range(1, 5) t(i); \
                 INSERT INTO sync.fetched_scopes BY NAME SELECT 'contacts' AS table_name, 1 AS id, \
                   '' AS part, 'unknown' AS version, true AS complete WHERE {n} = 0; \
                 INSERT INTO sync.seen BY NAME SELECT i AS case_id, {n} = 9 AS removed \
                   FROM range(1, 5) t(i) WHERE {n} = 0"
            ))
            .unwrap();
        }
        conn
    }

    /// What `sync.fetched` shows, with the digests, a line per row; `sync.read_scopes` shows the same scopes.
    fn shown(conn: &Connection) -> Vec<String> {
        let scopes = |view: &str| {
            let scopes = format!(
                "SELECT concat_ws(' ', table_name, id, part, complete) FROM sync.{view} ORDER BY 1"
            );
            sql::query(conn, &scopes, |row| row.get::<_, String>(0)).unwrap()
        };
        assert_eq!(scopes("read_scopes"), scopes("fetched"));
        let all = format!("{} UNION ALL {}", exceptions(None), folded(None));
        let rows = format!("SELECT f::VARCHAR FROM ({all}) f ORDER BY table_name, id, part");
        sql::query(conn, &rows, |row| row.get(0)).unwrap()
    }

    fn count(conn: &Connection, table: &str) -> i64 {
        scalar_i64(conn, &format!("SELECT count(*) FROM sync.{table}")).unwrap()
    }

    fn statuses(conn: &Connection, id: i64) -> String {
        let rows = format!(
            "SELECT coalesce(string_agg(table_name || ' ' || status, ', ' ORDER BY table_name), '') \
             FROM ({}) WHERE table_name <> 'contacts'",
            rows_of(&id.to_string())
        );
        sql::query(conn, &rows, |row| row.get(0)).unwrap().remove(0)
    }

    #[test]
    fn cases_are_one_row_each_and_show_the_same_as_before() {
        let conn = store();
        conn.execute_batch(
            "UPDATE sync.fetched_scopes SET again_at = 5 WHERE table_name = 'cases' AND id = 2; \
             UPDATE sync.fetched_scopes SET status = 'held', version = NULL \
               WHERE table_name = 'activities' AND id = 3; \
             UPDATE sync.fetched_scopes SET version = 'other' \
               WHERE table_name = 'costs' AND id = 4",
        )
        .unwrap();
        let log = FetchedScopes::new(&conn);
        let before = shown(&conn);
        assert_eq!(before.len(), 17);
        log.fold("SELECT id FROM sync.fetched_scopes WHERE id <> 1").unwrap();
        assert_eq!(shown(&conn), before);
        log.fold_all().unwrap();
        assert_eq!(shown(&conn), before);
        // Four cases; three scopes that differ from their case, and a contact.
        assert_eq!((count(&conn, "fetched_cases"), count(&conn, "fetched_scopes")), (4, 4));
        log.fold_all().unwrap();
        log.fold("1, 2, 3, 4").unwrap();
        assert_eq!(shown(&conn), before);
        assert_eq!(count(&conn, "fetched_scopes"), 4);
        log.unfold("'activities'", "1, 3").unwrap();
        assert_eq!(shown(&conn), before);
        assert_eq!(count(&conn, "fetched_cases"), 3, "of case 3 the row says nothing of it");
    }

    #[test]
    fn cases_of_which_the_same_was_read_have_one_coverage() {
        let conn = store();
        FetchedScopes::new(&conn).fold_all().unwrap();
        assert_eq!(count(&conn, "fetched_coverage"), 4, "four tables");
        let lists = "SELECT max(len(versions)) FROM sync.fetched_cases";
        assert_eq!(scalar_i64(&conn, lists).unwrap(), 3, "three rules");
    }

    #[test]
    fn what_is_read_after_it_overrules_the_cases_row_until_it_is_folded() {
        let conn = store();
        let log = FetchedScopes::new(&conn);
        log.fold_all().unwrap();
        conn.execute_batch(
            "INSERT INTO sync.fetched_scopes BY NAME SELECT 'activities' AS table_name, 2 AS id, \
               '' AS part, '8' AS version, true AS complete, now() AS fetched_at, \
               now() AS sent_at, 1 AS definition",
        )
        .unwrap();
        let version = "SELECT version FROM sync.fetched WHERE id = 2 AND table_name = 'activities'";
        let versions = || sql::query(&conn, version, |row| row.get::<_, String>(0)).unwrap();
        assert_eq!(versions(), ["8"]);
        let before = shown(&conn);
        log.fold("2").unwrap();
        assert_eq!(versions(), ["8"]);
        assert_eq!(shown(&conn), before);
        assert_eq!(count(&conn, "fetched_scopes"), 1, "the contact");
    }

    #[test]
    fn a_mark_holds_for_what_was_fetched_before_it_folded_or_not() {
        let conn = store();
        let log = FetchedScopes::new(&conn);
        log.fold("1, 2").unwrap();
        log.mark_tables("SELECT 'entries'", Mark::Redefined).unwrap();
        let marked = "activities current, cases current, costs current, entries redefined";
        let current = "activities current, cases current, costs current, entries current";
        for id in 1..=4 {
            assert_eq!(statuses(&conn, id), marked, "{id}");
        }
        // Read again, as a commit notes it.
        conn.execute_batch(&format!(
            "INSERT INTO sync.fetched_scopes BY NAME SELECT 'entries' AS table_name, 1 AS id, \
               '' AS part, 'null1' AS version, true AS complete, now() AS fetched_at, \
               {MARK_NOW} AS mark"
        ))
        .unwrap();
        log.fold("1, 2").unwrap();
        assert_eq!(statuses(&conn, 1), current);
        assert_eq!(statuses(&conn, 2), marked, "folding takes no mark away");
        log.mark_tables("SELECT 'entries'", Mark::Gap).unwrap();
        assert!(statuses(&conn, 1).ends_with("entries gap"));
    }

    #[test]
    fn a_forgotten_table_counts_as_never_read_whatever_is_marked_later() {
        let conn = store();
        let log = FetchedScopes::new(&conn);
        log.fold("1, 2").unwrap();
        log.forget_table("entries").unwrap();
        log.mark_tables("SELECT table_name FROM sync.fetched_scopes", Mark::Full).unwrap();
        log.mark_tables("SELECT 'entries'", Mark::Full).unwrap();
        assert_eq!(shown(&conn).len(), 13, "three tables of four cases, and a contact");
        let left = "activities full, cases full, costs full";
        for id in 1..=4 {
            assert_eq!(statuses(&conn, id), left, "{id}");
        }
        log.unfold("'cases'", "1").unwrap();
        log.fold("2").unwrap();
        assert_eq!([statuses(&conn, 1), statuses(&conn, 2)], [left, left]);
    }

    #[test]
    fn a_case_is_marked_in_its_row_and_in_what_differs_from_it() {
        let conn = store();
        let log = FetchedScopes::new(&conn);
        log.fold("1, 2").unwrap();
        log.mark_cases("s.case_id IN (1, 3)", FetchStatus::Asked(Mark::Reread)).unwrap();
        let all = "activities reread, cases reread, costs reread, entries reread";
        assert_eq!([statuses(&conn, 1), statuses(&conn, 3)], [all, all]);
        assert!(!statuses(&conn, 2).contains("reread") && !statuses(&conn, 4).contains("reread"));
        assert_eq!(count(&conn, "fetched_cases"), 2, "no row of a scope is written for it");
        let contact = "SELECT count(*) FROM sync.fetched WHERE table_name = 'contacts' \
                       AND status = 'current'";
        assert_eq!(scalar_i64(&conn, contact).unwrap(), 1, "contact 1 is not case 1");
    }
}
