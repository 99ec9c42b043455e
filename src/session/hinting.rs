//! What webhooks told becomes stale scopes.

use std::io::ErrorKind;

use duckdb::Connection;
use jiff::Timestamp;
use secrecy::SecretString;

use super::Session;
use crate::catalog::EVENTS;
use crate::error::{self, Error, Kind, Result};
use crate::failpoint;
use crate::hints::{Batch, HintQueue, Made, path_of};
use crate::mirror::{Placed, PublishLag, PublishPlace, SUBSCRIPTIONS, State, Store, webhook_token};
use crate::scope::{Hint, Told};

/// The webhook subscriptions that were made here; none where that cannot be read.
///
/// # Errors
/// Those of reading the store.
pub(crate) fn made_subscriptions(store: &Store) -> Result<Made> {
    let kept = State::new(&store.connection()?).meta(SUBSCRIPTIONS)?;
    Ok(kept.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

impl Session {
    /// The secret part of the address of webhooks; made when it is first asked for.
    ///
    /// # Errors
    /// Those of [`webhook_token`].
    pub(crate) fn webhook_token(&self) -> Result<SecretString> {
        webhook_token(self.store.path())
    }

    /// Keeps which webhook subscriptions were made.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn note_subscriptions(&self, made: &Made) -> Result<()> {
        let text = serde_json::to_string(made)
            .map_err(|e| Error::caused(Kind::Internal, "cannot keep the subscriptions", e))?;
        self.writer.run(move |conn| State::new(conn).set_meta(SUBSCRIPTIONS, &text)).await
    }

    /// The list of the subscriptions is read again: some of them were removed.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn subscriptions_changed(&self) -> Result<()> {
        let catalog = self.catalog.clone();
        let told = [(Timestamp::now(), Told::Hint(Hint::Subscriptions))];
        let taken = self.writer.run(move |conn| {
            let state = State::new(conn);
            // Nothing of the queue's file is taken by it.
            let up_to = state.hints().taken_up_to()?;
            state.hints().take((&catalog, false), &told, up_to)
        });
        self.release_hints(taken.await?).await
    }

    /// Keeps why the webhook subscriptions are not as they should be; `None`: they are.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn note_subscribing(&self, failed: Option<String>) -> Result<()> {
        let Some(url) = &self.config.serve.public_url else { return Ok(()) };
        let (place, address, now) =
            (PublishPlace::Subscriptions, url.to_string(), Timestamp::now());
        match failed {
            Some(why) => {
                self.writer.run(move |conn| PublishLag::note(conn, place, &address, why, now)).await
            }
            None if PublishLag::of(&self.store.connection()?, place, &address)?.is_some() => {
                self.writer.run(move |conn| PublishLag::is_over(conn, place)).await
            }
            None => Ok(()),
        }
    }

    /// Where `serve.public_url` is not set any more, nothing fails that it wanted.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn forget_subscribing(&self) -> Result<()> {
        if self.config.serve.public_url.is_some() {
            return Ok(());
        }
        self.writer.run(|conn| PublishLag::is_over(conn, PublishPlace::Subscriptions)).await
    }

    /// Opens the queue of what webhooks tell.
    ///
    /// # Errors
    /// Those of the store and of [`HintQueue::open`].
    pub(crate) fn hint_queue(&self) -> Result<HintQueue> {
        let taken = State::new(&self.store.connection()?).hints().taken_up_to()?;
        HintQueue::open(self.store.path(), taken)
    }

    /// Takes what webhooks told into the store; returns the number of these hints. Cycles plan by them from
    /// [`Session::release_hints`] on.
    ///
    /// # Errors
    /// Those of the store: then none of it is taken.
    pub(crate) async fn take_hints(&self, batch: &Batch) -> Result<i64> {
        let (catalog, told, up_to) = (self.catalog.clone(), batch.told.clone(), batch.up_to);
        let switched_off = self.config.resources.disable.iter().any(|table| table == EVENTS);
        let taken = self.writer.run(move |conn| {
            let hints = State::new(conn);
            hints.hints().take((&catalog, switched_off), &told, up_to)
        });
        let sequence = taken.await?;
        failpoint::hit("hints-taken");
        Ok(sequence)
    }

    /// Lets cycles plan by the hints up to this number.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn release_hints(&self, up_to: i64) -> Result<()> {
        let released = self.writer.run(move |conn| State::new(conn).hints().release(up_to)).await?;
        if let Some(sequence) = released {
            failpoint::hit("hints-released");
            self.polls.notifier.notify(sequence);
        }
        Ok(())
    }

    /// Hints at the cases of deleted roles that answers under way have brought after all.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn place_roles(&self) -> Result<Placed> {
        let catalog = self.catalog.clone();
        let place = move |conn: &Connection| {
            State::new(conn).hints().place_roles(&catalog, Timestamp::now())
        };
        self.writer.run(place).await
    }

    /// Takes what an earlier process kept and did not take, and lets cycles plan by it. Returns the queue that it had to
    /// open: whoever takes webhooks goes on with that one, for the thread of each empties the file.
    ///
    /// # Errors
    /// Those of the store and of the queue's file.
    pub(crate) async fn take_left_hints(&self) -> Result<Option<HintQueue>> {
        let path = path_of(self.store.path());
        let queue = match std::fs::metadata(&path) {
            Ok(file) if file.len() > 0 => Some(self.hint_queue()?),
            Ok(_) => None,
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(error::io("look at", &path, e)),
        };
        if let Some(queue) = &queue
            && let Some(batch) = queue.take()
        {
            self.take_hints(&batch).await?;
            queue.taken(batch.up_to);
        }
        self.place_roles().await?;
        self.release_hints(i64::MAX).await?;
        Ok(queue)
    }
}

#[cfg(test)]
mod tests {
    use crate::hints::path_of;
    use crate::scope::{Hint, Told};
    use crate::session::fixture::opened;

    #[tokio::test]
    async fn what_a_webhook_tells_after_the_left_hints_were_taken_is_kept_behind_them() {
        let folder = tempfile::tempdir().unwrap();
        let session = opened(folder.path(), "");
        assert!(session.take_left_hints().await.unwrap().is_none(), "no file, no queue");
        let path = path_of(session.store().path());
        let contact = |id| vec![Told::Hint(Hint::Contact { id })];
        session.hint_queue().unwrap().keep(contact(1)).await.unwrap();
        let queue = session.take_left_hints().await.unwrap().unwrap();
        queue.keep(contact(2)).await.unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(queue.take().unwrap().up_to, 2);
    }
}
