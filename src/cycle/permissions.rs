//! What the API user may do (docs/architecture.md, "What an error says").

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use jiff::Timestamp;

use super::Run;
use super::policy::ends_run;
use super::polls::CONTACTS_FEED_WHY;
use super::statuses::set_ok;
use crate::catalog::{Partial, Resource};
use crate::decode::Load;
use crate::error::{Error, Result};
use crate::mirror::State;
use crate::scope::TableStatus;
use crate::source::{ApiPermission, refusal};

/// So long the answer about our permissions is believed: when many calls are refused, or many rows
/// leave, one call does for all.
const BELIEVED: Duration = Duration::from_secs(60);

/// What the API user may do, as far as it was asked in this run.
pub(super) struct Permissions<'r> {
    run: &'r Run,
    asked: Option<Asked>,
    /// Of tables with a part that a further permission shows, whether it was withheld when rows of it
    /// would have left.
    withheld: BTreeMap<String, bool>,
    /// Of scopes of such tables, whether that part is mirrored, as far as it was needed.
    with_part: HashMap<(String, i64), bool>,
    /// Whether such tables had no rows when this was first needed: then only what came since has some.
    began_empty: HashMap<String, bool>,
}

/// An answer about our permissions; none where it could not be had.
struct Asked {
    at: Instant,
    sent_at: Timestamp,
    granted: Option<Vec<ApiPermission>>,
}

impl<'r> Permissions<'r> {
    /// Nothing was asked yet.
    pub(crate) fn new(run: &'r Run) -> Permissions<'r> {
        Permissions {
            run,
            asked: None,
            withheld: BTreeMap::new(),
            with_part: HashMap::new(),
            began_empty: HashMap::new(),
        }
    }

    /// Reads what the API user may do. Tables that were forbidden or absent are tried again.
    pub(crate) async fn read(&self) -> Result<()> {
        let run = self.run;
        let parts = match run.client().permissions().await {
            Ok(granted) => self.partly_granted(&granted),
            Err(error) if ends_run(error.kind()) => return Err(error),
            Err(error) => {
                // They are only shown; what is not allowed says so itself.
                tracing::warn!(reason = error.chain(), "the API user's permissions cannot be read");
                Vec::new()
            }
        };
        let rows = State::new(&run.store.connection()?).statuses().all()?;
        let again: Vec<String> = rows
            .into_iter()
            .filter(|(_, row)| {
                matches!(row.own_status(), TableStatus::Forbidden | TableStatus::Absent)
            })
            .map(|(table, _)| table)
            .collect();
        let catalog = Arc::clone(&run.catalog);
        run.write(move |conn| {
            let state = State::new(conn);
            // What one 403 closed before, one closes again.
            state.set_contacts_feed(state.contacts_feed()?.tried_again())?;
            state.statuses().set_reason("contacts", None)?;
            state.set_meta(CONTACTS_FEED_WHY, "")?;
            for table in &again {
                set_ok(conn, &catalog, table)?;
                state.stale_marks().wake_table(table)?;
            }
            for (table, lacking) in &parts {
                state.stale_marks().set_withheld(table, lacking.is_some())?;
                state.statuses().set_reason(table, lacking.as_deref())?;
            }
            Ok(())
        })
        .await
    }

    /// Tables of which a further permission shows more rows, with what is lacking where it is not
    /// granted.
    fn partly_granted(&self, granted: &[ApiPermission]) -> Vec<(String, Option<String>)> {
        let mut all = Vec::new();
        for resource in self.run.catalog.resources() {
            let Some(partial) = &resource.partial else { continue };
            let lacking = (!is_granted(partial, granted)).then(|| restriction(partial));
            if let Some(lacking) = &lacking {
                tracing::warn!(table = resource.table, lacking, "a table is read in part");
            }
            all.push((resource.table.clone(), lacking));
        }
        all
    }

    /// Before rows leave that only a further permission shows: whether it is granted still. Where that
    /// cannot be told, it counts as withheld, and the rows stay.
    pub(crate) async fn look_at_part(
        &mut self,
        resource: &Resource,
        id: i64,
        load: &Load,
    ) -> Result<()> {
        let run = self.run;
        let Some(partial) = &resource.partial else { return Ok(()) };
        let scope = (resource.table.clone(), id);
        if shows_part(load, partial) {
            self.with_part.insert(scope, true);
            return Ok(());
        }
        let leaves = load.scopes.iter().all(|scope| scope.complete)
            && self.has_part(resource, id, partial)?;
        if !leaves {
            return Ok(());
        }
        let sees = |granted: &[ApiPermission]| is_granted(partial, granted);
        // What was granted before a call was sent may have been withdrawn before it was answered.
        let sent_at = load.scopes.iter().map(|scope| scope.sent_at).max();
        let is_older = |asked: &Asked| Some(asked.sent_at) < sent_at;
        if self
            .asked
            .as_ref()
            .is_some_and(|a| is_older(a) && a.granted.as_deref().is_some_and(sees))
        {
            self.asked = None;
        }
        let withheld = !self.granted().await.is_some_and(sees);
        if !withheld {
            self.with_part.insert(scope, false);
        }
        let before = self.withheld.insert(resource.table.clone(), withheld);
        if before == Some(withheld) {
            return Ok(());
        }
        let (catalog, table) = (Arc::clone(&run.catalog), resource.table.clone());
        run.write(move |conn| {
            State::new(conn).stale_marks().set_withheld(&table, withheld)?;
            set_ok(conn, &catalog, &table)
        })
        .await
    }

    /// Whether rows of a scope are mirrored that only a further permission shows.
    fn has_part(&mut self, resource: &Resource, id: i64, partial: &Partial) -> Result<bool> {
        if let Some(known) = self.with_part.get(&(resource.table.clone(), id)) {
            return Ok(*known);
        }
        let conn = self.run.store.connection()?;
        let state = State::new(&conn);
        let began_empty = match self.began_empty.entry(resource.table.clone()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(unknown) => {
                *unknown.insert(state.scopes().count_rows(&resource.table)? == 0)
            }
        };
        let has_part = !began_empty && state.scopes().has_part(resource, id, partial)?;
        self.with_part.insert((resource.table.clone(), id), has_part);
        Ok(has_part)
    }

    /// Whether a permission that the table needs, or that a 403 names, is not granted. Where that
    /// cannot be told, nothing is said.
    pub(crate) async fn lacks(&mut self, resource: &Resource, error: &Error) -> bool {
        let mut needed = resource.permissions.clone();
        needed.extend(refusal(error).into_iter().flat_map(|refusal| refusal.permissions.clone()));
        let granted = self.granted().await;
        granted.is_some_and(|granted| {
            needed.iter().any(|needed| !granted.iter().any(|own| own.grants(needed)))
        })
    }

    /// What the API user may do; not asked again for a minute.
    async fn granted(&mut self) -> Option<&[ApiPermission]> {
        let known = self.asked.as_ref().is_some_and(|asked| asked.at.elapsed() < BELIEVED);
        if !known {
            let (at, sent_at) = (Instant::now(), Timestamp::now());
            let granted = match self.run.client().permissions().await {
                Ok(granted) => Some(granted),
                Err(error) => {
                    let reason = error.chain();
                    tracing::warn!(reason, "the API user's permissions cannot be read");
                    None
                }
            };
            self.asked = Some(Asked { at, sent_at, granted });
        }
        self.asked.as_ref().and_then(|asked| asked.granted.as_deref())
    }
}

/// Whether an answer has such rows: then they are shown to us.
fn shows_part(load: &Load, partial: &Partial) -> bool {
    let column = load.decoded.rows.column_by_name(&partial.column);
    let values = column.and_then(|column| column.as_string_opt::<i32>());
    values.is_some_and(|values| {
        values.iter().flatten().any(|value| partial.values.iter().any(|part| part == value))
    })
}

/// Whether the API user sees the rows that need a further permission.
pub(crate) fn is_granted(partial: &Partial, granted: &[ApiPermission]) -> bool {
    granted.iter().any(|permission| permission.grants(&partial.permission))
}

/// What is not shown without that permission, in words.
pub(crate) fn restriction(partial: &Partial) -> String {
    format!(
        "without {} no rows of {} {} are shown; those mirrored stay",
        partial.permission,
        partial.column,
        partial.values.join(", ")
    )
}
