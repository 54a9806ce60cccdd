//! The requests of a native applet about its heaps, and the publication of its stores.
//!
//! Invariant: requests about heaps are answered here and nowhere else; they are checked against
//! what was lent.
#![forbid(unsafe_code)]

use holdfast_channel::layout::PAGE_BYTES;
use holdfast_channel::protocol::{AppletMessage, HostMessage};
use holdfast_channel::wait::Deadline;
use holdfast_region::{Consistency, RegionError};
use holdfast_types::{Durability, RequestStatus};

use super::{Loan, Native};
use crate::sandbox::{Stop, Unpublished};

impl Native {
    /// Answers a request about the heap, as [`Native::answer`] does; `false`: the message is
    /// something else.
    pub(super) fn serve_heap(
        &mut self,
        message: &AppletMessage,
        deadline: Deadline,
        turn: Deadline,
    ) -> Result<bool, Stop> {
        let (status, value) = match message {
            AppletMessage::Grow { heap, at_least_bytes } => {
                let _crossing = self.crossings.mark().cross("grow");
                match self.grow(*heap as usize, *at_least_bytes) {
                    Ok(backed_bytes) => (RequestStatus::Ok, backed_bytes),
                    Err(status) => (status, 0),
                }
            }
            AppletMessage::Commit { heap, level } => {
                let _crossing = self.crossings.mark().cross("commit");
                (self.commit(*heap as usize, *level), 0)
            }
            _ => return Ok(false),
        };
        self.answer(HostMessage::Reply { status, value }, Vec::new(), deadline, turn)?;
        Ok(true)
    }

    fn grow(&mut self, index: usize, at_least_bytes: u64) -> Result<u64, RequestStatus> {
        let Some(heap) = self.heaps.at(index) else { return Err(RequestStatus::NotGranted) };
        heap.region.grow(at_least_bytes).map_err(|error| {
            let status = RequestStatus::from(&error);
            self.heap_error = Some(error);
            status
        })
    }

    fn commit(&mut self, index: usize, level: u32) -> RequestStatus {
        let Some(durability) = Durability::from_number(level) else {
            return RequestStatus::Unsupported;
        };
        let published = self.publish_one(index);
        let Some(heap) = self.heaps.at(index) else { return RequestStatus::NotGranted };
        let committed = match published {
            Ok(()) => heap.region.commit(durability).map(drop),
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

    /// In the mode `atomic`, publishes what the applet has stored, heap by heap. Where that fails,
    /// nothing that was copied for that heap or a later one stays: a later publication must not
    /// count it in.
    pub(super) fn publish_changes(&mut self) -> Result<(), Unpublished> {
        for index in 0..self.loans.len() {
            if let Err(unpublished) = self.publish_one(index) {
                return Err(self.give_up_from(index + 1, unpublished));
            }
        }
        Ok(())
    }

    /// The stores to the heaps from `index` on, which were not copied, do not count: the applet
    /// drops its own copies of their pages with the next call.
    fn give_up_from(&mut self, index: usize, unpublished: Unpublished) -> Unpublished {
        for heap in self.heaps.iter_mut().skip(index) {
            if heap.region.consistency() == Consistency::Atomic
                && let Err(error) = heap.region.rollback()
            {
                return Unpublished::Ended(error.into());
            }
        }
        unpublished
    }

    fn publish_one(&mut self, index: usize) -> Result<(), Unpublished> {
        let Some(loan) = self.loans.get(index).copied().filter(|loan| loan.is_private) else {
            return Ok(());
        };
        let copied = self.copy_changes(index, loan);
        let Some(heap) = self.heaps.at(index) else { return Ok(()) };
        let region = &mut heap.region;
        copied.and_then(|()| region.publish().map(drop)).map_err(|error| match region.rollback() {
            Ok(_) => Unpublished::RolledBack(error),
            Err(error) => Unpublished::Ended(error.into()),
        })
    }

    /// Takes the pages over that the applet changed in its private mapping.
    fn copy_changes(&mut self, index: usize, loan: Loan) -> Result<(), RegionError> {
        let Some(heap) = self.heaps.at(index) else { return Ok(()) };
        let region = &mut heap.region;
        let name = region.name().to_string();
        let io = |source| RegionError::Io {
            step: "read the applet's stores to",
            path: (&name).into(),
            source,
        };
        let range = loan.address..loan.address + region.backed_bytes();
        let pages = self.jailed.changed_pages(range).map_err(io)?;
        let (mut stored, mut known) = (vec![0; PAGE_BYTES as usize], vec![0; PAGE_BYTES as usize]);
        for run in pages {
            for address in run.step_by(PAGE_BYTES as usize) {
                let offset = address - loan.address;
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
