//! The calls of one journal's month.
//!
//! A month is asked in one call. One that times out, breaks off, comes incomplete or has a round number
//! of lines that its halves do not add up to is asked in halves, down to days, and is complete when
//! a second pass over the parts gives the same lines (docs/architecture.md, "Journals"): a line
//! whose date is edited meanwhile could otherwise be in both halves, or in none. Pages are such
//! parts too: a line that comes or goes meanwhile moves those behind it to other pages, and lines
//! have no key to be told apart by (docs/architecture.md, "Scopes").

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::path_of;
use crate::catalog::{Answer as Shape, JOURNAL_COLUMNS, LINE_ID, LINE_NUMBER, Resource};
use crate::decode::{Load, LoadKind, LoadedScope, Param, Params};
use crate::error::{Error, Kind, Result};
use crate::extract::{Extractor, read_of, trimmed};
use crate::failpoint;
use crate::scope::{JournalScope, Version, Window};
use crate::source::split::fingerprint;
use crate::source::{self, CallClass, Identity, PagePlan, Pages, Paging, Query, Request, Verdict};

/// Passes over the parts of a month that may differ from the one before.
const MOST_PASSES: usize = 4;
/// Pages of services are round: a positive multiple of this may be cut off.
const ROUND: usize = 100;

/// One reading of a month.
pub(crate) struct MonthRead {
    pub(crate) load: Load,
    /// Days of the largest call that was answered whole: what to begin with the next time. `None` for
    /// a month that came in one call.
    pub(crate) window_days: Option<u32>,
}

impl Extractor {
    /// Reads a month of a journal, or its control total. `window_days` is what an earlier reading
    /// found to be as much as the service answers at once.
    ///
    /// # Errors
    /// Those of the calls, where a single day cannot be read either, and those of decoding. Nothing of
    /// the month is loaded then.
    pub(crate) async fn journal(
        &self,
        resource: &Arc<Resource>,
        scope: JournalScope,
        window_days: Option<u32>,
    ) -> Result<MonthRead> {
        let calls = Calls { extractor: self, resource, scope };
        let lines = match read_of(resource)?.answer {
            Shape::List => calls.month(window_days).await?,
            Shape::Record | Shape::Scalar => calls.sum().await?,
        };
        failpoint::hit("answer-received");
        let params = calls.params();
        let records = lines
            .records
            .into_iter()
            .zip(1_i64..)
            .map(|(line, number)| {
                let mut params = params.clone();
                // Its place stands for the name that the mirror gives it (`mirror/lines.rs`).
                params.insert(LINE_ID.to_owned(), Param::Int(number));
                params.insert(LINE_NUMBER.to_owned(), Param::Int(number));
                (line, params)
            })
            .collect();
        let decoded = self.decode(resource, records).await.map_err(|e| {
            e.within(format!(
                "the answer of {} for {scope} is not what was expected",
                resource.table
            ))
        })?;
        let load = Load {
            decoded,
            scopes: vec![LoadedScope {
                id: scope.id,
                part: scope.part(),
                version: Version::Known(String::new()),
                complete: lines.complete,
                sent_at: lines.sent_at.unwrap_or_else(Timestamp::now),
            }],
            kind: LoadKind::Journal,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: false,
        };
        Ok(MonthRead { load, window_days: lines.window_days })
    }
}

impl Extractor {
    /// Whether a journal is there: a call for the month's first day, or for its control total, is not
    /// answered 404.
    ///
    /// # Errors
    /// Those of the call, but for `NotFound`.
    pub(crate) async fn has_journal(
        &self,
        resource: &Arc<Resource>,
        scope: JournalScope,
    ) -> Result<bool> {
        let calls = Calls { extractor: self, resource, scope };
        let first = scope.month.first();
        let asked = match read_of(resource)?.answer {
            Shape::List => {
                calls.window(Window { from: first, to: first }, &mut None).await.map(drop)
            }
            Shape::Record | Shape::Scalar => calls.sum().await.map(drop),
        };
        match asked {
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            asked => asked.map(|()| true),
        }
    }

    /// A month that answered 404 where nothing is mirrored, or for the second time: complete and
    /// without lines (docs/architecture.md, "Not allowed, not there").
    ///
    /// # Errors
    /// `Internal`: the columns do not make a batch.
    pub(crate) async fn no_journal(
        &self,
        resource: &Arc<Resource>,
        scope: JournalScope,
    ) -> Result<Load> {
        Ok(Load {
            decoded: self.decode(resource, Vec::new()).await?,
            scopes: vec![LoadedScope {
                id: scope.id,
                part: scope.part(),
                version: Version::Known(String::new()),
                complete: true,
                sent_at: Timestamp::now(),
            }],
            kind: LoadKind::Journal,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: true,
        })
    }
}

/// What the calls of a month brought.
struct Lines {
    records: Vec<Bytes>,
    complete: bool,
    sent_at: Option<Timestamp>,
    window_days: Option<u32>,
}

/// The lines of one window.
struct Part {
    window: Window,
    records: Vec<Bytes>,
    /// Pages that brought some of them: each shows another moment.
    pages: usize,
    complete: bool,
}

impl Part {
    /// It has as many lines as a service may give at once.
    fn is_round(&self) -> bool {
        !self.records.is_empty() && self.records.len().is_multiple_of(ROUND)
    }
}

/// What is still to be done for the parts of a month.
enum Step {
    Read(Window),
    /// The parts from there on are those of this window, which was answered whole: where they add up to
    /// it, it takes their place.
    Compare {
        whole: Part,
        halves_from: usize,
    },
}

struct Calls<'a> {
    extractor: &'a Extractor,
    resource: &'a Arc<Resource>,
    scope: JournalScope,
}

impl Calls<'_> {
    /// The columns that the call says and the records do not.
    fn params(&self) -> Params {
        let [level, id, month] = JOURNAL_COLUMNS.map(str::to_owned);
        Params::from([
            (level, Param::Text(self.scope.level.to_string())),
            (id, Param::Int(self.scope.id)),
            (month, Param::Text(self.scope.month.first().to_string())),
        ])
    }

    fn request(&self, method: source::Method) -> Result<Request> {
        let [level, id, _] = JOURNAL_COLUMNS;
        let path = &read_of(self.resource)?.path;
        let values = [(level, path_of(self.scope.level)), (id, &self.scope.id.to_string())];
        Ok(Request::new(method, path, &values)?.class(CallClass::Journal))
    }

    /// The control total of the whole month.
    async fn sum(&self) -> Result<Lines> {
        let window = self.scope.month.window();
        let body = serde_json::json!({
            "FromDate": window.from.to_string(),
            "ToDate": window.to.to_string(),
        });
        let sum = self.extractor.expected(self.resource, Shape::Record, &Params::new());
        let request = self.request(source::Method::Put)?.body(body.to_string()).expecting(sum);
        let answer = self.extractor.client().send(&request).await?;
        let body = trimmed(&answer);
        let none = body.is_empty() || body[..] == *b"null";
        Ok(Lines {
            records: if none { Vec::new() } else { vec![body] },
            complete: true,
            sent_at: Some(answer.sent_at),
            window_days: None,
        })
    }

    async fn month(&self, window_days: Option<u32>) -> Result<Lines> {
        let whole = self.scope.month.window();
        let mut sent_at = None;
        let windows = whole.parts(window_days.unwrap_or(u32::MAX));
        let asked = windows.len();
        let first = self.first_pass(windows, &mut sent_at).await?;
        let halved = first.len() > asked;
        let complete = first.iter().all(|part| part.complete);
        let in_one_call = first.len() == 1 && first.iter().all(|part| part.pages <= 1);
        // What an earlier reading found stays, unless this one found out more.
        let found = halved.then(|| first.iter().map(|part| part.window.days()).max());
        let window_days = found.flatten().or(window_days);
        let parts = if complete && !in_one_call {
            match self.until_it_stands_still(first).await? {
                Ok(parts) => parts,
                Err(parts) => return Ok(lines(parts, false, sent_at, window_days)),
            }
        } else {
            first
        };
        Ok(lines(parts, complete, sent_at, window_days))
    }

    /// Reads the windows, and halves those that are too much. Of lines without documented paging a round
    /// number may be as many as the service gives, whatever it does with `$skip`: their window is read
    /// in halves too, which have to add up to it.
    async fn first_pass(
        &self,
        windows: Vec<Window>,
        sent_at: &mut Option<Timestamp>,
    ) -> Result<Vec<Part>> {
        let mut steps: Vec<Step> = windows.into_iter().rev().map(Step::Read).collect();
        let mut parts: Vec<Part> = Vec::new();
        // Days of the shortest window that got no answer.
        let mut too_long = u32::MAX;
        let mut is_reached = false;
        while let Some(step) = steps.pop() {
            let window = match step {
                Step::Read(window) => window,
                Step::Compare { whole, halves_from } => {
                    let halves = parts.split_off(halves_from.min(parts.len()));
                    parts.extend(compared(whole, halves));
                    continue;
                }
            };
            // The other half of what was too much is as long, or a day shorter.
            if let Some([first, second]) = window.halves().filter(|_| window.days() + 1 >= too_long)
            {
                steps.extend([Step::Read(second), Step::Read(first)]);
                continue;
            }
            let read = self.window(window, sent_at).await;
            let halves = match &read {
                Ok(part) if part.complete && !part.is_round() => None,
                Ok(_) => window.halves(),
                Err(error) if is_too_much(error) => window.halves(),
                // It broke off because it is too long, or the source is out of reach: a day tells.
                Err(error) if error.kind() == Kind::Unreachable && window.days() > 1 => {
                    is_reached = is_reached || self.answers_a_day(window).await;
                    window.halves().filter(|_| is_reached)
                }
                Err(_) => None,
            };
            is_reached |= read.is_ok();
            let Some([first, second]) = halves else {
                parts.push(read?);
                continue;
            };
            match read {
                Ok(whole) if whole.complete => {
                    steps.push(Step::Compare { whole, halves_from: parts.len() });
                }
                read => {
                    if read.is_err() {
                        too_long = too_long.min(window.days());
                    }
                    tracing::info!(
                        table = self.resource.table,
                        scope = %self.scope,
                        %window,
                        "too much for one call: it is asked in halves"
                    );
                }
            }
            steps.extend([Step::Read(second), Step::Read(first)]);
        }
        Ok(parts)
    }

    /// Whether the first day of a window is answered.
    async fn answers_a_day(&self, window: Window) -> bool {
        let day = Window { from: window.from, to: window.from };
        self.window(day, &mut None).await.is_ok()
    }

    /// Reads the same windows until two passes in a row give the same lines; `Err` with the last pass
    /// where they never do.
    async fn until_it_stands_still(
        &self,
        mut last: Vec<Part>,
    ) -> Result<std::result::Result<Vec<Part>, Vec<Part>>> {
        for _ in 0..MOST_PASSES {
            let mut next = Vec::with_capacity(last.len());
            for part in &last {
                next.push(self.window(part.window, &mut None).await?);
            }
            if !next.iter().all(|part| part.complete) {
                return Ok(Err(next));
            }
            if marks(&last) == marks(&next) {
                return Ok(Ok(next));
            }
            last = next;
        }
        tracing::warn!(
            table = self.resource.table,
            scope = %self.scope,
            "{MOST_PASSES} readings of the month in parts differed: it is read again later"
        );
        Ok(Err(last))
    }

    async fn window(&self, window: Window, sent_at: &mut Option<Timestamp>) -> Result<Part> {
        let query = Query::new()
            .with("fromDate", window.from.to_string())
            .with("toDate", window.to.to_string());
        let plan = PagePlan {
            request: self
                .request(source::Method::Get)?
                .query(query)
                .expecting(self.extractor.expected(self.resource, Shape::List, &Params::new())),
            paging: Paging::Undocumented,
            identity: Identity::Lines,
            count: false,
        };
        let mut pages = Pages::new(self.extractor.client(), plan);
        let (mut records, mut brought) = (Vec::new(), 0);
        while let Some(page) = pages.next().await? {
            brought += usize::from(!page.records.is_empty());
            records.extend(page.records);
        }
        if let Some(at) = pages.sent_at() {
            sent_at.get_or_insert(at);
        }
        let complete = match pages.verdict() {
            Some(Verdict::Incomplete(why)) => {
                tracing::warn!(
                    table = self.resource.table,
                    scope = %self.scope,
                    %window,
                    why,
                    "an answer is incomplete"
                );
                false
            }
            Some(Verdict::Complete) | None => true,
        };
        Ok(Part { window, records, pages: brought, complete })
    }
}

/// Failures that less to do may mend. A service that is too busy, or refuses us, is not among them.
fn is_too_much(error: &Error) -> bool {
    matches!(error.kind(), Kind::Timeout | Kind::Server | Kind::BadAnswer)
}

/// What a window that was answered whole is worth beside its halves. Where they add up to it, it takes
/// their place; where they have more, it was as many as the service gives at once. Where it has a line
/// that they lack, neither is known to be all.
fn compared(whole: Part, mut halves: Vec<Part>) -> Vec<Part> {
    let (of_whole, of_halves) = (marks(std::slice::from_ref(&whole)), marks(&halves));
    if halves.iter().all(|part| part.complete) && of_whole == of_halves {
        return vec![whole];
    }
    let mut left = of_halves.into_iter().peekable();
    let is_within = of_whole.iter().all(|mark| {
        while left.next_if(|other| other < mark).is_some() {}
        left.next_if_eq(mark).is_some()
    });
    if !is_within {
        halves.iter_mut().for_each(|part| part.complete = false);
    }
    halves
}

/// The lines, in whatever order: equal ones are as many.
fn marks(parts: &[Part]) -> Vec<u128> {
    let mut marks: Vec<u128> = parts
        .iter()
        .flat_map(|part| &part.records)
        .map(|line| fingerprint([std::str::from_utf8(line).unwrap_or_default()]))
        .collect();
    marks.sort_unstable();
    marks
}

fn lines(
    parts: Vec<Part>,
    complete: bool,
    sent_at: Option<Timestamp>,
    window_days: Option<u32>,
) -> Lines {
    let records = parts.into_iter().flat_map(|part| part.records).collect();
    Lines { records, complete, sent_at, window_days }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(lines: &[&'static str]) -> Part {
        let window = "2026-10".parse::<crate::scope::Month>().unwrap().window();
        let records = lines.iter().map(|line| Bytes::from_static(line.as_bytes())).collect();
        Part { window, records, pages: 1, complete: true }
    }

    /// How many lines a window and its halves come to, and whether they are all.
    fn shown(whole: &[&'static str], halves: [&[&'static str]; 2]) -> (usize, bool) {
        let parts = compared(part(whole), halves.map(part).into());
        let lines = parts.iter().map(|part| part.records.len()).sum();
        (lines, parts.iter().all(|part| part.complete))
    }

    #[test]
    fn halves_have_to_add_up_to_what_was_answered_whole() {
        assert_eq!(shown(&["a", "b", "b"], [&["b"], &["b", "a"]]), (3, true));
        assert_eq!(shown(&["a", "b"], [&["a", "b"], &["c"]]), (3, true), "a limit cut the whole");
        assert_eq!(shown(&["a", "b", "c"], [&["a"], &[]]), (1, false), "lines are missing");
        assert_eq!(shown(&["b", "b"], [&["b"], &["c"]]), (2, false), "equal lines are two");
    }
}
