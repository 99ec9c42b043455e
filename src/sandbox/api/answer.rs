//! Answers: JSON bodies, refusals, and none.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::super::odata::{Page, Query};
use super::super::record::Record;

/// A refusal: a status, a JSON body with a message, and headers.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    pub(crate) headers: Vec<(HeaderName, String)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl AsRef<str>) -> Refusal {
        let body = serde_json::json!({ "Message": message.as_ref() }).to_string();
        Refusal { status, body, headers: Vec::new() }
    }

    /// 400: what was asked is not understood.
    pub(crate) fn bad_request(message: impl AsRef<str>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }

    /// 404 for a thing that is not there.
    pub(crate) fn not_found(what: &str, id: i64) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, format!("{what} {id} does not exist"))
    }

    pub(crate) fn header(mut self, name: HeaderName, value: impl Into<String>) -> Refusal {
        self.headers.push((name, value.into()));
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = json(self.body.into_bytes());
        *response.status_mut() = self.status;
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

/// What a handler answers.
pub(crate) type Answer = Result<Response, Refusal>;

/// 200 with a JSON body.
pub(crate) fn json(body: Vec<u8>) -> Response {
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], Body::from(body)).into_response()
}

/// 204: there is none.
pub(crate) fn none() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// 200 with one record.
pub(crate) fn record(record: &Record) -> Response {
    let mut out = Vec::with_capacity(1024);
    record.write(&mut out, None);
    json(out)
}

/// 200 with a page: a bare array, or `{Count, Results}` where the call asked for the count.
pub(crate) fn page(page: &Page<Record>, query: &Query) -> Response {
    let mut out = Vec::with_capacity(page.rows.len() * 512 + 64);
    let select = query.select.as_deref().filter(|names| !names.is_empty());
    write_page(&mut out, page.count, page.rows.iter(), select);
    json(out)
}

/// Writes a page's body.
pub(crate) fn write_page<R: std::borrow::Borrow<Record>>(
    out: &mut Vec<u8>,
    count: Option<usize>,
    rows: impl Iterator<Item = R>,
    select: Option<&[String]>,
) {
    if let Some(count) = count {
        out.extend_from_slice(format!("{{\"Count\":{count},\"Results\":").as_bytes());
    }
    out.push(b'[');
    for (n, row) in rows.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        row.borrow().write(out, select);
    }
    out.push(b']');
    if count.is_some() {
        out.push(b'}');
    }
}
