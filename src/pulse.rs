//! When the daemon's parts last did what they are for. Failures move nothing here.

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
    cases: Option<Moment>,
    contacts: Option<Moment>,
}

#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Timestamp,
    since: Instant,
}

impl Polls {
    fn of(&mut self, feed: FeedName) -> &mut Option<Moment> {
        match feed {
            FeedName::Cases => &mut self.cases,
            FeedName::Contacts => &mut self.contacts,
        }
    }
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse { started: Timestamp::now(), began: Instant::now(), polls: Mutex::default() }
    }
}

impl Pulse {
    /// A feed was asked completely.
    pub(crate) fn polled(&self, feed: FeedName) {
        *self.polls().of(feed) = Some(Moment { at: Timestamp::now(), since: Instant::now() });
    }

    /// When a feed was last asked completely by this process.
    pub(crate) fn last_poll(&self, feed: FeedName) -> Option<Timestamp> {
        self.polls().of(feed).map(|last| last.at)
    }

    /// In what the polling lags; `None`: both feeds were asked completely within the larger of three
    /// intervals and two minutes (contract, section 8).
    pub(crate) fn lag(&self, feed: &config::Feed) -> Option<String> {
        self.lag_at(feed, Instant::now())
    }

    fn lag_at(&self, feed: &config::Feed, now: Instant) -> Option<String> {
        let intervals = [
            (FeedName::Cases, Some(feed.poll_interval())),
            (FeedName::Contacts, feed.contacts_interval()),
        ];
        intervals.into_iter().find_map(|(name, interval)| {
            let longest = (interval? * INTERVALS).max(PATIENCE);
            let Some(last) = *self.polls().of(name) else {
                return Some(format!("the change feed of {name} was not polled completely yet"));
            };
            let waited = now.saturating_duration_since(last.since);
            (waited > longest).then(|| {
                let seconds = waited.as_secs();
                format!("the change feed of {name} was last polled completely {seconds} s ago")
            })
        })
    }

    /// Whether the polling lags and has had the time not to: since the start, too.
    pub(crate) fn is_stalled(&self, feed: &config::Feed) -> bool {
        self.is_stalled_at(feed, Instant::now())
    }

    fn is_stalled_at(&self, feed: &config::Feed, now: Instant) -> bool {
        let intervals = feed.contacts_interval().unwrap_or_default().max(feed.poll_interval());
        let lives = now.saturating_duration_since(self.began);
        lives > (intervals * INTERVALS).max(PATIENCE) && self.lag_at(feed, now).is_some()
    }

    fn polls(&self) -> MutexGuard<'_, Polls> {
        self.polls.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        Config::load(&path, &[]).unwrap()
    }

    #[test]
    fn it_lags_when_a_feed_was_not_polled_for_two_minutes_or_three_intervals() {
        for (feed, longest) in [("contacts_poll = \"0s\"", 120), ("poll = \"60s\"", 180)] {
            let config = configured(feed);
            let pulse = Pulse::default();
            assert!(pulse.lag(&config.feed).unwrap().contains("of cases was not polled"), "{feed}");
            pulse.polled(FeedName::Cases);
            if config.feed.contacts_interval().is_some() {
                assert!(pulse.lag(&config.feed).unwrap().contains("of contacts"), "{feed}");
                pulse.polled(FeedName::Contacts);
            }
            // Not before the last poll, and less than a second behind it.
            let polled = Instant::now();
            assert_eq!(pulse.lag_at(&config.feed, polled + (longest - 1) * SECOND), None, "{feed}");
            let late = polled + (longest + 1) * SECOND;
            assert!(pulse.lag_at(&config.feed, late).unwrap().contains("s ago"), "{feed}");
            assert!(pulse.is_stalled_at(&config.feed, late), "{feed}");
        }
    }

    #[test]
    fn it_is_not_stalled_before_it_had_the_time_to_poll() {
        let config = configured("");
        let pulse = Pulse::default();
        assert!(pulse.lag(&config.feed).is_some());
        assert!(!pulse.is_stalled_at(&config.feed, pulse.began + 179 * SECOND));
        assert!(pulse.is_stalled_at(&config.feed, pulse.began + 181 * SECOND));
    }
}
