//! Every delivery: when it is due, and what became of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::super::world::events::Event;
use super::super::world::registers::Subscription;
use super::domain::{self, Domains};
use super::retry::{Answer, Next, after};
use super::{Deliveries, Delivery, DeliveryCounts, DeliveryOutcome};

/// Deliveries that are remembered, pending ones included.
const REMEMBERED: usize = 10_000;

/// Whose delivery it is. Each has its own order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    /// The id of a webhook subscription.
    Webhook(i64),
    /// The name of a domain event subscription.
    Domain(String),
}

impl Target {
    fn name(&self) -> String {
        match self {
            Target::Webhook(id) => format!("webhook {id}"),
            Target::Domain(name) => format!("domain events '{name}'"),
        }
    }
}

/// What is posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// An event in its envelope (reference 6.1).
    Webhook,
    /// A list of one domain event.
    Domain,
    /// The handshake that precedes domain events: the answer has to repeat this code.
    Handshake { code: String },
}

/// What the post is handed: one attempt.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) id: u64,
    pub(super) event_type: Arc<str>,
    pub(super) url: Arc<str>,
    pub(super) body: Arc<str>,
    pub(super) form: Form,
}

/// What an attempt came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) answer: Answer,
    /// Whether a handshake was answered with its code.
    pub(super) confirmed: bool,
    pub(super) took: Duration,
}

/// A delivery to be made.
struct Order {
    target: Target,
    event_type: Arc<str>,
    url: Arc<str>,
    body: Arc<str>,
    form: Form,
}

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

#[derive(Debug, Default)]
struct Book {
    last_id: u64,
    entries: BTreeMap<u64, Entry>,
    /// What waits, by when it is due.
    waiting: BTreeMap<Target, BTreeSet<(Instant, u64)>>,
    under_way: HashMap<Target, u64>,
    /// Ids of what is no longer pending, in the order in which it ended.
    ended: VecDeque<u64>,
    counts: DeliveryCounts,
    domains: Domains,
}

/// The deliveries of a sandbox. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outbox {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    book: Mutex<Book>,
    changed: Notify,
    pending: watch::Sender<u64>,
}

impl Outbox {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.inner.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the book; the post and whoever waits learn of it.
    fn with<T>(&self, edit: impl FnOnce(&mut Book) -> T) -> T {
        let mut book = self.book();
        let result = edit(&mut book);
        let pending = book.counts.pending;
        drop(book);
        self.inner.pending.send_if_modified(|known| std::mem::replace(known, pending) != pending);
        self.inner.changed.notify_one();
        result
    }

    /// Whether any domain event would leave.
    pub(crate) fn has_domains(&self) -> bool {
        self.book().domains.any_open()
    }

    /// Makes a delivery for each of these subscriptions, and for every domain event subscription;
    /// as often as said. The ids of the deliveries.
    pub(crate) fn emit<'a>(
        &self,
        event: &Event,
        subscriptions: impl Iterator<Item = &'a Subscription>,
        times: u32,
    ) -> Vec<u64> {
        let mut targets =
            subscriptions.map(|one| (Target::Webhook(one.id), one.url.clone())).peekable();
        if targets.peek().is_none() && !self.has_domains() {
            return Vec::new();
        }
        let event_type: Arc<str> = event.kind.as_ref().into();
        let body: Arc<str> = event.body().into();
        self.with(|book| {
            let mut ids = Vec::new();
            let to_domains: Vec<_> = book.domains.open().collect();
            for (target, url) in targets {
                let order = Order {
                    target,
                    event_type: event_type.clone(),
                    url: url.into(),
                    body: body.clone(),
                    form: Form::Webhook,
                };
                ids.extend(book.add_times(order, times));
            }
            for (name, url) in to_domains {
                let order = Order {
                    target: Target::Domain(name),
                    event_type: event_type.clone(),
                    url,
                    body: domain::body(event, book.last_id).into(),
                    form: Form::Domain,
                };
                ids.extend(book.add_times(order, times));
            }
            ids
        })
    }

    /// Delivers the same body again, the newest one where none is named; as often as said.
    ///
    /// # Errors
    /// Where there is no such delivery.
    pub(crate) fn again(&self, id: Option<u64>, times: u32) -> Result<Vec<u64>, String> {
        self.with(|book| {
            let known = match id {
                Some(id) => book.entries.get(&id),
                None => book.entries.values().next_back(),
            };
            let known = known.ok_or("there is no such delivery")?;
            let order = Order {
                target: known.target.clone(),
                event_type: known.letter.event_type.clone(),
                url: known.letter.url.clone(),
                body: known.letter.body.clone(),
                form: known.letter.form.clone(),
            };
            Ok(book.add_times(order, times))
        })
    }

    /// A subscription is gone: what it waits for is not sent any more.
    pub(crate) fn forget(&self, target: &Target) {
        self.with(|book| {
            for (_, id) in book.waiting.remove(target).unwrap_or_default() {
                let tried = book.entries.get(&id).is_some_and(|entry| entry.attempts > 0);
                book.end(
                    id,
                    if tried { DeliveryOutcome::Failed } else { DeliveryOutcome::NotSent },
                );
            }
            let leaving = book.under_way.get(target).and_then(|id| book.entries.get_mut(id));
            if let Some(entry) = leaving {
                entry.orphaned = true;
            }
        });
    }

    /// The address of a domain event subscription.
    pub(crate) fn domain_url(&self, name: &str) -> Option<String> {
        self.book().domains.url(name).map(str::to_owned)
    }

    /// Makes or moves a domain event subscription: nothing leaves for it before its handshake.
    pub(crate) fn subscribe_domain(&self, name: &str, url: &str, at: &str) {
        self.with(|book| {
            let code = book.domains.set(name, url);
            let order = Order {
                target: Target::Domain(name.to_owned()),
                event_type: domain::HANDSHAKE.into(),
                url: url.into(),
                body: domain::handshake(&code, at).into(),
                form: Form::Handshake { code },
            };
            book.add_times(order, 1);
        });
    }

    /// Ends a domain event subscription; the address that it had.
    pub(crate) fn unsubscribe_domain(&self, name: &str) -> Option<String> {
        let url = self.book().domains.remove(name)?;
        self.forget(&Target::Domain(name.to_owned()));
        Some(url)
    }

    /// What may leave now, at most one letter per subscription and `room` in all, the longest due
    /// first; and when the next one is due, where there is room left for it.
    pub(super) fn take_due(&self, now: Instant, room: usize) -> (Vec<Letter>, Option<Instant>) {
        self.book().take_due(now, room)
    }

    /// Notes what an attempt came to. A minute of the retry table takes this long.
    pub(super) fn settle(&self, id: u64, attempt: Attempt, minute: Duration) {
        self.with(|book| book.settle(id, attempt, minute, Instant::now()));
    }

    /// Waits until there is something to look at.
    pub(super) async fn changed(&self) {
        self.inner.changed.notified().await;
    }

    /// Waits until nothing is pending; false where something is after this time.
    pub(crate) async fn wait_until_settled(&self, at_most: Duration) -> bool {
        let mut pending = self.inner.pending.subscribe();
        tokio::time::timeout(at_most, pending.wait_for(|count| *count == 0)).await.is_ok()
    }

    pub(crate) fn report(&self) -> Deliveries {
        let book = self.book();
        Deliveries {
            counts: book.counts,
            latest: book.entries.iter().map(|(id, entry)| entry.report(*id)).collect(),
        }
    }
}

impl Book {
    fn add_times(&mut self, order: Order, times: u32) -> Vec<u64> {
        (0..times).map(|_| self.add(&order)).collect()
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

    fn take_due(&mut self, now: Instant, room: usize) -> (Vec<Letter>, Option<Instant>) {
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

    fn settle(&mut self, id: u64, attempt: Attempt, minute: Duration, now: Instant) {
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
