//! A host that forks: its copy has the handles, and neither the applets nor their heaps.

#![allow(unsafe_code, reason = "there is no other way to fork")]

use holdfast_applet::{Applet, CallError, CloseError, Failure};

use crate::{Home, ask, with_each};

/// Whether `work` holds in a forked copy of this process.
fn holds_in_a_copy(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs on with what this thread has, and no other thread of the test holds what it needs: the
    // allocator of the C library is usable in it.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let holds = work();
        // SAFETY: ends this process.
        unsafe { libc::_exit(i32::from(!holds)) };
    }
    let mut status = 0;
    // SAFETY: the pointer is valid.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status == 0
}

#[test]
fn a_forked_copy_of_the_host_can_do_nothing_to_an_applet_and_its_heap() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = home.spawn(path);
        assert_eq!(ask(&applet, "count", 0).unwrap(), 1);
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
        assert_eq!(ask(&applet, "count", 0).unwrap(), 2);
        applet.close().unwrap();
    });
}
