//! Connections: how many at once, and for how long, so that nobody who keeps one takes the daemon's files.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
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
/// And when nothing was answered on it for so long: who says nothing, or reads nothing, keeps no place from others.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);
/// What the system takes of answers on a connection before anybody reads, about. By itself it takes megabytes, which are
/// memory, and which to fill would count as going on.
const SENT_AHEAD: u32 = 256 << 10; // 256 KiB
/// Callers in the system's queue.
const MOST_QUEUED: u32 = 1_024;
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
        let listener = listening(address).map_err(|e| {
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
        let routes = routes.into_make_service_with_connect_info::<Answering>();
        axum::serve(self, routes).await.map_err(|e| Error::caused(Kind::Io, "cannot serve", e))
    }
}

/// As `TcpListener::bind` does it, with connections that take little ahead.
fn listening(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // The address of a process that has just ended is free.
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SENT_AHEAD)?;
    socket.bind(address)?;
    socket.listen(MOST_QUEUED)
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
                    let connection = Connection {
                        stream,
                        ends,
                        last,
                        silent: false,
                        stuck: false,
                        answering: Answering::default(),
                        _place: place,
                    };
                    return (connection, from);
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

/// Whether something was asked whole on a connection, and is being answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Answering(Arc<AtomicBool>);

impl Answering {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Connected<IncomingStream<'_, Bound>> for Answering {
    fn connect_info(stream: IncomingStream<'_, Bound>) -> Answering {
        stream.io().answering.clone()
    }
}

/// For requests without a body, which are whole when they come here.
pub(super) async fn answered_in_time(
    ConnectInfo(answering): ConnectInfo<Answering>,
    request: Request,
    next: Next,
) -> Response {
    answering.0.store(true, Ordering::Relaxed);
    next.run(request).await
}

/// A connection that ends in time.
pub(crate) struct Connection {
    stream: TcpStream,
    ends: Pin<Box<Sleep>>,
    /// When it ends at the latest.
    last: Instant,
    /// Nothing was asked since the last answer.
    silent: bool,
    /// An answer does not go out: nobody reads.
    stuck: bool,
    answering: Answering,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn in_time(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.ends.as_mut().poll(cx).is_ready() {
            // Only the end of all connections is for who waits for an answer; who reads none waits for none.
            if self.stuck || !self.answering.take() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.ends.as_mut().reset(self.last);
        }
        Ok(())
    }

    /// It goes on for so long from now, and not longer than any.
    fn goes_on_for(&mut self, time: Duration) {
        let until = self.last.min(Instant::now() + time);
        self.ends.as_mut().reset(until);
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
        // Who asks again has as long for it as at first, once, and who reads no answers none.
        let has_asked = buf.filled().len() > before && !self.stuck;
        if has_asked && std::mem::take(&mut self.silent) {
            self.goes_on_for(FIRST_ANSWER);
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
        // An answer that begins to go out has its time, however long it was made. Trying once more is no progress.
        if !self.stuck {
            self.goes_on_for(LONGEST_SILENCE);
            self.answering.take();
        }
        self.in_time(cx)?;
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.stuck = written.is_pending();
        if matches!(written, Poll::Ready(Ok(bytes)) if bytes > 0) {
            self.goes_on_for(LONGEST_SILENCE);
            self.silent = true;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use axum::middleware::from_fn;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;

    /// What comes of a request that takes seconds to answer.
    async fn asked(routes: impl FnOnce(Router) -> Router) -> String {
        let bound = Bound::to(SocketAddr::from(([127, 0, 0, 1], 0)), "serve.listen").await.unwrap();
        let address = bound.address().unwrap();
        let (comes, goes) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (came, go) = (Arc::clone(&comes), Arc::clone(&goes));
        let slow = move || async move {
            came.notify_one();
            go.notified().await;
            "at last"
        };
        let routes = routes(Router::new().route("/", get(slow)));
        let served = tokio::spawn(bound.serve(routes));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        comes.notified().await;
        tokio::time::pause();
        tokio::time::advance(FIRST_ANSWER * 2).await;
        // The connection looks at the time.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        tokio::time::resume();
        goes.notify_one();
        let mut answer = String::new();
        // A connection that was reset has no answer either.
        let _ = stream.read_to_string(&mut answer).await;
        served.abort();
        answer
    }

    #[tokio::test]
    async fn who_has_asked_waits_for_an_answer_that_takes_its_time() {
        let answer = asked(|routes| routes.layer(from_fn(answered_in_time))).await;
        assert!(answer.ends_with("at last"), "{answer}");
        // Where a body may still be coming, the place is lost.
        assert_eq!(asked(|routes| routes).await, "");
    }

    /// A connection, and who made it: small, so that few bytes fill it.
    async fn connected() -> (Connection, std::net::TcpStream) {
        let mut bound =
            Bound::to(SocketAddr::from(([127, 0, 0, 1], 0)), "serve.listen").await.unwrap();
        let caller = TcpSocket::new_v4().unwrap();
        caller.set_recv_buffer_size(4_096).unwrap();
        let (caller, accepted) =
            tokio::join!(caller.connect(bound.address().unwrap()), bound.accept());
        (accepted.0, caller.unwrap().into_std().unwrap())
    }

    fn written(connection: &mut Connection) -> Poll<io::Result<usize>> {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(connection).poll_write(&mut cx, &[0; 65_536])
    }

    fn read(connection: &mut Connection) -> Poll<io::Result<()>> {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(connection).poll_read(&mut cx, &mut ReadBuf::new(&mut [0; 100]))
    }

    fn is_over(connection: &mut Connection) -> bool {
        match written(connection) {
            Poll::Ready(written) => written.unwrap_err().kind() == io::ErrorKind::TimedOut,
            Poll::Pending => false,
        }
    }

    /// Writes for as long as bytes go out; how many did.
    async fn filled(connection: &mut Connection) -> usize {
        let (mut refused, mut sent) = (0, 0);
        while refused < 50 {
            match written(connection) {
                Poll::Ready(bytes) => {
                    sent += bytes.unwrap();
                    refused = 0;
                }
                // The system may take some more in a moment.
                Poll::Pending => {
                    refused += 1;
                    tokio::task::yield_now().await;
                }
            }
        }
        sent
    }

    const MOMENT: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn who_reads_no_answers_loses_the_place_however_much_is_asked() {
        let (mut connection, mut caller) = connected().await;
        tokio::time::pause();
        let unread = filled(&mut connection).await;
        assert!(unread < 1 << 20, "{unread} bytes are kept for who reads none");
        io::Write::write_all(&mut caller, b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        tokio::time::advance(LONGEST_SILENCE - MOMENT).await;
        assert!(!is_over(&mut connection));
        while read(&mut connection).is_pending() {
            tokio::task::yield_now().await;
        }
        // It was asked whole, and is being answered behind what does not go out.
        connection.answering.0.store(true, Ordering::Relaxed);
        tokio::time::advance(MOMENT * 2).await;
        assert!(is_over(&mut connection));
    }

    #[tokio::test]
    async fn an_answer_that_took_its_time_has_time_to_go_out_and_more_for_each_part() {
        let (mut connection, mut caller) = connected().await;
        tokio::time::pause();
        connection.answering.0.store(true, Ordering::Relaxed);
        tokio::time::advance(FIRST_ANSWER * 2).await;
        assert!(read(&mut connection).is_pending());
        filled(&mut connection).await;
        tokio::time::advance(LONGEST_SILENCE - MOMENT).await;
        assert!(!is_over(&mut connection));
        caller.set_nonblocking(true).unwrap();
        // All that is there.
        let _ = io::Read::read_to_end(&mut caller, &mut Vec::new());
        while written(&mut connection).is_pending() {
            let _ = io::Read::read_to_end(&mut caller, &mut Vec::new());
            tokio::task::yield_now().await;
        }
        tokio::time::advance(LONGEST_SILENCE - MOMENT).await;
        assert!(read(&mut connection).is_pending());
        filled(&mut connection).await;
        tokio::time::advance(LONGEST_SILENCE - MOMENT).await;
        assert!(!is_over(&mut connection));
        tokio::time::advance(MOMENT * 2).await;
        assert!(is_over(&mut connection));
    }

    #[tokio::test]
    async fn who_was_answered_and_says_nothing_more_loses_the_place() {
        let (mut connection, _caller) = connected().await;
        tokio::time::pause();
        connection.answering.0.store(true, Ordering::Relaxed);
        assert!(written(&mut connection).is_ready());
        tokio::time::advance(LONGEST_SILENCE - MOMENT).await;
        assert!(read(&mut connection).is_pending());
        tokio::time::advance(MOMENT * 2).await;
        assert!(matches!(read(&mut connection), Poll::Ready(Err(_))));
    }
}
