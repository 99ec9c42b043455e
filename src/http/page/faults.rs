//! What is wrong or was, each fault once: the status, the scopes that failed and the runs all tell of it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::disk::Disk;
use crate::http::facts::Facts;
use crate::pulse::{Feeds, Lag};
use crate::status::Fault;

/// So many tables, feeds and runs that meet with the same are told of together: then it is the source that
/// fails.
const MANY: usize = 3;

/// One fault, and all that is told of it.
#[derive(Default)]
pub(super) struct Told {
    /// Of a table that cannot be read, for whatever reasons: that is one fault. So is what many meet with.
    faults: Vec<Fault>,
    /// As they stand elsewhere, each once, the first first.
    pub(super) texts: Vec<String>,
    pub(super) scopes: i64,
    pub(super) attempts: i64,
    pub(super) next_try: Option<Timestamp>,
    /// How many runs ended with it.
    pub(super) runs: u64,
    /// When it was first and last met, as far as that is known.
    pub(super) first: Option<Timestamp>,
    pub(super) last: Option<Timestamp>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Faults {
    /// What needs somebody.
    pub(super) now: Vec<Told>,
    /// What runs ended with and is so no more, or needs nobody; the newest first.
    pub(super) earlier: Vec<Told>,
}

impl Faults {
    pub(super) fn of(facts: &Facts) -> Faults {
        let mut faults = Faults::default();
        if let Some(lag) = lag(&facts.feeds) {
            let text = lag.to_string();
            let fault = Fault::of(lag.error.as_ref().unwrap_or(&text));
            tell(&mut faults.now, fault, &text);
        }
        // That nothing is followed stands apart, whatever is the reason.
        let apart = faults.now.len();
        let is_told =
            |problem: &String| lag(&facts.feeds).is_some_and(|l| l.to_string() == *problem);
        let problems = facts.status.problems.iter().filter(|problem| !is_told(problem));
        for problem in disk(facts).into_iter().chain(problems.cloned()) {
            let fault = Fault::of(&problem);
            let of_table = fault.table.as_deref().and_then(|table| faults.now_of(table));
            match of_table {
                Some(told) => told.is_also(fault, &problem),
                None => drop(tell(&mut faults.now, fault, &problem)),
            }
        }
        let others = faults.now.split_off(apart);
        faults.now.extend(joined(others));
        for failing in &facts.failing {
            let errors = facts.status.failures.iter().filter(|f| f.table == failing.table);
            let of_table = faults.now.iter().position(|told| told.is_of(&failing.table));
            // The feeds are no tables: what is said of them is the error alone.
            let of_feed = || {
                let is_error =
                    |told: &Told| errors.clone().any(|f| told.tells(&Fault::of(&f.error)));
                faults.now.iter().position(is_error)
            };
            let told = match of_table.or_else(of_feed) {
                Some(at) => &mut faults.now[at],
                None => {
                    let Some(error) = errors.clone().next().map(|f| &f.error) else { continue };
                    let fault = Fault::of_table(&failing.table, error);
                    tell(&mut faults.earlier, fault, &format!("{}: {error}", failing.table))
                }
            };
            told.scopes += failing.scopes;
            told.attempts += failing.attempts;
            told.met(failing.first);
            told.next_try = told.next_try.into_iter().chain(failing.next_try).min();
            for failure in errors {
                told.says(&match failure.scope {
                    0 => format!("{}: {}", failure.table, failure.error),
                    scope => format!("{} {scope}: {}", failure.table, failure.error),
                });
            }
        }
        for run in &facts.errors {
            // A run may tell of a fault in more than one way.
            let mut met = BTreeSet::new();
            for line in run.error.lines() {
                let fault = Fault::of(line);
                let of_now = faults.now.iter().position(|told| told.tells(&fault));
                let (all, at) = match of_now {
                    Some(at) => (&mut faults.now, at),
                    None => {
                        let at = place_of(&mut faults.earlier, fault);
                        (&mut faults.earlier, at)
                    }
                };
                all[at].says(line);
                if met.insert((of_now.is_some(), at)) {
                    all[at].runs += run.runs;
                    all[at].met(Some(run.first));
                    all[at].met(Some(run.last));
                }
            }
        }
        faults.earlier.sort_by_key(|told| std::cmp::Reverse(told.last));
        faults
    }

    /// Whether something is told of a table that needs somebody.
    pub(super) fn has(&self, table: &str) -> bool {
        self.now.iter().any(|told| told.is_of(table))
    }

    /// Whether what waits does so for a fault that is told already.
    pub(super) fn is_why(&self, waits: &str) -> bool {
        self.now.iter().flat_map(|told| &told.faults).any(|fault| fault.is_why(waits))
    }

    fn now_of(&mut self, table: &str) -> Option<&mut Told> {
        self.now.iter_mut().find(|told| told.is_of(table))
    }
}

impl Told {
    fn is_of(&self, table: &str) -> bool {
        self.faults.iter().any(|fault| fault.table.as_deref() == Some(table))
    }

    fn tells(&self, fault: &Fault) -> bool {
        self.faults.contains(fault)
    }

    fn is_also(&mut self, fault: Fault, text: &str) {
        self.faults.push(fault);
        self.says(text);
    }

    fn says(&mut self, text: &str) {
        if !self.texts.iter().any(|said| said == text) {
            self.texts.push(text.to_owned());
        }
    }

    /// What its calls met with, if all with the same.
    fn met_with(&self) -> Option<&str> {
        let mut all = self.faults.iter().map(Fault::met);
        let first = all.next()??;
        all.all(|met| met == Some(first)).then_some(first)
    }

    fn met(&mut self, at: Option<Timestamp>) {
        self.first = self.first.into_iter().chain(at).min();
        self.last = self.last.max(at);
    }
}

/// What many meet with as one, in the place of the first of them.
fn joined(all: Vec<Told>) -> Vec<Told> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for met in all.iter().filter_map(Told::met_with) {
        *counts.entry(met.to_owned()).or_default() += 1;
    }
    counts.retain(|_, count| *count >= MANY);
    let mut joined: Vec<Told> = Vec::new();
    let mut place = BTreeMap::new();
    for told in all {
        let many = told.met_with().and_then(|met| counts.get_key_value(met));
        let Some((met, count)) = many else {
            joined.push(told);
            continue;
        };
        let at = *place.entry(met).or_insert_with(|| {
            let said = told.texts.iter().find_map(|text| Fault::met_in(text)).unwrap_or(met);
            let texts = vec![format!("{count} things fail alike: {said}")];
            joined.push(Told { texts, ..Told::default() });
            joined.len() - 1
        });
        joined[at].faults.extend(told.faults);
        joined[at].texts.extend(told.texts);
    }
    joined
}

/// What is told of a fault from here on.
fn tell<'t>(all: &'t mut Vec<Told>, fault: Fault, text: &str) -> &'t mut Told {
    let at = place_of(all, fault);
    all[at].says(text);
    &mut all[at]
}

fn place_of(all: &mut Vec<Told>, fault: Fault) -> usize {
    all.iter().position(|told| told.tells(&fault)).unwrap_or_else(|| {
        all.push(Told { faults: vec![fault], ..Told::default() });
        all.len() - 1
    })
}

/// In what the polling lags, as far as that is a fault.
fn lag(feeds: &Feeds) -> Option<&Lag> {
    match feeds {
        Feeds::Stalled(lag) => Some(lag),
        // Before the first poll only one that fails.
        Feeds::Starting(lag) => Some(lag).filter(|lag| lag.error.is_some()),
        Feeds::Polled => None,
    }
}

fn disk(facts: &Facts) -> Option<String> {
    let disk = facts.disk.as_ref().filter(|disk| disk.is_short());
    disk.map(|disk: &Disk| {
        format!("the disk of the store fills: {} are free", super::words::bytes(disk.free))
    })
}
