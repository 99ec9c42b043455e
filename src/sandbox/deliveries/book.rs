//! When each delivery is due, and what became of it: no clock, no network.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::domain::Domains;
use super::letter::{Attempt, Form, Letter, Order, Target};
use super::retry::{Answer, Next, after};
use super::{Deliveries, Delivery, DeliveryCounts, DeliveryOutcome};

/// Deliveries that are remembered, pending ones included.
const REMEMBERED: usize = 10_000;

#[derive(Debug)]
struct Entry {
    target: Target,
    letter: Letter,
    due: Instant,
    attempts: u32,
    /// The limited retries so far.
    retries: u32,
    last: Option<Answer>,
    took: Duration,
    /// Its subscription went while it was under way.
    orphaned: bool,
    outcome: DeliveryOutcome,
}

/// The deliveries, and who gets domain events.
#[derive(Debug, Default)]
pub(super) struct Book {
    last_id: u64,
    entries: BTreeMap<u64, Entry>,
    /// What waits, by when it is due.
    waiting: BTreeMap<Target, BTreeSet<(Instant, u64)>>,
    under_way: HashMap<Target, u64>,
    /// Ids of what is no longer pending, in the order in which it ended.
    ended: VecDeque<u64>,
    counts: DeliveryCounts,
    pub(super) domains: Domains,
}

impl Book {
    /// How many are pending.
    pub(super) fn pending(&self) -> u64 {
        self.counts.pending
    }

    /// A number for what is made next.
    pub(super) fn next_id(&self) -> u64 {
        self.last_id + 1
    }

    pub(super) fn report(&self) -> Deliveries {
        Deliveries {
            counts: self.counts,
            latest: self.entries.iter().map(|(id, entry)| entry.report(*id)).collect(),
        }
    }

    /// What a delivery was ordered as, the newest where none is named.
    pub(super) fn order_of(&self, id: Option<u64>) -> Option<Order> {
        let known = match id {
            Some(id) => self.entries.get(&id),
            None => self.entries.values().next_back(),
        }?;
        let Letter { event_type, url, body, form, .. } = known.letter.clone();
        Some(Order { target: known.target.clone(), event_type, url, body, form })
    }

    /// Makes a delivery as often as said; their ids.
    pub(super) fn add_times(&mut self, order: &Order, times: u32) -> Vec<u64> {
        (0..times).map(|_| self.add(order)).collect()
    }

    fn add(&mut self, order: &Order) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let due = Instant::now();
        let letter = Letter {
            id,
            event_type: order.event_type.clone(),
            url: order.url.clone(),
            body: order.body.clone(),
            form: order.form.clone(),
        };
        let entry = Entry {
            target: order.target.clone(),
            letter,
            due,
            attempts: 0,
            retries: 0,
            last: None,
            took: Duration::ZERO,
            orphaned: false,
            outcome: DeliveryOutcome::Pending,
        };
        self.entries.insert(id, entry);
        self.counts.pending += 1;
        // A simulation must not call anybody.
        if is_here(&order.url) {
            self.waiting.entry(order.target.clone()).or_default().insert((due, id));
        } else {
            self.end(id, DeliveryOutcome::NotSent);
        }
        self.bound();
        id
    }

    /// What waits for a subscription is not sent any more, what is under way not repeated.
    pub(super) fn forget(&mut self, target: &Target) {
        for (_, id) in self.waiting.remove(target).unwrap_or_default() {
            let tried = self.entries.get(&id).is_some_and(|entry| entry.attempts > 0);
            self.end(id, if tried { DeliveryOutcome::Failed } else { DeliveryOutcome::NotSent });
        }
        let leaving = self.under_way.get(target).and_then(|id| self.entries.get_mut(id));
        if let Some(entry) = leaving {
            entry.orphaned = true;
        }
    }

    /// What may leave now, at most one letter per subscription and `room` in all, the longest due
    /// first; and when the next one is due, where there is room left for it.
    pub(super) fn take_due(&mut self, now: Instant, room: usize) -> (Vec<Letter>, Option<Instant>) {
        let firsts = self.waiting.iter().filter(|(target, _)| !self.under_way.contains_key(target));
        let mut firsts: Vec<(Instant, u64, Target)> = firsts
            .filter_map(|(target, queue)| {
                queue.first().map(|(due, id)| (*due, *id, target.clone()))
            })
            .collect();
        firsts.sort();
        let is_due = firsts.iter().take_while(|(due, _, _)| *due <= now).count().min(room);
        let next = (is_due < room).then(|| firsts.get(is_due).map(|(due, _, _)| *due)).flatten();
        let mut letters = Vec::new();
        for (due, id, target) in firsts.into_iter().take(is_due) {
            self.unqueue(&target, due, id);
            self.under_way.insert(target, id);
            letters.extend(self.entries.get(&id).map(|entry| entry.letter.clone()));
        }
        (letters, next)
    }

    fn unqueue(&mut self, target: &Target, due: Instant, id: u64) {
        if let Some(queue) = self.waiting.get_mut(target) {
            queue.remove(&(due, id));
            if queue.is_empty() {
                self.waiting.remove(target);
            }
        }
    }

    /// Notes what an attempt came to. A minute of the retry table takes this long.
    pub(super) fn settle(&mut self, id: u64, attempt: Attempt, minute: Duration, now: Instant) {
        self.counts.attempts += 1;
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.under_way.remove(&entry.target);
        entry.attempts += 1;
        (entry.last, entry.took) = (Some(attempt.answer), attempt.took);
        if let (Form::Handshake { code }, Target::Domain(name)) =
            (&entry.letter.form, &entry.target)
        {
            // It has to succeed soon, so that it is not repeated.
            let opened = attempt.confirmed && self.domains.open_with(name, code);
            let outcome = if opened { DeliveryOutcome::Delivered } else { DeliveryOutcome::Failed };
            return self.end(id, outcome);
        }
        match after(attempt.answer, entry.retries) {
            Next::Delivered => self.end(id, DeliveryOutcome::Delivered),
            Next::Failed => self.end(id, DeliveryOutcome::Failed),
            Next::Again { .. } if entry.orphaned => self.end(id, DeliveryOutcome::Failed),
            Next::Again { minutes, counts } => {
                entry.retries += u32::from(counts);
                entry.due = now + minute * minutes;
                let waits = (entry.due, id);
                self.waiting.entry(entry.target.clone()).or_default().insert(waits);
            }
        }
    }

    fn end(&mut self, id: u64, outcome: DeliveryOutcome) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.outcome = outcome;
        self.ended.push_back(id);
        self.counts.pending -= 1;
        *match outcome {
            DeliveryOutcome::Pending => &mut self.counts.pending,
            DeliveryOutcome::Delivered => &mut self.counts.delivered,
            DeliveryOutcome::Failed => &mut self.counts.failed,
            DeliveryOutcome::NotSent => &mut self.counts.not_sent,
        } += 1;
    }

    /// Forgets what ended first, and where nothing has, what waits longest.
    fn bound(&mut self) {
        while self.entries.len() > REMEMBERED {
            if let Some(id) = self.ended.pop_front() {
                self.entries.remove(&id);
                continue;
            }
            let leaving: Vec<u64> = self.under_way.values().copied().collect();
            let oldest = self.entries.keys().find(|id| !leaving.contains(id)).copied();
            let Some(entry) = oldest.and_then(|id| self.entries.remove(&id)) else { return };
            self.unqueue(&entry.target, entry.due, entry.letter.id);
            self.counts.pending -= 1;
            self.counts.dropped += 1;
        }
    }
}

impl Entry {
    fn report(&self, id: u64) -> Delivery {
        Delivery {
            id,
            subscription: self.target.name(),
            event_type: self.letter.event_type.as_ref().to_owned(),
            url: self.letter.url.as_ref().to_owned(),
            body: self.letter.body.as_ref().to_owned(),
            attempts: self.attempts,
            status: match self.last {
                Some(Answer::Status(status)) => Some(status),
                Some(Answer::TooSlow) | None => None,
            },
            seconds: self.took.as_secs_f64(),
            outcome: self.outcome,
        }
    }
}

/// Whether an address is one of this machine.
fn is_here(url: &str) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const HERE: &str = "http://127.0.0.1:9/hook";

    fn order(target: i64, url: &str) -> Order {
        Order {
            target: Target::Webhook(target),
            event_type: "CaseSold".into(),
            url: url.into(),
            body: "{}".into(),
            form: Form::Webhook,
        }
    }

    fn attempt(answer: Answer) -> Attempt {
        Attempt { answer, confirmed: false, took: Duration::ZERO }
    }

    /// The minutes after which a delivery is made again, as long as it is.
    fn waits(answers: &[Answer]) -> (Vec<u64>, DeliveryOutcome) {
        let mut book = Book::default();
        let id = book.add(&order(1, HERE));
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for answer in answers {
            let (letters, _) = book.take_due(now, 9);
            assert_eq!(letters.len(), 1);
            book.settle(id, attempt(*answer), MINUTE, now);
            let (none, next) = book.take_due(now, 9);
            assert!(none.is_empty());
            if let Some(next) = next {
                waits.push((next - now).as_secs() / 60);
                now = next;
            }
        }
        (waits, book.entries[&id].outcome)
    }

    #[test]
    fn a_retry_is_due_as_many_minutes_later_as_the_table_says() {
        use DeliveryOutcome::{Delivered, Failed, Pending};
        let bad = Answer::Status(500);
        assert_eq!(waits(&[bad; 6]), (vec![1, 2, 3, 4, 5], Failed));
        assert_eq!(waits(&[Answer::TooSlow; 6]), (vec![1, 2, 3, 4, 5], Failed));
        assert_eq!(waits(&[Answer::Status(0); 9]), (vec![1; 9], Pending));
        // What is merely rescheduled uses up no retry.
        let mixed = [bad, Answer::Status(100), Answer::TooSlow, Answer::Status(302)];
        assert_eq!(waits(&mixed), (vec![1, 1, 2], Delivered));
        assert_eq!(waits(&[bad, Answer::Status(410)]), (vec![1], Failed));
    }

    #[test]
    fn a_subscription_has_one_letter_under_way_and_a_retry_holds_up_no_other() {
        let mut book = Book::default();
        let ids: Vec<u64> =
            [1, 1, 2, 1].into_iter().map(|target| book.add(&order(target, HERE))).collect();
        let now = Instant::now();
        let taken = |book: &mut Book, room| -> Vec<u64> {
            book.take_due(now, room).0.iter().map(|letter| letter.id).collect()
        };
        assert_eq!(taken(&mut book, 9), [ids[0], ids[2]]);
        assert_eq!(taken(&mut book, 9), [0; 0]);
        book.settle(ids[0], attempt(Answer::Status(500)), MINUTE, now);
        assert_eq!(taken(&mut book, 9), [ids[1]]);
        book.settle(ids[1], attempt(Answer::Status(200)), MINUTE, now);
        assert_eq!(taken(&mut book, 0), [0; 0]);
        assert_eq!(taken(&mut book, 1), [ids[3]]);
        book.settle(ids[3], attempt(Answer::Status(200)), MINUTE, now);
        let (again, _) = book.take_due(now + MINUTE, 9);
        assert_eq!(again.iter().map(|letter| letter.id).collect::<Vec<_>>(), [ids[0]]);
    }

    #[test]
    fn the_newest_are_remembered_and_all_are_counted() {
        let mut book = Book::default();
        let waiting = book.add(&order(1, HERE));
        for _ in 0..REMEMBERED + 10 {
            book.add(&order(2, "https://hooks.example.no/x"));
        }
        assert_eq!(book.entries.len(), REMEMBERED);
        assert_eq!(book.counts.not_sent, REMEMBERED as u64 + 10);
        // What has ended goes first.
        assert!(book.entries.contains_key(&waiting));
        for _ in 0..REMEMBERED + 10 {
            book.add(&order(1, HERE));
        }
        let counts = book.counts;
        assert_eq!((book.entries.len(), counts.pending), (REMEMBERED, REMEMBERED as u64));
        assert_eq!((counts.dropped, book.waiting[&Target::Webhook(1)].len()), (11, REMEMBERED));
    }

    #[test]
    fn only_addresses_of_this_machine_are_here() {
        for url in
            ["http://127.0.0.1:1/", "https://localhost/x", "http://[::1]:80", "http://127.9.9.9"]
        {
            assert!(is_here(url), "{url}");
        }
        for url in
            ["http://10.0.0.1/", "https://localhost.no/", "http://[::2]/", "nowhere", "file:///x"]
        {
            assert!(!is_here(url), "{url}");
        }
    }
}
