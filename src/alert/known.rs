//! What is known and was told: pure, but for where it is kept.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::conditions::{Condition, Look};
use crate::error::{Error, Kind, Result};
use crate::mirror::{ALERTS, State};
use crate::text::counted;

/// What holds, since when, and whether somebody was told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Known {
    /// Since when nothing holds.
    well_since: Option<Timestamp>,
    holding: BTreeMap<Condition, Held>,
    /// Changes of closed months were told up to here, in microseconds since 1970.
    restated_until: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    since: Timestamp,
    told: bool,
}

/// What somebody is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    Begins(Condition, String),
    Ends(Condition, String),
    Restated { until: i64, text: String },
}

impl Message {
    pub(super) fn text(&self) -> &str {
        match self {
            Message::Begins(_, text) | Message::Ends(_, text) | Message::Restated { text, .. } => {
                text
            }
        }
    }
}

impl Known {
    /// What is kept; nothing where that cannot be read.
    ///
    /// # Errors
    /// Those of reading the store.
    pub(super) fn read(state: &State<'_>) -> Result<Known> {
        let kept = state.meta(ALERTS)?;
        Ok(kept.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    pub(super) fn to_text(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|e| Error::caused(Kind::Internal, "cannot keep what was told", e))
    }

    /// What is known after a look, and what is to be told of it. What was not told stays to be told.
    pub(super) fn seeing(mut self, look: &Look, now: Timestamp) -> (Known, Vec<Message>) {
        let mut messages = Vec::new();
        for (condition, text) in &look.holding {
            let held = self.holding.entry(*condition).or_insert(Held { since: now, told: false });
            if !held.told {
                messages.push(Message::Begins(*condition, text.clone()));
            }
        }
        let over: Vec<Condition> =
            self.holding.keys().filter(|c| !look.holding.contains_key(c)).copied().collect();
        for condition in over {
            match self.holding.get(&condition) {
                Some(held) if held.told => {
                    let text = format!("over: {} (since {})", what(condition), shown(held.since));
                    messages.push(Message::Ends(condition, text));
                }
                // Nobody heard of it.
                _ => drop(self.holding.remove(&condition)),
            }
        }
        let latest = look.restatements.iter().max().copied();
        match self.restated_until {
            // What was there before anybody looked is no news.
            None => self.restated_until = Some(latest.unwrap_or(i64::MIN)),
            Some(told) => {
                let new = look.restatements.iter().filter(|at| **at > told).count();
                if let Some(until) = latest.filter(|_| new > 0) {
                    let text = format!(
                        "{} within closed months, see report.journal_restatements",
                        counted(new, "change")
                    );
                    messages.push(Message::Restated { until, text });
                }
            }
        }
        self.well_since = match look.holding.is_empty() {
            true => self.well_since.or(Some(now)),
            false => None,
        };
        (self, messages)
    }

    /// Somebody was told.
    pub(super) fn was_told(&mut self, message: &Message) {
        match message {
            Message::Begins(condition, _) => {
                if let Some(held) = self.holding.get_mut(condition) {
                    held.told = true;
                }
            }
            Message::Ends(condition, _) => drop(self.holding.remove(condition)),
            Message::Restated { until, .. } => self.restated_until = Some(*until),
        }
    }

    /// Whether nothing holds.
    pub(super) fn is_well(&self) -> bool {
        self.well_since.is_some()
    }
}

/// Since when nothing has needed anybody; `None` while something does.
///
/// # Errors
/// Those of reading the store.
pub(crate) fn since(state: &State<'_>) -> Result<Option<Timestamp>> {
    Ok(Known::read(state)?.well_since)
}

fn what(condition: Condition) -> &'static str {
    match condition {
        Condition::Difference => "the mirror differs from the source",
        Condition::Sum => "journals do not match the platform's own sums",
        Condition::Doubt => "answers of the platform are not believed",
        Condition::Feed => "changes do not arrive",
        Condition::Disk => "the disk of the store fills",
    }
}

fn shown(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn look(holding: &[Condition], restatements: &[i64]) -> Look {
        let holding = holding.iter().map(|c| (*c, format!("{c:?} holds"))).collect();
        Look { holding, restatements: restatements.to_vec() }
    }

    /// Looks, and tells everything.
    fn told(known: Known, look: &Look, second: i64) -> (Known, Vec<String>) {
        let (mut known, messages) = known.seeing(look, at(second));
        messages.iter().for_each(|message| known.was_told(message));
        (known, messages.iter().map(|message| message.text().to_owned()).collect())
    }

    #[test]
    fn each_thing_is_told_once_and_once_when_it_is_over() {
        let disk = look(&[Condition::Disk], &[]);
        let (known, messages) = told(Known::default(), &disk, 1);
        assert_eq!(messages, ["Disk holds"]);
        assert!(!known.is_well());
        // Over a restart, too.
        let known: Known = serde_json::from_str(&known.to_text().unwrap()).unwrap();
        let (known, messages) = told(known, &look(&[Condition::Disk, Condition::Feed], &[]), 2);
        assert_eq!(messages, ["Feed holds"]);
        let (known, messages) = told(known, &look(&[Condition::Feed], &[]), 3);
        assert_eq!(messages, ["over: the disk of the store fills (since 1970-01-01 00:00 UTC)"]);
        let (known, messages) = told(known, &look(&[], &[]), 4);
        assert_eq!(messages.len(), 1);
        assert_eq!(known.well_since, Some(at(4)));
        let (known, messages) = told(known, &look(&[], &[]), 5);
        assert_eq!((known.well_since, messages.len()), (Some(at(4)), 0));
    }

    #[test]
    fn what_could_not_be_told_is_told_later_unless_it_is_over() {
        let both = look(&[Condition::Sum, Condition::Doubt], &[]);
        let (known, messages) = Known::default().seeing(&both, at(1));
        assert_eq!(messages.len(), 2, "and none arrives");
        let (known, messages) = known.seeing(&look(&[Condition::Sum], &[]), at(2));
        assert_eq!(messages, [Message::Begins(Condition::Sum, "Sum holds".to_owned())]);
        assert_eq!(known.holding.len(), 1);
    }

    #[test]
    fn changes_of_closed_months_are_told_from_the_first_look_on() {
        let (known, messages) = told(Known::default(), &look(&[], &[5, 3]), 1);
        assert_eq!(messages, [""; 0], "they were there before");
        let (known, messages) = told(known, &look(&[], &[9, 8, 5, 3]), 2);
        assert_eq!(messages, ["2 changes within closed months, see report.journal_restatements"]);
        let (_, messages) = told(known, &look(&[], &[9, 8, 5, 3]), 3);
        assert_eq!(messages, [""; 0]);
    }
}
