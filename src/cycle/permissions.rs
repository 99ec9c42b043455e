//! What the API user may do (contract section 4, "Not allowed, not there").

use std::time::{Duration, Instant};

use arrow::array::AsArray;

use super::Cycle;
use crate::catalog::{Partial, Resource};
use crate::error::Result;
use crate::mirror::{Books, Load, State};
use crate::source::ApiPermission;

/// So long the answer about a part of a table's rows is believed: when many of them leave, one call
/// does for all.
const BELIEVED: Duration = Duration::from_secs(60);

impl Cycle {
    /// Reads what the API user may do. Tables that were forbidden or absent are tried again.
    pub(super) async fn read_permissions(&self) -> Result<()> {
        let permissions = self.extractor.client().permissions().await;
        if let Err(error) = &permissions {
            // They are only shown; what is not allowed says so itself.
            tracing::warn!(reason = error.chain(), "the API user's permissions cannot be read");
        }
        let parts =
            permissions.map_or_else(|_| Vec::new(), |granted| self.partly_granted(&granted));
        let rows = Books::new(&self.store.connection()?).resources()?;
        let again: Vec<String> = rows
            .into_iter()
            .filter(|(_, row)| matches!(row.status.as_str(), "forbidden" | "absent"))
            .map(|(table, _)| table)
            .collect();
        self.writer
            .run(move |conn| {
                let (books, state) = (Books::new(conn), State::new(conn));
                state.set_meta("contacts_feed", "untried")?;
                for table in &again {
                    books.set_status(table, "ok", None)?;
                    state.wake_table(table)?;
                }
                for (table, lacking) in &parts {
                    state.set_withheld(table, lacking.is_some())?;
                    books.set_reason(table, lacking.as_deref())?;
                }
                Ok(())
            })
            .await
    }

    /// Tables of which a further permission shows more rows, with what is lacking where it is not
    /// granted.
    fn partly_granted(&self, granted: &[ApiPermission]) -> Vec<(String, Option<String>)> {
        let with_part =
            self.catalog.resources().iter().filter_map(|r| Some((r, r.partial.as_ref()?)));
        with_part
            .map(|(resource, partial)| (resource.table.clone(), lacks(resource, partial, granted)))
            .collect()
    }

    /// Before rows leave that only a further permission shows: whether it is granted still. Where that
    /// cannot be told, it counts as withheld, and the rows stay.
    pub(super) async fn look_at_part(&mut self, resource: &Resource, load: &Load) -> Result<()> {
        let Some(partial) = &resource.partial else { return Ok(()) };
        let fresh = self.permissions_read.is_some_and(|at| at.elapsed() < BELIEVED);
        if fresh || shows_part(load, partial) || !self.mirrors_part(resource, partial, load)? {
            return Ok(());
        }
        let lacking = match self.extractor.client().permissions().await {
            Ok(granted) => lacks(resource, partial, &granted),
            Err(error) => Some(format!(
                "whether {} is granted is not known, {} {} that are mirrored stay: {}",
                partial.permission,
                partial.column,
                partial.values.join(", "),
                error.chain()
            )),
        };
        self.permissions_read = Some(Instant::now());
        let table = resource.table.clone();
        self.writer
            .run(move |conn| {
                State::new(conn).set_withheld(&table, lacking.is_some())?;
                Books::new(conn).set_reason(&table, lacking.as_deref())
            })
            .await
    }

    fn mirrors_part(&self, resource: &Resource, partial: &Partial, load: &Load) -> Result<bool> {
        let conn = self.store.connection()?;
        let state = State::new(&conn);
        for scope in load.scopes.iter().filter(|scope| scope.complete) {
            if state.rows_of_part(resource, partial, scope.id)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
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

/// What is lacking to see all rows, in words.
fn lacks(resource: &Resource, partial: &Partial, granted: &[ApiPermission]) -> Option<String> {
    if granted.iter().any(|permission| permission.grants(&partial.permission)) {
        return None;
    }
    let lacking = format!(
        "without {} no rows of {} {} are shown; those mirrored stay",
        partial.permission,
        partial.column,
        partial.values.join(", ")
    );
    tracing::warn!(table = resource.table, lacking, "a table is read in part");
    Some(lacking)
}
