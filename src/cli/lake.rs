//! `casemirror lake`: the lake's extensions, publishing to it, several lakes as one.

use std::io::{Read, Write};
use std::path::Path;

use super::args::{Lake, LakeInstall, LakePublish, LakeViews};
use super::print;
use crate::config::Config;
use crate::durable::{Access, Replacement};
use crate::error::{self, Error, Kind, Result};
use crate::lake::{self, Carried, Ended, Errand};
use crate::text::counted;

pub(crate) fn run(args: &Lake, config: impl FnOnce() -> Result<Config>) -> Result<u8> {
    match args {
        Lake::Install(args) => install(args, &config()?),
        Lake::Publish(LakePublish { errand: true, .. }) => serve(),
        Lake::Publish(LakePublish { lease: true, .. }) => {
            let (asks, answers) = (std::io::stdin().lock(), std::io::stdout().lock());
            lake::serve_lease(asks, answers).map(|()| 0)
        }
        Lake::Publish(_) => {
            let carried =
                lake::publish(&Errand::required(&config()?)?, |at| tracing::debug!("{at}"))?;
            print(&summary(&carried))?;
            print("casemirror status tells of it after the next publishing of sync or run\n")?;
            Ok(0)
        }
        Lake::Views(args) => views(args, &config()?),
    }
}

fn install(args: &LakeInstall, config: &Config) -> Result<u8> {
    let installed = lake::install(&config.store.path, args.from.as_deref())?;
    print(&format!(
        "installed {} of DuckDB {} in {}\n",
        installed.names.join(", "),
        installed.version,
        installed.folder.display()
    ))?;
    Ok(0)
}

/// For the process that began this one: an errand comes in, lines that say how far it is go out.
fn serve() -> Result<u8> {
    let mut text = String::new();
    let failed = |e| error::io("read", Path::new("standard input"), e);
    std::io::stdin().read_to_string(&mut text).map_err(failed)?;
    let errand: Errand = serde_json::from_str(&text).map_err(|_| {
        Error::new(Kind::Usage, "standard input holds no errand: leave out --errand")
    })?;
    let say = |line: &Ended| -> Result<()> {
        let failed = |e| error::io("write to", Path::new("standard output"), e);
        let line = serde_json::to_string(line)
            .map_err(|e| Error::caused(Kind::Internal, "what happened is no JSON", e))?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(failed)
    };
    // Who began this process waits for its end, and is gone when nobody reads what it says.
    let done = lake::publish(&errand, |at| drop(say(&Ended::At(at.to_owned()))));
    say(&Ended::of(done))?;
    Ok(0)
}

fn summary(carried: &Carried) -> String {
    let mut text = if carried.unchanged {
        format!("the lake shows snapshot {} already\n", carried.snapshot_id)
    } else {
        format!(
            "the lake shows snapshot {}\n  tables  {} changed\n  rows    {} written, {} removed\n  files   {} ({} bytes)\n",
            carried.snapshot_id,
            carried.tables,
            carried.rows.written,
            carried.rows.removed,
            carried.files,
            carried.bytes
        )
    };
    if let Some(kept) = carried.kept {
        text += &format!(
            "  tidied  {} expired, {} merged away, {} removed\n",
            counted(kept.expired, "snapshot"),
            counted(kept.merged, "file"),
            counted(kept.removed, "file")
        );
    }
    text
}

fn views(args: &LakeViews, config: &Config) -> Result<u8> {
    let file = &args.file;
    match std::fs::read_to_string(file) {
        Ok(text) if lake::is_script(&text) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Ok(_) => {
            let text = format!(
                "{} is there, and is no script of this command: name another file",
                file.display()
            );
            return Err(Error::new(Kind::Usage, text));
        }
        Err(e) => return Err(error::io("read", file, e)),
    }
    let script = lake::views_of_tenants(&Errand::required(config)?, &args.schemas)?;
    let replacement = Replacement::of(file)?;
    std::fs::write(replacement.path(), &script)
        .map_err(|e| error::io("write", replacement.path(), e))?;
    replacement.finish(Access::AsCreated)?;
    print(&format!("wrote {}: {}\n", file.display(), counted(args.schemas.len(), "tenant")))?;
    Ok(0)
}
