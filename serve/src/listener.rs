//! The listening socket: on the loopback address only, for programs of this user, a bounded number
//! of connections, of which each soon says what it wants, and after each answer what it wants next.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use crate::limits::ServeLimits;
use crate::peer;

/// How long is waited after the kernel gave no connection: descriptors are used up.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections that are served.
pub(crate) struct LoopbackListener {
    listener: TcpListener,
    address: SocketAddr,
    room: Arc<Semaphore>,
    head_timeout: Duration,
    send_timeout: Duration,
}

impl LoopbackListener {
    pub(crate) async fn bind(
        address: SocketAddr,
        limits: &ServeLimits,
    ) -> io::Result<LoopbackListener> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let room = Arc::new(Semaphore::new(limits.sockets));
        let ServeLimits { head_timeout, send_timeout, .. } = *limits;
        Ok(LoopbackListener { listener, address, room, head_timeout, send_timeout })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Listener for LoopbackListener {
    type Io = CountedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (CountedStream, SocketAddr) {
        loop {
            let permit = match Arc::clone(&self.room).acquire_owned().await {
                Ok(permit) => permit,
                // It is never closed.
                Err(_) => std::future::pending().await,
            };
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let is_own = peer::is_own_user(peer, self.address).unwrap_or(false);
                    if is_own && stream.set_nodelay(true).is_ok() {
                        let stream = CountedStream {
                            stream,
                            activity: Activity::new(self.head_timeout),
                            send_timeout: self.send_timeout,
                            stalled_since: None,
                            timer: Box::pin(tokio::time::sleep(self.head_timeout)),
                            _permit: permit,
                        };
                        return (stream, peer);
                    }
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// What a connection is doing, shared by its socket and the handlers of its requests.
#[derive(Debug, Clone)]
pub(crate) struct Activity(Arc<Mutex<Phase>>);

#[derive(Debug)]
enum Phase {
    /// For the head of a request, for so long since then.
    Waiting { since: Instant, patience: Duration },
    /// Requests are handled, or their answers made.
    Serving { uses: usize },
    /// It belongs to a WebSocket, which has limits of its own.
    WebSocket,
}

/// A request is handled, or its answer made, until this is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    activity: Activity,
    idle_timeout: Duration,
}

impl Activity {
    fn new(head_timeout: Duration) -> Activity {
        let waiting = Phase::Waiting { since: Instant::now(), patience: head_timeout };
        Activity(Arc::new(Mutex::new(waiting)))
    }

    fn lock(&self) -> MutexGuard<'_, Phase> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to serve. The next request is waited for so long afterwards.
    pub(crate) fn serve(&self, idle_timeout: Duration) -> Serving {
        let mut phase = self.lock();
        match &mut *phase {
            Phase::Waiting { .. } => *phase = Phase::Serving { uses: 1 },
            Phase::Serving { uses } => *uses += 1,
            Phase::WebSocket => {}
        }
        Serving { activity: self.clone(), idle_timeout }
    }

    /// It becomes a WebSocket, for good.
    pub(crate) fn become_web_socket(&self) {
        *self.lock() = Phase::WebSocket;
    }

    /// Bytes of an answer have left.
    fn progressed(&self) {
        if let Phase::Waiting { since, .. } = &mut *self.lock() {
            *since = Instant::now();
        }
    }

    /// Until when the socket is kept, if it has been stalled, with bytes to write, since then.
    fn deadline(&self, stalled_since: Option<Instant>, send_timeout: Duration) -> Option<Instant> {
        match (&*self.lock(), stalled_since) {
            (Phase::WebSocket, _) | (Phase::Serving { .. }, None) => None,
            (_, Some(since)) => Some(since + send_timeout),
            (Phase::Waiting { since, patience }, None) => Some(*since + *patience),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let mut phase = self.activity.lock();
        if let Phase::Serving { uses } = &mut *phase {
            *uses -= 1;
            if *uses == 0 {
                *phase = Phase::Waiting { since: Instant::now(), patience: self.idle_timeout };
            }
        }
    }
}

/// A connection, counted until it is closed.
///
/// Invariant: whenever it returns [`Poll::Pending`], its task is woken at its deadline.
pub(crate) struct CountedStream {
    stream: TcpStream,
    activity: Activity,
    send_timeout: Duration,
    /// Since when the client has taken none of the bytes that are to be written.
    stalled_since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl CountedStream {
    /// Fails where there is nothing to do and the client is waited for too long.
    fn check<T>(
        &mut self,
        context: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            return done;
        }
        let Some(deadline) = self.activity.deadline(self.stalled_since, self.send_timeout) else {
            return Poll::Pending;
        };
        if self.timer.deadline() != deadline.into() {
            self.timer.as_mut().reset(deadline.into());
        }
        self.timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn check_write(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(_) => {
                self.stalled_since = None;
                self.activity.progressed();
            }
            Poll::Pending => {
                self.stalled_since.get_or_insert_with(Instant::now);
            }
        }
        self.check(context, written)
    }
}

impl Connected<IncomingStream<'_, LoopbackListener>> for Activity {
    fn connect_info(stream: IncomingStream<'_, LoopbackListener>) -> Activity {
        stream.io().activity.clone()
    }
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.check(context, read)
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_write(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check_write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
