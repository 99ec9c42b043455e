//! Searching by ids.

use std::sync::Arc;

use super::answers::Answers;
use super::policy::Verdict;
use crate::catalog::Resource;
use crate::error::{Error, Kind, Result};
use crate::scope::{CaseState, FailureKind, Place, Version};

/// Ids in one search call: the address stays well under what servers take.
pub(crate) const IDS_PER_CALL: usize = 100;

/// What a search by ids came to.
pub(super) enum Searched {
    /// The ids that the complete answer lacks.
    Lacks(Vec<i64>),
    /// The search is disabled, forbidden or absent.
    NotRead,
    /// The answer proves nothing: the ids are asked for again.
    Failed,
}

/// The searches, asked by ids.
pub(super) struct Search<'a, 'r> {
    pub(super) answers: &'a mut Answers<'r>,
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
        for chunk in ids.chunks(IDS_PER_CALL) {
            let lacking = match self.chunk(first, chunk).await? {
                Searched::Lacks(lacking) if lacking.is_empty() => continue,
                Searched::Lacks(lacking) => lacking,
                // What it has shown stays as it is; of the rest it is planned anew which search is asked.
                Searched::NotRead | Searched::Failed => continue,
            };
            match self.chunk(second, &lacking).await? {
                Searched::Lacks(lacking) => unknown.extend(lacking),
                // The other search decides alone.
                Searched::NotRead => unknown.extend(lacking),
                // Only what both searches lack is known to be in none: it is asked for again.
                Searched::Failed => {
                    let why = "one search lacks the case, and the other cannot be read";
                    for id in &lacking {
                        self.answers.suspects().note(*id, FailureKind::Unknown, why).await?;
                    }
                }
            }
        }
        let mut suspects = self.answers.suspects();
        if unknown.is_empty() || suspects.hold(&unknown).await? {
            return Ok(());
        }
        for id in unknown {
            suspects.ask(id, asked).await?;
        }
        Ok(())
    }

    /// One search call, committed before it returns.
    pub(crate) async fn chunk(&mut self, place: Place, ids: &[i64]) -> Result<Searched> {
        let Some(resource) = self.answers.tables.get(place.table()).cloned() else {
            return Ok(Searched::NotRead);
        };
        let run = self.answers.run;
        let sequence = run.sequence()?;
        match run.extractor.search_ids(&resource, place, ids, sequence).await {
            Ok(found) => {
                self.answers.reached();
                self.answers.findings.answered(&resource.table);
                if let Some(load) = found.load {
                    run.writer.load(load).await?;
                }
                self.answers.flush().await?;
                if !found.complete {
                    for id in found.missing {
                        let why = "the answer of the search was not complete";
                        let kind = FailureKind::Incomplete;
                        self.answers.note_failure(&resource.table, id, kind, why).await?;
                    }
                    return Ok(Searched::Failed);
                }
                Ok(Searched::Lacks(found.missing))
            }
            Err(error) => match self.failed(&resource, ids, error).await? {
                Verdict::TableForbidden | Verdict::TableAbsent => Ok(Searched::NotRead),
                _ => Ok(Searched::Failed),
            },
        }
    }

    /// What an error of a search means: of a listing, or of these ids.
    pub(crate) async fn failed(
        &mut self,
        resource: &Arc<Resource>,
        ids: &[i64],
        error: Error,
    ) -> Result<Verdict> {
        let (kind, text) = (error.kind(), error.chain());
        if kind == Kind::WrongId {
            self.answers.findings.wrong(&resource.table, &text);
        }
        // The listing is one call, and so is a search that is not there, whatever was asked.
        let whole = ids.is_empty() || kind == Kind::NotFound;
        let first = ids.first().copied().unwrap_or(0);
        let version = Version::Known(String::new());
        let verdict = self.answers.scope(resource, first).failed(whole, version, error).await?;
        if verdict == Verdict::ScopeFailed {
            for id in ids.iter().skip(1) {
                self.answers
                    .note_failure(&resource.table, *id, FailureKind::of(kind), &text)
                    .await?;
            }
        }
        Ok(verdict)
    }
}
