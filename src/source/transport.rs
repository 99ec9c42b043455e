//! The line to the service: one request out, one complete answer back, no retries, no redirects.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_TYPE, HeaderMap, HeaderValue, TRANSFER_ENCODING,
};
use reqwest::{StatusCode, Version, redirect};
use tokio::time::Instant;
use url::Url;

use super::calls::CallCounts;
use super::held::{Held, Share};
use super::limits::Limits;
use super::request::Method;
use crate::config;
use crate::error::{Error, Kind, Result};
use crate::progress::Progress;
use crate::tls;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Of an answer that is no success, so much is read: 64 KiB.
const LARGEST_REFUSAL: usize = 64 * 1024;
/// And for so long it is waited for.
const LONGEST_REFUSAL_WAIT: Duration = Duration::from_secs(2);
/// So many bytes are made room for before they come, at most.
const LARGEST_PROMISED: usize = 16 << 20; // 16 MiB

/// So much is unpacked before it is looked how much that has become.
const AT_ONCE: u64 = 1 << 20; // 1 MiB

const USER_AGENT: &str = concat!("casemirror/", env!("CARGO_PKG_VERSION"));

/// Connections, limits and counts: what every call needs, the token's too.
pub(super) struct Transport {
    http: reqwest::Client,
    /// The feed's own, without idle connections: a request on a connection that the server has
    /// closed meanwhile would be sent again below us, unseen by the ledger.
    feed_http: reqwest::Client,
    /// `source.base_url` without a slash at the end.
    base: String,
    /// The largest answer that is read, in bytes after decompression.
    largest_answer: usize,
    held: Arc<Held>,
    pub(super) limits: Limits,
    pub(super) counts: CallCounts,
}

/// One request, ready to be sent.
pub(super) struct Outgoing {
    pub(crate) method: Method,
    /// Below the base, encoded, from `/` on.
    pub(crate) path: String,
    /// Encoded, without question mark; empty for none.
    pub(crate) query: String,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) body: Option<(Bytes, &'static str)>,
    pub(crate) feed: bool,
    /// The largest answer that is read; `None` is `limits.answer_bytes`.
    pub(crate) largest: Option<usize>,
    pub(crate) endpoint: Arc<str>,
    pub(crate) time_limit: Duration,
    /// Whether it repeats an earlier one.
    pub(crate) again: bool,
}

/// An answer, whatever its status.
pub(super) struct Incoming {
    pub(crate) status: u16,
    /// The end of the body was told, and met: it came in chunks up to the last one, or with its
    /// length. What merely ends with the connection may be any part of an answer.
    pub(crate) proven: bool,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) sent_at: Timestamp,
    pub(crate) ended_at: Timestamp,
}

impl Transport {
    /// # Errors
    /// [`Kind::Config`] when the address or the certificate file cannot be used.
    pub(super) fn new(
        source: &config::Source,
        limits: &config::Limits,
        progress: Progress,
    ) -> Result<Self> {
        tls::provide();
        let certificates = checked(source)?;
        let plain_text = source.base_url.scheme() == "http";
        // No proxy leads to where we are: a sandbox answers here.
        let is_here = config::is_this_machine(&source.base_url);
        let largest_answer = usize::try_from(limits.answer_bytes.0).unwrap_or(usize::MAX);
        let line = |http: reqwest::ClientBuilder| if is_here { http.no_proxy() } else { http };
        Ok(Transport {
            http: connect_with(&certificates, plain_text, line)?,
            feed_http: connect_with(&certificates, plain_text, |http| {
                line(http).pool_max_idle_per_host(0)
            })?,
            base: source.base_url.as_str().trim_end_matches('/').to_owned(),
            largest_answer,
            held: Held::new(largest_answer),
            limits: Limits::new(limits),
            counts: CallCounts::new(progress),
        })
    }

    /// `source.base_url` without a slash at the end.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Sends once and reads the whole answer. When this fails, or its future is dropped, the
    /// connection is closed.
    ///
    /// # Errors
    /// [`Kind::Unreachable`], [`Kind::Tls`], [`Kind::Timeout`], [`Kind::TooLarge`], or
    /// [`Kind::BadAnswer`] when the answer is not what its headers say.
    pub(super) async fn exchange(&self, outgoing: &Outgoing) -> Result<Incoming> {
        let separator = if outgoing.query.is_empty() { "" } else { "?" };
        let address = format!("{}{}{separator}{}", self.base, outgoing.path, outgoing.query);
        let http = if outgoing.feed { &self.feed_http } else { &self.http };
        let method = match outgoing.method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Delete => reqwest::Method::DELETE,
        };
        let mut request = http
            .request(method, address)
            .header(ACCEPT, "application/json")
            .header(CACHE_CONTROL, "no-cache")
            .header(ACCEPT_ENCODING, "gzip");
        if let Some(authorization) = &outgoing.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        request = match &outgoing.body {
            Some((body, content_type)) => {
                request.header(CONTENT_TYPE, *content_type).body(body.clone())
            }
            // Some servers answer 411 to a POST that does not say how long its body is.
            None if outgoing.method != Method::Get => request.header(CONTENT_LENGTH, "0"),
            None => request,
        };

        self.counts.sent(&outgoing.endpoint, outgoing.again);
        let (started, sent_at) = (Instant::now(), Timestamp::now());
        let most = match outgoing.largest {
            Some(bytes) => Most { bytes, by: None },
            None => Most { bytes: self.largest_answer, by: Some("limits.answer_bytes") },
        };
        let answered = self.receive(request, most);
        let answered = tokio::time::timeout(outgoing.time_limit, answered).await;
        let received = answered.as_ref().ok().and_then(|answer| answer.as_ref().ok());
        let status = received.map(|(status, ..)| status.as_u16());
        let bytes = received.map_or(0, |(.., body)| body.len());
        self.counts.ended(&outgoing.endpoint, status, bytes, started.elapsed());
        let Ok(answer) = answered else {
            let text = format!("no complete answer within {:?}", outgoing.time_limit);
            return Err(Error::new(Kind::Timeout, text));
        };
        let (received, proven, headers, body) = answer?;
        let (status, ended_at) = (received.as_u16(), Timestamp::now());
        Ok(Incoming { status, proven, headers, body, sent_at, ended_at })
    }

    async fn receive(
        &self,
        request: reqwest::RequestBuilder,
        most: Most,
    ) -> Result<(StatusCode, bool, HeaderMap, Bytes)> {
        let mut response = request.send().await.map_err(broken_line)?;
        let status = response.status();
        let proven = has_an_end(response.version(), response.headers());
        let headers = std::mem::take(response.headers_mut());
        let refusal = Most { bytes: LARGEST_REFUSAL, by: None };
        let most = if status.is_success() { most } else { refusal };
        let mut share = self.held.begin();
        // At once, so that a long one is not moved again and again while it grows. What is promised takes no memory
        // until it comes.
        let promised = response.content_length().and_then(|bytes| usize::try_from(bytes).ok());
        let promised = promised.unwrap_or_default().min(most.bytes).min(LARGEST_PROMISED);
        let mut body = BytesMut::with_capacity(promised);
        if !status.is_success() {
            // The status has been told, and how long to wait, whatever becomes of the text.
            let text = refusal_text(&mut response, &mut body);
            let _ = tokio::time::timeout(LONGEST_REFUSAL_WAIT, text).await;
            let body = unpacked(&headers, body.freeze(), most, &mut share).unwrap_or_default();
            return Ok((status, proven, headers, body));
        }
        while let Some(chunk) = response.chunk().await.map_err(broken_line)? {
            if body.len() + chunk.len() > most.bytes {
                return Err(too_large(most));
            }
            share.grow_to(body.len() + chunk.len())?;
            body.extend_from_slice(&chunk);
        }
        let body = unpacked(&headers, body.freeze(), most, &mut share)?;
        Ok((status, proven, headers, share.keep(body)))
    }
}

/// Reads on to the end of the text of a refusal, or what is there of it, into `text`.
async fn refusal_text(response: &mut reqwest::Response, text: &mut BytesMut) {
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = LARGEST_REFUSAL - text.len();
        text.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return;
        }
    }
}

/// The body without its `Content-Encoding`.
fn unpacked(headers: &HeaderMap, body: Bytes, most: Most, share: &mut Share) -> Result<Bytes> {
    let coding = headers.get(CONTENT_ENCODING).map(|coding| coding.to_str().unwrap_or("?").trim());
    match coding {
        None => return Ok(body),
        Some(coding) if coding.eq_ignore_ascii_case("identity") => return Ok(body),
        // Some services name a coding for no body at all.
        Some(_) if body.is_empty() => return Ok(body),
        Some(coding) if ["gzip", "x-gzip"].iter().any(|g| coding.eq_ignore_ascii_case(g)) => {}
        Some(_) => {
            let text = "the answer is packed in another way than gzip, which was asked for";
            return Err(Error::new(Kind::BadAnswer, text));
        }
    }
    let mut packed = flate2::bufread::MultiGzDecoder::new(&body[..]);
    let mut plain = Vec::new();
    loop {
        let more = packed.by_ref().take(AT_ONCE).read_to_end(&mut plain);
        let more = more.map_err(|cause| {
            Error::caused(Kind::BadAnswer, "the answer cannot be unpacked", cause)
        })?;
        if plain.len() > most.bytes {
            return Err(too_large(most));
        }
        if more == 0 {
            return Ok(Bytes::from(plain));
        }
        share.grow_to(body.len() + plain.len())?;
    }
}

fn too_large(most: Most) -> Error {
    let text = format!("the answer is larger than {} bytes", most.bytes);
    match most.by {
        Some(setting) => Error::new(Kind::TooLarge, format!("{text} ({setting})")),
        None => Error::new(Kind::BadAnswer, text),
    }
}

/// How many bytes of an answer are read, and the setting that says so, if one does.
#[derive(Clone, Copy)]
struct Most {
    bytes: usize,
    by: Option<&'static str>,
}

/// Whether the headers tell where the body ends; that it goes so far is the HTTP library's to see.
fn has_an_end(version: Version, headers: &HeaderMap) -> bool {
    let last_coding = headers.get_all(TRANSFER_ENCODING).iter().next_back();
    let chunked = last_coding.and_then(|coding| coding.to_str().ok()).is_some_and(|coding| {
        coding.rsplit(',').next().is_some_and(|last| last.trim().eq_ignore_ascii_case("chunked"))
    });
    headers.contains_key(CONTENT_LENGTH) || (chunked && version >= Version::HTTP_11)
}

/// # Errors
/// [`Kind::Config`] for an address that calls cannot be made below.
fn check_base(base: &Url) -> Result<()> {
    let wrong = |what: &str| Err(Error::new(Kind::Config, format!("source.base_url {what}")));
    if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
        return wrong("must begin with http:// or https:// and name a host");
    }
    if !base.username().is_empty() || base.password().is_some() {
        return wrong("must not hold a user name or a password");
    }
    if base.query().is_some() || base.fragment().is_some() {
        return wrong("must not have a query or a fragment");
    }
    Ok(())
}

/// Refuses an address and a certificate file that cannot be used.
///
/// # Errors
/// [`Kind::Config`].
pub(super) fn check(source: &config::Source) -> Result<()> {
    tls::provide();
    checked(source).map(drop)
}

fn checked(source: &config::Source) -> Result<Vec<reqwest::Certificate>> {
    check_base(&source.base_url)?;
    match &source.ca_file {
        Some(path) => read_certificates(path),
        None => Ok(Vec::new()),
    }
}

fn read_certificates(path: &Path) -> Result<Vec<reqwest::Certificate>> {
    let unusable = || format!("source.ca_file {} is no PEM certificate file", path.display());
    let pem = std::fs::read(path).map_err(|cause| {
        Error::caused(Kind::Config, format!("cannot read source.ca_file {}", path.display()), cause)
    })?;
    let certificates = reqwest::Certificate::from_pem_bundle(&pem)
        .map_err(|cause| Error::caused(Kind::Config, unusable(), cause))?;
    if certificates.is_empty() {
        return Err(Error::new(Kind::Config, unusable()));
    }
    Ok(certificates)
}

/// A client that trusts the machine's authorities and `certificates`.
fn connect_with(
    certificates: &[reqwest::Certificate],
    plain_text: bool,
    more: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<reqwest::Client> {
    let builder = || {
        let builder = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            // The library has HTTP/2 for others: here a timed-out call closes its own connection, which the feed's
            // ledger relies on.
            .http1_only();
        more(builder)
    };
    let built = builder().tls_certs_merge(certificates.iter().cloned()).build();
    let built = match built {
        // A machine without any authorities can still talk plain text.
        Err(_) if plain_text => builder().tls_certs_only(certificates.iter().cloned()).build(),
        built => built,
    };
    built.map_err(|cause| {
        let text = "cannot set up TLS (the machine's certificates, or source.ca_file)";
        Error::caused(Kind::Config, text, cause.without_url())
    })
}

/// The kind of a failed exchange. The address is not in the error: the caller names it.
fn broken_line(error: reqwest::Error) -> Error {
    let (kind, text) = if is_tls(&error) {
        (Kind::Tls, "no secure connection")
    } else if error.is_builder() {
        (Kind::Internal, "the request cannot be built")
    } else if error.is_connect() {
        (Kind::Unreachable, "no connection")
    } else {
        (Kind::Unreachable, "the connection broke before the answer was complete")
    };
    Error::caused(kind, text, error.without_url())
}

/// Whether what was to be sent may have left: there was a connection.
pub(super) fn may_have_arrived(error: &Error) -> bool {
    let is_no_connection = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect)
    };
    !causes(error).any(is_no_connection)
}

fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

fn is_tls(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| {
        // An I/O error's own `source` skips what it wraps, and one can wrap another.
        let mut next = Some(cause);
        while let Some(error) = next {
            if error.is::<rustls::Error>() {
                return true;
            }
            next = error
                .downcast_ref::<std::io::Error>()
                .and_then(std::io::Error::get_ref)
                .map(|wrapped| wrapped as &(dyn std::error::Error + 'static));
        }
        false
    })
}
