//! One WebSocket connection: the token first, then messages until an end.
//!
//! Invariant: however it ends, its applets end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket};
use futures_util::StreamExt;
use futures_util::stream::SplitStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use holdfast_identity::GivenName;

use crate::applets::{Applets, Host};
use crate::closing::Closing;
use crate::limits::ServeLimits;
use crate::message::{self, Request};
use crate::origin::Origin;
use crate::rate::{Pace, Rate};
use crate::token::Tokens;
use crate::writer;

/// Messages that wait for their way out; applets wait beyond them.
const OUTBOX: usize = 64;
/// How long the page may take to hear that the connection is closed.
const FAREWELL: Duration = Duration::from_secs(1);
/// How much larger than it may be a message is read before the connection is cut off without a word.
const OVERSIZE_BYTES: usize = 16 << 20;

/// The largest message that is read at all.
pub(crate) fn read_bytes_max(limits: &ServeLimits) -> usize {
    limits.frame_bytes.saturating_add(OVERSIZE_BYTES)
}

/// A connection of a page.
pub(crate) struct Connection {
    pub(crate) host: Arc<Host>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) origin: Origin,
    /// What its applets are called.
    pub(crate) page: GivenName,
    /// The server ends.
    pub(crate) stop: CancellationToken,
}

impl Connection {
    /// Serves until one of both ends it.
    pub(crate) async fn run(self, socket: WebSocket) {
        let (sink, mut stream) = socket.split();
        let (outbox, outgoing) = mpsc::channel(OUTBOX);
        // While this is there, the writer waits for the reason of the close.
        let _open = outbox.clone();
        let (close, closing) = oneshot::channel();
        let patience = self.host.opener.limits.send_timeout;
        let mut writer = tokio::spawn(writer::run(sink, outgoing, closing, patience));
        let reason = tokio::select! {
            ended = self.read(&mut stream, outbox) => ended.err(),
            _ = &mut writer => return,
            () = self.stop.cancelled() => Some(Closing::new(Closing::AWAY, "the server ends")),
        };
        let _ = close.send(reason);
        let farewell = async {
            let _ = (&mut writer).await;
            // Reading sends the answer to a close of the page. What it sends itself until it hears
            // of ours would reset the connection.
            while stream.next().await.is_some_and(|message| message.is_ok()) {}
        };
        let _ = timeout(FAREWELL, farewell).await;
        // Applets wait for the writer to take what they send, and a page may never read it.
        writer.abort();
    }

    /// Takes messages; ends in order when the page does.
    async fn read(
        &self,
        stream: &mut SplitStream<WebSocket>,
        outbox: mpsc::Sender<Vec<u8>>,
    ) -> Result<(), Closing> {
        let limits = &self.host.opener.limits;
        let hello = timeout(limits.hello_timeout, next(stream, limits)).await;
        let hello = hello.map_err(|_| Closing::policy("no token came in time"))??;
        let Some(hello) = hello else { return Ok(()) };
        match Request::parse(&hello) {
            Ok(Request::Hello { token }) => self
                .tokens
                .present(&token, &self.origin)
                .map_err(|error| Closing::policy(&error.to_string()))?,
            Ok(_) => return Err(Closing::policy("the first message is not a token")),
            Err(malformed) => return Err(Closing::protocol(&malformed)),
        }
        let mut applets = Applets::new(Arc::clone(&self.host), self.page.clone(), outbox.clone());
        if outbox.send(message::welcome(limits)).await.is_err() {
            return Ok(());
        }
        let mut rate = Rate::new(limits.messages_per_s, limits.flood, Instant::now());
        loop {
            let next = next(stream, limits);
            let message = match applets.upload_deadline() {
                Some(deadline) => timeout_at(deadline.into(), next).await,
                None => Ok(next.await),
            };
            // A message that is there counts, however late it is taken.
            let reply = match message {
                Ok(message) => {
                    let Some(message) = message? else { return Ok(()) };
                    answer(&mut applets, &mut rate, &message).await?
                }
                Err(_) => None,
            };
            let given_up = applets.give_up_uploads(Instant::now());
            for told in reply.into_iter().chain(given_up) {
                if outbox.send(told).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Does what a message asks for, as soon as it may, and returns what is to be answered at once.
async fn answer(
    applets: &mut Applets,
    rate: &mut Rate,
    message: &Bytes,
) -> Result<Option<Vec<u8>>, Closing> {
    match rate.message(Instant::now()) {
        Pace::Go => {}
        Pace::Wait(pause) => tokio::time::sleep(pause).await,
        Pace::Close => return Err(Closing::policy("messages come too fast")),
    }
    let request = Request::parse(message).map_err(|bad| Closing::protocol(&bad))?;
    match request {
        // Files are hashed and written.
        Request::Start { .. } | Request::Upload { .. } | Request::Uploaded { .. } => {
            tokio::task::block_in_place(|| applets.take(request))
        }
        _ => applets.take(request),
    }
}

/// The next message; `None` when the page has closed the connection or is gone.
async fn next(
    stream: &mut SplitStream<WebSocket>,
    limits: &ServeLimits,
) -> Result<Option<Bytes>, Closing> {
    let too_large = || {
        let max = limits.frame_bytes;
        Closing::new(Closing::SIZE, &format!("a message has at most {max} bytes"))
    };
    loop {
        match stream.next().await {
            Some(Ok(Message::Binary(bytes))) if bytes.len() > limits.frame_bytes => {
                return Err(too_large());
            }
            Some(Ok(Message::Binary(bytes))) => return Ok(Some(bytes)),
            Some(Ok(Message::Text(_))) => {
                return Err(Closing::new(Closing::UNSUPPORTED, "messages are binary"));
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_))) | None => return Ok(None),
            Some(Err(error)) => {
                return match error.into_inner().downcast_ref() {
                    Some(tungstenite::Error::Capacity(_)) => Err(too_large()),
                    Some(tungstenite::Error::Protocol(_) | tungstenite::Error::Utf8(_)) => {
                        Err(Closing::protocol("this is not the protocol of WebSockets"))
                    }
                    _ => Ok(None),
                };
            }
        }
    }
}
