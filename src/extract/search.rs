//! Searches: ids that are asked for, listings, counts, and a contact by its id.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::call::{expected, search_plan};
use super::{Extractor, trimmed};
use crate::catalog::{Answer as Shape, Resource};
use crate::decode::{Load, LoadKind, LoadedScope, Params};
use crate::error::{Error, Kind, Result};
use crate::scope::{Place, Version};
use crate::source::split::field_of;
use crate::source::{Filter, Page, Pages, Request, Verdict, records};
use crate::text::whole_number;
use crate::ticks::Ticks;

/// The rows of one page of a search.
pub(crate) struct SearchPage {
    pub(crate) load: Load,
    /// The ids that the page shows.
    pub(crate) ids: Vec<i64>,
}

/// What a search by ids found.
pub(crate) struct Found {
    pub(crate) load: Option<Load>,
    /// Asked, and not in the answer.
    pub(crate) missing: Vec<i64>,
    /// The answer proves that no search row has those ids.
    pub(crate) complete: bool,
}

impl Extractor {
    /// Searches for many ids in one call.
    ///
    /// # Errors
    /// `WrongId` where a row's `CaseId` is not its `Id`: nothing may be fetched by such an id.
    pub(crate) async fn search_ids(
        &self,
        resource: &Arc<Resource>,
        place: Place,
        ids: &[i64],
        sequence: i64,
    ) -> Result<Found> {
        let Some(filter) = Filter::any_of("Id", ids.iter().copied()) else {
            return Ok(Found { load: None, missing: Vec::new(), complete: true });
        };
        let mut pages =
            Pages::new(&self.client, search_plan(&self.catalog, resource, Some(filter))?);
        if ids.len() > 1 {
            pages = pages.of_a_long_filter();
        }
        let mut load: Option<Load> = None;
        let mut found = BTreeSet::new();
        while let Some(page) = pages.next().await? {
            let mut next = self.search_page(resource, place, page, sequence).await?;
            // A service that ignores the filter must not load what was not asked for.
            next.load.scopes.retain(|scope| ids.contains(&scope.id));
            found.extend(next.ids);
            load = Some(match load.take() {
                None => next.load,
                Some(first) => joined(first, next.load)?,
            });
        }
        if found.iter().any(|id| !ids.contains(id)) {
            return Err(Error::new(
                Kind::BadAnswer,
                format!("{}: the search returned ids that were not asked for", resource.table),
            ));
        }
        let missing: Vec<i64> = ids.iter().copied().filter(|id| !found.contains(id)).collect();
        // A record without a usable key may be any of those that are missing.
        let without_key = load.as_ref().is_some_and(|load| load.decoded.any_without_key());
        let complete = missing.is_empty()
            || !without_key && matches!(pages.verdict(), Some(Verdict::Complete));
        if let Some(load) = &mut load {
            load.lacking.clone_from(&missing);
        }
        Ok(Found { load, missing, complete })
    }

    /// How many rows a search shows, all or those that a filter lets through; `None` where the service
    /// does not say.
    ///
    /// # Errors
    /// Those of the call.
    pub(crate) async fn count(
        &self,
        resource: &Resource,
        filter: Option<Filter>,
    ) -> Result<Option<u64>> {
        let mut request = search_plan(&self.catalog, resource, filter)?.request;
        request.query.order_by = None;
        request.query.top = Some(1);
        request.query.inline_count = true;
        let answer = self.client.send(&request).await?;
        Ok(records(&answer)?.count)
    }

    /// The ids of the rows that a search shows, all or those that a filter lets through; `None` where
    /// the answer was not complete.
    ///
    /// # Errors
    /// Those of the calls.
    pub(crate) async fn ids(
        &self,
        resource: &Resource,
        filter: Option<Filter>,
    ) -> Result<Option<Vec<i64>>> {
        let mut plan = search_plan(&self.catalog, resource, filter)?;
        plan.request.query.select = vec!["Id".to_owned()];
        let mut pages = Pages::new(&self.client, plan);
        let mut ids = Vec::new();
        while let Some(page) = pages.next().await? {
            ids.extend(page.records.iter().filter_map(|record| {
                let text = std::str::from_utf8(record).unwrap_or_default();
                field_of(text, "Id").and_then(|id| whole_number(id).ok())
            }));
        }
        ids.sort_unstable();
        Ok(matches!(pages.verdict(), Some(Verdict::Complete)).then_some(ids))
    }

    /// Begins a listing of everything that a search shows, in pages by id.
    pub(crate) fn listing(&self, resource: &Arc<Resource>) -> Result<Pages> {
        Ok(Pages::new(&self.client, search_plan(&self.catalog, resource, None)?).pardoning())
    }

    /// Decodes a page of a search or listing.
    pub(crate) async fn search_page(
        &self,
        resource: &Arc<Resource>,
        place: Place,
        page: Page,
        sequence: i64,
    ) -> Result<SearchPage> {
        let answered_at =
            page.answer.server_date.map_or_else(|| Ticks::from(page.answer.sent_at), Ticks::from);
        let sent_at = page.answer.sent_at;
        let mut ids = Vec::with_capacity(page.records.len());
        for record in &page.records {
            // The slices are JSON texts cut out of a body that was parsed as such.
            let text = std::str::from_utf8(record).unwrap_or_default();
            let id = field_of(text, "Id").and_then(|id| whole_number(id).ok());
            if place != Place::Contacts
                && let Some(case_id) = field_of(text, "CaseId").filter(|raw| *raw != "null")
                && whole_number(case_id).ok() != id
            {
                return Err(Error::new(
                    Kind::WrongId,
                    format!(
                        "{}: a row has Id {} and CaseId {case_id}: the two should be the same, and \
                         nothing is fetched by such an id",
                        resource.table,
                        id.map_or_else(|| "(none)".to_owned(), |id| id.to_string()),
                    ),
                ));
            }
            ids.extend(id);
        }
        // Of two records with one id the decoder keeps one; it is one scope.
        ids.sort_unstable();
        ids.dedup();
        let came = page.records.len() as u64;
        let none = Arc::<Params>::default();
        let records = page.records.into_iter().map(|r| (r, Arc::clone(&none))).collect();
        let decoded = self.decode(resource, records).await?;
        let scopes = ids
            .iter()
            .map(|id| LoadedScope {
                id: *id,
                part: String::new(),
                version: Version::AsSeen { sequence },
                complete: true,
                sent_at,
                dated_at: None,
                digest: None,
                hint: None,
            })
            .collect();
        let kind = LoadKind::Search { place, answered_at };
        let load = Load {
            decoded,
            scopes,
            kind,
            records: came,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: false,
        };
        Ok(SearchPage { load, ids })
    }

    /// Reads a single record that the search does not know.
    pub(crate) async fn by_id(
        &self,
        resource: &Arc<Resource>,
        template: &str,
        id: i64,
        sequence: i64,
    ) -> Result<Load> {
        let mut record = expected(&self.catalog, resource, Shape::Record, &Params::new());
        record.asked.push(("Id".to_owned(), id));
        let request = Request::get(template, &[("id", &id.to_string())])?.expecting(record);
        let answer = self.client.send(&request).await?;
        let body = trimmed(&answer);
        let mut records = Vec::new();
        if !body.is_empty() && body[..] != *b"null" {
            let text = std::str::from_utf8(&body).unwrap_or_default();
            let own = field_of(text, "Id").and_then(|raw| whole_number(raw).ok());
            if own != Some(id) {
                return Err(Error::new(
                    Kind::BadAnswer,
                    format!("GET {template}: asked for {id}, the answer has another Id"),
                ));
            }
            self.client.progress().rows(1);
            records.push((body, Arc::default()));
        }
        let came = records.len() as u64;
        let decoded = self.decode(resource, records).await?;
        let answered_at =
            answer.server_date.map_or_else(|| Ticks::from(answer.sent_at), Ticks::from);
        Ok(Load {
            decoded,
            scopes: vec![LoadedScope {
                id,
                part: String::new(),
                version: Version::AsSeen { sequence },
                complete: true,
                sent_at: answer.sent_at,
                dated_at: None,
                digest: None,
                hint: None,
            }],
            // The search may show more of it after its delay, and is asked again like any row.
            kind: LoadKind::Search { place: Place::Contacts, answered_at },
            records: came,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: false,
        })
    }
}

/// Two pages of one search as one load.
fn joined(mut first: Load, second: Load) -> Result<Load> {
    first.decoded.join(second.decoded)?;
    first.scopes.extend(second.scopes);
    first.records += second.records;
    Ok(first)
}
