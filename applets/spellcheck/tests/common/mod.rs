//! A heap in plain memory whose bytes can be copied at any moment, as a killed run leaves them
//! behind, and dictionaries in a temporary directory.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use holdfast_heap::{Heap, HeapError, OpenOptions, Pointers, check};
use holdfast_spellcheck::arena::{Address, Arena, HeapArena, Place};
use holdfast_spellcheck::command;
use holdfast_spellcheck::options::Options;
pub use holdfast_testkit::TestMemory;

/// Attaches as an applet does: the same pointers, 4 bytes from 2 GiB on.
pub fn attach(memory: TestMemory) -> HeapArena<TestMemory> {
    let pointers = Some(Pointers { base: 0x8000_0000, bytes: 4 });
    HeapArena::new(Heap::open(memory, OpenOptions { pointers, format_if_empty: true }).unwrap())
}

/// Attaches a portable heap, as an applet does today.
pub fn attach_portable(memory: TestMemory) -> HeapArena<TestMemory> {
    let pointers = Some(Pointers::PORTABLE);
    HeapArena::new(Heap::open(memory, OpenOptions { pointers, format_if_empty: true }).unwrap())
}

/// Closes a heap and checks its bytes.
pub fn detach(arena: HeapArena<TestMemory>) -> TestMemory {
    let memory = arena.into_heap().close();
    let mut findings = Vec::new();
    assert!(
        check(memory.bytes(), &mut |finding| findings.push(finding)).is_sound(),
        "{findings:#x?}"
    );
    memory
}

/// What a run said: status (or the error's message), standard output, standard error.
pub struct Said {
    pub status: Result<u8, String>,
    pub out: String,
    pub notes: String,
}

pub fn run<A: Arena>(arena: &mut A, arguments: &[&str]) -> Said {
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let options = Options::parse(arguments.iter().map(|argument| (*argument).to_owned()));
    let status = options
        .and_then(|options| command::run(arena, &options, &mut out, &mut notes))
        .map_err(|error| error.to_string());
    Said { status, out: String::from_utf8(out).unwrap(), notes: String::from_utf8(notes).unwrap() }
}

/// What has been written so far, for two to look at.
#[derive(Clone, Default)]
pub struct SharedOutput(Rc<RefCell<Vec<u8>>>);

impl SharedOutput {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.borrow().clone()).unwrap()
    }
}

impl Write for SharedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A heap that dies at the n-th call that changes it: its bytes and the output are as a kill leaves
/// them behind, and every further call fails.
pub struct Dying {
    arena: HeapArena<TestMemory>,
    error: fn() -> HeapError,
    is_kept: bool,
    calls_left: u64,
    output: SharedOutput,
    left_behind: Option<(TestMemory, String)>,
}

impl Dying {
    /// Runs a command that is killed; `None` when it ends before. Otherwise heap and output.
    pub fn run(memory: TestMemory, calls: u64, arguments: &[&str]) -> Option<(TestMemory, String)> {
        let mut output = SharedOutput::default();
        let mut dying = Dying {
            arena: attach(memory),
            error: || HeapError::OutsideHeap,
            is_kept: true,
            calls_left: calls,
            output: output.clone(),
            left_behind: None,
        };
        let options =
            Options::parse(arguments.iter().map(|argument| (*argument).to_owned())).unwrap();
        // The error that follows the kill is no one's.
        let _ = command::run(&mut dying, &options, &mut output, &mut io::sink());
        dying.left_behind
    }

    /// A heap that was granted for reading.
    pub fn read_only(memory: TestMemory) -> Dying {
        let error = || HeapError::ReadOnly;
        Dying { error, calls_left: 0, ..Dying::volatile(memory) }
    }

    /// A heap that ends with the run, for all that the run knows; it does not die.
    pub fn volatile(memory: TestMemory) -> Dying {
        Dying {
            arena: attach(memory),
            error: || HeapError::OutsideHeap,
            is_kept: false,
            calls_left: u64::MAX,
            output: SharedOutput::default(),
            left_behind: None,
        }
    }

    fn step(&mut self) -> Result<(), HeapError> {
        if self.calls_left == 0 && self.left_behind.is_none() {
            self.left_behind = Some((self.arena.heap().backing().copy(), self.output.text()));
        }
        self.calls_left = self.calls_left.saturating_sub(1);
        if self.left_behind.is_some() { Err((self.error)()) } else { Ok(()) }
    }
}

// SAFETY: passes everything on to an arena, or fails.
unsafe impl Arena for Dying {
    fn is_kept(&self) -> bool {
        self.is_kept
    }

    fn place(&self) -> Place {
        self.arena.place()
    }

    fn alloc_zeroed(&mut self, bytes: u32) -> Result<Address, HeapError> {
        self.step()?;
        self.arena.alloc_zeroed(bytes)
    }

    fn free(&mut self, address: Address, bytes: u32) -> Result<(), HeapError> {
        self.step()?;
        self.arena.free(address, bytes)
    }

    fn add_range(&mut self, address: Address, bytes: u32) -> Result<(), HeapError> {
        self.step()?;
        self.arena.add_range(address, bytes)
    }

    fn begin(&mut self) -> Result<(), HeapError> {
        self.step()?;
        self.arena.begin()
    }

    fn commit(&mut self) -> Result<(), HeapError> {
        self.step()?;
        self.arena.commit()
    }

    fn abort(&mut self) {}

    fn root(&self, name: &str) -> Option<(Address, u32)> {
        self.arena.root(name)
    }

    fn create_root(&mut self, name: &str, bytes: u32) -> Result<Address, HeapError> {
        self.step()?;
        self.arena.create_root(name, bytes)
    }

    fn remove_root(&mut self, name: &str) -> Result<(), HeapError> {
        self.step()?;
        self.arena.remove_root(name)
    }

    fn roots(&self, prefix: &str) -> Vec<String> {
        self.arena.roots(prefix)
    }
}
