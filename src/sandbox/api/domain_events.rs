//! Domain event subscriptions (reference 4.17, 6.4).

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::Shared;
use super::answer::{self, Answer, Refusal};
use super::read;

type Shares = State<Arc<Shared>>;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Order {
    url: String,
    /// None is the empty name.
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Move {
    #[serde(rename = "newUrl")]
    new_url: String,
    #[serde(default, rename = "Name")]
    name: String,
}

impl Shared {
    /// Subscribes, which begins with the handshake.
    fn subscribe_domain(&self, name: &str, url: &str) -> Answer {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !name.chars().all(is_name) {
            return Err(Refusal::bad_request(format!("The name '{name}' is not [a-z0-9-]+")));
        }
        if url::Url::parse(url).is_err() {
            return Err(Refusal::bad_request(format!("'{url}' is no address")));
        }
        let at = self.world().now().exact();
        self.outbox.subscribe_domain(name, url, &at);
        Ok(json_of(&json!(true)))
    }
}

fn json_of(value: &Json) -> Response {
    answer::json(value.to_string().into_bytes())
}

fn none(name: &str) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("No subscription has the name '{name}'"))
}

/// The parameter `Name`; without it, the empty name.
fn name_of(query: Option<String>) -> String {
    let query = query.unwrap_or_default();
    url::form_urlencoded::parse(query.as_bytes())
        .find(|(key, _)| key.eq_ignore_ascii_case("Name"))
        .map_or_else(String::new, |(_, name)| name.into_owned())
}

/// `POST /api/domainevents/url`.
pub(crate) async fn subscribe(State(shared): Shares, body: Bytes) -> Answer {
    let order: Order = read(&body)?;
    shared.subscribe_domain(&order.name, &order.url)
}

/// `PUT /api/domainevents/url`.
pub(crate) async fn replace(State(shared): Shares, body: Bytes) -> Answer {
    let order: Move = read(&body)?;
    if shared.outbox.domain_url(&order.name).is_none() {
        return Err(none(&order.name));
    }
    shared.subscribe_domain(&order.name, &order.new_url)
}

/// `GET /api/domainevents/url`.
pub(crate) async fn one(State(shared): Shares, RawQuery(query): RawQuery) -> Answer {
    let name = name_of(query);
    let url = shared.outbox.domain_url(&name).ok_or_else(|| none(&name))?;
    Ok(json_of(&json!(url)))
}

/// `DELETE /api/domainevents/url`.
pub(crate) async fn remove(State(shared): Shares, RawQuery(query): RawQuery) -> Answer {
    let name = name_of(query);
    let url = shared.outbox.unsubscribe_domain(&name).ok_or_else(|| none(&name))?;
    Ok(json_of(&json!(url)))
}
