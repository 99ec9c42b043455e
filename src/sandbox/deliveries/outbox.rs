//! The deliveries of a sandbox, shared between the world, which adds to them, and the post.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::super::world::events::Event;
use super::super::world::registers::Subscription;
use super::Deliveries;
use super::book::Book;
use super::domain;
use super::letter::{Attempt, Form, Letter, Order, Target};

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
        let pending = book.pending();
        // Still under the lock, so that an older count never comes last.
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
                ids.extend(book.add_times(&order, times));
            }
            for (name, url) in to_domains {
                let order = Order {
                    target: Target::Domain(name),
                    event_type: event_type.clone(),
                    url,
                    body: domain::body(event, book.next_id()).into(),
                    form: Form::Domain,
                };
                ids.extend(book.add_times(&order, times));
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
            let order = book.order_of(id).ok_or("there is no such delivery")?;
            Ok(book.add_times(&order, times))
        })
    }

    /// A subscription is gone: what it waits for is not sent any more.
    pub(crate) fn forget(&self, target: &Target) {
        self.with(|book| book.forget(target));
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
            book.add_times(&order, 1);
        });
    }

    /// Ends a domain event subscription; the address that it had.
    pub(crate) fn unsubscribe_domain(&self, name: &str) -> Option<String> {
        let url = self.book().domains.remove(name)?;
        self.forget(&Target::Domain(name.to_owned()));
        Some(url)
    }

    /// [`Book::take_due`].
    pub(super) fn take_due(&self, now: Instant, room: usize) -> (Vec<Letter>, Option<Instant>) {
        self.book().take_due(now, room)
    }

    /// [`Book::settle`], now.
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
        self.book().report()
    }
}
