//! What is asked and what is answered: values that know nothing of connections.

use crate::scope::FeedName;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::odata::{Query, render_path};
use super::shape::Expected;
use crate::error::Result;

/// The methods casemirror uses. Everything it sends is a read (promise 7), but for its own webhook
/// subscriptions; a search is a POST and a control total a PUT, because the service wants it so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    Get,
    Post,
    Put,
    Delete,
}

impl Method {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
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
pub enum CallClass {
    /// `limits.requests_per_second` and `limits.timeout`.
    Plain,
    /// The ledger of `feed.calls` per `feed.per`, and `limits.timeout`.
    Feed(FeedName),
    /// As plain, but with `limits.journal_timeout`, and a time-out is not tried again: the caller
    /// asks for less instead (contract section 4, "Journals").
    Journal,
}

/// One call to the source. Sending it again is always the same call.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: Method,
    /// Encoded, from `/` on, below `source.base_url`: see [`render_path`].
    pub path: String,
    pub query: Query,
    /// A JSON body.
    pub body: Option<Bytes>,
    pub class: CallClass,
    /// Under which name the call is counted (`sync.calls`) and its accepted `$top` remembered: the
    /// path's template.
    pub endpoint: Arc<str>,
    /// What the answer has to be; where nothing is said, any JSON will do.
    pub expected: Option<Arc<Expected>>,
}

impl Request {
    /// A call to the path that `template` makes with `values`; the template is the endpoint.
    ///
    /// # Errors
    /// Those of [`render_path`].
    pub fn new(method: Method, template: &str, values: &[(&str, &str)]) -> Result<Self> {
        Ok(Request {
            method,
            path: render_path(template, values)?,
            query: Query::new(),
            body: None,
            class: CallClass::Plain,
            endpoint: template.into(),
            expected: None,
        })
    }

    /// A GET of the path that `template` makes with `values`.
    ///
    /// # Errors
    /// Those of [`render_path`].
    pub fn get(template: &str, values: &[(&str, &str)]) -> Result<Self> {
        Self::new(Method::Get, template, values)
    }

    /// A POST to the path that `template` makes with `values`.
    ///
    /// # Errors
    /// Those of [`render_path`].
    pub fn post(template: &str, values: &[(&str, &str)]) -> Result<Self> {
        Self::new(Method::Post, template, values)
    }

    #[must_use]
    pub fn query(mut self, query: Query) -> Self {
        self.query = query;
        self
    }

    #[must_use]
    pub fn body(mut self, json: impl Into<Bytes>) -> Self {
        self.body = Some(json.into());
        self
    }

    #[must_use]
    pub fn expecting(mut self, expected: impl Into<Arc<Expected>>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    #[must_use]
    pub fn class(mut self, class: CallClass) -> Self {
        self.class = class;
        self
    }
}

/// A complete answer of status 200, or 204.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// Decompressed, without byte order mark; JSON by its first and last character, not yet parsed.
    pub body: Bytes,
    /// When the attempt that was answered was sent, by this machine's clock.
    pub sent_at: Timestamp,
    /// When the answer was complete.
    pub ended_at: Timestamp,
    /// The server's `Date`, to the second.
    pub server_date: Option<Timestamp>,
    /// How many times the call was sent, this answer's included.
    pub attempts: u32,
}

impl Answer {
    /// Whether the service says "there is none": 204, or an empty body (field notes). Of a list only
    /// 204 says so.
    pub fn is_none(&self) -> bool {
        self.status == 204 || self.body.is_empty()
    }
}
