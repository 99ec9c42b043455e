//! `casemirror webhooks`: the address that webhooks are sent to, and the end of its subscriptions.

use std::sync::Arc;

use secrecy::ExposeSecret;

use super::args::{Command, Webhooks};
use super::{print, work};
use crate::config::Config;
use crate::cycle::refuse_other_tenant;
use crate::daemon::Printer;
use crate::error::{Error, Kind, Result};
use crate::hints::{Aligned, HintQueue};
use crate::mirror::{Looked, State, Store, known_webhook_token};
use crate::progress::Progress;
use crate::scope::{Hint, Told};
use crate::session::{Session, catalog_of, made_subscriptions};
use crate::source::{Client, MemoryLedger};
use crate::text::counted;

pub(crate) async fn run(args: &Webhooks, config: Config, quiet: bool) -> Result<u8> {
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
                (None, Some(address)) => {
                    if address.ip().is_unspecified() || address.port() == 0 {
                        tracing::warn!(
                            "serve.public_url is not set: put the host and the port by which the platform reaches \
                             this machine in place of {address}"
                        );
                    }
                    format!("http://{address}")
                }
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
        Webhooks::Remove => match Store::look(&config, &catalog_of(&config)?) {
            Ok(Looked { store, differences, .. }) => {
                work::tell(&differences);
                // It makes no feed call, so its ledger can be one that is forgotten.
                let ledger = Arc::new(MemoryLedger::new());
                let client = Client::new(&config.source, &config.feed, &config.limits, ledger)?;
                let aligned = remove(&config, &store, &client).await?;
                if aligned.changed() {
                    // The store is only read here: whoever writes it next takes this up.
                    let taken = State::new(&store.connection()?).hints().taken_up_to()?;
                    let queue = HintQueue::open(store.path(), taken)?;
                    queue.keep(vec![Told::Hint(Hint::Subscriptions)]).await?;
                }
                tell(&config, aligned, &Printer::here())
            }
            // Which ones were made is kept in the store.
            Err(error) => {
                let command = Command::Webhooks(args.clone());
                work::forward(&command, &config, error, &Progress::new(quiet)).await
            }
        },
    }
}

/// The removal, where the store is open.
pub(crate) async fn execute(session: &Session, out: &Printer) -> Result<u8> {
    let aligned = remove(session.config(), session.store(), &session.polls().client).await?;
    if aligned.changed() {
        session.subscriptions_changed().await?;
    }
    tell(session.config(), aligned, out)
}

async fn remove(config: &Config, store: &Store, client: &Client) -> Result<Aligned> {
    let public_url = config.serve.public_url.as_ref();
    // By their ids alone, subscriptions of another platform's customers may look like ours.
    let tenant = client.tenant().await?.to_string();
    let known = State::new(&store.connection()?).meta("tenant")?;
    refuse_other_tenant(store.path(), known.as_deref(), &tenant)?;
    // Without a token no address was ever made.
    match known_webhook_token(&config.store.path)? {
        Some(token) => made_subscriptions(store)?.remove(client, public_url, &token).await,
        None => Ok(Aligned::default()),
    }
}

/// Says what was removed.
fn tell(config: &Config, aligned: Aligned, out: &Printer) -> Result<u8> {
    out.print(&format!("{} removed\n", counted(aligned.removed as u64, "webhook subscription")))?;
    if config.serve.public_url.is_some() {
        out.print(
            "serve.public_url is set: a daemon that runs with it makes them again within the hour\n",
        )?;
    }
    match aligned.failed.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(0),
    }
}
