//! Any bytes as a heap: opening, checking, surveying and using it never panics, hangs, or touches a
//! byte outside.
//!
//! The input is a list of edits to a heap that was in order, so that it gets behind the first
//! check; with the empty seed and one edit of many bytes it is plain bytes. An edit can also write
//! a record of the log, or a superblock, whose checksum is right: the author of a heap can do
//! that.

#![no_main]

use std::cell::RefCell;

use holdfast_fuzz::{Guarded, POINTERS, seeds};
use holdfast_heap::layout::{
    CHUNK_BYTES, DESCRIPTOR_BYTES, Head, HeadKind, LANE_OFFSET, LANE_STATE, RECORD_LENGTHS,
    RECORD_SEQUENCE, RECORD_SUM, RECORD_TARGET, SEGMENT_BYTES, SUPER_SUM,
};
use holdfast_heap::survey::Survey;
use holdfast_heap::{Heap, check};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const BYTES: usize = 1 << 20;
const OPERATIONS_MAX: usize = 40;
const RECORD_BYTES: u64 = 32;

#[derive(Arbitrary, Debug)]
struct Input {
    seed: u8,
    edits: Vec<Edit>,
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Debug)]
enum Edit {
    Bytes { at: u32, bytes: Vec<u8> },
    Word { at: u32, value: u64 },
    Bit { at: u32, bit: u8 },
    Head { chunk: u8, kind: u8, class: u8, span: u32 },
    Descriptor { chunk: u8, word: u8, value: u64 },
    Super { word: u8, value: u64 },
    Lane { word: u8, value: u64 },
    Record { at: u16, target: u32, bytes: u16, back: u16, kind: u8 },
    SealSuper,
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Alloc(u32),
    AllocAligned(u32, u8),
    Free(u32),
    FreeOwn(u8),
    Realloc(u8, u32),
    CreateRoot(u8, u16),
    RemoveRoot(u8),
    Begin,
    Commit,
    Abort,
    AddRange(u32, u16),
    AddRangeOwn(u8, u16),
    Usable(u32),
}

fn store(memory: &mut [u8], at: u64, bytes: &[u8]) {
    let at = at as usize % memory.len();
    let bytes = &bytes[..bytes.len().min(memory.len() - at)];
    memory[at..at + bytes.len()].copy_from_slice(bytes);
}

fn load(memory: &[u8], at: u64) -> u64 {
    memory
        .get(at as usize..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |word| u64::from_le_bytes(*word))
}

fn apply(memory: &mut [u8], edit: &Edit) {
    let word = |memory: &mut [u8], at: u64, value: u64| store(memory, at, &value.to_le_bytes());
    match edit {
        Edit::Bytes { at, bytes } => store(memory, u64::from(*at), bytes),
        Edit::Word { at, value } => word(memory, u64::from(*at & !7), *value),
        Edit::Bit { at, bit } => {
            let at = *at as usize % memory.len();
            memory[at] ^= 1 << (bit % 8);
        }
        Edit::Head { chunk, kind, class, span } => {
            let kinds = [
                HeadKind::Slab,
                HeadKind::Run,
                HeadKind::Log,
                HeadKind::Absent,
                HeadKind::Segment,
                HeadKind::Inside,
            ];
            let kind = kinds[usize::from(*kind) % kinds.len()];
            let head = Head { kind, class: *class, span: *span }.encode();
            word(memory, u64::from(chunk % 64) * DESCRIPTOR_BYTES, head);
        }
        Edit::Descriptor { chunk, word: index, value } => {
            word(
                memory,
                u64::from(chunk % 64) * DESCRIPTOR_BYTES + u64::from(index % 80) * 8,
                *value,
            );
        }
        Edit::Super { word: index, value } => word(memory, 64 + u64::from(index % 12) * 8, *value),
        Edit::Lane { word: index, value } => {
            word(memory, LANE_OFFSET + u64::from(index % 40) * 8, *value)
        }
        Edit::Record { at, target, bytes, back, kind } => {
            let at = LANE_OFFSET + u64::from(*at & !7) % (CHUNK_BYTES - RECORD_BYTES);
            let lengths = u64::from(*bytes) | u64::from(*back) << 32;
            let sequence = (load(memory, LANE_OFFSET + LANE_STATE) >> 1) << 8 | u64::from(*kind);
            let target = u64::from(*target) % (2 * BYTES as u64);
            word(memory, at + RECORD_TARGET, target);
            word(memory, at + RECORD_LENGTHS, lengths);
            word(memory, at + RECORD_SEQUENCE, sequence);
            let seed = (target ^ lengths.rotate_left(23) ^ sequence.rotate_left(41))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let payload = (at + RECORD_BYTES) as usize;
            let end = (payload + usize::from(*bytes)).min(memory.len());
            let sum = xxh3_64_with_seed(&memory[payload..end], seed);
            word(memory, at + RECORD_SUM, sum);
        }
        Edit::SealSuper => {
            let sum = xxh3_64(&memory[64..96]);
            word(memory, SUPER_SUM, sum);
        }
    }
}

/// Whether only objects of its own were touched: who frees a root's object, or has the tables
/// brought back to an older state, damages a heap by its interface.
fn operate(heap: &mut Heap<&mut Guarded>, operations: &[Operation]) -> bool {
    let mut fair = true;
    let mut own = Vec::new();
    let at = |heap: &Heap<&mut Guarded>, offset: u32| {
        heap.backing().at(u64::from(offset) % (BYTES as u64 + 64))
    };
    for operation in operations.iter().take(OPERATIONS_MAX) {
        match operation {
            Operation::Alloc(bytes) => {
                own.extend(heap.alloc(u64::from(bytes % (2 * SEGMENT_BYTES as u32))))
            }
            Operation::AllocAligned(bytes, power) => {
                own.extend(heap.alloc_aligned(u64::from(bytes % 300_000), 1 << (power % 24)));
            }
            Operation::Free(offset) => {
                let freed = heap.free(at(heap, *offset));
                own.retain(|pointer| *pointer != at(heap, *offset));
                fair &= freed.is_err();
            }
            Operation::FreeOwn(pick) if !own.is_empty() => {
                _ = heap.free(own.swap_remove(usize::from(*pick) % own.len()));
            }
            Operation::Realloc(pick, bytes) if !own.is_empty() => {
                let index = usize::from(*pick) % own.len();
                if let Ok(pointer) = heap.realloc(own[index], u64::from(bytes % 300_000)) {
                    own[index] = pointer;
                }
            }
            Operation::CreateRoot(name, bytes) => {
                _ = heap.create_root(&format!("root {name}"), u64::from(*bytes));
            }
            Operation::RemoveRoot(name) => _ = heap.remove_root(&format!("root {name}")),
            Operation::Begin => _ = heap.begin(),
            Operation::Commit => _ = heap.commit(),
            Operation::Abort => {
                // What was allocated since the beginning is not allocated any more.
                if heap.abort().is_ok() {
                    own.clear();
                }
            }
            Operation::AddRange(offset, bytes) => {
                fair &= heap.add_range(at(heap, *offset).as_ptr(), u64::from(*bytes)).is_err();
            }
            Operation::AddRangeOwn(pick, bytes) if !own.is_empty() => {
                let pointer: std::ptr::NonNull<u8> = own[usize::from(*pick) % own.len()];
                let usable = heap.usable_bytes(pointer).unwrap_or(0);
                _ = heap.add_range(pointer.as_ptr(), u64::from(*bytes).min(usable));
            }
            Operation::Usable(offset) => _ = heap.usable_bytes(at(heap, *offset)),
            // Without an object of its own.
            Operation::FreeOwn(_) | Operation::Realloc(..) | Operation::AddRangeOwn(..) => {}
        }
    }
    fair
}

fn look(bytes: &[u8]) -> bool {
    if let Some(survey) = Survey::new(bytes) {
        survey.classes();
        survey.chunks().for_each(|_| {});
        survey.objects().for_each(|_| {});
        survey.roots().for_each(|_| {});
        survey.leaks(&mut |_| {});
    }
    check(bytes, &mut |_| {}).is_sound()
}

struct Scene {
    memory: Guarded,
    seeds: Vec<Vec<u8>>,
}

thread_local! {
    static SCENE: RefCell<Scene> =
        RefCell::new(Scene { memory: Guarded::new(BYTES), seeds: seeds(BYTES) });
}

fuzz_target!(|input: Input| {
    SCENE.with_borrow_mut(|scene| {
        let seed = &scene.seeds[usize::from(input.seed) % scene.seeds.len()];
        scene.memory.bytes_mut().copy_from_slice(seed);
        input.edits.iter().for_each(|edit| apply(scene.memory.bytes_mut(), edit));
        look(scene.memory.bytes());
        let Ok(mut heap) = Heap::open(&mut scene.memory, POINTERS) else { return };
        heap.usage();
        heap.roots().for_each(|_| {});
        let sound = look(heap.backing().bytes());
        let sound = operate(&mut heap, &input.operations) && sound;
        heap.close();
        // What was in order before it was used is so afterwards.
        assert!(!sound || look(scene.memory.bytes()), "using a sound heap has damaged it");
        let again = Heap::open(&mut scene.memory, POINTERS).map(drop);
        assert!(!sound || again.is_ok(), "a heap that was used in order does not open: {again:?}");
    });
});
