//! One POST, or one GET, to an address that somebody has chosen and that may be a secret.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, ClientBuilder, RequestBuilder, redirect};
use serde_json::json;

use super::Message;
use crate::config::{self, SecretUrl};
use crate::error::{Error, Kind, Result};
use crate::tls;

/// Who does not answer by then is asked again.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);

pub(super) struct Sender {
    alert: Option<Target>,
    heartbeat: Option<Target>,
}

/// An address, and whether what was sent there last has arrived.
struct Target {
    key: &'static str,
    client: Client,
    url: SecretUrl,
    fails: bool,
}

impl Sender {
    /// # Errors
    /// `Config` where no connection can be made from here.
    pub(super) fn new(config: &config::Alert) -> Result<Sender> {
        let target = |key, url: &Option<SecretUrl>| {
            let target = |url| Ok(Target { key, client: client_for(&url)?, url, fails: false });
            url.clone().map(target).transpose()
        };
        Ok(Sender {
            alert: target("alert.url", &config.url)?,
            heartbeat: target("alert.heartbeat", &config.heartbeat)?,
        })
    }

    /// Whether anybody is to be told.
    pub(super) fn has_listener(&self) -> bool {
        self.alert.is_some()
    }

    /// Whether it arrived. Where nobody is to be told nothing does.
    pub(super) async fn tell(&mut self, message: &Message) -> bool {
        let Some(target) = &mut self.alert else { return false };
        target.sent(target.posting(message)).await
    }

    /// Tells that this is a test.
    ///
    /// # Errors
    /// `Config` where nobody is to be told; `Io` where it did not arrive.
    pub(super) async fn test(&self) -> Result<()> {
        let Some(target) = &self.alert else {
            return Err(Error::new(
                Kind::Config,
                "alert.url is not set, so that nobody is told anything: it takes the address of a chat's incoming \
                 webhook, for example",
            ));
        };
        let sent = target.send(target.posting(&Message::Test)).await;
        sent.map_err(|e| e.within(format!("{} did not take the test message", target.key)))
    }

    /// Whether the heartbeat arrived, or there is none.
    pub(super) async fn beat(&mut self) -> bool {
        let Some(target) = &mut self.heartbeat else { return true };
        let request = target.client.get(target.url.expose());
        target.sent(request).await
    }
}

impl Target {
    fn posting(&self, message: &Message) -> RequestBuilder {
        let body = json!({ "text": format!("casemirror: {}", message.text()) }).to_string();
        self.client.post(self.url.expose()).header(CONTENT_TYPE, "application/json").body(body)
    }

    /// Says why it did not arrive, without the address, which is a secret with most chats.
    async fn send(&self, request: RequestBuilder) -> Result<()> {
        let why = match request.send().await {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(answer) => format!("it answered {}", answer.status()),
            Err(error) => return Err(Error::caused(Kind::Io, "no answer", error.without_url())),
        };
        Err(Error::new(Kind::Io, why))
    }

    /// Whether it arrived. That it does not is logged once, and once when it does again.
    async fn sent(&mut self, request: RequestBuilder) -> bool {
        let (key, failed) = (self.key, self.fails);
        let sent = self.send(request).await;
        self.fails = sent.is_err();
        match sent.map_err(|error| error.chain()) {
            Ok(()) if failed => tracing::info!("{key} takes it again"),
            Ok(()) => {}
            Err(why) if failed => tracing::debug!(why, "{key} did not take it again"),
            Err(why) => {
                tracing::warn!(why, "{key} did not take it; it is tried again until it does");
            }
        }
        !self.fails
    }
}

fn client_for(url: &SecretUrl) -> Result<Client> {
    tls::provide();
    let builder = Client::builder().timeout(LONGEST).redirect(redirect::Policy::none());
    let here = |builder: ClientBuilder| {
        if config::is_this_machine(&url.expose()) { builder.no_proxy() } else { builder }
    };
    here(builder)
        .build()
        .map_err(|e| Error::caused(Kind::Config, "cannot prepare to send alerts", e.without_url()))
}
