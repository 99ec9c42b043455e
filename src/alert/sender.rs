//! One POST, or one GET, to an address that somebody has chosen and that may be a secret.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, ClientBuilder, redirect};
use serde_json::json;

use super::Message;
use crate::config::{self, SecretUrl};
use crate::error::{Error, Kind, Result};

/// Who does not answer by then is asked again.
const LONGEST: Duration = Duration::from_secs(10);

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

    /// Whether it arrived. Where nobody is to be told nothing does.
    pub(super) async fn tell(&mut self, message: &Message) -> bool {
        let Some(target) = &mut self.alert else { return false };
        let body = json!({ "text": format!("casemirror: {}", message.text()) }).to_string();
        let request = target.client.post(target.url.expose());
        target.sent(request.header(CONTENT_TYPE, "application/json").body(body)).await
    }

    /// Whether the heartbeat arrived, or there is none.
    pub(super) async fn beat(&mut self) -> bool {
        let Some(target) = &mut self.heartbeat else { return true };
        let request = target.client.get(target.url.expose());
        target.sent(request).await
    }
}

impl Target {
    /// Whether it arrived. That it does not is logged once, and once when it does again.
    async fn sent(&mut self, request: reqwest::RequestBuilder) -> bool {
        let (key, failed) = (self.key, std::mem::replace(&mut self.fails, true));
        let why = match request.send().await {
            Ok(answer) if answer.status().is_success() => {
                self.fails = false;
                if failed {
                    tracing::info!("{key} takes it again");
                }
                return true;
            }
            Ok(answer) => format!("it answered {}", answer.status().as_u16()),
            // The address is a secret with most chats.
            Err(error) => Error::caused(Kind::Io, "no answer", error.without_url()).chain(),
        };
        if failed {
            tracing::debug!(why, "{key} did not take it again");
        } else {
            tracing::warn!(why, "{key} did not take it; it is tried again until it does");
        }
        false
    }
}

fn client_for(url: &SecretUrl) -> Result<Client> {
    let builder = Client::builder().timeout(LONGEST).redirect(redirect::Policy::none());
    let here = |builder: ClientBuilder| {
        if config::is_this_machine(&url.expose()) { builder.no_proxy() } else { builder }
    };
    here(builder)
        .build()
        .map_err(|e| Error::caused(Kind::Config, "cannot prepare to send alerts", e.without_url()))
}
