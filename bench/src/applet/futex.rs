//! The floors: two processes that sleep and wake each other on words of shared memory, or spin
//! until those change, and nothing else.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_sys::futex;
use holdfast_sys::shared_memory::SharedMemory;

use super::other_side::{OtherSide, descriptor};
use super::processors::Placement;
use crate::race::bursts;

pub(crate) const ROLE_SLEEP: &str = "futex";
pub(crate) const ROLE_SPIN: &str = "word";
const BYTES: u64 = 4096;
/// The two words are on lines of their own.
const WORDS: [usize; 2] = [0, 256];

/// Two words; a side adds one to the other's and sleeps on its own.
struct Words {
    memory: SharedMemory,
    spins: bool,
}

impl Words {
    fn word(&self, index: usize) -> &AtomicU32 {
        // SAFETY: inside of the page, aligned, mapped as long as the value, and only touched
        // atomically.
        unsafe { AtomicU32::from_ptr(self.memory.base().add(WORDS[index]).cast().as_ptr()) }
    }

    fn wake(&self, index: usize, value: u32) -> io::Result<()> {
        self.word(index).store(value, Ordering::SeqCst);
        if self.spins {
            return Ok(());
        }
        futex::wake(self.word(index), 1).map(drop)
    }

    fn sleep(&self, index: usize, until: u32) {
        loop {
            let now = self.word(index).load(Ordering::SeqCst);
            if now == until {
                return;
            }
            if self.spins {
                std::hint::spin_loop();
            } else {
                let _ = futex::wait(self.word(index), now, None);
            }
        }
    }
}

/// The measuring side.
pub(crate) struct PingPong {
    words: Words,
    round: u32,
    other: OtherSide,
}

impl PingPong {
    pub(crate) fn start(spins: bool) -> io::Result<PingPong> {
        let memory = SharedMemory::create("holdfast-bench", BYTES)?;
        let other =
            OtherSide::start(if spins { ROLE_SPIN } else { ROLE_SLEEP }, memory.descriptor()?)?;
        Ok(PingPong { words: Words { memory, spins }, round: 0, other })
    }

    fn trip(&mut self) -> io::Result<()> {
        self.round += 1;
        self.words.wake(0, self.round)?;
        self.words.sleep(1, self.round);
        Ok(())
    }

    /// Microseconds for a round trip.
    pub(crate) fn round_trip_us(&mut self, placement: Placement, trips: u32) -> io::Result<f64> {
        let _kept = placement.hold(self.other.pid())?;
        // The other side may not have begun yet.
        self.trip()?;
        bursts(trips, || self.trip())
    }
}

pub(crate) fn serve(spins: bool) -> io::Result<()> {
    let words = Words { memory: SharedMemory::open(descriptor()?)?, spins };
    for round in 1..=u32::MAX {
        words.sleep(0, round);
        words.wake(1, round)?;
    }
    Ok(())
}
