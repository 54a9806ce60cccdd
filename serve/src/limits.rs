//! What pages may use up.

use std::time::Duration;

use holdfast_fetch::APPLET_BYTES_MAX;

const MIB: u64 = 1 << 20;

/// The limits of a server. It tells a page those of a connection, and the package keeps to them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServeLimits {
    /// How large a new heap may ever get.
    pub heap_bytes: u64,
    /// Heaps that an origin may make.
    pub heaps_per_origin: usize,
    /// Volatile memory of an applet.
    pub memory_bytes: u64,
    /// Threads of a native applet.
    pub threads: u32,
    /// Bytes of an applet's program.
    pub applet_bytes: u64,
    /// Bytes of a message of the WebSocket.
    pub frame_bytes: usize,
    /// WebSocket connections of all origins.
    pub connections: usize,
    /// WebSocket connections of one origin.
    pub connections_per_origin: usize,
    /// Connections of any kind, before a word was said on them.
    pub sockets: usize,
    /// How long a connection may take to send the head of its first request.
    pub head_timeout: Duration,
    /// How long it may take after an answer to send the head of the next one.
    pub idle_timeout: Duration,
    /// Applets of all origins. An origin gets another one only while more are free than it has.
    pub applets: usize,
    /// Applets of one connection.
    pub applets_per_connection: usize,
    /// How long the program of an applet may make no progress on its way here.
    pub upload_idle: Duration,
    /// How long it may take to come here.
    pub upload_timeout: Duration,
    /// Calls of a connection that are not done.
    pub pending_calls: usize,
    /// Bytes of the inputs of these calls.
    pub pending_bytes: usize,
    /// Messages of a connection for each second; what comes faster waits.
    pub messages_per_s: u32,
    /// How long messages may come faster before the connection is closed.
    pub flood: Duration,
    /// Wall time of a call.
    pub call_timeout: Duration,
    /// Wall time until an applet serves.
    pub start_timeout: Duration,
    /// How long an applet may go on with a cancelled call.
    pub grace: Duration,
    /// How long another user of a heap is waited for: a page that is loaded again meets the one
    /// before.
    pub heap_patience: Duration,
    /// How long a token is good.
    pub token_life: Duration,
    /// How long a connection may take to present its token.
    pub hello_timeout: Duration,
    /// How long a message may take to leave for the page.
    pub send_timeout: Duration,
}

impl Default for ServeLimits {
    fn default() -> ServeLimits {
        ServeLimits {
            heap_bytes: 64 * MIB,
            heaps_per_origin: 16,
            memory_bytes: 1024 * MIB,
            threads: 16,
            applet_bytes: APPLET_BYTES_MAX,
            frame_bytes: 16 << 20,
            connections: 64,
            connections_per_origin: 16,
            sockets: 256,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(5),
            applets: 32,
            applets_per_connection: 8,
            upload_idle: Duration::from_secs(10),
            upload_timeout: Duration::from_secs(120),
            pending_calls: 64,
            pending_bytes: 64 << 20,
            messages_per_s: 20_000,
            flood: Duration::from_secs(5),
            call_timeout: Duration::from_secs(300),
            start_timeout: Duration::from_secs(10),
            grace: Duration::from_millis(100),
            heap_patience: Duration::from_secs(3),
            token_life: Duration::from_secs(30),
            hello_timeout: Duration::from_secs(5),
            send_timeout: Duration::from_secs(30),
        }
    }
}
