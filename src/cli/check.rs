//! `casemirror check`: is the configuration right, what may the API user read, and does the object store answer?

use std::sync::Arc;

use super::{output, print, work};
use crate::catalog::{Catalog, Group};
use crate::config::{Config, ParquetRoot};
use crate::cycle;
use crate::error::{Error, Kind, Result};
use crate::lake::{Errand, check_extensions};
use crate::mirror::{State, Store, is_there, secrets_of};
use crate::publish::{Root, Stop, check_snapshots};
use crate::session::{catalog_of, check_targets};
use crate::source::{Client, MemoryLedger, check_ledger};

pub(crate) async fn run(config: Config) -> Result<u8> {
    let catalog = catalog_of(&config)?;
    let Seen { store_id, tenant: filled_from, refused } = compare(&config, &catalog)?;
    // It makes no feed call, so its ledger can be one that is forgotten.
    let ledger = Arc::new(MemoryLedger::new());
    let client = Client::new(&config.source, &config.feed, &config.limits, ledger)?;
    let tenant = client.tenant().await?;
    cycle::refuse_other_tenant(&config.store.path, filled_from.as_deref(), &tenant.to_string())?;
    let permissions = client.permissions().await?;
    let mut table = output::table(&["resource", "permission needed", "granted", "enabled"]);
    let mut missing = 0;
    let (mut restrictions, mut untold) = (String::new(), String::new());
    for resource in catalog.resources() {
        let is_told = resource.group == Group::Events;
        let is_wanted = !config.resources.disable.contains(&resource.table);
        let enabled = is_wanted && (!is_told || config.serve.webhooks.is_some());
        if is_wanted && !enabled {
            untold += &format!(
                "\n{}: not enabled, because only webhooks tell of them, and serve.webhooks is off.",
                resource.table
            );
        }
        let granted: Vec<bool> = resource
            .permissions
            .iter()
            .map(|needed| permissions.iter().any(|p| p.grants(needed)))
            .collect();
        let all = granted.iter().all(|g| *g);
        missing += usize::from(!all && enabled);
        let mut needed = if resource.permissions.is_empty() {
            "none documented".to_owned()
        } else {
            resource.permissions.join(", ")
        };
        let mut in_part = false;
        if let Some(partial) = &resource.partial {
            needed += &format!("; for all rows {}", partial.permission);
            in_part = !cycle::is_granted(partial, &permissions);
            // A table that is not read at all lacks more than that.
            if in_part && all && enabled {
                restrictions += &format!("\n{}: {}.", resource.table, cycle::restriction(partial));
            }
        }
        let granted = match (resource.permissions.is_empty(), all) {
            (false, false) => "no",
            (_, true) if in_part => "in part",
            (true, _) => "-",
            (false, true) => "yes",
        };
        let enabled = if enabled { "yes" } else { "no" };
        table.add_row([resource.table.as_str(), &needed, granted, enabled]);
    }
    let end = match missing {
        0 if restrictions.is_empty() => "Everything that is enabled may be read.".to_owned(),
        0 => "Everything that is enabled may be read, but in part:".to_owned(),
        1 => "1 enabled table lacks a permission: it will be empty and marked `forbidden`."
            .to_owned(),
        n => format!(
            "{n} enabled tables lack a permission: they will be empty and marked `forbidden`."
        ),
    };
    let mut unwritable = config.unwritable_folders();
    unwritable.extend(check_ledger(&config).err().map(|error| error.chain()));
    unwritable.extend(refused.iter().map(Error::chain));
    unwritable.extend(check_lake(&config).await.err().map(|error| error.chain()));
    let folders = if unwritable.is_empty() {
        "Store and published files can be written.".to_owned()
    } else {
        format!("Nothing can be mirrored or published like this:\n{}", unwritable.join("\n"))
    };
    print(&format!(
        "{} answers; tenant {tenant}, client {}.\n{table}\n{end}{restrictions}{untold}\n{folders}\n",
        config.source.base_url, config.source.client_id
    ))?;
    match away(move || look_at_bucket(&config, store_id)).await {
        Ok(text) => print(&text)?,
        Err(error) if unwritable.is_empty() => return Err(error),
        // Of several statuses that of the configuration goes first.
        Err(error) => tracing::error!("{}", error.chain()),
    }
    Ok(if unwritable.is_empty() { 0 } else { Kind::Config.exit_status() })
}

/// What tells the store from others, which its mark in a bucket repeats.
enum StoreId {
    /// Empty where there is no store yet.
    Known(String),
    /// Who reads it instead.
    ReadBy(&'static str),
}

/// What a look at the store says, if there is one.
struct Seen {
    store_id: StoreId,
    /// From which it was filled.
    tenant: Option<String>,
    /// What the next sync would refuse: what is where it publishes to, the store's secrets.
    refused: Vec<Error>,
}

impl Seen {
    /// Another process reads the store: what it holds is not known here.
    fn read_by(who: &'static str) -> Seen {
        Seen { store_id: StoreId::ReadBy(who), tenant: None, refused: Vec::new() }
    }
}

/// Reads what is in the bucket of `publish.parquet`, if that is one; writes nothing there.
fn look_at_bucket(config: &Config, store_id: StoreId) -> Result<String> {
    let Some(root @ ParquetRoot::Bucket(_)) = &config.publish.parquet else {
        return Ok(String::new());
    };
    let store_id = match store_id {
        StoreId::Known(store_id) => store_id,
        StoreId::ReadBy(who) => return Ok(format!("{root} is not looked at: {who} does that.\n")),
    };
    let place = Root::open(root, &config.store.path)?;
    let found = match check_snapshots(&place, &store_id, &Stop::default())? {
        true => "holds snapshots of this store",
        false => "holds no snapshot yet",
    };
    Ok(format!("{root} answers, and {found}; whether it may be written to is not tried.\n"))
}

/// Whether there is what publishing to the lake needs. Its catalog is not asked.
async fn check_lake(config: &Config) -> Result<()> {
    let Some(errand) = Errand::of(config) else { return Ok(()) };
    away(move || check_extensions(&errand)).await
}

/// Runs what keeps a thread busy.
async fn away<T: Send + 'static>(look: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let looked = tokio::task::spawn_blocking(look).await;
    looked.map_err(|e| Error::caused(Kind::Internal, "a look ended early", e))?
}

/// Says in what the configuration is another than the one that the store was last written with, where there
/// is one that nobody holds.
fn compare(config: &Config, catalog: &Catalog) -> Result<Seen> {
    if !is_there(&config.store.path)? {
        let store_id = StoreId::Known(String::new());
        let refused = check_targets(config, None).err().into_iter().collect();
        return Ok(Seen { store_id, tenant: None, refused });
    }
    match Store::look(config, catalog) {
        Ok(looked) => {
            work::tell(&looked.differences);
            let conn = looked.store.connection()?;
            let state = State::new(&conn);
            Ok(Seen {
                store_id: StoreId::Known(state.meta("store_id")?.unwrap_or_default()),
                tenant: state.meta("tenant")?,
                refused: [
                    check_targets(config, Some(&conn)),
                    secrets_of(&conn, &config.store.path).map(drop),
                ]
                .into_iter()
                .filter_map(Result::err)
                .collect(),
            })
        }
        // What holds it has compared them.
        Err(error) if error.kind() == Kind::StoreLocked => {
            Ok(Seen::read_by("the process that holds the store"))
        }
        Err(error) if error.kind() == Kind::StoreOlder => {
            tracing::warn!("{}", error.chain());
            Ok(Seen::read_by("the next sync, which upgrades the store,"))
        }
        Err(error) => Err(error),
    }
}
