//! Calls that say more than the reference describes are refused: what would be left aside here could be meant to do
//! something, and no test of a caller would tell.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;

use super::super::wire::Ticks;
use super::answer::Refusal;

/// A call without parameters.
pub(crate) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<NoQuery, Refusal> {
        match parts.uri.query() {
            None | Some("") => Ok(NoQuery),
            Some(_) => Err(Refusal::bad_request("This resource takes no parameters")),
        }
    }
}

/// A call without a body.
pub(crate) struct NoBody;

impl<S: Send + Sync> FromRequest<S> for NoBody {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<NoBody, Refusal> {
        match Bytes::from_request(request, state).await {
            Ok(body) if body.is_empty() => Ok(NoBody),
            _ => Err(Refusal::bad_request("This resource takes no body")),
        }
    }
}

/// The `DateTimeOffset` that was given under this name, or 400.
pub(crate) fn date_time_offset(name: &str, text: &str) -> Result<Ticks, Refusal> {
    Ticks::parse_with_offset(text).ok_or_else(|| {
        let what = format!("The value '{text}' of {name} is no date-time with an offset");
        Refusal::bad_request(what)
    })
}
