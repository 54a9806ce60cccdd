//! Messages over the mapped channel, for the thread that has it alone.
//!
//! Invariants: what arrives while an answer is waited for (a call that is cancelled, the end) is
//! kept; after a message that does not belong where it comes, the channel is of no use any more.

use super::boot::{Booted, MappedHeaps};
use super::wait::FutexWait;
use crate::buffer::Buffer;
use crate::host::HostCallError;
use crate::region::{AttachError, Granted};
use crate::transport::TransportError;
use holdfast_channel::heaps::HEAPS_MAX;
use holdfast_channel::protocol::{AppletMessage, HostMessage, MESSAGE_BYTES_MAX};
use holdfast_channel::{ChannelError, Deadline, Endpoint, Handle, Header, Layout};
use holdfast_types::RequestStatus;

/// The applet's end of the channel.
pub(super) struct Channel {
    endpoint: Endpoint<FutexWait>,
    heaps: MappedHeaps,
    /// First byte of the mapping.
    base: *mut u8,
    layout: Layout,
    /// The host is going to call.
    serves: bool,
    /// The call that the host has cancelled last.
    cancelled: Option<u64>,
    /// The host has said that there are no more calls, before it was asked for one.
    ended: bool,
}

// SAFETY: the mapping is the process's and stays.
unsafe impl Send for Channel {}

impl Channel {
    pub(super) fn new(booted: Booted) -> Channel {
        let Booted { endpoint, heaps, base, layout, serves } = booted;
        Channel { endpoint, heaps, base, layout, serves, cancelled: None, ended: false }
    }

    /// The heap of a name; the first one without a name.
    pub(super) fn heap(&self, name: Option<&str>) -> Result<Granted, AttachError> {
        self.heaps.find(name)
    }

    pub(super) fn buffer(&self, part: Handle) -> Option<*mut u8> {
        let place = self.layout.locate(part)?;
        Some(self.base.wrapping_add(usize::try_from(place.start).ok()?))
    }

    pub(super) fn send(
        &mut self,
        message: AppletMessage,
        payload: &[u8],
    ) -> Result<(), TransportError> {
        Ok(self.endpoint.send(&Header::from(message), payload, Deadline::NEVER)?)
    }

    /// The next message that is no answer.
    pub(super) fn receive(&mut self, payload: &mut Buffer<u8>) -> Result<Header, TransportError> {
        if self.ended {
            return Ok(Header::from(HostMessage::End));
        }
        let never = Deadline::NEVER;
        match self.endpoint.receive(payload, MESSAGE_BYTES_MAX, never) {
            Ok(header) => Ok(header),
            // The message is there still.
            Err(
                ChannelError::TooLarge { bytes, .. } | ChannelError::NoRoom { needed_bytes: bytes },
            ) => {
                let header = self.endpoint.discard(never)?;
                Err(TransportError::Refused { call: header.call, bytes })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Looks for what has come, without waiting.
    pub(super) fn is_cancelled(&mut self, call: u64) -> bool {
        while let Ok(header) = self.endpoint.peek(Deadline::NOW) {
            if !self.take_control(&header) {
                break;
            }
        }
        self.cancelled == Some(call) || self.ended
    }

    pub(super) fn grow(&mut self, heap: u32, at_least_bytes: u64) -> Result<u64, RequestStatus> {
        let limit_bytes = self.heaps.at(heap).map_or(0, |granted| granted.limit_bytes);
        if at_least_bytes > limit_bytes {
            return Err(RequestStatus::LimitReached);
        }
        let backed = self.ask(AppletMessage::Grow { heap, at_least_bytes })?;
        // More than was mapped is not there, whatever the host says.
        if (at_least_bytes..=limit_bytes).contains(&backed) {
            Ok(backed)
        } else {
            Err(RequestStatus::Failed)
        }
    }

    pub(super) fn commit(&mut self, heap: u32, level: u32) -> Result<(), RequestStatus> {
        match self.heaps.at(heap) {
            // What is stored to a shared mapping survives the process by itself.
            Some(granted) if level == 0 && !granted.is_atomic => Ok(()),
            Some(_) => self.ask(AppletMessage::Commit { heap, level }).map(drop),
            None => Err(RequestStatus::NotGranted),
        }
    }

    /// The program ends by itself: in the mode `atomic` that makes its stores count. One that is
    /// called has its calls for that; ending in the middle of one does not complete it.
    pub(super) fn end(&mut self) {
        if self.serves {
            return;
        }
        for heap in 0..HEAPS_MAX as u32 {
            let is_due = |granted: &Granted| granted.is_atomic && !granted.is_read_only;
            if self.heaps.at(heap).is_some_and(is_due) {
                // No one is left to tell.
                let _ = self.commit(heap, 0);
            }
        }
    }

    /// The number of a host function.
    pub(super) fn host_import(&mut self, name: &str) -> Result<u32, HostCallError> {
        match self.ask_with(AppletMessage::Import, name.as_bytes()) {
            Ok(index) => u32::try_from(index).map_err(|_| HostCallError::NotGranted),
            Err(RequestStatus::NotGranted) => Err(HostCallError::NotGranted),
            Err(status) => Err(HostCallError::Host(status.number())),
        }
    }

    /// Runs a host function and takes what it returns.
    pub(super) fn host_call(
        &mut self,
        function: u32,
        input: &[u8],
        payload: &mut Buffer<u8>,
    ) -> Result<(RequestStatus, i32), HostCallError> {
        let lost = |_| HostCallError::Host(RequestStatus::Failed.number());
        let never = Deadline::NEVER;
        let request = Header::from(AppletMessage::Invoke { function });
        self.endpoint.send(&request, input, never).map_err(lost)?;
        loop {
            let header = self.endpoint.peek(never).map_err(lost)?;
            if let Ok(HostMessage::Return { status, code }) = HostMessage::parse(&header) {
                return match self.endpoint.receive(payload, MESSAGE_BYTES_MAX, never) {
                    Ok(_) => Ok((status, code)),
                    // The message is there still.
                    Err(ChannelError::TooLarge { .. } | ChannelError::NoRoom { .. }) => {
                        self.endpoint.discard(never).map_err(lost)?;
                        Err(HostCallError::NoMemory)
                    }
                    Err(error) => Err(lost(error)),
                };
            }
            if !self.take_control(&header) {
                return Err(HostCallError::Host(RequestStatus::Failed.number()));
            }
        }
    }

    /// Sends a request and waits for its answer: what was granted, or a code.
    fn ask(&mut self, request: AppletMessage) -> Result<u64, RequestStatus> {
        self.ask_with(request, &[])
    }

    fn ask_with(&mut self, request: AppletMessage, payload: &[u8]) -> Result<u64, RequestStatus> {
        let failed = |_| RequestStatus::Failed;
        self.endpoint.send(&Header::from(request), payload, Deadline::NEVER).map_err(failed)?;
        loop {
            let header = self.endpoint.peek(Deadline::NEVER).map_err(failed)?;
            if let Ok(HostMessage::Reply { status, value }) = HostMessage::parse(&header) {
                self.endpoint.discard(Deadline::NEVER).map_err(failed)?;
                return if status == RequestStatus::Ok { Ok(value) } else { Err(status) };
            }
            if !self.take_control(&header) {
                // A call while one is under way: the next receive tells.
                return Err(RequestStatus::Failed);
            }
        }
    }

    /// Takes the next message if it is one that may come at any time; its header was looked at.
    fn take_control(&mut self, header: &Header) -> bool {
        match HostMessage::parse(header) {
            Ok(HostMessage::Cancel { call }) => self.cancelled = Some(call),
            Ok(HostMessage::End) => self.ended = true,
            _ => return false,
        }
        self.endpoint.discard(Deadline::NEVER).is_ok()
    }
}
