//! What is asked and what is answered: values that know nothing of connections.

use crate::scope::FeedName;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use secrecy::SecretString;

use super::odata::{Query, render_path};
use super::shape::Expected;
use crate::error::Result;

/// The methods casemirror uses. Everything it sends is a read (docs/architecture.md, "Only reads"),
/// but for its own webhook subscriptions; a search is a POST and a control total a PUT, because the
/// service wants it so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Method {
    Get,
    Post,
    Put,
    /// Of its own webhook subscriptions alone.
    Delete,
}

impl Method {
    /// The name on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which limits and which time limit a call is under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CallClass {
    /// `limits.requests_per_second` and `limits.timeout`.
    Plain,
    /// The ledger of `feed.calls` per `feed.per`, and `limits.timeout`.
    Feed(FeedName),
    /// As plain, but with `limits.journal_timeout`, and a time-out is not tried again: the caller
    /// asks for less instead (docs/architecture.md, "Journals").
    Journal,
    /// A change of its own webhook subscriptions: as plain, answered by any 2xx, and sent once: one whose answer was
    /// lost may have been done.
    Change,
}

/// One call to the source. Sending it again is always the same call.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Encoded, from `/` on, below `source.base_url`: see [`render_path`].
    pub(crate) path: String,
    pub(crate) query: Query,
    /// A JSON body.
    pub(crate) body: Option<Bytes>,
    pub(crate) class: CallClass,
    /// Under which name the call is counted (`sync.calls`) and its accepted `$top` remembered: the
    /// path's template.
    pub(crate) endpoint: Arc<str>,
    /// What the answer has to be; where nothing is said, any JSON will do.
    pub(crate) expected: Option<Arc<Expected>>,
    /// What no error may show, whatever the service repeats of the call.
    pub(crate) secrets: Vec<SecretString>,
}

impl Request {
    /// A call to the path that `template` makes with `values`; the template is the endpoint.
    ///
    /// # Errors
    /// Those of [`render_path`].
    pub(crate) fn new(method: Method, template: &str, values: &[(&str, &str)]) -> Result<Self> {
        Ok(Request {
            method,
            path: render_path(template, values)?,
            query: Query::new(),
            body: None,
            class: CallClass::Plain,
            endpoint: template.into(),
            expected: None,
            secrets: Vec::new(),
        })
    }

    /// A GET of the path that `template` makes with `values`.
    ///
    /// # Errors
    /// Those of [`render_path`].
    pub(crate) fn get(template: &str, values: &[(&str, &str)]) -> Result<Self> {
        Self::new(Method::Get, template, values)
    }

    /// A POST to the path that `template` makes with `values`.
    ///
    /// # Errors
    /// Those of [`render_path`].
    pub(crate) fn post(template: &str, values: &[(&str, &str)]) -> Result<Self> {
        Self::new(Method::Post, template, values)
    }

    /// Whether it asks for one case, or one of anything else: its path names it.
    pub(super) fn is_of_one(&self) -> bool {
        self.endpoint.contains('{')
    }

    #[must_use]
    pub(crate) fn query(mut self, query: Query) -> Self {
        self.query = query;
        self
    }

    #[must_use]
    pub(crate) fn body(mut self, json: impl Into<Bytes>) -> Self {
        self.body = Some(json.into());
        self
    }

    #[must_use]
    pub(crate) fn expecting(mut self, expected: impl Into<Arc<Expected>>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    #[must_use]
    pub(crate) fn hiding(mut self, secret: SecretString) -> Self {
        self.secrets.push(secret);
        self
    }

    #[must_use]
    pub(crate) fn class(mut self, class: CallClass) -> Self {
        self.class = class;
        self
    }
}

/// A complete answer of status 200, or 204.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Decompressed, without byte order mark; JSON by its first and last character, not yet parsed.
    pub(crate) body: Bytes,
    /// When the attempt that was answered was sent, by this machine's clock.
    pub(crate) sent_at: Timestamp,
    /// When the answer was complete.
    pub(crate) ended_at: Timestamp,
    /// The server's `Date`, to the second.
    pub(crate) server_date: Option<Timestamp>,
}

/// No clock of a service is believed to be farther behind ours: one of both is wrong.
pub(crate) const FARTHEST_BEHIND: Duration = Duration::from_secs(12 * 3_600);

impl Answer {
    /// Whether its `Date` lies so far behind our clock that one of both is wrong.
    pub(crate) fn is_dated_too_far_behind(&self) -> bool {
        self.server_date.is_some_and(|date| date < self.ended_at - FARTHEST_BEHIND)
    }

    /// When it was sent, where what was asked for is over at `end`; but not after that where the service's clock has not
    /// come to it: what is over by one of both clocks alone is not over.
    pub(crate) fn sent_at_by_both(&self, end: Timestamp) -> Timestamp {
        let is_over = self.server_date.is_none_or(|date| date >= end);
        if is_over { self.sent_at } else { self.sent_at.min(end - Duration::from_micros(1)) }
    }

    /// Whether the service says "there is none": 204, or an empty body (field notes). Of a list only
    /// 204 says so.
    pub(crate) fn is_none(&self) -> bool {
        self.status == 204 || self.body.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_by_one_of_two_clocks_alone_is_not_over() {
        let sent_at: Timestamp = "2026-12-06T03:15:00Z".parse().unwrap();
        let ended_at = sent_at + Duration::from_secs(10);
        let end: Timestamp = "2026-12-05T23:00:00Z".parse().unwrap();
        let sent = |date: Option<&str>, end: Timestamp| {
            let server_date = date.map(|date| date.parse().unwrap());
            Answer { status: 200, body: Bytes::new(), sent_at, ended_at, server_date }
                .sent_at_by_both(end)
        };
        for over in [None, Some("2026-12-05T23:00:00Z"), Some("2027-12-06T03:15:00Z")] {
            assert_eq!(sent(over, end), sent_at, "{over:?}");
        }
        let behind = Some("2026-12-05T22:59:59Z");
        assert_eq!(sent(behind, end), "2026-12-05T22:59:59.999999Z".parse().unwrap());
        // It is over by both, or by neither.
        assert_eq!(sent(behind, "2026-12-05T15:15:09Z".parse().unwrap()), sent_at);
        assert_eq!(sent(behind, "2027-01-01T00:00:00Z".parse().unwrap()), sent_at);
    }
}
