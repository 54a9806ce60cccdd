//! The imports of module `holdfast` with which an applet reaches its heaps (those with which it
//! serves are in [`crate::messages`], those of host functions in [`crate::host_imports`]). Allocation
//! itself needs none of them.
//!
//! `heap_open`, `heap_grow`, `heap_commit` and `heap_rollback` are for any heap; `attach`, `grow`,
//! `commit` and `rollback`, which are older, for the one that was granted first. `heap_open` finds
//! a compartment by its worker, too: by a name that begins with `+`, as that of no heap does.
//!
//! The applet is not trusted: every argument is checked, and nothing is believed about the heap's
//! content.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use holdfast_types::Durability;
use wasmtime::{Caller, Extern, Linker};

use crate::layout::WASM_PAGE_BYTES;
use crate::state::{StopCause, StoreState};
use holdfast_types::RequestStatus;

/// Name of the import module.
pub const MODULE: &str = "holdfast";
/// What it offers, as shown to someone whose applet asks for something else.
pub(crate) const OFFER: &str = "heap_open(name: i32, name_bytes: i32, out: i32) -> i32, heap_grow(heap: i32, at_least_bytes: i64) -> \
     i64, heap_commit(heap: i32, level: i32) -> i32, heap_rollback(heap: i32) -> i32, the same of the first heap as \
     attach(out: i32) -> i32, grow(at_least_bytes: i64) -> i64, commit(level: i32) -> i32, rollback() -> i32, receive(header: i32, payload: i32, capacity: i32) -> i32, \
     send(header: i32, payload: i32) -> i32, arena() -> i64, host_import(name: i32, name_bytes: i32) -> i32, host_call(function: i32, \
     input: i32, input_bytes: i32, output: i32, capacity: i32, record: i32) -> i32 and host_result(output: i32, bytes: i32) -> i32";

/// The oldest import: a program that has it may rely on where it put a new heap.
pub(crate) const ATTACH: &str = "attach";
/// The heap of the imports that name none.
const FIRST: usize = 0;
/// Longest name of a heap, in bytes, with a sign before it.
const NAME_BYTES_MAX: u32 = holdfast_channel::heaps::HEAP_NAME_BYTES_MAX as u32 + 1;

/// Size of what `attach` and `heap_open` write: base, backed, limit and flags, each a little-endian
/// u64.
const ATTACH_RECORD_BYTES: u64 = 32;
/// Flag in the attach record: this run created the region.
const FLAG_CREATED: u64 = 1;
/// Flag in the attach record: a store to the region ends the applet.
const FLAG_READ_ONLY: u64 = 2;
/// Flag in the attach record: stores count when they are published.
const FLAG_ATOMIC: u64 = 4;
/// Flag in the attach record: it is a compartment.
const FLAG_COMPARTMENT: u64 = 8;
/// Before the name of a compartment or of its worker; alone, for the compartment that there is.
const COMPARTMENT_SIGN: char = '+';

/// Adds the module to a linker.
pub(crate) fn add_to_linker(linker: &mut Linker<StoreState>) -> wasmtime::Result<()> {
    linker.func_wrap(
        MODULE,
        ATTACH,
        |mut caller: Caller<'_, StoreState>, out: i32| -> wasmtime::Result<i32> {
            let _crossing = caller.data().crossings.cross(ATTACH);
            go_on(&caller)?;
            Ok(open(&mut caller, Some(FIRST), u64::from(out as u32)).import_number())
        },
    )?;
    linker.func_wrap(
        MODULE,
        "heap_open",
        |mut caller: Caller<'_, StoreState>,
         name: i32,
         bytes: i32,
         out: i32|
         -> wasmtime::Result<i32> {
            let _crossing = caller.data().crossings.cross("heap_open");
            go_on(&caller)?;
            let found = find(&mut caller, name as u32, bytes as u32);
            let opened =
                found.and_then(|index| match open(&mut caller, index, u64::from(out as u32)) {
                    RequestStatus::Ok => Ok(index.unwrap_or(FIRST) as i32),
                    status => Err(status),
                });
            Ok(opened.unwrap_or_else(|status| -status.import_number()))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "grow",
        |caller: Caller<'_, StoreState>, at_least_bytes: i64| -> wasmtime::Result<i64> {
            let _crossing = caller.data().crossings.cross("grow");
            go_on(&caller)?;
            Ok(grow(&caller, FIRST, at_least_bytes))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "heap_grow",
        |caller: Caller<'_, StoreState>, heap: i32, at_least_bytes: i64| -> wasmtime::Result<i64> {
            let _crossing = caller.data().crossings.cross("heap_grow");
            go_on(&caller)?;
            Ok(grow(&caller, index_of(heap), at_least_bytes))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "commit",
        |caller: Caller<'_, StoreState>, level: i32| -> wasmtime::Result<i32> {
            let _crossing = caller.data().crossings.cross("commit");
            go_on(&caller)?;
            Ok(commit(&caller, FIRST, level).import_number())
        },
    )?;
    linker.func_wrap(
        MODULE,
        "heap_commit",
        |caller: Caller<'_, StoreState>, heap: i32, level: i32| -> wasmtime::Result<i32> {
            let _crossing = caller.data().crossings.cross("heap_commit");
            go_on(&caller)?;
            Ok(commit(&caller, index_of(heap), level).import_number())
        },
    )?;
    linker.func_wrap(
        MODULE,
        "rollback",
        |caller: Caller<'_, StoreState>| -> wasmtime::Result<i32> {
            let _crossing = caller.data().crossings.cross("rollback");
            go_on(&caller)?;
            Ok(caller.data().link.roll_back_for_applet(FIRST).import_number())
        },
    )?;
    linker.func_wrap(
        MODULE,
        "heap_rollback",
        |caller: Caller<'_, StoreState>, heap: i32| -> wasmtime::Result<i32> {
            let _crossing = caller.data().crossings.cross("heap_rollback");
            go_on(&caller)?;
            Ok(caller.data().link.roll_back_for_applet(index_of(heap)).import_number())
        },
    )?;
    Ok(())
}

/// The index that an applet names; that of no heap if it names none.
fn index_of(heap: i32) -> usize {
    usize::try_from(heap).unwrap_or(usize::MAX)
}

/// Ends an applet that is to be stopped for what happened in host code: compiled code notices in
/// its next loop or call only, and until then nothing of what it computes may be published.
pub(crate) fn go_on(caller: &Caller<'_, StoreState>) -> wasmtime::Result<()> {
    match caller.data().link.host_fault() {
        Some(_) => Err(StopCause::HostFault.into()),
        None => Ok(()),
    }
}

/// The heap of the name at `start`; without a byte, the first one, if there is one.
fn find(
    caller: &mut Caller<'_, StoreState>,
    start: u32,
    bytes: u32,
) -> Result<Option<usize>, RequestStatus> {
    let link = caller.data().link.clone();
    if bytes == 0 {
        return Ok(link.find(None));
    }
    let range = u64::from(start)..u64::from(start) + u64::from(bytes);
    // No heap has a longer one.
    if bytes > NAME_BYTES_MAX {
        return Err(RequestStatus::NotGranted);
    }
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        return Err(RequestStatus::MemoryShape);
    };
    if !link.layout().is_present(&range) {
        return Err(RequestStatus::BadRange);
    }
    let name = memory.data(&caller).get(range.start as usize..range.end as usize);
    let name = name.ok_or(RequestStatus::BadRange)?;
    let name = core::str::from_utf8(name).ok();
    let index = name.and_then(|name| match name.strip_prefix(COMPARTMENT_SIGN) {
        Some(worker) => link.find_compartment((!worker.is_empty()).then_some(worker)),
        None => link.find(Some(name)),
    });
    index.map(Some).ok_or(RequestStatus::NotGranted)
}

/// Attaches the heaps, if that was not done, and writes where this one is.
fn open(caller: &mut Caller<'_, StoreState>, index: Option<usize>, out: u64) -> RequestStatus {
    let link = caller.data().link.clone();
    let Some(index) = index.filter(|_| link.find(None).is_some()) else {
        return RequestStatus::NotGranted;
    };
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        return RequestStatus::MemoryShape;
    };
    let record = out..out + ATTACH_RECORD_BYTES;
    if !link.layout().is_present(&record) {
        return RequestStatus::BadRange;
    }
    let code = attach_all(caller);
    if code != RequestStatus::Ok {
        return code;
    }
    let Some(attached) = link.attached(index) else { return RequestStatus::Failed };
    let created = if attached.created { FLAG_CREATED } else { 0 };
    let read_only = if attached.read_only { FLAG_READ_ONLY } else { 0 };
    let atomic = if attached.atomic { FLAG_ATOMIC } else { 0 };
    let compartment = if attached.compartment { FLAG_COMPARTMENT } else { 0 };
    let flags = created | read_only | atomic | compartment;
    let Some(target) = memory.data_mut(caller).get_mut(record.start as usize..record.end as usize)
    else {
        return RequestStatus::BadRange;
    };
    let values = [attached.base, attached.backed_bytes, attached.limit_bytes, flags];
    for (field, value) in target.chunks_exact_mut(8).zip(values) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    RequestStatus::Ok
}

/// Makes the memory reach to the end of the heaps, unless it does; the linear memory maps them and
/// the arena meanwhile.
pub(crate) fn attach_all(caller: &mut Caller<'_, StoreState>) -> RequestStatus {
    let link = caller.data().link.clone();
    if link.is_attached() {
        return RequestStatus::Ok;
    }
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        return RequestStatus::MemoryShape;
    };
    let size_bytes = memory.data_size(&caller) as u64;
    let Range { start: volatile_end_bytes, end: end_bytes } = link.attachment();
    let maximum_bytes = memory.ty(&caller).maximum().map(|pages| pages * WASM_PAGE_BYTES);
    if size_bytes > volatile_end_bytes || maximum_bytes.is_some_and(|maximum| maximum < end_bytes) {
        return RequestStatus::MemoryShape;
    }
    let engine = caller.engine().clone();
    link.begin_attach(Arc::new(move || engine.increment_epoch()));
    let grown = memory.grow(&mut *caller, (end_bytes - size_bytes) / WASM_PAGE_BYTES);
    if link.end_attach() && grown.is_ok() { RequestStatus::Ok } else { RequestStatus::Failed }
}

fn grow(caller: &Caller<'_, StoreState>, heap: usize, at_least_bytes: i64) -> i64 {
    let outcome = match u64::try_from(at_least_bytes) {
        Ok(at_least_bytes) => caller.data().link.grow(heap, at_least_bytes),
        Err(_) => Err(RequestStatus::LimitReached),
    };
    match outcome {
        Ok(backed_bytes) => i64::try_from(backed_bytes).unwrap_or(i64::MAX),
        Err(status) => -i64::from(status.import_number()),
    }
}

fn commit(caller: &Caller<'_, StoreState>, heap: usize, level: i32) -> RequestStatus {
    let link = &caller.data().link;
    match u32::try_from(level).ok().and_then(Durability::from_number) {
        _ if link.attached(heap).is_none() => RequestStatus::NotGranted,
        Some(Durability::Process) => link.publish(heap),
        // The stores of compiled code are not ordered: only the store survives a reset.
        Some(Durability::System | Durability::Power) => link.checkpoint(heap),
        None => RequestStatus::Unsupported,
    }
}
