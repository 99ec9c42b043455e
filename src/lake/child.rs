//! The process that does a publishing, as the one that waits for it sees it.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use super::errand::Errand;
use super::publishing::Carried;
use super::secrets::Secrets;
use crate::error::{Error, Kind, Result};

/// A process that has said nothing for so long hangs: one table is the most that it does in silence.
const LONGEST_SILENCE: Duration = Duration::from_secs(3600);
/// How long it may take to end after its last line: it closes the catalog.
const LONGEST_END: Duration = Duration::from_secs(30);
/// What of its last words is told.
const LAST_WORDS: u64 = 4096;

/// A line that the process writes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
    /// It has come to this.
    At(String),
    Done(Carried),
    Failed {
        text: String,
        /// Nobody but a person can mend it.
        for_people: bool,
    },
}

impl Ended {
    /// What became of it.
    pub(crate) fn of(done: Result<Carried>) -> Ended {
        match done {
            Ok(carried) => Ended::Done(carried),
            Err(error) => Ended::Failed {
                text: error.chain(),
                for_people: matches!(
                    error.kind(),
                    Kind::Config | Kind::Tenant | Kind::StoreNewer | Kind::Usage
                ),
            },
        }
    }
}

/// Publishes to the lake in a process of its own, which ends with this call.
///
/// # Errors
/// `Config` where a person has to do something; `Lake` for what may be over later; `Io` where no process can be
/// begun.
pub(crate) async fn run(errand: &Errand) -> Result<Carried> {
    let order = serde_json::to_vec(errand)
        .map_err(|e| Error::caused(Kind::Internal, "an errand is no JSON", e))?;
    let mut child = begin("--errand", Stdio::piped())?;
    let lost = |e| Error::caused(Kind::Lake, "the process for the lake cannot be reached", e);
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&order).await.map_err(lost)?;
    }
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Error::new(Kind::Internal, "the process for the lake has no output"));
    };
    let last_words = tokio::spawn(async move {
        let mut words = Vec::new();
        // What comes behind it is read too: a full pipe would hold the process.
        let mut stderr = stderr;
        let _ = (&mut stderr).take(LAST_WORDS).read_to_end(&mut words).await;
        let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
        String::from_utf8_lossy(&words).into_owned()
    });
    let mut lines = BufReader::new(stdout).lines();
    let mut at = String::new();
    let ended = loop {
        let line = tokio::time::timeout(LONGEST_SILENCE, lines.next_line()).await;
        let Ok(line) = line else {
            return Err(hung(&at));
        };
        let Some(line) = line.map_err(lost)? else { break None };
        match serde_json::from_str(&line) {
            Ok(Ended::At(place)) => at = place,
            Ok(Ended::Done(carried)) => break Some(Ok(carried)),
            Ok(Ended::Failed { text, for_people }) => {
                let kind = if for_people { Kind::Config } else { Kind::Lake };
                break Some(Err(Error::new(kind, text)));
            }
            // A library wrote to standard output.
            Err(_) => {}
        }
    };
    // The next one can begin when this one has given back its locks; what hangs is ended.
    let status = tokio::time::timeout(LONGEST_END, child.wait()).await;
    if let Some(ended) = ended {
        return ended;
    }
    let status = status.map_err(|_| hung(&at))?.map_err(lost)?;
    let words = last_words.await.unwrap_or_default();
    let hider = Secrets::read(errand).unwrap_or_default().hider(errand);
    Err(Error::new(Kind::Lake, died(status, &at, hider.hide(&words).trim())))
}

fn hung(at: &str) -> Error {
    Error::new(Kind::Lake, format!("the process for the lake hung at {at} and was ended"))
}

fn died(status: ExitStatus, at: &str, words: &str) -> String {
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    format!("the process for the lake ended at {at} ({status}){words}")
}

/// Begins this program anew, to be told over its standard input what to do. It ends with what is returned.
///
/// # Errors
/// `Io`.
pub(super) fn begin(what: &str, stderr: Stdio) -> Result<Child> {
    let began = |e| Error::caused(Kind::Io, "cannot begin a process for the lake", e);
    Command::new(this_program().map_err(began)?)
        .args(["-qq", "lake", "publish", what])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .kill_on_drop(true)
        .spawn()
        .map_err(began)
}

/// The program that runs now, also where a newer one has taken its place on the disk.
fn this_program() -> std::io::Result<std::path::PathBuf> {
    let link = std::path::PathBuf::from("/proc/self/exe");
    if link.exists() { Ok(link) } else { std::env::current_exe() }
}
