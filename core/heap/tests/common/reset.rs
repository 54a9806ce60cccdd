//! Operations on an ordered heap whose machine may be reset after each store: whatever reached
//! memory then, the heap that is opened on it shows the state before the operation or after it, and
//! after the operation's end only that.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use holdfast_heap::recorder::{self, Event};
use holdfast_heap::{Backing, Fixed, GrowError, Handle, Heap, OpenError, OpenOptions, Root, check};

use super::medium::{Losing, Medium};
use super::{OPTIONS, TestMemory};

/// A backing in memory that survives a reset.
#[derive(Debug)]
pub struct Ordered<B: Backing>(pub B);

// SAFETY: as the backing inside.
unsafe impl<B: Backing> Backing for Ordered<B> {
    fn base(&self) -> *mut u8 {
        self.0.base()
    }
    fn backed_bytes(&self) -> u64 {
        self.0.backed_bytes()
    }
    fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes()
    }
    fn is_ordered(&self) -> bool {
        true
    }
    fn grow(&mut self, bytes: u64) -> Result<u64, GrowError> {
        self.0.grow(bytes)
    }
}

pub type OrderedHeap = Heap<Ordered<TestMemory>>;

/// The name of the root with links: offsets of objects, or 0, which tell their lengths themselves.
pub const LINKS: &str = "links";
pub const LINKS_MAX: usize = 16;

/// Of so many images, one has its recovery reset as well.
const RECOVERIES_EVERY: u64 = 64;
/// Images of one moment of a recovery.
const RECOVERY_IMAGES_MAX: u64 = 8;

/// Whatever a heap shows, by what image that was found.
type Shown = BTreeMap<Result<Vec<u8>, String>, String>;

/// Watches a heap's memory during operations.
pub struct Watch {
    medium: Rc<RefCell<Medium>>,
    now: Vec<u8>,
}

/// Memory of so many bytes, all of which can be used: growing is the region's.
pub fn memory_of(bytes: u64) -> TestMemory {
    let mut memory = TestMemory::new(bytes);
    while memory.backed_bytes() < bytes {
        memory.grow(bytes).unwrap();
    }
    memory
}

impl Watch {
    /// All of it has reached the memory so far.
    pub fn new(memory: &TestMemory, seed: u64, images_max: u64) -> Watch {
        let now = state_of(&memory.copy()).unwrap();
        Watch { medium: Rc::new(RefCell::new(Medium::new(memory, seed, images_max))), now }
    }

    pub fn images(&self) -> u64 {
        self.medium.borrow().images
    }

    /// From now on the medium misses something.
    pub fn lose(&self, losing: Losing) {
        self.medium.borrow_mut().losing = losing;
    }

    /// Does what returns a heap, and looks at everything that a reset in the middle of it or right
    /// after it could leave. What is wrong is an error.
    pub fn during<'a>(
        &mut self,
        what: &str,
        work: impl FnOnce() -> &'a mut OrderedHeap,
    ) -> Result<&'a mut OrderedHeap, String> {
        self.watch(what, work, |heap| observe(heap, heap.backing().0.bytes()))
    }

    /// As `during`, of a heap that is made.
    pub fn during_making(
        &mut self,
        what: &str,
        work: impl FnOnce() -> OrderedHeap,
    ) -> Result<OrderedHeap, String> {
        self.watch(what, work, |heap| observe(heap, heap.backing().0.bytes()))
    }

    /// As `during`, through a thread's handle.
    pub fn during_shared(
        &mut self,
        what: &str,
        handle: &mut Handle<Ordered<TestMemory>>,
        work: impl FnOnce(&mut Handle<Ordered<TestMemory>>),
    ) -> Result<(), String> {
        let work = || {
            work(handle);
            handle
        };
        self.watch(what, work, |handle| {
            handle.with_heap(|heap| observe(heap, heap.backing().0.bytes()))
        })
        .map(drop)
    }

    fn watch<R>(
        &mut self,
        what: &str,
        work: impl FnOnce() -> R,
        state: impl FnOnce(&mut R) -> Result<Vec<u8>, String>,
    ) -> Result<R, String> {
        let shown = Rc::new(RefCell::new(Shown::new()));
        let (medium, all) = (Rc::clone(&self.medium), Rc::clone(&shown));
        let listen = move |event| {
            let mut medium = medium.borrow_mut();
            if medium.note(event) {
                look(&mut medium, &mut all.borrow_mut(), "during the operation");
            }
        };
        let mut result = recorder::record(listen, work);
        let after = state(&mut result)?;
        judge(what, &shown.borrow(), &[&self.now, &after])?;
        // It was acknowledged: from now on nothing but this.
        let mut shown = Shown::new();
        let mut medium = self.medium.borrow_mut();
        medium.end_operation();
        look(&mut medium, &mut shown, "after the operation");
        judge(what, &shown, &[&after])?;
        medium.end_operation();
        drop(medium);
        self.now = after;
        Ok(result)
    }
}

fn judge(what: &str, shown: &Shown, allowed: &[&Vec<u8>]) -> Result<(), String> {
    for (state, image) in shown {
        match state {
            Ok(state) if allowed.contains(&state) => {}
            Ok(state) => {
                let allowed: Vec<_> =
                    allowed.iter().map(|state| String::from_utf8_lossy(state)).collect();
                let state = String::from_utf8_lossy(state);
                return Err(format!(
                    "{what}, {image}: {state}\nallowed: {}",
                    allowed.join("\nallowed: ")
                ));
            }
            Err(error) => return Err(format!("{what}, {image}: {error}")),
        }
    }
    Ok(())
}

/// Opens every image that is new, and a few again after a reset in the middle of that.
fn look(medium: &mut Medium, shown: &mut Shown, when: &str) {
    medium.each_image(|scratch, number| {
        let image = format!("image {number} {when}");
        if number.is_multiple_of(RECOVERIES_EVERY) {
            look_in_recovery(scratch, shown, &image, number);
        }
        let start = scratch.base() as usize;
        let stored = Rc::new(RefCell::new(Vec::new()));
        let all = Rc::clone(&stored);
        let listen = move |event| {
            if let Event::Stored { address, bytes } = event {
                all.borrow_mut().push(address - start..address - start + bytes);
            }
        };
        let state = recorder::record(listen, || state_of(scratch));
        shown.entry(state).or_insert(image);
        stored.take()
    });
}

fn look_in_recovery(image: &TestMemory, shown: &mut Shown, name: &str, seed: u64) {
    let memory = image.copy();
    let medium = Rc::new(RefCell::new(Medium::new(&memory, seed, RECOVERY_IMAGES_MAX)));
    let again = Rc::new(RefCell::new(Shown::new()));
    let (listening, all) = (Rc::clone(&medium), Rc::clone(&again));
    let listen = move |event| {
        let mut medium = listening.borrow_mut();
        if medium.note(event) {
            medium.each_image(|scratch, number| {
                let copy = scratch.copy();
                all.borrow_mut()
                    .entry(state_of(&copy))
                    .or_insert(format!("recovery image {number}"));
                Vec::new()
            });
        }
    };
    let _ = recorder::record(listen, || state_of(&memory));
    for (state, image) in again.take() {
        shown.entry(state).or_insert(format!("{name}, {image}"));
    }
}

/// Opens the heap in this memory, which recovers it, and observes it.
fn state_of(memory: &TestMemory) -> Result<Vec<u8>, String> {
    // SAFETY: nothing else uses the memory while this runs.
    let fixed = unsafe { Fixed::new(memory.base(), memory.backed_bytes()) };
    match Heap::open(Ordered(fixed), OpenOptions { format_if_empty: false, ..OPTIONS }) {
        Ok(heap) => observe(&heap, memory.bytes()),
        Err(OpenError::Empty) => Ok(b"empty".to_vec()),
        Err(error) => Err(error.to_string()),
    }
}

/// All roots with their content, what the links lead to, and how many objects there are. An error
/// when it is not sound.
fn observe<B: Backing>(heap: &Heap<B>, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut findings = Vec::new();
    let report = check(bytes, &mut |finding| findings.push(finding));
    if !report.is_sound() {
        return Err(format!("{findings:x?}"));
    }
    let content = |at: usize, length: usize| {
        bytes.get(at..at.saturating_add(length)).ok_or("outside the heap")
    };
    let mut state = Vec::new();
    let mut roots: Vec<(&str, Root)> = heap.roots().collect();
    roots.sort_by_key(|root| root.0);
    for (name, root) in &roots {
        let at = heap.offset_of(root.pointer).ok_or("a root outside the heap")? as usize;
        let root_bytes = content(at, root.bytes as usize)?;
        state.extend_from_slice(format!("{name}={}:", hex(root_bytes)).as_bytes());
        if *name == LINKS {
            for link in root_bytes.as_chunks::<8>().0.iter().map(|link| u64::from_le_bytes(*link)) {
                if link != 0 {
                    let object = super::at_base(heap, link);
                    let usable = heap
                        .usable_bytes(object)
                        .map_err(|_| format!("{link:x} is linked and not there"))?;
                    let length = u64::from_le_bytes(
                        content(link as usize, 8)?.try_into().unwrap_or_default(),
                    );
                    if length > usable {
                        return Err(format!(
                            "the object at {link:x} says that it has {length} bytes"
                        ));
                    }
                    state.extend_from_slice(
                        format!("{}:", hex(content(link as usize, length as usize)?)).as_bytes(),
                    );
                }
            }
        }
    }
    state.extend_from_slice(format!("{} objects", report.objects).as_bytes());
    Ok(state)
}

/// A short stand-in for bytes: their number, their beginning and a sum.
fn hex(bytes: &[u8]) -> String {
    let sum = bytes
        .iter()
        .fold(bytes.len() as u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    format!("{}[{:x?}..{sum:x}]", bytes.len(), &bytes[..bytes.len().min(8)])
}
