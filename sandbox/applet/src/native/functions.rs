//! The functions of the host that a native applet calls, by messages.

use std::time::Instant;

use holdfast_channel::header::Header;
use holdfast_channel::protocol::{AppletMessage, HostMessage};
use holdfast_types::RequestStatus;
use holdfast_wasm::Returned;

use super::Native;
use crate::sandbox::{Sandbox, Stop};

impl Native {
    /// Answers a message about host functions; whether it was one.
    pub(super) fn serve_functions(
        &mut self,
        message: &AppletMessage,
        payload: &[u8],
        deadline: Option<Instant>,
    ) -> Result<bool, Stop> {
        match message {
            AppletMessage::Import => {
                let _crossing = self.crossings.mark().cross("host_import");
                let (status, value) = match self.functions.find(payload) {
                    Some(index) => (RequestStatus::Ok, index.into()),
                    None => (RequestStatus::NotGranted, 0),
                };
                let reply = Header::from(HostMessage::Reply { status, value });
                self.send(&reply, &[], deadline)?;
            }
            AppletMessage::Invoke { function } => {
                let _crossing = self.crossings.mark().cross("host_call");
                let functions = self.functions.clone();
                let Returned { status, code, payload } = functions.invoke(*function, payload);
                let answer = Header::from(HostMessage::Return { status, code });
                self.send(&answer, &payload, deadline)?;
            }
            _ => return Ok(false),
        }
        self.messages += 2;
        Ok(true)
    }
}
