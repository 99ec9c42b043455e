//! The rule by itself, and by many hosts whose network, machines and clocks are as bad as they get.

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

const VALID: Duration = Duration::from_secs(30);
const SETTLING: Duration = Duration::from_secs(60);

fn party(machine: &str, boot: u32) -> Party {
    let host = Host { machine: machine.to_owned(), boot: boot.to_string() };
    Party { host, name: format!("{machine} (process 1)") }
}

fn tenure(machine: &str) -> Tenure {
    Tenure::new(party(machine, 1), VALID, SETTLING, false)
}

fn at(second: u64) -> Duration {
    Duration::from_secs(second)
}

/// A register that is always reached.
#[derive(Default)]
struct Held(Option<Record>);

impl Held {
    fn turn(&mut self, tenure: &mut Tenure, second: u64) -> Stand {
        if let Some(record) = tenure.turn(at(second), self.0.as_ref(), true) {
            tenure.wrote(at(second), at(second), &record);
            self.0 = Some(record);
        }
        tenure.stand(at(second))
    }
}

#[test]
fn who_comes_first_has_it_when_what_others_may_have_sent_is_over() {
    let (mut register, mut one) = (Held::default(), tenure("one"));
    assert_eq!(register.turn(&mut one, 1000), Stand::Settling);
    assert_eq!(register.turn(&mut one, 1030), Stand::Settling);
    assert_eq!(register.turn(&mut one, 1060), Stand::Ours);
    // The next process of the same host goes on at once.
    assert_eq!(register.turn(&mut tenure("one"), 1061), Stand::Ours);
    // One that was killed while it settled leaves that to the next.
    let (mut register, mut first) = (Held::default(), tenure("one"));
    register.turn(&mut first, 1000);
    let mut second = tenure("one");
    assert_eq!(register.turn(&mut second, 1050), Stand::Settling);
    assert_eq!(register.turn(&mut second, 1100), Stand::Settling);
    assert_eq!(register.turn(&mut second, 1110), Stand::Ours);
}

#[test]
fn another_host_takes_it_when_the_holder_is_silent_and_knew_of_it() {
    let (mut register, mut one, mut two) = (Held::default(), tenure("one"), tenure("two"));
    register.turn(&mut one, 1000);
    register.turn(&mut one, 1060);
    let Stand::Others { holder, takes_over, .. } = register.turn(&mut two, 1061) else { panic!() };
    assert_eq!((holder.as_str(), takes_over), ("one (process 1)", false));
    assert_eq!(register.turn(&mut one, 1070), Stand::Ours);
    let known = |stand| matches!(stand, Stand::Others { takes_over: true, .. });
    assert!(known(register.turn(&mut two, 1075)));
    // It was last renewed before 1075, and is silent from then on.
    assert!(known(register.turn(&mut two, 1107)));
    assert_eq!(register.turn(&mut two, 1109), Stand::Settling);
    assert_eq!(register.turn(&mut two, 1169), Stand::Ours);
    // The former one finds that out, whenever it comes back.
    assert!(matches!(register.turn(&mut one, 1170), Stand::Others { .. }));
}

#[test]
fn nobody_takes_it_from_a_host_that_did_not_know_of_it() {
    let (mut register, mut one, mut two) = (Held::default(), tenure("one"), tenure("two"));
    register.turn(&mut one, 1000);
    register.turn(&mut one, 1060);
    for second in (1061..9000).step_by(5) {
        assert!(matches!(register.turn(&mut two, second), Stand::Others { .. }));
    }
    // It cannot reach the register meanwhile, and goes on while it tries.
    one.failed(at(5000), true);
    assert_eq!(one.stand(at(5010)), Stand::Ours);
    assert_eq!(one.stand(at(5000) + TRIED_WITHIN), Stand::Unknown, "asleep since");
    // Given back, by itself or by a person who knows that it is gone, anybody takes it.
    register.0 = register.0.map(|record| record.given_back());
    assert_eq!(register.turn(&mut two, 9001), Stand::Settling);
}

#[test]
fn what_another_process_of_this_host_took_anew_is_settled_anew() {
    // Both had it; this one did not see that it was lost, and won again.
    let (mut register, mut one) = (Held::default(), tenure("one"));
    register.turn(&mut one, 1000);
    assert_eq!(register.turn(&mut one, 1060), Stand::Ours);
    register.0 = register.0.map(|record| record.given_back());
    let (mut two, mut beside) = (tenure("two"), tenure("one"));
    register.turn(&mut two, 1061);
    register.turn(&mut beside, 1062);
    register.0 = register.0.map(|record| record.given_back());
    assert_eq!(register.turn(&mut beside, 1063), Stand::Settling);
    assert_eq!(register.turn(&mut one, 1064), Stand::Settling);
    // One that goes on alone, because it never reached the register, and then finds it unsettled.
    let mut never = Tenure::new(party("one", 1), VALID, SETTLING, true);
    never.failed(at(1065), true);
    assert_eq!(never.stand(at(1065)), Stand::Ours);
    assert_eq!(register.turn(&mut never, 1066), Stand::Settling);
}

#[test]
fn who_is_not_the_only_process_of_its_host_does_not_go_on_alone() {
    let (mut register, mut one) = (Held::default(), tenure("one"));
    register.turn(&mut one, 1000);
    register.turn(&mut one, 1060);
    one.failed(at(1070), false);
    assert_eq!(one.stand(at(1089)), Stand::Ours);
    assert_eq!(one.stand(at(1090)), Stand::Unknown);
    assert_eq!(register.turn(&mut one, 1100), Stand::Ours);
}

#[test]
fn a_host_that_knows_of_another_one_stops_when_it_cannot_renew() {
    let (mut register, mut one, mut two) = (Held::default(), tenure("one"), tenure("two"));
    register.turn(&mut one, 1000);
    register.turn(&mut one, 1060);
    register.turn(&mut two, 1061);
    // Whether this is written is never known.
    let record = one.turn(at(1070), register.0.as_ref(), true).unwrap();
    assert_eq!(record.acknowledged, [party("two", 1).host]);
    one.failed(at(1070), true);
    assert_eq!(one.stand(at(1089)), Stand::Ours);
    assert_eq!(one.stand(at(1090)), Stand::Unknown);
}

#[test]
fn who_waits_no_longer_is_forgotten() {
    let (mut register, mut one, mut two) = (Held::default(), tenure("one"), tenure("two"));
    register.turn(&mut one, 1000);
    register.turn(&mut two, 1001);
    for second in (1010..1600).step_by(10) {
        register.turn(&mut one, second);
    }
    assert!(one.is_alone());
    assert_eq!(register.0.unwrap().waiting().count(), 0);
}

#[test]
fn the_same_machine_after_a_crash_takes_it_again_though_nobody_knew_of_that() {
    let (mut register, mut one) = (Held::default(), tenure("one"));
    register.turn(&mut one, 1000);
    register.turn(&mut one, 1060);
    let mut after = Tenure::new(party("one", 2), VALID, SETTLING, false);
    assert!(matches!(register.turn(&mut after, 10), Stand::Others { .. }));
    assert_eq!(register.turn(&mut after, 44), Stand::Settling);
}

#[test]
fn what_was_lost_is_not_taken_for_held_when_it_comes_back() {
    let (mut register, mut one, mut two) = (Held::default(), tenure("one"), tenure("two"));
    register.turn(&mut one, 1000);
    register.turn(&mut one, 1060);
    let before = register.0.clone();
    register.0 = register.0.map(|record| record.given_back());
    register.turn(&mut two, 1061);
    assert!(matches!(register.turn(&mut one, 1062), Stand::Others { .. }));
    // Somebody gives the register back from a backup.
    register.0 = before;
    assert_eq!(register.turn(&mut one, 1063), Stand::Settling);
}

/// A host in a bad world.
struct Player {
    machine: String,
    boot: u32,
    tenure: Tenure,
    /// Its clock is off by this, and runs at this rate.
    offset: f64,
    rate: f64,
    up: bool,
    reaches: bool,
    /// True time of the next turn.
    next: f64,
    /// What it is about to write, over which version, and when it began.
    writing: Option<(Record, u64, Duration)>,
}

impl Player {
    fn now(&self, time: f64) -> Duration {
        Duration::from_secs_f64(self.offset + self.rate * time)
    }

    fn start(&mut self, boot: u32) {
        self.boot = boot;
        let me = party(&self.machine, boot);
        self.tenure = Tenure::new(me, VALID, SETTLING, false);
        (self.up, self.writing) = (true, None);
    }
}

/// Plays a day of hosts whose network breaks, that crash and start anew, and whose writings are lost or not known of;
/// returns for how many seconds somebody asked the feeds, and how often they went from one to another.
fn play(seed: u64) -> (f64, u32) {
    const STEP: f64 = 0.5;
    let mut random = StdRng::seed_from_u64(seed);
    let mut register: (Option<Record>, u64) = (None, 0);
    let mut players: Vec<Player> = (0..3)
        .map(|n| Player {
            machine: format!("m{n}"),
            boot: 1,
            tenure: tenure(&format!("m{n}")),
            offset: random.random_range(0.0..1e6),
            rate: 1.0 + random.random_range(-5e-4..5e-4),
            up: n == 0,
            reaches: true,
            next: 0.0,
            writing: None,
        })
        .collect();
    let mut last: Option<(usize, f64)> = None;
    let (mut asked, mut moves, mut time) = (0.0, 0, 0.0);
    while time < 86_400.0 {
        for (n, player) in players.iter_mut().enumerate() {
            if random.random_bool(2e-4) {
                player.reaches = !player.reaches;
            } else if !player.reaches && random.random_bool(0.01) {
                player.reaches = true;
            }
            if random.random_bool(1e-4) {
                if player.up && random.random_bool(0.5) && player.reaches {
                    let me = party(&player.machine, player.boot);
                    if register.0.as_ref().is_some_and(|record| record.holder == me) {
                        register = (register.0.map(|r| r.given_back()), register.1 + 1);
                    }
                }
                player.up = false;
            } else if !player.up && random.random_bool(0.005) {
                let boot = player.boot + u32::from(random.random_bool(0.5));
                player.start(boot);
                player.next = time;
            }
            if !player.up {
                continue;
            }
            let now = player.now(time);
            if let Some((record, version, began)) = player.writing.take_if(|_| time >= player.next)
            {
                let is_lost = !player.reaches || random.random_bool(0.02);
                let is_there = !is_lost || random.random_bool(0.5);
                let is_written = is_there && player.reaches && version == register.1;
                if is_written {
                    register = (Some(record.clone()), register.1 + 1);
                }
                if is_lost {
                    player.tenure.failed(began, true);
                } else if is_written {
                    player.tenure.wrote(began, now, &record);
                }
                player.next = time + player.tenure.pause(now).as_secs_f64();
            } else if time >= player.next {
                if player.reaches {
                    let found = player.tenure.turn(now, register.0.as_ref(), true);
                    player.writing = found.map(|record| (record, register.1, now));
                    player.next = time + random.random_range(0.0..8.0);
                } else {
                    player.tenure.failed(now, true);
                    player.next = time + player.tenure.pause(now).as_secs_f64();
                }
            }
            if player.tenure.stand(player.now(time)) == Stand::Ours {
                if let Some((before, when)) = last
                    && before != n
                {
                    moves += 1;
                    let gap = time - when;
                    // The clocks are half a thousandth off.
                    let least = SETTLING.as_secs_f64() * 0.999 - STEP;
                    assert!(gap >= least, "seed {seed}, second {time}: {gap} s after another host");
                }
                last = Some((n, time));
                asked += STEP;
            }
        }
        time += STEP;
    }
    (asked, moves)
}

#[test]
fn no_two_hosts_ask_within_what_the_first_may_have_under_way() {
    let mut total = (0.0, 0);
    for seed in 0..16 {
        let (asked, moves) = play(seed);
        total = (total.0 + asked, total.1 + moves);
    }
    // It is of use, too: somebody asks most of the time, though everything breaks every few hours.
    assert!(total.0 > 0.7 * 16.0 * 86_400.0, "{} of the time", total.0 / (16.0 * 86_400.0));
    assert!(total.1 > 40, "{} moves", total.1);
}
