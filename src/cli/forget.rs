//! `casemirror forget`: a person's values leave the mirror and are kept out
//! (docs/architecture.md, "Forgetting").

use std::fmt::Write as _;

use super::args::Forget;
use super::{output, print};
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::lake::Carried;
use crate::mirror::{self, STAY_IN_SNAPSHOTS, Taken, Writing};
use crate::progress::Progress;
use crate::session::{Forms, Session, When, catalog_of};

/// What no mirror can do.
const OUT_OF_REACH: &str = "\
out of reach, and yours to see to:
  the platform itself, which casemirror only reads
  backups, copies that others have made of published files, and versions that a bucket keeps of its objects; a
  store that is restored from a backup of before holds the person again
  numbers and addresses in texts of others that privacy drops where they are the person's own, or hashes and that are
  written there in another form: the mirror does not know them
  the name within one word (a file called OlaNordmann.pdf), with markup in it, or in part, where others wrote it so
  what a lake's catalog has freed and not overwritten yet: it holds the smallest and largest value of the columns of
  each file
  files that a reader opened before and still has open, until it lets go of them
  targets that were published to under an earlier configuration, and another mirror of the same platform
";

pub(super) async fn run(args: &Forget, config: Config, quiet: bool) -> Result<u8> {
    let catalog = catalog_of(&config)?;
    let Forget { contact, dry_run, unknown } = *args;
    let erasing = {
        let config = config.clone();
        tokio::task::spawn_blocking(move || {
            mirror::forget(&config, &catalog, contact, (dry_run, unknown))
        })
    };
    let taken = erasing
        .await
        .map_err(|e| Error::caused(Kind::Internal, "forgetting ended early", e))?
        .map_err(explained)?;
    print(&told(contact, &taken, dry_run))?;
    if dry_run {
        print("nothing was changed: this was a dry run\n")?;
        return Ok(0);
    }

    let session = Session::open(config, Writing::AsItIs, Progress::new(quiet))?;
    let here = session.publish_here(Forms::Both, When::Changed).await;
    // The lake is made from the published file, and waits for no snapshot.
    let lake = match &here {
        Ok(_) => session.publish_to_lake(true).await,
        Err(_) => Ok(None),
    };
    let published = match here {
        Ok(here) => session.published(here).await.map_err(|e| {
            e.within(
                "the store and the published file are rewritten, but the snapshots in publish.parquet still hold \
                 what it was: run it again, or `casemirror sync`, to publish anew",
            )
        }),
        Err(e) => Err(e.within(
            "the store is rewritten, but what is published still holds what it was: run it again, or \
             `casemirror sync`, to publish anew",
        )),
    };
    let stay_in_snapshots = session.leaves_erased_values();
    session.close(None).await?;
    let lake_told = lake_told(&lake);
    if published.is_err() {
        print(&lake_told)?;
    }
    let mut text = String::new();
    match published? {
        Some(published) => {
            // Writing to a String does not fail.
            let _ = writeln!(
                text,
                "published anew as {}{}",
                published.snapshot_id,
                if published.parquet.is_some() {
                    ", with the packs; earlier snapshots are removed"
                } else {
                    ""
                }
            );
        }
        None => text.push_str("what is published has nothing of it\n"),
    }
    if stay_in_snapshots? {
        let _ = writeln!(text, "{STAY_IN_SNAPSHOTS}");
    }
    print(&(text + &lake_told + OUT_OF_REACH))?;
    // The forgetting is done, but incomplete (docs/architecture.md, "Commands").
    Ok(if lake.is_ok() { 0 } else { 3 })
}

/// What became of it in the lake.
fn lake_told(lake: &Result<Option<Carried>>) -> String {
    match lake {
        Ok(None) => String::new(),
        Ok(Some(_)) => "the lake has nothing of it, and no snapshot or file of before\n".to_owned(),
        Err(error) => format!(
            "the lake still holds it: {}; the next publishing to it takes it out: `casemirror lake \
             publish`, or the next `sync` or `run`\n",
            error.chain()
        ),
    }
}

fn explained(error: Error) -> Error {
    if error.kind() == Kind::StoreLocked {
        error.within(
            "the store's file is written anew, which no other process may have open: stop it first",
        )
    } else {
        error
    }
}

/// What was taken out, and what is kept out.
fn told(contact: i64, taken: &Taken, dry_run: bool) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = if !taken.is_new && taken.rows.is_empty() {
        let rest = if taken.was_named { "; there is nothing to do" } else { "" };
        writeln!(text, "contact {contact} was forgotten before{rest}")
    } else if taken.was_known {
        writeln!(
            text,
            "contact {contact} {} forgotten: all texts of its own rows and, wherever they stand, {} that tell \
             of it",
            if dry_run { "would be" } else { "is" },
            counted(taken.texts)
        )
    } else {
        writeln!(
            text,
            "contact {contact} is not in the mirror; should it come, nothing of it but its id is kept"
        )
    };
    if !taken.was_named {
        let _ = writeln!(
            text,
            "only its id is known: its name and details cannot be looked for in other rows before a row of its own \
             has come (contacts or employees, where these are mirrored); then they are taken out and kept out"
        );
    }
    if taken.common > 0 {
        let _ = writeln!(
            text,
            "{} of it tell too little to be looked for in other rows: names of one word, details that are no e-mail \
             address, telephone or street with the number of a house, what an office or a place is called, and masks",
            counted(taken.common)
        );
    }
    if taken.shared > 0 {
        let _ = writeln!(
            text,
            "{} of it {} in rows about other people, too, and {} there, as theirs",
            counted(taken.shared),
            if taken.shared == 1 { "stands" } else { "stand" },
            if taken.shared == 1 { "stays" } else { "stay" },
        );
    }
    if !taken.rows.is_empty() {
        let mut table = output::table(&["where", "rows"]);
        for (place, rows) in &taken.rows {
            table.add_row([place, &rows.to_string()]);
        }
        output::align_numbers(&mut table, 1..2);
        let _ = writeln!(text, "{table}");
    }
    text
}

fn counted(texts: usize) -> String {
    format!("{texts} {}", if texts == 1 { "text" } else { "texts" })
}
