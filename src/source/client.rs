//! The client: sends a request until it is answered, or until it is clear that it will not be.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::boot::{BootClock, SystemBootClock};
use super::feed_calls::LedgerStore;
use super::feed_calls::Rule;
use super::lease::Lease;
use super::ledger::{FeedPermit, Ledger};
use super::ledger_copy;
use super::limits::Slot;
use super::request::{Answer, CallClass, Request};
use super::retry::Retry;
use super::retry_after::{asked_wait, server_date};
use super::token::{Bearer, Tokens};
use super::tops::Tops;
use super::transport::{self, Incoming, Outgoing, Transport, may_have_arrived};
use super::validate::shown_address;
use super::verdict::{self, Failure, Outcome};
use crate::config;
use crate::error::{Error, Kind, Result};
use crate::progress::Progress;
use crate::scope::CallStats;

const JSON: &str = "application/json";
/// So often a call for one case, or one of anything else, may exceed its time limit before its scope waits for its turn.
const MOST_TIMEOUTS: u32 = 2;
/// So often a call to a feed may be answered by what is no answer.
const MOST_BAD_ANSWERS: u32 = 2;

/// What a client does beside the configuration; tests set others than the program's.
#[derive(Debug, Clone)]
pub(crate) struct Tuning {
    pub(crate) retry: Retry,
    pub(crate) clock: Arc<dyn BootClock>,
    /// Where calls, and the rows that they bring, are told.
    pub(crate) progress: Progress,
    /// Where several hosts may be configured for one API user.
    pub(crate) lease: Option<Lease>,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            retry: Retry::default(),
            clock: Arc::new(SystemBootClock::new()),
            progress: Progress::silent(),
            lease: None,
        }
    }
}

/// The source as the rest of the program sees it. Clones share connections, token, limits and counts.
///
/// Every call is sent at most `retry.attempts` times, waits for the limits of its class, obeys what
/// the service asks for, and carries a valid token. Which kinds of failure are tried again is
/// [`Kind::is_retryable`]'s decision, but for a redirect (it will be one again) and a time-out of a
/// journal call (the caller asks for less instead).
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    transport: Transport,
    tokens: Tokens,
    ledger: Ledger,
    lease: Option<Lease>,
    retry: Retry,
    /// How many records an answer may have.
    most_records: u64,
    progress: Progress,
    timeout: Duration,
    journal_timeout: Duration,
    feed_per: Duration,
    /// `limits.retry_after`.
    longest_hold: Duration,
    tops: Tops,
    /// Told when a call has ended, however; not of the feeds'.
    ended: watch::Sender<()>,
}

/// Whether a call that failed so was not made at all.
fn was_not_made(kind: Kind) -> bool {
    matches!(kind, Kind::RetryAfter | Kind::NoToken)
}

/// What the feeds allow.
pub(super) fn rule(feed: &config::Feed, limits: &config::Limits) -> Rule {
    Rule { limit: feed.calls, window: feed.per, longest_hold: limits.retry_after }
}

impl Client {
    /// A client for the configured source that tells of its calls nowhere. Nothing is sent yet. Blocks
    /// while `ledger` is read.
    ///
    /// # Errors
    /// [`Kind::Config`] when the address or the certificate file cannot be used, and what the store
    /// of the ledger brings.
    pub fn new(
        source: &config::Source,
        feed: &config::Feed,
        limits: &config::Limits,
        ledger: Arc<dyn LedgerStore>,
    ) -> Result<Self> {
        Self::with_tuning(source, feed, limits, ledger, Tuning::default())
    }

    /// The same with other settings than the program's.
    ///
    /// # Errors
    /// Those of [`Client::new`].
    pub(crate) fn with_tuning(
        source: &config::Source,
        feed: &config::Feed,
        limits: &config::Limits,
        ledger: Arc<dyn LedgerStore>,
        tuning: Tuning,
    ) -> Result<Self> {
        let shared = Shared {
            transport: Transport::new(source, limits, tuning.progress.clone())?,
            tokens: Tokens::new(&source.client_id, &source.client_secret, limits.timeout),
            ledger: Ledger::open(ledger, rule(feed, limits), limits.timeout, tuning.clock)?,
            lease: tuning.lease,
            retry: tuning.retry,
            most_records: limits.answer_records,
            progress: tuning.progress,
            timeout: limits.timeout,
            journal_timeout: limits.journal_timeout,
            feed_per: feed.per,
            longest_hold: limits.retry_after,
            tops: Tops::default(),
            ended: watch::Sender::new(()),
        };
        Ok(Client { shared: Arc::new(shared) })
    }

    /// Refuses settings with which there would be no client, or no ledger. Calls nothing and makes nothing.
    ///
    /// # Errors
    /// `Config`, `Io`.
    pub(crate) fn check(config: &config::Config) -> Result<()> {
        ledger_copy::check(config)?;
        transport::check(&config.source)
    }

    /// Sends `request` and returns its answer: one of status 200, complete, JSON, and what the request
    /// expects; or 204, none.
    ///
    /// Dropping the future closes the connection; a feed call's end is written down all the same.
    ///
    /// # Errors
    /// The text says method, address without secrets, which attempt of how many, and the time it
    /// took; the cause says what happened. A refusal's cause is a [`Refusal`](super::refusal::Refusal): see
    /// [`super::refusal()`]. [`Kind::Forbidden`] (403) names the missing permissions,
    /// [`Kind::NotFound`] is 404 and 410, [`Kind::NotAllowed`] 405, [`Kind::Throttled`] 429
    /// and 408, [`Kind::RetryAfter`] a Retry-After beyond our patience, [`Kind::NoToken`] that no token could be had,
    /// [`Kind::Refused`] another 4xx, [`Kind::Server`] 5xx,
    /// [`Kind::BadAnswer`] what is another 2xx, has no end, is no JSON, not what was expected, or a
    /// redirect, [`Kind::TooLarge`] what has more bytes or records than `limits` lets through.
    pub(crate) async fn send(&self, request: &Request) -> Result<Answer> {
        let answer = self.send_until_answered(request).await;
        if !matches!(request.class, CallClass::Feed(_)) {
            self.shared.ended.send_replace(());
        }
        answer
    }

    /// Tells when a call has ended, but of the feeds': that what makes many, one after the other, gets on.
    pub(crate) fn ended_calls(&self) -> watch::Receiver<()> {
        self.shared.ended.subscribe()
    }

    async fn send_until_answered(&self, request: &Request) -> Result<Answer> {
        let started = Instant::now();
        let deadline = started + self.patience(request.class);
        let mut waits = self.shared.retry.waits();
        let mut sent = 0;
        let mut attempt = 1;
        let mut before = None;
        loop {
            let failure = match self.attempt(request, &mut sent, deadline).await {
                Ok(incoming) => {
                    return Ok(Answer {
                        server_date: server_date(&incoming.headers),
                        status: incoming.status,
                        body: incoming.body,
                        sent_at: incoming.sent_at,
                        ended_at: incoming.ended_at,
                    });
                }
                Err(failure) => failure,
            };
            // Each time-out holds a place among few for a minute, and a case has some twenty scopes: that each is asked
            // again in its turn is better. Of lists and searches there are few.
            let takes_too_long = request.class == CallClass::Plain
                && request.is_of_one()
                && failure.error.kind() == Kind::Timeout
                && attempt >= MOST_TIMEOUTS;
            // Each is one of the few calls that a window has for both feeds.
            let is_no_answer_again = matches!(request.class, CallClass::Feed(_))
                && failure.error.kind() == Kind::BadAnswer
                && attempt >= MOST_BAD_ANSWERS;
            let gives_up = takes_too_long || is_no_answer_again;
            let again = failure.again && request.class != CallClass::Change && !gives_up;
            let wait = if again { waits.next() } else { None };
            match wait {
                Some(wait) if Instant::now() + wait < deadline => {
                    tracing::debug!(
                        endpoint = &*request.endpoint,
                        attempt,
                        ?wait,
                        reason = failure.error.chain(),
                        "call failed, trying again"
                    );
                    // Without a token nothing was asked: what an earlier attempt met with is more.
                    if failure.error.kind() != Kind::NoToken {
                        before = Some(failure.error);
                    }
                    tokio::time::sleep(wait).await;
                    attempt += 1;
                }
                _ => {
                    let text = format!(
                        "{} {} failed (attempt {attempt} of {}, after {:.1} s)",
                        request.method,
                        shown_address(self.shared.transport.base(), request),
                        self.shared.retry.attempts,
                        started.elapsed().as_secs_f64()
                    );
                    // A call that was made has failed with what came of it, whatever keeps it from being made again.
                    let error = match before {
                        Some(error) if was_not_made(failure.error.kind()) => error,
                        _ => failure.error,
                    };
                    return Err(error.within(text));
                }
            }
        }
    }

    /// Forgets for how long the source wanted no call, to the feeds and at all.
    ///
    /// # Errors
    /// Those of the ledger.
    pub(crate) async fn lift_holds(&self) -> Result<()> {
        self.shared.transport.limits.lift_hold();
        self.shared.ledger.lift_holds().await
    }

    /// Whether this process has ever got a token.
    pub(crate) fn credentials_were_taken(&self) -> bool {
        self.shared.tokens.were_taken()
    }

    /// For how long from now on the source wants no call at all; `None` where it takes them. What holds the feeds
    /// alone is the ledger's.
    pub(crate) fn held_for(&self) -> Option<Duration> {
        let until = self.shared.transport.limits.retry_after()?;
        Some(until.duration_since(Instant::now()))
    }

    /// The source has told an earlier process that it wants no call for so long from now on; `limits.retry_after` cuts
    /// it.
    pub(crate) fn hold_for(&self, wait: Duration) {
        self.shared.transport.limits.wait_for(wait);
    }

    /// Where calls, and the rows that they bring, are told.
    pub(crate) fn progress(&self) -> &Progress {
        &self.shared.progress
    }

    /// What was asked of each endpoint since this was last called.
    pub(crate) fn take_calls(&self) -> Vec<CallStats> {
        self.shared.transport.counts.take()
    }

    /// Waits until the change feeds may be asked from here again, where another host may ask them.
    pub(crate) async fn lease_comes(&self) {
        match &self.shared.lease {
            Some(lease) => lease.comes().await,
            None => std::future::pending().await,
        }
    }

    /// Lets another host ask the change feeds, where that is done in time. No call may be under way, and none may follow.
    pub(crate) async fn release_lease(&self, by: Option<Instant>) {
        if let Some(lease) = &self.shared.lease {
            lease.release(by).await;
        }
    }

    /// Waits until the ledger of feed calls is written. Not needed for its safety: a call whose end
    /// is not written is given one at the next start.
    pub async fn flush(&self) {
        self.shared.ledger.flush().await;
    }

    /// What the endpoints have taken as `$top` so far.
    pub(crate) fn tops(&self) -> &Tops {
        &self.shared.tops
    }

    /// How long after its begin a call's last attempt may begin.
    fn patience(&self, class: CallClass) -> Duration {
        match class {
            CallClass::Plain | CallClass::Journal | CallClass::Change => self.shared.retry.patience,
            // A window may have to pass before each attempt.
            CallClass::Feed(_) => {
                let windows = self.shared.feed_per.saturating_mul(self.shared.retry.attempts + 1);
                self.shared.retry.patience.max(windows)
            }
        }
    }

    /// One attempt: a second sending with a new token, when the first one's is refused, is part of
    /// it.
    async fn attempt(
        &self,
        request: &Request,
        sent: &mut u32,
        deadline: Instant,
    ) -> Result<Incoming, Failure> {
        let rejected = match self.send_once(request, None, sent, deadline).await? {
            Outcome::Answered(incoming) => return Ok(incoming),
            Outcome::TokenRefused(generation, _) => generation,
        };
        // At once: calls that wait for their turn must not go out with it.
        self.shared.tokens.refuse(rejected);
        match self.send_once(request, Some(rejected), sent, deadline).await? {
            Outcome::Answered(incoming) => Ok(incoming),
            Outcome::TokenRefused(_, refusal) => {
                self.shared.transport.counts.refused(&request.endpoint);
                let text = "the service refused a fresh token";
                Err(Error::caused(Kind::Unauthorized, text, refusal).into())
            }
        }
    }

    /// Waits until a call of this class may go out.
    async fn admit(
        &self,
        class: CallClass,
        rejected: Option<u64>,
        deadline: Instant,
    ) -> Result<(Slot, Option<FeedPermit>, Bearer), Failure> {
        let shared = &*self.shared;
        let transport = &shared.transport;
        match class {
            CallClass::Plain | CallClass::Journal | CallClass::Change => {
                let slot = transport.limits.slot(class).await?;
                let mut bearer = shared.tokens.bearer(transport, rejected, deadline).await?;
                transport.limits.acquire(deadline).await.map_err(Failure::last)?;
                while !shared.tokens.is_good(&bearer) {
                    // Refused while we waited: a new token, and a turn of its own.
                    bearer = shared.tokens.bearer(transport, rejected, deadline).await?;
                    transport.limits.acquire(deadline).await.map_err(Failure::last)?;
                }
                Ok((slot, None, bearer))
            }
            CallClass::Feed(feed) => loop {
                // The waits for lease and window are long: no slot is held and no token is aged by them.
                if let Some(lease) = &shared.lease {
                    lease.held().await.map_err(Failure::last)?;
                }
                shared.ledger.ready(deadline).await.map_err(Failure::last)?;
                let slot = transport.limits.slot(class).await?;
                let bearer = shared.tokens.bearer(transport, rejected, deadline).await?;
                transport.limits.after_retry_at(deadline).await.map_err(Failure::last)?;
                let is_held = shared.lease.as_ref().is_none_or(Lease::is_held);
                if !shared.tokens.is_good(&bearer) || !is_held {
                    continue;
                }
                if let Some(permit) = shared.ledger.begin(feed).await? {
                    return Ok((slot, Some(permit), bearer));
                }
            },
        }
    }

    async fn send_once(
        &self,
        request: &Request,
        rejected: Option<u64>,
        sent: &mut u32,
        deadline: Instant,
    ) -> Result<Outcome, Failure> {
        let shared = &*self.shared;
        let (_slot, permit, bearer) = self.admit(request.class, rejected, deadline).await?;
        let outgoing = Outgoing {
            method: request.method,
            path: request.path.clone(),
            query: request.query.encode(),
            authorization: Some(bearer.authorization.clone()),
            body: request.body.clone().map(|body| (body, JSON)),
            feed: permit.is_some(),
            largest: None,
            endpoint: Arc::clone(&request.endpoint),
            time_limit: match request.class {
                CallClass::Plain | CallClass::Feed(_) | CallClass::Change => shared.timeout,
                CallClass::Journal => shared.journal_timeout,
            },
            again: *sent > 0,
        };
        *sent += 1;
        let exchange = shared.transport.exchange(&outgoing);
        let exchanged = match shared.lease.as_ref().filter(|_| permit.is_some()) {
            None => exchange.await,
            Some(lease) => tokio::select! {
                biased;
                // Its connection is closed: it counts as one that may still arrive.
                () = lease.lost() => Err(Error::new(
                    Kind::Lease,
                    "the call was given up, because another host may ask the change feeds now",
                )),
                exchanged = exchange => exchanged,
            },
        };
        let incoming = match exchanged {
            Ok(incoming) => incoming,
            Err(error) => {
                let ended = match permit {
                    Some(permit) if !may_have_arrived(&error) => permit.not_sent().await,
                    Some(permit) => permit.aborted().await,
                    None => Ok(()),
                };
                if let Err(unwritten) = ended {
                    // Safe: a call without end is given one at the next start. The broken transport is
                    // what the caller has to know.
                    tracing::warn!(reason = unwritten.chain(), "feed call without end");
                }
                let journal_timeout =
                    error.kind() == Kind::Timeout && request.class == CallClass::Journal;
                return Err(Failure {
                    again: error.kind().is_retryable() && !journal_timeout,
                    error,
                });
            }
        };
        tracing::debug!(
            endpoint = &*request.endpoint,
            status = incoming.status,
            bytes = incoming.body.len(),
            "answered"
        );
        self.obey(&incoming, permit).await?;
        let status = incoming.status;
        let client_secret = shared.tokens.client_secret();
        let judged = verdict::judge(request, incoming, &bearer, client_secret, shared.most_records);
        let is_refused =
            judged.as_ref().is_err_and(|failure| failure.error.kind() != Kind::NotFound);
        if is_refused && (400..500).contains(&status) {
            shared.transport.counts.refused(&request.endpoint);
        }
        judged
    }

    /// Obeys what the service says of Retry-After, and ends a feed call.
    async fn obey(&self, incoming: &Incoming, permit: Option<FeedPermit>) -> Result<()> {
        let longest = self.shared.longest_hold;
        let asked = asked_wait(incoming.status, &incoming.headers, incoming.ended_at);
        if let Some(asked) = asked.filter(|asked| *asked > longest) {
            tracing::warn!(
                ?asked,
                obeyed = ?longest,
                "the platform asks for a longer wait than limits.retry_after"
            );
        }
        let asked = asked.map(|asked| asked.min(longest));
        match permit {
            None => {
                if let Some(retry_after) = asked {
                    self.shared.transport.limits.wait_for(retry_after);
                }
                Ok(())
            }
            Some(permit) => {
                // A refused call may mean a stricter throttle than the configured one (field
                // notes), so it holds the feed for a whole window.
                let refused = matches!(incoming.status, 403 | 408 | 429)
                    || (incoming.status >= 400 && asked.is_some());
                let least = if refused { self.shared.feed_per } else { Duration::ZERO };
                let retry_after = asked.unwrap_or_default().max(least);
                permit.answered(incoming.status, retry_after).await
            }
        }
    }
}
