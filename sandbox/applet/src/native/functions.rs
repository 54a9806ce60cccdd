//! The functions of the host that a native applet calls, by messages.

use holdfast_channel::protocol::{AppletMessage, HostMessage};
use holdfast_channel::wait::Deadline;
use holdfast_types::RequestStatus;
use holdfast_wasm::Returned;

use super::Native;
use crate::sandbox::Stop;

impl Native {
    /// Answers a message about host functions, as [`Native::answer`] does; whether it was one.
    pub(super) fn serve_functions(
        &mut self,
        message: &AppletMessage,
        payload: &[u8],
        deadline: Deadline,
        turn: Deadline,
    ) -> Result<bool, Stop> {
        match message {
            AppletMessage::Import => {
                let _crossing = self.crossings.mark().cross("host_import");
                let (status, value) = match self.functions.find(payload) {
                    Some(index) => (RequestStatus::Ok, index.into()),
                    None => (RequestStatus::NotGranted, 0),
                };
                self.answer(HostMessage::Reply { status, value }, Vec::new(), deadline, turn)?;
            }
            AppletMessage::Invoke { function } => {
                let _crossing = self.crossings.mark().cross("host_call");
                let functions = self.functions.clone();
                let Returned { status, code, payload } = functions.invoke(*function, payload);
                self.answer(HostMessage::Return { status, code }, payload, deadline, turn)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
