//! The heaps of this process: which ones, opening and closing them, and one caller at a time.
//!
//! Invariants:
//! - Functions without a handle work in one heap, that of `nv_open`; `nv_heap_open` opens others
//!   beside it. Everything happens under one lock, the opening included.
//! - A handle is of one opening of one heap, and of nothing after that was closed.
//! - A panic under the lock poisons it: from then on every call fails, and nothing is closed in an
//!   unknown state. The next process finds what a kill would have left.
//! - A thread in a compartment works in that instead, without the lock: the session there is the
//!   thread's own value, and no other thread gets to it. The region's lock keeps other processes
//!   out, and a list of names other threads. A thread that ends leaves, by the end of its own
//!   storage; a stay in which a call panicked is left as a kill would leave it.
//! - Small anonymous objects are the exception to the one lock: each thread has slabs of its own
//!   for them (`quick`). Closing the heap takes these back, under the lock.
//! - A forked child of the process that opened the heap never gets to it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::{OsString, c_int};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdfast_c_core::{Calls, Content, HeapCallError, HeapHandle, Library};
use holdfast_dom::Documents;
use holdfast_heap::{Heap, ThreadSlabs};
use holdfast_keeper_client::NativeBacking;
use holdfast_native_heap::{
    HeapOptions, OpenHeapError, is_thread_in_transaction, open_heap_on, open_typed_heap_on,
    parse_size, roll_back_on,
};
use holdfast_region::{
    Consistency, Durability, Medium, NAME_BYTES_MAX, NameSpace, OwnerKey, Places, Region,
    RegionError, RegionName,
};
use holdfast_sys::biased_lock::{BiasedLock, NotTaken, Poisoned};
use holdfast_sys::file::effective_user;

use crate::documents::{self, Lent};
use crate::ending;
use crate::failure::{Failure, note};
use crate::ground::Ground;
use crate::quick;

/// The user's choice of heap, where the program makes none.
const NAME_VARIABLE: &str = "HOLDFAST_HEAP";
const SIZE_VARIABLE: &str = "HOLDFAST_HEAP_SIZE";
/// Room that the heap is to have from its opening on, beyond what is in use.
const RESERVE_VARIABLE: &str = "HOLDFAST_RESERVE";
/// `memory` or `file`, for a new heap.
const BACKING_VARIABLE: &str = "HOLDFAST_HEAP_BACKING";
/// `direct` or `atomic`.
const MODE_VARIABLE: &str = "HOLDFAST_HEAP_MODE";
/// How the name of a heap begins that belongs to a program.
const APPLICATION_PREFIX: &str = "app.";
/// As `holdfast run` has it.
const LIMIT_BYTES_DEFAULT: u64 = 64 << 20;
/// The key that `holdfast` uses by default.
const KEY_NAME: &str = "default";
/// The quota of a new compartment.
const QUOTA_VARIABLE: &str = "HOLDFAST_COMPARTMENT_QUOTA";
/// As `holdfast run` has it.
const QUOTA_BYTES_DEFAULT: u64 = 8 << 20;
/// Compartments that are tried for a thread that names none.
const NUMBERS_MAX: u32 = 4096;
/// How long the end of the process waits for a thread that is inside a call, in pauses of a
/// millisecond.
const PATIENCE_MS: u32 = 500;

/// What there is now.
enum State {
    /// The first call opens the heap that the environment names.
    Closed,
    /// `nv_close` was called: only `nv_open` opens one again.
    LetGo,
    Open(Box<Session>),
    /// The process is ending.
    Ended,
}

struct Session {
    name: String,
    calls: Calls<NativeBacking>,
    ground: Ground,
}

/// All heaps of this process: the one that functions without a handle mean, and those that
/// `nv_heap_open` opened.
struct Sessions {
    first: State,
    /// By the index in their handles less 1; one that was closed leaves its place free, and no
    /// other heap gets its handle. (That of the first is [`first_handle`].)
    others: Vec<Option<Box<Session>>>,
}

static STATE: BiasedLock<Sessions> =
    BiasedLock::new(Sessions { first: State::Closed, others: Vec::new() });
/// Heaps that `nv_heap_open` opens in one process, all together.
const OTHERS_MAX: usize = 1 << 16;
/// Whether the heaps that are opened from now on are portable ones.
static PORTABLE: AtomicBool = AtomicBool::new(false);
/// The number of the open session, 0 while there is none.
static CURRENT: AtomicU64 = AtomicU64::new(0);

impl Session {
    fn open(name: &str, limit_bytes: u64, mode: Consistency) -> Result<Box<Session>, Failure> {
        ending::watch();
        Session::open_watched(name, limit_bytes, mode)
            .map(Box::new)
            .inspect_err(|_| ending::forget())
    }

    /// The compartment of a worker, below a heap of this user's.
    fn open_compartment(
        parent: &RegionName,
        worker: &RegionName,
        quota_bytes: u64,
    ) -> Result<Box<Session>, Failure> {
        ending::watch();
        let open = || {
            let (names, key) = own_names()?;
            let region = names.open_compartment(parent, worker, &key, quota_bytes)?;
            Session::over(region, Consistency::Direct)
        };
        open().map(Box::new).inspect_err(|_| ending::forget())
    }

    fn open_watched(name: &str, limit_bytes: u64, mode: Consistency) -> Result<Session, Failure> {
        let name = RegionName::parse(name)?;
        if let Some(socket) = Ground::keeper() {
            return Session::open_served(&name, limit_bytes, mode, &socket);
        }
        let (names, key) = own_names()?;
        let limit_bytes = if limit_bytes == 0 { LIMIT_BYTES_DEFAULT } else { limit_bytes };
        // Asked first: other readers would keep a writer out. Any caller may make a heap
        // that is not there yet.
        let reads_only = names.access(&name, &key).is_ok_and(|access| !access.may_write());
        let region = match reads_only {
            true => names.open_read_only(&name, &key)?,
            false => names.open_or_create(&name, &key, limit_bytes)?,
        };
        Session::over(region, mode)
    }

    /// The heap in a region of this user's.
    fn over(mut region: Region, mode: Consistency) -> Result<Session, Failure> {
        let name = region.name().to_string();
        region.set_consistency(mode)?;
        let options =
            HeapOptions { portable: PORTABLE.load(Ordering::Relaxed), ..HeapOptions::default() };
        let (heap, region) = if crate::types::is_empty() {
            open_heap_on(region, options, NativeBacking::Own)?
        } else {
            let types = crate::types::all();
            let (heap, region, _) =
                open_typed_heap_on(region, options, &types, NativeBacking::Own)?;
            (heap, region)
        };
        region.hide_from_children().map_err(Failure::CannotHide)?;
        Ok(Session { name, calls: Calls::new(heap), ground: Ground::Own(region) })
    }

    /// From the keeper: neither home nor key of this user is looked at.
    fn open_served(
        name: &RegionName,
        limit_bytes: u64,
        mode: Consistency,
        socket: &Path,
    ) -> Result<Session, Failure> {
        if mode != Consistency::Direct {
            return Err(Failure::ServedMode);
        }
        if std::env::var_os(BACKING_VARIABLE).is_some_and(|medium| medium == "file") {
            return Err(Failure::ServedBacking);
        }
        let limit_bytes = if limit_bytes == 0 { LIMIT_BYTES_DEFAULT } else { limit_bytes };
        let portable = PORTABLE.load(Ordering::Relaxed);
        let (heap, region) = Ground::borrow(socket, name.as_str(), limit_bytes, portable)?;
        region.hide_from_children().map_err(Failure::CannotHide)?;
        Ok(Session {
            name: name.to_string(),
            calls: Calls::new(heap),
            ground: Ground::Served(region),
        })
    }

    fn open_from_environment() -> Result<Box<Session>, Failure> {
        let name = variable(NAME_VARIABLE).ok_or(Failure::NotGranted)?;
        let limit_bytes = match variable(SIZE_VARIABLE) {
            Some(size) => parse_size(&size.to_string_lossy())?,
            None => 0,
        };
        let mode = match variable(MODE_VARIABLE)
            .map(|mode| mode.to_string_lossy().into_owned())
            .as_deref()
        {
            None | Some("direct") => Consistency::Direct,
            Some("atomic") => Consistency::Atomic,
            Some(other) => return Err(Failure::BadMode { mode: other.to_owned() }),
        };
        let reserved = match variable(RESERVE_VARIABLE) {
            Some(size) => parse_size(&size.to_string_lossy()).map_err(Failure::Reserve)?,
            None => 0,
        };
        let mut session = Session::open(&name.to_string_lossy(), limit_bytes, mode)?;
        if reserved > 0
            && let Err(error) = session.calls.reserve(reserved)
        {
            let closed = session.close();
            ending::forget();
            return Err(closed.err().unwrap_or_else(|| error.into()));
        }
        Ok(session)
    }

    /// Whether [`Session::roll_back`] is possible now.
    fn check_rollback(&self) -> Result<(), Failure> {
        if self.ground.consistency() != Consistency::Atomic {
            return Err(RegionError::NotAtomic { name: self.name.clone() }.into());
        }
        Ok(self.calls.outside_transactions()?)
    }

    /// Goes back to the last commit. After an error nothing is left open, and nothing was
    /// published.
    fn roll_back(self: Box<Session>) -> Result<Box<Session>, Failure> {
        let Session { name, calls, ground } = *self;
        let Ground::Own(region) = &ground else { return Err(Failure::Ending) };
        let calls = calls.replace_heap(|heap| roll_back_on(heap, region));
        let calls = calls.map_err(|error: OpenHeapError| Failure::from(error))?;
        Ok(Box::new(Session { name, calls, ground }))
    }

    fn close(self: Box<Session>) -> Result<(), Failure> {
        drop(self.calls.close());
        self.ground.close()
    }

    /// What closing needs of the keeper, which may not be there: done while the heap is open, so
    /// that it can be tried again.
    fn prepare_close(&mut self) -> Result<(), Failure> {
        let Ground::Served(region) = &self.ground else { return Ok(()) };
        while self.calls.heap().in_transaction() {
            self.calls.abort()?;
        }
        region.commit(Durability::Power)?;
        Ok(())
    }

    /// Leaves the heap as a kill would, still mapped, because other threads may be storing to it:
    /// nothing that needs them to rest is done, so there is no checkpoint, and the image does not
    /// count as closed. An open transaction belongs to the thread that runs it; the next process
    /// rolls it back. In the mode `atomic` their stores are stopped first, and then everything
    /// counts.
    fn leave(self: Box<Session>) -> Result<(), Failure> {
        // The kernel unmaps it and releases the locks.
        let session = Box::leak(self);
        // A keeper takes back what was lent when the process is gone.
        let Ground::Own(region) = &session.ground else { return Ok(()) };
        let (mode, start, bytes) = region.with(|region: &mut Region| {
            (region.consistency(), region.mapping(), region.backed_bytes())
        });
        if let (Consistency::Atomic, Some(start)) = (mode, start) {
            ending::stop_stores(start, bytes as usize).map_err(Failure::CannotStop)?;
            region.commit(Durability::Process)?;
        }
        Ok(())
    }
}

/// The name space of this user, and the key that opens its heaps.
fn own_names() -> Result<(NameSpace, OwnerKey), Failure> {
    let places = Places::from_env()?;
    holdfast_keeper_client::use_for_room();
    let key = OwnerKey::load_or_create(&places, KEY_NAME)?;
    let medium = match variable(BACKING_VARIABLE) {
        Some(medium) => medium.to_string_lossy().parse()?,
        None => Medium::default(),
    };
    Ok((NameSpace::new(places).with_medium(medium), key))
}

/// A variable of the environment that says something.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The heap of a program that names none: `app.` and the name of its file, in the alphabet of
/// names.
fn application_heap() -> Result<String, Failure> {
    let file = std::env::current_exe().map_err(Failure::NoProgramName)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let in_alphabet: String = name.chars().map(|c| if is_allowed(c) { c } else { '-' }).collect();
    let name = format!("{APPLICATION_PREFIX}{in_alphabet}");
    Ok(name.chars().take(NAME_BYTES_MAX).collect())
}

impl State {
    /// A heap was opened.
    fn put(&mut self, session: Box<Session>) {
        CURRENT.store(next_number(), Ordering::Release);
        *self = State::Open(session);
    }

    /// The open heap, if there is one, in exchange for what there is afterwards.
    fn take(&mut self, afterwards: State) -> Option<Box<Session>> {
        match std::mem::replace(self, afterwards) {
            State::Open(session) => {
                CURRENT.store(0, Ordering::Release);
                Some(session)
            }
            State::Ended => {
                *self = State::Ended;
                None
            }
            State::Closed | State::LetGo => None,
        }
    }

    /// Whether threads may allocate and free without the lock: what they do in an open transaction
    /// belongs to that.
    fn allows_quick(&mut self) -> bool {
        match self {
            State::Open(session) => !session.calls.heap().in_transaction(),
            _ => false,
        }
    }

    /// The open heap; opens the one that the environment names if none is.
    fn session(&mut self) -> Result<&mut Session, Failure> {
        if let State::Closed = self {
            self.put(Session::open_from_environment()?);
        }
        match self {
            State::Open(session) => Ok(session),
            State::LetGo => Err(Failure::LetGo),
            _ => Err(Failure::Ending),
        }
    }
}

impl Sessions {
    /// The open heap of a handle.
    fn session(&mut self, heap: HeapHandle) -> Result<&mut Session, Failure> {
        match heap.index() {
            Some(_) if first_handle() == Some(heap) => match &mut self.first {
                State::Open(session) => Ok(session),
                _ => Err(Failure::NoSuchHandle),
            },
            Some(index) => {
                let place = index.checked_sub(1).and_then(|place| self.others.get_mut(place));
                place.and_then(Option::as_deref_mut).ok_or(Failure::NoSuchHandle)
            }
            None => Err(Failure::NoSuchHandle),
        }
    }

    /// The handle of the heap of this name, if it is open.
    fn find(&self, name: &str) -> Option<HeapHandle> {
        if matches!(&self.first, State::Open(session) if session.name == name) {
            return first_handle();
        }
        let is_it = |other: &Option<Box<Session>>| other.as_ref().is_some_and(|s| s.name == name);
        self.others.iter().position(is_it).map(|index| HeapHandle::of(index + 1))
    }

    /// Everything that is open, taken out for the end of the process.
    fn take_all(&mut self) -> Vec<Box<Session>> {
        let others = self.others.drain(..).flatten();
        let mut all: Vec<_> = others.collect();
        all.extend(self.first.take(State::Ended));
        all
    }
}

/// The handle of the heap of the functions without one, if it is open: by the number of its
/// session, behind the indices of all others.
fn first_handle() -> Option<HeapHandle> {
    let number = CURRENT.load(Ordering::Acquire) as usize;
    (number != 0).then(|| HeapHandle::of(OTHERS_MAX + number))
}

/// Whether it is, or was, the handle of such a heap.
fn is_of_first(heap: HeapHandle) -> bool {
    heap.index().is_some_and(|index| index > OTHERS_MAX)
}

/// The number of a session that is about to begin.
fn next_number() -> u64 {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    OPENED.fetch_add(1, Ordering::Relaxed) + 1
}

/// Runs `work` with the session of the functions without a handle: that of the compartment that
/// the calling thread has entered, or the process's.
fn current_session<R>(
    first: impl FnOnce(&mut State) -> Result<(), Failure>,
    work: impl FnOnce(&mut Session) -> Result<R, Failure>,
) -> Result<R, c_int> {
    if is_in_compartment() {
        return with_stay(work);
    }
    locked(|state| {
        first(state)?;
        work(state.session()?)
    })
}

/// The name of the heap in which the threads of this process have their compartments, if `check`
/// allows that.
fn compartments_parent(check: impl FnOnce() -> Result<(), Failure>) -> Result<RegionName, c_int> {
    locked(|state| {
        check()?;
        let session = state.session()?;
        match &session.ground {
            Ground::Own(_) => Ok(RegionName::parse(&session.name)?),
            Ground::Served(_) => Err(Failure::ServedCompartment),
        }
    })
}

/// Runs `work` with the heap of the functions without a handle; as [`locked_all`].
fn locked<R>(work: impl FnOnce(&mut State) -> Result<R, Failure>) -> Result<R, c_int> {
    locked_all(|all| work(&mut all.first))
}

/// Runs `work` under the lock; whatever happens is noted for this thread and has a code.
fn locked_all<R>(work: impl FnOnce(&mut Sessions) -> Result<R, Failure>) -> Result<R, c_int> {
    if let Some(opener) = ending::forked_from() {
        return Err(note(&Failure::Forked { opener }));
    }
    let all = || {
        let done = STATE.with(|all| {
            let result = work(all);
            quick::allow(all.first.allows_quick());
            result
        });
        // Case by case: a failure is large, and most calls would move what they do not have.
        match done {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(failure)) => Err(note(&failure)),
            Err(Poisoned) => Err(note(&Failure::Panicked)),
        }
    };
    // Unwind safe: the state is under the lock, which a panic poisons.
    catch_unwind(AssertUnwindSafe(all)).unwrap_or_else(|_| {
        quick::allow(false);
        Err(note(&Failure::Panicked))
    })
}

/// Gives the slabs of a thread that ends back, if the heap that they are of is open. Notes nothing.
fn give_back(slabs: Box<ThreadSlabs>) {
    if ending::forked_from().is_some() {
        return;
    }
    // A thread that is inside a call may be this one, in a handler that ends the process, or may
    // wait for a disk: the heap knows these slabs, and takes them back when it needs them.
    let mut slabs = Some(slabs);
    for _ in 0..PATIENCE_MS {
        let taken = STATE.try_with(|all| {
            if let State::Open(session) = &mut all.first
                && let Some(slabs) = slabs.take_if(|slabs| slabs.are_of(session.calls.heap()))
            {
                slabs.give_back(session.calls.heap());
            }
        });
        match taken {
            Err(NotTaken::Held) => std::thread::sleep(Duration::from_millis(1)),
            Ok(()) | Err(NotTaken::Poisoned) => return,
        }
    }
}

/// `nv_session`.
pub(crate) fn current() -> u64 {
    if ending::forked_from().is_some() {
        return 0;
    }
    stay_number().unwrap_or_else(|| CURRENT.load(Ordering::Acquire))
}

/// Whether some thread is inside a call, or was when this process was forked off.
pub(crate) fn is_busy() -> bool {
    STATE.is_held()
}

/// `nv_portable`.
pub(crate) fn set_portable(portable: bool) {
    PORTABLE.store(portable, Ordering::Relaxed);
}

/// `nv_open`; without a name, as the environment says.
pub(crate) fn open(name: Option<&str>, limit_bytes: u64, mode: Consistency) -> Result<(), c_int> {
    locked(|state| {
        match state {
            _ if is_in_compartment() => return Err(Failure::IsInCompartment),
            State::Closed | State::LetGo => {}
            State::Open(session) => return Err(Failure::IsOpen { name: session.name.clone() }),
            State::Ended => return Err(Failure::Ending),
        }
        state.put(match name {
            Some(name) => Session::open(name, limit_bytes, mode)?,
            None => Session::open_from_environment()?,
        });
        Ok(())
    })
}

/// `nv_close`; nothing is open: nothing to do.
pub(crate) fn close() -> Result<(), c_int> {
    close_first(|| Ok(()))
}

/// As [`close`], if `check` allows that.
fn close_first(check: impl FnOnce() -> Result<(), Failure>) -> Result<(), c_int> {
    locked(|state| {
        check_outside()?;
        check()?;
        if let State::Closed = state {
            return Ok(());
        }
        if let State::Open(session) = state {
            session.prepare_close()?;
        }
        let Some(session) = state.take(State::LetGo) else { return Ok(()) };
        let closed = session.close();
        ending::forget();
        closed
    })
}

/// `nv_heap_open`: the heap of this name, opened beside those that are open, or the one that is
/// open already. Without a name the one of the functions without a handle.
pub(crate) fn open_other(name: Option<&str>) -> Result<HeapHandle, c_int> {
    locked_all(|all| {
        let Some(name) = name else {
            all.first.session()?;
            return first_handle().ok_or(Failure::NoSuchHandle);
        };
        if let State::Ended = all.first {
            return Err(Failure::Ending);
        }
        if let Some(open) = all.find(name) {
            return Ok(open);
        }
        if all.others.len() >= OTHERS_MAX {
            return Err(Failure::TooManyHandles { limit: OTHERS_MAX });
        }
        let session = Session::open(name, 0, Consistency::Direct)?;
        all.others.push(Some(session));
        Ok(HeapHandle::of(all.others.len()))
    })
}

/// `nv_heap_close`.
pub(crate) fn close_other(heap: HeapHandle) -> Result<(), c_int> {
    if is_of_first(heap) {
        let is_open = || match first_handle() {
            Some(first) if first == heap => Ok(()),
            _ => Err(Failure::NoSuchHandle),
        };
        return close_first(is_open);
    }
    locked_all(|all| {
        all.session(heap)?.prepare_close()?;
        let place = heap.index().and_then(|index| index.checked_sub(1));
        let place = place.and_then(|place| all.others.get_mut(place));
        let Some(session) = place.and_then(Option::take) else { return Ok(()) };
        let closed = session.close();
        ending::forget();
        closed
    })
}

/// `nv_set_limit`.
pub(crate) fn set_limit(limit_bytes: u64) -> Result<(), c_int> {
    let set = |session: &mut Session| {
        // Threads that allocate on their own must not store meanwhile.
        session.calls.heap().take_back_slabs();
        session.ground.set_limit(limit_bytes)
    };
    current_session(|_| Ok(()), set)
}

/// `nv_rollback`.
pub(crate) fn roll_back_to_commit() -> Result<(), c_int> {
    locked(|state| {
        check_outside()?;
        state.session()?.check_rollback()?;
        let current = CURRENT.load(Ordering::Acquire);
        let Some(session) = state.take(State::Closed) else { return Ok(()) };
        *state = State::Open(session.roll_back().inspect_err(|_| ending::forget())?);
        documents::forget(current, None);
        // The same session goes on.
        CURRENT.store(current, Ordering::Release);
        Ok(())
    })
}

/// Works with the documents of the open heap. `first` comes before the heap is asked for, which may
/// be none.
pub(crate) fn with_documents<K, R>(
    first: impl FnOnce(()) -> Result<K, Failure>,
    work: impl FnOnce(&mut Lent<'_>, K) -> Result<R, Failure>,
) -> Result<R, c_int> {
    let known = Cell::new(None);
    let ask_first = || first(()).map(|found| known.set(Some(found)));
    let work = |session: &mut Session| {
        let known = known.take().ok_or(Failure::Panicked)?;
        // No thread allocates in it on its own while its bytes are lent.
        session.calls.heap().take_back_slabs();
        let documents = Documents::lent(session.calls.heap());
        work(&mut documents.ok_or(Failure::Panicked)?, known)
    };
    if is_in_compartment() {
        return with_stay(|session| ask_first().and_then(|()| work(session)));
    }
    locked(|state| {
        ask_first()?;
        work(state.session()?)
    })
}

/// The end of the process. Other threads that are left keep the heap from being closed, and one
/// that stays inside a call from everything else; in the mode `direct` that costs a checkpoint and
/// no data.
pub(crate) fn end() {
    let closed = catch_unwind(|| {
        for _ in 0..PATIENCE_MS {
            let ended = STATE.try_with(|all| {
                quick::allow(false);
                let ended: Vec<_> = all.take_all().into_iter().map(end_session).collect();
                ended.into_iter().collect()
            });
            match ended {
                Ok(ended) => return ended,
                Err(NotTaken::Held) => std::thread::sleep(Duration::from_millis(1)),
                Err(NotTaken::Poisoned) => break,
            }
        }
        Ok(())
    });
    if let Ok(Err(failure)) = closed {
        // No one is left to ask for it.
        let what = match failure {
            Failure::Keeper(_) => "what was stored since the last commit did not reach a keeper",
            _ => "the heap is in the pool, but was not closed in order",
        };
        let text = format!("holdfast: {what}: {failure}\n");
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

fn end_session(mut session: Box<Session>) -> Result<(), Failure> {
    match ending::is_alone() {
        true => session.prepare_close().and_then(|()| session.close()),
        false => session.leave(),
    }
}

// --- compartments
// -------------------------------------------------------------------------------------------------

/// The names of the compartments that threads of this process have, `HEAP+WORKER`.
static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The number of the calling thread's session, 0 outside of compartments. Without a
    /// destructor, so that it can be asked for to the very end of a thread.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static STAY: RefCell<Option<Stay>> = const { RefCell::new(None) };
}

/// A name on the list of those that are taken.
struct TakenName(String);

impl TakenName {
    fn take(name: &RegionName) -> Result<TakenName, Failure> {
        let is_new = taken(|names| names.insert(name.to_string()));
        match is_new {
            true => Ok(TakenName(name.to_string())),
            false => Err(Failure::HeldByThread { name: name.to_string() }),
        }
    }
}

impl Drop for TakenName {
    fn drop(&mut self) {
        taken(|names| names.remove(&self.0));
    }
}

fn taken<R>(work: impl FnOnce(&mut BTreeSet<String>) -> R) -> R {
    // Nothing panics under it.
    work(&mut TAKEN.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Stay {
    /// Taken out to be closed.
    session: Option<Box<Session>>,
    /// Dropped after the session, so that the next thread with this name finds the region closed.
    name: Option<TakenName>,
}

impl Stay {
    fn close(mut self) -> Result<(), Failure> {
        let closed = self.session.take().map_or(Ok(()), |session| session.close());
        ending::forget();
        closed
    }

    /// Leaves everything as a kill would.
    fn abandon(mut self) {
        std::mem::forget(self.session.take());
        std::mem::forget(self.name.take());
    }
}

impl Drop for Stay {
    /// The thread ends.
    fn drop(&mut self) {
        NUMBER.set(0);
        if ending::forked_from().is_some() {
            std::mem::forget(self.session.take());
            std::mem::forget(self.name.take());
        } else if let Some(session) = self.session.take() {
            // No one is left to hear of a failure; the region is as after a kill then.
            let _ = catch_unwind(AssertUnwindSafe(|| session.close()));
            ending::forget();
        }
    }
}

/// Whether any thread was ever in a compartment: a program without them asks for no thread's own
/// storage.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Whether any thread was ever in a compartment.
pub(crate) fn has_compartments() -> bool {
    ENTERED.load(Ordering::Relaxed)
}

/// Whether the calling thread is in a compartment.
#[inline]
fn is_in_compartment() -> bool {
    // What this thread has stored it finds again.
    ENTERED.load(Ordering::Relaxed) && stay_number().is_some()
}

/// The number of the calling thread's session, if it is in a compartment.
#[inline(never)]
fn stay_number() -> Option<u64> {
    Some(NUMBER.get()).filter(|number| *number != 0)
}

/// Refuses what is not possible in a compartment.
fn check_outside() -> Result<(), Failure> {
    if is_in_compartment() { Err(Failure::InCompartment) } else { Ok(()) }
}

/// Runs `work` with the session of the compartment that the calling thread has entered; whatever
/// happens is noted for this thread and has a code. The thread must be in one.
#[inline(never)]
fn with_stay<R>(work: impl FnOnce(&mut Session) -> Result<R, Failure>) -> Result<R, c_int> {
    if let Some(opener) = ending::forked_from() {
        return Err(note(&Failure::Forked { opener }));
    }
    let in_stay = || {
        STAY.with_borrow_mut(|stay| {
            let session = stay.as_mut().and_then(|stay| stay.session.as_deref_mut());
            work(session.ok_or(Failure::Ending)?)
        })
    };
    // Unwind safe: what a panic leaves is abandoned.
    let result = catch_unwind(AssertUnwindSafe(in_stay)).unwrap_or_else(|_| {
        if let Some(stay) = leave_stay() {
            stay.abandon();
        }
        Err(Failure::Panicked)
    });
    result.map_err(|failure| note(&failure))
}

fn leave_stay() -> Option<Stay> {
    NUMBER.set(0);
    STAY.try_with(|stay| stay.try_borrow_mut().ok().and_then(|mut stay| stay.take())).ok()?
}

/// `nv_compartment_enter`.
pub(crate) fn enter_compartment(name: Option<&str>) -> Result<(), c_int> {
    let parent = compartments_parent(|| {
        if is_in_compartment() {
            return Err(Failure::IsInCompartment);
        }
        if is_thread_in_transaction() { Err(Failure::InTransaction) } else { Ok(()) }
    })?;
    // Unwind safe: nothing is shared that a panic could leave half done.
    let opened = catch_unwind(AssertUnwindSafe(|| open_stay(&parent, name)));
    let opened = opened.unwrap_or(Err(Failure::Panicked)).map_err(|failure| note(&failure))?;
    let mut stay = Some(opened);
    if STAY.try_with(|own| own.replace(stay.take())).is_err() {
        // A destructor at the thread's end has called: nothing after it would close this.
        let _ = catch_unwind(AssertUnwindSafe(|| stay.map(Stay::close)));
        return Err(note(&Failure::Ending));
    }
    // What this thread has of the heap outside is for its threads meanwhile.
    quick::give_back_now();
    ENTERED.store(true, Ordering::Relaxed);
    ending::note_compartments();
    NUMBER.set(next_number());
    Ok(())
}

fn open_stay(parent: &RegionName, name: Option<&str>) -> Result<Stay, Failure> {
    let quota_bytes = match variable(QUOTA_VARIABLE) {
        Some(size) => parse_size(&size.to_string_lossy()).map_err(Failure::Quota)?,
        None => QUOTA_BYTES_DEFAULT,
    };
    if let Some(name) = name {
        let worker = match RegionName::parse_any(name)?.parent_and_worker() {
            Some((of, worker)) if of == *parent => worker,
            Some(_) => return Err(Failure::NotItsCompartment { parent: parent.to_string() }),
            None => RegionName::parse(name)?,
        };
        return open_worker(parent, &worker, quota_bytes);
    }
    for number in 1..=NUMBERS_MAX {
        let worker = RegionName::parse(&format!("thread-{number}"))?;
        match open_worker(parent, &worker, quota_bytes) {
            Err(failure) if failure.is_held() => {}
            opened => return opened,
        }
    }
    Err(Failure::HeldByThread { name: parent.to_string() })
}

fn open_worker(
    parent: &RegionName,
    worker: &RegionName,
    quota_bytes: u64,
) -> Result<Stay, Failure> {
    let name = TakenName::take(&parent.compartment(worker).map_err(RegionError::from)?)?;
    let session = Session::open_compartment(parent, worker, quota_bytes)?;
    Ok(Stay { session: Some(session), name: Some(name) })
}

/// `nv_compartment_leave`.
pub(crate) fn leave_compartment() -> Result<(), c_int> {
    if let Some(opener) = ending::forked_from() {
        return Err(note(&Failure::Forked { opener }));
    }
    let Some(stay) = leave_stay() else { return Err(note(&Failure::OutsideCompartments)) };
    let closed = catch_unwind(AssertUnwindSafe(|| stay.close()));
    closed.unwrap_or(Err(Failure::Panicked)).map_err(|failure| note(&failure))
}

/// The C library of native programs.
pub(crate) struct Native;

impl Library for Native {
    type Backing = NativeBacking;
    type Error = Failure;

    fn with<R>(
        work: impl FnOnce(&mut Calls<NativeBacking>) -> Result<R, Failure>,
    ) -> Result<R, c_int> {
        current_session(|_| Ok(()), |session| work(&mut session.calls))
    }

    #[inline(always)]
    fn at_once<R>(work: impl FnOnce(&mut Calls<NativeBacking>) -> Option<R>) -> Option<R> {
        // In a forked child, too, the mark is another one.
        if !ending::is_plain() {
            return None;
        }
        let work = |all: &mut Sessions| {
            let State::Open(session) = &mut all.first else { return None };
            let done = work(&mut session.calls);
            quick::allow(!session.calls.heap().in_transaction());
            done
        };
        // Unwind safe: the state is under the lock, which a panic poisons. The long way, which the
        // caller takes next, finds that and notes it.
        catch_unwind(AssertUnwindSafe(|| STATE.as_owner(work).flatten())).unwrap_or_else(|_| {
            quick::allow(false);
            None
        })
    }

    #[inline(always)]
    fn allocate_quickly(bytes: u64, content: Content) -> Option<NonNull<u8>> {
        if !quick::is_allowed() {
            return match content {
                Content::Zeroes => {
                    Native::at_once(|calls| calls.heap().alloc_zeroed_at_once(bytes))
                }
                Content::Any => Native::at_once(|calls| calls.heap().alloc_at_once(bytes)),
            };
        }
        if ending::forked_from().is_some() { None } else { quick::allocate(bytes, content) }
    }

    fn allocate_anonymous(
        calls: &mut Calls<NativeBacking>,
        bytes: u64,
        content: Content,
    ) -> Result<NonNull<u8>, HeapCallError> {
        // One thread is in a compartment, and its heap is quick by itself.
        if is_in_compartment() {
            return calls.allocate_anonymous(bytes, content);
        }
        quick::allocate_in(calls, bytes, content, give_back)
    }

    #[inline]
    fn free_quickly(object: NonNull<u8>) -> bool {
        ending::forked_from().is_none() && quick::free(object)
    }

    fn free_anonymous(
        calls: &mut Calls<NativeBacking>,
        object: NonNull<u8>,
    ) -> Result<(), HeapCallError> {
        if is_in_compartment() {
            return calls.free(object);
        }
        quick::free_in(calls, object, give_back)
    }

    fn with_application<R>(
        work: impl FnOnce(&mut Calls<NativeBacking>) -> Result<R, Failure>,
    ) -> Result<R, c_int> {
        let open_application = |state: &mut State| {
            if matches!(state, State::Closed) && variable(NAME_VARIABLE).is_none() {
                state.put(Session::open(&application_heap()?, 0, Consistency::Direct)?);
            }
            Ok(())
        };
        current_session(open_application, |session| work(&mut session.calls))
    }

    fn with_in<R>(
        heap: HeapHandle,
        work: impl FnOnce(&mut Calls<NativeBacking>) -> Result<R, Failure>,
    ) -> Result<R, c_int> {
        locked_all(|all| work(&mut all.session(heap)?.calls))
    }

    fn check_user(uid: u64) -> Result<(), Failure> {
        let us = effective_user();
        if uid == u64::from(us) { Ok(()) } else { Err(Failure::OtherUser { uid, us }) }
    }

    fn make_durable(heap: &mut Heap<NativeBacking>, level: Durability) -> Result<(), Failure> {
        // Threads that allocate on their own must not store meanwhile: a publication drops pages.
        heap.take_back_slabs();
        Ground::commit(heap.backing(), level)
    }
}
