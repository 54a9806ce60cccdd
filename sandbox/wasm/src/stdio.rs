//! The standard streams of an applet.
//!
//! Invariant: writing to an inherited stream never blocks the thread, because a time limit must
//! reach an applet whose reader is asleep: [`Outlet`] writes what goes through at once, and the
//! rest waits on the asynchronous timer.
#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::time::Duration;

use bytes::{Buf, Bytes};
use holdfast_sys::outlet::Outlet;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::pipe::{MemoryInputPipe, MemoryOutputPipe};
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
    /// Into the run's report, up to so many bytes; further writes fail.
    Capture {
        /// Limit in bytes.
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

    /// Both outputs into the run's report, up to `limit_bytes` each.
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
                builder.stdout(captured.stdout.insert(MemoryOutputPipe::new(limit_bytes)).clone());
            }
        }
        match self.stderr {
            Output::Discard => {}
            Output::Inherit => {
                builder.stderr(HostStream::Stderr);
            }
            Output::Capture { limit_bytes } => {
                builder.stderr(captured.stderr.insert(MemoryOutputPipe::new(limit_bytes)).clone());
            }
        }
        captured
    }
}

/// The pipes behind captured streams.
#[derive(Default)]
pub(crate) struct Captured {
    stdout: Option<MemoryOutputPipe>,
    stderr: Option<MemoryOutputPipe>,
}

impl Captured {
    pub(crate) fn stdout(&self) -> Vec<u8> {
        self.stdout.as_ref().map(|pipe| pipe.contents().to_vec()).unwrap_or_default()
    }

    pub(crate) fn stderr(&self) -> Vec<u8> {
        self.stderr.as_ref().map(|pipe| pipe.contents().to_vec()).unwrap_or_default()
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
