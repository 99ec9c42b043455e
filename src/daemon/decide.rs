//! What the worker does next (pure).

use jiff::{SignedDuration, Timestamp};

/// A cycle that reads everything may last for days. After this long it gives way to what it does not do itself.
const LONGEST_ALONE: SignedDuration = SignedDuration::from_mins(10);

/// What the worker knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Situation {
    /// The process ends.
    pub(crate) stopping: bool,
    /// Another command has forwarded a job.
    pub(crate) job_waits: bool,
    /// The feeds were asked: before that, a first cycle would read cases twice.
    pub(crate) polled: bool,
    /// Something was seen that no cycle has planned, or the last cycle ended early.
    pub(crate) work_left: bool,
    /// After a cycle that failed: not before this.
    pub(crate) retry_at: Option<Timestamp>,
    /// Something that failed or that the search's lag held back can be tried again.
    pub(crate) due_at: Option<Timestamp>,
    /// A schedule falls due; may lie in the past.
    pub(crate) schedule_at: Option<Timestamp>,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Stop,
    Job,
    Cycle,
    /// Until this time, or until something happens.
    Wait(Option<Timestamp>),
}

/// Decides. Jobs come first, because somebody waits for them; a cycle does everything else.
pub(crate) fn next(situation: &Situation, now: Timestamp) -> Next {
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

/// Whether a cycle that began at `began` gives way to what came due since and waits for another one: what failed in
/// it, and lists that a webhook named.
pub(crate) fn gives_way(began: Timestamp, due: Option<Timestamp>, now: Timestamp) -> bool {
    now.duration_since(began) >= LONGEST_ALONE && due.is_some_and(|due| due <= now)
}

/// The earlier of two times, where there are any.
pub(crate) fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

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
    fn nothing_is_fetched_before_the_feed_was_asked() {
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
    fn a_long_cycle_gives_way_to_what_waits_for_another_one() {
        assert!(!gives_way(at(0), Some(at(5)), at(599)));
        assert!(gives_way(at(0), Some(at(5)), at(600)));
        assert!(!gives_way(at(0), Some(at(601)), at(600)), "it waits for its time");
        assert!(!gives_way(at(0), None, at(600)));
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
        let last = Name::ALL.into_iter().map(|name| (name, from)).collect();
        fired_since(config, last, from, to)
    }

    /// The same by a worker that is started at `from`, where the schedules ran before.
    fn fired_since(
        config: &Config,
        mut last: LastRuns,
        from: Timestamp,
        to: Timestamp,
    ) -> BTreeMap<Name, Vec<Timestamp>> {
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

    fn configured(schedules: &str) -> Config {
        let text = format!(
            "[source]\nbase_url = \"https://brokerage.invalid\"\nclient_id = \"a\"\n\
             client_secret = \"b\"\n[schedule]\n{schedules}"
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("casemirror.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(&path, &[], |_| None).unwrap()
    }

    /// From noon to noon. Both kinds of nights end on a Sunday, so that a weekly schedule is among them.
    const NIGHTS: [(&str, &str); 4] = [
        ("2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z"),
        ("2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z"),
        ("2027-03-27T12:00:00Z", "2027-03-28T12:00:00Z"),
        ("2027-10-30T12:00:00Z", "2027-10-31T12:00:00Z"),
    ];

    /// In the hour that is skipped or comes twice, and at its edges.
    const IN_THE_HOUR: &str = "reference = \"0 2 * * *\"\njournals = \"15-59/50 2 * * *\"\n\
                               journals_recheck = \"30 2 * * Sun\"\nreconcile = \"59 59 2 * * *\"\n\
                               verify = \"0 3 * * *\"\n";

    #[rstest]
    #[case::as_they_are("")]
    #[case::in_the_hour_of_the_change(IN_THE_HOUR)]
    fn every_schedule_fires_once_on_both_nights_of_a_clock_change(#[case] schedules: &str) {
        let config = configured(schedules);
        for (from, to) in NIGHTS {
            let fired = fired(&config, from.parse().unwrap(), to.parse().unwrap());
            for name in Name::ALL {
                assert_eq!(fired[&name].len(), 1, "{} in {from}: {fired:?}", name.as_str());
            }
        }
    }

    #[rstest]
    #[case::as_they_are("")]
    #[case::in_the_hour_of_the_change(IN_THE_HOUR)]
    fn what_was_missed_in_such_a_night_runs_once_at_the_start(#[case] schedules: &str) {
        let config = configured(schedules);
        for (from, to) in NIGHTS {
            let (slept, woke): (Timestamp, Timestamp) =
                (from.parse().unwrap(), to.parse().unwrap());
            let last: LastRuns = Name::ALL.into_iter().map(|name| (name, slept)).collect();
            let fired =
                fired_since(&config, last, woke, woke + std::time::Duration::from_secs(3600));
            for name in Name::ALL {
                assert_eq!(fired[&name], [woke], "{}", name.as_str());
            }
        }
    }
}
