//! Reads a whole list from the service, page by page: the state machine of [`super::pages`] put to
//! work.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::client::Client;
use super::odata::{Filter, OrderBy};
use super::pages::{Ask, Mark, Next, Pager, Sameness, Verdict, Walk};
use super::refusal::refusal;
use super::request::{Answer, Request};
use super::shape::{Expected, Pardons, fault_of_record};
use super::split::{field_of, fingerprint, fingerprint_of_value, records};
use crate::error::{Kind, Result};
use crate::progress::Share;
use crate::text::whole_number;

/// What a service gives when it is not told how many (reference 8).
const DEFAULT_TOP: u32 = 100;

/// How a list can be walked through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Paging {
    /// Ordered by this integer field, each page from the one after the last: rows that move between
    /// pages are neither lost nor doubled.
    Keyset { field: Arc<str> },
    /// By `$skip`, in the order of the request's query.
    Skip,
    /// As [`Paging::Skip`], but with how many are passed over and wanted in these fields of the
    /// body, an object.
    Body { offset: Arc<str>, limit: Arc<str> },
    /// The reference documents no paging: asked whole.
    Undocumented,
}

/// What tells two records of a list apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The values of these fields. (With [`Paging::Keyset`]: its field alone.)
    Fields(Vec<Arc<str>>),
    /// Nothing: two equal lines are two (journals).
    Lines,
}

/// A list to be read.
#[derive(Debug, Clone)]
pub(crate) struct PagePlan {
    /// With the filter and the order that are wanted; `$top`, `$skip` and `$inlinecount` are set
    /// here.
    pub(crate) request: Request,
    pub(crate) paging: Paging,
    pub(crate) identity: Identity,
    /// Whether the service is asked for `Count` (OData lists): it saves the look behind the end.
    pub(crate) count: bool,
}

/// A page of a list.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(crate) answer: Answer,
    /// The records, as JSON texts in the order of the answer, sharing its body; without those that
    /// came on earlier pages. Two of one page can have the same key.
    pub(crate) records: Vec<Bytes>,
}

/// A walk through a list. Pages come in the order in which they were asked; the first always comes,
/// even when it is empty. A future of [`Pages::next`] that is dropped asks the same page again.
pub(crate) struct Pages {
    client: Client,
    plan: PagePlan,
    pager: Pager,
    next: Next,
    /// The `$top` in use is one that the endpoint took in an earlier walk.
    remembered: bool,
    sent_at: Option<Timestamp>,
    /// See [`Pages::pardoning`].
    pardons: bool,
    /// See [`Pages::of_a_long_filter`].
    filter_is_long: bool,
    /// The pages behind the first, as far as is known.
    share: Share,
}

impl Pages {
    /// Nothing is sent yet.
    pub(crate) fn new(client: &Client, plan: PagePlan) -> Self {
        let accepted = client.tops().of(&plan.request.endpoint);
        let pager = Self::pager(&plan, accepted);
        let next = Next::Ask(pager.first());
        let remembered = accepted.is_some();
        let share = client.progress().share(0);
        let client = client.clone();
        let (pardons, filter_is_long) = (false, false);
        Pages {
            client,
            plan,
            pager,
            next,
            remembered,
            sent_at: None,
            pardons,
            filter_is_long,
            share,
        }
    }

    fn pager(plan: &PagePlan, accepted: Option<Option<u32>>) -> Pager {
        let walk = match plan.paging {
            Paging::Keyset { .. } => Walk::Keyset,
            Paging::Skip | Paging::Body { .. } => Walk::Skip,
            Paging::Undocumented => Walk::Undocumented,
        };
        let sameness = match (&plan.identity, walk) {
            (Identity::Fields(_), _) | (_, Walk::Keyset) => Sameness::Key,
            (Identity::Lines, Walk::Skip | Walk::Undocumented) => Sameness::Lines,
        };
        Pager::new(walk, sameness, accepted)
    }

    /// The next page; `None` when the list is at its end, complete or not: see [`Pages::verdict`].
    ///
    /// # Errors
    /// Those of [`Client::send`], and [`crate::error::Kind::BadAnswer`] when an answer is no list. A
    /// later page that is refused (400) is no error: the list ends incomplete. One that is too large is
    /// asked for in smaller parts, as far as the endpoint takes a `$top`.
    pub(crate) async fn next(&mut self) -> Result<Option<Page>> {
        loop {
            let Next::Ask(ask) = self.next else { return Ok(None) };
            let answer = match self.client.send(&self.request(ask)).await {
                Ok(answer) => answer,
                Err(error) if refusal(&error).is_some_and(|refusal| refusal.status == 400) => {
                    if let Some(smaller) = self.pager.refused() {
                        self.next = Next::Ask(smaller);
                        continue;
                    }
                    if self.sent_at.is_none() {
                        if self.filter_is_long && self.remembered {
                            return Err(error);
                        }
                        // What was taken before may be too much now: it is found out again.
                        self.client.tops().forget(&self.plan.request.endpoint);
                        if std::mem::take(&mut self.remembered) {
                            self.pager = Self::pager(&self.plan, None);
                            self.next = Next::Ask(self.pager.first());
                            continue;
                        }
                        return Err(error);
                    }
                    tracing::debug!(reason = error.chain(), "a later page was refused");
                    let why = "the service refuses a later page";
                    self.next = Next::Finished(Verdict::Incomplete(why));
                    return Ok(None);
                }
                Err(error) if error.kind() == Kind::TooLarge => {
                    let Some(smaller) = self.pager.too_large(ask) else { return Err(error) };
                    tracing::debug!(reason = error.chain(), "smaller pages are asked for");
                    self.next = Next::Ask(smaller);
                    continue;
                }
                Err(error) if error.kind() == Kind::BadAnswer && self.pardon() => {
                    tracing::debug!(
                        reason = error.chain(),
                        "what is right of the page is asked for"
                    );
                    continue;
                }
                Err(error) => return Err(error),
            };
            return self.take(answer).map(Some);
        }
    }

    /// Some records of a page that are none do not keep the others from being read: what is wrong with them is told by
    /// whoever decodes them. A page is asked so only after it was refused for what it is, again and again.
    pub(crate) fn pardoning(mut self) -> Pages {
        self.pardons = true;
        self
    }

    /// It may be the filter that is refused: the `$top` that was taken before is not found out anew for it.
    pub(crate) fn of_a_long_filter(mut self) -> Pages {
        self.filter_is_long = true;
        self
    }

    /// Asks for the same page once more, and pardons from here on. Whether it did not yet.
    fn pardon(&mut self) -> bool {
        let expected = self.plan.request.expected.get_or_insert_with(|| Arc::new(Expected::list()));
        if !self.pardons || expected.pardons != Pardons::Nothing {
            return false;
        }
        *expected = Arc::new(Expected { pardons: Pardons::Half, ..(**expected).clone() });
        true
    }

    /// Whether the list was complete; `None` while it is not at its end.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        match self.next {
            Next::Ask(_) => None,
            Next::Finished(verdict) => Some(verdict),
        }
    }

    /// When the first page was asked: what was written before it and is not in a complete list is
    /// gone.
    pub(crate) fn sent_at(&self) -> Option<Timestamp> {
        self.sent_at
    }

    fn take(&mut self, answer: Answer) -> Result<Page> {
        let parts = records(&answer).map_err(|error| {
            let request = &self.plan.request;
            error.within(format!("{} {}: no list came", request.method, request.path))
        })?;
        // What nothing comes after is compared with nothing.
        let is_whole = self.pager.is_whole(parts.records.len(), parts.count);
        let mark = |record: &&RawValue| match is_whole {
            true => Mark { fingerprint: 0, key: None },
            false => self.mark(record.get()),
        };
        let marks: Vec<Mark> = parts.records.iter().map(mark).collect();
        let taken = self.pager.take(&marks, parts.count);
        // Where some are pardoned, each is judged for itself.
        let expected = self.plan.request.expected.as_ref();
        let single = expected
            .filter(|expected| expected.pardons != Pardons::Nothing)
            .map(|expected| expected.of_one());
        let records: Vec<Bytes> = parts
            .records
            .iter()
            .zip(taken.keep)
            .filter(|(_, keep)| *keep)
            .map(|(record, _)| {
                let text = answer.body.slice_ref(record.get().as_bytes());
                match &single {
                    Some(single) => self.judged(text, single),
                    None => text,
                }
            })
            .collect();
        if self.plan.paging != Paging::Undocumented && self.sent_at.is_none() {
            let (tops, endpoint) = (self.client.tops(), &self.plan.request.endpoint);
            tops.remember(endpoint, self.pager.accepted_top());
        }
        self.sent_at.get_or_insert(answer.sent_at);
        self.next = match taken.next {
            Next::Ask(ask) => Next::Ask(self.pager.larger(ask)),
            finished => finished,
        };
        self.client.progress().rows(records.len() as u64);
        self.share.done(1);
        self.share.expect(match self.next {
            Next::Ask(_) => self.pager.pages_left(),
            Next::Finished(_) => 0,
        });
        Ok(Page { answer, records })
    }

    /// A record of a page that pardons some; in the place of one that is none stands `null`, which is no record to
    /// anybody.
    fn judged(&self, record: Bytes, single: &Arc<Expected>) -> Bytes {
        match fault_of_record(&record, single) {
            None => record,
            Some(why) => {
                let (path, reason) = (&self.plan.request.path, why.chain());
                tracing::warn!(path, reason, "a record of a list is none");
                Bytes::from_static(b"null")
            }
        }
    }

    fn mark(&self, record: &str) -> Mark {
        if let Paging::Keyset { field } = &self.plan.paging {
            let text = field_of(record, field);
            let key = text.and_then(|text| whole_number(text).ok());
            let fingerprint = match text {
                Some(text) => fingerprint([text]),
                None => fingerprint_of_value(record),
            };
            return Mark { fingerprint, key };
        }
        let fingerprint = match &self.plan.identity {
            Identity::Fields(fields) => {
                let values: Vec<&str> =
                    fields.iter().filter_map(|field| field_of(record, field)).collect();
                // A record without its whole key is only equal to itself.
                if values.len() == fields.len() {
                    fingerprint(values)
                } else {
                    fingerprint_of_value(record)
                }
            }
            Identity::Lines => fingerprint_of_value(record),
        };
        Mark { fingerprint, key: None }
    }

    fn request(&self, ask: Ask) -> Request {
        let mut request = self.plan.request.clone();
        request.expected.get_or_insert_with(|| Arc::new(Expected::list()));
        if let Paging::Body { offset, limit } = &self.plan.paging {
            request.body = request.body.map(|body| paged_body(&body, (offset, limit), ask));
            return request;
        }
        let query = &mut request.query;
        query.top = ask.top;
        query.skip = ask.skip;
        // Behind a key, `Count` would be that of the rest.
        query.inline_count = self.plan.count && ask.from_key.is_none();
        if let Paging::Keyset { field } = &self.plan.paging {
            query.order_by = Some(OrderBy::asc(field));
            if let Some(from_key) = ask.from_key {
                let from = Filter::ge(field, from_key);
                query.filter = Some(match query.filter.take() {
                    Some(filter) => filter.and(from),
                    None => from,
                });
            }
        }
        request
    }
}

/// A body with the page in it. What is no object stays as it is.
fn paged_body(body: &Bytes, (offset, limit): (&str, &str), ask: Ask) -> Bytes {
    let Ok(mut fields) = serde_json::from_slice::<Map<String, Value>>(body) else {
        return body.clone();
    };
    fields.insert(offset.to_owned(), ask.skip.unwrap_or(0).into());
    // It has no default: where no page is small enough, the documented one of other lists.
    fields.insert(limit.to_owned(), ask.top.unwrap_or(DEFAULT_TOP).into());
    Bytes::from(Value::Object(fields).to_string())
}
