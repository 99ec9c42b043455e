//! The feed's ledger in a backup: taken as it is, and given back without taking a call from the ledger that is
//! there (docs/architecture.md, "The throttle ledger").

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::boot::{BootClock, SystemBootClock};
use super::client::rule;
use super::feed_calls::{Change, FeedCall, LedgerStore};
use super::ledger::Ledger;
use super::ledger_file::{LedgerFile, calls_in, look, read_all, usual_place};
use crate::config::Config;
use crate::error::{self, Result};

/// Where the ledger of the configured API user is.
///
/// # Errors
/// `Config` where there is no place for it.
pub(crate) fn place(config: &Config) -> Result<PathBuf> {
    match &config.feed.ledger {
        Some(path) => Ok(path.clone()),
        None => usual_place(&config.source.base_url, &config.source.client_id),
    }
}

/// Refuses a place where the next run could not have its ledger. Changes nothing.
///
/// # Errors
/// `Config`, `Io`.
pub(crate) fn check(config: &Config) -> Result<()> {
    look(&place(config)?)
}

/// Whether the configuration says whose ledger it is: a command that calls nobody need not know.
fn is_named(config: &Config) -> bool {
    config.feed.ledger.is_some() || !config.source.client_id.is_empty()
}

/// All that the ledger holds; `None` where there is none, or none is named. The store remembers the calls of
/// its own anyway.
///
/// # Errors
/// `Config`, `Io`.
pub(crate) fn ledger_text(config: &Config) -> Result<Option<Vec<u8>>> {
    if !is_named(config) {
        return Ok(None);
    }
    let place = place(config)?;
    match read_all(&place) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(error::io("read the feed's ledger", &place, e)),
    }
}

/// Adds the calls of another ledger that may still count to the one that is there, which loses none of its
/// own. Calls of another boot have no age: they count for a whole window from now.
///
/// # Errors
/// Those of [`LedgerStore::update`], `Config` where there is no place for the ledger.
pub(crate) fn merge_ledger(config: &Config, text: &[u8]) -> Result<()> {
    if !is_named(config) {
        return Ok(());
    }
    merge(config, text, Arc::new(SystemBootClock::new()))
}

fn merge(config: &Config, text: &[u8], clock: Arc<dyn BootClock>) -> Result<()> {
    let rule = rule(&config.feed, &config.limits);
    let file = LedgerFile::at(&place(config)?, rule.limit)?;
    let given = Given { file, calls: calls_in(text, rule.limit) };
    // To open it is to work into it what is remembered elsewhere.
    Ledger::open(Arc::new(given), rule, config.limits.timeout, clock).map(drop)
}

/// The ledger, and the calls of another one.
struct Given {
    file: LedgerFile,
    calls: Vec<FeedCall>,
}

impl LedgerStore for Given {
    fn update(&self, step: &mut dyn FnMut(&[FeedCall]) -> Vec<Change>) -> Result<()> {
        self.file.update(step)
    }

    fn remembered(&self, newest: usize) -> Result<Vec<FeedCall>> {
        let older = self.calls.len().saturating_sub(newest);
        let counts = self.calls.iter().enumerate();
        let counts = counts.filter(|(at, call)| *at >= older || call.end.is_none());
        Ok(counts.map(|(_, call)| call.clone()).collect())
    }

    fn is_gone(&self, call: &FeedCall) -> Option<bool> {
        self.file.is_gone(call)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scope::FeedName;
    use crate::source::boot::BootTime;

    #[derive(Debug)]
    struct Clock(&'static str, i64);

    impl BootClock for Clock {
        fn now(&self) -> BootTime {
            BootTime::from_nanos(self.1 * 1_000_000_000)
        }

        fn boot_id(&self) -> &str {
            self.0
        }
    }

    struct Place {
        folder: tempfile::TempDir,
        config: Config,
    }

    impl Place {
        /// Three calls in a minute.
        fn new() -> Place {
            let folder = tempfile::tempdir().unwrap();
            let base_url = "http://127.0.0.1:1/".parse().unwrap();
            let secret = "secret".to_owned().into();
            let mut config = Config::for_demo(base_url, "demo", secret, folder.path());
            config.feed.calls = 3;
            config.feed.per = Duration::from_secs(60);
            Place { folder, config }
        }

        fn ledger(&self, clock: Clock) -> Ledger {
            let rule = rule(&self.config.feed, &self.config.limits);
            let file = LedgerFile::at(&place(&self.config).unwrap(), rule.limit).unwrap();
            let patience = self.config.limits.timeout;
            Ledger::open(Arc::new(file), rule, patience, Arc::new(clock)).unwrap()
        }

        async fn call(&self, clock: Clock) -> bool {
            match self.ledger(clock).begin(FeedName::Cases).await.unwrap() {
                Some(permit) => permit.answered(200, Duration::ZERO).await.is_ok(),
                None => false,
            }
        }

        fn text(&self) -> Vec<u8> {
            ledger_text(&self.config).unwrap().unwrap()
        }

        fn calls(&self) -> usize {
            calls_in(&self.text(), 3).len()
        }
    }

    #[tokio::test]
    async fn calls_of_this_boot_are_known_again_and_keep_their_age() {
        let (place, clock) = (Place::new(), |second| Clock("boot", second));
        assert!(place.call(clock(100)).await && place.call(clock(101)).await);
        let text = place.text();
        merge(&place.config, &text, Arc::new(clock(110))).unwrap();
        assert_eq!(place.text(), text, "all of them are there");

        std::fs::remove_file(place.folder.path().join("feed-calls")).unwrap();
        merge(&place.config, &text, Arc::new(clock(110))).unwrap();
        assert_eq!(place.calls(), 2);
        assert!(place.call(clock(111)).await, "the third");
        assert!(!place.call(clock(112)).await, "a fourth within the minute");
        assert!(place.call(clock(162)).await, "the first is over a minute old");
    }

    #[tokio::test]
    async fn calls_of_another_boot_hold_the_feed_for_a_whole_window_and_those_there_stay() {
        let (backed_up, there) = (Place::new(), Place::new());
        for second in [100, 101] {
            assert!(backed_up.call(Clock("elsewhere", second)).await);
        }
        assert!(there.call(Clock("here", 5_000)).await);
        let own = there.text();
        for _ in 0..2 {
            let clock = Arc::new(Clock("here", 5_010));
            merge(&there.config, &backed_up.text(), clock).unwrap();
            assert!(there.text().starts_with(&own), "nothing is taken away");
            assert_eq!(there.calls(), 3, "each is there once");
        }
        assert!(!there.call(Clock("here", 5_059)).await);
        assert!(there.call(Clock("here", 5_062)).await, "its own is over a minute old");
        // What was under way elsewhere may arrive for a minute, and counts for another from then on.
        assert!(there.call(Clock("here", 5_124)).await);
        assert!(!there.call(Clock("here", 5_129)).await);
        assert!(there.call(Clock("here", 5_131)).await);
    }

    #[tokio::test]
    async fn what_is_no_line_of_a_ledger_counts_as_a_window_full_of_calls() {
        let place = Place::new();
        assert!(place.call(Clock("boot", 100)).await);
        let mut text = place.text();
        text.extend(b"x\n");
        std::fs::remove_file(place.folder.path().join("feed-calls")).unwrap();
        merge(&place.config, &text, Arc::new(Clock("boot", 110))).unwrap();
        assert!(!place.call(Clock("boot", 229)).await);
        assert!(place.call(Clock("boot", 231)).await);
    }
}
