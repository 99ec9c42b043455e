//! The bearer token (reference 5.1): fetched when the first call needs it, renewed before it expires
//! and once when the service refuses it, and by one call for all that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::refusal::Refusal;
use super::request::Method;
use super::retry_after::asked_wait;
use super::transport::{Outgoing, Transport};
use super::validate::faulty_json;
use super::verdict::{Failure, redirected};
use crate::error::{Error, Kind, Result};
use crate::text::without_bom;

/// A token is some kilobytes at most.
const LARGEST_ANSWER: usize = 1 << 20; // 1 MiB

const PATH: &str = "/authtoken";
const FORM: &str = "application/x-www-form-urlencoded";

/// How long a token is believed to live when the answer does not say: a quarter of the documented
/// 1,200 s.
const UNSAID_LIFE: Duration = Duration::from_secs(300);
/// A shorter life is none: believed, each call would ask for a token of its own. That such a token has
/// ended says the service, by 401.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);
/// A token is renewed so long before its end, or at four fifths of its life where that is later.
const LONGEST_MARGIN: Duration = Duration::from_secs(60);

/// A token to send a call with.
#[derive(Clone)]
pub(super) struct Bearer {
    pub(crate) authorization: HeaderValue,
    /// Tells tokens apart without showing them.
    pub(crate) generation: u64,
    token: Arc<SecretString>,
}

impl Bearer {
    /// For redacting it in what the service says. Not to be printed.
    pub(super) fn secret(&self) -> &str {
        self.token.expose_secret()
    }
}

/// Holds the credentials and the token made with them.
pub(super) struct Tokens {
    client_id: String,
    client_secret: SecretString,
    endpoint: Arc<str>,
    time_limit: Duration,
    /// Held during a renewal: whoever else needs a token waits here, and finds the new one.
    state: Mutex<State>,
    /// How many renewals have ended, well or not.
    renewals: AtomicU64,
    /// The newest generation that the service refused; 0 for none.
    refused: AtomicU64,
    /// A token has been issued.
    taken: AtomicBool,
}

#[derive(Default)]
struct State {
    current: Option<Current>,
    refresh: Option<Refresh>,
    /// How many tokens have been received.
    generation: u64,
    /// How the last renewal failed: those who waited for it share its fate.
    failed: Option<Failed>,
}

struct Failed {
    kind: Kind,
    text: String,
    again: bool,
}

struct Current {
    bearer: Bearer,
    renew_at: Instant,
}

struct Refresh {
    token: SecretString,
    until: Instant,
}

/// Reference 2.1. Lifetimes are seconds.
#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(deserialize_with = "secret")]
    access_token: SecretString,
    #[serde(default, deserialize_with = "seconds")]
    expires_in: Option<Duration>,
    #[serde(default, deserialize_with = "optional_secret")]
    refresh_token: Option<SecretString>,
    #[serde(default, deserialize_with = "seconds")]
    refresh_token_expires_in: Option<Duration>,
}

fn secret<'de, D: serde::Deserializer<'de>>(from: D) -> Result<SecretString, D::Error> {
    String::deserialize(from).map(SecretString::from)
}

fn optional_secret<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(SecretString::from))
}

/// A number, or a number in quotes; anything else says nothing.
fn seconds<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    let number = value.as_f64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
    Ok(number.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
}

impl Tokens {
    pub(super) fn new(client_id: &str, client_secret: &SecretString, time_limit: Duration) -> Self {
        Tokens {
            client_id: client_id.to_owned(),
            client_secret: client_secret.clone(),
            endpoint: PATH.into(),
            time_limit,
            state: Mutex::default(),
            renewals: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            taken: AtomicBool::new(false),
        }
    }

    /// The client secret, for redacting it in what the service says. Not to be printed.
    pub(super) fn client_secret(&self) -> &str {
        self.client_secret.expose_secret()
    }

    /// Whether the service has ever taken the credentials.
    pub(super) fn were_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// The service refused the token of this generation: nobody is to send it any more.
    pub(super) fn refuse(&self, generation: u64) {
        self.refused.fetch_max(generation, Ordering::AcqRel);
    }

    /// Whether the service has not refused the token.
    pub(super) fn is_good(&self, bearer: &Bearer) -> bool {
        bearer.generation > self.refused.load(Ordering::Acquire)
    }

    /// A token that is valid as far as is known, and not the one of generation `rejected`.
    ///
    /// # Errors
    /// [`Kind::Credentials`] when the service does not take the credentials; [`Kind::NoToken`] when it answers with
    /// anything else than a token; the kinds of a broken transport and of a pause; never a kind that speaks of the
    /// resource that the caller wants to read.
    pub(super) async fn bearer(
        &self,
        transport: &Transport,
        rejected: Option<u64>,
        deadline: Instant,
    ) -> Result<Bearer, Failure> {
        let renewals_before = self.renewals.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        if let Some(bearer) = state.usable(rejected).filter(|bearer| self.is_good(bearer)) {
            return Ok(bearer);
        }
        // Somebody else's renewal ended while we waited for it, and it failed.
        let waited = self.renewals.load(Ordering::Acquire) != renewals_before;
        if let (true, Some(failed)) = (waited, &state.failed) {
            let error = Error::new(failed.kind, failed.text.clone());
            return Err(Failure { error, again: failed.again });
        }
        // The last known token was refused: so may be whatever is derived from its session.
        let last = state.generation;
        let refused = rejected == Some(last) || last <= self.refused.load(Ordering::Acquire);
        if refused {
            state.current = None;
            state.refresh = None;
        }
        let renewed = self.renew(transport, &mut state, deadline).await;
        self.renewals.fetch_add(1, Ordering::Release);
        match renewed {
            Ok(bearer) => {
                self.taken.store(true, Ordering::Release);
                state.failed = None;
                Ok(bearer)
            }
            Err(failure) => {
                let failure = failure.map(speaking_of_no_resource);
                let Failure { error, again } = &failure;
                let (kind, text) = (error.kind(), error.chain());
                state.failed = Some(Failed { kind, text, again: *again });
                Err(failure)
            }
        }
    }

    async fn renew(
        &self,
        transport: &Transport,
        state: &mut State,
        deadline: Instant,
    ) -> Result<Bearer, Failure> {
        if let Some(refresh) = state.refresh.take().filter(|known| known.until > Instant::now()) {
            let form = [
                ("grant_type", "refresh_token"),
                ("client_id", &self.client_id),
                ("refresh_token", refresh.token.expose_secret()),
            ];
            match self.ask(transport, &form, deadline).await {
                Ok((answer, asked)) => {
                    // The answer has no refresh token of its own: the known one stays good.
                    state.refresh = Some(refresh);
                    return Ok(state.take_in(answer, asked)?);
                }
                // `invalid_grant`, or whatever the service says of an expired one or of such a grant at all.
                // A redirect is no word on it.
                Err(Failure { error, again })
                    if error.kind() == Kind::Credentials
                        || error.kind() == Kind::BadAnswer && again =>
                {
                    tracing::debug!(reason = error.chain(), "refresh token not taken");
                }
                // Whatever it is that fails, the credentials are tried next: nothing else could tell that the
                // refresh token is what the service cannot do with.
                Err(failure) => return Err(failure),
            }
        }
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", &self.client_id),
            ("client_secret", self.client_secret()),
        ];
        let (answer, asked) = self.ask(transport, &form, deadline).await?;
        Ok(state.take_in(answer, asked)?)
    }

    /// One call to the token endpoint; also when it was sent.
    async fn ask(
        &self,
        transport: &Transport,
        form: &[(&str, &str)],
        deadline: Instant,
    ) -> Result<(TokenAnswer, Instant), Failure> {
        transport.limits.acquire(deadline).await?;
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let outgoing = Outgoing {
            method: Method::Post,
            path: PATH.to_owned(),
            query: String::new(),
            authorization: None,
            body: Some((body.into(), FORM)),
            feed: false,
            largest: Some(LARGEST_ANSWER),
            endpoint: Arc::clone(&self.endpoint),
            time_limit: self.time_limit,
            again: false,
        };
        let asked = Instant::now();
        let within =
            |error: Error| error.within(format!("no token from {}{PATH}", transport.base()));
        let incoming = transport.exchange(&outgoing).await.map_err(within)?;
        if let Some(retry_after) = asked_wait(incoming.status, &incoming.headers, incoming.ended_at)
        {
            transport.limits.wait_for(retry_after);
        }
        // The last of the form is the secret or the refresh token.
        let secrets: Vec<&str> =
            form.iter().skip(2).map(|(_, secret)| *secret).chain([self.client_secret()]).collect();
        if (300..400).contains(&incoming.status) {
            transport.counts.refused(&self.endpoint);
            return Err(redirected(&incoming, &secrets).map(within));
        }
        if !(200..300).contains(&incoming.status) {
            transport.counts.refused(&self.endpoint);
            let refusal = Refusal::read(incoming.status, &incoming.body, &secrets);
            let kind = kind_of_refusal(&refusal);
            return Err(within(Error::caused(kind, "the service refused it", refusal)).into());
        }
        let body = without_bom(incoming.body);
        match serde_json::from_slice::<TokenAnswer>(&body) {
            Ok(answer) if !answer.access_token.expose_secret().is_empty() => Ok((answer, asked)),
            // The cause of a failed parse can quote the answer, and with it a token that nobody knows yet.
            _ => {
                let text = faulty_json(&body)
                    .unwrap_or_else(|| "the answer holds no access_token".to_owned());
                Err(within(Error::new(Kind::BadAnswer, text)).into())
            }
        }
    }
}

/// A refused token is never the resource's fault: 404 says that `source.base_url` leads elsewhere.
fn kind_of_refusal(refusal: &Refusal) -> Kind {
    match refusal.kind() {
        Kind::Throttled => Kind::Throttled,
        Kind::Server => Kind::Server,
        Kind::NotFound | Kind::NotAllowed | Kind::BadAnswer => Kind::BadAnswer,
        _ => Kind::Credentials,
    }
}

/// What the token endpoint answered is not what the call for a resource met with.
fn speaking_of_no_resource(error: Error) -> Error {
    match error.kind() {
        Kind::Server | Kind::BadAnswer | Kind::Throttled => error.of_kind(Kind::NoToken),
        _ => error,
    }
}

impl State {
    fn usable(&self, rejected: Option<u64>) -> Option<Bearer> {
        let current = self.current.as_ref()?;
        let good = rejected != Some(current.bearer.generation) && Instant::now() < current.renew_at;
        good.then(|| current.bearer.clone())
    }

    /// Lifetimes count from `asked`: the service's clock started somewhere after it.
    fn take_in(&mut self, answer: TokenAnswer, asked: Instant) -> Result<Bearer> {
        let token = answer.access_token;
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
            .map_err(|_| Error::new(Kind::BadAnswer, "the access_token cannot be sent"))?;
        authorization.set_sensitive(true);
        self.generation += 1;
        let bearer = Bearer { authorization, generation: self.generation, token: Arc::new(token) };
        let said = answer.expires_in.filter(|life| *life >= SHORTEST_LIFE);
        let renew_at = asked + usable_part(said.unwrap_or(UNSAID_LIFE));
        self.current = Some(Current { bearer: bearer.clone(), renew_at });
        if let Some(token) = answer.refresh_token
            && let Some(life) = answer.refresh_token_expires_in
        {
            self.refresh = Some(Refresh { token, until: asked + usable_part(life) });
        }
        Ok(bearer)
    }
}

/// The part of a life that is used: what lies before the margin. Ten years are as good as for ever.
fn usable_part(life: Duration) -> Duration {
    let life = life.min(Duration::from_secs(10 * 365 * 86_400));
    life - LONGEST_MARGIN.min(life / 5)
}
