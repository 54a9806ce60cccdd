//! A host that forks: its copy has the handles, and nothing to say.

#![allow(unsafe_code, reason = "there is no other way to fork")]

use std::time::Duration;

use holdfast_jail::KillReason;

use crate::victims::jail;

/// Guarantee: sandbox/dies-with-host
#[test]
fn a_forked_copy_of_the_host_cannot_end_its_programs() {
    let jailed = jail(&["waits"]).spawn().unwrap();
    // SAFETY: the child calls what takes no lock and allocates nothing, and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        jailed.kill(KillReason::Finished);
        let found = jailed.wait(None);
        // SAFETY: ends this process.
        unsafe { libc::_exit(i32::from(found.is_some())) };
    }
    let mut status = 0;
    // SAFETY: the pointer is valid.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    assert_eq!(jailed.wait(Some(Duration::from_millis(200))), None);
}
