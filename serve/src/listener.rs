//! The listening socket: on the loopback address only, for programs of this user, a bounded number
//! of connections, of which each soon says what it wants.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use crate::peer;

/// How long is waited after the kernel gave no connection: descriptors are used up.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections that are served.
pub(crate) struct LoopbackListener {
    listener: TcpListener,
    address: SocketAddr,
    room: Arc<Semaphore>,
    head_timeout: Duration,
}

impl LoopbackListener {
    pub(crate) async fn bind(
        address: SocketAddr,
        sockets: usize,
        head_timeout: Duration,
    ) -> io::Result<LoopbackListener> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let room = Arc::new(Semaphore::new(sockets));
        Ok(LoopbackListener { listener, address, room, head_timeout })
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
                        let head = Some(HeadWait::new(self.head_timeout));
                        return (CountedStream { stream, head, _permit: permit }, peer);
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

/// The end of the head of a request.
const HEAD_END: &[u8; 4] = b"\r\n\r\n";

/// Waits for the head of the first request.
struct HeadWait {
    deadline: Pin<Box<Sleep>>,
    /// Bytes of [`HEAD_END`] that came last.
    matched: usize,
}

impl HeadWait {
    fn new(timeout: Duration) -> HeadWait {
        HeadWait { deadline: Box::pin(tokio::time::sleep(timeout)), matched: 0 }
    }

    /// Whether the head ends with or among these bytes.
    fn ends_in(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().any(|byte| {
            self.matched = match *byte {
                byte if byte == HEAD_END[self.matched] => self.matched + 1,
                byte => usize::from(byte == HEAD_END[0]),
            };
            self.matched == HEAD_END.len()
        })
    }
}

/// A connection, counted until it is closed.
pub(crate) struct CountedStream {
    stream: TcpStream,
    /// Until the head of the first request is there.
    head: Option<HeadWait>,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(head) = &mut self.head {
            if head.ends_in(&buffer.filled()[before..]) {
                self.head = None;
            } else if head.deadline.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
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
