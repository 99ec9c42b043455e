//! What happens to journals: edits that are ordered, closed months too, and lines that the current
//! month gets of its own accord.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::super::wire::Ticks;
use super::super::World;
use super::super::act::{JournalLine, Outcome};
use super::super::dice::{Trivia, mix};
use super::line::{Annotation, Line, finest, of_number};
use super::{Journal, Month, Place};

/// What happens to a month of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalEdit {
    /// `Payment`, `Amount` or `Cost` of a line changes; of a case journal, which has no amounts,
    /// its `CaseStatus` and `CaseDuration`.
    Amount,
    /// A line on top of all others, at the first instant of the month.
    Inserted,
    /// A line below all others: at the last instant of a month that is over, or now.
    Appended,
    /// A line that appears somewhere in the middle.
    Late,
    /// A line once more, equal in every field.
    Doubled,
    /// A line goes.
    Removed,
    /// A line gets one annotation more.
    Annotated,
    /// The first annotation of a line gets another text and another payment change.
    AnnotationEdited,
    /// The first annotation of a line goes.
    AnnotationRemoved,
}

/// The number of the first line that is added while the world lives.
const FIRST_ADDED: i64 = 900_000_000;

impl World {
    /// Edits the journal of an office. `line` is a line number from 1; none given: by chance.
    pub(in super::super) fn edit_journal(
        &mut self,
        journal: Journal,
        office: i64,
        month: &str,
        edit: JournalEdit,
        line: Option<usize>,
    ) -> Result<Outcome, String> {
        let month = Month::parse(month).ok_or_else(|| format!("'{month}' is no month"))?;
        if !self.offices.contains_key(&office) {
            return Err(format!("there is no office {office}"));
        }
        let place = (journal, office, month);
        let basis = self.basis.clone();
        let mut lines = Vec::clone(&self.journals.month(&basis, place));
        let at = self.edit_lines(place, &mut lines, edit, line)?;
        self.journals.edited.insert(place, Arc::new(lines));
        Ok(outcome(edit, place, at))
    }

    /// Edits the lines; the index of the one concerned.
    fn edit_lines(
        &mut self,
        place: Place,
        lines: &mut Vec<Line>,
        edit: JournalEdit,
        line: Option<usize>,
    ) -> Result<usize, String> {
        let (journal, _, month) = place;
        let in_place = match edit {
            JournalEdit::Inserted => Some((month.start(), 0)),
            JournalEdit::Appended => {
                let end = month.end().0.min(self.now().0) - 1;
                let at = Ticks(end - end.rem_euclid(finest(journal)));
                let last = lines.last().map_or(month.start(), |line| line.at);
                Some((at.max(last), lines.len()))
            }
            JournalEdit::Late => {
                let span = month.end().0.min(self.now().0) - month.start().0;
                let at = month.start().0 + self.journals.dice.below(span.max(1));
                let at = Ticks(at - at.rem_euclid(finest(journal)));
                Some((at, lines.partition_point(|line| line.at <= at)))
            }
            _ => None,
        };
        if let Some((at, index)) = in_place {
            lines.insert(index, self.added_line(place, at));
            return Ok(index);
        }
        let index = self.chosen(lines, edit, line).ok_or_else(|| {
            format!("there is no such line in the {} of {month}", journal.table())
        })?;
        if matches!(edit, JournalEdit::Annotated) && journal.annotations().is_none() {
            return Err(format!("{} have no annotations", journal.table()));
        }
        let now = self.now();
        let chosen = &mut lines[index];
        match edit {
            JournalEdit::Amount => {
                chosen.amount = Some(chosen.amount.unwrap_or(0) + 12_345);
                chosen.edition += 1;
            }
            JournalEdit::Doubled => {
                let same = chosen.clone();
                lines.insert(index + 1, same);
            }
            JournalEdit::Removed => {
                lines.remove(index);
            }
            JournalEdit::Annotated => {
                let change = Some(self.journals.dice.between(-900_000, 900_000));
                let text = Cow::Borrowed("Korrigert \"i ettertid\" – se bilag");
                let list = chosen.annotations.get_or_insert_default();
                list.push(Annotation { at: now, text, change });
            }
            JournalEdit::AnnotationEdited => {
                if let Some(first) = chosen.annotations.iter_mut().flatten().next() {
                    first.text = Cow::Owned(format!("{} (rettet)", first.text));
                    first.change = Some(first.change.unwrap_or(0) - 5_001);
                }
            }
            JournalEdit::AnnotationRemoved => {
                if let Some(list) = &mut chosen.annotations {
                    list.remove(0);
                }
            }
            JournalEdit::Inserted | JournalEdit::Appended | JournalEdit::Late => {}
        }
        Ok(index)
    }

    /// The index of the line that an edit is for.
    fn chosen(&mut self, lines: &[Line], edit: JournalEdit, line: Option<usize>) -> Option<usize> {
        let annotated =
            matches!(edit, JournalEdit::AnnotationEdited | JournalEdit::AnnotationRemoved);
        let fits = |line: &Line| !annotated || line.annotations.iter().flatten().next().is_some();
        if let Some(number) = line {
            let index = number.checked_sub(1)?;
            return lines.get(index).is_some_and(fits).then_some(index);
        }
        let fitting: Vec<usize> = (0..lines.len()).filter(|n| fits(&lines[*n])).collect();
        let n = self.journals.dice.below(i64::try_from(fitting.len()).ok()?);
        fitting.get(usize::try_from(n).ok()?).copied()
    }

    fn added_line(&mut self, place: Place, at: Ticks) -> Line {
        self.journals.added += 1;
        let number = FIRST_ADDED + self.journals.added;
        let t = Trivia(mix(self.basis.seed ^ 0x10CA, number.unsigned_abs()));
        of_number(&self.basis, place, number, self.journals.added, at, t)
    }

    /// Now and then a line is posted in the current month, or one of its lines is annotated.
    pub(in super::super) fn post_journal(&mut self) {
        if !self.journals.dice.chance(30) {
            return;
        }
        let offices: Vec<i64> = self.offices.keys().copied().collect();
        let office = self.journals.dice.pick(&offices);
        let journal = self.journals.dice.pick(&Journal::ALL);
        let month = Month::of(self.now()).to_string();
        let edit = match journal.annotations() {
            Some(_) if self.journals.dice.chance(25) => JournalEdit::Annotated,
            _ => JournalEdit::Appended,
        };
        // A month without lines has none to annotate; nothing happens then.
        let _ = self.edit_journal(journal, office, &month, edit, None);
    }
}

fn outcome(edit: JournalEdit, (journal, office_id, month): Place, index: usize) -> Outcome {
    Outcome {
        what: format!("journal {edit:?}"),
        journal: Some(JournalLine {
            journal,
            office_id,
            month: month.to_string(),
            line_number: i64::try_from(index).unwrap_or(0) + 1,
        }),
        ..Outcome::default()
    }
}
