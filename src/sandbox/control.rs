//! What tests order from the sandbox: in Rust on [`Sandbox`], and the same over HTTP under
//! `/sandbox`, so that they can drive a separate process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::api::answer::{self, Refusal};
use super::faults::Rule;
use super::state::{self, Wanted};
use super::stats::Report;
use super::throttle::ThrottleStyle;
use super::world::journals::{Level, Month};
use super::world::{Act, Lag, Outcome};
use super::{Deliveries, HeavyJournal, JournalPaging, Options, Sandbox, Shared};

/// Settings that can be turned while the sandbox runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "control", rename_all = "snake_case", deny_unknown_fields)]
pub enum Control {
    /// The API user loses a permission, such as `Activities - Read`.
    Withdraw { permission: String },
    /// And has it again.
    Grant { permission: String },
    /// The searches learn of changes after this time, those already waiting included.
    SearchLag { ms: u64 },
    /// The searches learn of nothing until a lag is set.
    FreezeSearch {},
    /// All three searches answer and list nothing, until this is taken back.
    SearchListsNothing { on: bool },
    /// The cases feed leaves a case out for this many calls.
    HideFromFeed { case_id: i64, polls: u64 },
    /// Another throttle of the feeds; what is left out stays. Arrivals so far still count.
    Throttle {
        #[serde(default)]
        calls: Option<u32>,
        #[serde(default)]
        per_ms: Option<u64>,
        #[serde(default)]
        style: Option<ThrottleStyle>,
    },
    /// All tokens expire at once.
    ExpireTokens {},
    /// Refresh tokens are answered with `invalid_grant`.
    RefuseRefresh { on: bool },
    /// The client credentials are no longer taken.
    RefuseCredentials { on: bool },
    /// The `Date` header is ahead of the clock that `ModifiedDate` is taken from.
    DateSkew { ms: i64 },
    /// The world's clock goes on by so much at once.
    Advance { ms: u64 },
    /// Another tenant answers at this address.
    Tenant { id: String },
    /// Another way for journals to page.
    JournalPaging { paging: JournalPaging },
    /// A journal that cannot be read at once; none: all can.
    HeavyJournal {
        #[serde(default)]
        heavy: Option<HeavyJournal>,
    },
}

/// The settings behind [`Control`] that have no other home.
#[derive(Debug, Default)]
pub(crate) struct Knobs {
    pub(crate) withdrawn: BTreeSet<String>,
    pub(crate) date_skew_ms: i64,
    pub(crate) tenant: Option<String>,
    pub(crate) journal_paging: JournalPaging,
    pub(crate) heavy_journal: Option<HeavyJournal>,
}

impl Knobs {
    /// As a sandbox begins with them.
    pub(crate) fn new(options: &Options) -> Knobs {
        Knobs {
            journal_paging: options.journal_paging,
            heavy_journal: options.heavy_journal,
            ..Knobs::default()
        }
    }
}

impl Shared {
    /// Turns a setting.
    pub(crate) fn control(&self, control: Control) {
        match control {
            Control::Withdraw { permission } => {
                self.knobs().withdrawn.insert(permission);
            }
            Control::Grant { permission } => {
                self.knobs().withdrawn.remove(&permission);
            }
            Control::SearchLag { ms } => {
                self.world().index.lag = Lag::By(Duration::from_millis(ms));
            }
            Control::FreezeSearch {} => self.world().index.lag = Lag::Frozen,
            Control::SearchListsNothing { on } => self.world().index.lists_nothing = on,
            Control::HideFromFeed { case_id, polls } => {
                self.world().feed_hides.insert(case_id, polls);
            }
            Control::Throttle { calls, per_ms, style } => {
                let mut throttle = self.throttle();
                throttle.calls = calls.unwrap_or(throttle.calls);
                throttle.per = per_ms.map_or(throttle.per, Duration::from_millis);
                throttle.style = style.unwrap_or(throttle.style);
            }
            Control::ExpireTokens {} => self.tokens().expire_all(),
            Control::RefuseRefresh { on } => self.tokens().refuse_refresh = on,
            Control::RefuseCredentials { on } => self.tokens().refuse_credentials = on,
            Control::DateSkew { ms } => self.knobs().date_skew_ms = ms,
            Control::Advance { ms } => self.world().advance(Duration::from_millis(ms)),
            Control::Tenant { id } => self.knobs().tenant = Some(id),
            Control::JournalPaging { paging } => self.knobs().journal_paging = paging,
            Control::HeavyJournal { heavy } => self.knobs().heavy_journal = heavy,
        }
    }

    fn report(&self) -> Report {
        let throttle = self.throttle();
        self.stats().report(&throttle)
    }

    fn reset_stats(&self) {
        self.throttle().reset_counts();
        *self.stats() = super::Stats::default();
    }
}

impl Sandbox {
    /// The whole current truth as canonical cells: `{"tables": {"activities": [{...}]}}`.
    pub fn state(&self) -> Json {
        state::state(&self.shared, Wanted::all())
    }

    /// The truth of some tables only.
    pub fn tables(&self, tables: &[&str]) -> Json {
        state::state(&self.shared, Wanted { tables: Some(tables), ..Wanted::all() })
    }

    /// The truth of some tables, with the journals of another level, and from a month (`2025-01`)
    /// on. A month that is none leaves nothing out.
    pub fn journal_tables(&self, level: Level, since: Option<&str>, tables: &[&str]) -> Json {
        let since = since.and_then(Month::parse);
        state::state(&self.shared, Wanted { tables: Some(tables), level, since })
    }

    /// What was called.
    pub fn stats(&self) -> Report {
        self.shared.report()
    }

    /// Begins to count anew; the throttle's window goes on.
    pub fn reset_stats(&self) {
        self.shared.reset_stats();
    }

    /// Does what is ordered.
    ///
    /// # Errors
    /// Why it cannot be done: no such case, no date-time.
    pub fn act(&self, act: &Act) -> Result<Outcome, String> {
        self.shared.world().act(act)
    }

    /// Turns a setting.
    pub fn control(&self, control: Control) {
        self.shared.control(control);
    }

    /// Orders a fault; the id is for [`Sandbox::remove_fault`].
    pub fn fault(&self, rule: Rule) -> u64 {
        self.shared.faults.add(rule)
    }

    pub fn remove_fault(&self, id: u64) {
        self.shared.faults.remove(id);
    }

    /// Removes all faults and lets all held calls go.
    pub fn clear_faults(&self) {
        self.shared.faults.clear();
    }

    /// How many calls each fault has hit, by id.
    pub fn fault_hits(&self) -> Vec<(u64, u64)> {
        self.shared.faults.hits()
    }

    /// Lets the calls go that are held under this name.
    pub fn release(&self, name: &str) {
        self.shared.faults.release(name);
    }

    /// Waits until a call is held under this name; false where none comes within half a minute.
    pub async fn wait_until_held(&self, name: &str) -> bool {
        self.shared.faults.wait_until_held(name, Duration::from_secs(30)).await
    }

    /// What was delivered to subscribers, and what is still to be.
    pub fn deliveries(&self) -> Deliveries {
        self.shared.outbox.report()
    }

    /// Waits until no delivery is pending any more, those between two retries included; false where
    /// some are after half a minute.
    pub async fn wait_until_delivered(&self) -> bool {
        self.shared.outbox.wait_until_settled(Duration::from_secs(30)).await
    }

    /// Ids of all cases that exist, in order.
    pub fn case_ids(&self) -> Vec<i64> {
        self.shared.world().cases().map(|(handle, _)| handle.facts().id).collect()
    }
}

/// The routes under `/sandbox`.
pub(crate) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/sandbox/state", get(get_state))
        .route("/sandbox/stats", get(async |State(shared): Shares| reply(&shared.report())))
        .route("/sandbox/stats/reset", post(reset))
        .route("/sandbox/credentials", get(credentials))
        .route("/sandbox/act", post(act))
        .route("/sandbox/control", post(control))
        .route("/sandbox/faults", get(hits).post(add_fault).delete(clear))
        .route("/sandbox/faults/{id}", delete(remove))
        .route("/sandbox/release", post(release))
        .route("/sandbox/wait_until_held", post(wait))
        .route(
            "/sandbox/deliveries",
            get(async |State(shared): Shares| reply(&shared.outbox.report())),
        )
        .route("/sandbox/deliveries/wait", post(wait_for_deliveries))
}

type Shares = State<Arc<Shared>>;

fn reply(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => answer::json(body),
        Err(error) => {
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
        }
    }
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))
}

async fn get_state(State(shared): Shares, RawQuery(query): RawQuery) -> Result<Response, Refusal> {
    let query = query.unwrap_or_default();
    let mut tables = Vec::new();
    let mut wanted = Wanted::all();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let unknown = || Refusal::bad_request(format!("The value '{value}' of {name} is unknown"));
        match name.as_ref() {
            "tables" => tables.extend(value.split(',').map(str::to_owned)),
            "level" => {
                let level = Level::ALL.into_iter().find(|level| level.name() == value);
                wanted.level = level.ok_or_else(unknown)?;
            }
            "since" => wanted.since = Some(Month::parse(&value).ok_or_else(unknown)?),
            _ => return Err(Refusal::bad_request(format!("There is no parameter '{name}'"))),
        }
    }
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    let tables = (!tables.is_empty()).then_some(tables.as_slice());
    Ok(reply(&state::state(&shared, Wanted { tables, ..wanted })))
}

async fn reset(State(shared): Shares) -> Response {
    shared.reset_stats();
    reply(&json!({}))
}

async fn credentials(State(shared): Shares) -> Response {
    let tokens = shared.tokens();
    reply(&json!({
        "base_url": shared.base_url,
        "client_id": tokens.client_id(),
        "client_secret": tokens.client_secret(),
    }))
}

async fn act(State(shared): Shares, body: Bytes) -> Result<Response, Refusal> {
    let order: Act = read(&body)?;
    let outcome = shared.world().act(&order).map_err(Refusal::bad_request)?;
    Ok(reply(&outcome))
}

async fn control(State(shared): Shares, body: Bytes) -> Result<Response, Refusal> {
    shared.control(read(&body)?);
    Ok(reply(&json!({})))
}

async fn hits(State(shared): Shares) -> Response {
    let hits: Vec<Json> = shared
        .faults
        .hits()
        .into_iter()
        .map(|(id, hits)| json!({"id": id, "hits": hits}))
        .collect();
    reply(&hits)
}

async fn add_fault(State(shared): Shares, body: Bytes) -> Result<Response, Refusal> {
    let rule: Rule = read(&body)?;
    Ok(reply(&json!({ "id": shared.faults.add(rule) })))
}

async fn clear(State(shared): Shares) -> Response {
    shared.faults.clear();
    reply(&json!({}))
}

async fn remove(State(shared): Shares, Path(id): Path<u64>) -> Response {
    shared.faults.remove(id);
    reply(&json!({}))
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

async fn release(State(shared): Shares, body: Bytes) -> Result<Response, Refusal> {
    let named: Named = read(&body)?;
    shared.faults.release(&named.name);
    Ok(reply(&json!({})))
}

async fn wait(State(shared): Shares, body: Bytes) -> Result<Response, Refusal> {
    let named: Named = read(&body)?;
    let at_most = Duration::from_millis(named.timeout_ms.unwrap_or(30_000));
    let held = shared.faults.wait_until_held(&named.name, at_most).await;
    Ok(reply(&json!({ "held": held })))
}

#[derive(Deserialize)]
struct Patience {
    #[serde(default)]
    timeout_ms: Option<u64>,
}

async fn wait_for_deliveries(State(shared): Shares, body: Bytes) -> Result<Response, Refusal> {
    let patience: Patience = read(&body)?;
    let at_most = Duration::from_millis(patience.timeout_ms.unwrap_or(30_000));
    Ok(reply(&json!({ "settled": shared.outbox.wait_until_settled(at_most).await })))
}
