//! Webhook subscriptions (reference 4.17).

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use bytes::Bytes;
use serde::Deserialize;

use super::super::Shared;
use super::super::deliveries::letter::Target;
use super::super::faults::Twist;
use super::super::records::registers as records;
use super::super::wire::Ticks;
use super::super::world::registers::{EVENT_TYPES, Subscription, secret};
use super::answer::{self, Answer, Refusal};
use super::read;
use super::strict::{NoBody, NoQuery};

type Shares = State<Arc<Shared>>;

const READ: &str = "WebHookSubscription - Read";
const WRITE: &str = "WebHookSubscription - Write";
const DELETE: &str = "WebHookSubscription - Delete";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Order {
    event_type: String,
    url: String,
}

impl Order {
    fn parse(body: &[u8]) -> Result<Order, Refusal> {
        let order: Order = read(body)?;
        if !EVENT_TYPES.contains(&order.event_type.as_str()) {
            return Err(Refusal::bad_request(format!("'{}' is no event type", order.event_type)));
        }
        if url::Url::parse(&order.url).is_err() {
            return Err(Refusal::bad_request(format!("'{}' is no address", order.url)));
        }
        Ok(order)
    }
}

fn none(id: &str) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("Subscription {id} does not exist"))
}

impl Shared {
    /// Changes a subscription; the answer is what it is then.
    fn change_subscription(&self, id: &str, edit: impl FnOnce(&mut Subscription, Ticks)) -> Answer {
        let mut world = self.world();
        let at = world.stamp();
        let known = world.registers.subscriptions.iter_mut().find(|one| one.id.to_string() == id);
        let known = known.ok_or_else(|| none(id))?;
        edit(known, at);
        known.modified = Some(at);
        Ok(answer::record(&records::subscription(known)))
    }
}

/// `GET /api/WebHooks/Subscriptions`.
pub(crate) async fn list(
    State(shared): Shares,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&[READ])?;
    let rows = shared.world().registers.subscriptions.iter().map(records::subscription).collect();
    shared.list(rows, Twist { ignore_paging: true, ..twist }, raw)
}

/// `GET /api/WebHooks/Subscriptions/{id}`.
pub(crate) async fn one(State(shared): Shares, Path(id): Path<String>, _: NoQuery) -> Answer {
    shared.need(&[READ])?;
    let world = shared.world();
    let known = world.registers.subscriptions.iter().find(|one| one.id.to_string() == id);
    known.map(|one| answer::record(&records::subscription(one))).ok_or_else(|| none(&id))
}

/// `POST /api/WebHooks/Subscribe`.
pub(crate) async fn subscribe(State(shared): Shares, _: NoQuery, body: Bytes) -> Answer {
    shared.need(&[WRITE])?;
    let order = Order::parse(&body)?;
    let mut world = shared.world();
    let at = world.stamp();
    let seed = world.basis.seed;
    let made = world.registers.subscribe(seed, order.event_type, order.url, at);
    Ok(answer::record(&records::subscription(&made)))
}

/// `PUT /api/WebHooks/Subscriptions/{id}`.
pub(crate) async fn replace(
    State(shared): Shares,
    Path(id): Path<String>,
    _: NoQuery,
    body: Bytes,
) -> Answer {
    shared.need(&[WRITE])?;
    let order = Order::parse(&body)?;
    shared.change_subscription(&id, |known, _| {
        (known.event, known.url) = (order.event_type, order.url);
    })
}

/// `PUT /api/WebHooks/Subscriptions/{id}/UpdateSecret`.
pub(crate) async fn renew_secret(
    State(shared): Shares,
    Path(id): Path<String>,
    _: NoQuery,
    _: NoBody,
) -> Answer {
    shared.need(&[WRITE])?;
    let seed = shared.options.seed;
    shared.change_subscription(&id, |known, at| {
        known.secret = secret(seed, known.id, at.0.unsigned_abs());
    })
}

/// `DELETE /api/WebHooks/Subscriptions/{id}`.
pub(crate) async fn remove(State(shared): Shares, Path(id): Path<String>, _: NoQuery) -> Answer {
    shared.need(&[DELETE])?;
    let mut world = shared.world();
    let list = &mut world.registers.subscriptions;
    let position = list.iter().position(|one| one.id.to_string() == id).ok_or_else(|| none(&id))?;
    let gone = list.remove(position);
    world.outbox.forget(&Target::Webhook(gone.id));
    Ok(answer::none())
}
