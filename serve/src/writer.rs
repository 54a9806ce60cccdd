//! The way out of a connection: one task that writes what its applets have to say.
//!
//! Invariant: a page that does not read for too long is given up.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::SinkExt;
use futures_util::stream::SplitSink;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::closing::Closing;

/// Messages that are written before the connection is looked at again.
const BATCH_MAX: usize = 16;

type Sink = SplitSink<WebSocket, Message>;

/// Writes until the connection is to be closed, or the page does not take any more.
pub(crate) async fn run(
    mut sink: Sink,
    mut outgoing: mpsc::Receiver<Vec<u8>>,
    mut closing: oneshot::Receiver<Option<Closing>>,
    patience: Duration,
) {
    loop {
        tokio::select! {
            message = outgoing.recv() => match message {
                Some(message) => {
                    if write(&mut sink, message, &mut outgoing, patience).await.is_err() {
                        return;
                    }
                }
                None => return,
            },
            reason = &mut closing => {
                if let Ok(Some(Closing { code, reason })) = reason {
                    let frame = CloseFrame { code, reason: reason.into() };
                    let _ = timeout(patience, sink.send(Message::Close(Some(frame)))).await;
                }
                return;
            }
        }
    }
}

/// The page took nothing for too long, or is gone.
struct GivenUp;

/// Writes a message, and with it those that are there already.
async fn write(
    sink: &mut Sink,
    first: Vec<u8>,
    outgoing: &mut mpsc::Receiver<Vec<u8>>,
    patience: Duration,
) -> Result<(), GivenUp> {
    let rest = std::iter::from_fn(|| outgoing.try_recv().ok());
    for message in std::iter::once(first).chain(rest).take(BATCH_MAX) {
        let fed = timeout(patience, sink.feed(Message::Binary(message.into()))).await;
        fed.map_err(|_| GivenUp)?.map_err(|_| GivenUp)?;
    }
    let flushed = timeout(patience, sink.flush()).await;
    flushed.map_err(|_| GivenUp)?.map_err(|_| GivenUp)
}
