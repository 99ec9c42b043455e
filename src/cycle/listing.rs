//! The complete listing of the cases.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::Cycle;
use super::policy::Verdict;
use super::signals::Interrupt;
use super::suspects::left_of_late;
use crate::catalog::Resource;
use crate::error::Result;
use crate::failpoint;
use crate::mirror::{Failures, State, guarded};
use crate::scope::{FailureKind, Place};
use crate::source::split::field_of;
use crate::source::{self, Pages};

/// How the listing of one search ended.
struct Listing {
    complete: bool,
    /// It had a record without a usable key.
    without_key: bool,
}

impl Cycle<'_> {
    /// Lists everything that both searches show. Rows are inserted and updated, never deleted; what
    /// a complete listing lacks is a suspect (docs/architecture.md, "Deletion").
    /// Returns whether it was complete.
    pub(super) async fn list_cases(&mut self) -> Result<bool> {
        let mut listed = Vec::new();
        let mut complete = true;
        let mut proof = true;
        // A search that is disabled, forbidden or absent decides nothing: the other one does alone.
        let mut places = Vec::new();
        for place in [Place::Cases, Place::Projects] {
            let Some(resource) = self.answers.tables.get(place.table()).cloned() else { continue };
            let known = match place {
                // What the property search shows is a case, whatever the other one says.
                Place::Projects => {
                    self.known_cases(&listed, complete && places.contains(&Place::Cases))?
                }
                Place::Cases | Place::Contacts => HashSet::new(),
            };
            match self.list(&resource, place, &known, &mut listed).await {
                Ok(listing) => {
                    self.answers.reached();
                    complete &= listing.complete;
                    proof &= !listing.without_key;
                    places.push(place);
                }
                Err(error) => match self.answers.search().failed(&resource, &[], error).await? {
                    Verdict::TableForbidden | Verdict::TableAbsent => {}
                    _ => complete = false,
                },
            }
        }
        self.answers.flush().await?;
        if self.run.signals.interrupt() == Interrupt::Cancel {
            return Ok(false);
        }
        if places.is_empty() || !complete {
            let why = "the listing of the cases is not complete";
            self.listing_failed(FailureKind::Incomplete, why).await?;
            return Ok(false);
        }
        // A case is a suspect when both searches lack it. A record without a usable key may be any case.
        let (suspects, held) =
            if proof { self.suspects(listed, places).await? } else { (Vec::new(), false) };
        let listed_at = Timestamp::now().to_string();
        self.run.write(move |conn| State::new(conn).set_meta("listed_at", &listed_at)).await?;
        self.run.progress.more(suspects.len() as u64);
        for id in suspects {
            if self.run.signals.interrupt() == Interrupt::Cancel {
                return Ok(false);
            }
            self.answers.suspects().ask(id).await?;
            self.run.progress.done(1);
        }
        self.answers.flush().await?;
        if !held {
            self.run.write(|conn| State::new(conn).failures().listing_is_well()).await?;
        }
        // What the guard held is looked at again in the next run.
        Ok(!held)
    }

    /// Keeps that the cases were not listed, or not believed to be, until they are.
    async fn listing_failed(&mut self, kind: FailureKind, why: &str) -> Result<()> {
        self.answers.report.problem(why.to_owned());
        self.run.note_failure(Failures::listing(), kind, why).await
    }

    async fn list(
        &mut self,
        resource: &Arc<Resource>,
        place: Place,
        known: &HashSet<i64>,
        listed: &mut Vec<i64>,
    ) -> Result<Listing> {
        self.run.progress.step(&format!("listing {}", resource.table));
        let since = Timestamp::now();
        let mut without_key = false;
        let mut pages: Pages = self.run.extractor.listing(resource)?;
        // Pages of one listing hold different ids, so the next is asked while this one is decoded
        // and committed; what moved after its call was sent stays stale.
        let mut sequence = self.run.sequence()?;
        let mut asked = pages.next().await?;
        while let Some(mut page) = asked {
            page.records.retain(|record| id_of(record).is_none_or(|id| !known.contains(&id)));
            // What changed meanwhile goes first, by calls that share no row with a page under way.
            let alone = self.run.signals.latest() > self.answers.planned.handled();
            let next_sequence = self.run.sequence()?;
            let decoded = self.run.extractor.search_page(resource, place, page, sequence);
            let (next, page) = if alone {
                (None, decoded.await?)
            } else {
                let (next, page) = tokio::join!(pages.next(), decoded);
                (Some(next?), page?)
            };
            self.answers.findings.answered(&resource.table);
            listed.extend(&page.ids);
            without_key |= page.load.decoded.any_without_key();
            self.run.progress.rows(page.ids.len() as u64);
            self.run.writer.load(page.load).await?;
            failpoint::hit("listing-page");
            if self.run.signals.interrupt() == Interrupt::Cancel {
                return Ok(Listing { complete: false, without_key });
            }
            (sequence, asked) = match next {
                Some(next) => (next_sequence, next),
                None => {
                    self.answers.flush().await?;
                    self.follow_changes().await?;
                    (self.run.sequence()?, pages.next().await?)
                }
            };
        }
        match pages.verdict() {
            Some(source::Verdict::Complete) => {
                let table = resource.table.clone();
                self.run
                    .write(move |conn| {
                        State::new(conn).listing_was_read(&table, since, Timestamp::now())
                    })
                    .await?;
                Ok(Listing { complete: true, without_key })
            }
            Some(source::Verdict::Incomplete(why)) => {
                self.answers
                    .report
                    .problem(format!("the listing of {} is incomplete: {why}", resource.table));
                Ok(Listing { complete: false, without_key })
            }
            None => Ok(Listing { complete: false, without_key }),
        }
    }

    /// Ids that are cases, so that a listing of the projects says nothing of them: those that the
    /// property search listed, and where that listing is not complete, those that it has shown before.
    fn known_cases(&self, listed: &[i64], complete: bool) -> Result<HashSet<i64>> {
        let mut known: HashSet<i64> = listed.iter().copied().collect();
        if !complete {
            let conn = self.run.store.connection()?;
            known.extend(State::new(&conn).standings().cases_in(Place::Cases)?);
        }
        Ok(known)
    }

    /// Cases that the mirror shows and the listings of these searches lack, unless so many that the
    /// guard holds. With whether it does.
    async fn suspects(&mut self, listed: Vec<i64>, places: Vec<Place>) -> Result<(Vec<i64>, bool)> {
        let (mut suspects, hidden, shown, of_late) = self
            .run
            .write(move |conn| {
                let state = State::new(conn);
                state.stage_ids("listed", &listed)?;
                let suspects = state.standings().suspects("temp.listed", false, &places)?;
                let hidden = state.standings().suspects("temp.listed", true, &places)?;
                let of_late = state.suspects().hidden_of_late(Timestamp::now())?;
                Ok((suspects, hidden, state.standings().shown_cases()?, of_late))
            })
            .await?;
        let leaving = suspects.len() as u64 + of_late;
        let of = u64::try_from(shown).unwrap_or(0) + of_late;
        let held = !self.run.options.allow_removals
            && guarded(leaving, of, self.run.config.reconcile.max_removed);
        if !suspects.is_empty() && held {
            let why = format!(
                "the listing lacks {} of {shown} cases{}; reconcile.max_removed holds them (if they \
                 are really gone, run `casemirror sync --allow-removals`)",
                suspects.len(),
                left_of_late(of_late)
            );
            self.listing_failed(FailureKind::Held, &why).await?;
            return Ok((Vec::new(), true));
        }
        // Whether those that are hidden still exist is asked too; they can leave no search row.
        suspects.extend(hidden);
        Ok((suspects, false))
    }
}

/// The id of a search row.
fn id_of(record: &[u8]) -> Option<i64> {
    field_of(std::str::from_utf8(record).ok()?, "Id")?.parse().ok()
}
