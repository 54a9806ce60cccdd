//! Applets that are called: messages in both directions, and how their lives end.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::serve::{ECHO, END, call, deadline, serve, server};
use common::status;
use holdfast_wasm::{Header, Received, SendError};

#[test]
fn an_applet_is_called_again_and_again_and_ends_when_it_is_told_to() {
    let mut serving = serve(&server(ECHO), None);
    for number in 0..1000_u32 {
        assert_eq!(call(&mut serving, 0, &number.to_le_bytes()), number.to_le_bytes());
    }
    assert_eq!(serving.receive(deadline()), Received::Idle);
    serving.send(Header { kind: END, ..Header::default() }, []).unwrap();
    assert_eq!(serving.receive(deadline()), Received::Ended);
    assert!(matches!(serving.end(), Some(Ok(0))));
    assert_eq!(serving.send(Header::default(), []), Err(SendError::Ended));
    assert_eq!(serving.receive(None), Received::Ended);
    assert_eq!(status(&serving.finish()), 0);
}
