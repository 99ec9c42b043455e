//! No window of `feed.per` ever sees more than `feed.calls` arrivals.

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use crate::scope::FeedName;
use crate::source::boot::BootTime;
use crate::source::boot::Fate;
use crate::source::feed_calls::{Caller, Change, Decision, Ended, FeedCall, Rule, adopt};

pub(super) const PER: Duration = Duration::from_secs(30);

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(seconds: i64) -> BootTime {
    BootTime::from_nanos(seconds * 1_000_000_000)
}

fn call(id: i64, sent: i64, end: Option<(i64, u64)>) -> FeedCall {
    FeedCall {
        id,
        feed: FeedName::Cases,
        by: Caller::default(),
        boot_id: "boot".to_owned(),
        sent_at: Timestamp::UNIX_EPOCH,
        sent: at(sent),
        patience: seconds(3_600),
        end: end.map(|(ended, retry_after)| Ended {
            boot_id: "boot".to_owned(),
            at: Timestamp::UNIX_EPOCH,
            time: at(ended),
            status: Some(200),
            retry_after: seconds(retry_after),
        }),
    }
}

fn decided(calls: &[FeedCall], now: i64, limit: u32) -> Decision {
    rule(limit).decide(calls, at(now), "boot")
}

pub(super) fn rule(limit: u32) -> Rule {
    Rule { limit, window: PER, longest_hold: seconds(3_600) }
}

/// What a start at `now` makes of calls of which nobody else ends any.
fn adopted(calls: &mut [FeedCall], now: i64) -> Vec<i64> {
    let changes =
        adopt(calls, at(now), Duration::ZERO, "boot", |_| true, |_| Fate::Over, |_| at(0));
    let ids = changes.iter().map(|change| match change {
        Change::Sent(call) => panic!("{call:?}"),
        Change::Ended(id, _) => *id,
    });
    ids.collect()
}

#[test]
fn a_call_counts_until_a_whole_window_after_its_end() {
    let calls = [call(1, 100, Some((110, 0)))];
    assert_eq!(decided(&calls, 120, 1), Decision::Wait(seconds(20)));
    assert_eq!(decided(&calls, 139, 1), Decision::Wait(seconds(1)));
    assert_eq!(decided(&calls, 140, 1), Decision::Go);
}

#[test]
fn a_call_that_has_not_ended_counts_whatever_its_age() {
    let calls = [call(1, 100, None), call(2, 500, Some((501, 0)))];
    assert_eq!(decided(&calls, 510, 2), Decision::Wait(seconds(21)));
    assert_eq!(decided(&calls, 531, 2), Decision::Go);
    assert_eq!(decided(&calls, 9_999, 1), Decision::Wait(PER));
}

#[test]
fn as_many_calls_must_age_as_are_too_many() {
    let calls = [
        call(1, 0, Some((10, 0))),
        call(2, 0, Some((12, 0))),
        call(3, 0, Some((11, 0))),
        call(4, 0, Some((13, 0))),
    ];
    assert_eq!(decided(&calls, 20, 5), Decision::Go);
    assert_eq!(decided(&calls, 20, 4), Decision::Wait(seconds(20)));
    // A limit that was lowered: three of the four have to age.
    assert_eq!(decided(&calls, 20, 2), Decision::Wait(seconds(22)));
}

#[test]
fn a_refusal_holds_the_feed_even_when_calls_are_left() {
    let calls = [call(1, 0, Some((10, 90)))];
    assert_eq!(decided(&calls, 20, 6), Decision::Wait(seconds(80)));
    assert_eq!(decided(&calls, 100, 6), Decision::Go);
}

#[test]
fn calls_of_another_boot_have_no_age_until_they_are_adopted() {
    let mut calls = vec![call(1, 5, Some((6, 0)))];
    calls[0].boot_id = "earlier".to_owned();
    calls[0].end.as_mut().unwrap().boot_id = "earlier".to_owned();
    assert_eq!(decided(&calls, 1_000, 1), Decision::Wait(PER));
    // Its age by the clock of this boot is written, for the start after this one.
    assert_eq!(adopted(&mut calls, 1_000), [1]);
    assert_eq!(adopted(&mut calls, 1_005), [0_i64; 0]);
    assert_eq!(decided(&calls, 1_010, 1), Decision::Wait(seconds(20)));
    assert_eq!(decided(&calls, 1_030, 1), Decision::Go);
}

#[test]
fn a_later_call_of_this_boot_tells_the_age_of_one_of_another() {
    let mut earlier = call(1, 70_000, Some((70_001, 0)));
    earlier.end.as_mut().unwrap().boot_id = "earlier".to_owned();
    let mut calls = vec![call(2, 500, Some((510, 0))), earlier];
    adopted(&mut calls, 1_000);
    assert_eq!(decided(&calls, 1_000, 1), Decision::Go);
    // A call of another machine that came later tells nothing about it.
    let mut later = call(3, 1, Some((2, 0)));
    later.end.as_mut().unwrap().boot_id = "elsewhere".to_owned();
    let mut calls = vec![call(2, 500, Some((510, 0))), later];
    adopted(&mut calls, 1_000);
    assert_eq!(decided(&calls, 1_000, 1), Decision::Wait(PER));
}

#[test]
fn of_a_boot_that_has_ended_beside_this_one_what_is_gone_is_adopted_and_counts_from_now() {
    let mut ended = call(1, 70_000, Some((70_001, 0)));
    ended.end.as_mut().unwrap().boot_id = "process".to_owned();
    let mut under_way = call(2, 70_002, None);
    under_way.boot_id = "process".to_owned();
    let mut calls = vec![ended, under_way, call(3, 500, Some((510, 0)))];
    let adopt = |calls: &mut [FeedCall], now, is_gone: bool| {
        adopt(calls, at(now), seconds(5), "boot", |_| is_gone, |_| Fate::Ended, |_| at(0))
    };
    let changes = adopt(&mut calls, 1_000, false);
    assert!(
        matches!(&changes[..], [Change::Ended(1, end)] if end.time == at(1_000)),
        "{changes:?}"
    );
    assert_eq!(decided(&calls, 1_020, 2), Decision::Wait(seconds(10)));
    adopt(&mut calls, 1_020, true);
    assert_eq!(decided(&calls, 1_020, 1), Decision::Wait(seconds(35)));
}

/// Who wrote it back by its own clock would be answered by the other with its own.
#[test]
fn of_a_boot_that_may_live_an_end_counts_from_when_it_was_met_and_is_not_written() {
    let mut calls = vec![call(1, 70_000, Some((70_001, 0))), call(2, 70_000, Some((70_030, 0)))];
    for call in &mut calls {
        call.end.as_mut().unwrap().boot_id = "beside".to_owned();
    }
    calls[1].end.as_mut().unwrap().status = None;
    let met = |_: &FeedCall| at(1_000);
    let changes =
        adopt(&mut calls, at(1_020), seconds(5), "boot", |_| false, |_| Fate::MayLive, met);
    assert!(changes.is_empty(), "{changes:?}");
    // What was given up may arrive a while after that.
    assert_eq!(decided(&calls, 1_020, 2), Decision::Wait(seconds(10)));
    assert_eq!(decided(&calls, 1_020, 1), Decision::Wait(seconds(15)));
}

#[test]
fn a_start_without_end_ends_at_the_restart_and_that_is_written() {
    let mut calls = vec![call(1, 100, None), call(2, 90, Some((95, 0)))];
    assert_eq!(adopted(&mut calls, 700), [1]);
    assert_eq!(calls.iter().find(|call| call.id == 1).unwrap().end.as_ref().unwrap().time, at(700));
    assert_eq!(decided(&calls, 700, 1), Decision::Wait(PER));
}

#[test]
fn an_end_in_the_future_is_not_believed() {
    let mut calls = vec![call(1, 5_000, Some((5_001, 0)))];
    assert_eq!(decided(&calls, 100, 1), Decision::Wait(seconds(60)));
    calls[0].end.as_mut().unwrap().time = at(110);
    assert_eq!(decided(&calls, 100, 1), Decision::Wait(seconds(40)));
}

#[test]
fn a_call_of_a_process_that_is_gone_may_still_arrive_however_old_it_is() {
    let mut calls = vec![FeedCall { patience: seconds(60), ..call(1, 100, None) }];
    let changes =
        adopt(&mut calls, at(5_000), seconds(30), "boot", |_| true, |_| Fate::Over, |_| at(0));
    assert_eq!(changes.len(), 1);
    assert_eq!(calls[0].end.as_ref().unwrap().time, at(5_030));
    let mut calls = vec![FeedCall { patience: seconds(60), ..call(1, 100, None) }];
    adopt(&mut calls, at(110), seconds(30), "boot", |_| true, |_| Fate::Over, |_| at(0));
    assert_eq!(calls[0].end.as_ref().unwrap().time, at(140));
}

#[test]
fn a_call_that_was_given_up_takes_one_place_and_holds_no_other() {
    let mut calls = vec![FeedCall { patience: seconds(60), ..call(1, 100, None) }];
    adopt(&mut calls, at(110), seconds(30), "boot", |_| true, |_| Fate::Over, |_| at(0));
    assert_eq!(decided(&calls, 110, 2), Decision::Go);
    assert_eq!(decided(&calls, 110, 1), Decision::Wait(seconds(60)));
}

#[test]
fn a_call_of_a_process_that_lives_is_left_to_it() {
    let mut calls = vec![call(1, 100, None)];
    assert!(
        adopt(&mut calls, at(5_000), seconds(30), "boot", |_| false, |_| Fate::Over, |_| at(0))
            .is_empty()
    );
    assert_eq!(decided(&calls, 5_000, 1), Decision::Wait(PER));
}

#[test]
fn every_refusal_holds_the_feed_for_a_window() {
    let calls = [call(1, 0, Some((10, 30)))];
    let rule = Rule { longest_hold: seconds(1), ..rule(6) };
    assert_eq!(rule.decide(&calls, at(20), "boot"), Decision::Wait(seconds(20)));
}

#[test]
fn no_refusal_holds_the_feed_longer_than_it_may() {
    let calls = [call(1, 0, Some((10, 1_000_000)))];
    assert_eq!(decided(&calls, 20, 6), Decision::Wait(seconds(3_590)));
    assert_eq!(decided(&calls, 3_610, 6), Decision::Go);
}

/// What happens to a simulated client.
#[derive(Debug, Clone)]
enum Event {
    /// A call that arrives after `latency * arrival / 100` and is answered after `latency` (ms).
    Call {
        latency: u64,
        arrival: u64,
        retry_after: u64,
    },
    Pass {
        milliseconds: u64,
    },
    /// The oldest call in flight is given up.
    Abort,
    /// The process is killed and started again after a while.
    Kill {
        away: u64,
    },
    /// The machine is started again; its boot clock begins anew.
    Reboot {
        away: u64,
        uptime: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0_u64..45_000, 0_u64..=100, prop_oneof![9 => Just(0_u64), 1 => 0_u64..90_000])
            .prop_map(|(latency, arrival, retry_after)| Event::Call { latency, arrival, retry_after }),
        2 => (0_u64..20_000).prop_map(|milliseconds| Event::Pass { milliseconds }),
        1 => Just(Event::Abort),
        1 => (0_u64..3_000).prop_map(|away| Event::Kill { away }),
        1 => (0_u64..3_000, 0_u64..5_000)
            .prop_map(|(away, uptime)| Event::Reboot { away, uptime }),
    ]
}

/// A client, its store and the source, on one time line of milliseconds.
struct World {
    now: u64,
    boot_started: i64,
    boot: u32,
    limit: u32,
    calls: Vec<FeedCall>,
    /// Id, arrival, end, retry_after of the calls under way.
    flying: Vec<(i64, u64, u64, u64)>,
    arrivals: Vec<u64>,
    held_until: u64,
}

/// Like the ledger's: what was sent can still arrive so long after its connection was given up, in
/// milliseconds.
const GRACE: u64 = 30_000;

impl World {
    fn boot_time(&self, now: u64) -> BootTime {
        BootTime::from_nanos((now as i64 - self.boot_started) * 1_000_000)
    }

    fn boot_id(&self) -> String {
        format!("boot {}", self.boot)
    }

    fn end(&mut self, id: i64, now: u64, retry_after: u64) {
        let ended = Ended {
            boot_id: self.boot_id(),
            at: Timestamp::UNIX_EPOCH,
            time: self.boot_time(now),
            status: None,
            retry_after: Duration::from_millis(retry_after),
        };
        let call = self.calls.iter_mut().find(|call| call.id == id).unwrap();
        call.boot_id.clone_from(&ended.boot_id);
        call.end = Some(ended);
    }

    /// Lets time pass; calls end on the way.
    fn pass_to(&mut self, until: u64) {
        self.flying.sort_by_key(|call| call.2);
        while let Some(&(id, arrival, end, retry_after)) = self.flying.first()
            && end <= until
        {
            self.flying.remove(0);
            self.arrivals.push(arrival);
            self.end(id, end, retry_after);
            if retry_after > 0 {
                self.held_until = self.held_until.max(end + retry_after);
            }
        }
        self.now = until;
    }

    /// The connection is closed: what had been sent by then may still arrive within the grace.
    fn give_up(&mut self, arrival: u64) {
        if arrival <= self.now + GRACE {
            self.arrivals.push(arrival);
        }
    }

    fn call(&mut self, latency: u64, arrival: u64, retry_after: u64) {
        loop {
            let now = self.boot_time(self.now);
            match rule(self.limit).decide(&self.calls, now, &self.boot_id()) {
                Decision::Go => break,
                Decision::Wait(wait) => {
                    let wake = self.now + wait.as_millis() as u64 + 1;
                    let next_end = self.flying.iter().map(|call| call.2).min();
                    self.pass_to(next_end.map_or(wake, |end| end.clamp(self.now, wake)));
                }
            }
        }
        assert!(self.now >= self.held_until, "a call went while the feed was held back");
        let id = self.calls.len() as i64 + 1;
        self.calls.push(FeedCall {
            id,
            feed: FeedName::Contacts,
            by: Caller::default(),
            boot_id: self.boot_id(),
            sent_at: Timestamp::UNIX_EPOCH,
            sent: self.boot_time(self.now),
            patience: seconds(60),
            end: None,
        });
        let arrives = self.now + latency * arrival / 100;
        self.flying.push((id, arrives, self.now + latency, retry_after));
    }

    fn restart(&mut self, away: u64) {
        for (_, arrival, _, _) in std::mem::take(&mut self.flying) {
            self.give_up(arrival);
        }
        self.now += away;
        let (boot_id, now) = (self.boot_id(), self.boot_time(self.now));
        adopt(
            &mut self.calls,
            now,
            Duration::from_millis(GRACE),
            &boot_id,
            |_| true,
            |_| Fate::Over,
            |_| now,
        );
    }

    fn step(&mut self, event: &Event) {
        match *event {
            Event::Call { latency, arrival, retry_after } => {
                self.call(latency, arrival, retry_after)
            }
            Event::Pass { milliseconds } => self.pass_to(self.now + milliseconds),
            Event::Abort => {
                if !self.flying.is_empty() {
                    let (id, arrival, _, _) = self.flying.remove(0);
                    self.give_up(arrival);
                    self.end(id, self.now + GRACE, 0);
                }
            }
            Event::Kill { away } => self.restart(away),
            Event::Reboot { away, uptime } => {
                self.boot += 1;
                self.boot_started = (self.now + away) as i64 - uptime as i64;
                self.restart(away);
            }
        }
    }
}

/// The smallest distance between an arrival and the one `limit` after it: shorter than the window
/// means that one window saw more than `limit`.
pub(super) fn closest<T: Copy + Ord + std::ops::Sub<Output = D>, D: Ord>(
    arrivals: &mut [T],
    limit: usize,
) -> Option<D> {
    arrivals.sort_unstable();
    arrivals.iter().zip(arrivals.get(limit..)?).map(|(first, later)| *later - *first).min()
}

proptest! {
    #[test]
    fn no_window_sees_more_arrivals_than_allowed(
        limit in 1_u32..8,
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut world = World {
            now: 1_000_000,
            boot_started: 0,
            boot: 1,
            limit,
            calls: Vec::new(),
            flying: Vec::new(),
            arrivals: Vec::new(),
            held_until: 0,
        };
        for event in &events {
            world.step(event);
        }
        world.pass_to(world.now + 1_000_000);
        let closest = closest(&mut world.arrivals, limit as usize);
        prop_assert!(closest.is_none_or(|gap| gap >= 30_000), "{closest:?} {events:?}");
    }
}
