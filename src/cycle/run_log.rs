//! The beginning and the end of a cycle in the run log: tenant, permissions, statuses, problems.

use std::collections::BTreeMap;
use std::sync::Arc;

use duckdb::Connection;

use super::Cycle;
use super::dependence::Dependence;
use super::permissions::set_ok;
use super::policy::ends_run;
use crate::catalog::{Group, Resource};
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::mirror::{FEED_TABLES, ResourceRow, RunLog, State, Store, Writer};
use crate::scope::{REVENUE, TableStatus};
use crate::source::Client;

/// Key of `sync.meta`: the `$top` that each endpoint takes, as JSON.
const PAGE_SIZES: &str = "page_sizes";

impl Cycle<'_> {
    /// Page sizes that the service refused in an earlier run are not tried again in this one: a
    /// change causes exactly the calls that it has to (docs/architecture.md, "Seen and fetched").
    pub(super) fn recall_page_sizes(&self) -> Result<()> {
        let sizes = page_sizes(&self.run.store.connection()?)?;
        self.run.client().assume_page_sizes(sizes);
        Ok(())
    }

    /// Refuses a store of another tenant. Where the tenant is known for these credentials and is only asked
    /// for once more, a call that fails stops nothing.
    pub(super) async fn check_tenant(&mut self, again: bool) -> Result<()> {
        let client = self.run.client();
        let checked = check_tenant(
            &self.run.config,
            &self.run.store,
            self.run.writer.writer(),
            client,
            again,
        )
        .await;
        let Err(error) = checked else { return Ok(()) };
        let is_known = {
            let conn = self.run.store.connection()?;
            State::new(&conn).meta("origin")?.as_deref() == Some(origin(&self.run.config).as_str())
        };
        if !is_known || ends_run(error.kind()) {
            return Err(error);
        }
        let error = self.fetcher.answers.note_reachability("/api/User", error).await?;
        self.fetcher
            .answers
            .report
            .problem(error.within("whose data it is cannot be asked").chain());
        Ok(())
    }

    async fn keep_page_sizes(&self) -> Result<()> {
        let sizes = serde_json::json!(self.run.client().page_sizes()).to_string();
        let kept = State::new(&self.run.store.connection()?).meta(PAGE_SIZES)?;
        if kept.as_deref() == Some(sizes.as_str()) {
            return Ok(());
        }
        self.run.write(move |conn| State::new(conn).set_meta(PAGE_SIZES, &sizes)).await
    }

    /// Makes the statuses follow `resources.disable`.
    pub(super) async fn align_statuses(&self) -> Result<()> {
        let disabled = self.run.config.resources.disable.clone();
        let rows = RunLog::new(&self.run.store.connection()?).resources()?;
        let changes: Vec<(String, bool)> = rows
            .into_iter()
            .filter_map(|(table, row)| {
                let off = disabled.contains(&table);
                (off != (row.own_status() == TableStatus::Disabled)).then_some((table, off))
            })
            .collect();
        if changes.is_empty() {
            return self.derive_statuses().await;
        }
        let catalog = Arc::clone(&self.run.catalog);
        self.run
            .write(move |conn| {
                let (log, state) = (RunLog::new(conn), State::new(conn));
                for (table, off) in &changes {
                    if *off {
                        let why = "resources.disable names it";
                        log.set_status(table, TableStatus::Disabled, Some(why))?;
                    } else {
                        set_ok(conn, &catalog, table)?;
                        // A child's rows come with its parent's scopes.
                        match catalog.get(table).map(|resource| resource.read_with()) {
                            Some(parent) if parent != table => {
                                state.stale_marks().read_again(parent)?
                            }
                            _ => state.stale_marks().wake_table(table)?,
                        }
                    }
                }
                Ok(())
            })
            .await?;
        self.derive_statuses().await
    }

    /// Makes the statuses of tables that depend on others follow those.
    async fn derive_statuses(&self) -> Result<()> {
        let changes = {
            let conn = self.run.store.connection()?;
            let state = State::new(&conn);
            Dependence {
                catalog: &self.run.catalog,
                rows: &RunLog::new(&conn).resources()?,
                named_journals: !self.run.config.journals.ids.is_empty(),
                is_empty: |table: &str| Ok(state.scopes().count_rows(table)? == 0),
            }
            .changes()?
        };
        if changes.is_empty() {
            return Ok(());
        }
        self.run
            .write(move |conn| {
                let log = RunLog::new(conn);
                changes.iter().try_for_each(|(table, now)| {
                    let (reason, because_of) = (now.reason.as_deref(), now.because_of.as_deref());
                    log.set_status_of(table, now.status, reason, because_of)
                })
            })
            .await
    }

    /// What is left undone at the end of a run, in words and in the store.
    pub(super) async fn close_run(&mut self) -> Result<()> {
        self.keep_page_sizes().await?;
        let (failed, answered) = self.fetcher.answers.findings.take();
        let of_cases = self.run.catalog.resources().iter().filter(|r| r.group == Group::Case);
        let tables: Vec<String> = of_cases.map(|r| r.table.clone()).collect();
        let catalog = Arc::clone(&self.run.catalog);
        self.run
            .write(move |conn| {
                let log = RunLog::new(conn);
                let rows = log.resources()?;
                for (table, reason) in &failed {
                    let ok = rows.get(table).is_some_and(|r| r.own_status() == TableStatus::Ok);
                    // One scope that fails is not the table; none that answers is.
                    if ok && !answered.contains(table) {
                        log.set_status(table, TableStatus::Failing, Some(reason))?;
                    }
                }
                State::new(conn).contacts().forget_unnamed_contacts()?;
                let waiting = log.failed_scopes(&tables, &[])?;
                for (table, _) in
                    rows.iter().filter(|(_, row)| row.own_status() == TableStatus::Failing)
                {
                    // What failed may have left with its cases.
                    let over = tables.contains(table) && !waiting.contains_key(table);
                    if over || answered.contains(table) {
                        set_ok(conn, &catalog, table)?;
                    }
                }
                Ok(())
            })
            .await?;
        self.derive_statuses().await?;
        let controls = self
            .run
            .write(|conn| {
                let state = State::new(conn);
                state.controls().sums_follow_their_lines()?;
                state.controls().keep_control_problems()
            })
            .await?;
        let conn = self.run.store.connection()?;
        let log = RunLog::new(&conn);
        let rows = log.resources()?;
        let catalog = Arc::clone(&self.run.catalog);
        let is_asked = |table: &str| rows.get(table).is_some_and(ResourceRow::is_asked);
        let asked: Vec<&str> = catalog
            .resources()
            .iter()
            .filter(|r| self.asks_for(r) && is_asked(&r.table) && is_asked(r.read_with()))
            .map(|r| r.table.as_str())
            .collect();
        // What a table is failing for are other cases, unless these failed too.
        let whole = self.run.options.cases.is_empty();
        for table in asked.iter().filter(|_| whole) {
            let Some(row) = rows.get(*table).filter(|row| row.own_status() == TableStatus::Failing)
            else {
                continue;
            };
            let why = row.reason.as_deref().unwrap_or_default();
            self.fetcher.answers.report.problem(format!("{table} is failing: {why}"));
        }
        // The feeds are asked in every run.
        let asked: Vec<&str> = asked.into_iter().chain(FEED_TABLES).collect();
        for (table, (count, error)) in log.failed_scopes(&asked, &self.run.options.cases)? {
            self.fetcher.answers.report.problem(failed_text(&table, count, &error));
        }
        for (table, count) in log.open_rejects(&asked, &self.run.options.cases)? {
            let s = if count == 1 { "" } else { "s" };
            self.fetcher
                .answers
                .report
                .problem(format!("{table}: {count} open reject{s}, see sync.rejects"));
        }
        if whole && asked.contains(&REVENUE) {
            controls.into_iter().for_each(|problem| self.fetcher.answers.report.problem(problem));
        }
        Ok(())
    }

    /// Whether the options leave a table in: what they leave out is no failure
    /// (docs/architecture.md, "Commands").
    fn asks_for(&self, resource: &Resource) -> bool {
        let wanted =
            self.run.options.wants(&resource.table) || self.run.options.wants(resource.read_with());
        wanted && (self.run.options.cases.is_empty() || resource.read_with() != "contacts")
    }
}

/// What is said of a table of which scopes failed.
pub(crate) fn failed_text(table: &str, count: i64, error: &str) -> String {
    if FEED_TABLES.contains(&table) {
        return error.to_owned();
    }
    let s = if count == 1 { "" } else { "s" };
    format!("{table}: {count} scope{s} failed and will be tried again: {error}")
}

/// The `$top` that each endpoint takes, as far as earlier runs have found it out.
///
/// # Errors
/// Those of the store.
pub(crate) fn page_sizes(conn: &Connection) -> Result<BTreeMap<String, u32>> {
    let kept = State::new(conn).meta(PAGE_SIZES)?;
    // What cannot be read is found out again.
    Ok(kept.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

/// What a store's tenant hangs on.
fn origin(config: &Config) -> String {
    format!("{} {}", config.source.base_url, config.source.client_id)
}

/// A store is one tenant's (docs/architecture.md, "One tenant"). The source is asked when the store
/// is new, when it was filled with other credentials, and `anyway` with `schedule.reference`.
///
/// # Errors
/// `Tenant` when the store was filled from another one, and those of the call and the store.
pub(crate) async fn check_tenant(
    config: &Config,
    store: &Store,
    writer: &Writer,
    client: &Client,
    anyway: bool,
) -> Result<()> {
    let origin = origin(config);
    let (known, filled_from) = {
        let conn = store.connection()?;
        let state = State::new(&conn);
        (state.meta("tenant")?, state.meta("origin")?)
    };
    if !anyway && known.is_some() && filled_from.as_deref() == Some(origin.as_str()) {
        return Ok(());
    }
    let tenant = client.tenant().await?.to_string();
    if let Some(known) = known
        && known != tenant
    {
        return Err(Error::new(
            Kind::Tenant,
            format!(
                "the store {} was filled from tenant {known}; these credentials belong to \
                 tenant {tenant}",
                store.path().display()
            ),
        ));
    }
    writer
        .run(move |conn| {
            let state = State::new(conn);
            state.set_meta("tenant", &tenant)?;
            state.set_meta("origin", &origin)
        })
        .await
}
