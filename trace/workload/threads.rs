//! Workloads of threads and processes that come and go.
#![allow(
    unsafe_code,
    reason = "fork and kill have no safe form, and getppid is made as a bare call"
)]

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::blocking::{rest, wait_for};
use crate::facts::{Facts, thread_number};

/// A call that is easily counted.
pub(crate) fn mark() {
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// Many threads, one after another but some at once; each makes one call.
pub(crate) fn many(facts: &mut Facts, count: u64) {
    let mut at_once = Vec::new();
    for _ in 0..count {
        let builder = std::thread::Builder::new().stack_size(64 << 10);
        at_once.push(builder.spawn(mark).expect("a thread"));
        if at_once.len() == 16 {
            at_once.drain(..).for_each(|thread| thread.join().expect("a thread"));
        }
    }
    at_once.into_iter().for_each(|thread| thread.join().expect("a thread"));
    facts.tell("threads", count);
}

/// The process ends, or is killed, while a thread is in a call that does not return.
pub(crate) fn exits_around_a_thread(facts: &mut Facts, is_killed: bool) {
    let (say, hear) = mpsc::channel();
    let (pipe, _writer) = std::io::pipe().expect("a pipe");
    let _blocked = std::thread::spawn(move || {
        say.send(thread_number()).expect("the first thread");
        let _ = std::io::Read::read(&mut &pipe, &mut [0]);
    });
    facts.tell("blocked", hear.recv().expect("the thread"));
    facts.measure("rest", rest);
    if is_killed {
        // SAFETY: no pointers.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    std::process::exit(5);
}

/// A thread that is not the first one replaces the program, while the first one is in a call.
pub(crate) fn execs_from_a_thread(facts: &mut Facts, file: &str) {
    facts.tell("process", u64::from(std::process::id()));
    let file = file.to_owned();
    let thread = std::thread::spawn(move || {
        // Until the first thread waits for this one.
        let first = format!("/proc/self/task/{}/stat", std::process::id());
        while !std::fs::read_to_string(&first).expect("the first thread").contains(") S ") {
            std::thread::yield_now();
        }
        let program = std::env::current_exe().expect("this program");
        let failed = Command::new(program).args([file.as_str(), "after_exec"]).exec();
        panic!("exec: {failed}");
    });
    let _ = thread.join();
}

/// Children by fork, vfork (posix_spawn) and clone3 (a thread), each with a mark.
pub(crate) fn family(facts: &mut Facts) {
    facts.tell("process", u64::from(std::process::id()));
    // SAFETY: one thread, so the child may do anything.
    let child = unsafe { libc::fork() };
    if child == 0 {
        mark();
        std::process::exit(0);
    }
    facts.tell("forked", child as u64);
    wait_for(child);
    let mut spawned = Command::new("/bin/true").spawn().expect("/bin/true");
    facts.tell("spawned", u64::from(spawned.id()));
    spawned.wait().expect("/bin/true");
    let thread = std::thread::spawn(|| {
        mark();
        thread_number()
    });
    facts.tell("thread", thread.join().expect("a thread"));
    mark();
}

/// Waits for the end of a thread of this process, for a minute at most.
pub(crate) fn until_thread_is_gone(thread: u64) {
    let task = format!("/proc/self/task/{thread}");
    let end = Instant::now() + Duration::from_secs(60);
    while std::path::Path::new(&task).exists() {
        assert!(Instant::now() < end, "the thread {thread} has not ended in a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A thread that is made by a bare clone, with the signal of a process's end among its flags.
pub(crate) fn makes_thread_by_clone(facts: &mut Facts) {
    extern "C" fn marks(_: *mut libc::c_void) -> libc::c_int {
        mark();
        // SAFETY: no pointers; it ends this thread alone.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        0
    }
    facts.tell("process", u64::from(std::process::id()));
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    facts.tell("thread", thread_by_clone(flags, marks, std::ptr::null_mut()));
}

/// A thread with a table of descriptors of its own gives the number of a file to a pipe there.
pub(crate) fn makes_thread_with_own_descriptors(facts: &mut Facts) {
    extern "C" fn writes(numbers: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the numbers are there until this thread has ended, which the last call does.
        unsafe {
            let [pipe, file] = *numbers.cast::<[libc::c_long; 2]>();
            libc::syscall(libc::SYS_dup2, pipe, file);
            libc::syscall(libc::SYS_write, file, numbers, 2_usize);
            libc::syscall(libc::SYS_exit, 0);
        }
        0
    }
    facts.tell("process", u64::from(std::process::id()));
    let mut file = std::fs::File::from(
        rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).expect("a file"),
    );
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    let mut numbers = [writer.as_raw_fd(), file.as_raw_fd()].map(libc::c_long::from);
    facts.tell("file", file.as_raw_fd() as u64);
    std::io::Write::write_all(&mut file, b"1").expect("a file");
    facts.tell("thread", thread_by_clone(0, writes, (&raw mut numbers).cast()));
    std::io::Write::write_all(&mut file, b"1").expect("a file");
}

/// A thread that is made by a bare clone with these flags, and has ended; its number. It makes only
/// system calls that do not fail, and ends by one.
fn thread_by_clone(
    flags: libc::c_int,
    work: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) -> u64 {
    // For as long as the thread may be there.
    let stack = Vec::leak(vec![0_u8; 64 << 10]);
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | flags;
    // SAFETY: the stack is the thread's alone, and what it does touches nothing of the C library
    // that is this thread's.
    let thread = unsafe {
        let top = stack.as_mut_ptr().add(stack.len() & !15).cast();
        libc::clone(work, top, flags, argument)
    };
    assert!(thread > 0);
    until_thread_is_gone(thread as u64);
    thread as u64
}

/// A child that is hidden from tracers at its making; it makes a mark after that.
pub(crate) fn makes_untraced(facts: &mut Facts) {
    facts.tell("process", u64::from(std::process::id()));
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let flags = (libc::CLONE_UNTRACED | libc::SIGCHLD) as usize;
    // SAFETY: as fork: no pointers, and one thread, so the child may do anything.
    let child =
        unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    if child == 0 {
        drop(writer);
        let _ = std::io::Read::read(&mut reader, &mut [0]);
        mark();
        std::process::exit(0);
    }
    assert!(child > 0);
    facts.tell("child", child as u64);
    std::io::Write::write_all(&mut writer, b"x").expect("a pipe");
    wait_for(child as libc::pid_t);
}

/// Threads that each make a mark every few milliseconds, until the test has seen enough, or for so
/// many ticks of the first one; a last thread is made then.
pub(crate) fn tick(facts: &mut Facts, most: u64) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (say, hear) = mpsc::channel();
        for _ in 0..4 {
            let (say, over) = (say.clone(), &over);
            scope.spawn(move || {
                say.send(thread_number()).expect("the first thread");
                while !over.load(Ordering::Relaxed) {
                    mark();
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        for _ in 0..4 {
            facts.tell("thread", hear.recv().expect("a thread"));
        }
        for tick in 0..most {
            if facts.is_over() {
                break;
            }
            facts.tell("tick", tick);
            std::thread::sleep(Duration::from_millis(10));
        }
        over.store(true, Ordering::Relaxed);
    });
    std::thread::spawn(mark).join().expect("a thread");
}

/// Threads that do nothing but call, until the test has seen enough, or a minute is over.
pub(crate) fn only_call(facts: &mut Facts) {
    let (over, end) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(60));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    mark();
                }
            });
        }
        facts.tell("busy", 4);
        while !facts.is_over() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        over.store(true, Ordering::Relaxed);
    });
    facts.tell("done", 1);
}
