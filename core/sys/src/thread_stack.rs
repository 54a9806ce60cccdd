//! Where the stack of the calling thread lies.
//!
//! Invariant: the answer is one thread's, and holds until that thread ends.

#![allow(unsafe_code, reason = "the bounds of a stack are in no safe library")]

use std::cell::OnceCell;
use std::mem::MaybeUninit;
use std::ops::Range;

thread_local! {
    static BOUNDS: OnceCell<Range<usize>> = const { OnceCell::new() };
}

/// The addresses of this thread's stack, guard pages left out; empty where the C library does not
/// know them. Of a main thread it is what the stack may grow to, which some C libraries take for
/// what it has grown to.
#[must_use]
pub fn bounds() -> Range<usize> {
    BOUNDS.with(|bounds| bounds.get_or_init(|| ask().unwrap_or_default()).clone())
}

fn ask() -> Option<Range<usize>> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are filled by the first call, read by the second only when that
    // succeeded, and released once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let refused = libc::pthread_attr_getstack(attributes.as_ptr(), &mut lowest, &mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        if refused != 0 {
            return None;
        }
    }
    let lowest = lowest as usize;
    Some(lowest..lowest.checked_add(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> usize {
        let local = 0_u8;
        std::ptr::from_ref(std::hint::black_box(&local)) as usize
    }

    #[test]
    fn locals_lie_in_the_stack_of_their_own_thread_only() {
        let (outer, outer_local) = (bounds(), here());
        assert!(outer.contains(&outer_local));
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let inner = thread.spawn(move || {
            assert!(bounds().contains(&here()) && !bounds().contains(&outer_local));
            bounds()
        });
        let inner = inner.unwrap().join().unwrap();
        assert!(inner.len() >= 256 << 10 && inner.len() < 1 << 20, "{inner:?}");
        assert!(inner.end <= outer.start || outer.end <= inner.start, "{inner:?} {outer:?}");
        assert_eq!(bounds(), outer);
    }
}
