//! `casemirror webhooks`: the address that webhooks are sent to, and the end of its subscriptions.

use std::sync::Arc;

use secrecy::ExposeSecret;
use url::Url;

use super::args::Webhooks;
use super::print;
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::hints::Address;
use crate::mirror::known_webhook_token;
use crate::source::{Client, MemoryLedger};
use crate::text::counted;

pub(crate) async fn run(args: &Webhooks, config: &Config) -> Result<u8> {
    let path = &config.store.path;
    let Some(token) = known_webhook_token(path)? else {
        return Err(Error::new(
            Kind::Usage,
            format!(
                "the mirror at {} has never taken webhooks: `casemirror run` makes their address where \
                 serve.webhooks is set",
                path.display()
            ),
        ));
    };
    match args {
        Webhooks::Url => {
            let base = match (&config.serve.public_url, config.serve.webhooks) {
                (Some(url), _) => url.as_str().trim_end_matches('/').to_owned(),
                (None, Some(address)) => format!("http://{address}"),
                (None, None) => {
                    return Err(Error::new(
                        Kind::Config,
                        "serve.webhooks is not set: no webhooks are taken",
                    ));
                }
            };
            // Beside the addresses, which scripts take line by line.
            tracing::info!(
                "the first address takes the webhooks, the second the domain events; both are secret"
            );
            let token = token.expose_secret();
            print(&format!("{base}/webhooks/{token}\n{base}/events/{token}\n"))?;
            Ok(0)
        }
        Webhooks::Remove => {
            // Where nothing leads to a public address any more, the token alone says which are ours.
            let nowhere = || Url::parse("https://casemirror.invalid/");
            let base = match &config.serve.public_url {
                Some(url) => url.clone(),
                None => nowhere().map_err(|e| Error::caused(Kind::Internal, "an address", e))?,
            };
            // It makes no feed call, so its ledger can be one that is forgotten.
            let ledger = Arc::new(MemoryLedger::new());
            let client = Client::new(&config.source, &config.feed, &config.limits, ledger)?;
            let aligned = Address::below(&base, token).remove(&client).await?;
            print(&format!(
                "{} removed\n",
                counted(aligned.removed as u64, "webhook subscription")
            ))?;
            if config.serve.public_url.is_some() {
                print(
                    "serve.public_url is set: a daemon that runs with it makes them again within the hour\n",
                )?;
            }
            match aligned.failed.into_iter().next() {
                Some(error) => Err(error),
                None => Ok(0),
            }
        }
    }
}
