//! What webhooks told: scopes that are read again (`sync.hints`), and events ([`events`]).
//!
//! Hints are numbered in the count of the feeds' pages. A plan that sees a hint hands its number on with the
//! work, and the commit of what a call brought takes the hints up to that number away: one that came after the
//! call was planned stays, and its scope is read once more.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::contacts_feed::ContactsFeed;
use super::events::{self, Odd};
use super::state::{State, batch, count, ids, list};
use super::unplaced_roles::Unplaced;
use crate::catalog::{Catalog, ChangeDate, Group, Refresh, Resource};
use crate::error::Result;
use crate::scope::{CasePart, Hint, Told, UNKNOWN};
use crate::sql::{self, db, instant, instant_param, scalar_i64};

/// Key of `sync.meta`: up to which number what webhooks told is in the store.
const TAKEN_UP_TO: &str = "webhooks_taken";
/// The tables of the searches of cases.
const SEARCHED: [&str; 2] = ["cases", "projects"];
/// Cases that only webhooks have named, and contacts that nobody knows, that wait at a time.
const MOST_UNKNOWN: i64 = 1_000;

/// SQL for the tables that are read per case.
const OF_CASES: &str = "SELECT table_name FROM sync.refresh_rules";

/// SQL for the contacts that a feed or a search has told of.
const KNOWN_CONTACTS: &str =
    "SELECT contact_id AS id FROM sync.seen_contacts UNION ALL SELECT id FROM main.contacts";

/// SQL for hints `h` of scopes that do not wait because they failed.
const HAS_NOT_FAILED: &str = "NOT EXISTS (SELECT 1 FROM sync.failures f \
                              WHERE f.table_name = h.table_name AND f.id = h.id)";

/// What webhooks told.
pub(crate) struct Hints<'c> {
    pub(super) conn: &'c Connection,
}

/// Takes the hints away that the answers in `temp.stage_noted` answer.
pub(super) fn answered(conn: &Connection) -> Result<()> {
    batch(
        conn,
        "DELETE FROM sync.hints h USING temp.stage_noted n \
         WHERE h.table_name = n.table_name AND h.id = n.id AND n.part = '' \
           AND h.sequence <= coalesce(n.hint, n.sequence)",
    )
}

/// The contacts in `temp.stage_scopes` that webhooks named, and when, in microseconds: their hints are about to be
/// answered. None where the contacts feed (`contacts_feed`: it is switched on) tells of their changes, too.
pub(super) fn of_searched_contacts(
    conn: &Connection,
    contacts_feed: bool,
) -> Result<Vec<(i64, i64)>> {
    if contacts_feed && State::new(conn).contacts_feed()? != ContactsFeed::Closed {
        return Ok(Vec::new());
    }
    let hinted = "SELECT id, epoch_us(hinted_at) FROM sync.hints \
                  WHERE table_name = 'contacts' AND id IN (SELECT id FROM temp.stage_scopes)";
    sql::query(conn, hinted, |row| Ok((row.get(0)?, row.get(1)?)))
}

impl Hints<'_> {
    /// Up to which number what webhooks told is in the store.
    pub(crate) fn taken_up_to(&self) -> Result<i64> {
        let text = State::new(self.conn).meta(TAKEN_UP_TO)?;
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    /// Takes what webhooks told, up to this number, each with when it was received. Returns the number of the
    /// hints. Nothing is planned by them before they are released: the next poll may say the same, and one call
    /// answers both. Facts are left out where their table is `switched_off`.
    pub(crate) fn take(
        &self,
        (catalog, switched_off): (&Catalog, bool),
        told: &[(Timestamp, Told)],
        up_to: i64,
    ) -> Result<i64> {
        let state = State::new(self.conn);
        let sequence = state.sequence()? + 1;
        let mut scopes: BTreeMap<(String, i64), Timestamp> = BTreeMap::new();
        let (mut facts, mut odd, mut unplaced) = (Vec::new(), Vec::new(), Unplaced::default());
        let passed_over = self.know(told)?;
        let roles: BTreeSet<i64> = told.iter().filter_map(|(_, told)| told.role()).collect();
        let cases = self.cases_of_roles(&Vec::from_iter(roles))?;
        for (at, told) in told {
            match told {
                Told::Hint(hint) if passed_over.has(hint) => {}
                Told::Hint(hint) => {
                    let named = scopes_of(catalog, hint, &cases);
                    if let (Hint::Role { id }, true) = (hint, named.is_empty()) {
                        unplaced.add(*id, *at);
                    }
                    for scope in named {
                        scopes.entry(scope).or_insert(*at);
                    }
                }
                Told::Fact(fact) if !switched_off => facts.push((*at, fact)),
                Told::Fact(_) => {}
                Told::Unknown { event_type } => odd.push(Odd::unknown(event_type, *at)),
                Told::WithoutId { event_type } => odd.push(Odd::without_id(event_type, *at)),
            }
        }
        self.stage(&scopes, sequence)?;
        self.wait_for(unplaced)?;
        events::insert(self.conn, &facts)?;
        events::note_odd(self.conn, odd)?;
        state.set_sequence(sequence)?;
        state.set_meta(TAKEN_UP_TO, &up_to.to_string())?;
        Ok(sequence)
    }

    /// Whose roles these are, of those of which there is a row: all are looked up at once, for it takes all rows.
    pub(super) fn cases_of_roles(&self, roles: &[i64]) -> Result<CasesOfRoles> {
        let mut cases = CasesOfRoles::new();
        if roles.is_empty() {
            return Ok(cases);
        }
        let of_roles = format!(
            "SELECT DISTINCT id, case_id FROM main.case_roles \
             WHERE id IN ({}) AND case_id IS NOT NULL",
            list(roles)
        );
        for (role, case) in sql::query(self.conn, &of_roles, |row| Ok((row.get(0)?, row.get(1)?)))?
        {
            cases.entry(role).or_default().push(case);
        }
        Ok(cases)
    }

    /// Cases that nobody told us of before become known, and wait for their release. Of cases and contacts
    /// that nobody knows, only so many wait at a time: returns those that are passed over. A webhook may
    /// invent any number of them, and whichever exists is in the change feeds too.
    fn know(&self, told: &[(Timestamp, Told)]) -> Result<PassedOver> {
        let (mut cases, mut contacts) = (BTreeSet::new(), BTreeSet::new());
        for (_, told) in told {
            match told {
                Told::Hint(Hint::Case { id, .. }) => cases.insert(*id),
                Told::Hint(Hint::Contact { id }) => contacts.insert(*id),
                _ => false,
            };
        }
        let (cases, more_cases) = self.unknown(
            cases,
            "SELECT case_id FROM sync.seen WHERE case_id IN",
            "SELECT count(*) FROM sync.seen WHERE NOT reported AND place IS NULL AND NOT removed",
        )?;
        let (_, more_contacts) = self.unknown(
            contacts,
            &format!("SELECT id FROM ({KNOWN_CONTACTS}) WHERE id IN"),
            &format!(
                "SELECT count(*) FROM sync.hints WHERE table_name = 'contacts' \
                   AND id NOT IN ({KNOWN_CONTACTS})"
            ),
        )?;
        if !(more_cases.is_empty() && more_contacts.is_empty()) {
            tracing::warn!(
                cases = more_cases.len(),
                contacts = more_contacts.len(),
                "webhooks name more that nobody knows than is looked for at a time: what of it exists is in the \
                 change feeds"
            );
        }
        if !cases.is_empty() {
            batch(
                self.conn,
                &format!(
                    "INSERT INTO sync.seen BY NAME \
                     SELECT unnest([{}]::BIGINT[]) AS case_id, false AS reported, {unknown} AS any_stamp, \
                       0 AS moved, {now} AS known_at, false AS dirty, {unknown} AS rereading, \
                       false AS removed",
                    list(&cases),
                    unknown = sql::text(UNKNOWN),
                    now = instant(Timestamp::now()),
                ),
            )?;
        }
        Ok(PassedOver { cases: more_cases, contacts: more_contacts })
    }

    /// Which of these ids `known` (SQL, up to the list of ids) does not know, as many as may wait beside those
    /// that `waiting` (SQL) counts, and the rest of them.
    fn unknown(
        &self,
        mut named: BTreeSet<i64>,
        known: &str,
        waiting: &str,
    ) -> Result<(Vec<i64>, BTreeSet<i64>)> {
        if named.is_empty() {
            return Ok((Vec::new(), named));
        }
        let all: Vec<i64> = named.iter().copied().collect();
        for id in ids(self.conn, &format!("{known} ({})", list(&all)))? {
            named.remove(&id);
        }
        if named.is_empty() {
            return Ok((Vec::new(), named));
        }
        let room = MOST_UNKNOWN.saturating_sub(scalar_i64(self.conn, waiting)?).max(0);
        let mut unknown = named.into_iter();
        let first = unknown.by_ref().take(usize::try_from(room).unwrap_or(0)).collect();
        Ok((first, unknown.collect()))
    }

    /// Notes the scopes that are read, each once and with the last number.
    pub(super) fn stage(
        &self,
        scopes: &BTreeMap<(String, i64), Timestamp>,
        sequence: i64,
    ) -> Result<()> {
        if scopes.is_empty() {
            return Ok(());
        }
        let failed = |e| db("cannot note what webhooks named", e);
        batch(
            self.conn,
            "CREATE OR REPLACE TEMP TABLE stage_hints \
             (table_name VARCHAR, id BIGINT, hinted_at VARCHAR)",
        )?;
        let mut appender = self.conn.appender("stage_hints").map_err(failed)?;
        for ((table, id), at) in scopes {
            appender.append_row(params![table, id, instant_param(*at)]).map_err(failed)?;
        }
        appender.flush().map_err(failed)?;
        batch(
            self.conn,
            &format!(
                "DELETE FROM temp.stage_hints WHERE table_name NOT IN \
                   (SELECT table_name FROM sync.resources \
                    WHERE status IN ('ok', 'failing') OR because_of IS NOT NULL); \
                 DELETE FROM sync.hints h USING temp.stage_hints n \
                   WHERE h.table_name = n.table_name AND h.id = n.id; \
                 INSERT INTO sync.hints SELECT table_name, id, {sequence}, hinted_at::TIMESTAMPTZ \
                   FROM temp.stage_hints; \
                 DROP TABLE temp.stage_hints"
            ),
        )
    }

    /// Lets the cycles plan by the hints up to this number: the cases that no poll has moved since are planned
    /// like cases that moved. Returns the number by which they are, where anything is left to be read.
    pub(crate) fn release(&self, up_to: i64) -> Result<Option<i64>> {
        let hinted = format!("FROM sync.hints WHERE sequence <= {up_to}");
        if scalar_i64(self.conn, &format!("SELECT count(*) {hinted}"))? == 0 {
            return Ok(None);
        }
        let sequence = State::new(self.conn).sequence()? + 1;
        count(
            self.conn,
            &format!(
                "UPDATE sync.seen s SET dirty = true, moved = {sequence} \
                 FROM (SELECT id, max(sequence) AS sequence {hinted} \
                         AND table_name IN ({OF_CASES}) GROUP BY id) h \
                 WHERE s.case_id = h.id AND NOT s.removed AND s.moved < h.sequence"
            ),
        )?;
        State::new(self.conn).set_sequence(sequence)?;
        Ok(Some(sequence))
    }

    /// The hints of these cases, by table and case.
    pub(crate) fn of(&self, cases: &[i64]) -> Result<HashMap<(String, i64), i64>> {
        if cases.is_empty() {
            return Ok(HashMap::new());
        }
        self.named(&format!("id IN ({}) AND table_name IN ({OF_CASES})", list(cases)))
    }

    /// The hints of lists and of what is read per row of one, by table and id.
    pub(crate) fn of_lists(&self) -> Result<HashMap<(String, i64), i64>> {
        self.named(&format!("table_name NOT IN ({OF_CASES}) AND table_name <> 'contacts'"))
    }

    fn named(&self, which: &str) -> Result<HashMap<(String, i64), i64>> {
        let sql = format!("SELECT table_name, id, sequence FROM sync.hints WHERE {which}");
        let rows = sql::query(self.conn, &sql, |row| {
            Ok(((row.get::<_, String>(0)?, row.get::<_, i64>(1)?), row.get::<_, i64>(2)?))
        })?;
        Ok(rows.into_iter().collect())
    }

    /// Of cases that have nothing left to be read (`temp.stage_clean`) hints name what they are not asked for.
    pub(super) fn forget_clean(&self) -> Result<()> {
        batch(
            self.conn,
            &format!(
                "DELETE FROM sync.hints h USING temp.stage_clean c \
                 WHERE h.id = c.id AND h.sequence <= c.moved AND h.table_name IN ({OF_CASES})"
            ),
        )
    }

    /// Hints of lists up to this number that were not answered, though the lists were read, name no row of them;
    /// those of scopes that failed stay.
    pub(crate) fn forget_unlisted(&self, up_to: i64) -> Result<()> {
        batch(
            self.conn,
            &format!(
                "DELETE FROM sync.hints h WHERE sequence <= {up_to} AND table_name <> 'contacts' \
                   AND table_name NOT IN ({OF_CASES}) AND {HAS_NOT_FAILED}"
            ),
        )
    }

    /// The same of contacts, when all of them were asked after that are stale.
    pub(crate) fn forget_unknown_contacts(&self, up_to: i64) -> Result<()> {
        batch(
            self.conn,
            &format!(
                "DELETE FROM sync.hints h WHERE sequence <= {up_to} AND table_name = 'contacts' \
                   AND {HAS_NOT_FAILED}"
            ),
        )
    }

    /// Hints of tables that are read no more, and of cases that left, name nothing.
    pub(crate) fn forget_unread(&self) -> Result<()> {
        if scalar_i64(self.conn, "SELECT count(*) FROM sync.hints")? == 0 {
            return Ok(());
        }
        batch(
            self.conn,
            &format!(
                "DELETE FROM sync.hints WHERE table_name NOT IN \
                   (SELECT table_name FROM sync.resources \
                    WHERE status IN ('ok', 'failing') OR because_of IS NOT NULL) \
                 OR table_name IN ({OF_CASES}) AND id IN \
                   (SELECT case_id FROM sync.seen WHERE removed)"
            ),
        )
    }
}

/// The cases of roles, by role.
pub(super) type CasesOfRoles = BTreeMap<i64, Vec<i64>>;

/// The scopes that a hint names, of the tables that the catalog has; a role names those of its `cases`.
pub(super) fn scopes_of(
    catalog: &Catalog,
    hint: &Hint,
    cases: &CasesOfRoles,
) -> Vec<(String, i64)> {
    let of = |id: i64, which: &dyn Fn(&Resource) -> bool| -> Vec<(String, i64)> {
        let tables = catalog.resources().iter().filter(|resource| which(resource));
        tables.map(|resource| (resource.table.clone(), id)).collect()
    };
    // The list, and what is read per row of it.
    let listed = |table: &str, id: i64| -> Vec<(String, i64)> {
        let is_list = |r: &Resource| r.table == table && r.group == Group::List;
        let is_read_by = |r: &Resource| match &r.group {
            Group::ForEach(each) => each.list.is_none() && each.table == table,
            _ => false,
        };
        [of(0, &is_list), of(id, &is_read_by)].concat()
    };
    match hint {
        Hint::Case { id, part } => of(*id, &|resource| is_part(resource, part)),
        Hint::Role { id } => {
            let entity = CasePart::Date(date_field(ChangeDate::CaseEntityChanged).to_owned());
            let of_case = |case: &i64| of(*case, &|resource| is_part(resource, &entity));
            cases.get(id).into_iter().flatten().flat_map(of_case).collect()
        }
        Hint::Contact { id } => of(*id, &|resource| resource.table == "contacts"),
        Hint::Employee { id } => listed("employees", *id),
        Hint::Office { id } => listed("offices", *id),
        Hint::Subscriptions => listed("webhook_subscriptions", 0),
    }
}

/// What webhooks named and nobody looks for now.
struct PassedOver {
    cases: BTreeSet<i64>,
    contacts: BTreeSet<i64>,
}

impl PassedOver {
    fn has(&self, hint: &Hint) -> bool {
        match hint {
            Hint::Case { id, .. } => self.cases.contains(id),
            Hint::Contact { id } => self.contacts.contains(id),
            _ => false,
        }
    }
}

/// The field of the feed with this date.
fn date_field(date: ChangeDate) -> &'static str {
    ChangeDate::ALL[date as usize].1
}

/// Whether a hint about this part of a case names the table.
fn is_part(resource: &Resource, part: &CasePart) -> bool {
    match (&resource.group, part) {
        (Group::Ids, CasePart::Row) => SEARCHED.contains(&resource.table.as_str()),
        (Group::Case, CasePart::Date(field)) => match &resource.refresh {
            Refresh::Dates(dates) => {
                ChangeDate::of_field(field).is_some_and(|date| dates.contains(&date))
            }
            Refresh::None | Refresh::Any => false,
        },
        (Group::Case, CasePart::Table(table)) => resource.table == *table,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::reports::fixture;

    #[test]
    fn of_what_nobody_knows_only_so_much_waits_and_what_is_known_is_read() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        let catalog = Catalog::load(None).unwrap();
        let now = Timestamp::now();
        state.cases().see_cases(&[(7, [Some(1); 11])], 1, now).unwrap();
        let case = |id| (now, Told::Hint(Hint::Case { id, part: CasePart::Row }));
        let contact = |id| (now, Told::Hint(Hint::Contact { id }));
        let told: Vec<_> = (1_000_000..1_003_000)
            .flat_map(|id| [case(id), contact(id)])
            .chain([case(7)])
            .collect();
        let hinted = |which: &str| {
            scalar_i64(&conn, &format!("SELECT count(*) FROM sync.hints WHERE {which}")).unwrap()
        };
        for up_to in [1, 2] {
            state.hints().take((&catalog, false), &told, up_to).unwrap();
            assert_eq!(
                scalar_i64(&conn, "SELECT count(*) FROM sync.seen").unwrap(),
                1 + MOST_UNKNOWN
            );
            assert_eq!(hinted("table_name = 'cases' AND id <> 7"), MOST_UNKNOWN);
            assert_eq!(hinted("table_name = 'contacts'"), MOST_UNKNOWN);
            assert_eq!(hinted("table_name = 'cases' AND id = 7"), 1);
        }
    }

    #[test]
    fn each_deleted_role_of_many_has_its_own_cases_read() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        let catalog = Catalog::load(None).unwrap();
        let now = Timestamp::now();
        conn.execute_batch(
            "INSERT INTO main.case_roles (id, case_id, _synced_at) \
             SELECT 1_000 + i, i, now() FROM range(1, 500) r(i) UNION ALL VALUES (1_001, 777, now())",
        )
        .unwrap();
        // Every second one, and some that nobody knows.
        let told: Vec<_> =
            (1_001..1_600).step_by(2).map(|id| (now, Told::Hint(Hint::Role { id }))).collect();
        state.hints().take((&catalog, false), &told, 1).unwrap();
        let hinted = "SELECT id FROM sync.hints WHERE table_name = 'case_roles' ORDER BY id";
        let cases: Vec<i64> = (1..500).step_by(2).chain([777]).collect();
        assert_eq!(ids(&conn, hinted).unwrap(), cases);
        assert!(state.hints().place_roles(&catalog, now).unwrap().are_waiting);
    }

    #[test]
    fn what_is_odd_of_webhooks_is_told_once_and_only_so_much_of_it() {
        let conn = fixture::store(None, 2026..=2026);
        let state = State::new(&conn);
        let catalog = Catalog::load(None).unwrap();
        let now = Timestamp::now();
        let drift = |which: &str| {
            let noted = "SELECT count(*) FROM sync.drift WHERE table_name = 'events'";
            scalar_i64(&conn, &format!("{noted} AND {which}")).unwrap()
        };
        let unknown = |at: i32| (now, Told::Unknown { event_type: format!("New{at}") });
        let without_id = (now, Told::WithoutId { event_type: "CaseSold".to_owned() });
        let first = [unknown(1), without_id.clone(), unknown(1), without_id, unknown(2)];
        for up_to in [1, 2] {
            state.hints().take((&catalog, false), &first, up_to).unwrap();
            assert_eq!(drift("true"), 3);
        }
        assert_eq!(drift("field = 'CaseSold (no id found)'"), 1);
        let many: Vec<_> = (1..2_000).map(unknown).collect();
        state.hints().take((&catalog, false), &many, 3).unwrap();
        assert_eq!((drift("true"), drift("field = 'New997'")), (1_000, 1));
    }
}
