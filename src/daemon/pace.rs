//! When to publish (pure; docs/architecture.md, "Published means finished").

use std::time::{Duration, Instant};

use crate::session::Forms;

/// After a publish that took t the next comes 10 t later at the earliest: publishing never takes more
/// than a tenth of the time.
const REST: u32 = 10;
/// Readers get a new copy at least as often, whatever a publish takes and although nothing changed:
/// the watermark says how far it goes.
const LONGEST: Duration = Duration::from_secs(3600);

/// Decides when to publish what.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    database: Duration,
    parquet: Option<Duration>,
    last: Option<Last>,
    last_parquet: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    ended: Instant,
    took: Duration,
}

impl Pace {
    /// `parquet` is `None` where the snapshots are off.
    pub(crate) fn new(database: Duration, parquet: Option<Duration>) -> Pace {
        Pace { database, parquet, last: None, last_parquet: None }
    }

    /// Something was published.
    pub(crate) fn published(&mut self, forms: Forms, ended: Instant, took: Duration) {
        self.last = Some(Last { ended, took });
        if forms == Forms::Both {
            self.last_parquet = Some(ended);
        }
    }

    /// What has changed is published from here on; `None`: at once.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.last.map(|last| {
            let rest = last.took.saturating_mul(REST).min(LONGEST);
            last.ended + rest.max(self.database)
        })
    }

    /// Then it is published although nothing changed; `None` before the first publish.
    pub(crate) fn latest(&self) -> Option<Instant> {
        self.last.map(|last| last.ended + LONGEST.max(self.database))
    }

    /// What a publish at `now` consists of. A snapshot always goes with the database, so that both have
    /// one id.
    pub(crate) fn forms(&self, now: Instant) -> Forms {
        match self.parquet {
            Some(interval) if self.last_parquet.is_none_or(|last| now >= last + interval) => {
                Forms::Both
            }
            Some(_) | None => Forms::Database,
        }
    }

    /// Then a snapshot may be taken again; `None`: at once, or never.
    pub(crate) fn parquet_earliest(&self) -> Option<Instant> {
        Some(self.last_parquet? + self.parquet?)
    }

    /// How long the last publish took; long publishes are not begun when the process ends.
    pub(crate) fn took(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |last| last.took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pace_after(took: Duration, forms: Forms) -> (Pace, Instant) {
        let mut pace = Pace::new(60 * SECOND, Some(900 * SECOND));
        let ended = Instant::now();
        pace.published(forms, ended, took);
        (pace, ended)
    }

    #[test]
    fn the_first_publish_waits_for_nothing() {
        let pace = Pace::new(60 * SECOND, Some(900 * SECOND));
        assert_eq!((pace.earliest(), pace.latest()), (None, None));
        assert_eq!(pace.forms(Instant::now()), Forms::Both);
    }

    #[test]
    fn the_next_comes_ten_times_as_long_after_it_and_never_before_the_interval() {
        for (took, rest) in [(1, 60), (6, 60), (7, 70), (100, 1000), (360, 3600), (4000, 3600)] {
            let (pace, ended) = pace_after(took * SECOND, Forms::Database);
            assert_eq!(pace.earliest(), Some(ended + rest * SECOND), "took {took} s");
        }
    }

    #[test]
    fn readers_get_a_new_copy_every_hour_unless_the_interval_is_longer() {
        let (pace, ended) = pace_after(SECOND, Forms::Both);
        assert_eq!(pace.latest(), Some(ended + 3600 * SECOND));
        let mut pace = Pace::new(7200 * SECOND, None);
        pace.published(Forms::Database, ended, SECOND);
        assert_eq!(pace.latest(), Some(ended + 7200 * SECOND));
    }

    #[test]
    fn a_snapshot_goes_with_the_database_when_its_interval_is_over() {
        let (mut pace, ended) = pace_after(SECOND, Forms::Both);
        assert_eq!(pace.forms(ended + 899 * SECOND), Forms::Database);
        assert_eq!(pace.forms(ended + 900 * SECOND), Forms::Both);
        pace.published(Forms::Database, ended + 60 * SECOND, SECOND);
        assert_eq!(pace.parquet_earliest(), Some(ended + 900 * SECOND));
        let off = Pace::new(SECOND, None);
        assert_eq!(off.forms(ended), Forms::Database);
    }
}
