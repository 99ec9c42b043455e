//! The caller's side of the socket.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncBufRead, BufReader};
use tokio::net::UnixStream;

use super::protocol::{self, Frame, Keys, Request};
use super::{Interrupts, place};
use crate::error::{Error, Kind, Result};
use crate::progress::Progress;

/// A daemon that lives lets a caller in at once; one that does not within this time, because it was stopped or hangs, does
/// not answer.
const LET_IN_WITHIN: Duration = Duration::from_secs(5);
/// Who waits longer is told for what.
const SAID_AFTER: Duration = Duration::from_secs(3);

/// Forwards a command to the daemon that holds the store at `store`, prints what it answers, shows what it is doing
/// by `progress`, and returns its exit status. `None` where nothing answers, in time or at all. Who is stopped by a
/// signal leaves, is told so by `stopped`, and the daemon ends what takes turns with its cycles.
///
/// # Errors
/// The command's own; `Io` when the daemon ends before the command does; `Cancelled` at a signal.
pub(crate) async fn forward(
    store: &Path,
    command: &impl Serialize,
    keys: Keys,
    progress: &Progress,
    stopped: &str,
) -> Result<Option<u8>> {
    let Some(stream) = connect(store).await else { return Ok(None) };
    let mut interrupts = Interrupts::catch()?;
    tokio::select! {
        answered = ask(stream, command, keys, progress) => answered,
        () = interrupts.next() => Err(Error::new(Kind::Cancelled, stopped)),
    }
}

/// Asks the daemon at the other end of `stream`.
async fn ask(
    stream: UnixStream,
    command: &impl Serialize,
    keys: Keys,
    progress: &Progress,
) -> Result<Option<u8>> {
    let (read, mut write) = stream.into_split();
    let request = Request { version: env!("CARGO_PKG_VERSION").to_owned(), command, keys };
    protocol::send(&mut write, &request).await?;
    let mut read = BufReader::new(read);
    let Ok(let_in) = tokio::time::timeout(LET_IN_WITHIN, protocol::receive(&mut read)).await else {
        return Ok(None);
    };
    let mut next = match let_in? {
        Some(Frame::Progress(None)) => first_frame(&mut read).await?,
        other => other,
    };
    let mut shown = progress.shown_for_another();
    while let Some(frame) = next {
        // No bar stands where something is printed.
        let doing = if let Frame::Progress(doing) = &frame { doing.clone() } else { None };
        shown.is(doing);
        let printed = match frame {
            Frame::Progress(_) => Ok(()),
            Frame::Stdout(text) => print(&mut std::io::stdout().lock(), &text),
            Frame::Exit(status) => return Ok(Some(status)),
            Frame::Failed(told) => return Err(told.into_error()),
        };
        printed.map_err(|e| Error::caused(Kind::Io, "cannot write to standard output", e))?;
        next = protocol::receive(&mut read).await?;
    }
    Err(Error::new(
        Kind::Io,
        "the daemon that holds the store ended before it had answered; what it has committed stays",
    ))
}

/// Whether a daemon answers for the store at `store`, also where somebody has taken its file away.
pub(crate) async fn answers(store: &Path) -> bool {
    connect(store).await.is_some()
}

async fn connect(store: &Path) -> Option<UnixStream> {
    let stream = UnixStream::connect(place::of(store)).await.ok()?;
    let dies = stream.peer_cred().ok().and_then(|peer| peer.pid()).is_some_and(is_dying);
    (is_the_daemons(&stream, store) && !dies).then_some(stream)
}

/// Whether a process was killed and has not let go of everything yet: its socket takes connections for a moment. Where
/// the system does not say, it is not.
fn is_dying(pid: i32) -> bool {
    let program = format!("/proc/{pid}/exe");
    let is_there = Path::new(&format!("/proc/{pid}/stat")).exists();
    is_there && std::fs::read_link(program).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}

/// The beginning of the answer; says what is waited for where it takes long.
async fn first_frame(read: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Frame>> {
    let mut answer = std::pin::pin!(protocol::receive(read));
    tokio::select! {
        first = &mut answer => return first,
        () = tokio::time::sleep(SAID_AFTER) => {}
    }
    tracing::info!("forwarded to the daemon; waiting for its current calls");
    answer.await
}

/// In a folder that everybody can write to, anybody can stand at the daemon's address: who listens has
/// to be the user that the store belongs to, or we.
fn is_the_daemons(stream: &UnixStream, store: &Path) -> bool {
    let Ok(peer) = stream.peer_cred() else { return false };
    let own = rustix::process::geteuid().as_raw();
    let owner = std::fs::metadata(store).map_or(own, |store| store.uid());
    peer.uid() == own || peer.uid() == owner
}

fn print(to: &mut impl Write, text: &str) -> std::io::Result<()> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        // Who closes the pipe early has read enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_was_killed_dies_until_it_is_waited_for() {
        let pid = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        assert!(!is_dying(pid(&child)));
        child.kill().unwrap();
        // The kernel takes its time.
        while !is_dying(pid(&child)) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_dying(pid(&child)), "nobody has that number");
    }
}
