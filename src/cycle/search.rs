//! Searching by ids.

use std::sync::Arc;

use super::answers::Answers;
use super::policy::Verdict;
use super::scope_answers::AskedFor;
use crate::catalog::Resource;
use crate::error::{Error, Kind, Result};
use crate::scope::{CaseState, FailureKind, Place, Version};
use crate::source::Client;

/// Ids in one search call. Some servers take fewer: then it is found out how many ([`ids_per_call`]).
pub(crate) const IDS_PER_CALL: usize = 100;

/// So many calls more are made to find out which ids fail: seven find one among a hundred, both halves each time.
const MOST_PARTS: usize = 28;

/// How many ids are asked for at once of the search that fills a table.
pub(crate) fn ids_per_call(client: &Client, table: &str) -> usize {
    client.tops().most_ids(table).unwrap_or(IDS_PER_CALL)
}

/// What a search by ids came to.
pub(super) enum Searched {
    /// The ids that the complete answer lacks, and those that were not answered, which is noted.
    Answered { lacking: Vec<i64>, failed: Vec<i64> },
    /// The search is disabled, forbidden or absent.
    NotRead,
    /// The answer proves nothing: the ids are asked for again.
    Failed,
}

/// The searches, asked by ids.
pub(super) struct Search<'a, 'r> {
    pub(super) answers: &'a mut Answers<'r>,
}

/// What a search did not answer.
struct Trouble {
    ids: Vec<i64>,
    /// `None`: the answer was not complete.
    error: Option<Error>,
}

impl Trouble {
    /// Whether one of the ids that were asked for may be the reason.
    fn may_be_of_one(&self) -> bool {
        self.error.as_ref().is_none_or(|error| {
            let may_be = [Kind::BadAnswer, Kind::TooLarge, Kind::Server, Kind::Timeout];
            may_be.contains(&error.kind()) || is_refused(error)
        })
    }

    /// Whether it may be their number.
    fn may_be_too_many(&self) -> bool {
        self.error.as_ref().is_some_and(|error| may_be_too_many(&self.ids, error))
    }

    /// Whether it was not answered in time.
    fn hangs(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.kind() == Kind::Timeout)
    }

    /// Whether it is as where the service is down.
    fn is_of_the_service(&self) -> bool {
        let is_answer = |error: &Error| matches!(error.kind(), Kind::BadAnswer | Kind::TooLarge);
        self.error.as_ref().is_some_and(|error| !is_answer(error))
    }
}

/// Whether a search by these ids may have been refused for their number.
pub(crate) fn may_be_too_many(ids: &[i64], error: &Error) -> bool {
    ids.len() > 1 && is_refused(error)
}

/// Whether the service did not take the call as it was put. IIS answers an address that is too long with 404, others
/// with 414; OData services answer a filter of too many parts with 400.
fn is_refused(error: &Error) -> bool {
    matches!(error.kind(), Kind::Refused | Kind::NotFound)
}

impl Search<'_, '_> {
    /// Searches the cases of a batch whose search row is stale, in the tables `only`; empty: in both.
    /// Returns how many were searched.
    pub(crate) async fn cases(&mut self, batch: &[CaseState], only: &[String]) -> Result<usize> {
        let plans = self.answers.plans().of(batch, only)?;
        let stale = |table: &str| -> Vec<i64> {
            plans
                .iter()
                .filter(|(_, plan)| plan.stale.iter().any(|s| s.table == table))
                .map(|(case, _)| case.case_id)
                .collect()
        };
        let (cases, projects) = (stale("cases"), stale("projects"));
        let searched = cases.len() + projects.len();
        self.look_in(Place::Cases, Place::Projects, &cases).await?;
        self.look_in(Place::Projects, Place::Cases, &projects).await?;
        Ok(searched)
    }

    /// Searches ids in one search, what it lacks in the other, and asks after what both lack.
    async fn look_in(&mut self, first: Place, second: Place, ids: &[i64]) -> Result<()> {
        let asked = self.answers.run.asked()?;
        let mut unknown = Vec::new();
        let mut rest = ids;
        while !rest.is_empty() && !self.answers.findings.gives_up(first.table()) {
            let chunk = self.next_chunk(first, &mut rest);
            let lacking = match self.chunk(first, chunk).await? {
                Searched::Answered { lacking, .. } if lacking.is_empty() => continue,
                Searched::Answered { lacking, .. } => lacking,
                // What it has shown stays as it is; of the rest it is planned anew which search is asked.
                Searched::NotRead | Searched::Failed => continue,
            };
            let lacking = if first == Place::Cases {
                self.answers.suspects().may_be_projects(lacking).await?
            } else {
                lacking
            };
            let (mut failed, mut left) = (Vec::new(), lacking.as_slice());
            while !left.is_empty() {
                let chunk = self.next_chunk(second, &mut left);
                match self.chunk(second, chunk).await? {
                    Searched::Answered { lacking, failed: some } => {
                        unknown.extend(lacking);
                        failed.extend(some);
                    }
                    // The other search decides alone.
                    Searched::NotRead => unknown.extend(chunk),
                    Searched::Failed => failed.extend(chunk),
                }
            }
            // Only what both searches lack is known to be in none: it is asked for again.
            for id in failed {
                let why = "one search lacks the case, and the other cannot be read";
                self.answers.suspects().note(id, FailureKind::Unknown, why).await?;
            }
        }
        let mut suspects = self.answers.suspects();
        for id in suspects.unless_held(unknown).await? {
            suspects.ask(id, asked).await?;
        }
        Ok(())
    }

    /// Takes from `rest` as many ids as the search takes at once.
    pub(crate) fn next_chunk<'i>(&self, place: Place, rest: &mut &'i [i64]) -> &'i [i64] {
        let most = ids_per_call(self.answers.run.client(), place.table());
        let (chunk, more) = rest.split_at(rest.len().min(most));
        *rest = more;
        chunk
    }

    /// One search call, committed before it returns.
    pub(crate) async fn chunk(&mut self, place: Place, ids: &[i64]) -> Result<Searched> {
        let Some(resource) = self.answers.tables.get(place.table()).cloned() else {
            return Ok(Searched::NotRead);
        };
        let mut trouble = match self.ask(&resource, place, ids).await? {
            Ok(lacking) => return Ok(Searched::Answered { lacking, failed: Vec::new() }),
            Err(trouble) => trouble,
        };
        let mut answered = false;
        if trouble.may_be_too_many() {
            // It is not their number.
            if let Some(error) = self.ask_alone(&resource, place, ids).await? {
                trouble.error = Some(error);
                let is_not_read = self.note(&resource, trouble).await?;
                return Ok(if is_not_read { Searched::NotRead } else { Searched::Failed });
            }
            answered = true;
            // Nor is it where a proxy was in the way, or a smaller `$top` was found meanwhile.
            match self.ask(&resource, place, ids).await? {
                Ok(lacking) => return Ok(Searched::Answered { lacking, failed: Vec::new() }),
                Err(again) => trouble = again,
            }
        }
        match self.narrow(&resource, place, trouble, answered).await? {
            Some(narrowed) => Ok(narrowed),
            None => Ok(Searched::NotRead),
        }
    }

    /// Asks for the first of many ids alone, and for the last where that one is refused too: it may be that id. What
    /// refused both.
    async fn ask_alone(
        &mut self,
        resource: &Arc<Resource>,
        place: Place,
        ids: &[i64],
    ) -> Result<Option<Error>> {
        let mut refused = None;
        for id in ids.first().into_iter().chain(ids.last()) {
            match self.ask(resource, place, &[*id]).await? {
                Err(Trouble { error: Some(error), .. }) => refused = Some(error),
                Ok(_) | Err(Trouble { error: None, .. }) => return Ok(None),
            }
        }
        Ok(refused)
    }

    /// Asks for parts of what was not answered, until it is known which ids are the reason: one case must not keep a
    /// hundred others from being read. What fails is noted of these alone. `answered`: a single one of them was.
    /// `None`: the search is not read any more.
    async fn narrow(
        &mut self,
        resource: &Arc<Resource>,
        place: Place,
        trouble: Trouble,
        mut answered: bool,
    ) -> Result<Option<Searched>> {
        let (mut lacking, mut failed, mut calls) = (Vec::new(), Vec::new(), 0);
        let mut left = vec![trouble];
        while let Some(mut trouble) = left.pop() {
            if trouble.ids.len() < 2 || calls >= MOST_PARTS || !trouble.may_be_of_one() {
                failed.extend_from_slice(&trouble.ids);
                if self.note(resource, trouble).await? {
                    return Ok(None);
                }
                continue;
            }
            let mut troubles = Vec::new();
            let were_too_many = trouble.may_be_too_many();
            let most = ids_per_call(self.answers.run.client(), &resource.table);
            let ids = std::mem::take(&mut trouble.ids);
            let is_known = were_too_many && ids.len() > most;
            // How many it takes is known by now, or is found out.
            let size = if is_known { most } else { ids.len().div_ceil(2) };
            let mut parts = ids.chunks(size).map(<[i64]>::to_vec);
            while let Some(part) = parts.next() {
                calls += usize::from(!is_known);
                match self.ask(resource, place, &part).await? {
                    Ok(ids) => {
                        answered = true;
                        lacking.extend(ids);
                    }
                    Err(found) if !answered && found.hangs() => {
                        // The others would take minutes as well.
                        calls = MOST_PARTS;
                        troubles.push(found);
                        let unasked = |ids| Trouble { ids, error: trouble.error.take() };
                        troubles.extend(parts.by_ref().map(unasked));
                    }
                    Err(found) => troubles.push(found),
                }
            }
            if were_too_many && !is_known && troubles.is_empty() {
                tracing::info!(
                    table = resource.table,
                    most = size,
                    "so many ids are asked for at once from now on"
                );
                self.answers.run.client().tops().takes_ids(&resource.table, size);
            }
            // Where nothing is answered it is the search that fails, not a case.
            if !answered && troubles.len() == 2 && troubles.iter().any(Trouble::is_of_the_service) {
                calls = MOST_PARTS;
            }
            left.append(&mut troubles);
        }
        let narrowed = Searched::Answered { lacking, failed };
        Ok(Some(if answered { narrowed } else { Searched::Failed }))
    }

    /// Notes what a search did not answer. Returns whether it is not read any more.
    async fn note(&mut self, resource: &Arc<Resource>, trouble: Trouble) -> Result<bool> {
        let Trouble { ids, error } = trouble;
        if let Some(error) = error {
            let verdict = self.failed(resource, &ids, error).await?;
            return Ok(matches!(verdict, Verdict::TableForbidden | Verdict::TableAbsent));
        }
        let why = "the answer of the search was not complete";
        self.answers.note_failures(&resource.table, &ids, FailureKind::Incomplete, why).await?;
        Ok(false)
    }

    /// One search call: the ids that its complete answer lacks, or what it did not answer, which is not noted yet.
    async fn ask(
        &mut self,
        resource: &Arc<Resource>,
        place: Place,
        ids: &[i64],
    ) -> Result<Result<Vec<i64>, Trouble>> {
        let run = self.answers.run;
        let sequence = run.sequence()?;
        match run.extractor.search_ids(resource, place, ids, sequence).await {
            Ok(found) => {
                self.answers.reached();
                self.answers.findings.answered(&resource.table);
                if let Some(load) = found.load {
                    run.writer.load(load).await?;
                }
                self.answers.flush().await?;
                if found.complete {
                    return Ok(Ok(found.missing));
                }
                Ok(Err(Trouble { ids: found.missing, error: None }))
            }
            Err(error) => Ok(Err(Trouble { ids: ids.to_vec(), error: Some(error) })),
        }
    }

    /// What an error of a search means: of a listing, or of these ids.
    pub(crate) async fn failed(
        &mut self,
        resource: &Arc<Resource>,
        ids: &[i64],
        error: Error,
    ) -> Result<Verdict> {
        let kind = error.kind();
        if kind == Kind::WrongId {
            self.answers.findings.wrong(&resource.table, &error.chain());
        }
        // A search that is not there says the same to one id as to all.
        let asked_for = match kind {
            _ if ids.is_empty() => AskedFor::Listing,
            Kind::NotFound => AskedFor::WholeTable,
            _ => AskedFor::Scopes,
        };
        let (first, beside) = ids.split_first().unwrap_or((&0, &[]));
        let version = Version::Known(String::new());
        let mut answer = self.answers.scope(resource, *first).beside(beside);
        answer.failed(asked_for, version, error).await
    }
}
