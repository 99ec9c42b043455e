//! Telling people: what needs somebody is posted to `alert.url` once, and once more when it is over;
//! `alert.heartbeat` is called only while everything that is enabled is fresh and believed (contract,
//! section 2).
//!
//! What was told is kept in the store, so that a restart tells nothing twice. The log has the same, whether
//! anybody else is told or not. A message says what is so and how often, never a value.

mod conditions;
mod known;
mod sender;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::config;
use crate::disk::Disk;
use crate::error::{Kind, Result};
use crate::mirror::State;
use crate::pulse::Pulse;
use crate::session::Session;
use crate::status::{Health, Status};

use conditions::Look;
use known::Message;
pub(crate) use known::{Known, since};
pub(crate) use sender::LONGEST as LONGEST_MESSAGE;
use sender::Sender;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(10);
/// Between two heartbeats, and two looks at all that the status says.
const BEAT: Duration = Duration::from_secs(60);
/// And however long those take, so small a part of the time goes into them.
const SHARE_OF_TIME: u32 = 20;

/// Sends one message that says that it is a test, as all others are sent.
///
/// # Errors
/// `Config` where nothing can be sent from here, `Io` saying why `alert.url` did not take it.
pub(crate) async fn test(config: &config::Alert) -> Result<()> {
    Sender::new(config)?.test().await
}

/// Looks after the mirror while the daemon lives.
pub(crate) struct Watch {
    session: Arc<Session>,
    pulse: Arc<Pulse>,
    sender: Sender,
    /// What the log was told, whether anybody else is told or not; from the first look on. Of what was told before
    /// this process it says only the end.
    logged: Option<Known>,
    /// What was told and could not be kept in the store, which holds all the same: it is kept with the next look.
    unkept: Option<Known>,
    /// What was known after the last look.
    known: Option<Known>,
    /// When the whole is looked at next.
    next_beat: Instant,
}

impl Watch {
    /// What is looked after.
    ///
    /// # Errors
    /// `Config` where nothing can be sent from here.
    pub(crate) fn over(session: Arc<Session>, pulse: Arc<Pulse>) -> Result<Watch> {
        let sender = Sender::new(&session.config().alert)?;
        let (logged, unkept, known) = (None, None, None);
        Ok(Watch { session, pulse, sender, logged, unkept, known, next_beat: Instant::now() })
    }

    /// Looks until `stops`; what is being told then is told, and kept. Where it says that the daemon cannot go on,
    /// and why, that is told last. What cannot be looked at or told now is next time.
    ///
    /// # Errors
    /// None.
    pub(crate) async fn run(mut self, stops: impl Future<Output = Option<Kind>>) -> Result<()> {
        let mut stops = pin!(stops);
        let mut ends = None;
        loop {
            if let Err(error) = self.look(ends).await {
                tracing::debug!(reason = error.chain(), "the mirror was not looked after");
            }
            if ends.is_some() {
                return Ok(());
            }
            tokio::select! {
                why = &mut stops => match why {
                    None => return Ok(()),
                    Some(_) => ends = why,
                },
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    /// One look, and what it is to be told of; `ends` where the daemon cannot go on.
    async fn look(&mut self, ends: Option<Kind>) -> Result<()> {
        let (session, pulse) = (Arc::clone(&self.session), Arc::clone(&self.pulse));
        let unkept = self.unkept.clone();
        let looked = blocking(move || {
            let conn = session.store().connection()?;
            let known = unkept.map_or_else(|| Known::read(&State::new(&conn)), Ok)?;
            Ok((known, Look::at(&conn, &session, &pulse, ends)?))
        })
        .await;
        let mut keeps = true;
        let (before, look) = match (looked, ends) {
            // The store may be why.
            (Err(_), Some(why)) => {
                let last = self.unkept.clone().or_else(|| self.known.clone());
                // What was told before this process is in the store, and stays so.
                keeps = last.is_some();
                let last = last.unwrap_or_default();
                let look = last.ending(why);
                (last, look)
            }
            (looked, _) => looked?,
        };
        let logged = self.logged.take().unwrap_or_else(|| before.clone());
        self.logged = Some(logged.logging(&look, Timestamp::now()));
        let (mut known, mut messages) = before.clone().seeing(&look, Timestamp::now());
        // Nobody waits for long at the end.
        messages.sort_by_key(|message| !message.is_of_the_end());
        if !self.sender.has_listener() {
            known.told_nobody(&messages, Timestamp::now());
        }
        for message in messages {
            if self.sender.tell(&message).await {
                known.was_told(&message, Timestamp::now());
                // Before anything else can end it: nothing is told twice.
                if keeps {
                    self.keep(&known).await;
                }
            }
        }
        if !keeps {
            return Ok(());
        }
        self.known = Some(known.clone());
        let health = self.health().await?;
        if let Some(health) = health {
            known.is(health, Timestamp::now());
        }
        let is_well = known.is_well(&look) && health == Some(Health::Good);
        if known != before || self.unkept.is_some() {
            self.keep(&known).await;
        }
        // One that does not arrive is sent with the next look, and what starts is looked at again by then.
        let is_known = health.is_some_and(|health| health != Health::Starting);
        if is_known && (!is_well || self.sender.beat().await) {
            self.next_beat = self.next_beat.max(Instant::now() + BEAT);
        }
        Ok(())
    }

    /// Keeps what was told. A store that takes nothing is one of the things that people are told of.
    async fn keep(&mut self, known: &Known) {
        let kept = match known.to_text() {
            Ok(text) => self.session.note_alerts(text).await,
            Err(error) => Err(error),
        };
        self.unkept = kept
            .inspect_err(|error| {
                tracing::debug!(reason = error.chain(), "what was told is not kept")
            })
            .is_err()
            .then(|| known.clone());
    }

    /// How the mirror is, by all that the status says; `None` where it was looked at a moment ago.
    async fn health(&mut self) -> Result<Option<Health>> {
        if Instant::now() < self.next_beat {
            return Ok(None);
        }
        let (session, pulse) = (Arc::clone(&self.session), Arc::clone(&self.pulse));
        let began = Instant::now();
        let health =
            blocking(move || {
                let (config, store) = (session.config(), session.store());
                let (feeds, fault) = (pulse.feeds(&config.feed), session.store_fault());
                let status = Status::collect(config, session.catalog(), store, Vec::new())?
                    .of_holder(session.last_run(), fault.as_deref(), Some(&feeds));
                let disk = Disk::of(store.path());
                Ok(Health::of(&status, &feeds, disk.as_ref()))
            });
        let health = health.await?;
        self.next_beat = Instant::now() + began.elapsed() * SHARE_OF_TIME;
        Ok(Some(health))
    }
}

async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(act).await.map_err(|e| {
        crate::error::Error::caused(crate::error::Kind::Internal, "looking ended early", e)
    })?
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::routing::post;

    use super::*;
    use crate::error::Error;
    use crate::lake::{Carried, Standing};
    use crate::mirror::{PublishLag, PublishPlace};
    use crate::session::fixture::opened;
    use crate::status::lake_standing;

    #[test]
    fn what_has_failed_for_an_hour_is_told_and_what_just_fails_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let session = opened(folder.path(), "");
        let conn = session.store().connection().unwrap();
        let address = session.config().publish.database.display().to_string();
        let told = || {
            let look = Look::at(&conn, &session, &Pulse::default(), None).unwrap();
            look.holding.values().map(|holding| holding.text.clone()).collect::<Vec<_>>()
        };
        for (minutes, expected) in [
            (59, vec![]),
            (
                61,
                vec!["nothing could be published for an hour: readers have what was there before"],
            ),
        ] {
            let now = Timestamp::now();
            let since = now - jiff::SignedDuration::from_mins(minutes);
            for at in [since, now] {
                let why = "no room".to_owned();
                PublishLag::note(&conn, PublishPlace::Database, &address, why, at).unwrap();
            }
            assert_eq!(told(), expected, "{minutes}");
            PublishLag::is_over(&conn, PublishPlace::Database).unwrap();
        }
    }

    #[test]
    fn a_lake_and_subscriptions_that_have_failed_for_an_hour_are_told_until_they_are_well() {
        let folder = tempfile::tempdir().unwrap();
        let more = "[lake]\ncatalog = \"lake/catalog\"\ndata = \"lake/data\"\n\
                    [serve]\nwebhooks = \"127.0.0.1:0\"\npublic_url = \"https://mirror.example.com\"\n";
        let session = opened(folder.path(), more);
        let (conn, config) = (session.store().connection().unwrap(), session.config());
        let told = || {
            let look = Look::at(&conn, &session, &Pulse::default(), None).unwrap();
            look.holding.into_values().map(|holding| holding.text).collect::<Vec<_>>()
        };
        let address = config.serve.public_url.as_ref().unwrap().to_string();
        let lake = || lake_standing(config, &conn).unwrap().unwrap();
        let keep = |standing: &Standing| {
            State::new(&conn).set_meta(Standing::KEY, &standing.text()).unwrap();
        };
        let error = Error::new(Kind::Lake, "no way");
        let now = Timestamp::now();
        let fail = |minutes| {
            let since = now - jiff::SignedDuration::from_mins(minutes);
            for at in [since, now] {
                keep(&lake().fail(&error, at));
                let of = PublishPlace::Subscriptions;
                PublishLag::note(&conn, of, &address, "no way".to_owned(), at).unwrap();
            }
        };
        let well = || {
            keep(&lake().succeed(&Carried::default(), now));
            PublishLag::is_over(&conn, PublishPlace::Subscriptions).unwrap();
        };
        fail(59);
        assert_eq!(told(), [""; 0]);
        well();
        fail(61);
        let told_of = told();
        assert_eq!(told_of.len(), 2, "{told_of:?}");
        assert!(told_of[0].contains("to the lake for an hour"), "{told_of:?}");
        assert!(told_of[1].contains("subscriptions could not be made"), "{told_of:?}");
        well();
        assert_eq!(told(), [""; 0]);
    }

    /// What is waited for or not believed, a table that is not asked for any more, and a feed are none of them.
    #[test]
    fn what_fails_are_calls_of_tables_that_are_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let session = opened(folder.path(), "");
        let conn = session.store().connection().unwrap();
        conn.execute_batch(
            "DELETE FROM sync.resources WHERE table_name IN ('costs', 'notes', 'file_tags'); \
             INSERT INTO sync.resources (table_name, status, answered) VALUES \
               ('costs', 'failing', true), ('notes', 'ok', true), ('file_tags', 'disabled', true); \
             INSERT INTO sync.failures BY NAME SELECT table_name, 1 AS id, part, kind, now() AS first_at, now() AS last_at \
             FROM (VALUES ('costs', 'a', 'Timeout'), ('costs', 'b', 'Lag'), ('notes', 'a', 'Lag'), \
               ('notes', 'b', 'Suspect'), ('notes', 'c', 'NotShown'), ('notes', 'd', 'NotAsked'), \
               ('notes', 'e', 'Doubted'), ('notes', 'f', 'Held'), ('file_tags', 'a', 'Timeout'), \
               ('cases_feed', 'a', 'Timeout')) f(table_name, part, kind)",
        )
        .unwrap();
        let look = Look::at(&conn, &session, &Pulse::default(), None).unwrap();
        assert_eq!(look.failing.unwrap().keys().collect::<Vec<_>>(), ["costs"]);
    }

    /// It is asked for no more, and what was noted of it would hold for ever.
    #[test]
    fn what_is_not_believed_of_a_table_that_is_not_read_needs_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let session = opened(folder.path(), "");
        let conn = session.store().connection().unwrap();
        conn.execute_batch(
            "DELETE FROM sync.resources; INSERT INTO sync.resources (table_name, status, answered) VALUES \
               ('costs', 'ok', true), ('notes', 'disabled', true), ('revenue_journals', 'ok', true); \
             INSERT INTO sync.failures BY NAME SELECT table_name, 1 AS id, '' AS part, kind, now() AS first_at \
               FROM (VALUES ('costs', 'Doubted'), ('notes', 'Held')) f(table_name, kind); \
             INSERT INTO sync.meta VALUES ('control_months', 'offices/1/2026-10 differs')",
        )
        .unwrap();
        let told = || {
            let look = Look::at(&conn, &session, &Pulse::default(), None).unwrap();
            look.holding.values().map(|holding| holding.text.clone()).collect::<Vec<_>>()
        };
        let sums = "1 month of the journals does not match its sum at the platform, or there is none, see \
                    report.journal_reconciliation";
        let doubt = "1 answer of the platform would remove too much and is not believed yet (costs), see sync.failures";
        assert_eq!(told(), [sums, doubt]);
        conn.execute_batch("UPDATE sync.resources SET status = 'forbidden'").unwrap();
        assert_eq!(told(), [""; 0]);
    }

    /// A disk that is full is a thing to be told of, and keeps from being noted that it was.
    #[tokio::test]
    async fn what_a_store_cannot_keep_is_told_once_all_the_same() {
        let told = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&told);
        let take = move || async move {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let chat = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = chat.local_addr().unwrap();
        let routes = Router::new().route("/chat", post(take));
        tokio::spawn(async move { axum::serve(chat, routes).await });

        let folder = tempfile::tempdir().unwrap();
        let session = opened(folder.path(), &format!("[alert]\nurl = \"http://{address}/chat\"\n"));
        let differs = "INSERT INTO sync.verifications (run_id, verified_at, what, source, mirror, difference, subject, \
                       standing) VALUES (1, now(), 'costs', '1', '2', '1', 'x', true)";
        session.store().connection().unwrap().execute_batch(differs).unwrap();
        let session = Arc::new(session);
        let mut watch = Watch::over(Arc::clone(&session), Arc::default()).unwrap();
        // Nothing is written from here on.
        session.close(None).await.unwrap();
        for _ in 0..3 {
            watch.look(None).await.unwrap();
        }
        assert_eq!(told.load(Ordering::SeqCst), 1);
        let over = "UPDATE sync.verifications SET standing = false";
        session.store().connection().unwrap().execute_batch(over).unwrap();
        for _ in 0..3 {
            watch.look(None).await.unwrap();
        }
        assert_eq!(told.load(Ordering::SeqCst), 2, "that it is over, once");
    }
}
