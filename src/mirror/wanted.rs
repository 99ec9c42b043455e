//! Which of the journals' months are wanted: those of `journals.level` and `journals.ids`, and those that
//! were asked for by name. All others stay as they are, in `main` and in the store: nobody reads them,
//! they are no failure, and what is due of them waits until they are wanted again.

use super::state::{State, ids, list};
use crate::catalog::Resource;
use crate::config::{JournalLevel, Journals};
use crate::error::Result;
use crate::sql::{self, scalar_i64};

/// Key of `sync.meta`: the tables of which every scope has been read once.
const COMPLETE_TABLES: &str = "complete_tables";

/// SQL for the scopes of rejects (`offices/11/2026-10`) that nobody wants now.
pub(super) const UNWANTED_SCOPES: &str = "\
    SELECT journal_level || '/' || journal_id || '/' || strftime(journal_month, '%Y-%m') \
    FROM sync.journal_months GROUP BY ALL HAVING NOT bool_or(wanted)";

impl State<'_> {
    /// The ids of a level that the mirror knows.
    pub fn journal_ids(&self, level: JournalLevel) -> Result<Vec<i64>> {
        ids(
            self.conn,
            &format!(
                "SELECT DISTINCT {0} FROM main.offices WHERE {0} IS NOT NULL ORDER BY 1",
                sql::ident(id_column(level))
            ),
        )
    }

    /// Whose journals are read: those of the configuration, else all that are known.
    pub fn wanted_ids(&self, journals: &Journals) -> Result<Vec<i64>> {
        if journals.ids.is_empty() {
            self.journal_ids(journals.level)
        } else {
            Ok(journals.ids.clone())
        }
    }

    /// Whether the mirror knows whose journals this id means: it is in the list of the offices, or one
    /// of these tables has lines of it.
    pub fn knows_journals_of(
        &self,
        tables: &[&Resource],
        level: JournalLevel,
        id: i64,
    ) -> Result<bool> {
        let listed =
            format!("SELECT 1 FROM main.offices WHERE {} = {id}", sql::ident(id_column(level)));
        let lines = tables.iter().map(|resource| {
            format!(
                "SELECT 1 FROM main.{} WHERE journal_level = {} AND journal_id = {id}",
                sql::ident(&resource.table),
                sql::text(&level.to_string())
            )
        });
        let all: Vec<String> = std::iter::once(listed).chain(lines).collect();
        Ok(scalar_i64(self.conn, &format!("SELECT count(*) FROM ({})", all.join(" UNION ALL ")))?
            > 0)
    }

    /// Whether the store agree with the configuration already: see [`State::want_journals`].
    pub fn all_are_wanted(&self, journals: &Journals) -> Result<bool> {
        let [wanted, unwanted] = self.misplaced(journals)?;
        let differing =
            format!("SELECT count(*) FROM sync.journal_months WHERE {wanted} OR {unwanted}");
        Ok(scalar_i64(self.conn, &differing)? == 0)
    }

    /// Makes the months wanted again that the configuration speaks of, and lets those of other levels
    /// go.
    pub fn want_journals(&self, journals: &Journals) -> Result<()> {
        let [wanted, unwanted] = self.misplaced(journals)?;
        // The configuration asks for more than it did, and that may never have been read
        // (`report.snapshot`; docs/architecture.md, "Reports").
        self.is_not_complete(&format!("{wanted} AND NOT complete OR {unwanted}"))?;
        self.batch(&format!("UPDATE sync.journal_months SET wanted = true WHERE {wanted}"))?;
        self.let_go(&unwanted)
    }

    /// The tables of these months count as never read whole, until nothing of them lacks.
    fn is_not_complete(&self, months: &str) -> Result<()> {
        let tables: Vec<String> = self.query(
            &format!("SELECT DISTINCT table_name FROM sync.journal_months WHERE {months}"),
            |row| row.get(0),
        )?;
        let complete = self.meta(COMPLETE_TABLES)?.unwrap_or_default();
        let left: Vec<&str> =
            complete.split(',').filter(|name| !tables.iter().any(|table| table == name)).collect();
        self.set_meta(COMPLETE_TABLES, &left.join(","))
    }

    /// Conditions for months that are let go and wanted, and for those of which it is the other way
    /// round.
    fn misplaced(&self, journals: &Journals) -> Result<[String; 2]> {
        let level = sql::text(&journals.level.to_string());
        let ids = self.wanted_ids(journals)?;
        // An SQL list has at least one element.
        let ids = if ids.is_empty() { "NULL".to_owned() } else { list(&ids) };
        Ok([
            format!("(NOT wanted AND journal_level = {level} AND journal_id IN ({ids}))"),
            format!("(wanted AND journal_level <> {level})"),
        ])
    }

    /// Lets the months of all other ids go, those that were asked for by name too. Where no id is
    /// known, nothing is said about any.
    pub fn leave_other_journals(&self, level: JournalLevel, ids: &[i64]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let level = sql::text(&level.to_string());
        self.let_go(&format!(
            "wanted AND (journal_level <> {level} OR journal_id NOT IN ({}))",
            list(ids)
        ))
    }

    /// What failed is forgotten: it is asked at once when it is wanted again. What did not fit stays
    /// open, because it still does not fit.
    fn let_go(&self, condition: &str) -> Result<()> {
        self.batch(&format!(
            "CREATE OR REPLACE TEMP TABLE left_months AS \
               SELECT table_name, journal_id, \
                 journal_level || '/' || strftime(journal_month, '%Y-%m') AS part \
               FROM sync.journal_months WHERE {condition}; \
             UPDATE sync.journal_months SET wanted = false WHERE {condition}; \
             DELETE FROM sync.failures f USING temp.left_months l \
               WHERE f.table_name = l.table_name AND f.id = l.journal_id AND f.part = l.part; \
             DROP TABLE temp.left_months"
        ))
    }
}

/// The column of `main.offices` with the ids of a level.
pub fn id_column(level: JournalLevel) -> &'static str {
    match level {
        JournalLevel::Offices => "id",
        JournalLevel::BrokerCompanies => "broker_company_id",
        JournalLevel::Chain => "chain_id",
    }
}
