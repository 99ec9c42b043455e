//! Whether what came in is an answer, and whether asking again may help.

use secrecy::ExposeSecret;

use super::refusal::Refusal;
use super::request::{CallClass, Request};
use super::shape;
use super::token::Bearer;
use super::transport::Incoming;
use super::validate::{faulty_json, kept_on_the_way, other_type, redirect_target, unproven};
use crate::error::{Error, Kind};
use crate::text::without_bom;

/// Why an attempt did not bring an answer.
pub(super) struct Failure {
    pub(super) error: Error,
    /// A further attempt may help.
    pub(super) again: bool,
}

impl Failure {
    /// No further attempt can help, whatever the kind: what is waited for lies beyond the deadline,
    /// or will be the same again.
    pub(super) fn last(error: Error) -> Self {
        Failure { error, again: false }
    }

    /// The same failure with another error for it.
    pub(super) fn map(self, error: impl FnOnce(Error) -> Error) -> Self {
        Failure { error: error(self.error), again: self.again }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { again: error.kind().is_retryable(), error }
    }
}

/// Either an answer, or a token that the service did not take: which one, and what it said.
pub(super) enum Outcome {
    Answered(Incoming),
    TokenRefused(u64, Refusal),
}

/// A call that was answered by a redirect, which it would be again.
pub(super) fn redirected(incoming: &Incoming, secrets: &[&str]) -> Failure {
    let text = format!(
        "the service redirects to {}; casemirror follows no redirects: put the address that answers into \
         source.base_url",
        redirect_target(&incoming.headers, secrets)
    );
    let refusal = Refusal { status: incoming.status, ..Refusal::read(0, b"", &[]) };
    Failure::last(Error::caused(Kind::BadAnswer, text, refusal))
}

/// Whether what came in is an answer. Neither the token nor `client_secret` is shown in what is told of it; an answer has
/// `most_records` at most.
pub(super) fn judge(
    request: &Request,
    mut incoming: Incoming,
    bearer: &Bearer,
    client_secret: &str,
    most_records: u64,
) -> Result<Outcome, Failure> {
    let mut secrets = vec![bearer.secret(), client_secret];
    secrets.extend(request.secrets.iter().map(ExposeSecret::expose_secret));
    match incoming.status {
        // What it holds is not shown by the reference, and not needed.
        200..=299 if request.class == CallClass::Change => Ok(Outcome::Answered(incoming)),
        204 => match kept_on_the_way(&incoming.headers) {
            None => {
                incoming.body = bytes::Bytes::new();
                Ok(Outcome::Answered(incoming))
            }
            Some(fault) => Err(Error::new(Kind::BadAnswer, fault).into()),
        },
        200 => {
            incoming.body = without_bom(incoming.body);
            let (body, expected) = (&incoming.body, request.expected.as_ref());
            let fault = unproven(incoming.proven)
                .or_else(|| faulty_json(body))
                .or_else(|| other_type(&incoming.headers))
                .or_else(|| kept_on_the_way(&incoming.headers))
                .map(|fault| Error::new(Kind::BadAnswer, fault))
                .or_else(|| shape::fault(body, expected, most_records));
            match fault {
                None => Ok(Outcome::Answered(incoming)),
                Some(fault) => Err(fault.into()),
            }
        }
        status @ 201..=299 => {
            let text = format!("HTTP {status} is no answer to a question (200 and 204 are)");
            Err(Error::new(Kind::BadAnswer, text).into())
        }
        401 => {
            let refusal = Refusal::read(401, &incoming.body, &secrets);
            Ok(Outcome::TokenRefused(bearer.generation, refusal))
        }
        300..=399 => Err(redirected(&incoming, &secrets)),
        status => {
            let refusal = Refusal::read(status, &incoming.body, &secrets);
            let kind = refusal.kind();
            Err(Error::caused(kind, "the service did not answer it", refusal).into())
        }
    }
}
