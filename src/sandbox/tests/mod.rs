//! Claims about the sandbox as a caller on a real socket sees it.

use std::time::Duration;

use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value as Json, json};

use super::*;

mod access;
mod consents;
mod control;
mod deliveries;
mod domain_events;
mod dossier;
mod economics;
mod events;
mod faults;
mod feed;
mod files;
mod invoicing;
mod journals;
mod offices;
mod public;
mod receiver;
mod search;
mod state;
mod strict;
mod webhooks;
mod world;
mod writes;

struct Caller {
    sandbox: Sandbox,
    http: Client,
    token: String,
}

impl Caller {
    async fn new(options: Options) -> Caller {
        // Another test of this process may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let sandbox = Sandbox::start(options).await.unwrap();
        let http = Client::builder().no_proxy().build().unwrap();
        let mut caller = Caller { sandbox, http, token: String::new() };
        let secret = caller.sandbox.client_secret();
        let form = format!("grant_type=client_credentials&client_secret={secret}");
        let (_, granted) = caller.grant(&form).await;
        caller.token = granted["access_token"].as_str().unwrap().to_owned();
        caller
    }

    async fn grant(&self, form: &str) -> (StatusCode, Json) {
        let answer = self
            .http
            .post(format!("{}/authtoken", self.sandbox.base_url()))
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(format!("{form}&client_id={}", self.sandbox.client_id()))
            .send()
            .await
            .unwrap();
        (answer.status(), body(answer).await)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Json>,
    ) -> reqwest::Result<Response> {
        let url = format!("{}{path}", self.sandbox.base_url());
        let mut call = self.http.request(method, url).bearer_auth(&self.token);
        if let Some(body) = body {
            call = call.header("Content-Type", "application/json").body(body.to_string());
        }
        call.send().await
    }

    async fn ask(&self, method: Method, path: &str) -> (StatusCode, Json) {
        let answer = self.send(method, path, None).await.unwrap();
        (answer.status(), body(answer).await)
    }

    async fn get(&self, path: &str) -> Json {
        let (status, answer) = self.ask(Method::GET, path).await;
        assert!(status.is_success(), "{path}: {status} {answer}");
        answer
    }

    async fn search(&self, which: &str, query: &str) -> Json {
        let path = format!("/api/Search/Advanced{which}Search?{query}");
        let (status, answer) = self.ask(Method::POST, &path).await;
        assert!(status.is_success(), "{path}: {status} {answer}");
        answer
    }

    fn rows(&self, table: &str) -> Vec<Json> {
        self.sandbox.tables(&[table])["tables"][table].as_array().unwrap().clone()
    }

    fn change(&self, case_id: i64, facet: Facet) -> Outcome {
        self.sandbox.act(&Act::Change { case_id: Some(case_id), facet, at: None }).unwrap()
    }

    async fn feed_row(&self, case_id: i64) -> Option<Json> {
        let path =
            format!("/api/Integrations/RecentlyModified/Cases?$filter=CaseId eq {case_id}&$top=1");
        self.get(&path).await.as_array().unwrap().first().cloned()
    }
}

async fn body(answer: Response) -> Json {
    let text = answer.text().await.unwrap();
    if text.is_empty() { Json::Null } else { serde_json::from_str(&text).unwrap() }
}

fn quiet() -> Options {
    Options { cases: 60, feed_calls: 10_000, ..Options::default() }
}

fn ids(list: &Json, field: &str) -> Vec<i64> {
    list.as_array().unwrap().iter().map(|row| row[field].as_i64().unwrap()).collect()
}

/// Whether a canonical cell and a value on the wire say the same.
fn same(cell: &Json, wire: &Json) -> bool {
    match (cell, wire) {
        (Json::String(cell), Json::Number(number)) => {
            // Close enough to see a wrong field; exactness has tests of its own.
            (cell.parse::<f64>().unwrap() - number.as_f64().unwrap()).abs() < 0.001
        }
        (Json::Array(cells), Json::Array(list)) => {
            cells.len() == list.len() && cells.iter().zip(list).all(|(a, b)| same(a, b))
        }
        (Json::String(cell), Json::String(text)) if cell != text => {
            let at = Ticks::parse(text, true).map(Ticks::canonical);
            at.as_ref() == Some(cell)
        }
        (Json::Null, Json::String(text)) => text.starts_with("0001-01-01T00:00:00"),
        (cell, wire) => cell == wire,
    }
}

fn assert_same_row(cells: &Json, wire: &Json, context: &str) {
    use heck::ToSnakeCase;
    let mut compared = 0;
    for (field, value) in wire.as_object().unwrap() {
        if let Some(cell) = cells.get(field.to_snake_case()) {
            assert!(same(cell, value), "{context} {field}: {cell} is not {value}");
            compared += 1;
        }
    }
    assert!(compared > 0, "{context}: nothing to compare");
    for (column, cell) in cells.as_object().unwrap() {
        let on_wire = wire.as_object().unwrap().keys().any(|f| f.to_snake_case() == *column);
        let key =
            ["case_id", "cost_type", "type", "case_guid", "_extra"].contains(&column.as_str());
        assert!(on_wire || key || cell.is_null(), "{context}: {column} is not on the wire");
    }
}
