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
    alert: Option<(Client, SecretUrl)>,
    heartbeat: Option<(Client, SecretUrl)>,
}

impl Sender {
    /// # Errors
    /// `Config` where no connection can be made from here.
    pub(super) fn new(config: &config::Alert) -> Result<Sender> {
        let with_client = |url: &Option<SecretUrl>| {
            url.clone().map(|url| Ok((client_for(&url)?, url))).transpose()
        };
        Ok(Sender { alert: with_client(&config.url)?, heartbeat: with_client(&config.heartbeat)? })
    }

    pub(super) fn has_heartbeat(&self) -> bool {
        self.heartbeat.is_some()
    }

    /// Whether it arrived. Where nobody is to be told nothing does.
    pub(super) async fn tell(&self, message: &Message) -> bool {
        let Some((client, url)) = &self.alert else { return false };
        let body = json!({ "text": format!("casemirror: {}", message.text()) }).to_string();
        let request = client.post(url.expose()).header(CONTENT_TYPE, "application/json").body(body);
        arrived("alert.url", request).await
    }

    /// Whether the heartbeat arrived.
    pub(super) async fn beat(&self) -> bool {
        let Some((client, url)) = &self.heartbeat else { return false };
        arrived("alert.heartbeat", client.get(url.expose())).await
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

async fn arrived(key: &str, request: reqwest::RequestBuilder) -> bool {
    match request.send().await {
        Ok(answer) if answer.status().is_success() => true,
        Ok(answer) => {
            tracing::warn!(
                status = answer.status().as_u16(),
                "{key} did not take it; it is tried again"
            );
            false
        }
        Err(error) => {
            let error = error.without_url();
            tracing::warn!(%error, "{key} cannot be reached; it is tried again");
            false
        }
    }
}
