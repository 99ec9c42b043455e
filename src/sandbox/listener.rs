//! A TCP listener whose connections a handler can break: "did the work, lost the answer", or write
//! to past the server: "answered what no server would".

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Accepts connections that can be broken.
pub(crate) struct Listener(pub(crate) TcpListener);

/// One connection, as a handler sees it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line(Arc<Mutex<Fate>>);

/// What becomes of what the server writes next.
#[derive(Debug, Default)]
enum Fate {
    /// It is sent.
    #[default]
    Sent,
    /// These bytes are sent in its place, of which so many have been; then it is cut.
    Replaced(Vec<u8>, usize),
    /// Nothing is sent or read any more.
    Cut,
}

impl Line {
    /// Breaks the connection: whatever is written next fails, and it is closed.
    pub(crate) fn cut(&self) {
        *self.fate() = Fate::Cut;
    }

    /// Sends this in the place of what is written next, and closes the connection.
    pub(crate) fn replace(&self, answer: Vec<u8>) {
        *self.fate() = Fate::Replaced(answer, 0);
    }

    fn fate(&self) -> MutexGuard<'_, Fate> {
        super::lock(&self.0)
    }
}

/// A stream that fails once its line is cut.
pub(crate) struct Stream {
    inner: TcpStream,
    line: Line,
}

impl axum::serve::Listener for Listener {
    type Io = Stream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Stream, SocketAddr) {
        loop {
            match self.0.accept().await {
                Ok((inner, address)) => {
                    // Small answers are not to wait for the acknowledgement of the one before.
                    let _ = inner.set_nodelay(true);
                    return (Stream { inner, line: Line::default() }, address);
                }
                // A connection that failed while it was accepted, or too many open files.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, Listener>> for Line {
    fn connect_info(stream: IncomingStream<'_, Listener>) -> Line {
        stream.io().line.clone()
    }
}

impl Stream {
    fn check(&self) -> io::Result<()> {
        match *self.line.fate() {
            Fate::Cut => Err(io::ErrorKind::ConnectionReset.into()),
            Fate::Sent | Fate::Replaced(..) => Ok(()),
        }
    }

    /// Goes on with whatever is to be sent in the place of what the server writes; ready where the
    /// server may write.
    fn poll_fate(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut fate = self.line.fate();
        if let Fate::Replaced(answer, sent) = &mut *fate {
            while *sent < answer.len() {
                *sent += ready!(Pin::new(&mut self.inner).poll_write(cx, &answer[*sent..]))?;
            }
            // An end, not a reset: whoever reads has to believe that this was all.
            ready!(Pin::new(&mut self.inner).poll_shutdown(cx))?;
            *fate = Fate::Cut;
        }
        drop(fate);
        Poll::Ready(self.check())
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_fate(cx))?;
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_fate(cx))?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
