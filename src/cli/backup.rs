//! `casemirror backup FILE`: what cannot be fetched again, in one file (docs/operations.md, "Keeping a copy").

use std::fmt::Write as _;
use std::sync::Arc;

use super::args::Backup;
use super::print;
use crate::backup::{self, About, Taken};
use crate::config::Config;
use crate::daemon::Printer;
use crate::error::{Error, Kind, Result};
use crate::progress::Progress;
use crate::session::Session;
use crate::text::counted;

/// What was typed, as any process understands it; refused where nothing could come of it.
pub(super) fn typed(args: &Backup) -> Result<Backup> {
    let file = backup::resolved(&args.file)?;
    backup::check_new(&file)?;
    let folder = file.parent().and_then(backup::identity_of).unwrap_or_default();
    Ok(Backup { file, folder })
}

pub(super) fn run(config: &Config, args: &Backup, quiet: bool) -> Result<u8> {
    let progress = Progress::new(quiet);
    let taken = {
        let _step = progress.step("taking a backup");
        backup::take_alone(config, &args.file, &progress)?
    };
    print(&told(&taken))?;
    Ok(0)
}

/// The same in the daemon that holds the store.
pub(super) async fn execute(args: &Backup, session: &Arc<Session>, out: &Printer) -> Result<u8> {
    let folder = args.file.parent().unwrap_or(&args.file);
    if backup::identity_of(folder).as_ref() != Some(&args.folder) {
        return Err(Error::new(
            Kind::Usage,
            format!(
                "the daemon that holds the store does not see the folder {}, or has another one there: \
                 name a folder that its service may write to",
                folder.display()
            ),
        ));
    }
    out.print(&told(&session.backup(args.file.clone()).await?))?;
    Ok(0)
}

fn told(taken: &Taken) -> String {
    let Taken { file, bytes, about } = taken;
    let mut text = format!("{}\n  bytes   {bytes}\n", file.display());
    text.push_str(&contents(about));
    text
}

/// What is in a backup, in a few lines.
pub(super) fn contents(about: &About) -> String {
    let About { taken_at, store_id, store_format, rows, earlier_versions, closed_months, .. } =
        about;
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "  store   {store_id}, format {store_format}\n  rows    {rows} and {}\n  closed  {}\n  taken   {}",
        counted(*earlier_versions, "earlier version"),
        counted(*closed_months, "month"),
        taken_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    );
    text
}
