//! The floor: two processes that sleep and wake each other on words of shared memory, and nothing else.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use holdfast_sys::futex;
use holdfast_sys::shared_memory::SharedMemory;

use super::other_side::{OtherSide, descriptor};

pub(crate) const ROLE: &str = "futex";
const BYTES: u64 = 4096;
/// The two words are on lines of their own.
const WORDS: [usize; 2] = [0, 256];

/// Two words; a side adds one to the other's and sleeps on its own.
struct Words(SharedMemory);

impl Words {
    fn word(&self, index: usize) -> &AtomicU32 {
        // SAFETY: inside of the page, aligned, mapped as long as the value, and only touched atomically.
        unsafe { AtomicU32::from_ptr(self.0.base().add(WORDS[index]).cast().as_ptr()) }
    }

    fn wake(&self, index: usize, value: u32) -> io::Result<()> {
        self.word(index).store(value, Ordering::SeqCst);
        futex::wake(self.word(index), 1).map(drop)
    }

    fn sleep(&self, index: usize, until: u32) {
        loop {
            let now = self.word(index).load(Ordering::SeqCst);
            if now == until {
                return;
            }
            let _ = futex::wait(self.word(index), now, None);
        }
    }
}

/// The measuring side.
pub(crate) struct PingPong {
    words: Words,
    round: u32,
    _other: OtherSide,
}

impl PingPong {
    pub(crate) fn start() -> io::Result<PingPong> {
        let memory = SharedMemory::create("holdfast-bench", BYTES)?;
        let other = OtherSide::start(ROLE, memory.descriptor()?)?;
        Ok(PingPong { words: Words(memory), round: 0, _other: other })
    }

    /// Microseconds for a round trip.
    pub(crate) fn round_trip_us(&mut self, trips: u32) -> io::Result<f64> {
        let started = Instant::now();
        for _ in 0..trips {
            self.round += 1;
            self.words.wake(0, self.round)?;
            self.words.sleep(1, self.round);
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(trips))
    }
}

pub(crate) fn serve() -> io::Result<()> {
    let words = Words(SharedMemory::open(descriptor()?)?);
    for round in 1..=u32::MAX {
        words.sleep(0, round);
        words.wake(1, round)?;
    }
    Ok(())
}
