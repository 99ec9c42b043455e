//! What goes over the socket: a line of JSON each way, and more of them back.
//!
//! The caller sends one [`Request`]; the daemon answers with [`Frame`]s, the last of which is
//! [`Frame::Exit`] or [`Frame::Failed`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::config::{Config, Salt};
use crate::error::{Error, Kind, Result, Told};
use crate::progress::Now;

/// Requests are command lines and settings, and of an answer comes a part at a time: larger is nothing of ours.
const LARGEST_LINE: u64 = 4 << 20; // 4 MiB
/// So much text is in a frame; as JSON it may be six times as long.
const LARGEST_TEXT: usize = 512 << 10; // 512 KiB

/// A command that is forwarded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request<C> {
    /// The caller's version of the program: commands may differ between two.
    pub(crate) version: String,
    pub(crate) command: C,
    /// The caller's effective configuration; the daemon's has to be the same.
    pub(crate) keys: Keys,
}

/// What a configuration is compared by; no secret is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keys {
    salt: Salt,
    values: BTreeMap<String, String>,
}

impl Keys {
    /// Those of the caller. `offline`: the command never calls the platform, so how to log in there does not have to be
    /// known.
    pub(crate) fn of(config: &Config, offline: bool) -> Keys {
        let salt = Salt::random();
        let mut values = config.compared_keys(&salt);
        if offline {
            values.retain(|key, _| !config.is_unknown_offline(key));
        }
        Keys { salt, values }
    }

    /// The keys in which the caller's configuration differs from the daemon's, `own`.
    pub(crate) fn differing_from(&self, own: &Config) -> Vec<String> {
        differing(&self.values, &own.compared_keys(&self.salt))
    }
}

/// A part of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Frame {
    Stdout(String),
    /// What is being done for the caller now, if anything is; the caller shows it as it shows its own.
    Progress(Option<Now>),
    /// The command has ended, with this status.
    Exit(u8),
    /// The command has ended with an error, which the caller shows as it shows its own.
    Failed(Told),
}

/// The parts of a text that go into a frame each.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let longest = LARGEST_TEXT.min(rest.len());
        let end = (0..=longest).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or_default();
        let (part, behind) = rest.split_at(end);
        rest = behind;
        (!part.is_empty()).then_some(part)
    })
}

/// Of what the caller knows, what is another in the daemon's.
fn differing(caller: &BTreeMap<String, String>, own: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = caller.keys().collect();
    names.into_iter().filter(|key| caller.get(*key) != own.get(*key)).cloned().collect()
}

/// Reads one line of JSON; `None` when there are no more.
///
/// # Errors
/// `Io` when the connection breaks, `BadAnswer` for what is not ours.
pub(crate) async fn receive<T: for<'de> Deserialize<'de>>(
    from: &mut (impl AsyncBufRead + Unpin),
) -> Result<Option<T>> {
    let mut line = String::new();
    let read = from.take(LARGEST_LINE).read_line(&mut line).await.map_err(broken)?;
    if read == 0 {
        return Ok(None);
    }
    let value = serde_json::from_str(&line)
        .map_err(|e| Error::caused(Kind::BadAnswer, "what came over the socket is not known", e))?;
    Ok(Some(value))
}

/// Writes one line of JSON.
///
/// # Errors
/// `Io` when the connection breaks.
pub(crate) async fn send(to: &mut (impl AsyncWrite + Unpin), value: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(value)
        .map_err(|e| Error::caused(Kind::Internal, "a message is no JSON", e))?;
    line.push('\n');
    to.write_all(line.as_bytes()).await.map_err(broken)?;
    to.flush().await.map_err(broken)
}

fn broken(source: std::io::Error) -> Error {
    Error::caused(Kind::Io, "the connection to the daemon broke", source)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_text_of_any_length_comes_over_in_parts() {
        // The worst that JSON makes of a text, and places where it must not be cut.
        let text = format!("{}{}", "\u{1}".repeat(3 << 20), "\u{f8}\u{1f3e0}".repeat(400_000));
        let mut told = String::new();
        for part in parts(&text) {
            let mut line = Vec::new();
            send(&mut line, &Frame::Stdout(part.to_owned())).await.unwrap();
            let Frame::Stdout(part) = receive(&mut &line[..]).await.unwrap().unwrap() else {
                unreachable!("it was sent as output")
            };
            told.push_str(&part);
        }
        assert!(told == text);
        assert_eq!(parts("").count(), 0);
    }

    #[tokio::test]
    async fn what_is_sent_is_received_line_breaks_included() {
        let doing = Now { what: "listing cases".into(), ..Now::default() };
        let left = Some(Duration::from_millis(1_500));
        let frames = [
            Frame::Progress(Some(Now { left, ..doing.clone() })),
            Frame::Progress(Some(doing)),
            Frame::Progress(None),
            Frame::Stdout("one\ntwo \u{2028} \"three\"\n".into()),
            Frame::Failed(Told::of(&Error::new(Kind::Io, "one\ntwo").within("three"))),
            Frame::Exit(3),
        ];
        let mut sent = Vec::new();
        for frame in &frames {
            send(&mut sent, frame).await.unwrap();
        }
        let mut from = sent.as_slice();
        for frame in frames {
            assert_eq!(receive::<Frame>(&mut from).await.unwrap(), Some(frame));
        }
        assert_eq!(receive::<Frame>(&mut from).await.unwrap(), None);
        assert!(receive::<Frame>(&mut "GET / HTTP/1.1\n".as_bytes()).await.is_err());
    }

    #[test]
    fn what_differs_is_named_and_what_the_caller_does_not_know_is_not() {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let own: BTreeMap<_, _> = map(&[("feed.poll", "10s"), ("feed.per", "30s"), ("a.b", "1")]);
        assert_eq!(
            differing(&map(&[("feed.poll", "5s"), ("feed.per", "30s")]), &own),
            ["feed.poll"]
        );
        assert!(differing(&own.clone(), &own).is_empty());
    }
}
