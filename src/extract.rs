//! Stale scopes become answers, and answers rows.
//!
//! One function per kind of scope; each makes the calls of exactly one scope (or one chunk of ids)
//! and hands back a [`Load`]. What an error means for the scope is decided by the cycle.

mod call;
mod lists;
mod search;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::catalog::{Answer as Shape, Catalog, ForEach, Group, Read, Resource};
use crate::config::Config;
use crate::decode::{
    Context, Decoded, Decoder, Load, LoadKind, LoadedScope, Param, Params, Reading,
};
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::scope::{AnswerDigest, Version};
use crate::source::split::field_of;
use crate::source::{Answer, Client, Expected};
use crate::text::{trim_json, whole_number};
pub(crate) use call::read_of;
use call::{FARTHEST_AHEAD, HALF_A_DAY, fallback_plan, naming_plan, request, window_plan, windows};
pub(crate) use search::Found;

/// Answers smaller than this are hashed and decoded where they arrive: a thread costs more than they do.
const INLINE_BYTES: usize = 64 << 10; // 64 KiB

/// Fetches and decodes.
#[derive(Clone)]
pub(crate) struct Extractor {
    client: Client,
    catalog: Arc<Catalog>,
    context: Arc<Context>,
    /// By table, as far as they were needed, each with the generation of the list of forgotten persons, which is part of
    /// it.
    readings: Arc<Mutex<HashMap<String, (u64, Reading)>>>,
    /// Where the windows of lists by time begin.
    since: Timestamp,
}

impl Extractor {
    /// The source's.
    pub(crate) fn zone(&self) -> &TimeZone {
        &self.context.zone
    }

    /// The windows of lists by time begin at `processing_bases.since`.
    pub(crate) fn new(
        client: Client,
        catalog: Arc<Catalog>,
        context: Context,
        config: &Config,
    ) -> Extractor {
        let day = config.processing_bases.since;
        let since = day
            .to_zoned(config.source.time_zone.clone())
            .or_else(|_| day.to_zoned(TimeZone::UTC))
            .map_or(Timestamp::UNIX_EPOCH, |day| day.timestamp());
        Extractor { client, catalog, context: Arc::new(context), readings: Arc::default(), since }
    }

    /// The client, for calls that are no scope.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Reads one scope whole: a case's part of a resource, a parent's, or a whole list (`id` 0).
    /// `lookup` is the path parameter that another table gives. An answer that is the one that is
    /// `mirrored` is not decoded.
    ///
    /// # Errors
    /// Those of the calls and of decoding; nothing of a scope is loaded when one of its calls fails.
    pub(crate) async fn scope(
        &self,
        resource: &Arc<Resource>,
        id: i64,
        lookup: Option<&str>,
        version: Version,
        mirrored: Option<AnswerDigest>,
    ) -> Result<Load> {
        let read = read_of(resource)?;
        let mut params = Params::new();
        match &resource.group {
            Group::Case => drop(params.insert("case_id".to_owned(), Param::Int(id))),
            Group::ForEach(each) => drop(params.insert(each.param.clone(), Param::Int(id))),
            Group::List | Group::Ids | Group::Child(_) | Group::Events | Group::Journal(_) => {}
        }
        if let (Some(from), Some(value)) = (&resource.lookup, lookup) {
            params.insert(from.param.clone(), Param::Text(value.to_owned()));
        }
        let mut parts = Parts::default();
        let mut missing = Vec::new();
        match &read.values {
            None => self.part(resource, read, &params, &mut parts).await?,
            Some((name, values)) => {
                let (mut not_found, mut forbidden) = (None, None);
                for value in values {
                    params.insert(name.clone(), Param::Text(value.clone()));
                    match self.part(resource, read, &params, &mut parts).await {
                        Err(error) if error.kind() == Kind::NotFound => {
                            missing.push(value.clone());
                            not_found = Some(error);
                        }
                        Err(error) if error.kind() == Kind::Forbidden => forbidden = Some(error),
                        done => done?,
                    }
                }
                // One value's refusal says nothing of the others, and that of all is the table's.
                if let Some(error) = forbidden {
                    let all = parts.sent_at.is_none() && missing.is_empty();
                    let part =
                        || Error::new(Kind::Refused, format!("of some values: {}", error.chain()));
                    return Err(if all { error } else { part() });
                }
                // All of them: there is none.
                if let Some(error) = not_found.filter(|_| parts.sent_at.is_none()) {
                    return Err(error);
                }
            }
        }
        failpoint::hit("answer-received");
        let sent_at = parts.sent_at_of(resource);
        let Parts { records, complete, .. } = parts;
        let is_whole = complete && missing.is_empty() && may_be_known_again(resource);
        let (records, digest) = if is_whole {
            let reading = self.reading(resource);
            away_from_calls(bytes_of(&records), move || {
                let all = records.iter().map(|(record, params)| (&**params, &record[..]));
                let digest = reading.digest(all);
                Ok((records, Some(digest)))
            })
            .await?
        } else {
            (records, None)
        };
        let is_unchanged = digest.is_some() && digest == mirrored;
        let came = records.len() as u64;
        let records = if is_unchanged { Vec::new() } else { records };
        let decoded = self.decode(resource, records).await.map_err(|e| {
            let of = if id == 0 { String::new() } else { format!(" for {id}") };
            e.within(format!("the answer of {}{of} is not what was expected", read.path))
        })?;
        Ok(Load {
            scopes: vec![LoadedScope {
                id,
                part: String::new(),
                version,
                complete,
                sent_at,
                dated_at: None,
                digest: digest.filter(|_| decoded.is_clean()),
                hint: None,
            }],
            decoded,
            kind: if is_unchanged { LoadKind::Unchanged } else { LoadKind::Scopes },
            records: came,
            lacking: Vec::new(),
            missing,
            not_found: false,
        })
    }

    /// The list that names the scopes of a table (`[for_each] list` of the resource file): its records as
    /// far as they go, which is one of each scope, so that nothing leaves. Scope 0 is the list.
    ///
    /// # Errors
    /// Those of the calls and of decoding.
    pub(crate) async fn named(
        &self,
        resource: &Arc<Resource>,
        each: &ForEach,
        path: &str,
    ) -> Result<Load> {
        let mut parts = Parts::default();
        let plan = naming_plan(resource, path)?;
        self.list(resource, plan, &Params::new(), &mut parts).await?;
        let sent_at = parts.sent_at_of(resource);
        let Parts { records, complete, .. } = parts;
        let field = resource.column(&each.param).and_then(|column| column.path.first());
        let scope = |id, complete| LoadedScope {
            id,
            part: String::new(),
            version: Version::Known(String::new()),
            complete,
            sent_at,
            dated_at: None,
            digest: None,
            hint: None,
        };
        let (mut named, mut ids) = (Vec::new(), BTreeSet::new());
        for (record, params) in records {
            let mut params = Params::clone(&params);
            let text = std::str::from_utf8(&record).unwrap_or_default();
            let id =
                field.and_then(|field| field_of(text, field)).and_then(|id| whole_number(id).ok());
            // One that names no scope has no usable key, and is rejected whole.
            if let Some(id) = id.filter(|id| *id > 0) {
                params.insert(each.param.clone(), Param::Int(id));
                ids.insert(id);
            }
            named.push((record, Arc::new(params)));
        }
        let scopes = ids.into_iter().map(|id| scope(id, false)).chain([scope(0, complete)]);
        Ok(Load {
            scopes: scopes.collect(),
            records: named.len() as u64,
            decoded: self.decode(resource, named).await?,
            kind: LoadKind::Scopes,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: false,
        })
    }

    /// A scope that answered 404: complete and without rows.
    pub(crate) fn nothing(
        &self,
        resource: &Arc<Resource>,
        id: i64,
        version: Version,
    ) -> Result<Load> {
        Ok(Load {
            decoded: Decoder::new(&self.catalog, resource, &self.context, 0).finish()?,
            scopes: vec![LoadedScope {
                id,
                part: String::new(),
                version,
                complete: true,
                sent_at: Timestamp::now(),
                dated_at: None,
                digest: None,
                hint: None,
            }],
            kind: LoadKind::Scopes,
            records: 0,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: true,
        })
    }

    /// What the answers for a table are decoded by.
    pub(crate) fn reading(&self, resource: &Resource) -> Reading {
        // What is in it is whole whatever ended a thread that held it.
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let list = self.context.privacy.forgotten().generation();
        match readings.get(&resource.table) {
            Some((of, reading)) if *of == list => *reading,
            _ => {
                let reading = Reading::of(&self.catalog, resource, &self.context);
                readings.insert(resource.table.clone(), (list, reading));
                reading
            }
        }
    }

    /// Takes out of an answer that was kept for a while what is forgotten since.
    ///
    /// # Errors
    /// `Kind::Internal`.
    pub(crate) fn catch_up(&self, decoded: &mut Decoded) -> Result<()> {
        decoded.catch_up(&self.context.privacy.forgotten())
    }

    /// What the answers of calls for `resource` have to be.
    pub(crate) fn expected(&self, resource: &Resource, shape: Shape, params: &Params) -> Expected {
        call::expected(&self.catalog, resource, shape, params)
    }

    /// The tables that are read of lists in the records of another one.
    pub(crate) fn children<'a>(
        &'a self,
        resource: &'a Resource,
    ) -> impl Iterator<Item = &'a Resource> {
        let children = self.catalog.children(&resource.table).map(AsRef::as_ref);
        children.filter(|child: &&Resource| !self.context.disabled.contains(&child.table))
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
            let (mut from, mut now) = (self.since, Timestamp::now());
            let latest = now.checked_add(FARTHEST_AHEAD).unwrap_or(Timestamp::MAX);
            loop {
                let windows = windows(from, now);
                let Some((_, end)) = windows.last().copied() else { return Ok(()) };
                let mut date = None;
                for window in windows {
                    let plan = window_plan(resource, read, by, window)?;
                    date = self.list(resource, plan, params, parts).await?;
                }
                // What is in none of the windows counts as gone: where our clock is behind, the service's says how far
                // they have to reach.
                let Some(date) = date.filter(|date| date.duration_since(end) > -HALF_A_DAY) else {
                    return Ok(());
                };
                (from, now) = (end, date.min(latest));
            }
        }
        let request =
            request(read, params)?.expecting(self.expected(resource, read.answer, params));
        match read.answer {
            Shape::Record | Shape::Scalar => {
                let answer = self.client.send(&request).await?;
                parts.sent_at.get_or_insert(answer.sent_at);
                let body = trimmed(&answer);
                if !body.is_empty() && body[..] != *b"null" {
                    self.client.progress().rows(1);
                    parts.records.push((body, Arc::new(params.clone())));
                }
            }
            Shape::List => {
                let listed = self.list_with_all(resource, read, request, params, parts).await;
                let absent = |e: &Error| e.kind().is_no_such_call();
                match (listed, &read.fallback) {
                    (Err(error), Some(fallback)) if absent(&error) => {
                        let plan = fallback_plan(resource, fallback, params)?;
                        // Where neither is there, the first is the one to be told of.
                        match self.list(resource, plan, params, parts).await {
                            Err(second) if absent(&second) => return Err(error),
                            other => drop(other?),
                        }
                    }
                    (listed, _) => drop(listed?),
                }
            }
        }
        Ok(())
    }

    /// A whole list made of records that come from another table; `sent_at` is when it was read.
    ///
    /// # Errors
    /// Those of decoding.
    pub(crate) async fn made_of(
        &self,
        resource: &Arc<Resource>,
        records: Vec<String>,
        complete: bool,
        sent_at: Timestamp,
    ) -> Result<Load> {
        let params = Arc::<Params>::default();
        let records = records.into_iter().map(|r| (Bytes::from(r), Arc::clone(&params))).collect();
        Ok(Load {
            decoded: self.decode(resource, records).await?,
            scopes: vec![LoadedScope {
                id: 0,
                part: String::new(),
                version: Version::Known(String::new()),
                complete,
                sent_at,
                dated_at: None,
                digest: None,
                hint: None,
            }],
            kind: LoadKind::Scopes,
            // No call of this table brought them.
            records: 0,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: true,
        })
    }

    /// Decodes records, each with the parameters of its call.
    pub(crate) async fn decode(
        &self,
        resource: &Arc<Resource>,
        records: Vec<(Bytes, Arc<Params>)>,
    ) -> Result<Decoded> {
        let bytes = bytes_of(&records);
        let (catalog, context) = (Arc::clone(&self.catalog), Arc::clone(&self.context));
        let resource = Arc::clone(resource);
        let work = move || {
            let mut decoder = Decoder::new(&catalog, &resource, &context, records.len());
            for (record, params) in &records {
                let json = std::str::from_utf8(record).map_err(|e| {
                    Error::caused(
                        Kind::BadAnswer,
                        format!("{}: the answer is no text", resource.table),
                        e,
                    )
                })?;
                decoder.push(json, params);
            }
            decoder.finish()
        };
        away_from_calls(bytes, work).await
    }
}

/// Whether the rows of a scope are what its last answer said, whatever else was answered since. Not where a
/// permission hides some of them, and not where the answer for another scope can bring them.
fn may_be_known_again(resource: &Resource) -> bool {
    resource.partial.is_none() && !resource.records_name_their_scope()
}

fn bytes_of(records: &[(Bytes, Arc<Params>)]) -> usize {
    records.iter().map(|(record, _)| record.len()).sum()
}

/// Works on so many bytes of answers without holding calls back.
pub(crate) async fn away_from_calls<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if bytes < INLINE_BYTES {
        return work();
    }
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| Error::caused(Kind::Internal, "work on an answer ended early", e))?
}

/// What the calls of a scope brought.
struct Parts {
    records: Vec<(Bytes, Arc<Params>)>,
    complete: bool,
    /// When the first call was sent: absence counts from there.
    sent_at: Option<Timestamp>,
    /// The latest `Date` of the service on a page of a list.
    dated_at: Option<Timestamp>,
}

impl Default for Parts {
    fn default() -> Parts {
        Parts { records: Vec::new(), complete: true, sent_at: None, dated_at: None }
    }
}

impl Parts {
    /// From when on a row that is absent leaves. Of answers that look ahead (`stays_after`) what has begun by either
    /// clock stays: ours may be behind.
    fn sent_at_of(&self, resource: &Resource) -> Timestamp {
        let sent_at = self.sent_at.unwrap_or_else(Timestamp::now);
        if resource.stays_after.is_none() {
            return sent_at;
        }
        let latest = sent_at.checked_add(FARTHEST_AHEAD).unwrap_or(Timestamp::MAX);
        self.dated_at.map_or(sent_at, |dated_at| sent_at.max(dated_at.min(latest)))
    }
}

/// The body without white space around it.
pub(crate) fn trimmed(answer: &Answer) -> Bytes {
    if answer.is_none() {
        return Bytes::new();
    }
    answer.body.slice_ref(trim_json(&answer.body))
}
