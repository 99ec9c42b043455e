//! `casemirror lease`: which host asks the change feeds, and letting others take it from one that is gone for good.

use super::args::Lease;
use super::print;
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::lease::{Record, Written};
use crate::publish::Root;
use crate::session;

pub(crate) async fn run(args: &Lease, config: &Config) -> Result<u8> {
    let root = config.publish.parquet.as_ref().map(|root| Root::open(root, &config.store.path));
    let root = root.transpose()?;
    let register = session::register(config, root.as_ref()).ok_or_else(|| {
        Error::new(
            Kind::Config,
            "there is no lease: hosts share one by lake.catalog (PostgreSQL), or by publish.parquet in a bucket \
             (docs/lake.md)",
        )
    })?;
    let place = register.place();
    let Some((found, mut version)) = register.record().await? else {
        print(&format!("{place}: nobody has ever held the lease of this API user\n"))?;
        return Ok(0);
    };
    if !args.release || found.released {
        print(&text(&place, &found))?;
        return Ok(0);
    }
    let mut record = found.clone();
    loop {
        match register.put(&record.given_back(), Some(&version)).await? {
            Written::Done => break,
            Written::Late => {}
            Written::Unsupported => {
                let text = format!("{place} cannot be written on a condition: remove it by hand");
                return Err(Error::new(Kind::Config, text));
            }
        }
        // Those who wait write, too. Only its holder renews it.
        let now = register.record().await?.filter(|(now, _)| now.is_held_as(&found));
        (record, version) = now.ok_or_else(|| {
            let text = format!(
                "{} has just renewed the lease, or somebody else has taken it: it is not gone",
                found.holder.name
            );
            Error::new(Kind::Lease, text)
        })?;
    }
    print(&format!(
        "released the lease of {}: the next host that asks the change feeds takes it\n",
        found.holder.name
    ))?;
    Ok(0)
}

fn text(place: &str, record: &Record) -> String {
    let (holder, at) = (&record.holder.name, record.renewed_at);
    let mut text = if record.released {
        format!("{place}\n  free     {holder} held it last, until {at} or later\n")
    } else {
        format!("{place}\n  held     by {holder}, which has renewed it at {at}\n")
    };
    for (name, is_known) in record.waiting() {
        let known =
            if is_known { "takes over when that is silent" } else { "not known to that yet" };
        text += &format!("  waits    {name}: {known}\n");
    }
    text
}
