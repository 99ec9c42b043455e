//! What the worker does next (pure).

use jiff::Timestamp;

/// What the worker knows.
#[derive(Debug, Clone, Default)]
pub struct Situation {
    /// The process ends.
    pub stopping: bool,
    /// Another command has handed over a job.
    pub job_waits: bool,
    /// What the feeds say is known: without it, a first cycle would read cases twice.
    pub polled: bool,
    /// Something was seen that no cycle has planned, or the last cycle ended early.
    pub work_left: bool,
    /// After a cycle that failed: not before this.
    pub retry_at: Option<Timestamp>,
    /// Something that failed or that the search's lag held back can be tried again.
    pub due_at: Option<Timestamp>,
    /// A schedule falls due; may lie in the past.
    pub schedule_at: Option<Timestamp>,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Stop,
    Job,
    Cycle,
    /// Until this time, or until something happens.
    Wait(Option<Timestamp>),
}

/// Decides. Jobs come first, because somebody waits for them; a cycle does everything else.
pub fn next(situation: &Situation, now: Timestamp) -> Next {
    let s = situation;
    if s.stopping {
        return Next::Stop;
    }
    if s.job_waits {
        return Next::Job;
    }
    if !s.polled {
        return Next::Wait(None);
    }
    let wanted = if s.work_left { Some(now) } else { earlier(s.due_at, s.schedule_at) };
    let at = wanted.map(|at| s.retry_at.map_or(at, |retry| at.max(retry)));
    match at {
        Some(at) if at <= now => Next::Cycle,
        at => Next::Wait(at),
    }
}

/// The earlier of two times, where there are any.
pub fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Config;
    use crate::schedule::{self, LastRuns, Name};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn idle() -> Situation {
        Situation { polled: true, ..Situation::default() }
    }

    #[test]
    fn stopping_comes_before_jobs_and_jobs_before_everything_else() {
        let mut s = Situation { work_left: true, job_waits: true, stopping: true, ..idle() };
        assert_eq!(next(&s, at(0)), Next::Stop);
        s.stopping = false;
        assert_eq!(next(&s, at(0)), Next::Job);
        s.job_waits = false;
        assert_eq!(next(&s, at(0)), Next::Cycle);
        assert_eq!(next(&idle(), at(0)), Next::Wait(None));
    }

    #[test]
    fn nothing_is_fetched_before_the_feed_was_read() {
        let s = Situation { work_left: true, polled: false, ..idle() };
        assert_eq!(next(&s, at(0)), Next::Wait(None));
    }

    #[test]
    fn it_wakes_when_the_first_thing_comes_due() {
        let s = Situation { due_at: Some(at(20)), schedule_at: Some(at(10)), ..idle() };
        assert_eq!(next(&s, at(9)), Next::Wait(Some(at(10))));
        assert_eq!(next(&s, at(10)), Next::Cycle);
    }

    #[test]
    fn a_failed_cycle_is_not_repeated_before_its_time() {
        let s = Situation { work_left: true, retry_at: Some(at(30)), ..idle() };
        assert_eq!(next(&s, at(29)), Next::Wait(Some(at(30))));
        assert_eq!(next(&s, at(30)), Next::Cycle);
    }

    /// Plays the worker's loop over a night: it sleeps as it decides, and every cycle runs what is due
    /// and notes it, as a cycle does.
    fn fired(config: &Config, from: Timestamp, to: Timestamp) -> BTreeMap<Name, Vec<Timestamp>> {
        let mut last: LastRuns = Name::ALL.into_iter().map(|name| (name, from)).collect();
        let mut fired: BTreeMap<Name, Vec<Timestamp>> = BTreeMap::new();
        let mut now = from;
        while now <= to {
            let schedule_at = schedule::next_of_all(&config.schedule, &last).unwrap();
            match next(&Situation { schedule_at, ..idle() }, now) {
                Next::Cycle => {
                    for name in schedule::due(&config.schedule, &last, now).unwrap() {
                        fired.entry(name).or_default().push(now);
                        last.insert(name, now);
                    }
                }
                // No sleep is longer than half a minute, so it wakes a little late as well.
                Next::Wait(Some(at)) => {
                    let longest = std::time::Duration::from_secs(30);
                    now += schedule::nap(now, at, longest) + std::time::Duration::from_millis(3);
                }
                other => panic!("{other:?}"),
            }
        }
        fired
    }

    #[test]
    fn every_schedule_fires_once_on_both_nights_of_a_clock_change() {
        let text = "[source]\nbase_url = \"https://brokerage.invalid\"\nclient_id = \"a\"\n\
                    client_secret = \"b\"\n";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("casemirror.toml");
        std::fs::write(&path, text).unwrap();
        let config = Config::load(&path, &[]).unwrap();
        for (from, to) in [
            ("2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z"),
            ("2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z"),
            ("2027-03-27T12:00:00Z", "2027-03-28T12:00:00Z"),
            ("2027-10-30T12:00:00Z", "2027-10-31T12:00:00Z"),
        ] {
            // Both nights end on a Sunday, so that the weekly schedule is among them.
            let fired = fired(&config, from.parse().unwrap(), to.parse().unwrap());
            for name in Name::ALL {
                assert_eq!(fired[&name].len(), 1, "{} in {from}: {fired:?}", name.as_str());
            }
        }
    }
}
