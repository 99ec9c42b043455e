//! Whether the lines of a month are all: windows of a round number of lines beside their halves, and
//! parts pass after pass (docs/architecture.md, "Journals").

use std::sync::Arc;

use futures::future::BoxFuture;

use super::part::{Part, Pass, compared};
use super::read::{Calls, Shown, is_too_much};
use crate::error::{Kind, Result};
use crate::extract::away_from_calls;
use crate::scope::Window;

/// Passes over the parts of a month that may differ from the one before.
const MOST_PASSES: usize = 4;

impl Calls<'_> {
    /// Of lines without documented paging a round number may be as many as the service gives, whatever it
    /// does with `$skip`: their window is read in halves too, which have to add up to it.
    pub(super) fn proven<'s>(
        &'s self,
        parts: Vec<Part>,
        shown: &'s mut Shown,
    ) -> BoxFuture<'s, Result<Vec<Part>>> {
        Box::pin(async move {
            let mut proven = Vec::with_capacity(parts.len());
            for part in parts {
                let halves = part.window.halves().filter(|_| part.complete && part.is_round());
                let Some(halves) = halves else {
                    proven.push(part);
                    continue;
                };
                let halves = self.answered(halves.into(), shown).await?;
                let halves = self.proven(halves, shown).await?;
                let lines = part.records.len();
                if halves.iter().map(|half| half.records.len()).sum::<usize>() > lines {
                    shown.cut_at.insert(lines);
                }
                proven.extend(self.compared(part, halves).await?);
            }
            Ok(proven)
        })
    }

    /// A day with a round number of lines, and no answer with more, has no halves to tell whether these are all. Asked
    /// together with the next part that has lines, it has to come to more.
    pub(super) async fn look_beyond_days(&self, parts: &[Part], shown: &mut Shown) -> Result<()> {
        let lines_of = |part: &Part| part.records.len();
        if parts.iter().any(|part| !part.complete) {
            return Ok(());
        }
        let with_lines: Vec<&Part> = parts.iter().filter(|part| lines_of(part) > 0).collect();
        for two in with_lines.windows(2) {
            let whole = |part: &&&Part| part.of_one_day && part.complete && part.is_round();
            let Some(most) = two.iter().filter(whole).map(|part| lines_of(part)).max() else {
                continue;
            };
            if most < shown.most || shown.cut_at.contains(&most) {
                continue;
            }
            let window = Window { from: two[0].window.from, to: two[1].window.to };
            if window.days() >= shown.too_long {
                continue;
            }
            match self.window(window, &mut None).await {
                Ok(both) if !both.complete => {}
                Ok(both) if lines_of(&both) <= most => drop(shown.cut_at.insert(most)),
                Ok(both) => shown.most = shown.most.max(lines_of(&both)),
                // It gives no more than a day at once: nothing is shown, and such a call is dear.
                Err(error) if is_too_much(&error) || error.kind() == Kind::Unreachable => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A day with as many lines as the service was seen to give at once may have more, and there are no
    /// halves to tell. A longer part whose lines are all of that day adds up whether they are all or not.
    pub(super) fn distrust_cut_days(&self, parts: &mut [Part], shown: &Shown) {
        let cut = parts.iter_mut().filter(|part| {
            part.of_one_day && part.complete && shown.cut_at.contains(&part.records.len())
        });
        for part in cut {
            part.complete = false;
            tracing::warn!(
                table = self.resource.table,
                scope = %self.scope,
                window = %part.window,
                lines = part.records.len(),
                "a day has as many lines as the service gives at once: there may be more"
            );
        }
    }

    /// What a window is worth beside its halves ([`compared`]).
    async fn compared(&self, whole: Part, halves: Vec<Part>) -> Result<Vec<Part>> {
        let telling = Arc::clone(&self.telling);
        away_from_calls(whole.bytes(), move || Ok(compared(whole, halves, &telling))).await
    }

    /// Reads the same windows until two passes in a row give the same lines, in whatever order; the last
    /// pass, and whether they did.
    pub(super) async fn until_it_stands_still(
        &self,
        mut last: Vec<Part>,
    ) -> Result<(Vec<Part>, bool)> {
        for _ in 0..MOST_PASSES {
            let windows: Vec<Window> = last.iter().map(|part| part.window).collect();
            let telling = Arc::clone(&self.telling);
            // One pass in memory is enough: of the one before, marks are kept.
            let before =
                away_from_calls(bytes_of(&last), move || Ok(Pass::of(&last, &telling))).await?;
            let mut next = Vec::with_capacity(windows.len());
            let mut share = self.extractor.client().progress().share(windows.len() as u64);
            for window in windows {
                next.push(self.window(window, &mut None).await?);
                share.done(1);
            }
            if !next.iter().all(|part| part.complete) {
                return Ok((next, false));
            }
            let telling = Arc::clone(&self.telling);
            let (next, stands_still) = away_from_calls(bytes_of(&next), move || {
                let stands_still = before.brought(&next, &telling);
                Ok((next, stands_still))
            })
            .await?;
            if stands_still {
                return Ok((next, true));
            }
            last = next;
        }
        tracing::warn!(
            table = self.resource.table,
            scope = %self.scope,
            "{MOST_PASSES} readings of the month in parts differed: it is read again later"
        );
        Ok((last, false))
    }
}

fn bytes_of(parts: &[Part]) -> usize {
    parts.iter().map(Part::bytes).sum()
}
