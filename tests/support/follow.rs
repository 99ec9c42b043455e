//! What the tests of following share: worlds without a throttle, the calls that were made, what
//! was written, and the documented writes over HTTP.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use casemirror::sandbox::{Act, Facet, Fault, Options, Outcome, Rule, When};
use duckdb::Connection;
use serde_json::Value;

use super::{World, shown};

/// Feed settings that never wait.
pub(crate) const UNTHROTTLED: &str = "[feed]\ncalls = 1000\nper = \"1s\"\n";

/// Options of a world whose feeds take as many calls as come.
pub(crate) fn unthrottled(cases: usize) -> Options {
    Options {
        cases,
        gzip: false,
        feed_calls: 100_000,
        feed_per: Duration::from_secs(1),
        ..Options::default()
    }
}

/// A world whose feeds take as many calls as come, and a mirror that asks them as often.
pub(crate) fn brisk(options: Options) -> World {
    let world = World::with(options);
    world.configure(UNTHROTTLED);
    world
}

/// Changes one facet of a case, now.
pub(crate) fn change(world: &World, case_id: i64, facet: Facet) -> Outcome {
    world.sandbox.act(&Act::Change { case_id: Some(case_id), facet, at: None }).unwrap()
}

/// The calls since the counters were reset, as `METHOD path` with how often.
pub(crate) fn calls(world: &World) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for call in world.sandbox.stats().log {
        *all.entry(format!("{} {}", call.method, call.path)).or_default() += 1;
    }
    all
}

/// The token and one call to each feed: what a run makes when nothing changed.
pub(crate) fn idle_calls() -> BTreeMap<String, u64> {
    [
        "POST /authtoken",
        "GET /api/Integrations/RecentlyModified/Cases",
        "GET /api/Integrations/RecentlyModified/Contacts",
    ]
    .map(|call| (call.to_owned(), 1))
    .into()
}

/// Ids of the cases that the property search shows, in order.
pub(crate) fn shown_cases(world: &World) -> Vec<i64> {
    ids(&world.sandbox.tables(&["cases"])["tables"]["cases"])
}

/// The column `id` of a table of the sandbox's state.
pub(crate) fn ids(rows: &Value) -> Vec<i64> {
    rows.as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

/// Per table of `main` and `history`: its rows and the newest `_synced_at`.
pub(crate) fn written(conn: &Connection) -> Vec<(String, i64, Option<String>)> {
    let mut tables = conn
        .prepare(
            "SELECT table_schema || '.' || table_name FROM information_schema.tables \
             WHERE table_schema IN ('main', 'history') ORDER BY ALL",
        )
        .unwrap();
    let names: Vec<String> =
        tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(names.len() >= 30, "{names:?}");
    names
        .into_iter()
        .map(|name| {
            let sql = format!("SELECT count(*), max(_synced_at)::VARCHAR FROM {name}");
            conn.query_row(&sql, [], |row| Ok((name, row.get(0)?, row.get(1)?))).unwrap()
        })
        .collect()
}

/// The differences of the mirror, but for those of one table.
pub(crate) fn differences_beside(world: &World, table: &str) -> Vec<String> {
    let mut all = world.differences();
    all.retain(|difference| !difference.starts_with(&format!("{table} ")));
    all
}

/// Holds the `nth` call to a path with its answer in hand, under this name.
pub(crate) fn hold(world: &World, name: &str, path: &str, nth: u64) {
    world.sandbox.fault(Rule {
        method: None,
        path: path.to_owned(),
        query: None,
        nth,
        count: Some(1),
        fault: Fault::Hold { name: name.to_owned(), when: When::After },
    });
}

/// Starts the binary, its output kept.
pub(crate) fn start(world: &World, args: &[&str]) -> Child {
    world.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a call is held, does something, lets the call go, and returns how the binary ended.
pub(crate) fn while_held(world: &World, child: Child, name: &str, act: impl FnOnce()) -> Output {
    assert!(world.wait(world.sandbox.wait_until_held(name)), "no call is held under {name}");
    act();
    world.sandbox.release(name);
    child.wait_with_output().unwrap()
}

/// Lets all that failed wait for longer than a test lasts, and no longer than anything waits.
pub(crate) const IN_TWENTY_HOURS: &str = "UPDATE sync.failures SET next_at = \
    (make_timestamp(epoch_us(now()) + 72000000000)::VARCHAR || '+00')::TIMESTAMPTZ";

/// Asserts how a run ended.
pub(crate) fn assert_status(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{}", shown(output));
}

/// Rows of a query, as one line of text each.
pub(crate) fn lines(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(&format!("SELECT q::VARCHAR FROM ({sql}) q")).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap_or_else(|e| panic!("{sql}: {e}"));
    rows.map(Result::unwrap).collect()
}

/// Another program that writes to the brokerage through its documented API.
pub(crate) struct Integrator<'w> {
    world: &'w World,
    token: String,
}

impl<'w> Integrator<'w> {
    pub(crate) fn log_in(world: &'w World) -> Integrator<'w> {
        let form = format!(
            "grant_type=client_credentials&client_id={}&client_secret={}",
            world.sandbox.client_id(),
            world.sandbox.client_secret()
        );
        let kind = "application/x-www-form-urlencoded";
        let answer = exchange(world, "POST", "/authtoken", kind, "", &form);
        let token = answer["access_token"].as_str().unwrap().to_owned();
        Integrator { world, token }
    }

    /// Makes a call, without a body where that is null, and returns the answer.
    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let more = format!("Authorization: Bearer {}\r\n", self.token);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        exchange(self.world, method, path, "application/json", &more, &body)
    }
}

/// One HTTP exchange, without any of the client's code; the answer has to be a 200.
fn exchange(
    world: &World,
    method: &str,
    path: &str,
    kind: &str,
    headers: &str,
    body: &str,
) -> Value {
    let address = world.sandbox.address();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: {kind}\r\n\
         {headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{method} {path}: {answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}
