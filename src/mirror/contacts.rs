//! Which contacts are mirrored, and which of them are stale (docs/architecture.md, "What is due").

use super::state::fetched::exceptions;
use super::state::{State, batch, ids};
use crate::error::Result;
use crate::sql::{self, scalar_i64};
use duckdb::Connection;

/// Contacts that are mirrored: those that a role or a webhook names and those that the contacts feed reports.
const KNOWN_CONTACTS: &str = "SELECT contact_id AS id FROM main.case_roles \
                              WHERE contact_id IS NOT NULL \
                              UNION SELECT contact_id FROM sync.seen_contacts \
                              UNION SELECT id FROM sync.hints WHERE table_name = 'contacts'";

/// What the feed said of contacts.
pub(crate) struct SeenContacts<'c> {
    pub(super) conn: &'c Connection,
}

impl SeenContacts<'_> {
    /// Contacts to search: named by a role or the feed and never read, moved by the feed, or due again;
    /// those that moved last first.
    /// Where there is no contacts feed, also those that were read before `older_than`, in microseconds
    /// of our clock, or before the roles of a case that name them; whom no role names any more grows
    /// old as well.
    pub(crate) fn stale_contacts(&self, now_us: i64, older_than: Option<i64>) -> Result<Vec<i64>> {
        let (old, unnamed) = match older_than {
            Some(us) => (
                format!(
                    "OR epoch_us(f.fetched_at) < {us} OR EXISTS (SELECT 1 FROM main.case_roles r \
                       JOIN sync.fetched g ON g.table_name = 'case_roles' AND g.id = r.case_id \
                         AND g.part = '' \
                     WHERE r.contact_id = n.id AND g.sent_at > f.sent_at)"
                ),
                " UNION SELECT id FROM main.contacts",
            ),
            None => (String::new(), ""),
        };
        ids(
            self.conn,
            &format!(
                "WITH named AS ({KNOWN_CONTACTS}{unnamed}) \
                 SELECT n.id FROM named n \
                 LEFT JOIN ({}) f ON f.table_name = 'contacts' AND f.id = n.id AND f.part = '' \
                 LEFT JOIN sync.seen_contacts s ON s.contact_id = n.id \
                 LEFT JOIN sync.failures x ON x.table_name = 'contacts' AND x.id = n.id \
                 LEFT JOIN sync.hints h ON h.table_name = 'contacts' AND h.id = n.id \
                 WHERE (x.next_at IS NULL OR epoch_us(x.next_at) <= {now_us}) \
                   AND (f.id IS NULL OR h.id IS NOT NULL OR f.again_at <= {now_us} {old} \
                     OR f.status <> 'current' OR f.version IS DISTINCT FROM \
                        (CASE WHEN s.contact_id IS NULL THEN 'unknown' \
                              ELSE s.modified_date::VARCHAR END)) \
                 ORDER BY coalesce(s.moved, 0) DESC, n.id",
                exceptions(None)
            ),
        )
    }

    /// Contacts that the feed moved are done with when they are fetched at that date.
    pub(crate) fn clean_contacts(&self) -> Result<()> {
        batch(
            self.conn,
            &format!(
                "UPDATE sync.seen_contacts s SET dirty = false WHERE s.dirty AND EXISTS \
               (SELECT 1 FROM ({}) f WHERE f.table_name = 'contacts' \
                  AND f.id = s.contact_id AND f.status = 'current' \
                  AND f.version IS NOT DISTINCT FROM s.modified_date::VARCHAR)",
                exceptions(None)
            ),
        )
    }

    /// Whether the contacts have to be looked at: the roles changed since they were last, or the feed
    /// moved one. An idle cycle asks no more than this.
    pub(crate) fn contacts_may_be_stale(&self) -> Result<bool> {
        let counter = self.roles_counter()?;
        if State::new(self.conn).meta("contacts_planned_at")?.as_deref()
            != Some(counter.to_string().as_str())
        {
            return Ok(true);
        }
        Ok(scalar_i64(
            self.conn,
            "SELECT (SELECT count(*) FROM sync.seen_contacts WHERE dirty) \
               + (SELECT count(*) FROM sync.failures WHERE table_name = 'contacts') \
               + (SELECT count(*) FROM sync.hints WHERE table_name = 'contacts')",
        )? > 0)
    }

    /// Notes that the contacts were looked at for the roles as [`SeenContacts::roles_counter`] counted them
    /// before that: what has changed since is looked at again.
    pub(crate) fn contacts_planned(&self, roles: i64) -> Result<()> {
        State::new(self.conn).set_meta("contacts_planned_at", &roles.to_string())
    }

    /// A number that moves with every change of the roles.
    pub(crate) fn roles_counter(&self) -> Result<i64> {
        scalar_i64(
            self.conn,
            "SELECT coalesce(sum(counter), 0)::BIGINT FROM sync.changes \
             WHERE table_name = 'case_roles'",
        )
    }

    /// Contacts that a role names and that are not fetched at the date the feed gives, with whether
    /// they were never fetched.
    pub(crate) fn contacts_unfetched(&self) -> Result<Vec<(i64, bool)>> {
        if !self.contacts_may_be_stale()? {
            return Ok(Vec::new());
        }
        sql::query(
            self.conn,
            &format!(
                "WITH named AS ({KNOWN_CONTACTS}) \
                 SELECT n.id, f.id IS NULL OR NOT f.complete FROM named n \
                 LEFT JOIN ({}) f \
                   ON f.table_name = 'contacts' AND f.id = n.id AND f.part = '' \
                 LEFT JOIN sync.seen_contacts s ON s.contact_id = n.id \
                 LEFT JOIN sync.hints h ON h.table_name = 'contacts' AND h.id = n.id \
                 WHERE f.id IS NULL OR h.id IS NOT NULL OR f.status <> 'current' OR f.version IS DISTINCT FROM \
                   (CASE WHEN s.contact_id IS NULL THEN 'unknown' \
                         ELSE s.modified_date::VARCHAR END) \
                 ORDER BY n.id",
                exceptions(None)
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;

    #[test]
    fn roles_that_are_committed_while_contacts_are_read_are_looked_at_again() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        let contacts = state.contacts();
        let counted = contacts.roles_counter().unwrap();
        assert_eq!(contacts.stale_contacts(0, None).unwrap(), [0; 0]);
        // Handed over before, and committed only now.
        batch(
            &conn,
            "INSERT INTO main.case_roles BY NAME SELECT 1 AS case_id, 2 AS id, 17 AS contact_id; \
             INSERT INTO sync.changes VALUES ('case_roles', '', 1)",
        )
        .unwrap();
        contacts.contacts_planned(counted).unwrap();
        assert!(contacts.contacts_may_be_stale().unwrap());
        assert_eq!(contacts.stale_contacts(0, None).unwrap(), [17]);
        contacts.contacts_planned(contacts.roles_counter().unwrap()).unwrap();
        assert!(!contacts.contacts_may_be_stale().unwrap());
    }
}
