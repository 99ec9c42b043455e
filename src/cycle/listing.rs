//! The complete listing of the cases.

use std::collections::HashSet;
use std::sync::Arc;

use duckdb::Connection;
use jiff::Timestamp;

use super::fetch::Fetcher;
use super::policy::Verdict;
use super::signals::Interrupt;
use super::suspects::left_of_late;
use crate::catalog::Resource;
use crate::error::{Kind, Result};
use crate::failpoint;
use crate::mirror::{Failures, State};
use crate::scope::{FailureKind, Place};
use crate::source::split::field_of;
use crate::source::{self, Pages};
use crate::text::whole_number;

/// The listing of everything that both searches show.
pub(super) struct Listing<'c, 'r> {
    fetcher: &'c mut Fetcher<'r>,
    /// The ids of what was listed.
    listed: Vec<i64>,
    /// The searches that were listed.
    places: Vec<Place>,
}

/// How the listing of one search ended.
struct Ended {
    complete: bool,
    /// It had a record without a usable key.
    without_key: bool,
}

impl<'c, 'r> Listing<'c, 'r> {
    /// Nothing is listed yet.
    pub(crate) fn new(fetcher: &'c mut Fetcher<'r>) -> Listing<'c, 'r> {
        Listing { fetcher, listed: Vec::new(), places: Vec::new() }
    }

    /// Lists everything that both searches show. Rows are inserted and updated, never deleted; what
    /// a complete listing lacks is a suspect (docs/architecture.md, "Deletion").
    /// Returns whether it was complete; where neither search is read, there is nothing to list.
    pub(crate) async fn read(&mut self) -> Result<bool> {
        let run = self.fetcher.run;
        let asked = run.asked()?;
        let mut complete = true;
        let mut proof = true;
        // That it was refused is noted already, with since when.
        let mut is_noted = false;
        // A search that is disabled, forbidden or absent decides nothing: the other one does alone.
        for place in [Place::Cases, Place::Projects] {
            let Some(resource) = self.fetcher.answers.tables.get(place.table()).cloned() else {
                continue;
            };
            let known = match place {
                // What the property search shows is a case, whatever the other one says.
                Place::Projects => {
                    self.known_cases(complete && self.places.contains(&Place::Cases))?
                }
                Place::Cases | Place::Contacts => HashSet::new(),
            };
            match self.list(&resource, place, &known).await {
                Ok(ended) => {
                    self.fetcher.answers.reached();
                    complete &= ended.complete;
                    proof &= !ended.without_key;
                    self.places.push(place);
                }
                Err(error) => {
                    let refused = error.kind() == Kind::Forbidden;
                    match self.fetcher.answers.search().failed(&resource, &[], error).await? {
                        Verdict::TableForbidden | Verdict::TableAbsent => {}
                        _ => {
                            complete = false;
                            is_noted |= refused && place == Place::Cases;
                        }
                    }
                }
            }
        }
        self.fetcher.answers.flush().await?;
        if run.signals.interrupt() == Interrupt::Cancel {
            return Ok(false);
        }
        if !complete {
            let why = "the listing of the cases is not complete";
            if is_noted {
                self.fetcher.answers.report.problem(why.to_owned());
            } else {
                self.failed(FailureKind::Incomplete, why).await?;
            }
            return Ok(false);
        }
        if self.places.is_empty() {
            // No search is read, and nothing is said about any case.
            self.is_well(Some(Timestamp::now())).await?;
            return Ok(true);
        }
        // A case is a suspect when both searches lack it. A record without a usable key may be any case.
        let (suspects, held) =
            if proof { self.suspects(asked.sent_at).await? } else { (Vec::new(), false) };
        let listed_at = Timestamp::now().to_string();
        run.write(move |conn| State::new(conn).set_meta("listed_at", &listed_at)).await?;
        let _step = run.progress.step("looking for cases that the listing lacks");
        let mut share = run.progress.share(suspects.len() as u64);
        for id in suspects {
            if run.signals.interrupt() == Interrupt::Cancel {
                return Ok(false);
            }
            self.fetcher.answers.suspects().ask(id, asked).await?;
            share.done(1);
        }
        self.fetcher.answers.flush().await?;
        if !held {
            self.is_well(proof.then_some(asked.sent_at)).await?;
        }
        // What the guard held is looked at again in the next run.
        Ok(!held)
    }

    /// Keeps that the cases were listed, and that nothing which was held before `nothing_held_since` is held any more.
    async fn is_well(&self, nothing_held_since: Option<Timestamp>) -> Result<()> {
        let well = move |conn: &Connection| {
            let state = State::new(conn);
            if let Some(since) = nothing_held_since {
                state.suspects().let_go(since)?;
            }
            state.failures().listing_is_well()
        };
        self.fetcher.run.write(well).await
    }

    /// Keeps that the cases were not listed, or not believed to be, until they are.
    async fn failed(&mut self, kind: FailureKind, why: &str) -> Result<()> {
        self.fetcher.answers.report.problem(why.to_owned());
        self.fetcher.run.note_failure(Failures::listing(), kind, why).await
    }

    async fn list(
        &mut self,
        resource: &Arc<Resource>,
        place: Place,
        known: &HashSet<i64>,
    ) -> Result<Ended> {
        let run = self.fetcher.run;
        let _step = run.progress.step(&format!("listing {}", resource.table));
        let since = Timestamp::now();
        let mut without_key = false;
        let mut pages: Pages = run.extractor.listing(resource)?;
        // Pages of one listing hold different ids, so the next is asked while this one is decoded
        // and committed; what moved after its call was sent stays stale.
        let mut sequence = run.sequence()?;
        let mut asked = pages.next().await?;
        while let Some(mut page) = asked {
            page.records.retain(|record| id_of(record).is_none_or(|id| !known.contains(&id)));
            // What changed meanwhile goes first, by calls that share no row with a page under way.
            let alone = run.signals.latest() > self.fetcher.answers.planned.handled();
            let next_sequence = run.sequence()?;
            let decoded = run.extractor.search_page(resource, place, page, sequence);
            let (next, page) = if alone {
                (None, decoded.await?)
            } else {
                let (next, page) = tokio::join!(pages.next(), decoded);
                (Some(next?), page?)
            };
            self.fetcher.answers.findings.answered(&resource.table);
            self.listed.extend(&page.ids);
            without_key |= page.load.decoded.any_without_key();
            run.writer.load(page.load).await?;
            failpoint::hit("listing-page");
            if run.signals.interrupt() == Interrupt::Cancel {
                return Ok(Ended { complete: false, without_key });
            }
            (sequence, asked) = match next {
                Some(next) => (next_sequence, next),
                None => {
                    self.fetcher.answers.flush().await?;
                    self.fetcher.follow_changes().await?;
                    (run.sequence()?, pages.next().await?)
                }
            };
        }
        match pages.verdict() {
            Some(source::Verdict::Complete) => {
                let table = resource.table.clone();
                run.write(move |conn| {
                    let state = State::new(conn);
                    state.failures().listing_is_not_refused(&table)?;
                    state.listing_was_read(&table, since, Timestamp::now())
                })
                .await?;
                Ok(Ended { complete: true, without_key })
            }
            Some(source::Verdict::Incomplete(why)) => {
                let why = format!("the listing of {} is incomplete: {why}", resource.table);
                self.fetcher.answers.report.problem(why);
                Ok(Ended { complete: false, without_key })
            }
            None => Ok(Ended { complete: false, without_key }),
        }
    }

    /// Ids that are cases, so that a listing of the projects says nothing of them: those that the
    /// property search listed, and where that listing is not complete or lacks too many, those that it has shown
    /// before.
    fn known_cases(&self, complete: bool) -> Result<HashSet<i64>> {
        let run = self.fetcher.run;
        let mut known: HashSet<i64> = self.listed.iter().copied().collect();
        let conn = run.store.connection()?;
        let standings = State::new(&conn).standings();
        // So many at once are not believed to be projects now, as they are not believed to be gone.
        let lacks_too_many = || -> Result<bool> {
            let shown = standings.shown_in(Place::Cases)?;
            let lacking = shown.iter().filter(|id| !known.contains(id)).count();
            Ok(run.holds(lacking as u64, shown.len() as u64))
        };
        if !complete || lacks_too_many()? {
            known.extend(standings.cases_in(Place::Cases)?);
        }
        Ok(known)
    }

    /// Cases that the mirror shows and the listings of these searches lack, the first of which was sent
    /// at `since`, unless so many that the guard holds. With whether it does.
    async fn suspects(&mut self, since: Timestamp) -> Result<(Vec<i64>, bool)> {
        let run = self.fetcher.run;
        let (listed, places) = (std::mem::take(&mut self.listed), std::mem::take(&mut self.places));
        let (mut suspects, hidden, shown, of_late) = run
            .write(move |conn| {
                let state = State::new(conn);
                state.stage_ids("listed", &listed)?;
                let suspects = state.standings().suspects("temp.listed", false, &places, since)?;
                let hidden = state.standings().suspects("temp.listed", true, &places, since)?;
                let of_late = state.suspects().hidden_of_late(Timestamp::now())?;
                Ok((suspects, hidden, state.standings().shown_cases()?, of_late))
            })
            .await?;
        let leaving = suspects.len() as u64 + of_late;
        let of = u64::try_from(shown).unwrap_or(0) + of_late;
        if !suspects.is_empty() && run.holds(leaving, of) {
            let why = format!(
                "the listing lacks {} of {shown} cases{}; reconcile.max_removed holds them (if they \
                 are really gone, run `casemirror sync --allow-removals`)",
                suspects.len(),
                left_of_late(of_late)
            );
            self.failed(FailureKind::Held, &why).await?;
            self.fetcher.answers.suspects().note_held().await?;
            return Ok((Vec::new(), true));
        }
        // Whether those that are hidden still exist is asked too; they can leave no search row.
        suspects.extend(hidden);
        Ok((suspects, false))
    }
}

/// The id of a search row.
fn id_of(record: &[u8]) -> Option<i64> {
    whole_number(field_of(std::str::from_utf8(record).ok()?, "Id")?).ok()
}
