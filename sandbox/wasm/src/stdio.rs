//! The standard streams of an applet.
//!
//! Invariant: writing to an inherited stream never blocks the thread, because a time limit must
//! reach an applet whose reader is asleep: [`Outlet`] writes what goes through at once, and the
//! rest waits on the asynchronous timer. Writing to a captured stream never fails: what is beyond
//! its limit is taken and dropped, as the jail does it for native applets.
#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use holdfast_sys::outlet::Outlet;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};
use wasmtime_wasi::{WasiCtxBuilder, async_trait};

/// What an applet reads from its standard input.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Input {
    /// Nothing.
    #[default]
    Empty,
    /// What the host process reads.
    Inherit,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// Where an applet's output goes.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Output {
    /// Nowhere.
    #[default]
    Discard,
    /// To the host process's stream of the same name.
    Inherit,
    /// Into the report of the run or of the applet's end: the first bytes, counted from the
    /// applet's start to its end. What it writes beyond them is taken and dropped without an error
    /// for the applet, and `is_output_truncated` beside the captured bytes is true then. (A native
    /// applet is still stopped at 256 MiB of output in all.)
    Capture {
        /// Bytes that are kept.
        limit_bytes: usize,
    },
}

/// The three standard streams. By default the applet reads nothing and its output goes nowhere.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stdio {
    /// Standard input.
    pub stdin: Input,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
}

impl Stdio {
    /// All three streams of the host process.
    pub fn inherit() -> Self {
        Stdio { stdin: Input::Inherit, stdout: Output::Inherit, stderr: Output::Inherit }
    }

    /// Captures both outputs, the first `limit_bytes` of each: see [`Output::Capture`].
    pub fn capture(limit_bytes: usize) -> Self {
        let capture = Output::Capture { limit_bytes };
        Stdio { stdin: Input::Empty, stdout: capture.clone(), stderr: capture }
    }

    /// The same with another standard input.
    #[must_use]
    pub fn with_stdin(self, stdin: Input) -> Self {
        Stdio { stdin, ..self }
    }

    pub(crate) fn install(&self, builder: &mut WasiCtxBuilder) -> Captured {
        match &self.stdin {
            Input::Empty => {}
            Input::Inherit => {
                builder.inherit_stdin();
            }
            Input::Bytes(bytes) => {
                builder.stdin(MemoryInputPipe::new(bytes.clone()));
            }
        }
        let mut captured = Captured::default();
        match self.stdout {
            Output::Discard => {}
            Output::Inherit => {
                builder.stdout(HostStream::Stdout);
            }
            Output::Capture { limit_bytes } => {
                builder.stdout(captured.stdout.insert(CaptureBuffer::new(limit_bytes)).clone());
            }
        }
        match self.stderr {
            Output::Discard => {}
            Output::Inherit => {
                builder.stderr(HostStream::Stderr);
            }
            Output::Capture { limit_bytes } => {
                builder.stderr(captured.stderr.insert(CaptureBuffer::new(limit_bytes)).clone());
            }
        }
        captured
    }
}

/// The buffers behind captured streams.
#[derive(Default)]
pub(crate) struct Captured {
    stdout: Option<CaptureBuffer>,
    stderr: Option<CaptureBuffer>,
}

impl Captured {
    pub(crate) fn stdout(&self) -> Vec<u8> {
        self.stdout.as_ref().map(CaptureBuffer::bytes).unwrap_or_default()
    }

    pub(crate) fn stderr(&self) -> Vec<u8> {
        self.stderr.as_ref().map(CaptureBuffer::bytes).unwrap_or_default()
    }

    /// Whether the applet wrote more to a captured stream than was kept of it.
    pub(crate) fn is_truncated(&self) -> bool {
        [&self.stdout, &self.stderr].into_iter().flatten().any(CaptureBuffer::is_truncated)
    }
}

/// What an applet writes to, for a captured stream; clones share what is kept. Not wasmtime's
/// `MemoryOutputPipe`: every write to a full one fails, which ends an applet that only logs.
#[derive(Clone)]
struct CaptureBuffer {
    limit_bytes: usize,
    kept: Arc<Mutex<Kept>>,
}

/// The start of what was written to a stream.
#[derive(Default)]
struct Kept {
    /// Never more than the limit.
    bytes: Vec<u8>,
    /// Something was dropped.
    is_truncated: bool,
}

impl CaptureBuffer {
    fn new(limit_bytes: usize) -> Self {
        CaptureBuffer { limit_bytes, kept: Arc::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self) -> Vec<u8> {
        self.kept().bytes.clone()
    }

    fn is_truncated(&self) -> bool {
        self.kept().is_truncated
    }

    /// Keeps what there is room for, and drops the rest.
    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.kept();
        let room = self.limit_bytes.saturating_sub(kept.bytes.len());
        let (start, rest) = bytes.split_at(room.min(bytes.len()));
        kept.bytes.extend_from_slice(start);
        kept.is_truncated |= !rest.is_empty();
    }
}

impl IsTerminal for CaptureBuffer {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for CaptureBuffer {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for CaptureBuffer {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for CaptureBuffer {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.keep(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    /// There is always room: what is not kept is dropped.
    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(CHUNK_BYTES)
    }
}

impl AsyncWrite for CaptureBuffer {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.keep(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What is taken from an applet at a time.
const CHUNK_BYTES: usize = 4096;
const WAIT_FIRST: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(16);

/// One of the host process's streams.
#[derive(Debug, Clone, Copy)]
enum HostStream {
    Stdout,
    Stderr,
}

impl HostStream {
    fn outlet(self) -> Outlet {
        match self {
            HostStream::Stdout => Outlet::of(io::stdout()),
            HostStream::Stderr => Outlet::of(io::stderr()),
        }
    }

    fn write_some(self, outlet: &Outlet, bytes: &[u8]) -> io::Result<usize> {
        match self {
            HostStream::Stdout => outlet.write_some(io::stdout(), bytes),
            HostStream::Stderr => outlet.write_some(io::stderr(), bytes),
        }
    }
}

impl IsTerminal for HostStream {
    fn is_terminal(&self) -> bool {
        match self {
            HostStream::Stdout => io::IsTerminal::is_terminal(&io::stdout()),
            HostStream::Stderr => io::IsTerminal::is_terminal(&io::stderr()),
        }
    }
}

impl StdoutStream for HostStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        match self {
            HostStream::Stdout => wasmtime_wasi::cli::stdout().async_stream(),
            HostStream::Stderr => wasmtime_wasi::cli::stderr().async_stream(),
        }
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        // What the host wrote before comes first; the applet's bytes do not go through its buffer.
        if let HostStream::Stdout = self {
            let _ = io::stdout().flush();
        }
        Box::new(HostOutput { stream: *self, outlet: self.outlet(), pending: Bytes::new() })
    }
}

/// What an applet writes to, for a stream of the host process.
struct HostOutput {
    stream: HostStream,
    outlet: Outlet,
    /// Taken from the applet, and not yet written.
    pending: Bytes,
}

impl HostOutput {
    /// Writes what goes through now; says whether nothing is left.
    fn drain(&mut self) -> StreamResult<bool> {
        while !self.pending.is_empty() {
            match self.stream.write_some(&self.outlet, &self.pending) {
                Ok(written) => self.pending.advance(written),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::BrokenPipe => {
                        self.pending.clear();
                        return Err(StreamError::Closed);
                    }
                    _ => {
                        self.pending.clear();
                        return Err(StreamError::LastOperationFailed(error.into()));
                    }
                },
            }
        }
        Ok(true)
    }

    /// Waits until nothing is left, however long that takes.
    async fn drained(&mut self) -> StreamResult<()> {
        let mut wait = WAIT_FIRST;
        let mut left = self.pending.len();
        while !self.drain()? {
            if self.pending.len() < left {
                (left, wait) = (self.pending.len(), WAIT_FIRST);
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
        Ok(())
    }
}

#[async_trait]
impl Pollable for HostOutput {
    async fn ready(&mut self) {
        // The next write reports what failed.
        let _ = self.drained().await;
    }
}

#[async_trait]
impl OutputStream for HostOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if !self.pending.is_empty() {
            return Err(StreamError::trap("a write without room for it"));
        }
        self.pending = bytes;
        self.drain().map(drop)
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(if self.drain()? { CHUNK_BYTES } else { 0 })
    }

    /// Also waits until everything is written: nothing is left for after the run.
    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.drained().await?;
        self.pending = bytes;
        self.drained().await
    }
}
