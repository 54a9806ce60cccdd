//! Notes in a persistent heap: an applet that serves. Its functions:
//!
//! - `add` keeps a text; returns how many there are, in decimal.
//! - `get` takes a number, the oldest note's being 1, and returns its text.
//! - `list` streams every text, oldest first, one chunk each.
//! - `clear` throws them all away.
//!
//! Invariants: a note is there altogether or not at all, in either mode, also under a kill;
//! pointers in the heap are the program's own, so a heap is for the kind of applet that made it.

#![deny(unsafe_op_in_unsafe_fn)]

use std::process::ExitCode;
use std::ptr::{NonNull, null_mut};

use holdfast_guest::{Call, Failure, Heap, HeapError, attach, export, serve_heap};

/// The root's name.
const BOOK: &str = "notes";
/// Codes of failures.
const NO_SUCH_NOTE: i32 = 2;
const CANCELLED: i32 = 3;

/// The root object; zeroes are an empty book.
#[repr(C)]
struct Book {
    first: *mut Note,
    last: *mut Note,
    count: u64,
}

/// What stands before a note's text.
#[repr(C)]
struct Note {
    next: *mut Note,
    bytes: u64,
}

fn book(heap: &mut Heap) -> Result<NonNull<Book>, HeapError> {
    let root = match heap.root(BOOK) {
        Some(root) => root.pointer,
        None => heap.create_root(BOOK, size_of::<Book>() as u64)?,
    };
    Ok(root.cast())
}

/// All notes, oldest first.
fn notes(book: NonNull<Book>) -> impl Iterator<Item = NonNull<Note>> {
    // SAFETY: the root is a book, whose links lead from note to note.
    let first = NonNull::new(unsafe { (*book.as_ptr()).first });
    // SAFETY: as above.
    std::iter::successors(first, |note| NonNull::new(unsafe { (*note.as_ptr()).next }))
}

fn text<'a>(note: NonNull<Note>) -> &'a [u8] {
    // SAFETY: a note's text follows it, and nothing changes it before `clear`, which runs in
    // another call.
    unsafe {
        std::slice::from_raw_parts(note.add(1).cast().as_ptr(), (*note.as_ptr()).bytes as usize)
    }
}

fn add(call: &mut Call) -> Result<(), Failure> {
    let input = call.input();
    let heap = call.heap()?;
    let book = book(heap)?.as_ptr();
    let count = heap.transaction(|heap| {
        let note = heap.alloc((size_of::<Note>() + input.len()) as u64)?.cast::<Note>().as_ptr();
        heap.add_range(book.cast(), size_of::<Book>() as u64)?;
        // SAFETY: the note has room for its head and the text, and is new; the book is the root,
        // was announced, and its last note, which is announced before it changes, is one that an
        // earlier call has made.
        unsafe {
            note.write(Note { next: null_mut(), bytes: input.len() as u64 });
            note.add(1).cast::<u8>().copy_from_nonoverlapping(input.as_ptr(), input.len());
            if (*book).last.is_null() {
                (*book).first = note;
            } else {
                heap.add_range((*book).last.cast(), size_of::<Note>() as u64)?;
                (*(*book).last).next = note;
            }
            (*book).last = note;
            (*book).count += 1;
            Ok::<u64, HeapError>((*book).count)
        }
    })?;
    Ok(call.reply(count.to_string().as_bytes())?)
}

fn get(call: &mut Call) -> Result<(), Failure> {
    let wanted: usize = std::str::from_utf8(call.input())?.trim().parse()?;
    let book = book(call.heap()?)?;
    match wanted.checked_sub(1).and_then(|index| notes(book).nth(index)) {
        Some(note) => Ok(call.reply(text(note))?),
        None => Err(call.fail(NO_SUCH_NOTE, format_args!("there is no note {wanted}"))),
    }
}

fn list(call: &mut Call) -> Result<(), Failure> {
    for note in notes(book(call.heap()?)?) {
        if call.is_cancelled() {
            return Err(call.fail(CANCELLED, "cancelled"));
        }
        call.send(text(note))?;
    }
    Ok(())
}

fn clear(call: &mut Call) -> Result<(), Failure> {
    let heap = call.heap()?;
    let book = book(heap)?;
    heap.transaction(|heap| {
        heap.add_range(book.as_ptr().cast(), size_of::<Book>() as u64)?;
        // In a transaction what is freed can still be read.
        for note in notes(book) {
            heap.free(note.cast())?;
        }
        // SAFETY: the root, announced above.
        unsafe { book.as_ptr().write(Book { first: null_mut(), last: null_mut(), count: 0 }) };
        Ok::<(), HeapError>(())
    })?;
    Ok(())
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    export("add", add)?;
    export("get", get)?;
    export("list", list)?;
    export("clear", clear)?;
    serve_heap(attach()?)?;
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("notes: {error}");
            ExitCode::FAILURE
        }
    }
}
