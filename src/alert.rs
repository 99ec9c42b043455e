//! Telling people: what needs somebody is posted to `alert.url` once, and once more when it is over;
//! `alert.heartbeat` is called only while everything that is enabled is fresh and believed (contract,
//! section 2).
//!
//! What was told is kept in the store, so that a restart tells nothing twice. A message says what is so and
//! how often, never a value.

mod conditions;
mod known;
mod sender;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::error::Result;
use crate::mirror::State;
use crate::pulse::Pulse;
use crate::session::Session;
use crate::status::Status;

use conditions::Look;
use known::Message;
pub(crate) use known::{Known, since};
use sender::Sender;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(10);
/// Between two heartbeats.
const BEAT: Duration = Duration::from_secs(60);

/// Looks after the mirror while the daemon lives.
pub(crate) struct Watch {
    session: Arc<Session>,
    pulse: Arc<Pulse>,
    sender: Sender,
    beaten: Option<Instant>,
}

impl Watch {
    /// What is looked after.
    ///
    /// # Errors
    /// `Config` where nothing can be sent from here.
    pub(crate) fn over(session: Arc<Session>, pulse: Arc<Pulse>) -> Result<Watch> {
        let sender = Sender::new(&session.config().alert)?;
        Ok(Watch { session, pulse, sender, beaten: None })
    }

    /// Looks until it is dropped. What cannot be looked at or told now is next time.
    ///
    /// # Errors
    /// None.
    pub(crate) async fn run(mut self) -> Result<()> {
        loop {
            if let Err(error) = self.look().await {
                tracing::debug!(reason = error.chain(), "the mirror was not looked after");
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn look(&mut self) -> Result<()> {
        let (session, pulse) = (Arc::clone(&self.session), Arc::clone(&self.pulse));
        let (before, look) = blocking(move || {
            let conn = session.store().connection()?;
            Ok((Known::read(&State::new(&conn))?, Look::at(&conn, &session, &pulse)?))
        })
        .await?;
        let (mut known, messages) = before.clone().seeing(&look, Timestamp::now());
        for message in messages {
            if self.sender.tell(&message).await {
                known.was_told(&message);
            }
        }
        if known != before {
            let text = known.to_text()?;
            self.session.note_alerts(text).await?;
        }
        self.beat(known.is_well()).await
    }

    async fn beat(&mut self, is_well: bool) -> Result<()> {
        let is_due = self.beaten.is_none_or(|last| last.elapsed() >= BEAT);
        if !(is_well && is_due && self.sender.has_heartbeat()) {
            return Ok(());
        }
        let (session, pulse) = (Arc::clone(&self.session), Arc::clone(&self.pulse));
        let is_fresh = blocking(move || {
            let (config, store) = (session.config(), session.store());
            let status = Status::collect(config, session.catalog(), store, Vec::new())?;
            Ok(pulse.lag(&config.feed).is_none() && status.complete && status.exit_status() == 0)
        });
        if is_fresh.await? && self.sender.beat().await {
            self.beaten = Some(Instant::now());
        }
        Ok(())
    }
}

async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(act).await.map_err(|e| {
        crate::error::Error::caused(crate::error::Kind::Internal, "looking ended early", e)
    })?
}
