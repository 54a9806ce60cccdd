//! The requests of a native applet about its heap, and the publication of its stores.
//!
//! Invariant: requests about the heap are answered here and nowhere else; they are checked against
//! what was lent.
#![forbid(unsafe_code)]

use std::time::Instant;

use holdfast_channel::header::Header;
use holdfast_channel::layout::PAGE_BYTES;
use holdfast_channel::protocol::{AppletMessage, HostMessage};
use holdfast_region::RegionError;
use holdfast_types::{Durability, RequestStatus};

use super::{LentRegion, Native};
use crate::sandbox::{Sandbox, Stop, Unpublished};

impl Native {
    /// Answers a request about the heap; `false`: the message is something else.
    pub(super) fn serve_heap(
        &mut self,
        message: &AppletMessage,
        deadline: Option<Instant>,
    ) -> Result<bool, Stop> {
        let (status, value) = match message {
            AppletMessage::Grow { at_least_bytes } => {
                let _crossing = self.crossings.mark().cross("grow");
                match self.grow(*at_least_bytes) {
                    Ok(backed_bytes) => (RequestStatus::Ok, backed_bytes),
                    Err(status) => (status, 0),
                }
            }
            AppletMessage::Commit { level } => {
                let _crossing = self.crossings.mark().cross("commit");
                (self.commit(*level), 0)
            }
            _ => return Ok(false),
        };
        self.messages += 2;
        let reply = Header::from(HostMessage::Reply { status, value });
        self.send(&reply, &[], deadline)?;
        Ok(true)
    }

    fn grow(&mut self, at_least_bytes: u64) -> Result<u64, RequestStatus> {
        let Some(region) = &mut self.region else { return Err(RequestStatus::NotGranted) };
        region.grow(at_least_bytes).map_err(|error| {
            let status = RequestStatus::from(&error);
            self.heap_error = Some(error);
            status
        })
    }

    fn commit(&mut self, level: u32) -> RequestStatus {
        let Some(durability) = Durability::from_number(level) else {
            return RequestStatus::Unsupported;
        };
        let published = self.publish_changes();
        let Some(region) = &mut self.region else { return RequestStatus::NotGranted };
        let committed = match published {
            Ok(()) => region.commit(durability).map(drop),
            Err(Unpublished::RolledBack(error)) => Err(error),
            // The region refuses everything from here on, so the call cannot count either.
            Err(Unpublished::Ended(_)) => return RequestStatus::Failed,
        };
        match committed {
            Ok(()) => RequestStatus::Ok,
            Err(error) => {
                self.heap_error = Some(error);
                RequestStatus::Failed
            }
        }
    }

    /// In the mode `atomic`, publishes what the applet has stored. Where that fails, nothing that
    /// was copied for it stays: a later publication must not count it in.
    pub(super) fn publish_changes(&mut self) -> Result<(), Unpublished> {
        let Some(lent) = self.lent.filter(|lent| lent.is_private) else { return Ok(()) };
        let copied = self.copy_changes(lent);
        let Some(region) = &mut self.region else { return Ok(()) };
        copied.and_then(|()| region.publish().map(drop)).map_err(|error| match region.rollback() {
            Ok(_) => Unpublished::RolledBack(error),
            Err(error) => Unpublished::Ended(error.into()),
        })
    }

    /// Takes the pages over that the applet changed in its private mapping.
    fn copy_changes(&mut self, lent: LentRegion) -> Result<(), RegionError> {
        let Some(region) = &mut self.region else { return Ok(()) };
        let name = region.name().to_string();
        let io = |source| RegionError::Io {
            step: "read the applet's stores to",
            path: (&name).into(),
            source,
        };
        let range = lent.address..lent.address + region.backed_bytes();
        let pages = self.jailed.changed_pages(range).map_err(io)?;
        let (mut stored, mut known) = (vec![0; PAGE_BYTES as usize], vec![0; PAGE_BYTES as usize]);
        for run in pages {
            for address in run.step_by(PAGE_BYTES as usize) {
                let offset = address - lent.address;
                self.jailed.read_memory(address, &mut stored).map_err(io)?;
                region.read_at(offset, &mut known)?;
                if stored != known {
                    region.copy_in(offset, &stored)?;
                }
            }
        }
        Ok(())
    }
}
