//! The calls of one journal's month.
//!
//! A month is asked in one call. One that times out, breaks off, is too large, comes incomplete or has a
//! round number of lines that its halves do not add up to is asked in halves, down to days, and is
//! complete when a second pass over the parts gives the same lines (docs/architecture.md, "Journals"):
//! a line whose date is edited meanwhile could otherwise be in both halves, or in none. Pages are such
//! parts too: a line that comes or goes meanwhile moves those behind it to other pages, and lines
//! have no key to be told apart by (docs/architecture.md, "Scopes").
//!
//! The lines of the last complete reading prove themselves: where exactly these come again, neither
//! halves nor a second pass would show anything new.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::part::{LineMark, Part, digest_of, mark};
use super::path_of;
use super::telling::Telling;
use super::under_way::{Gate, Reading};
use crate::catalog::{Answer as Shape, JOURNAL_COLUMNS, Resource};
use crate::decode::{Load, LoadKind, LoadedScope, Param, Params};
use crate::error::{Error, Kind, Result};
use crate::extract::{Extractor, away_from_calls, read_of, trimmed};
use crate::failpoint;
use crate::scope::{AnswerDigest, DueMonth, JournalScope, Version, Window};
use crate::source::{
    self, CallClass, Identity, PagePlan, Pages, Paging, Query, Request, Verdict, refusal,
};

/// One reading of a month.
pub(crate) struct MonthRead {
    pub(crate) load: Load,
    /// Days of the largest call that was answered whole: what to begin with the next time. `None` for
    /// a month that came in one call.
    pub(crate) window_days: Option<u32>,
    /// More than that was asked for at once, and was too much.
    pub(crate) too_much: bool,
}

impl Extractor {
    /// The reading of a month that is due, as [`Extractor::journal`].
    pub(crate) fn month(&self, resource: &Arc<Resource>, month: &DueMonth, gate: Gate) -> Reading {
        let (extractor, resource) = (self.clone(), Arc::clone(resource));
        let (scope, digest, mirrored) = (month.scope, month.digest.clone(), month.mirrored);
        let (window_days, is_proven) = (month.window_days, month.is_proven);
        let passes = gate.clone();
        let read = async move {
            let known = Known { window_days, digest: digest.as_deref(), is_proven, mirrored };
            extractor.journal_within(&resource, scope, known, passes).await
        };
        Reading::new(Box::pin(read), gate)
    }

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
        let known = Known { window_days, digest: None, is_proven: false, mirrored: None };
        self.journal_within(resource, scope, known, Gate::open()).await
    }

    async fn journal_within(
        &self,
        resource: &Arc<Resource>,
        scope: JournalScope,
        known: Known<'_>,
        gate: Gate,
    ) -> Result<MonthRead> {
        let calls = Calls::new(self, resource, scope, gate);
        let lines = match read_of(resource)?.answer {
            Shape::List => calls.month(known).await?,
            Shape::Record | Shape::Scalar => calls.sum().await?,
        };
        failpoint::hit("answer-received");
        let params = calls.params();
        let digest = lines.complete.then(|| {
            let marks = lines.marks.iter().map(|mark| (&params, &mark[..]));
            self.reading(resource).digest(marks)
        });
        let is_unchanged = digest.is_some() && digest == known.mirrored;
        let came = lines.records.len() as u64;
        let records = if is_unchanged { Vec::new() } else { lines.records };
        let params = Arc::new(params);
        let records = records.into_iter().map(|line| (line, Arc::clone(&params))).collect();
        let decoded = self.decode(resource, records).await.map_err(|e| {
            e.within(format!(
                "the answer of {} for {scope} is not what was expected",
                resource.table
            ))
        })?;
        let load = Load {
            scopes: vec![LoadedScope {
                id: scope.id,
                part: scope.part(),
                version: Version::Known(lines.digest),
                complete: lines.complete,
                sent_at: lines.sent.map_or_else(Timestamp::now, |sent| sent.at),
                dated_at: lines.sent.and_then(|sent| sent.dated_at),
                digest: digest.filter(|_| decoded.is_clean()),
                hint: None,
            }],
            decoded,
            kind: if is_unchanged { LoadKind::Unchanged } else { LoadKind::Journal },
            records: came,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: false,
        };
        Ok(MonthRead { load, window_days: lines.window_days, too_much: lines.too_much })
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
        let calls = Calls::new(self, resource, scope, Gate::open());
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
                dated_at: None,
                digest: None,
                hint: None,
            }],
            kind: LoadKind::Journal,
            records: 0,
            lacking: Vec::new(),
            missing: Vec::new(),
            not_found: true,
        })
    }
}

/// When a month was first asked for.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    /// By our clock, and by the service's where it says that the month is not over.
    at: Timestamp,
    /// See [`LoadedScope::dated_at`].
    dated_at: Option<Timestamp>,
}

/// What the calls of a month brought.
struct Lines {
    records: Vec<Bytes>,
    /// One of each record.
    marks: Vec<LineMark>,
    complete: bool,
    sent: Option<Sent>,
    window_days: Option<u32>,
    too_much: bool,
    /// Of the lines, in whatever order.
    digest: String,
}

/// What earlier readings of the month found.
#[derive(Clone, Copy)]
struct Known<'a> {
    /// As many days as are asked at once.
    window_days: Option<u32>,
    /// The lines of the last complete one.
    digest: Option<&'a str>,
    /// See [`DueMonth::is_proven`].
    is_proven: bool,
    /// The answer that the mirrored lines are, in its order.
    mirrored: Option<AnswerDigest>,
}

/// What the first pass over a month has shown so far.
pub(super) struct Shown {
    sent: Option<Sent>,
    /// Days of the shortest window that got no answer.
    pub(super) too_long: u32,
    /// Something was answered, so that the source is there.
    is_reached: bool,
    /// As many lines came where there were more: the service gives no more at once.
    pub(super) cut_at: BTreeSet<usize>,
    /// The most lines that were answered at once.
    pub(super) most: usize,
}

pub(super) struct Calls<'a> {
    pub(super) extractor: &'a Extractor,
    pub(super) resource: &'a Arc<Resource>,
    pub(super) scope: JournalScope,
    pub(super) telling: Arc<Telling>,
    gate: Gate,
}

impl<'a> Calls<'a> {
    fn new(
        extractor: &'a Extractor,
        resource: &'a Arc<Resource>,
        scope: JournalScope,
        gate: Gate,
    ) -> Calls<'a> {
        let telling = Arc::new(Telling::of(resource, extractor.children(resource)));
        Calls { extractor, resource, scope, telling, gate }
    }

    /// The columns that the call says and the records do not.
    fn params(&self) -> Params {
        let [level, id, month] = JOURNAL_COLUMNS.map(str::to_owned);
        Params::from([
            (level, Param::Text(self.scope.level.to_string())),
            (id, Param::Int(self.scope.id)),
            (month, Param::Text(self.scope.month.first().to_string())),
        ])
    }

    /// When it was sent, as far as the month's end goes.
    fn sent(&self, answer: &source::Answer) -> Sent {
        let end = self.scope.month.ends_at(self.extractor.zone());
        Sent { at: answer.sent_at_by_both(end), dated_at: answer.server_date }
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
        self.gate.pass().await;
        let answer = self.extractor.client().send(&request).await?;
        let body = trimmed(&answer);
        let none = body.is_empty() || body[..] == *b"null";
        let records = if none { Vec::new() } else { vec![body] };
        self.extractor.client().progress().rows(records.len() as u64);
        Ok(Lines {
            marks: records.iter().map(mark).collect(),
            records,
            complete: true,
            sent: Some(self.sent(&answer)),
            window_days: None,
            too_much: false,
            digest: String::new(),
        })
    }

    async fn month(&self, known: Known<'_>) -> Result<Lines> {
        let whole = self.scope.month.window();
        let windows = whole.parts(known.window_days.unwrap_or(u32::MAX));
        let asked = windows.len();
        let mut shown = Shown {
            sent: None,
            too_long: u32::MAX,
            is_reached: false,
            cut_at: BTreeSet::new(),
            most: 0,
        };
        let mut parts = self.answered(windows, &mut shown).await?;
        let came = digest_of(&parts);
        // As many days as one call bears, whether or not its lines are all.
        let borne = (parts.len() > asked).then(|| most_days(&parts)).flatten();
        let is_complete = |parts: &[Part]| parts.iter().all(|part| part.complete);
        // More lines than the round number may have come since.
        let may_be_cut = !known.is_proven && parts.iter().any(Part::is_round);
        let is_known = is_complete(&parts) && known.digest == Some(came.as_str()) && !may_be_cut;
        if !is_known {
            parts = self.proven(parts, &mut shown).await?;
            self.look_beyond_days(&parts, &mut shown).await?;
            self.distrust_cut_days(&mut parts, &shown);
        }
        let too_much = parts.len() > asked;
        // Of a month that came in one call nothing has to be remembered.
        let window_days = match (too_much, parts.len()) {
            (true, _) => most_days(&parts),
            (false, 1) => None,
            (false, _) => known.window_days,
        };
        let mut complete = is_complete(&parts);
        let in_one_call = parts.len() == 1 && parts.iter().all(|part| part.pages <= 1);
        if complete && !in_one_call && !is_known {
            (parts, complete) = self.until_it_stands_still(parts).await?;
        }
        // Windows of which not all lines came are no measure for other months.
        let (window_days, too_much) = match complete {
            true => (window_days, too_much),
            false => (borne.or(known.window_days), borne.is_some()),
        };
        let digest = digest_of(&parts);
        let sent = shown.sent;
        let (mut records, mut marks) = (Vec::new(), Vec::new());
        for part in parts {
            records.extend(part.records);
            marks.extend(part.marks);
        }
        Ok(Lines { records, marks, complete, sent, window_days, too_much, digest })
    }

    /// Reads the windows, and halves those that are too much.
    pub(super) async fn answered(
        &self,
        windows: Vec<Window>,
        shown: &mut Shown,
    ) -> Result<Vec<Part>> {
        let mut left: Vec<Window> = windows.into_iter().rev().collect();
        let mut parts: Vec<Part> = Vec::new();
        let mut share = self.extractor.client().progress().share(0);
        while let Some(window) = left.pop() {
            share.expect(left.len() as u64 + 1);
            // The other half of what was too much is as long, or a day shorter.
            if let Some([first, second]) =
                window.halves().filter(|_| window.days() + 1 >= shown.too_long)
            {
                left.extend([second, first]);
                continue;
            }
            let read = self.window(window, &mut shown.sent).await;
            let halves = match &read {
                Ok(part) if part.complete => None,
                Ok(_) => window.halves(),
                Err(error) if is_too_much(error) => window.halves(),
                // It broke off because it is too long, or the source is out of reach: a day tells.
                Err(error) if error.kind() == Kind::Unreachable && window.days() > 1 => {
                    shown.is_reached = shown.is_reached || self.answers_a_day(window).await;
                    window.halves().filter(|_| shown.is_reached)
                }
                Err(_) => None,
            };
            shown.is_reached |= read.is_ok();
            shown.most = shown.most.max(read.as_ref().map_or(0, |part| part.records.len()));
            let Some([first, second]) = halves else {
                parts.push(read?);
                share.done(1);
                continue;
            };
            if read.is_err() {
                shown.too_long = shown.too_long.min(window.days());
            }
            tracing::info!(
                table = self.resource.table,
                scope = %self.scope,
                %window,
                "too much for one call: it is asked in halves"
            );
            left.extend([second, first]);
        }
        Ok(parts)
    }

    /// Whether the first day of a window is answered.
    async fn answers_a_day(&self, window: Window) -> bool {
        let day = Window { from: window.from, to: window.from };
        self.window(day, &mut None).await.is_ok()
    }

    pub(super) async fn window(&self, window: Window, sent: &mut Option<Sent>) -> Result<Part> {
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
        loop {
            // At its end there is no call that others could go before.
            if pages.verdict().is_none() {
                self.gate.pass().await;
            }
            let Some(page) = pages.next().await? else { break };
            sent.get_or_insert(self.sent(&page.answer));
            brought += usize::from(!page.records.is_empty());
            records.extend(page.records);
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
        let bytes = records.iter().map(Bytes::len).sum();
        let (records, marks) = away_from_calls(bytes, move || {
            let marks = records.iter().map(mark).collect();
            Ok((records, marks))
        })
        .await?;
        let of_one_day = window.days() == 1;
        Ok(Part { window, records, marks, pages: brought, complete, of_one_day })
    }
}

fn most_days(parts: &[Part]) -> Option<u32> {
    parts.iter().map(|part| part.window.days()).max()
}

/// Failures that less to do may mend. A service that is too busy, or refuses us, is not among them.
pub(super) fn is_too_much(error: &Error) -> bool {
    const TOO_LARGE: u16 = 413;
    matches!(error.kind(), Kind::Timeout | Kind::Server | Kind::BadAnswer | Kind::TooLarge)
        || refusal(error).is_some_and(|refusal| refusal.status == TOO_LARGE)
}
