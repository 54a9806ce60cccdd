//! Mounts that only one thread, and what it starts, can see.

use std::io;

/// The calling thread has a view of the mounted file systems of its own from here on: what it
/// mounts, no other thread sees, and it is unmounted when the thread and all that it started are
/// gone. Its working directory is its own, too. What others mount later is not seen.
///
/// # Errors
/// The kernel's; `EPERM` without the right to mount.
pub fn leave_shared() -> io::Result<()> {
    // SAFETY: a plain system call that changes what the calling thread sees of file systems, and no
    // memory.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Mounts that are marked as shared would go on to be passed to all others.
    let none = std::ptr::null();
    // SAFETY: the path is a string that ends with a zero; all other arguments are none.
    let done = unsafe {
        libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What a thread mounts after it left the name space is invisible to others.
    ///
    /// Guarantee: trace/matrix
    #[test]
    fn private_mounts_are_invisible_to_others() {
        let place = tempfile::tempdir().unwrap();
        let point = place.path().to_owned();
        let mounted = std::thread::spawn(move || {
            match leave_shared() {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => return false,
                done => done.unwrap(),
            }
            let done =
                Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&point).status().unwrap();
            assert!(done.success());
            std::fs::write(point.join("inside"), "x").unwrap();
            true
        });
        let mounted = mounted.join().unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        if !mounted {
            println!(
                "not run: nobody without the right to mount can look at it (root has it, outside of most containers)"
            );
        }
    }
}
