//! Connections: how many at once, and for how long, so that nobody who keeps one takes the daemon's files.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

use crate::error::{Error, Kind, Result};

/// Connections at once; who comes then waits in the system's queue.
const MOST_CONNECTIONS: usize = 128;
/// Who has not asked anything whole by then loses the place: the platform waits no longer for an answer
/// (reference, section 6.1).
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// A connection ends after this, whatever it is doing: a caller makes a new one.
const LONGEST_CONNECTION: Duration = Duration::from_secs(60);
/// And when nothing was answered on it for so long: who says nothing keeps no place from others.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);
/// After a connection that could not be taken.
const BREATHER: Duration = Duration::from_millis(100);

/// An address that is listened to.
pub(crate) struct Bound {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Bound {
    /// Listens to an address, which the configuration gives under `key`.
    ///
    /// # Errors
    /// `Io` where it is taken or not this machine's.
    pub(crate) async fn to(address: SocketAddr, key: &str) -> Result<Bound> {
        let listener = TcpListener::bind(address).await.map_err(|e| {
            Error::caused(Kind::Io, format!("cannot listen to {address} ({key})"), e)
        })?;
        Ok(Bound { listener, places: Arc::new(Semaphore::new(MOST_CONNECTIONS)) })
    }

    /// Where, with the port that the system gave for 0.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.listener
            .local_addr()
            .map_err(|e| Error::caused(Kind::Io, "cannot tell where it is listened", e))
    }

    /// Answers until it is dropped.
    pub(super) async fn serve(self, routes: Router) -> Result<()> {
        axum::serve(self, routes).await.map_err(|e| Error::caused(Kind::Io, "cannot serve", e))
    }
}

impl Listener for Bound {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let place = Arc::clone(&self.places).acquire_owned().await;
            match (self.listener.accept().await, place) {
                (Ok((stream, from)), Ok(place)) => {
                    let ends = Box::pin(tokio::time::sleep(FIRST_ANSWER));
                    let last = Instant::now() + LONGEST_CONNECTION;
                    let silent = false;
                    return (Connection { stream, ends, last, silent, _place: place }, from);
                }
                // Open files run out, or the caller has gone.
                (Err(error), _) => {
                    tracing::debug!(%error, "a connection was not taken");
                    tokio::time::sleep(BREATHER).await;
                }
                (_, Err(_)) => std::future::pending().await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends in time.
pub(crate) struct Connection {
    stream: TcpStream,
    ends: Pin<Box<Sleep>>,
    /// When it ends at the latest.
    last: Instant,
    /// Nothing was asked since the last answer.
    silent: bool,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn in_time(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.ends.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.in_time(cx)?;
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        // Who asks again has as long for it as at first, once.
        if buf.filled().len() > before && std::mem::take(&mut self.silent) {
            let until = self.last.min(Instant::now() + FIRST_ANSWER);
            self.ends.as_mut().reset(until);
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let until = self.last.min(Instant::now() + LONGEST_SILENCE);
        self.ends.as_mut().reset(until);
        self.silent = true;
        self.in_time(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
