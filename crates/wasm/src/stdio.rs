//! Where an applet's standard streams go.
//!
//! Invariant: writing to an inherited stream never blocks the thread for long, because a time limit must
//! reach an applet whose reader is asleep: a write happens only after the kernel said that there is room
//! for a page, and is not larger than that (pipe(7): such a write does not block).
#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::time::Duration;

use bytes::Bytes;
use holdfast_sys::file::is_writable_now;
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

/// What the kernel takes without blocking once it says that a stream is writable (PIPE_BUF).
const CHUNK_BYTES: usize = 4096;
const WAIT_FIRST: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(16);

#[derive(Clone, Copy)]
enum HostStream {
    Stdout,
    Stderr,
}

impl HostStream {
    fn is_writable(self) -> bool {
        match self {
            HostStream::Stdout => is_writable_now(io::stdout()),
            HostStream::Stderr => is_writable_now(io::stderr()),
        }
    }

    fn write_and_flush(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            HostStream::Stdout => {
                let mut stream = io::stdout().lock();
                stream.write_all(bytes)?;
                stream.flush()
            }
            HostStream::Stderr => io::stderr().lock().write_all(bytes),
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
        Box::new(*self)
    }
}

#[async_trait]
impl Pollable for HostStream {
    async fn ready(&mut self) {
        let mut wait = WAIT_FIRST;
        while !self.is_writable() {
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }
}

#[async_trait]
impl OutputStream for HostStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.write_and_flush(&bytes).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => StreamError::Closed,
            _ => StreamError::LastOperationFailed(error.into()),
        })
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(if self.is_writable() { CHUNK_BYTES } else { 0 })
    }

    /// As the default does, without waiting for room after the last write.
    async fn blocking_write_and_flush(&mut self, mut bytes: Bytes) -> StreamResult<()> {
        while !bytes.is_empty() {
            self.ready().await;
            self.write(bytes.split_to(bytes.len().min(CHUNK_BYTES)))?;
        }
        Ok(())
    }
}
