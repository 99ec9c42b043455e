//! The journals' months: which are due, and reading them (docs/architecture.md, "Journals").

use std::sync::Arc;

use jiff::Timestamp;

use super::due::Due;
use super::due_months::{Wanted, journal_ids, months_from};
use super::fetch::Fetcher;
use super::journal_rounds::Rounds;
use super::queue::Queue;
use crate::error::{Error, Kind, Result};
use crate::mirror::{Closings, FIRST_MONTH, State, id_column};
use crate::schedule::Name;
use crate::scope::{DueReason, JournalScope, Month, REVENUE_SUMS, Urgency, Work};

/// What `casemirror journals` asks for; its tables are the run's `only`.
#[derive(Debug, Clone)]
pub struct JournalRequest {
    pub(crate) from: Month,
    pub(crate) to: Month,
    /// Of `journals.level`; empty: those of the configuration, or all that are known.
    pub(crate) ids: Vec<i64>,
    /// More ids that are known, whose months are read too.
    pub(crate) also: Vec<i64>,
    /// The months are due in the store already: a run that had to give way goes on.
    pub(crate) planned: bool,
    /// Whoever asks closes the months, or not: none of them is closed by its close day meanwhile.
    pub(crate) stays_open: bool,
}

impl JournalRequest {
    fn months(&self) -> Vec<Month> {
        months_from(self.from, self.to)
    }
}

/// The journals' tables that a run reads.
pub(super) struct Journals<'c, 'r> {
    fetcher: &'c mut Fetcher<'r>,
    tables: Vec<String>,
}

impl<'c, 'r> Journals<'c, 'r> {
    /// Those that this run was asked for.
    pub(crate) fn of(fetcher: &'c mut Fetcher<'r>) -> Journals<'c, 'r> {
        let journals = fetcher.answers.tables.journals();
        let wanted = journals.filter(|r| fetcher.run.options.wants(&r.table));
        let tables = wanted.map(|r| r.table.clone()).collect();
        Journals { fetcher, tables }
    }

    /// Reads the months that are due: those that the schedules ask for, and what an earlier run left
    /// undone. What is due is in the store, so that a run which ends early leaves it to the next.
    pub(crate) async fn follow(&mut self, due: &Due) -> Result<()> {
        let run = self.fetcher.run;
        if !run.options.cases.is_empty() {
            return Ok(());
        }
        self.want().await?;
        let scheduled = due.has(Name::Journals) || due.has(Name::JournalsRecheck);
        // Where the offices were not known when the schedule ran, nothing was planned.
        let unplanned = due.at.is_some() && !scheduled && {
            let conn = run.store.connection()?;
            let state = State::new(&conn);
            state.meta(FIRST_MONTH)?.is_some()
                && !state.months().has_journals(run.config.journals.level)?
        };
        if scheduled || unplanned {
            self.plan(due, unplanned).await?;
        }
        Rounds::new(self.fetcher, &self.tables, None).read().await?;
        if scheduled {
            self.close_what_is_gone().await?;
        }
        Ok(())
    }

    async fn close_what_is_gone(&self) -> Result<()> {
        let (catalog, config) =
            (Arc::clone(&self.fetcher.run.catalog), Arc::clone(&self.fetcher.run.config));
        let close = move |conn: &_| {
            let close_day = (config.journals.close_day, &config.source.time_zone);
            Closings::new(conn).close_what_is_gone(
                &catalog,
                config.journals.level,
                close_day,
                Timestamp::now(),
            )
        };
        let closed = self.fetcher.run.write(close).await?;
        if closed > 0 {
            tracing::info!(
                closed,
                "months of offices that are gone are closed as they were last read"
            );
        }
        Ok(())
    }

    /// `casemirror journals`: the months of a period, whether they are due or not.
    pub(crate) async fn read_period(&mut self, request: &JournalRequest) -> Result<()> {
        let run = self.fetcher.run;
        let named = || journal_ids(&run.store.connection()?, &run.config, &request.ids);
        let mut ids = named()?;
        if ids.is_empty() && request.ids.is_empty() {
            // Whose journals there are says the list of the offices.
            self.read_offices().await?;
            ids = named()?;
        }
        if ids.is_empty() {
            return Err(Error::new(
                Kind::Usage,
                "no office is known whose journals could be read: journals.ids names them",
            ));
        }
        ids.extend(&request.also);
        ids.sort_unstable();
        ids.dedup();
        if !request.planned {
            self.refuse_strangers(request).await?;
            // What was asked before somebody wanted it says how the months were, not how they are.
            run.months.forget_those(|of| {
                let month = JournalScope::of(of.id, &of.part).map(|scope| scope.month);
                month.is_some_and(|month| request.months().contains(&month))
                    && self.tables.contains(&of.table)
                    && ids.contains(&of.id)
            });
            let (level, months) = (run.config.journals.level, request.months());
            let (tables, asked) = (self.tables.clone(), ids.clone());
            let why = Some(DueReason::AskedFor);
            run.write(move |conn| {
                let state = State::new(conn);
                state.months().months_are_due(&tables, level, &asked, &months, why)?;
                // Who asks does not wait for a backoff.
                state.months().months_wait_no_longer(&tables, &asked)
            })
            .await?;
        }
        Rounds::new(self.fetcher, &self.tables, Some((request, &ids))).read().await
    }

    /// Offices that have come, or come back, are wanted like those that are known.
    async fn want(&self) -> Result<()> {
        let run = self.fetcher.run;
        let config = Arc::clone(&run.config);
        if State::new(&run.store.connection()?).wanted_months().all_are_wanted(&config.journals)? {
            return Ok(());
        }
        run.write(move |conn| State::new(conn).wanted_months().want_journals(&config.journals))
            .await
    }

    /// Refuses ids that were typed and mean nobody: the mirror does not know them, and each of their
    /// journals is answered 404. What has no journal looks the same, and would be a month without lines.
    async fn refuse_strangers(&self, request: &JournalRequest) -> Result<()> {
        let run = self.fetcher.run;
        let level = run.config.journals.level;
        let mut resources: Vec<_> =
            self.tables.iter().filter_map(|table| run.catalog.get(table)).collect();
        // A control total is the cheapest of them.
        resources.sort_by_key(|resource| resource.table != REVENUE_SUMS);
        let mut unknown_ids = Vec::new();
        for id in &request.ids {
            let scope = JournalScope { level, id: *id, month: request.to };
            if run.knows(scope)? || resources.is_empty() {
                continue;
            }
            let mut is_known = false;
            for resource in &resources {
                // An error says nothing about the id: it comes again when the months are read.
                is_known = run.extractor.has_journal(resource, scope).await.unwrap_or(true);
                if is_known {
                    break;
                }
            }
            if !is_known {
                unknown_ids.push(id.to_string());
            }
        }
        if unknown_ids.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            Kind::Usage,
            format!(
                "the source has no journals of {}; with journals.level = \"{level}\" the ids \
                 are those of the column offices.{}",
                unknown_ids.join(","),
                id_column(level)
            ),
        ))
    }

    /// Makes due what the schedules ask for; `anyway` as if `schedule.journals` did.
    async fn plan(&self, due: &Due, anyway: bool) -> Result<()> {
        let run = self.fetcher.run;
        let mut plan = Wanted::of(&run.store.connection()?, &run.config, due)?;
        plan.scheduled |= anyway;
        let at = due.at.unwrap_or_else(Timestamp::now);
        let (level, tables) = (run.config.journals.level, self.tables.clone());
        let all = run.catalog.journals();
        run.write(move |conn| plan.note(conn, (level, at), &tables, &all)).await
    }

    async fn read_offices(&mut self) -> Result<()> {
        let offices =
            self.fetcher.answers.tables.get("offices").map(|offices| offices.table.clone());
        if let Some(table) = offices {
            let work = [Work::List { table, mirrored: None, hint: None }];
            self.fetcher.fetch(Queue::of(Urgency::Due, work)).await?;
        }
        Ok(())
    }
}
