//! Takes over what other commands hand to the daemon.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::place::Bound;
use super::poller::stop;
use super::protocol::{self, Frame, Request};
use super::telling::{Telling, Turn};
use super::worker::{Job, stopped};
use super::{Forwarded, Host, Printer};
use crate::error::{Error, Kind, Result};

/// A request is one line and is sent at once.
const LONGEST_REQUEST: Duration = Duration::from_secs(10);
/// Callers that are served at once.
const MOST_CALLERS: usize = 64;
/// After a connection that could not be taken.
const BREATHER: Duration = Duration::from_millis(100);

pub(super) struct Server {
    pub(crate) host: Host,
    pub(crate) jobs: mpsc::Sender<Job>,
}

impl Server {
    /// Serves until the process stops; who has been let in is answered to the end, and what one caller
    /// meets is not the others'.
    pub(super) async fn run<C: Forwarded>(self, bound: Bound) -> Result<()> {
        let mut signals = self.host.signals.clone();
        let server = Arc::new(self);
        let mut served = JoinSet::new();
        let mut stop = std::pin::pin!(stop(&mut signals));
        loop {
            tokio::select! {
                () = &mut stop => break,
                // Who comes while so many are let in waits in the system's queue.
                connected = bound.listener.accept(), if served.len() < MOST_CALLERS => {
                    let stream = match connected {
                        Ok((stream, _)) => stream,
                        Err(error) => {
                            // Open files run out, or the caller has gone: neither ends the daemon.
                            tracing::warn!(%error, "the socket takes no connection");
                            tokio::time::sleep(BREATHER).await;
                            continue;
                        }
                    };
                    let server = Arc::clone(&server);
                    served.spawn(async move {
                        if let Err(error) = server.serve::<C>(stream).await {
                            // The caller has left.
                            tracing::debug!(reason = error.chain(), "a caller was not answered");
                        }
                    });
                }
                Some(_) = served.join_next() => {}
            }
        }
        drop(bound);
        while served.join_next().await.is_some() {}
        Ok(())
    }

    async fn serve<C: Forwarded>(&self, stream: UnixStream) -> Result<()> {
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        let mut signals = self.host.signals.clone();
        let request = tokio::select! {
            request = tokio::time::timeout(LONGEST_REQUEST, protocol::receive(&mut read)) => request,
            // Who says nothing must not be waited for.
            () = stop(&mut signals) => return Ok(()),
        };
        let Ok(request) = request else { return Ok(()) };
        let Some(request) = request? else { return Ok(()) };
        // The caller is let in, however long it has to wait for its turn.
        protocol::send(&mut write, &Frame::Progress(None)).await?;
        let (printer, mut frames) = Printer::to_caller();
        let turn = Turn::default();
        let mut telling = Telling::of(&self.host.session, &turn);
        let (leaves, left) = watch::channel(false);
        let work = async {
            let done = self.answer::<C>(request, printer.clone(), turn, left).await;
            printer.end(done);
        };
        let write_all = async {
            loop {
                let frame = tokio::select! {
                    biased;
                    printed = frames.recv() => match printed {
                        Some(frame) => frame,
                        None => return Ok(()),
                    },
                    told = telling.next() => told,
                };
                protocol::send(&mut write, &frame).await?;
                if matches!(frame, Frame::Exit(_) | Frame::Failed(_)) {
                    return Ok(());
                }
            }
        };
        let served = async { tokio::join!(work, write_all).1 };
        let leaving = async {
            end_of(&mut read).await;
            leaves.send_replace(true);
            // What it asked for ends, in its own time.
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            written = served => written,
            never = leaving => match never {},
        }
    }

    async fn answer<C: Forwarded>(
        &self,
        request: Request<serde_json::Value>,
        out: Printer,
        turn: Turn,
        left: watch::Receiver<bool>,
    ) -> Result<u8> {
        let Request { version, command, keys } = request;
        let own = env!("CARGO_PKG_VERSION");
        if version != own {
            return Err(Error::new(
                Kind::StoreLocked,
                format!("the store is held by a daemon of version {own}; this is {version}"),
            ));
        }
        let command: C = serde_json::from_value(command).map_err(|e| {
            Error::caused(Kind::Internal, "the daemon does not know this command", e)
        })?;
        let differing = keys.differing_from(self.host.session.config());
        if !differing.is_empty() {
            return Err(Error::new(
                Kind::Config,
                format!(
                    "the daemon that holds the store runs with another configuration: {} \
                     differ{}; restart it, or use its configuration",
                    differing.join(", "),
                    if differing.len() == 1 { "s" } else { "" },
                ),
            ));
        }
        if !command.in_turn() {
            return command.execute(self.host.clone(), out).await;
        }
        let (reply, done) = oneshot::channel();
        let work = Box::new(move |host: Host| -> futures::future::BoxFuture<'static, ()> {
            Box::pin(async move {
                turn.begins();
                // The caller may have left meanwhile.
                let _ = reply.send(command.execute(host, out).await);
            })
        });
        self.jobs.send(Job { work, left }).await.map_err(|_| stopped())?;
        done.await.map_err(|_| stopped())?
    }
}

/// Reads on to where a caller, who has nothing more to say, has left.
async fn end_of(read: &mut (impl AsyncRead + Unpin)) {
    let mut rest = [0; 64];
    while read.read(&mut rest).await.is_ok_and(|length| length > 0) {}
}
