//! The compartments among the granted heaps: which there are, and the protection keys that close
//! each to the threads that have not entered it.
//!
//! Invariants:
//! - What is known of them is written once, by the thread that boots, and read without a lock from
//!   then on: also while another thread waits for the host, and in a signal handler.
//! - The heap that was granted first is under no key: threads that have entered nothing use it.
//! - Where the processor has no keys, or the process has too few, nothing is closed; the program
//!   runs the same.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use holdfast_channel::heaps::{HEAPS_MAX, HeapTable, is_compartment_of};
use holdfast_pkeys::{FORBIDDEN, Key, read_rights, write_rights};

pub(crate) use super::system::Thread;
use super::system::{SignalAction, say, send_to_this_thread, set_signal_action, signal_action};
use crate::region::{AttachError, Granted};

/// What is known of the granted heaps.
struct Known {
    table: HeapTable,
    mapped: [Result<Granted, AttachError>; HEAPS_MAX],
    /// The key of each that is closed by one.
    keys: [Option<Key>; HEAPS_MAX],
    /// The bits of all of them.
    key_bits: u32,
    /// What a SIGSEGV did before.
    before: Option<SignalAction>,
}

struct Place(UnsafeCell<MaybeUninit<Known>>);

// SAFETY: it is written once, before `IS_KNOWN` says so, and only read afterwards.
unsafe impl Sync for Place {}

static KNOWN: Place = Place(UnsafeCell::new(MaybeUninit::uninit()));
static IS_KNOWN: AtomicBool = AtomicBool::new(false);

fn known() -> Option<&'static Known> {
    if !IS_KNOWN.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: it was written before that was stored, and is not written again.
    Some(unsafe { (*KNOWN.0.get()).assume_init_ref() })
}

/// Whether the process has looked at its descriptors.
pub(super) fn is_known() -> bool {
    IS_KNOWN.load(Ordering::Acquire)
}

/// Notes what was mapped, and closes the compartments.
///
/// # Safety
/// Once in a process, by a thread that has the state of this library alone. No thread may rely on
/// compartments that it has not entered.
pub(super) unsafe fn publish(
    table: &HeapTable,
    mapped: &[Result<Granted, AttachError>; HEAPS_MAX],
) {
    let mut keys = [None; HEAPS_MAX];
    for (key, heap) in keys.iter_mut().zip(mapped).skip(1) {
        if let Ok(granted) = heap
            && granted.is_compartment
        {
            // SAFETY: the mapping is new, and this library's.
            *key = unsafe { close(granted) };
        }
    }
    let key_bits = keys.iter().flatten().fold(0, |bits, key| bits | key.bits());
    let before = if key_bits == 0 { None } else { signal_action(SIGSEGV) };
    let known = Known { table: *table, mapped: *mapped, keys, key_bits, before };
    // SAFETY: nothing reads it before the store below, and nothing else writes it (our contract).
    unsafe { (*KNOWN.0.get()).write(known) };
    IS_KNOWN.store(true, Ordering::Release);
    if let Some(before) = before {
        watch(&before);
    }
}

/// Puts a compartment under a key of its own, if there is one.
///
/// # Safety
/// The mapping must be this library's, and no thread may rely on it.
unsafe fn close(granted: &Granted) -> Option<Key> {
    let start = NonNull::new(core::ptr::with_exposed_provenance_mut(granted.address as usize))?;
    let key = Key::allocate().ok()?;
    // SAFETY: per the contract; the mapping has all of the limit.
    let closed = unsafe { key.protect(start, granted.limit_bytes as usize, !granted.is_read_only) };
    closed.ok().map(|()| key)
}

/// The compartment of this name, or of this worker; without a name the first one that is free.
/// Where the only one is not free, that one.
pub(crate) fn find(
    name: Option<&str>,
    is_free: &mut dyn FnMut(u32) -> bool,
) -> Result<Granted, AttachError> {
    let known = known().ok_or(AttachError::NotGranted)?;
    let mut found = Err(AttachError::NotGranted);
    for (entry, mapped) in known.table.heaps().iter().zip(&known.mapped) {
        if !entry.region().is_compartment || !is_compartment_of(entry.name(), name) {
            continue;
        }
        match mapped {
            Ok(granted) if is_free(granted.index) => return Ok(*granted),
            Ok(_) => found = Err(AttachError::Held),
            Err(error) => found = found.or(Err(*error)),
        }
        // One that is named is meant, and no other.
        if name.is_some() {
            break;
        }
    }
    found
}

/// Opens one compartment to the calling thread, and closes all others.
pub(crate) fn open_to_this_thread(index: u32) {
    if let Some(known) = known()
        && known.key_bits != 0
    {
        let own = known.keys.get(index as usize).copied().flatten().map_or(0, Key::bits);
        write_rights((read_rights() | known.key_bits) & !own);
    }
}

/// Closes them all to the calling thread.
pub(crate) fn close_to_this_thread() {
    if let Some(known) = known()
        && known.key_bits != 0
    {
        write_rights(read_rights() | known.key_bits);
    }
}

/// Whether a compartment is closed by a key to the threads that have not entered it.
pub(crate) fn is_closed_by_key(index: usize) -> bool {
    known().is_some_and(|known| known.keys.get(index).is_some_and(Option::is_some))
}

const SIGSEGV: i32 = 11;
const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
/// `SIG_DFL`; behind it `SIG_IGN`, and then addresses.
const DEFAULT: usize = 0;
const IGNORE: usize = 1;

/// Where a handler returns to: the system call `rt_sigreturn`.
#[unsafe(naked)]
unsafe extern "C" fn signal_return() {
    core::arch::naked_asm!("mov eax, 15", "syscall", "ud2")
}

/// Has an access that a key forbids say what it was, before it ends the process.
fn watch(before: &SignalAction) {
    let restorer: unsafe extern "C" fn() = signal_return;
    let handler: unsafe extern "C" fn(i32, *mut u8, *mut u8) = on_fault;
    let action = SignalAction {
        handler: handler as usize,
        flags: SA_SIGINFO | SA_RESTORER | SA_ONSTACK,
        restorer: restorer as usize,
        mask: before.mask,
    };
    // SAFETY: the handler takes what the kernel passes with these flags, and is async-signal-safe.
    unsafe { set_signal_action(SIGSEGV, &action) };
}

/// # Safety
/// Only for the kernel, with a `siginfo_t`.
unsafe extern "C" fn on_fault(signal: i32, info: *mut u8, context: *mut u8) {
    // SAFETY: `si_code` and, with that code, `si_pkey` lie there in a `siginfo_t` of x86-64.
    let (code, key) =
        unsafe { (info.add(8).cast::<i32>().read(), info.add(32).cast::<u32>().read()) };
    let Some(known) = known() else { return };
    let key = if code == FORBIDDEN { Key::from_number(key) } else { None };
    let index = key.and_then(|key| known.keys.iter().position(|own| *own == Some(key)));
    if let Some(heap) = index.and_then(|index| known.table.heaps().get(index)) {
        say(b"holdfast: a thread touched the compartment ");
        say(heap.name().as_bytes());
        say(b", which it has not entered; enter it, or look for the pointer that strays\n");
    }
    let default = SignalAction { handler: DEFAULT, flags: 0, restorer: 0, mask: 0 };
    let before = known.before.unwrap_or(default);
    // `kill` and its kin say who sends a signal; the kernel, that there was a fault.
    let was_sent = code <= 0;
    if was_sent && before.handler == IGNORE {
        // Nothing was to come of it.
    } else if index.is_some() || before.handler == DEFAULT || before.handler == IGNORE {
        // The instruction runs again, and the process ends as it should.
        // SAFETY: what every process begins with.
        unsafe { set_signal_action(signal, &default) };
        if was_sent {
            // There is no instruction that would: the signal comes when this has returned.
            send_to_this_thread(signal);
        }
    } else if before.flags & SA_SIGINFO != 0 {
        // SAFETY: a handler with these flags takes these arguments.
        let handler: unsafe extern "C" fn(i32, *mut u8, *mut u8) =
            unsafe { core::mem::transmute(before.handler) };
        // SAFETY: what the kernel has passed.
        unsafe { handler(signal, info, context) };
    } else {
        // SAFETY: a handler without them takes one.
        let handler: unsafe extern "C" fn(i32) = unsafe { core::mem::transmute(before.handler) };
        // SAFETY: as above.
        unsafe { handler(signal) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a child ends that raises SIGSEGV where this was the action before.
    fn end_of_child(before: usize) -> i32 {
        let before = SignalAction { handler: before, flags: 0, restorer: 0, mask: 0 };
        let (table, mapped) = (HeapTable::new(&[]), [Err(AttachError::NotGranted); HEAPS_MAX]);
        let (keys, before) = ([None; HEAPS_MAX], Some(before));
        let known = Known { table, mapped, keys, key_bits: 0, before };
        // SAFETY: the child makes system calls only, and the state that it writes is its own copy.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                (*KNOWN.0.get()).write(known);
                IS_KNOWN.store(true, Ordering::Release);
                watch(&before.unwrap());
                libc::raise(SIGSEGV);
                libc::_exit(7);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        }
    }

    #[test]
    fn a_sent_signal_does_what_it_did_before() {
        let status = end_of_child(DEFAULT);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == SIGSEGV, "{status}");
        let status = end_of_child(IGNORE);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status}");
    }
}
