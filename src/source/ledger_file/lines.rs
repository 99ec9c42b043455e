//! The lines of a ledger's file: what they say, and how calls are written as such.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::scope::FeedName;
use crate::source::boot::BootTime;
use crate::source::feed_calls::{Caller, Change, Ended, FeedCall};

/// What the whole lines of a ledger say, how many bytes they are, and whether the rest can be the start of one.
pub(super) fn lines_of(ledger: &[u8]) -> (Vec<Option<Change>>, usize, bool) {
    let whole = ledger.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (lines, rest) = ledger.split_at(whole);
    let (from, open) = beginning(lines);
    let mut changes: Vec<Option<Change>> = open.into_iter().map(Line::change).collect();
    for (at, line) in lines_from(lines, from) {
        match line {
            // The last one is obeyed, and holds what is left of those before.
            Some(Line::Anew { from, .. }) if from <= at as u64 => {}
            line => changes.push(line.and_then(Line::change)),
        }
    }
    (changes, whole, is_start_of_line(rest))
}

/// From which byte on lines count, and what counts beside them: see [`super::LedgerFile::begin_at`].
fn beginning(lines: &[u8]) -> (usize, Vec<Line>) {
    let marks = lines.rsplit(|byte| *byte == b'\n').filter(|line| line.starts_with(ANEW));
    let mark = marks.map(serde_json::from_slice).find_map(|line| match line {
        Ok(Line::Anew { from, open }) => Some((usize::try_from(from).ok()?, open)),
        _ => None,
    });
    mark.filter(|(from, _)| *from <= lines.len()).unwrap_or_default()
}

/// Each line from byte `from` on: where it begins, and what it says; `None` for one that says nothing.
fn lines_from(lines: &[u8], from: usize) -> impl Iterator<Item = (usize, Option<Line>)> {
    let mut next = from;
    lines[from..].split(|byte| *byte == b'\n').filter_map(move |line| {
        let at = next;
        next += line.len() + 1;
        (!line.is_empty()).then(|| (at, serde_json::from_slice(line).ok()))
    })
}

/// Where the lines of a call begin, and those of all later ones.
pub(super) fn start_of(ledger: &[u8], id: i64) -> Option<usize> {
    let is_sent =
        |line: &Option<Line>| matches!(line, Some(Line::Sent { id: of, .. }) if *of == id);
    let (from, _) = beginning(ledger);
    lines_from(ledger, from).find(|(_, line)| is_sent(line)).map(|(at, _)| at)
}

pub(super) fn as_changes(calls: &[FeedCall]) -> Vec<Change> {
    calls.iter().flat_map(|call| call.as_changes(call.id)).collect()
}

pub(super) fn text(changes: &[Change]) -> Result<String> {
    changes.iter().map(|change| text_of(&Line::of(change))).collect()
}

pub(super) fn text_of(line: &Line) -> Result<String> {
    let text = serde_json::to_string(line)
        .map_err(|e| Error::caused(Kind::Internal, "cannot write a line of the ledger", e))?;
    Ok(text + "\n")
}

/// Whether this is how a line may begin that a crash has cut off: with what we write, or with a hole in the
/// file where it was to be.
fn is_start_of_line(rest: &[u8]) -> bool {
    let ours = [&b"{\"sent\":{"[..], b"{\"ended\":{", ANEW];
    ours.iter().any(|start| rest.starts_with(start) || start.starts_with(rest))
        || rest.iter().all(|byte| *byte == 0)
}

/// How [`Line::Anew`] begins.
const ANEW: &[u8] = b"{\"anew\":{";

/// A line of the file. Times of a boot are in nanoseconds since it began.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    Sent {
        id: i64,
        feed: String,
        by: Caller,
        boot: String,
        at: Timestamp,
        boot_ns: i64,
        patience_ns: u64,
    },
    Ended {
        id: i64,
        boot: String,
        at: Timestamp,
        boot_ns: i64,
        status: Option<u16>,
        hold_ns: u64,
    },
    /// Nothing counts but `open` and the lines from byte `from` on, of which this may be the first.
    Anew {
        from: u64,
        open: Vec<Line>,
    },
}

impl Line {
    pub(super) fn of(change: &Change) -> Line {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match change {
            Change::Sent(call) => Line::Sent {
                id: call.id,
                feed: call.feed.as_str().to_owned(),
                by: call.by.clone(),
                boot: call.boot_id.clone(),
                at: call.sent_at,
                boot_ns: call.sent.as_nanos(),
                patience_ns: nanos(call.patience),
            },
            Change::Ended(id, end) => Line::Ended {
                id: *id,
                boot: end.boot_id.clone(),
                at: end.at,
                boot_ns: end.time.as_nanos(),
                status: end.status,
                hold_ns: nanos(end.retry_after),
            },
        }
    }

    /// What it says of a call; `None`: of a feed that there is not.
    fn change(self) -> Option<Change> {
        Some(match self {
            Line::Sent { id, feed, by, boot, at, boot_ns, patience_ns } => Change::Sent(FeedCall {
                id,
                feed: FeedName::from_name(&feed)?,
                by,
                boot_id: boot,
                sent_at: at,
                sent: BootTime::from_nanos(boot_ns),
                patience: Duration::from_nanos(patience_ns),
                end: None,
            }),
            Line::Ended { id, boot, at, boot_ns, status, hold_ns } => Change::Ended(
                id,
                Ended {
                    boot_id: boot,
                    at,
                    time: BootTime::from_nanos(boot_ns),
                    status,
                    retry_after: Duration::from_nanos(hold_ns),
                },
            ),
            Line::Anew { .. } => return None,
        })
    }
}
