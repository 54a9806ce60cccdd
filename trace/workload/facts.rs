//! The facts that a workload knows of itself.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The file of facts.
pub(crate) struct Facts {
    file: File,
    /// Made by the test when it has seen enough.
    over: PathBuf,
}

impl Facts {
    pub(crate) fn new(path: &Path) -> Facts {
        let file = File::options().create(true).append(true).open(path).expect("the file of facts");
        Facts { file, over: path.with_file_name("over") }
    }

    /// One write a fact: threads and processes may share the file.
    pub(crate) fn tell(&mut self, name: &str, value: u64) {
        self.file.write_all(format!("{name} {value}\n").as_bytes()).expect("a fact");
    }

    /// Whether the test has seen enough.
    pub(crate) fn is_over(&self) -> bool {
        self.over.exists()
    }

    /// Measures a thread's piece of work: NAME_wall_ns, NAME_cpu_ns, NAME_queue_ns.
    pub(crate) fn measure<R>(&mut self, name: &str, work: impl FnOnce() -> R) -> R {
        // Both clocks in this order: what is left of the wall time is never too little.
        let (began, before) = (Instant::now(), counters());
        let result = work();
        let (after, wall) = (counters(), began.elapsed());
        self.tell(&format!("{name}_wall_ns"), wall.as_nanos() as u64);
        self.tell(&format!("{name}_cpu_ns"), after.0 - before.0);
        self.tell(&format!("{name}_queue_ns"), after.1 - before.1);
        result
    }
}

/// Of this thread: on a CPU, and ready to run, nanoseconds.
pub(crate) fn counters() -> (u64, u64) {
    // The scheduler brings the numbers of a running thread up to date when it is asked for this
    // clock.
    let _up_to_date = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().expect("a number"));
    (numbers.next().expect("cpu"), numbers.next().expect("queue"))
}

/// This thread's number.
pub(crate) fn thread_number() -> u64 {
    rustix::thread::gettid().as_raw_nonzero().get() as u64
}

/// Uses this much CPU time in this thread; how much it was.
pub(crate) fn burn(cpu_ns: u64) -> u64 {
    let clock = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let began_ns = clock();
    let mut state = 1_u64;
    while clock() - began_ns < cpu_ns {
        // Long, so that the calls that look at the clock are few.
        for _ in 0..10_000_000 {
            state = std::hint::black_box(state.wrapping_mul(3));
        }
    }
    clock() - began_ns
}
