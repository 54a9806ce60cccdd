//! Workloads of unusual calls: other doors, filters, kinds of descriptors; and a tracer that can be
//! killed.
#![allow(unsafe_code, reason = "an interrupt as a call, and a filter, have no safe form")]

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_trace::{
    Backend, BpfBackend, Event, Program, PtraceBackend, Result, Settings, Target,
};

use crate::facts::{Facts, thread_number};
use crate::threads::{mark, until_thread_is_gone};

/// getpid through the door of 32-bit programs, and by the number of x32.
pub(crate) fn doors(facts: &mut Facts) {
    let result: u64;
    // SAFETY: 20 is getpid there: no pointers. The kernel may change r8 to r11.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("rax") 20_u64 => result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    facts.tell("i386_result", u64::from(result as u32));
    // SAFETY: getpid, or no call at all where x32 is not built.
    unsafe { libc::syscall(libc::SYS_getpid | 1 << 30) };
    // SAFETY: no call has one of these numbers.
    unsafe {
        libc::syscall(100_000);
        // With the bit of x32, and of no door.
        libc::syscall(-5);
    }
    facts.tell("process", u64::from(std::process::id()));
}

/// A filter makes getppid by the number of x32 fail.
pub(crate) fn filtered_x32(facts: &mut Facts) {
    let number = libc::SYS_getppid | 1 << 30;
    filter(&[(0, number as u32)], libc::SECCOMP_RET_ERRNO | libc::EXDEV as u32);
    // SAFETY: the filter answers it.
    unsafe { libc::syscall(number) };
    facts.tell("went_on", 1);
}

/// Filters trap getppid and clone, to which a handler of SIGSYS gives an answer.
pub(crate) fn trapped(facts: &mut Facts) {
    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    extern "C" fn answers(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: with SA_SIGINFO the kernel hands over the registers of what it interrupted.
        unsafe {
            let context = &mut *context.cast::<libc::ucontext_t>();
            context.uc_mcontext.gregs[libc::REG_RAX as usize] = 4711;
        }
    }
    // SAFETY: zeros are a valid `sigaction`; the handler changes one register of the thread.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = answers as Handler as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()), 0);
    }
    for (name, number) in [("getppid", libc::SYS_getppid), ("clone", libc::SYS_clone)] {
        filter(&[(0, number as u32)], libc::SECCOMP_RET_TRAP);
        // SAFETY: the handler answers it: no child is made.
        facts.tell(name, unsafe { libc::syscall(number, libc::SIGCHLD, 0, 0, 0, 0) } as u64);
    }
}

/// A filter makes getppid fail, or kills for it.
pub(crate) fn filtered(facts: &mut Facts, kills: bool) {
    let action = if kills {
        libc::SECCOMP_RET_KILL_PROCESS
    } else {
        libc::SECCOMP_RET_ERRNO | libc::EXDEV as u32
    };
    filter(&[(0, libc::SYS_getppid as u32)], action);
    mark();
    facts.tell("went_on", 1);
}

/// A filter kills one thread of two for its getppid.
pub(crate) fn filtered_thread(facts: &mut Facts) {
    let (say, hear) = std::sync::mpsc::channel();
    // Its end is not seen by the library, which would wait for its result.
    let _killed = std::thread::spawn(move || {
        say.send(thread_number()).expect("the first thread");
        filter(&[(0, libc::SYS_getppid as u32)], libc::SECCOMP_RET_KILL_THREAD);
        mark();
    });
    let killed = hear.recv().expect("the thread");
    facts.tell("killed", killed);
    until_thread_is_gone(killed);
    facts.tell("went_on", 1);
}

/// The last call of the first thread is a read at the end of a file: it returns 0, which is its
/// number, too. Then SIGSYS ends the thread, sent by another one, or because a filter kills the
/// process for a call of that one.
pub(crate) fn killed_after_read(facts: &mut Facts, by_filter: bool) {
    static HAS_READ: AtomicBool = AtomicBool::new(false);
    let (process, reader) = (std::process::id(), thread_number());
    facts.tell("reader", reader);
    let mut empty = std::fs::File::open("/dev/null").expect("a file");
    let _killer = std::thread::spawn(move || {
        while !HAS_READ.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if by_filter {
            filter(&[(0, libc::SYS_getppid as u32)], libc::SECCOMP_RET_KILL_PROCESS);
            mark();
        } else {
            // SAFETY: no pointers.
            unsafe { libc::syscall(libc::SYS_tgkill, process, reader, libc::SIGSYS) };
        }
    });
    assert_eq!(empty.read(&mut [0]).expect("a read"), 0);
    HAS_READ.store(true, Ordering::Release);
    // Without a call: no clock is looked at, which may be one.
    for _ in 0..1_000_000_000_u32 {
        std::hint::spin_loop();
    }
    facts.tell("went_on", 1);
}

/// Is a tracer for which the kernel does not tell of calls, as those before Linux 5.3 do not.
pub(crate) fn traces_as_before_5_3(facts: &mut Facts, backend: &str, command: &[String]) {
    let get_syscall_info = 0x420e;
    filter(
        &[(0, libc::SYS_ptrace as u32), (16, get_syscall_info)],
        libc::SECCOMP_RET_ERRNO | libc::EIO as u32,
    );
    traces(facts, backend, command);
}

/// Calls of this process where all of these words of `struct seccomp_data` are so have this for an
/// answer from now on.
fn filter(words: &[(u32, u32)], action: u32) {
    let step = |code: u32, jump_true, jump_false, value| libc::sock_filter {
        code: code as u16,
        jt: jump_true,
        jf: jump_false,
        k: value,
    };
    let mut steps = Vec::new();
    for (left, (offset, value)) in (0..words.len()).rev().zip(words) {
        let behind = 1 + 2 * left as u8;
        steps.push(step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, *offset));
        steps.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, behind, *value));
    }
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, action));
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the filter is valid for the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter),
            0
        );
    }
}

/// Writes to, or reads from, one of each kind; the numbers of the descriptors are the facts.
pub(crate) fn descriptors(facts: &mut Facts) {
    let mut file = std::fs::File::from(
        rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).expect("a file"),
    );
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let (mut socket, _peer) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let mut null = std::fs::File::options().write(true).open("/dev/null").expect("/dev/null");
    let event =
        rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("an eventfd");
    facts.tell("file", file.as_raw_fd() as u64);
    facts.tell("pipe", writer.as_raw_fd() as u64);
    facts.tell("socket", socket.as_raw_fd() as u64);
    facts.tell("null", null.as_raw_fd() as u64);
    facts.tell("event", event.as_raw_fd() as u64);
    for _ in 0..2 {
        file.write_all(b"12345678").expect("a file");
        writer.write_all(b"12345678").expect("a pipe");
        socket.write_all(b"12345678").expect("a socket");
        null.write_all(b"12345678").expect("/dev/null");
        rustix::io::write(&event, &1_u64.to_ne_bytes()).expect("an eventfd");
    }
    // The file's number is now the pipe's: what was known of it is wrong.
    let number = file.as_raw_fd();
    drop(file);
    let duplicate = rustix::io::fcntl_dupfd_cloexec(&writer, number).expect("a descriptor");
    facts.tell("reused", u64::from(duplicate.as_raw_fd() == number));
    rustix::io::write(&duplicate, &[7; 77]).expect("a pipe");
    drop(reader);
}

/// A mark every 10 ms, each told, until the test has seen enough, or so many; how many it were.
pub(crate) fn ticks(facts: &mut Facts, most: u64) {
    facts.tell("process", u64::from(std::process::id()));
    let mut ticks = 0;
    while ticks < most && !facts.is_over() {
        mark();
        facts.tell("tick", ticks);
        ticks += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    facts.tell("done", ticks);
}

/// Is a tracer itself, with this backend: of a command, or with a number, of a process; tells how
/// many calls it saw.
pub(crate) fn traces(facts: &mut Facts, backend: &str, command: &[String]) {
    let target = match command.first().map(|word| word.parse()) {
        Some(Ok(process)) => Target::Attach(vec![process]),
        _ => Target::Start(Program { command: command.iter().map(Into::into).collect() }),
    };
    let settings = Settings::new(target);
    let made: Result<Box<dyn Backend>> = match backend {
        "bpf" => BpfBackend::new(settings).map(|backend| Box::new(backend) as _),
        _ => PtraceBackend::new(settings).map(|backend| Box::new(backend) as _),
    };
    let backend = match made {
        Ok(backend) => backend,
        Err(error) => {
            println!("{error}");
            std::process::exit(1);
        }
    };
    let mut calls = 0;
    let outcome = backend.run(&mut |event| {
        if matches!(event, Event::Call(_)) {
            calls += 1;
            if calls == 1 {
                facts.tell("sees_calls", 1);
            }
        }
    });
    match outcome {
        Ok(_) => facts.tell("calls", calls),
        Err(error) => {
            println!("{error}");
            let _ = std::io::stdout().flush();
            let _ = std::io::stdin().read(&mut [0]);
            std::process::exit(1);
        }
    }
}
