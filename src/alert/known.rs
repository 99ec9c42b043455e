//! What is known and was told: pure, but for where it is kept.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::conditions::{Condition, Holding, LONG_BEHIND, Look};
use crate::error::{Error, Kind, Result};
use crate::mirror::{ALERTS, State};
use crate::status::Health;
use crate::text::counted;

/// Between two messages that the same thing has grown: what comes in between is told together.
const GROWS_EVERY: SignedDuration = SignedDuration::from_hours(1);

/// What holds, since when, and whether somebody was told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Known {
    /// How the mirror is, and since when.
    health: Option<(Health, Timestamp)>,
    holding: BTreeMap<Condition, Held>,
    /// Changes of closed months were told up to here, in microseconds since 1970.
    restated_until: Option<i64>,
    /// Tables of which something fails, and since when that was seen at each look.
    failing: BTreeMap<String, Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    since: Timestamp,
    /// When somebody was told last, and what it was made up of then.
    told_at: Option<Timestamp>,
    told: BTreeSet<String>,
}

/// What somebody is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    Begins(Condition, Holding),
    /// It held before, and there is more of it.
    Grows(Condition, Holding),
    Ends(Condition, String),
    Restated {
        until: i64,
        text: String,
    },
    /// Somebody tries whether it arrives.
    Test,
}

impl Message {
    /// Says it in the log.
    fn log(&self) {
        let text = self.text();
        match self {
            Message::Begins(..) | Message::Grows(..) | Message::Restated { .. } => {
                tracing::warn!("{text}");
            }
            Message::Ends(..) | Message::Test => tracing::info!("{text}"),
        }
    }

    /// Whether it says that the daemon cannot go on.
    pub(super) fn is_of_the_end(&self) -> bool {
        matches!(self, Message::Begins(Condition::Stopped, _))
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Message::Begins(_, Holding { text, .. }) | Message::Grows(_, Holding { text, .. }) => {
                text
            }
            Message::Ends(_, text) | Message::Restated { text, .. } => text,
            Message::Test => "this is a test of alert.url: nothing is wrong",
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

    /// That the daemon cannot go on, where the store cannot be read: of what holds otherwise nothing is known.
    pub(super) fn ending(&self, why: Kind) -> Look {
        let others = self.holding.keys().filter(|of| **of != Condition::Stopped);
        let mut look = Look { unknown: others.copied().collect(), ..Look::default() };
        look.says_it_ends(Some(why));
        look
    }

    /// What is known after a look, and what is to be told of it. What was not told stays to be told.
    pub(super) fn seeing(mut self, look: &Look, now: Timestamp) -> (Known, Vec<Message>) {
        let look = &self.with_what_fails(look, now);
        let mut messages = Vec::new();
        for (condition, holding) in &look.holding {
            let new = Held { since: now, told_at: None, told: BTreeSet::new() };
            let held = self.holding.entry(*condition).or_insert(new);
            // What went and comes again is new.
            held.told.retain(|subject| holding.subjects.contains(subject));
            let new = holding.subjects.difference(&held.told).count();
            match held.told_at {
                None => messages.push(Message::Begins(*condition, holding.clone())),
                Some(at) if new > 0 && now.duration_since(at) >= GROWS_EVERY => {
                    let text = format!("{} ({new} new)", holding.text);
                    let holding = Holding { text, ..holding.clone() };
                    messages.push(Message::Grows(*condition, holding));
                }
                Some(_) => {}
            }
        }
        let holds = |condition: &Condition| {
            look.holding.contains_key(condition) || look.unknown.contains(condition)
        };
        let over: Vec<Condition> = self.holding.keys().filter(|c| !holds(c)).copied().collect();
        for condition in over {
            match self.holding.get(&condition) {
                Some(held) if held.told_at.is_some() => {
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
        (self, messages)
    }

    /// The look, with what has failed for long: the last try counts, so that what failed before a daemon was away for a
    /// night has not failed all the while.
    fn with_what_fails(&mut self, look: &Look, now: Timestamp) -> Look {
        let mut look = look.clone();
        let Some(failing) = &look.failing else {
            look.unknown.insert(Condition::Failing);
            return look;
        };
        self.failing.retain(|table, _| failing.contains_key(table));
        for table in failing.keys() {
            let since = self.failing.entry(table.clone()).or_insert(now);
            *since = (*since).min(now);
        }
        let is_long = |(table, last): &(&String, &Timestamp)| {
            self.failing.get(*table).is_some_and(|since| last.duration_since(*since) >= LONG_BEHIND)
        };
        let tables: Vec<String> =
            failing.iter().filter(is_long).map(|(table, _)| table.clone()).collect();
        look.holds(Condition::Failing, &tables, |n| {
            let (what, have) = (counted(n, "table"), if n == 1 { "has" } else { "have" });
            let names = tables.join(", ");
            format!("{what} {have} failed for an hour, as a whole or in part ({names}), see sync.failures")
        });
        look
    }

    /// The same where the log is who is told: it always is.
    pub(super) fn logging(self, look: &Look, now: Timestamp) -> Known {
        let (mut known, messages) = self.seeing(look, now);
        for message in messages {
            message.log();
            known.was_told(&message, now);
        }
        known
    }

    /// Somebody was told.
    pub(super) fn was_told(&mut self, message: &Message, now: Timestamp) {
        match message {
            Message::Begins(condition, holding) | Message::Grows(condition, holding) => {
                if let Some(held) = self.holding.get_mut(condition) {
                    held.told_at = Some(now);
                    held.told.clone_from(&holding.subjects);
                }
            }
            Message::Ends(condition, _) => drop(self.holding.remove(condition)),
            Message::Restated { until, .. } => self.restated_until = Some(*until),
            Message::Test => {}
        }
    }

    /// How the mirror is now. That it starts says nothing: what was so before is so until it is known.
    pub(super) fn is(&mut self, health: Health, now: Timestamp) {
        let is_known = self.health.is_some_and(|(known, _)| known == health);
        if !is_known && health != Health::Starting {
            self.health = Some((health, now));
        }
    }

    /// Nobody can be told of any ends: what is over is no longer kept for it.
    pub(super) fn told_nobody(&mut self, messages: &[Message], now: Timestamp) {
        for ends in messages.iter().filter(|message| matches!(message, Message::Ends(..))) {
            self.was_told(ends, now);
        }
    }

    /// Whether nothing holds by this look. An end that could not be told yet is no reason to be unwell.
    pub(super) fn is_well(&self, look: &Look) -> bool {
        let held = |condition: &Condition| self.holding.contains_key(condition);
        look.holding.is_empty() && !look.unknown.iter().any(held)
    }
}

/// How the mirror is, as was last found out, and since when.
///
/// # Errors
/// Those of reading the store.
pub(crate) fn since(state: &State<'_>) -> Result<Option<(Health, Timestamp)>> {
    Ok(Known::read(state)?.health)
}

fn what(condition: Condition) -> &'static str {
    match condition {
        Condition::Difference => "the mirror differs from the source",
        Condition::Sum => "journals do not match the platform's own sums",
        Condition::Doubt => "answers of the platform are not believed",
        Condition::Feed => "changes do not arrive",
        Condition::Disk => "the disk of the store fills",
        Condition::Failing => "tables fail",
        Condition::Published => "nothing can be published",
        Condition::Parquet => "the place of the Parquet snapshots lacks the newest",
        Condition::Lake => "nothing can be carried to the lake",
        Condition::Subscriptions => "the webhook subscriptions cannot be made",
        Condition::Stopped => "the daemon could not go on",
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

    fn holding(text: &str, subjects: &[&str]) -> Holding {
        let subjects = subjects.iter().map(|subject| (*subject).to_owned()).collect();
        Holding { text: text.to_owned(), subjects }
    }

    fn look(conditions: &[Condition], restatements: &[i64]) -> Look {
        let one = |c: &Condition| (*c, holding(&format!("{c:?} holds"), &["it"]));
        let holding = conditions.iter().map(one).collect();
        Look { holding, restatements: restatements.to_vec(), ..Look::default() }
    }

    /// Looks, and tells everything.
    fn told(known: Known, look: &Look, second: i64) -> (Known, Vec<String>) {
        let (mut known, messages) = known.seeing(look, at(second));
        messages.iter().for_each(|message| known.was_told(message, at(second)));
        (known, messages.iter().map(|message| message.text().to_owned()).collect())
    }

    /// What the log has of a look.
    fn logged(known: Known, look: &Look, second: i64) -> (Known, String) {
        let log = tempfile::NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_writer(std::sync::Mutex::new(log.reopen().unwrap()))
            .finish();
        let known =
            tracing::subscriber::with_default(subscriber, || known.logging(look, at(second)));
        (known, std::fs::read_to_string(log.path()).unwrap())
    }

    #[test]
    fn the_log_has_the_text_of_what_begins_as_a_warning_and_its_end() {
        let (known, log) = logged(Known::default(), &look(&[Condition::Disk], &[]), 1);
        assert_eq!(log.trim(), "WARN Disk holds");
        let (known, log) = logged(known, &look(&[Condition::Disk], &[7]), 2);
        assert_eq!(
            log.trim(),
            "WARN 1 change within closed months, see report.journal_restatements"
        );
        let (known, log) = logged(known, &look(&[Condition::Disk], &[7]), 3);
        assert_eq!(log, "", "once");
        let (_, log) = logged(known, &look(&[], &[7]), 4);
        assert_eq!(
            log.trim(),
            "INFO over: the disk of the store fills (since 1970-01-01 00:00 UTC)"
        );
    }

    /// As the next process finds it.
    fn restarted(known: &Known) -> Known {
        serde_json::from_str(&known.to_text().unwrap()).unwrap()
    }

    #[test]
    fn each_thing_is_told_once_and_once_when_it_is_over() {
        let disk = look(&[Condition::Disk], &[]);
        let (known, messages) = told(Known::default(), &disk, 1);
        assert_eq!(messages, ["Disk holds"]);
        assert!(!known.is_well(&disk));
        let both = look(&[Condition::Disk, Condition::Feed], &[]);
        let (known, messages) = told(restarted(&known), &both, 2);
        assert_eq!(messages, ["Feed holds"]);
        let (known, messages) = told(known, &both, 1_000_000);
        assert_eq!(messages, [""; 0], "however long it lasts");
        let (known, messages) = told(known, &look(&[Condition::Feed], &[]), 1_000_001);
        assert_eq!(messages, ["over: the disk of the store fills (since 1970-01-01 00:00 UTC)"]);
        let nothing = look(&[], &[]);
        let (known, messages) = told(known, &nothing, 1_000_002);
        assert_eq!((known.is_well(&nothing), messages.len()), (true, 1));
        let (_, messages) = told(known, &look(&[], &[]), 1_000_003);
        assert_eq!(messages.len(), 0);
    }

    #[test]
    fn what_joins_a_thing_that_holds_is_told_within_the_hour_and_together() {
        let differs = |subjects: &[&str]| Look {
            holding: [(Condition::Difference, holding("it differs", subjects))].into(),
            ..Look::default()
        };
        let (known, messages) = told(Known::default(), &differs(&["a"]), 0);
        assert_eq!(messages, ["it differs"]);
        let (known, messages) = told(known, &differs(&["a", "b"]), 60);
        assert_eq!(messages, [""; 0], "somebody is at it");
        let (known, messages) = told(restarted(&known), &differs(&["b", "c"]), 3600);
        assert_eq!(messages, ["it differs (2 new)"]);
        let (known, messages) = told(known, &differs(&["c"]), 9999);
        assert_eq!(messages, [""; 0], "less is no news");
        let (known, messages) = told(known, &differs(&["b", "c"]), 20_000);
        assert_eq!(messages, ["it differs (1 new)"], "it was gone meanwhile");
        let (_, messages) = told(known, &look(&[], &[]), 20_001);
        assert_eq!(messages.len(), 1, "all of it is over");
    }

    #[test]
    fn a_table_that_fails_at_each_look_for_an_hour_of_tries_is_told() {
        let fails = |last: &[(&str, i64)]| Look {
            failing: Some(
                last.iter().map(|(table, second)| ((*table).to_owned(), at(*second))).collect(),
            ),
            ..Look::default()
        };
        let (known, messages) = told(Known::default(), &fails(&[("costs", -9_000)]), 0);
        assert_eq!(messages, [""; 0]);
        let (known, messages) = told(known, &fails(&[("costs", 3_599), ("notes", 3_000)]), 3_600);
        assert_eq!(messages, [""; 0]);
        // The daemon was away, and has not tried yet.
        let (known, messages) =
            told(restarted(&known), &fails(&[("costs", 3_599), ("notes", 3_000)]), 90_000);
        assert_eq!(messages, [""; 0]);
        let (known, messages) = told(known, &fails(&[("costs", 90_001)]), 90_010);
        assert_eq!(
            messages,
            ["1 table has failed for an hour, as a whole or in part (costs), see sync.failures"]
        );
        let ending = known.ending(Kind::Dead);
        let (known, messages) = told(known, &ending, 90_020);
        assert_eq!(messages.len(), 1, "that it ends, and nothing else: {messages:?}");
        let (known, messages) = told(known, &fails(&[]), 90_030);
        assert!(messages.iter().any(|text| text.starts_with("over: tables fail ")), "{messages:?}");
        let (_, messages) = told(known, &fails(&[("notes", 90_040)]), 90_040);
        assert_eq!(messages, [""; 0], "it begins anew");
    }

    #[test]
    fn that_it_ends_is_told_where_nothing_else_is_known() {
        let (known, _) = told(Known::default(), &look(&[Condition::Feed], &[]), 1);
        let ending = known.ending(Kind::StoreDown);
        let (known, messages) = told(known, &ending, 2);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].contains("has stopped: its store is not open"), "{messages:?}");
        let (_, messages) = told(restarted(&known), &look(&[], &[]), 3);
        assert_eq!(messages.len(), 2, "both are over: {messages:?}");
    }

    #[test]
    fn what_is_not_known_neither_begins_nor_ends() {
        let (known, _) = told(Known::default(), &look(&[Condition::Feed], &[]), 1);
        let unknown =
            Look { unknown: [Condition::Feed, Condition::Disk].into(), ..Look::default() };
        // A daemon that has just begun has not asked the feeds yet.
        let (known, messages) = told(restarted(&known), &unknown, 2);
        assert_eq!((known.is_well(&unknown), messages.len()), (false, 0));
        let (_, messages) = told(known, &look(&[], &[]), 3);
        assert_eq!(messages.len(), 1);
    }

    #[test]
    fn what_could_not_be_told_is_told_later_unless_it_is_over() {
        let both = look(&[Condition::Sum, Condition::Doubt], &[]);
        let (known, messages) = Known::default().seeing(&both, at(1));
        assert_eq!(messages.len(), 2, "and none arrives");
        let (known, messages) = known.seeing(&look(&[Condition::Sum], &[]), at(2));
        let sum = holding("Sum holds", &["it"]);
        assert_eq!(messages, [Message::Begins(Condition::Sum, sum)]);
        assert_eq!(known.holding.len(), 1);
    }

    #[test]
    fn an_end_that_does_not_arrive_is_tried_again_and_keeps_nobody_unwell() {
        let (known, _) = told(Known::default(), &look(&[Condition::Disk], &[]), 1);
        let nothing = look(&[], &[]);
        let mut known = known;
        for second in 2..4 {
            let (seen, messages) = known.seeing(&nothing, at(second));
            assert!(seen.is_well(&nothing));
            assert!(matches!(messages[..], [Message::Ends(Condition::Disk, _)]), "{messages:?}");
            known = restarted(&seen);
        }
        // It holds again: who was not told of its end knows that.
        let disk = look(&[Condition::Disk], &[]);
        let (known, messages) = known.seeing(&disk, at(4));
        assert_eq!((known.is_well(&disk), messages.len()), (false, 0));
    }

    #[test]
    fn where_nobody_can_be_told_what_is_over_is_forgotten_and_what_holds_is_not() {
        let (known, _) = told(Known::default(), &look(&[Condition::Disk, Condition::Sum], &[]), 1);
        let sum = look(&[Condition::Sum], &[]);
        let (mut known, messages) = known.seeing(&sum, at(2));
        known.told_nobody(&messages, at(2));
        assert_eq!(known.holding.keys().collect::<Vec<_>>(), [&Condition::Sum]);
        let (_, messages) = known.seeing(&sum, at(3));
        assert_eq!(messages, [], "somebody was told of it, and nothing is left to be told");
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

    #[test]
    fn since_when_it_is_so_outlives_a_restart() {
        let mut known = Known::default();
        known.is(Health::Good, at(5));
        known.is(Health::Good, at(6));
        let mut known = restarted(&known);
        known.is(Health::Starting, at(7));
        assert_eq!(known.health, Some((Health::Good, at(5))));
        known.is(Health::Attention, at(8));
        assert_eq!(known.health, Some((Health::Attention, at(8))));
    }
}
