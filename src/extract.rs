//! Stale scopes become answers, and answers rows.
//!
//! One function per kind of scope; each makes the calls of exactly one scope (or one chunk of ids)
//! and hands back a [`Load`]. What an error means for the scope is decided by the cycle.

mod call;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::value::RawValue;

use crate::catalog::{Answer as Shape, Catalog, Each, Group, Read, Resource};
use crate::config::Config;
use crate::decode::{Context, Decoded, Decoder, Param, Params};
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::mirror::{Load, LoadKind, LoadedScope, Place, Stamp};
use crate::source::split::field_of;
use crate::source::{Answer, Client, Filter, Page, PagePlan, Pages, Request, Verdict, split};
use crate::ticks::Ticks;
pub(crate) use call::read_of;
use call::{
    expect_shape, fallback_plan, naming_plan, page_plan, request, search_plan, window_plan, windows,
};

/// Answers smaller than this are decoded where they arrive: a thread costs more than they do.
const DECODE_INLINE_BYTES: usize = 64 << 10; // 64 KiB

/// Fetches and decodes.
#[derive(Clone)]
pub struct Extractor {
    client: Client,
    catalog: Arc<Catalog>,
    context: Arc<Context>,
    /// Where the windows of lists by time begin.
    since: Timestamp,
}

/// The rows of one page of a search.
pub struct SearchPage {
    pub load: Load,
    /// The ids that the page shows.
    pub ids: Vec<i64>,
}

/// What a search by ids found.
pub struct Found {
    pub load: Option<Load>,
    /// Asked, and not in the answer.
    pub missing: Vec<i64>,
    /// The answer proves that no search row has those ids.
    pub complete: bool,
}

impl Extractor {
    /// The windows of lists by time begin at `processing_bases.since`.
    pub fn new(
        client: Client,
        catalog: Arc<Catalog>,
        context: Context,
        config: &Config,
    ) -> Extractor {
        let day = config.processing_bases.since;
        let since = day
            .to_zoned(config.source.time_zone.clone())
            .or_else(|_| day.to_zoned(jiff::tz::TimeZone::UTC))
            .map_or(Timestamp::UNIX_EPOCH, |day| day.timestamp());
        Extractor { client, catalog, context: Arc::new(context), since }
    }

    /// The client, for calls that are no scope.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads one scope whole: a case's part of a resource, a parent's, or a whole list (`id` 0).
    /// `given` is the path parameter that another table gives.
    ///
    /// # Errors
    /// Those of the calls and of decoding; nothing of a scope is loaded when one of its calls fails.
    pub async fn scope(
        &self,
        resource: &Arc<Resource>,
        id: i64,
        given: Option<&str>,
        stamp: Stamp,
    ) -> Result<Load> {
        let read = read_of(resource)?;
        let mut params = Params::new();
        match &resource.group {
            Group::Case => drop(params.insert("case_id".to_owned(), Param::Int(id))),
            Group::Each(each) => drop(params.insert(each.param.clone(), Param::Int(id))),
            Group::List | Group::Ids | Group::Child(_) | Group::Journal(_) => {}
        }
        if let (Some(from), Some(value)) = (&resource.given, given) {
            params.insert(from.param.clone(), Param::Text(value.to_owned()));
        }
        let mut parts = Parts::default();
        let mut missing = Vec::new();
        match &read.values {
            None => self.part(resource, read, &params, &mut parts).await?,
            Some((name, values)) => {
                let mut not_found = None;
                for value in values {
                    params.insert(name.clone(), Param::Text(value.clone()));
                    match self.part(resource, read, &params, &mut parts).await {
                        Err(error) if error.kind() == Kind::NotFound => {
                            missing.push(value.clone());
                            not_found = Some(error);
                        }
                        done => done?,
                    }
                }
                // All of them: there is none.
                if let Some(error) = not_found.filter(|_| parts.sent_at.is_none()) {
                    return Err(error);
                }
            }
        }
        failpoint::reach("answer-received");
        let Parts { records, complete, sent_at } = parts;
        let decoded = self.decode(resource, records).await.map_err(|e| {
            let of = if id == 0 { String::new() } else { format!(" for {id}") };
            e.within(format!("the answer of {}{of} is not what was expected", read.path))
        })?;
        Ok(Load {
            decoded,
            scopes: vec![LoadedScope {
                id,
                part: String::new(),
                stamp,
                complete,
                sent_at: sent_at.unwrap_or_else(Timestamp::now),
            }],
            kind: LoadKind::Scopes,
            lacking: Vec::new(),
            missing,
            not_found: false,
        })
    }

    /// The list that names the scopes of a table (`[each] list` of the resource file): its records as
    /// far as they go, which is one of each scope, so that nothing leaves. Scope 0 is the list.
    ///
    /// # Errors
    /// Those of the calls and of decoding.
    pub async fn named(&self, resource: &Arc<Resource>, each: &Each, path: &str) -> Result<Load> {
        let mut parts = Parts::default();
        let plan = naming_plan(resource, path)?;
        self.list(resource, plan, &Params::new(), &mut parts).await?;
        let Parts { records, complete, sent_at } = parts;
        let sent_at = sent_at.unwrap_or_else(Timestamp::now);
        let field = resource.column(&each.param).and_then(|column| column.path.first());
        let scope = |id, complete| LoadedScope {
            id,
            part: String::new(),
            stamp: Stamp::Known(String::new()),
            complete,
            sent_at,
        };
        let (mut named, mut ids) = (Vec::new(), BTreeSet::new());
        for (record, mut params) in records {
            let text = std::str::from_utf8(&record).unwrap_or_default();
            let id = field.and_then(|field| field_of(text, field)).and_then(|id| id.parse().ok());
            // One that names no scope has no usable key, and is rejected whole.
            if let Some(id) = id.filter(|id| *id > 0) {
                params.insert(each.param.clone(), Param::Int(id));
                ids.insert(id);
            }
            named.push((record, params));
        }
        let scopes = ids.into_iter().map(|id| scope(id, false)).chain([scope(0, complete)]);
        Ok(Load {
            scopes: scopes.collect(),
            decoded: self.decode(resource, named).await?,
            kind: LoadKind::Scopes,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: false,
        })
    }

    /// A scope that answered 404: complete and without rows.
    pub fn nothing(&self, resource: &Arc<Resource>, id: i64, stamp: Stamp) -> Result<Load> {
        Ok(Load {
            decoded: Decoder::new(&self.catalog, resource, &self.context).finish()?,
            scopes: vec![LoadedScope {
                id,
                part: String::new(),
                stamp,
                complete: true,
                sent_at: Timestamp::now(),
            }],
            kind: LoadKind::Scopes,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: true,
        })
    }

    /// One call of a scope: with all pages where it is a list.
    async fn part(
        &self,
        resource: &Arc<Resource>,
        read: &Read,
        params: &Params,
        parts: &mut Parts,
    ) -> Result<()> {
        if let Some(by) = &read.windows {
            for window in windows(self.since, Timestamp::now()) {
                let plan = window_plan(resource, read, by, window)?;
                self.list(resource, plan, params, parts).await?;
            }
            return Ok(());
        }
        let request = request(read, params)?;
        match read.answer {
            Shape::Record | Shape::Scalar => {
                let answer = self.client.send(&request).await?;
                parts.sent_at.get_or_insert(answer.sent_at);
                let body = trimmed(&answer);
                if !body.is_empty() && body[..] != *b"null" {
                    expect_shape(read, &body)?;
                    parts.records.push((body, params.clone()));
                }
            }
            Shape::List => {
                let listed =
                    self.list(resource, page_plan(resource, read, request), params, parts).await;
                let absent = |e: &Error| matches!(e.kind(), Kind::NotFound | Kind::NotAllowed);
                match (listed, &read.fallback) {
                    (Err(error), Some(fallback)) if absent(&error) => {
                        let plan = fallback_plan(resource, fallback, params)?;
                        // Where neither is there, the first is the one to be told of.
                        match self.list(resource, plan, params, parts).await {
                            Err(second) if absent(&second) => return Err(error),
                            other => other?,
                        }
                    }
                    (listed, _) => listed?,
                }
            }
        }
        Ok(())
    }

    /// All pages of a list.
    async fn list(
        &self,
        resource: &Resource,
        plan: PagePlan,
        params: &Params,
        parts: &mut Parts,
    ) -> Result<()> {
        let mut pages = Pages::new(&self.client, plan);
        while let Some(page) = pages.next().await? {
            parts.records.extend(page.records.into_iter().map(|r| (r, params.clone())));
        }
        if let Some(sent_at) = pages.sent_at() {
            parts.sent_at.get_or_insert(sent_at);
        }
        if let Some(Verdict::Incomplete(why)) = pages.verdict() {
            tracing::warn!(table = resource.table, ?params, why, "an answer is incomplete");
            parts.complete = false;
        }
        Ok(())
    }

    /// A whole list made of records that come from another table; `sent_at` is when it was read.
    ///
    /// # Errors
    /// Those of decoding.
    pub async fn made_of(
        &self,
        resource: &Arc<Resource>,
        records: Vec<String>,
        complete: bool,
        sent_at: Timestamp,
    ) -> Result<Load> {
        let records =
            records.into_iter().map(|record| (Bytes::from(record), Params::new())).collect();
        Ok(Load {
            decoded: self.decode(resource, records).await?,
            scopes: vec![LoadedScope {
                id: 0,
                part: String::new(),
                stamp: Stamp::Known(String::new()),
                complete,
                sent_at,
            }],
            kind: LoadKind::Scopes,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: true,
        })
    }

    /// Searches for many ids in one call.
    ///
    /// # Errors
    /// `WrongId` where a row's `CaseId` is not its `Id`: nothing may be fetched by such an id.
    pub async fn search_ids(
        &self,
        resource: &Arc<Resource>,
        place: Place,
        ids: &[i64],
        sequence: i64,
    ) -> Result<Found> {
        let Some(filter) = Filter::any_of("Id", ids.iter().copied()) else {
            return Ok(Found { load: None, missing: Vec::new(), complete: true });
        };
        let mut pages = Pages::new(&self.client, search_plan(resource, Some(filter))?);
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
        let keyless = load.as_ref().is_some_and(|load| load.decoded.any_keyless());
        let complete =
            missing.is_empty() || !keyless && matches!(pages.verdict(), Some(Verdict::Complete));
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
    pub async fn count(&self, resource: &Resource, filter: Option<Filter>) -> Result<Option<u64>> {
        let mut request = search_plan(resource, filter)?.request;
        request.query.order_by = None;
        request.query.top = Some(1);
        request.query.inline_count = true;
        let answer = self.client.send(&request).await?;
        Ok(split(&answer.body)?.count)
    }

    /// The ids of the rows that a search shows, all or those that a filter lets through; `None` where
    /// the answer was not complete.
    ///
    /// # Errors
    /// Those of the calls.
    pub async fn ids(
        &self,
        resource: &Resource,
        filter: Option<Filter>,
    ) -> Result<Option<Vec<i64>>> {
        let mut plan = search_plan(resource, filter)?;
        plan.request.query.select = vec!["Id".to_owned()];
        let mut pages = Pages::new(&self.client, plan);
        let mut ids = Vec::new();
        while let Some(page) = pages.next().await? {
            ids.extend(page.records.iter().filter_map(|record| {
                let text = std::str::from_utf8(record).unwrap_or_default();
                field_of(text, "Id").and_then(|id| id.parse::<i64>().ok())
            }));
        }
        ids.sort_unstable();
        Ok(matches!(pages.verdict(), Some(Verdict::Complete)).then_some(ids))
    }

    /// Begins a listing of everything that a search shows, in pages by id.
    pub fn listing(&self, resource: &Arc<Resource>) -> Result<Pages> {
        Ok(Pages::new(&self.client, search_plan(resource, None)?))
    }

    /// Decodes a page of a search or listing.
    pub async fn search_page(
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
            let id = field_of(text, "Id").and_then(|id| id.parse::<i64>().ok());
            if place != Place::Contacts
                && let Some(case_id) = field_of(text, "CaseId").filter(|raw| *raw != "null")
                && case_id.parse::<i64>().ok() != id
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
        let records = page.records.into_iter().map(|record| (record, Params::new())).collect();
        let decoded = self.decode(resource, records).await?;
        let scopes = ids
            .iter()
            .map(|id| LoadedScope {
                id: *id,
                part: String::new(),
                stamp: Stamp::AsSeen { sequence },
                complete: true,
                sent_at,
            })
            .collect();
        let kind = LoadKind::Search { place, answered_at };
        let load = Load {
            decoded,
            scopes,
            kind,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: false,
        };
        Ok(SearchPage { load, ids })
    }

    /// Reads a single record that the search does not know.
    pub async fn by_id(
        &self,
        resource: &Arc<Resource>,
        template: &str,
        id: i64,
        sequence: i64,
    ) -> Result<Load> {
        let request = Request::get(template, &[("id", &id.to_string())])?;
        let answer = self.client.send(&request).await?;
        let body = trimmed(&answer);
        let mut records = Vec::new();
        if !body.is_empty() && body[..] != *b"null" {
            let text = std::str::from_utf8(&body).unwrap_or_default();
            let own = field_of(text, "Id").and_then(|raw| raw.parse::<i64>().ok());
            if own != Some(id) {
                return Err(Error::new(
                    Kind::BadAnswer,
                    format!("GET {template}: asked for {id}, the answer has another Id"),
                ));
            }
            records.push((body, Params::new()));
        }
        let decoded = self.decode(resource, records).await?;
        let answered_at =
            answer.server_date.map_or_else(|| Ticks::from(answer.sent_at), Ticks::from);
        Ok(Load {
            decoded,
            scopes: vec![LoadedScope {
                id,
                part: String::new(),
                stamp: Stamp::AsSeen { sequence },
                complete: true,
                sent_at: answer.sent_at,
            }],
            // The search may show more of it after its delay, and is asked again like any row.
            kind: LoadKind::Search { place: Place::Contacts, answered_at },
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: false,
        })
    }

    /// Decodes records, each with the parameters of its call.
    pub(crate) async fn decode(
        &self,
        resource: &Arc<Resource>,
        records: Vec<(Bytes, Params)>,
    ) -> Result<Decoded> {
        let bytes: usize = records.iter().map(|(record, _)| record.len()).sum();
        let (catalog, context) = (Arc::clone(&self.catalog), Arc::clone(&self.context));
        let resource = Arc::clone(resource);
        let work = move || {
            let mut decoder = Decoder::new(&catalog, &resource, &context);
            for (record, params) in &records {
                let raw: &RawValue = serde_json::from_slice(record).map_err(|e| {
                    Error::caused(
                        Kind::BadAnswer,
                        format!("{}: the answer is no JSON", resource.table),
                        e,
                    )
                })?;
                decoder.push(raw, params);
            }
            decoder.finish()
        };
        if bytes < DECODE_INLINE_BYTES {
            return work();
        }
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|e| Error::caused(Kind::Internal, "decoding ended early", e))?
    }
}

/// What the calls of a scope brought.
struct Parts {
    records: Vec<(Bytes, Params)>,
    complete: bool,
    /// When the first call was sent: absence counts from there.
    sent_at: Option<Timestamp>,
}

impl Default for Parts {
    fn default() -> Parts {
        Parts { records: Vec::new(), complete: true, sent_at: None }
    }
}

/// Two pages of one search as one load.
fn joined(mut first: Load, second: Load) -> Result<Load> {
    first.decoded.join(second.decoded)?;
    first.scopes.extend(second.scopes);
    Ok(first)
}

/// The body without white space around it.
pub(crate) fn trimmed(answer: &Answer) -> Bytes {
    if answer.is_none() {
        return Bytes::new();
    }
    answer.body.slice_ref(answer.body.trim_ascii())
}
