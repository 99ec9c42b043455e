//! The arguments of the commands that work on the store.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

/// An id of the platform.
fn positive_id(text: &str) -> Result<i64, String> {
    let id = text.parse().ok().filter(|id| *id >= 1);
    id.ok_or_else(|| "an id is a whole number from 1 on, such as 1017".to_owned())
}

/// `casemirror sync`.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(after_help = "\
Examples:
  casemirror sync --only cases,costs     only these tables; the others stay pending
  casemirror sync --case 1017,1018       only these cases")]
pub struct Sync {
    /// Read everything again; an interrupted one goes on by itself at the next sync
    #[arg(long)]
    pub(crate) full: bool,
    /// Only these tables, and no schedule; what is left out stays pending
    #[arg(long, value_name = "TABLE,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Only these cases, and no schedule; what is left out stays pending
    #[arg(
        long = "case",
        value_name = "ID,...",
        value_delimiter = ',',
        value_parser = positive_id
    )]
    pub(crate) cases: Vec<i64>,
    /// Remove what the platform no longer lists, even if it is more than reconcile.max_removed
    #[arg(long)]
    pub(crate) allow_removals: bool,
    /// Ask the change feeds though the platform asked to wait longer (Retry-After)
    #[arg(long)]
    pub(crate) now: bool,
}

/// `casemirror journals`.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(after_help = "\
Examples:
  casemirror journals --from 2026-01-01 --to 2026-03-31
  casemirror journals --from 2026-09-01 --to 2026-09-30 --kind revenue --ids 11,12")]
pub struct Journals {
    /// First day; the period is widened to whole months
    #[arg(long, value_name = "yyyy-mm-dd")]
    pub(crate) from: jiff::civil::Date,
    /// Last day
    #[arg(long, value_name = "yyyy-mm-dd")]
    pub(crate) to: jiff::civil::Date,
    /// Only these journals: case, depot, revenue, settlement [default: all]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub(crate) kind: Vec<String>,
    /// Only those of these offices (or broker companies, or chain: journals.level) [default:
    /// journals.ids, or all that are known]
    #[arg(
        long,
        value_name = "ID,...",
        value_delimiter = ',',
        value_parser = positive_id
    )]
    pub(crate) ids: Vec<i64>,
}

/// `casemirror close`.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(after_help = "\
Months close by themselves with their first complete reading from journals.close_day of the next month on (0: \
only by this command). Closing by hand is for an earlier day, or for what did not close by itself.

The month is read once more, and the revenue journals are held against the platform's sums. What is not \
complete (exit status 3) or differs (4) is not closed, nor is anything else then, but with --force, \
which ends with 0, and with 3 where something was never read. \
Closed months are in report.closings; what changes in them later is in report.journal_statement. The \
pack goes to closings/<month>/ in publish.parquet; a month that is closed already has it written again.

Examples:
  casemirror close --month 2026-10
  casemirror close --month 2026-10 --kind revenue --office 11,12
  casemirror close --month 2026-10 --reopen")]
pub struct Close {
    /// A month that has ended
    #[arg(long, value_name = "yyyy-mm")]
    pub(crate) month: String,
    /// Only those of these offices (or broker companies, or chain: journals.level) [default: all that
    /// are mirrored]
    #[arg(
        long = "office",
        value_name = "ID,...",
        value_delimiter = ',',
        value_parser = positive_id
    )]
    pub(crate) ids: Vec<i64>,
    /// Only these journals: case, depot, revenue, settlement [default: all]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub(crate) kind: Vec<String>,
    /// Close what is not complete or differs too; what was wrong is noted with the closing
    #[arg(long)]
    pub(crate) force: bool,
    /// Open the month again: its closing stays, with the time of the opening
    #[arg(long, conflicts_with = "force")]
    pub(crate) reopen: bool,
    /// Who types it
    #[arg(skip)]
    pub(crate) by: String,
}

/// `casemirror verify`.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(after_help = "\
What differs is asked again, up to three times, with a sync in between; where something changed each \
time it is unsettled, and no difference. What is found to differ is read again by the next sync. \
Everything that was compared is in sync.verifications.

Exit status: 4 where something differs; else as sync.")]
pub struct Verify {
    /// So many random cases are read whole
    #[arg(long, value_name = "N", default_value_t = crate::verify::SAMPLE)]
    pub(crate) sample: usize,
}

/// `casemirror backup`.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(after_help = "\
The file holds the whole store as it was committed at one moment, with its history, closings and \
restatements, the ledger of the change feeds, and the key of the privacy hashes: keep it as you keep a \
password (mode 0600). It is a tar archive. Where `run` holds the store, the daemon writes it, and must be able to \
write to its folder.

Example:
  casemirror backup \"/srv/backups/casemirror-$(date +%F).tar\"")]
pub struct Backup {
    /// Where to write it; nothing is overwritten
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The folder, as the caller sees it
    #[arg(skip)]
    pub(crate) folder: String,
}

/// `casemirror restore`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The store of the configuration (store.path) must not exist, nor its log or secrets. All of the backup is \
checked before anything has a name. The calls in its ledger are added to the ledger that is there. Nothing is \
published until the next sync: it reads what has changed since, and replaces what was published.")]
pub struct Restore {
    /// What `casemirror backup` has written
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// `casemirror forget`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Of the person's own rows everything goes that tells of the person: all texts, the nationality, the photo, numbers as an \
employee. What stays says how it is worked with: yes and no, ids of offices and teams, words of enumerations, dates of the platform. In all \
other rows, history and journals included, what tells of the person: values with a privacy class \
(casemirror schema shows them) and names of several words. Rows about other people keep their own name \
and details, though they may be the same: a telephone that two share. What is kept out is known by keyed hashes \
alone. Of a person of whom no row has come only the id is known: its name and details go from other rows when \
its own row comes. The store's file, the published file, the snapshot and the packs are written anew, and \
earlier snapshots are removed. There is no way back: --dry-run shows first where how many rows would \
change. No daemon may hold the store meanwhile.")]
pub struct Forget {
    /// The contact's id: contacts.id, employees.id
    #[arg(long, value_name = "ID", value_parser = positive_id)]
    pub(crate) contact: i64,
    /// Say what would be taken out, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep out a contact that is not in the mirror, should it ever come; until then its name is not known
    #[arg(long)]
    pub(crate) unknown: bool,
}

/// `casemirror status`.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct Status {
    /// As JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}
