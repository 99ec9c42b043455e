//! Events that webhooks told (`main.events`): no call reads them.

use std::collections::{BTreeSet, HashSet};

use duckdb::{Connection, params};
use jiff::Timestamp;

use super::changes::count_changes;
use super::freshness;
use super::state::{batch, count};
use crate::catalog::EVENTS;
use crate::error::Result;
use crate::scope::Fact;
use crate::sql::{db, instant, instant_param, query};

/// New event types that are told.
const MOST_NEW_TYPES: usize = 1_000;

/// Inserts events, each once: the platform repeats what it is not sure that we have. Those without a time, which the
/// platform does not send, are one by the rest of their key.
pub(super) fn insert(conn: &Connection, facts: &[(Timestamp, &Fact)]) -> Result<()> {
    if facts.is_empty() {
        return Ok(());
    }
    let failed = |e| db("cannot keep what webhooks told", e);
    batch(
        conn,
        "CREATE OR REPLACE TEMP TABLE stage_events (event_type VARCHAR, id BIGINT, case_id BIGINT, \
         contact_id BIGINT, employee_id BIGINT, office_id BIGINT, occurred_at VARCHAR, \
         received_at VARCHAR)",
    )?;
    let mut appender = conn.appender("stage_events").map_err(failed)?;
    for (received_at, fact) in facts {
        appender
            .append_row(params![
                fact.event_type,
                fact.id,
                fact.case_id,
                fact.contact_id,
                fact.employee_id,
                fact.office_id,
                fact.occurred_at.map(instant_param),
                instant_param(*received_at)
            ])
            .map_err(failed)?;
    }
    appender.flush().map_err(failed)?;
    let now = Timestamp::now();
    // A fact is what its key says it is: one that was told again with more or less beside it, or each time without a
    // time, is the one that is there.
    let same = ["event_type", "id", "case_id", "occurred_at"]
        .map(|column| format!("e.{column} IS NOT DISTINCT FROM n.{column}"))
        .join(" AND ");
    let inserted = count(
        conn,
        &format!(
            "INSERT INTO main.{EVENTS} BY NAME \
             SELECT n.*, {} AS _synced_at \
             FROM (SELECT event_type, id, case_id, max(contact_id) AS contact_id, \
                     max(employee_id) AS employee_id, max(office_id) AS office_id, \
                     occurred_at::TIMESTAMPTZ AS occurred_at, \
                     min(received_at::TIMESTAMPTZ) AS received_at \
                   FROM temp.stage_events GROUP BY ALL) n \
             WHERE NOT EXISTS (SELECT 1 FROM main.{EVENTS} e WHERE {same})",
            instant(now)
        ),
    )?;
    batch(conn, "DROP TABLE temp.stage_events")?;
    let events = BTreeSet::from([EVENTS]);
    let written = if inserted > 0 { events.clone() } else { BTreeSet::new() };
    if inserted > 0 {
        count_changes(conn, EVENTS, [""])?;
    }
    freshness::note(conn, &written, &events, now)
}

/// Something that a webhook brought and that nothing is read for: drift, told once.
pub(super) struct Odd {
    field: String,
    why: &'static str,
    at: Timestamp,
}

impl Odd {
    /// An event type that is not known.
    pub(super) fn unknown(event_type: &str, at: Timestamp) -> Odd {
        let why = "a webhook brought an event type that is not known: nothing is read for it";
        Odd { field: event_type.to_owned(), why, at }
    }

    /// An event of a known type that names nothing. No name of a type has blanks.
    pub(super) fn without_id(event_type: &str, at: Timestamp) -> Odd {
        let why = "a webhook brought an event in which no id is found: nothing is read for it";
        Odd { field: format!("{event_type} (no id found)"), why, at }
    }
}

/// Notes what is odd and was not noted before.
pub(super) fn note_odd(conn: &Connection, odd: Vec<Odd>) -> Result<()> {
    if odd.is_empty() {
        return Ok(());
    }
    let noted = format!("SELECT field FROM sync.drift WHERE table_name = '{EVENTS}'");
    let mut noted: HashSet<String> = query(conn, &noted, |row| row.get(0))?.into_iter().collect();
    for Odd { field, why, at } in odd {
        if noted.len() >= MOST_NEW_TYPES {
            break;
        }
        if !noted.insert(field.clone()) {
            continue;
        }
        tracing::warn!(event_type = field, "{why}");
        conn.execute(
            "INSERT INTO sync.drift VALUES (?, ?, NULL, ?::TIMESTAMPTZ)",
            params![EVENTS, field, instant_param(at)],
        )
        .map_err(|e| db("cannot note what is odd of webhooks", e))?;
    }
    Ok(())
}
