//! A host that forks: its copy has the handles, and neither the applets nor their heaps.

#![allow(unsafe_code, reason = "there is no other way to fork")]

use std::thread;
use std::time::Duration;

use holdfast_applet::{Applet, Call, CallError, CloseError, Command, Failure, Grants, Pool};

use crate::{Home, ask, spawn, with_each};

/// Longer than anything in a copy takes that does not hang.
const COPY_SECONDS_MAX: u32 = 20;

/// Whether `work` holds in a forked copy of this process.
fn holds_in_a_copy(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs on with what this thread has, and no other thread of the test holds
    // what it needs: the allocator of the C library is usable in it.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: has the kernel end this process if it hangs.
        unsafe { libc::alarm(COPY_SECONDS_MAX) };
        let holds = work();
        // SAFETY: ends this process.
        unsafe { libc::_exit(i32::from(!holds)) };
    }
    let mut status = 0;
    // SAFETY: the pointer is valid.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status == 0
}

/// A forked copy of the host cannot use an applet, its buffers or its heap.
///
/// Guarantee: applets/forked-hosts
#[test]
fn forked_host_cannot_touch_applet_or_heap() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = home.spawn(path);
        assert_eq!(ask(&applet, "count", 0).unwrap(), 1);
        let buffer = applet.buffer(10_000).unwrap();
        buffer.write(5000, b"the host's").unwrap();
        let refused = || {
            matches!(applet.call("count", b""), Err(CallError::Forked { .. }))
                && matches!(applet.buffer(1), Err(CallError::Forked { .. }))
                && matches!(applet.respawn(), Err(error) if matches!(error.failure, Failure::Forked { .. }))
                && !applet.cancel()
        };
        assert!(holds_in_a_copy(refused));
        let taken: *const Applet = &raw const applet;
        // SAFETY: the copy's memory is its own: what is moved out of it there is still here.
        let close = || matches!(unsafe { taken.read() }.close(), Err(CloseError::Forked { .. }));
        assert!(holds_in_a_copy(close));
        let discard = || {
            // SAFETY: as above.
            drop(unsafe { taken.read() });
            true
        };
        assert!(holds_in_a_copy(discard));
        let taken = &raw const buffer;
        let discard = || {
            // SAFETY: as above.
            drop(unsafe { taken.read() });
            true
        };
        assert!(holds_in_a_copy(discard));
        assert_eq!(buffer.to_vec()[5000..5010], *b"the host's");
        assert_eq!(ask(&applet, "count", 0).unwrap(), 2);
        applet.close().unwrap();
    });
}

/// A stream continues in the process that opened it and not in a forked copy.
///
/// Guarantee: applets/forked-hosts
#[test]
fn stream_continues_only_in_its_own_process() {
    with_each(|_, path| {
        let applet = spawn(path);
        let mut stream = applet.stream(Call::new("parts", &3_u64.to_le_bytes())).unwrap();
        assert!(stream.next().unwrap().is_ok());
        let taken = &raw const stream;
        let copy = || {
            // SAFETY: the copy's memory is its own: what is moved out of it there is still here.
            let mut stream = unsafe { taken.read() };
            matches!(stream.next(), Some(Err(CallError::Forked { .. }))) && stream.next().is_none()
        };
        assert!(holds_in_a_copy(copy));
        let discard = || {
            // SAFETY: as above.
            drop(unsafe { taken.read() });
            true
        };
        assert!(holds_in_a_copy(discard));
        let rest: Vec<_> = stream.map(|chunk| chunk.unwrap().bytes).collect();
        assert_eq!(rest, [1_u64, 2, 3].map(|number| number.to_le_bytes().to_vec()));
        assert_eq!(applet.call("echo", b"on").unwrap(), b"on");
    });
}

/// A copy forked in the middle of a call does not wait for anything.
///
/// Guarantee: applets/forked-hosts
#[test]
fn copy_forked_in_a_call_waits_for_nothing() {
    with_each(|_, path| {
        let applet = spawn(path);
        thread::scope(|scope| {
            let call = scope.spawn(|| applet.call("spin", b""));
            thread::sleep(Duration::from_millis(200));
            let asks = || {
                applet.functions().is_empty()
                    && applet.weaker().is_empty()
                    && applet.cause_of_death().is_none()
                    && applet.metrics().calls == 0
                    && !applet.cancel()
            };
            let holds = holds_in_a_copy(asks);
            while !applet.cancel() {
                thread::sleep(Duration::from_millis(1));
            }
            call.join().unwrap().unwrap_err();
            assert!(holds);
        });
    });
}

/// A forked copy takes no applet out of a pool and returns none.
///
/// Guarantee: applets/forked-hosts
#[test]
fn forked_copy_neither_takes_nor_returns_applets() {
    with_each(|_, path| {
        let pool =
            Pool::new(1, true, move || Ok(Command::new(path.clone(), Grants::none()))).unwrap();
        let taken = pool.take().unwrap();
        while pool.ready() == 0 {
            thread::sleep(Duration::from_millis(2));
        }
        let refused = || {
            matches!(pool.take(), Err(error) if matches!(error.failure, Failure::Forked { .. }))
                && pool.ready() == 0
        };
        assert!(holds_in_a_copy(refused));
        let at = &raw const taken;
        let discard = || {
            // SAFETY: the copy's memory is its own: what is moved out of it there is still here.
            drop(unsafe { at.read() });
            true
        };
        assert!(holds_in_a_copy(discard));
        assert_eq!(taken.call("echo", b"on").unwrap(), b"on");
        assert_eq!(pool.take().unwrap().call("echo", b"too").unwrap(), b"too");
    });
}
