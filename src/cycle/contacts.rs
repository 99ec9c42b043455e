//! Searching contacts.

use std::sync::Arc;

use jiff::Timestamp;

use super::CONTACT_AGE;
use super::answers::Answers;
use super::scope_answers::AskedFor;
use super::search::{Searched, ids_per_call};
use super::signals::Interrupt;
use crate::catalog::Resource;
use crate::error::{Kind, Result};
use crate::mirror::State;
use crate::scope::{Place, Version};

const CONTACTS: &str = "contacts";

/// The contacts that are stale.
pub(super) struct Contacts<'a, 'r> {
    pub(super) answers: &'a mut Answers<'r>,
}

impl Contacts<'_, '_> {
    /// Searches the contacts that are stale, those that moved last first; at most so many, where
    /// something else waits. Returns how many.
    pub(crate) async fn search(&mut self, most: Option<usize>) -> Result<usize> {
        let run = self.answers.run;
        let Some(resource) = self.answers.tables.get(CONTACTS).cloned() else { return Ok(0) };
        let (followed, asked) = (run.polls.follows_contacts()?, run.sequence()?);
        let (mut ids, roles) = {
            let conn = run.store.connection()?;
            let state = State::new(&conn);
            let now = Timestamp::now();
            // Counted first: roles that wait for their commit just now may name contacts that these ids lack.
            let roles = state.contacts().roles_counter()?;
            let due = state
                .waiting()
                .again()?
                .iter()
                .any(|(table, at, _)| table == CONTACTS && *at <= now.as_microsecond());
            if followed && !due && !state.contacts().contacts_may_be_stale()? {
                return Ok(0);
            }
            let older = (!followed).then(|| (now - CONTACT_AGE).as_microsecond());
            (state.contacts().stale_contacts(now.as_microsecond(), older)?, roles)
        };
        ids.retain(|id| !self.answers.planned.has_failed(&resource.table, *id));
        let all = most.is_none_or(|most| ids.len() <= most);
        ids.truncate(most.unwrap_or(ids.len()));
        let _step = run.progress.step("searching contacts");
        let calls = ids.len().div_ceil(ids_per_call(run.client(), CONTACTS));
        let mut share = run.progress.share(calls as u64);
        let (mut searched, mut rest) = (0, ids.as_slice());
        while !rest.is_empty() {
            if self.answers.findings.gives_up(CONTACTS) {
                break;
            }
            let newer = most.is_none() && run.signals.latest() > self.answers.planned.handled();
            if newer || run.signals.interrupt() != Interrupt::None {
                break;
            }
            let chunk = self.answers.search().next_chunk(Place::Contacts, &mut rest);
            searched += chunk.len();
            if let Searched::Answered { lacking, .. } =
                self.answers.search().chunk(Place::Contacts, chunk).await?
            {
                for id in lacking {
                    self.read_by_id(&resource, id).await?;
                }
            }
            share.done(1);
            if !self.answers.tables.is_active(CONTACTS) {
                break;
            }
        }
        self.answers.flush().await?;
        let all = all && (searched == ids.len() || !self.answers.tables.is_active(CONTACTS));
        run.write(move |conn| {
            let state = State::new(conn);
            if all {
                state.contacts().contacts_planned(roles)?;
                state.hints().forget_unknown_contacts(asked)?;
            }
            state.contacts().clean_contacts()
        })
        .await?;
        Ok(searched)
    }

    /// A contact that the search does not know is read by its id (docs/architecture.md, "What is due").
    async fn read_by_id(&mut self, resource: &Arc<Resource>, id: i64) -> Result<()> {
        let Some(template) = resource.read.as_ref().and_then(|r| r.by_id.clone()) else {
            return Ok(());
        };
        let run = self.answers.run;
        let sequence = run.sequence()?;
        match run.extractor.by_id(resource, &template, id, sequence).await {
            Ok(load) => run.writer.load(load).await,
            Err(error) if error.kind() == Kind::NotFound => {
                let version = Version::AsSeen { sequence };
                self.answers
                    .scope(resource, id)
                    .failed(AskedFor::Scopes, version, error)
                    .await
                    .map(drop)
            }
            // What this address refuses says nothing about the search that fills the table.
            Err(error) => self.answers.scope(resource, id).failed_alone(error).await,
        }
    }
}
