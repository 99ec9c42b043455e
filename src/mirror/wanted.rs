//! Which of the journals' months are wanted: those of `journals.level` and `journals.ids`, and those that
//! were asked for by name. All others stay as they are in the store, and in `main` where they are of this
//! level: nobody reads them, they are no failure, and what is due of them waits until they are wanted
//! again.
//!
//! Whose journals were ever known stay known (`sync.journal_scopes`): an office that left the list of the
//! offices is asked until the source answers 404 to its id. Then it is *gone*: nothing of it is asked for
//! any more, and what was read stays as it is and is shown as that.

use duckdb::Connection;
use jiff::Timestamp;

use super::doubt::UNDOUBTED;
use super::levels;
use super::state::{State, batch, ids, list};
use crate::catalog::{Catalog, Resource};
use crate::config::{JournalLevel, Journals};
use crate::error::Result;
use crate::scope::{DueReason, JournalScope};
use crate::sql::{self, scalar_i64};

/// SQL for the scopes of rejects (`offices/11/2026-10`) that nobody wants now.
pub(super) const UNWANTED_SCOPES: &str = "\
    SELECT journal_level || '/' || journal_id || '/' || strftime(journal_month, '%Y-%m') \
    FROM sync.journal_months m GROUP BY journal_level, journal_id, journal_month \
    HAVING NOT bool_or(wanted) OR EXISTS (SELECT 1 FROM sync.journal_scopes g \
      WHERE g.journal_level = m.journal_level AND g.journal_id = m.journal_id \
        AND g.gone_at IS NOT NULL)";

/// SQL for the scopes of which months nothing is asked for any more, in a query of months `m`.
pub(crate) const IS_GONE: &str = "\
    EXISTS (SELECT 1 FROM sync.journal_scopes g WHERE g.journal_level = m.journal_level \
      AND g.journal_id = m.journal_id AND g.gone_at IS NOT NULL)";

/// What a 404 says about the office, broker company or chain that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotFound {
    /// Nothing: it is listed, or was never known.
    Listed,
    /// It left the list, and this is the first 404, or not yet long after it.
    Doubted,
    /// It left the list, and answered 404 before, as long ago as it takes to believe it.
    Confirmed,
    /// It is known to be gone.
    Gone,
}

/// The offices of the list, as far as they name whose journals there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListedOffices {
    pub(crate) level: JournalLevel,
    pub(crate) all: i64,
    /// Those that have no id of the level.
    pub(crate) unnamed: i64,
    /// How many ids of the level are known, by this list or an earlier one.
    pub(crate) known: usize,
}

impl ListedOffices {
    /// Why there is nothing to ask for though there are offices; `None` where there is.
    pub(crate) fn why_nothing_is_named(self) -> Option<String> {
        (self.known == 0 && self.all > 0).then(|| {
            format!(
                "no office has a {}, so that journals.level = \"{}\" names no journal: name them in journals.ids, or \
                 set another level",
                id_column(self.level),
                self.level
            )
        })
    }

    /// Whose journals are in none that is asked for; `None` where every office is in one.
    pub(crate) fn what_is_not_named(self) -> Option<String> {
        if self.all == 0 && self.known == 0 {
            return Some("no office is listed, so that no journal is known".to_owned());
        }
        (self.unnamed > 0).then(|| {
            format!(
                "{} of {} offices have no {}: nothing is asked for them",
                self.unnamed,
                self.all,
                id_column(self.level)
            )
        })
    }
}

/// Which months of the journals are wanted.
pub(crate) struct WantedMonths<'c> {
    pub(super) conn: &'c Connection,
}

impl WantedMonths<'_> {
    /// The ids of a level that the mirror knows, and that the source still may.
    pub(crate) fn journal_ids(&self, level: JournalLevel) -> Result<Vec<i64>> {
        ids(
            self.conn,
            &format!(
                "SELECT {column} FROM main.offices WHERE {column} IS NOT NULL \
                 UNION SELECT journal_id FROM sync.journal_scopes \
                   WHERE journal_level = {level} AND gone_at IS NULL ORDER BY 1",
                column = sql::ident(id_column(level)),
                level = sql::text(&level.to_string())
            ),
        )
    }

    /// What the list of the offices says of whose journals there are; `None` where `journals.ids` names them.
    pub(crate) fn listed_offices(&self, journals: &Journals) -> Result<Option<ListedOffices>> {
        if !journals.ids.is_empty() {
            return Ok(None);
        }
        let level = journals.level;
        let count = |of: &str| scalar_i64(self.conn, &format!("SELECT {of} FROM main.offices"));
        let named = sql::ident(id_column(level));
        Ok(Some(ListedOffices {
            level,
            all: count("count(*)")?,
            unnamed: count(&format!("count(*) - count({named})"))?,
            known: self.journal_ids(level)?.len(),
        }))
    }

    /// Whose journals are read: those of the configuration, else all that are known; of either without
    /// those that are gone.
    pub(crate) fn wanted_ids(&self, journals: &Journals) -> Result<Vec<i64>> {
        if journals.ids.is_empty() {
            return self.journal_ids(journals.level);
        }
        let gone = ids(
            self.conn,
            &format!(
                "SELECT journal_id FROM sync.journal_scopes WHERE gone_at IS NOT NULL \
                   AND journal_level = {} ORDER BY 1",
                sql::text(&journals.level.to_string())
            ),
        )?;
        Ok(journals.ids.iter().copied().filter(|id| !gone.contains(id)).collect())
    }

    /// The listed ids of a level, each with its name where the list has one, that are not known by it.
    fn unknown_scopes(&self, level: JournalLevel) -> String {
        let column = sql::ident(id_column(level));
        let name = match level {
            JournalLevel::Offices => "name",
            JournalLevel::BrokerCompanies | JournalLevel::Chain => "NULL::VARCHAR",
        };
        let level = sql::text(&level.to_string());
        // One that left the list before the store knew scopes is in the history of the list.
        format!(
            "WITH listed AS (SELECT {column} AS id, max({name}) AS name FROM main.offices GROUP BY 1), \
             left_list AS (SELECT {column} AS id, arg_max({name}, _valid_to) AS name \
               FROM history.offices WHERE {column} NOT IN (SELECT id FROM listed WHERE id IS NOT NULL) \
               GROUP BY 1) \
             SELECT l.id, l.name AS name FROM \
               (SELECT id, name, true AS is_listed FROM listed \
                UNION ALL SELECT id, name, false FROM left_list) l \
             LEFT JOIN sync.journal_scopes s ON s.journal_level = {level} AND s.journal_id = l.id \
             WHERE l.id IS NOT NULL AND (s.journal_id IS NULL OR l.is_listed \
               AND (s.name IS DISTINCT FROM l.name OR s.gone_at IS NOT NULL \
                 OR s.not_found_at IS NOT NULL))"
        )
    }

    /// Notes whose journals the list of the offices speaks of: they stay known when they leave it. What came
    /// incompletely of one that was gone, or is doubted, is asked again.
    fn note_scopes(&self, level: JournalLevel) -> Result<()> {
        let unknown = self.unknown_scopes(level);
        let level = sql::text(&level.to_string());
        batch(
            self.conn,
            &format!(
                "CREATE OR REPLACE TEMP TABLE noted_scopes AS {unknown}; \
             DELETE FROM sync.journal_scopes s USING temp.noted_scopes n \
               WHERE s.journal_level = {level} AND s.journal_id = n.id; \
             INSERT INTO sync.journal_scopes BY NAME \
               SELECT {level} AS journal_level, id AS journal_id, name FROM temp.noted_scopes; \
             UPDATE sync.journal_months SET due = '{incomplete}' \
               WHERE (incomplete_at IS NOT NULL OR doubted_at IS NOT NULL) AND due IS NULL \
                 AND journal_level = {level} \
                 AND journal_id IN (SELECT id FROM temp.noted_scopes); \
             DROP TABLE temp.noted_scopes",
                incomplete = DueReason::Incomplete
            ),
        )
    }

    /// What a 404 for a scope means, by the list of the offices and by earlier ones; the first is noted.
    /// Those that came by `before` confirm it.
    pub(crate) fn scope_was_not_found(
        &self,
        scope: JournalScope,
        before: Timestamp,
        now: Timestamp,
    ) -> Result<NotFound> {
        let JournalScope { level, id, .. } = scope;
        let of_scope =
            format!("journal_level = {} AND journal_id = {id}", sql::text(&level.to_string()));
        // Where no office is listed, nothing is said about any.
        let known = sql::query(
            self.conn,
            &format!(
                "SELECT gone_at IS NOT NULL, epoch_us(not_found_at) FROM sync.journal_scopes \
                 WHERE {of_scope} AND EXISTS (SELECT 1 FROM main.offices) \
                   AND NOT EXISTS (SELECT 1 FROM main.offices WHERE {} = {id})",
                sql::ident(id_column(level))
            ),
            |row| Ok((row.get::<_, bool>(0)?, row.get::<_, Option<i64>>(1)?)),
        )?;
        match known.first() {
            None => Ok(NotFound::Listed),
            Some((true, _)) => Ok(NotFound::Gone),
            Some((false, Some(first))) if *first <= before.as_microsecond() => {
                Ok(NotFound::Confirmed)
            }
            Some((false, Some(_))) => Ok(NotFound::Doubted),
            Some((false, None)) => {
                batch(
                    self.conn,
                    &format!(
                        "UPDATE sync.journal_scopes SET not_found_at = {} WHERE {of_scope}",
                        sql::instant(now)
                    ),
                )?;
                Ok(NotFound::Doubted)
            }
        }
    }

    /// The source knows the scope still, whatever it answered for one of its journals.
    pub(crate) fn scope_is_there(&self, scope: JournalScope) -> Result<()> {
        batch(
            self.conn,
            &format!(
                "UPDATE sync.journal_scopes SET not_found_at = NULL \
             WHERE journal_level = {} AND journal_id = {}",
                sql::text(&scope.level.to_string()),
                scope.id
            ),
        )
    }

    /// The source no longer knows the scope: nothing of it is asked for any more, and what was read of it
    /// stays as it is; it comes back, where it had left with its level.
    pub(crate) fn scope_is_gone(
        &self,
        catalog: &Catalog,
        scope: JournalScope,
        now: Timestamp,
    ) -> Result<()> {
        let (level, id) = (scope.level.to_string(), scope.id);
        let (text, parts) = (sql::text(&level), sql::text(&format!("{level}/%")));
        batch(
            self.conn,
            &format!(
                "UPDATE sync.journal_scopes SET gone_at = coalesce(gone_at, {}) \
               WHERE journal_level = {text} AND journal_id = {id}; \
             UPDATE sync.journal_months SET due = NULL, not_found_at = NULL \
               WHERE journal_level = {text} AND journal_id = {id}; \
             UPDATE sync.journal_months SET {UNDOUBTED} \
               WHERE journal_level = {text} AND journal_id = {id} AND doubted_digest = 'not found'; \
             DELETE FROM sync.failures WHERE id = {id} AND part LIKE {parts} \
               AND table_name IN (SELECT DISTINCT table_name FROM sync.journal_months)",
                sql::instant(now)
            ),
        )?;
        levels::bring_back_gone(self.conn, catalog, scope.level, now)
    }

    /// Whether the mirror knows whose journals this id means: it is in the list of the offices, or one
    /// of these tables has lines of it.
    pub(crate) fn knows_journals_of(
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

    /// Whether the store agrees with the configuration already: see [`WantedMonths::want_journals`].
    pub(crate) fn all_are_wanted(&self, journals: &Journals) -> Result<bool> {
        let unknown = self.unknown_scopes(journals.level);
        if scalar_i64(self.conn, &format!("SELECT count(*) FROM ({unknown})"))? > 0 {
            return Ok(false);
        }
        let [wanted, unwanted] = self.misplaced(journals)?;
        let differing =
            format!("SELECT count(*) FROM sync.journal_months WHERE {wanted} OR {unwanted}");
        Ok(scalar_i64(self.conn, &differing)? == 0)
    }

    /// Makes the months wanted again that the configuration speaks of, and lets those of other levels
    /// go.
    pub(crate) fn want_journals(&self, journals: &Journals) -> Result<()> {
        self.note_scopes(journals.level)?;
        let [wanted, unwanted] = self.misplaced(journals)?;
        // The configuration asks for more than it did, and that may never have been read
        // (`report.snapshot`; docs/architecture.md, "Reports").
        self.is_not_complete(&format!("{wanted} AND NOT complete OR {unwanted}"))?;
        batch(self.conn, &format!("UPDATE sync.journal_months SET wanted = true WHERE {wanted}"))?;
        self.let_go(&unwanted)
    }

    /// The tables of these months count as never read whole, until nothing of them lacks.
    fn is_not_complete(&self, months: &str) -> Result<()> {
        let tables: Vec<String> = sql::query(
            self.conn,
            &format!("SELECT DISTINCT table_name FROM sync.journal_months WHERE {months}"),
            |row| row.get(0),
        )?;
        State::new(self.conn).are_not_complete(&tables)
    }

    /// Conditions for months that are let go and wanted, and for those of which it is the other way
    /// round.
    fn misplaced(&self, journals: &Journals) -> Result<[String; 2]> {
        let level = sql::text(&journals.level.to_string());
        let ids = self.wanted_ids(journals)?;
        // An SQL list has at least one element.
        let ids = if ids.is_empty() { "NULL".to_owned() } else { list(&ids) };
        Ok([
            // What is gone is asked for no more, and shown still.
            format!(
                "(NOT wanted AND journal_level = {level} AND (journal_id IN ({ids}) \
                   OR journal_id IN (SELECT journal_id FROM sync.journal_scopes \
                     WHERE journal_level = {level} AND gone_at IS NOT NULL)))"
            ),
            format!("(wanted AND journal_level <> {level})"),
        ])
    }

    /// Lets the months of all other ids go, those that were asked for by name too. Where no id is
    /// known, nothing is said about any.
    pub(crate) fn leave_other_journals(&self, level: JournalLevel, ids: &[i64]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let level = sql::text(&level.to_string());
        // What is gone is asked for no more, and shown still.
        self.let_go(&format!(
            "wanted AND (journal_level <> {level} OR journal_id NOT IN ({}) \
               AND journal_id NOT IN (SELECT journal_id FROM sync.journal_scopes \
                 WHERE journal_level = {level} AND gone_at IS NOT NULL))",
            list(ids)
        ))
    }

    /// What failed is forgotten: it is asked at once when it is wanted again. What did not fit stays
    /// open, because it still does not fit.
    fn let_go(&self, condition: &str) -> Result<()> {
        batch(
            self.conn,
            &format!(
                "CREATE OR REPLACE TEMP TABLE left_months AS \
               SELECT table_name, journal_id, \
                 journal_level || '/' || strftime(journal_month, '%Y-%m') AS part \
               FROM sync.journal_months WHERE {condition}; \
             UPDATE sync.journal_months SET wanted = false WHERE {condition}; \
             DELETE FROM sync.failures f USING temp.left_months l \
               WHERE f.table_name = l.table_name AND f.id = l.journal_id AND f.part = l.part; \
             DROP TABLE temp.left_months"
            ),
        )
    }
}

/// The column of `main.offices` with the ids of a level.
pub(crate) fn id_column(level: JournalLevel) -> &'static str {
    match level {
        JournalLevel::Offices => "id",
        JournalLevel::BrokerCompanies => "broker_company_id",
        JournalLevel::Chain => "chain_id",
    }
}
