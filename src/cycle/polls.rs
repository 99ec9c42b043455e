//! Asking the change feeds: by a cycle, by the daemon's poller and by `plan`, one at a time.

use std::sync::Arc;
use std::time::Duration;

use duckdb::Connection;
use jiff::Timestamp;
use tokio::sync::{Mutex, MutexGuard, watch};

use super::feed_memory::FeedMemory;
use super::policy::{ends_run, is_closed};
use super::run::doubted_before;
use super::signals::Notifier;
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::feed::{Feed, LONGEST_REACH, Polled, Reread};
use crate::mirror::{ContactsFeed, Failure, Failures, ResourceRow, RunLog, State, Store, Writer};
use crate::scope::{FailureKind, FeedName};
use crate::source::Client;
use crate::ticks::Ticks;

/// Key of `sync.meta`: why the contacts feed is not asked; empty where it is.
pub(super) const CONTACTS_FEED_WHY: &str = "contacts_feed_why";
/// How the reason begins that `sync.resources` has for a table whose change feed is not there for us.
pub(super) const FEED_UNREAD: &str = "their change feed cannot be read";

/// Both feeds. Clones share the turn.
#[derive(Clone)]
pub struct Polls {
    pub config: Arc<Config>,
    pub store: Arc<Store>,
    pub writer: Writer,
    pub client: Client,
    /// A poll goes on from the cursor of the one before, so that two of one feed never overlap; a feed that does not
    /// answer keeps no other waiting.
    pub turns: Arc<Turns>,
    /// Told whoever polls, so that nothing that was seen waits for the next change.
    pub notifier: Notifier,
}

/// Whose turn it is to ask each feed.
#[derive(Default)]
pub struct Turns {
    cases: Turn,
    contacts: Turn,
}

#[derive(Default)]
struct Turn {
    asking: Mutex<()>,
    /// Told when a page was committed.
    pages: watch::Sender<()>,
}

impl Turns {
    fn of(&self, feed: FeedName) -> &Turn {
        match feed {
            FeedName::Cases => &self.cases,
            FeedName::Contacts => &self.contacts,
        }
    }

    async fn take(&self, feed: FeedName) -> MutexGuard<'_, ()> {
        self.of(feed).asking.lock().await
    }

    /// Tells when a page of a feed was committed: a poll of hundreds of them gets on.
    pub(crate) fn pages(&self, feed: FeedName) -> watch::Receiver<()> {
        self.of(feed).pages.subscribe()
    }

    /// A page of a feed was committed.
    pub(super) fn page(&self, feed: FeedName) {
        self.of(feed).pages.send_replace(());
    }
}

impl Polls {
    /// Asks one feed for everything since the last poll and commits what it says.
    ///
    /// # Errors
    /// Those of [`Feed::poll`], with the name of the feed.
    pub(crate) async fn poll(&self, name: FeedName) -> Result<Polled> {
        let _turn = self.turns.take(name).await;
        let reach = Ticks::from_timestamp(Timestamp::now()).earlier_by(LONGEST_REACH).get();
        // The daemon's poller is no run of its own: what it notes is noted under the last one.
        let run_id = RunLog::new(&self.store.connection()?).last_run_id()?;
        let polled = self.feed(run_id).poll(name).await;
        // A poll that failed has committed the pages before.
        self.notifier.notify(State::new(&self.store.connection()?).sequence()?);
        let polled = polled
            .map_err(|e| e.within(format!("the change feed ({}) cannot be read", name.as_str())));
        self.note_poll(name, run_id, polled.as_ref().err()).await?;
        let polled = polled?;
        if name == FeedName::Cases {
            let known = State::new(&self.store.connection()?).cases().feed_reach()?.is_some();
            if !known || polled.gap {
                self.writer.run(move |conn| State::new(conn).cases().set_feed_reach(reach)).await?;
            }
        }
        if polled.moved > 0 || polled.gap {
            tracing::debug!(
                feed = name.as_str(),
                moved = polled.moved,
                calls = polled.calls,
                "the change feed was read"
            );
        } else {
            tracing::debug!(feed = name.as_str(), calls = polled.calls, "nothing has changed");
        }
        Ok(polled)
    }

    /// Keeps that a feed cannot be read, until it can: `status` tells it between the polls too.
    async fn note_poll(&self, name: FeedName, run_id: i64, error: Option<&Error>) -> Result<()> {
        let scope = Failures::feed_scope(name);
        let failed = error.filter(|error| !ends_run(error.kind()));
        let Some(error) = failed else {
            let stood = State::new(&self.store.connection()?).failures().has_failed(&scope)?;
            if error.is_some() || !stood {
                return Ok(());
            }
            return self.writer.run(move |conn| State::new(conn).failures().succeed(&scope)).await;
        };
        let (kind, text) = (FailureKind::of(error.kind()), error.chain());
        self.writer
            .run(move |conn| {
                State::new(conn).failures().fail(
                    run_id,
                    Timestamp::now(),
                    &scope,
                    &Failure::new(kind, &text),
                )
            })
            .await
            .map(drop)
    }

    /// Reads what lies up to `reach` before the bound of a feed again (the source's commit order is not its clock's), in turn with
    /// the polls.
    ///
    /// # Errors
    /// Those of [`Feed::reread`], with the name of the feed.
    pub async fn reread(&self, name: FeedName, reach: Duration) -> Result<Reread> {
        let _turn = self.turns.take(name).await;
        let run_id = RunLog::new(&self.store.connection()?).last_run_id()?;
        let reread = self.feed(run_id).reread(name, reach).await;
        self.notifier.notify(State::new(&self.store.connection()?).sequence()?);
        reread.map_err(|e| {
            e.within(format!("the change feed ({}) cannot be read again", name.as_str()))
        })
    }

    fn feed(&self, run_id: i64) -> Feed<'_, FeedMemory<'_>> {
        Feed {
            client: &self.client,
            memory: FeedMemory {
                store: &self.store,
                writer: &self.writer,
                turns: &self.turns,
                run_id,
            },
            settings: &self.config.feed,
            zone: &self.config.source.time_zone,
        }
    }

    /// Asks the feed of contacts; `None` where contacts are not followed by it, or cannot be any more.
    ///
    /// # Errors
    /// As [`Polls::poll`].
    pub(crate) async fn poll_contacts(&self) -> Result<Option<Polled>> {
        if !self.follows_contacts()? {
            return Ok(None);
        }
        let feed = FeedName::Contacts;
        let has_polled = self.has_polled(feed)?;
        match self.poll(feed).await {
            Ok(polled) => {
                if self.was_reopened()? {
                    let reads =
                        |conn: &Connection| State::new(conn).set_contacts_feed(ContactsFeed::Open);
                    self.writer.run(reads).await?;
                }
                Ok(Some(polled))
            }
            Err(error)
                if is_closed(error.kind(), has_polled)
                    && self.is_believed(&error, has_polled)? =>
            {
                tracing::info!(
                    reason = error.chain(),
                    "there is no contacts feed for us: contacts are read again by age"
                );
                let why = format!(
                    "{FEED_UNREAD} ({}): until the permissions are next read, contacts are read again \
                     by age",
                    error.chain()
                );
                self.writer
                    .run(move |conn| {
                        let state = State::new(conn);
                        state.failures().succeed(&Failures::feed_scope(feed))?;
                        state.statuses().set_reason("contacts", Some(&why))?;
                        state.set_meta(CONTACTS_FEED_WHY, &why)?;
                        state.set_contacts_feed(ContactsFeed::Closed)
                    })
                    .await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a feed is taken for closed by this error. That it has answered speaks against one 403, which a proxy may
    /// have said: a second one has to come `source.doubt` after it. Where it was closed before, and has not answered
    /// since, one is enough.
    fn is_believed(&self, error: &Error, has_polled: bool) -> Result<bool> {
        if !has_polled || error.kind() != Kind::Forbidden || self.was_reopened()? {
            return Ok(true);
        }
        let before = doubted_before(&self.config);
        let conn = self.store.connection()?;
        State::new(&conn)
            .failures()
            .is_forbidden_since(&Failures::feed_scope(FeedName::Contacts), before)
    }

    /// Whether the contacts feed is tried again after it was closed, and has not answered yet.
    fn was_reopened(&self) -> Result<bool> {
        let conn = self.store.connection()?;
        Ok(State::new(&conn).contacts_feed()? == ContactsFeed::Reopened)
    }

    /// Whether a feed was ever read to its end.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn has_polled(&self, name: FeedName) -> Result<bool> {
        let conn = self.store.connection()?;
        Ok(State::new(&conn).polled_at(name.as_str())?.is_some())
    }

    /// Whether contacts are followed by their feed: it is switched on, the source has it, and the
    /// table is read.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn follows_contacts(&self) -> Result<bool> {
        if self.config.feed.contacts_poll.is_none() {
            return Ok(false);
        }
        let conn = self.store.connection()?;
        let read =
            State::new(&conn).statuses().all()?.get("contacts").is_some_and(ResourceRow::is_asked);
        Ok(read && State::new(&conn).contacts_feed()? != ContactsFeed::Closed)
    }
}
