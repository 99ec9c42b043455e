//! The page server: answers of the sandbox, each made once and then given from memory.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{self, Body};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use casemirror::sandbox::{Options, Sandbox};
use serde_json::value::RawValue;
use tokio::net::TcpListener;

/// Rows of a page: what the program asks for first.
const TOP: usize = 1_000;
/// The searches, by their tables.
pub(crate) const SEARCHES: [(&str, &str); 2] =
    [("cases", "AdvancedPropertySearch"), ("projects", "AdvancedProjectSearch")];

/// The process that serves; it ends with this value.
pub(crate) struct Server {
    process: Child,
    pub(crate) base_url: String,
    pub(crate) credentials: (String, String),
}

impl Server {
    /// Starts it, with so many cases and lines of a revenue journal's month.
    pub(crate) fn start(cases: usize, lines: usize) -> Server {
        let this = std::env::current_exe().expect("a running program has a path");
        let mut process = Command::new(this)
            .args(["--part", "serve", "--folder", ".", "--cases", &cases.to_string()])
            .args(["--lines", &lines.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the bench runs itself");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("its output is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it prints its address");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [base_url, id, secret] = words[..] else { panic!("the server has not started") };
        let (base_url, credentials) = (base_url.to_owned(), (id.to_owned(), secret.to_owned()));
        Server { process, base_url, credentials }
    }

    pub(crate) fn credentials(&self) -> (&str, &str) {
        (&self.credentials.0, &self.credentials.1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the server is made of.
struct Recorder {
    sandbox: Sandbox,
    http: reqwest::Client,
    answers: Mutex<HashMap<String, Bytes>>,
}

/// Prints address and credentials, and serves until it is killed.
pub(crate) fn serve(cases: usize, lines: Option<&str>) {
    let options = Options {
        cases,
        gzip: false,
        feed_calls: 100_000,
        feed_per: Duration::from_secs(1),
        token_lifetime: Duration::from_secs(86_400),
        journal_lines: lines.and_then(|n| n.parse().ok()),
        ..Options::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(async {
        // An error only says that there is a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let sandbox = Sandbox::start(options).await.expect("the sandbox starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        println!("http://{address} {} {}", sandbox.client_id(), sandbox.client_secret());
        let recorder =
            Recorder { sandbox, http: reqwest::Client::new(), answers: Mutex::default() };
        let app = Router::new().fallback(answer).with_state(Arc::new(recorder));
        axum::serve(listener, app).await.expect("loopback is served");
    });
}

/// What was answered to the same request before, else what the sandbox answers.
async fn answer(State(recorder): State<Arc<Recorder>>, request: Request) -> Response {
    let (parts, asked) = request.into_parts();
    let Ok(asked) = body::to_bytes(asked, 1 << 20).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    // What these say depends on when they are asked.
    let lasts = !path.contains("RecentlyModified") && !path.starts_with("/authtoken");
    let key = format!("{} {path} {}", parts.method, String::from_utf8_lossy(&asked));
    let known = || recorder.answers.lock().unwrap_or_else(PoisonError::into_inner);
    let json = |body: Bytes| ([(header::CONTENT_TYPE, "application/json")], body).into_response();
    let before = known().get(&key).filter(|_| lasts).cloned();
    if let Some(body) = before {
        return json(body);
    }
    let url = format!("{}{path}", recorder.sandbox.base_url());
    let mut call = recorder.http.request(parts.method, url).body(asked);
    for name in [header::AUTHORIZATION, header::CONTENT_TYPE] {
        if let Some(value) = parts.headers.get(&name) {
            call = call.header(name, value);
        }
    }
    let Ok(answer) = call.send().await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let (status, headers) = (answer.status(), answer.headers().clone());
    let Ok(body) = answer.bytes().await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    if status == StatusCode::OK && lasts {
        known().insert(key, body.clone());
        return json(body);
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    for name in [header::CONTENT_TYPE, header::DATE] {
        if let Some(value) = headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

#[derive(serde::Deserialize)]
struct Row {
    #[serde(rename = "Id")]
    id: i64,
}

/// Asks for every page that the compared programs will ask for, so that the server has it, and writes
/// those of the program's own way of paging under `folder`. Returns their bytes.
pub(crate) fn record(server: &Server, folder: &Path) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(async {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::new();
        let base_url = &server.base_url;
        let login = format!(
            "grant_type=client_credentials&client_id={}&client_secret={}",
            server.credentials.0, server.credentials.1
        );
        let token = http
            .post(format!("{base_url}/authtoken"))
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(login);
        let token = token.send().await.expect("a token").text().await.expect("a token");
        let token: serde_json::Value = serde_json::from_str(&token).expect("a token is JSON");
        let token = token["access_token"].as_str().expect("a token").to_owned();
        let page = async |search: &str, query: String| {
            let url = format!("{base_url}/api/Search/{search}?{query}");
            let answer = http.post(url).bearer_auth(&token).send().await.expect("a page");
            answer.error_for_status().expect("a page").bytes().await.expect("a page")
        };
        let mut bytes = 0;
        for (table, search) in SEARCHES {
            let files = folder.join("pages").join(table);
            std::fs::create_dir_all(&files).expect("a folder can be made");
            let (mut from, mut skip) = (0, 0);
            loop {
                let query = format!("$filter=Id%20ge%20{from}&$orderby=Id&$top={TOP}");
                let body = page(search, query).await;
                let rows: Vec<&RawValue> = serde_json::from_slice(&body).expect("a list");
                let last: Option<Row> = rows
                    .last()
                    .map(|row| serde_json::from_str(row.get()).expect("a row has an Id"));
                std::fs::write(files.join(format!("{from:012}.json")), &body)
                    .expect("a page can be written");
                bytes += body.len();
                // As dlt asks, which has no keyset paging.
                page(search, format!("%24orderby=Id&%24top={TOP}&%24skip={skip}")).await;
                skip += TOP;
                match last {
                    Some(last) if rows.len() == TOP => from = last.id + 1,
                    _ => break,
                }
            }
        }
        bytes
    })
}
