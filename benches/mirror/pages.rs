//! The page server: the sandbox's answers to a complete listing, from files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use casemirror::sandbox::{Options, Sandbox};
use serde_json::value::RawValue;
use tokio::net::TcpListener;

/// Rows of a page: what the client asks for first.
const TOP: usize = 1_000;
const SEARCHES: [(&str, &str); 2] =
    [("cases", "AdvancedPropertySearch"), ("projects", "AdvancedProjectSearch")];

/// A page's file by its search and the smallest `Id` that is asked for.
type Files = BTreeMap<(&'static str, i64), PathBuf>;

#[derive(serde::Deserialize)]
struct Row {
    #[serde(rename = "Id")]
    id: i64,
}

/// Where the files are, for those who read them without HTTP.
pub(crate) fn files_of(folder: &Path, table: &str) -> PathBuf {
    folder.join("pages").join(table)
}

/// Writes the pages, prints address and size in MB, and serves until it is killed.
pub(crate) fn serve(folder: &Path, cases: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(async {
        let (files, bytes) = write_down(folder, cases).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        println!("http://{address} {}", bytes / 1_000_000);
        let app = Router::new().fallback(answer).with_state(Arc::new(files));
        axum::serve(listener, app).await.expect("loopback is served");
    });
}

async fn write_down(folder: &Path, cases: usize) -> (Files, u64) {
    let options = Options { cases, gzip: false, ..Options::default() };
    let sandbox = Sandbox::start(options).await.expect("the sandbox starts");
    // An error only says that there is a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::new();
    let login = format!(
        "grant_type=client_credentials&client_id={}&client_secret={}",
        sandbox.client_id(),
        sandbox.client_secret()
    );
    let token = http
        .post(format!("{}/authtoken", sandbox.base_url()))
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(login);
    let token = token.send().await.expect("a token").text().await.expect("a token");
    let token: serde_json::Value = serde_json::from_str(&token).expect("a token is JSON");
    let token = token["access_token"].as_str().expect("a token").to_owned();

    let (mut files, mut bytes) = (Files::new(), 0);
    for (table, search) in SEARCHES {
        std::fs::create_dir_all(files_of(folder, table)).expect("a folder can be made");
        let mut from = 0;
        loop {
            let url = format!(
                "{}/api/Search/{search}?$filter=Id%20ge%20{from}&$orderby=Id&$top={TOP}",
                sandbox.base_url()
            );
            let body = http.post(url).bearer_auth(&token).send().await.expect("a page");
            let body = body.error_for_status().expect("a page").bytes().await.expect("a page");
            let rows: Vec<&RawValue> = serde_json::from_slice(&body).expect("a list");
            let last: Option<Row> =
                rows.last().map(|row| serde_json::from_str(row.get()).expect("a row has an Id"));
            let path = files_of(folder, table).join(format!("{from:012}.json"));
            std::fs::write(&path, &body).expect("a page can be written");
            bytes += body.len() as u64;
            files.insert((table, from), path);
            match last {
                Some(last) if rows.len() == TOP => from = last.id + 1,
                _ => break,
            }
        }
    }
    sandbox.stop().await;
    (files, bytes)
}

async fn answer(State(files): State<Arc<Files>>, uri: Uri) -> Response {
    let json = |body: Vec<u8>| ([(header::CONTENT_TYPE, "application/json")], body).into_response();
    match uri.path() {
        "/authtoken" => {
            json(br#"{"access_token":"t","token_type":"bearer","expires_in":86400}"#.into())
        }
        "/api/User" => json(br#"{"TenantId":"bench"}"#.into()),
        path if path.contains("RecentlyModified") => json(b"[]".into()),
        path => {
            let Some((table, _)) = SEARCHES.iter().find(|(_, search)| path.ends_with(search))
            else {
                return StatusCode::NOT_FOUND.into_response();
            };
            match files.get(&(*table, smallest_id(&uri))).map(std::fs::read) {
                Some(Ok(body)) => json(body),
                Some(Err(_)) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
                // Behind the end.
                None => json(b"[]".into()),
            }
        }
    }
}

/// The n of `Id ge n`; 0 where nothing is filtered.
fn smallest_id(uri: &Uri) -> i64 {
    let query = uri.query().unwrap_or_default();
    let (_, filter) =
        query.split_once("%20ge%20").or_else(|| query.split_once("+ge+")).unwrap_or_default();
    let digits = filter.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}
