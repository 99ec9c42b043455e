//! Searching: the complete listing, cases by id, contacts.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::policy::Verdict;
use super::signals::Interrupt;
use super::{CONTACT_AGE, Cycle};
use crate::catalog::Resource;
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::mirror::{Failures, State, guarded};
use crate::scope::{CaseState, FailureKind, Place, Version};
use crate::source::split::field_of;
use crate::source::{self, Pages};

/// Ids in one search call: the address stays well under what servers take.
pub(crate) const IDS_PER_CALL: usize = 100;

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
            let Some(resource) = self.active_resource(place) else { continue };
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
                Err(error) => match self.search_failed(&resource, &[], error).await? {
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
            self.ask_whether_it_exists(id).await?;
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
            .answers
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

    /// Whether the guard holds cases that both searches lack by their ids: an index that suddenly
    /// lists nothing must not empty the mirror case by case.
    async fn hold(&mut self, unknown: &[i64]) -> Result<bool> {
        let (leaving, shown, of_late) = {
            let conn = self.run.store.connection()?;
            let state = State::new(&conn);
            let count = |n: i64| u64::try_from(n).unwrap_or(0);
            let of_late = state.suspects().hidden_of_late(Timestamp::now())?;
            (
                count(state.standings().leaving(unknown)?),
                count(state.standings().shown_cases()?),
                of_late,
            )
        };
        let max = self.run.config.reconcile.max_removed;
        if self.run.options.allow_removals || !guarded(leaving + of_late, shown + of_late, max) {
            return Ok(false);
        }
        self.answers.report.problem(format!(
            "the searches no longer show {leaving} of {shown} cases{}; reconcile.max_removed holds \
             them (if they are really gone, run `casemirror sync --allow-removals`)",
            left_of_late(of_late)
        ));
        let why = "no search shows the case, nor many others: reconcile.max_removed holds it";
        for id in unknown {
            self.note_unshown(*id, FailureKind::Held, why).await?;
        }
        Ok(true)
    }

    /// Notes why nothing was decided about a case that no search shows.
    pub(super) async fn note_unshown(
        &mut self,
        id: i64,
        kind: FailureKind,
        why: &str,
    ) -> Result<()> {
        let place = State::new(&self.run.store.connection()?).standings().place(id)?;
        self.answers.note_failure(place.table(), id, kind, why).await
    }

    /// Searches the cases of a batch whose search row is stale, in the tables `only`; empty: in both.
    /// Returns how many were searched.
    pub(super) async fn search_batch(
        &mut self,
        batch: &[CaseState],
        only: &[String],
    ) -> Result<usize> {
        let plans = self.plan(batch, only)?;
        let stale = |table: &str| -> Vec<i64> {
            plans
                .iter()
                .filter(|(_, plan)| plan.stale.iter().any(|s| s.table == table))
                .map(|(case, _)| case.case_id)
                .collect()
        };
        let (cases, projects) = (stale("cases"), stale("projects"));
        let searched = cases.len() + projects.len();
        self.search_in(Place::Cases, Place::Projects, &cases).await?;
        self.search_in(Place::Projects, Place::Cases, &projects).await?;
        Ok(searched)
    }

    /// Searches ids in one search, what it lacks in the other, and asks after what both lack.
    async fn search_in(&mut self, first: Place, second: Place, ids: &[i64]) -> Result<()> {
        let mut unknown = Vec::new();
        for chunk in ids.chunks(IDS_PER_CALL) {
            let lacking = match self.search_chunk(first, chunk).await? {
                Searched::Lacks(lacking) if lacking.is_empty() => continue,
                Searched::Lacks(lacking) => lacking,
                Searched::NotRead | Searched::Failed => continue,
            };
            match self.search_chunk(second, &lacking).await? {
                Searched::Lacks(lacking) => unknown.extend(lacking),
                // The other search decides alone.
                Searched::NotRead => unknown.extend(lacking),
                // Only what both searches lack is known to be in none: it is asked for again.
                Searched::Failed => {
                    let why = "one search lacks the case, and the other cannot be read";
                    for id in &lacking {
                        self.note_unshown(*id, FailureKind::Unknown, why).await?;
                    }
                }
            }
        }
        if unknown.is_empty() || self.hold(&unknown).await? {
            return Ok(());
        }
        for id in unknown {
            self.ask_whether_it_exists(id).await?;
        }
        Ok(())
    }

    /// One search call, committed before it returns.
    async fn search_chunk(&mut self, place: Place, ids: &[i64]) -> Result<Searched> {
        let Some(resource) = self.active_resource(place) else { return Ok(Searched::NotRead) };
        let sequence = self.run.sequence()?;
        match self.run.extractor.search_ids(&resource, place, ids, sequence).await {
            Ok(found) => {
                self.answers.reached();
                self.answers.findings.answered(&resource.table);
                if let Some(load) = found.load {
                    self.run.progress.rows(load.scopes.len() as u64);
                    self.run.writer.load(load).await?;
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
            Err(error) => match self.search_failed(&resource, ids, error).await? {
                Verdict::TableForbidden | Verdict::TableAbsent => Ok(Searched::NotRead),
                _ => Ok(Searched::Failed),
            },
        }
    }

    /// What an error of a search means: of a listing, or of these ids.
    async fn search_failed(
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

    fn active_resource(&self, place: Place) -> Option<Arc<Resource>> {
        self.answers.tables.get(place.table()).cloned()
    }

    /// Searches the contacts that are stale. Returns how many.
    pub(super) async fn read_contacts(&mut self) -> Result<usize> {
        if self.wants_contacts() { self.search_contacts(None).await } else { Ok(0) }
    }

    /// Whether this run was asked to read contacts.
    pub(super) fn wants_contacts(&self) -> bool {
        self.run.options.wants("contacts") && self.run.options.cases.is_empty()
    }

    /// Searches the contacts that are stale, those that moved last first; at most so many, where
    /// something else waits. Returns how many.
    pub(super) async fn search_contacts(&mut self, most: Option<usize>) -> Result<usize> {
        let Some(resource) = self.active_resource(Place::Contacts) else { return Ok(0) };
        let followed = self.run.polls.follows_contacts()?;
        let mut ids = {
            let conn = self.run.store.connection()?;
            let state = State::new(&conn);
            let now = Timestamp::now();
            let due = state
                .scopes()
                .again()?
                .iter()
                .any(|(table, at, _)| table == "contacts" && *at <= now.as_microsecond());
            if followed && !due && !state.contacts().contacts_may_be_stale()? {
                return Ok(0);
            }
            let older = (!followed).then(|| (now - CONTACT_AGE).as_microsecond());
            state.contacts().stale_contacts(now.as_microsecond(), older)?
        };
        ids.retain(|id| !self.answers.planned.has_failed(&resource.table, *id));
        let all = most.is_none_or(|most| ids.len() <= most);
        ids.truncate(most.unwrap_or(ids.len()));
        self.run.progress.step("searching contacts");
        self.run.progress.more(ids.len() as u64);
        let mut searched = 0;
        for chunk in ids.chunks(IDS_PER_CALL) {
            let newer =
                most.is_none() && self.run.signals.latest() > self.answers.planned.handled();
            if newer || self.run.signals.interrupt() != Interrupt::None {
                break;
            }
            searched += chunk.len();
            if let Searched::Lacks(lacking) = self.search_chunk(Place::Contacts, chunk).await? {
                for id in lacking {
                    self.contact_by_id(&resource, id).await?;
                }
            }
            self.run.progress.done(chunk.len() as u64);
            if !self.answers.tables.is_active("contacts") {
                break;
            }
        }
        self.answers.flush().await?;
        let all = all && (searched == ids.len() || !self.answers.tables.is_active("contacts"));
        self.run
            .write(move |conn| {
                let state = State::new(conn);
                if all {
                    state.contacts().contacts_planned()?;
                }
                state.contacts().clean_contacts()
            })
            .await?;
        Ok(searched)
    }

    /// A contact that the search does not know is read by its id (docs/architecture.md, "What is due").
    async fn contact_by_id(&mut self, resource: &Arc<Resource>, id: i64) -> Result<()> {
        let Some(template) = resource.read.as_ref().and_then(|r| r.by_id.clone()) else {
            return Ok(());
        };
        let sequence = self.run.sequence()?;
        match self.run.extractor.by_id(resource, &template, id, sequence).await {
            Ok(load) => self.run.writer.load(load).await,
            Err(error) if error.kind() == Kind::NotFound => {
                let version = Version::AsSeen { sequence };
                self.answers.scope(resource, id).failed(false, version, error).await.map(drop)
            }
            // What this address refuses says nothing about the search that fills the table.
            Err(error) => self.answers.scope(resource, id).failed_alone(error).await,
        }
    }
}

/// What a search by ids came to.
enum Searched {
    /// The ids that the complete answer lacks.
    Lacks(Vec<i64>),
    /// The search is disabled, forbidden or absent.
    NotRead,
    /// The answer proves nothing: the ids are asked for again.
    Failed,
}

/// Of cases that left in the last hour: they count for the guard, though they are not among those shown.
fn left_of_late(cases: u64) -> String {
    if cases == 0 { String::new() } else { format!(" ({cases} more left in the last hour)") }
}

/// The id of a search row.
fn id_of(record: &[u8]) -> Option<i64> {
    field_of(std::str::from_utf8(record).ok()?, "Id")?.parse().ok()
}
