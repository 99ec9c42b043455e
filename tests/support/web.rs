//! A caller of what the daemon serves.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::daemon::Daemon;

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Where a daemon's status page is, as its log says.
pub(crate) fn page_of(daemon: &mut Daemon<'_>, log: impl Fn() -> String) -> String {
    let address = || {
        let log = log();
        let (_, rest) = log.split_once("page=\"http://")?;
        rest.split_once("/\"").map(|(address, _)| address.to_owned())
    };
    daemon.wait_until("the page is served", || address().is_some());
    address().unwrap()
}

/// Asks with a version of HTTP whose answers come in one piece.
pub(crate) fn ask(address: &str, method: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

pub(crate) fn get(address: &str, path: &str) -> Answer {
    ask(address, "GET", path)
}

/// A sample of a scrape: the value behind a name with its labels.
pub(crate) fn sample(metrics: &str, name: &str) -> f64 {
    found(metrics, name).unwrap_or_else(|| panic!("no {name} in {metrics}"))
}

/// The same, where there is one.
pub(crate) fn found(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")))?;
    line.rsplit(' ').next().unwrap().parse().ok()
}
