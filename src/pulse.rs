//! When the daemon's parts last did what they are for. Failures move no time here.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::config;
use crate::scope::FeedName;

/// A feed that was not asked completely for so long is stalled, if its interval is short.
const PATIENCE: Duration = Duration::from_secs(120);
/// And for so many intervals.
const INTERVALS: u32 = 3;

/// What the daemon's parts tell of themselves.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// When the daemon began.
    pub(crate) started: Timestamp,
    began: Instant,
    polls: Mutex<Polls>,
}

#[derive(Debug, Default)]
struct Polls {
    cases: Poll,
    contacts: Poll,
}

#[derive(Debug, Clone, Default)]
struct Poll {
    last: Option<Moment>,
    /// When a page of it last came.
    page: Option<Instant>,
    /// What the polls since then failed with, the last of them.
    error: Option<String>,
    /// How many cases or contacts the polls have found changed, and nobody has asked for yet.
    moved: u64,
}

#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Timestamp,
    since: Instant,
}

impl Polls {
    fn of(&mut self, feed: FeedName) -> &mut Poll {
        match feed {
            FeedName::Cases => &mut self.cases,
            FeedName::Contacts => &mut self.contacts,
        }
    }
}

/// How the polling of both feeds stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Feeds {
    /// Both were asked completely within the larger of three intervals and two minutes.
    Polled,
    /// Not yet, and there was no time for it since the start, or pages of the poll come still.
    Starting(Lag),
    Stalled(Lag),
}

impl Feeds {
    /// In what the polling lags.
    pub(crate) fn lag(&self) -> Option<&Lag> {
        match self {
            Feeds::Polled => None,
            Feeds::Starting(lag) | Feeds::Stalled(lag) => Some(lag),
        }
    }
}

/// In what the polling lags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lag {
    /// Which feed, and how long.
    pub(crate) what: String,
    /// What its last poll failed with, if it did.
    pub(crate) error: Option<String>,
}

impl fmt::Display for Lag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse { started: Timestamp::now(), began: Instant::now(), polls: Mutex::default() }
    }
}

impl Pulse {
    /// A feed was asked completely; so many cases or contacts of it have changed.
    pub(crate) fn polled(&self, feed: FeedName, moved: u64) {
        let last = Some(Moment { at: Timestamp::now(), since: Instant::now() });
        let mut polls = self.polls();
        let poll = polls.of(feed);
        *poll = Poll { last, page: None, error: None, moved: poll.moved + moved };
    }

    /// A page of a feed came, and there may be many more of this poll.
    pub(crate) fn gets_on(&self, feed: FeedName) {
        self.polls().of(feed).page = Some(Instant::now());
    }

    /// How many cases or contacts the polls have found changed since this was last asked.
    pub(crate) fn take_moved(&self, feed: FeedName) -> u64 {
        std::mem::take(&mut self.polls().of(feed).moved)
    }

    /// A feed could not be asked.
    pub(crate) fn failed(&self, feed: FeedName, error: String) {
        self.polls().of(feed).error = Some(error);
    }

    /// When a feed was last asked completely by this process.
    pub(crate) fn last_poll(&self, feed: FeedName) -> Option<Timestamp> {
        self.polls().of(feed).last.map(|last| last.at)
    }

    /// Whether both feeds were asked completely within the larger of three intervals and two minutes
    /// (contract, section 8), and if not, whether there was the time for it.
    pub(crate) fn feeds(&self, feed: &config::Feed) -> Feeds {
        self.feeds_at(feed, Instant::now())
    }

    fn feeds_at(&self, feed: &config::Feed, now: Instant) -> Feeds {
        let mut lags = self.lags_at(feed, now);
        let Some((_, first)) = lags.first().cloned() else { return Feeds::Polled };
        let intervals = feed.contacts_interval().unwrap_or_default().max(feed.poll_interval());
        let lives = now.saturating_duration_since(self.began);
        if lives <= longest(intervals) {
            return Feeds::Starting(first);
        }
        let gets_on = |name| {
            let page = self.polls().of(name).page;
            page.is_some_and(|page| now.saturating_duration_since(page) <= PATIENCE)
        };
        lags.retain(|(name, _)| !gets_on(*name));
        match lags.into_iter().next() {
            Some((_, lag)) => Feeds::Stalled(lag),
            None => Feeds::Starting(first),
        }
    }

    fn lags_at(&self, feed: &config::Feed, now: Instant) -> Vec<(FeedName, Lag)> {
        let intervals = [
            (FeedName::Cases, Some(feed.poll_interval())),
            (FeedName::Contacts, feed.contacts_interval()),
        ];
        let lag = |name, interval: Option<Duration>| {
            let longest = longest(interval?);
            let Poll { last, error, .. } = self.polls().of(name).clone();
            let Some(last) = last else {
                let what = format!("the change feed of {name} was not polled completely yet");
                return Some(Lag { what, error });
            };
            let waited = now.saturating_duration_since(last.since);
            (waited > longest).then(|| {
                let seconds = waited.as_secs();
                let what =
                    format!("the change feed of {name} was last polled completely {seconds} s ago");
                Lag { what, error }
            })
        };
        let lags = intervals.into_iter();
        lags.filter_map(|(name, interval)| Some((name, lag(name, interval)?))).collect()
    }

    fn polls(&self) -> MutexGuard<'_, Polls> {
        self.polls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A feed of this interval that was not asked completely for longer is stalled.
fn longest(interval: Duration) -> Duration {
    (interval * INTERVALS).max(PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const SECOND: Duration = Duration::from_secs(1);

    fn configured(feed: &str) -> Config {
        let text = format!(
            "[source]\nbase_url = \"https://brokerage.invalid\"\nclient_id = \"a\"\n\
             client_secret = \"b\"\n[feed]\n{feed}"
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("casemirror.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(&path, &[], |_| None).unwrap()
    }

    #[test]
    fn it_lags_when_a_feed_was_not_polled_for_two_minutes_or_three_intervals() {
        for (feed, longest) in [("contacts_poll = \"0s\"", 120), ("poll = \"60s\"", 180)] {
            let config = configured(feed);
            let pulse = Pulse::default();
            let lag = |now| {
                let lags = pulse.lags_at(&config.feed, now);
                lags.first().map(|(_, lag)| lag.to_string())
            };
            assert!(lag(pulse.began).unwrap().contains("of cases was not polled"), "{feed}");
            pulse.polled(FeedName::Cases, 2);
            if config.feed.contacts_interval().is_some() {
                assert!(lag(pulse.began).unwrap().contains("of contacts"), "{feed}");
                pulse.polled(FeedName::Contacts, 0);
            }
            // Not before the last poll, and less than a second behind it.
            let polled = Instant::now();
            assert_eq!(lag(polled + (longest - 1) * SECOND), None, "{feed}");
            let late = polled + (longest + 1) * SECOND;
            assert!(lag(late).unwrap().contains("s ago"), "{feed}");
            assert!(matches!(pulse.feeds_at(&config.feed, late), Feeds::Stalled(_)), "{feed}");
        }
    }

    #[test]
    fn a_poll_whose_pages_come_is_not_stalled_and_stands_for_no_other() {
        let config = configured("");
        let pulse = Pulse::default();
        let late = pulse.began + 400 * SECOND;
        let feeds = |now| pulse.feeds_at(&config.feed, now);
        assert!(matches!(feeds(late), Feeds::Stalled(_)));
        pulse.gets_on(FeedName::Cases);
        let contacts =
            |feeds| matches!(feeds, Feeds::Stalled(lag) if lag.what.contains("contacts"));
        let soon = Instant::now() + 100 * SECOND;
        let began = pulse.began - 400 * SECOND;
        let pulse = Pulse { began, ..pulse };
        let feeds = |now| pulse.feeds_at(&config.feed, now);
        assert!(contacts(feeds(soon)));
        pulse.gets_on(FeedName::Contacts);
        assert!(matches!(feeds(soon), Feeds::Starting(lag) if lag.what.contains("not polled")));
        assert!(matches!(feeds(soon + 100 * SECOND), Feeds::Stalled(_)), "no page for so long");
    }

    #[test]
    fn it_is_not_stalled_before_it_had_the_time_to_poll_and_says_what_failed() {
        let config = configured("");
        let pulse = Pulse::default();
        let feeds = |seconds| pulse.feeds_at(&config.feed, pulse.began + seconds * SECOND);
        assert!(matches!(feeds(179), Feeds::Starting(_)));
        assert!(matches!(feeds(181), Feeds::Stalled(_)));
        pulse.failed(FeedName::Cases, "no way there".to_owned());
        let Feeds::Starting(lag) = feeds(1) else { unreachable!("it has just begun") };
        assert!(lag.to_string().ends_with("completely yet: no way there"), "{lag}");
        pulse.polled(FeedName::Cases, 2);
        pulse.polled(FeedName::Contacts, 0);
        // One poll that fails is no lag, and the next one makes good for it.
        pulse.failed(FeedName::Cases, "no way there".to_owned());
        assert_eq!(pulse.feeds(&config.feed), Feeds::Polled);
        pulse.polled(FeedName::Cases, 3);
        assert_eq!(
            [FeedName::Cases, FeedName::Contacts].map(|feed| pulse.take_moved(feed)),
            [5, 0]
        );
        assert_eq!(pulse.take_moved(FeedName::Cases), 0, "told once");
    }
}
