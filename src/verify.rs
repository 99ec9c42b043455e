//! Control totals: the mirror held against the source (docs/architecture.md, "Control totals").
//!
//! ```text
//!   ask the source ──► a cycle ──► compare ──► the same: done
//!        ▲                            │
//!        └──── differs: once more ◄───┘ ──► differs still: different, or unsettled
//! ```
//!
//! The source lives while it is asked. So what differs is asked again, up to three times, with a cycle
//! in between that follows what has changed meanwhile; where something had changed each time, the
//! comparison is *unsettled*, and no difference. Three things are not known to the mirror until a
//! schedule looks for them, and make no difference before it was given the occasion: cases that were
//! hidden or deleted without a word of the feed, what moves `ModifiedDate` only in tables with a
//! narrower date, and lines of a journal's month that is not closed yet.
//!
//! What the mirror itself knows to be otherwise (pending, failed, rejected) is left out and named: it
//! is no difference, and must hide none. A control that cannot be read is named, and is no agreement.
//!
//! Of journals without a sum one month of each scope is read again, line by line, in turn.
//!
//! What is found to differ is made stale, so that the next cycle mends it.
//!
//! A [`Verification`] can be left where other work has to be done first, and gone on with after it.
//! Changes come first: asking gives way to them.

mod asking;
mod context;
mod differing;
mod forecast;
mod lines;
mod month_figures;
mod revenue;
mod sample;
mod totals;
mod turns;
mod whole;

pub(crate) use context::Context;
pub(crate) use forecast::Asks;

use crate::decode::{FORGOTTEN, Forgotten};
use crate::error::{Error, Kind, Result};
use crate::mirror::{Difference, VerifiedRow};
use crate::scope::{Place, TableStatus};
pub(crate) use asking::Gate;
use context::Asked;
use revenue::Revenue;
use sample::Sample;
use totals::Totals;
use turns::Turns;

/// Cases read whole where nobody says how many (`--sample`).
pub(crate) const SAMPLE: usize = 20;
/// Cases of which at most what differed before is read again.
const MOST_AGAIN: usize = 300;
/// The first time, and three times again.
const MOST_ASKED: u32 = 4;

/// What a comparison came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    Same,
    /// By how much, or how.
    Different(String),
    /// The same, but something changed each time it was asked.
    Unsettled(String),
}

/// One comparison with the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) what: String,
    pub(crate) source: String,
    pub(crate) mirror: String,
    pub(crate) finding: Finding,
    /// What it is about: a difference stands until a later comparison of the same finds none.
    pub(crate) subject: String,
}

impl Comparison {
    /// Leaves out what is kept out since it was made.
    pub(crate) fn clear(&mut self, list: &Forgotten) {
        let how = match &mut self.finding {
            Finding::Same => None,
            Finding::Different(how) | Finding::Unsettled(how) => Some(how),
        };
        for text in [&mut self.what, &mut self.source, &mut self.mirror].into_iter().chain(how) {
            *text = list.text_without(text).unwrap_or_else(|| FORGOTTEN.to_owned());
        }
    }

    /// As in `sync.verifications`.
    pub(crate) fn row(&self) -> VerifiedRow {
        VerifiedRow {
            what: self.what.clone(),
            source: self.source.clone(),
            mirror: self.mirror.clone(),
            difference: match &self.finding {
                Finding::Same => Difference::None,
                Finding::Different(how) => Difference::Standing(how.clone()),
                Finding::Unsettled(how) => Difference::Unsettled(how.clone()),
            },
            subject: self.subject.clone(),
        }
    }
}

/// Why what is apart is not compared where the feed of cases cannot be read.
const WHILE_UNTOLD: &str = " that are apart cannot be compared: the change feed, which tells what has moved, cannot be read";

/// The subject of comparisons of cases read whole that came to nothing; a difference has that of its scope.
const SAMPLED: &str = "sampled cases";

/// Everything that was compared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verified {
    pub(crate) comparisons: Vec<Comparison>,
    /// In words, what is left out, and which of the journals' sums match.
    pub(crate) notes: Vec<String>,
    /// What could not be compared because the source did not answer, in words.
    pub(crate) problems: Vec<String>,
    /// What was not compared because it is pending, failed or rejected, in words.
    pub(crate) left_out: Vec<String>,
    /// How many things could not be compared, for either reason.
    pub(crate) not_compared: usize,
    /// Months that have no control, and searches whose cases cannot be counted.
    pub(crate) without_control: usize,
    /// Differences of earlier verifications that stand: this one did not refute them.
    pub(crate) standing: usize,
}

impl Verified {
    /// How many comparisons found a difference.
    pub(crate) fn differences(&self) -> usize {
        self.comparisons.iter().filter(|c| matches!(c.finding, Finding::Different(_))).count()
    }

    /// How many were unsettled.
    pub(crate) fn unsettled(&self) -> usize {
        self.comparisons.iter().filter(|c| matches!(c.finding, Finding::Unsettled(_))).count()
    }
}

/// All comparisons, settled and open.
pub(crate) struct Verification {
    context: Context,
    totals: Totals,
    revenue: Revenue,
    turns: Turns,
    sample: Sample,
    settled: Vec<Comparison>,
    /// What is not compared because nobody wants it mirrored.
    not_wanted: Vec<String>,
    /// When the attempt under way began to ask.
    asked: Option<Asked>,
}

impl Verification {
    /// Of everything that is mirrored, with `sample` random cases read whole.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn of(context: Context, sample: usize) -> Result<Verification> {
        let mut not_wanted = Vec::new();
        let in_turn = turns::tables_in_turn(context.catalog.resources());
        let in_turn: Vec<&str> = in_turn.iter().map(|resource| resource.table.as_str()).collect();
        let searches = [Place::Cases, Place::Projects].map(Place::table);
        for table in searches.into_iter().chain(in_turn) {
            let Some(status) = context.not_read_as(table)? else { continue };
            let why = format!("{table} is {status}");
            if status == TableStatus::Disabled {
                not_wanted.push(format!("not compared: {why}"));
            } else if searches.contains(&table) {
                // The number of its cases is a control, and cannot be read.
                context.without_control(Some(why), 1);
            } else {
                context.leave_out(why, 1);
            }
        }
        Ok(Verification {
            totals: Totals::of(&context)?,
            revenue: Revenue::of(&context)?,
            turns: Turns::of(&context)?,
            sample: Sample::of(&context, sample)?,
            not_wanted,
            context,
            settled: Vec::new(),
            asked: None,
        })
    }

    /// Whether every comparison is settled.
    pub(crate) fn is_done(&self) -> bool {
        self.totals.is_done()
            && self.revenue.is_done()
            && self.turns.is_done()
            && self.sample.is_done()
    }

    /// Asks the source for what is open, as long as the gate is open. False when it was left: called
    /// again, it asks for the rest. Calls under way go on meanwhile.
    ///
    /// # Errors
    /// What makes all further calls senseless.
    pub(crate) async fn ask(&mut self, gate: &mut Gate) -> Result<bool> {
        let context = &self.context;
        if self.asked.is_none() {
            self.asked = Some(context.now()?);
            self.totals.begin();
            self.revenue.begin();
            self.turns.begin();
            self.sample.begin(context)?;
        }
        gate.expect(
            self.totals.asks() + self.revenue.asks() + self.turns.asks() + self.sample.asks(),
        );
        self.totals.ask(context, gate).await?;
        self.revenue.ask(context, gate).await?;
        self.turns.ask(context, gate).await?;
        self.sample.ask(context, gate).await?;
        Ok(self.totals.is_asked()
            && self.revenue.is_asked()
            && self.turns.is_asked()
            && self.sample.is_asked())
    }

    /// Holds the answers against the mirror. A cycle has to lie between: it follows what has changed
    /// since they were asked for.
    ///
    /// # Errors
    /// Those of the store, and what makes all further calls senseless.
    pub(crate) async fn compare(&mut self) -> Result<()> {
        let Some(asked) = self.asked.take() else { return Ok(()) };
        let context = &self.context;
        self.totals.compare(context, asked, &mut self.settled).await?;
        self.revenue.compare(context, &mut self.settled).await?;
        self.turns.compare(context, &mut self.settled).await?;
        self.sample.compare(context, asked, &mut self.settled).await
    }

    /// What came of it.
    ///
    /// # Errors
    /// Where nothing at all could be compared: the first error of the calls.
    pub(crate) fn finish(self) -> Result<Verified> {
        let could_not = self.context.could_not();
        if let Some(first) = could_not.problems.first()
            && self.settled.is_empty()
        {
            let kind = could_not.kind.unwrap_or(Kind::BadAnswer);
            return Err(Error::new(kind, format!("nothing could be compared: {first}")));
        }
        Ok(Verified {
            notes: self.not_wanted.into_iter().chain(self.revenue.notes()).collect(),
            comparisons: self.settled,
            problems: could_not.problems,
            left_out: could_not.left_out,
            not_compared: could_not.count,
            without_control: could_not.without_control,
            // Known when it is kept what was found.
            standing: 0,
        })
    }
}

/// What comes of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Same,
    Again,
    Different,
    Unsettled,
}

/// Decides after the source was asked so many times. `changed`: something that the comparison depends
/// on changed between asking and comparing.
fn decide(asked: u32, same: bool, changed: bool) -> Step {
    match (same, changed) {
        (true, _) => Step::Same,
        (false, false) if asked > 1 => Step::Different,
        (false, true) if asked >= MOST_ASKED => Step::Unsettled,
        (false, _) => Step::Again,
    }
}

/// `2` for 5 and 3, `-1` for 3 and 4.
fn excess(source: i64, mirror: i64) -> String {
    (i128::from(source) - i128::from(mirror)).to_string()
}

/// An amount with two decimal places as whole hundredths; `None` for any other text.
fn hundredths(text: &str) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "00"));
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty();
    if fraction.len() > 2 || !plain(whole) || !plain(fraction) {
        return None;
    }
    format!("{whole}{fraction:0<2}").parse::<i128>().ok().map(|amount| sign * amount)
}

/// The reverse.
fn amount(hundredths: i128) -> String {
    let sign = if hundredths < 0 { "-" } else { "" };
    let digits = hundredths.unsigned_abs();
    format!("{sign}{}.{:02}", digits / 100, digits % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_asked_once_more_before_it_counts() {
        assert_eq!(decide(1, false, false), Step::Again);
        assert_eq!(decide(2, false, false), Step::Different);
        assert_eq!(decide(2, true, true), Step::Same);
    }

    #[test]
    fn what_changes_each_time_is_asked_four_times_and_unsettled() {
        for asked in 1..4 {
            assert_eq!(decide(asked, false, true), Step::Again);
        }
        assert_eq!(decide(4, false, true), Step::Unsettled);
        assert_eq!(decide(4, false, false), Step::Different);
    }

    #[test]
    fn amounts_are_exact_to_the_last_digit() {
        for text in ["0.00", "-0.05", "12.30", "99999999999999999999999999.99", "-1.00"] {
            assert_eq!(amount(hundredths(text).unwrap()), text);
        }
        assert_eq!(hundredths("7"), Some(700));
        assert_eq!(hundredths("7.5"), Some(750));
        for text in ["", "1.234", "x", "1e5", "--1"] {
            assert_eq!(hundredths(text), None, "{text}");
        }
    }
}
