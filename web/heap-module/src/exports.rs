//! The functions that TypeScript calls (`web/src/heap-module.ts`). Bytes and names go into a buffer
//! of the module, one behind the other; what is returned beside the status is in eight words.
//!
//! Each function returns a status: 0 or more as it says, or a [`Code`], negated; then the words say
//! where its sentence is. Offsets count from the heap's first byte, and fit into 32 bits: a heap in
//! a page ends below 4 GiB.
//!
//! Invariant: one heap for each instance of the module, and one thread. An argument that is wrong
//! is an error and no trap.

use holdfast_guest::{AttachError, Heap, Lock, Root, attach_portable};
use holdfast_heap::RootType;

use crate::array;
use crate::bytes;
use crate::fault::{Code, Fault};
use crate::kept::{self, Part, Way};
use crate::map::{self, Map, MapKinds};

/// The attached heap, and what answers lie in.
struct Session {
    heap: Heap,
    /// The names of open documents, by handle.
    documents: Vec<String>,
    words: Vec<u32>,
    text: String,
}

static SESSION: Lock<Option<Session>> = Lock::new(None);
static INPUT: Lock<Vec<u8>> = Lock::new(Vec::new());
static SENTENCE: Lock<String> = Lock::new(String::new());
static RESULTS: Lock<[u32; 8]> = Lock::new([0; 8]);

/// What a call gives beside its status.
fn give<const COUNT: usize>(words: [u32; COUNT]) {
    RESULTS.with(|results| {
        for (result, word) in results.iter_mut().zip(words) {
            *result = word;
        }
    });
}

fn place_of(bytes: &[u8]) -> [u32; 2] {
    [bytes.as_ptr() as usize as u32, bytes.len() as u32]
}

fn fail(fault: Fault) -> i32 {
    SENTENCE.with(|sentence| {
        *sentence = fault.text;
        let [at, bytes] = place_of(sentence.as_bytes());
        give([at, bytes, fault.column]);
    });
    -(fault.code as i32)
}

/// Runs `work` with the heap and the first `bytes` of the input.
fn call(bytes: u32, work: impl FnOnce(&mut Session, &[u8]) -> Result<i32, Fault>) -> i32 {
    let done = INPUT.with(|input| {
        SESSION.with(|session| {
            let session =
                session.as_mut().ok_or_else(|| Fault::new(Code::Host, "no heap is attached"))?;
            work(session, input.get(..bytes as usize).ok_or_else(too_short)?)
        })
    });
    done.unwrap_or_else(fail)
}

fn too_short() -> Fault {
    Fault::new(Code::Argument, "the input is not as long as it was said to be")
}

fn split(input: &[u8], at: u32) -> Result<(&[u8], &[u8]), Fault> {
    input.split_at_checked(at as usize).ok_or_else(too_short)
}

fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|_| Fault::new(Code::Argument, "the name is no UTF-8"))
}

/// A place in linear memory or an offset, each of which has 32 bits here.
fn word(offset: u64) -> Result<u32, Fault> {
    u32::try_from(offset).map_err(|_| Fault::corrupt("an offset leads out of the heap"))
}

fn total(lengths: &[u32]) -> u32 {
    lengths.iter().fold(0, |sum, length| sum.saturating_add(*length))
}

/// Where the input is, with room for so many bytes; 0 without memory for it.
#[unsafe(no_mangle)]
extern "C" fn heap_input(bytes: u32) -> u32 {
    INPUT.with(|input| {
        let more = (bytes as usize).saturating_sub(input.len());
        if input.try_reserve_exact(more).is_err() {
            return 0;
        }
        input.resize(input.len() + more, 0);
        input.as_ptr() as usize as u32
    })
}

/// Where the eight words of results are.
#[unsafe(no_mangle)]
extern "C" fn heap_results() -> u32 {
    RESULTS.with(|results| results.as_ptr() as usize as u32)
}

/// Attaches the heap; 0.
#[unsafe(no_mangle)]
extern "C" fn heap_attach() -> i32 {
    let attached = attach_portable().map_err(|error| match error {
        AttachError::Open(error) => error.into(),
        error => Fault::new(Code::Host, error.to_string()),
    });
    match attached {
        Ok(heap) => SESSION.with(|session| {
            let (documents, words, text) = (Vec::new(), Vec::new(), String::new());
            *session = Some(Session { heap, documents, words, text });
            0
        }),
        Err(fault) => fail(fault),
    }
}

/// Bytes of the heap that may be used now, in units of 64 KiB.
#[unsafe(no_mangle)]
extern "C" fn heap_backed() -> i32 {
    call(0, |session, _| {
        use holdfast_heap::Backing;
        Ok((session.heap.backing().backed_bytes() >> 16) as i32)
    })
}

/// Looks for a root: 1 with its offset, its bytes, whether it has a type, the type's layout (low,
/// high) and version; or 0.
#[unsafe(no_mangle)]
extern "C" fn root_find(name: u32) -> i32 {
    call(name, |session, input| {
        let name = text(input)?;
        let Some(root) = session.heap.root(name) else { return Ok(0) };
        let at = word(session.heap.offset_of(root.pointer).unwrap_or(0))?;
        let of = session.heap.root_type(name);
        let RootType { layout, version } = of.unwrap_or(RootType { layout: 0, version: 0 });
        let typed = u32::from(of.is_some());
        give([at, word(root.bytes)?, typed, layout as u32, (layout >> 32) as u32, version]);
        Ok(1)
    })
}

/// Makes a root of zeroes with a layout: 0 with its offset.
#[unsafe(no_mangle)]
extern "C" fn root_create(name: u32, bytes: u32, layout: u64) -> i32 {
    call(name, |session, input| {
        let of = RootType { layout, version: 0 };
        let object = session.heap.create_root_of(text(input)?, bytes.into(), of)?;
        give([word(session.heap.offset_of(object).unwrap_or(0))?]);
        Ok(0)
    })
}

/// Gives an object a name, and a layout unless that is 0.
#[unsafe(no_mangle)]
extern "C" fn root_set(name: u32, at: u32, bytes: u32, layout: u64) -> i32 {
    call(name, |session, input| {
        let heap = &mut session.heap;
        let base = heap.base().ok_or_else(|| Fault::corrupt("the heap has no base"))?;
        let object = std::ptr::NonNull::new(base.as_ptr().wrapping_add(at as usize))
            .ok_or_else(|| Fault::new(Code::Stale, "no object is there"))?;
        let of = (layout != 0).then_some(RootType { layout, version: 0 });
        heap.name_object(text(input)?, object, bytes.into(), of)?;
        Ok(0)
    })
}

/// Removes a root and frees its object.
#[unsafe(no_mangle)]
extern "C" fn root_remove(name: u32) -> i32 {
    call(name, |session, input| {
        session.heap.remove_root(text(input)?)?;
        Ok(0)
    })
}

/// The names of all roots, each with a byte 0 behind it: 0 with place and length.
#[unsafe(no_mangle)]
extern "C" fn root_names() -> i32 {
    call(0, |session, _| {
        let mut names: Vec<&str> = session.heap.roots().map(|(name, _)| name).collect();
        names.sort_unstable();
        session.text = names.iter().flat_map(|name| [*name, "\0"]).collect();
        give(place_of(session.text.as_bytes()));
        Ok(0)
    })
}

/// Allocates an object of zeroes: 0 with its offset.
#[unsafe(no_mangle)]
extern "C" fn object_allocate(bytes: u32) -> i32 {
    call(0, |session, _| {
        give([word(bytes::allocate(&mut session.heap, bytes.into())?)?]);
        Ok(0)
    })
}

/// Frees an object that is no root.
#[unsafe(no_mangle)]
extern "C" fn object_free(at: u32) -> i32 {
    call(0, |session, _| {
        let heap = &session.heap;
        let is_root = |root: Root| heap.offset_of(root.pointer) == Some(at.into());
        if let Some((name, _)) = heap.roots().find(|(_, root)| is_root(*root)) {
            let text = format!("the object is the root {name:?}; remove that");
            return Err(Fault::new(Code::Exists, text));
        }
        bytes::free(&mut session.heap, at.into())?;
        Ok(0)
    })
}

/// Bytes that the object at an offset may use; 0 where no object begins.
#[unsafe(no_mangle)]
extern "C" fn object_bytes(at: u32) -> u32 {
    SESSION.with(|session| {
        let bytes = session.as_ref().map_or(0, |session| bytes::usable(&session.heap, at.into()));
        u32::try_from(bytes).unwrap_or(u32::MAX)
    })
}

/// Begins a transaction, or a level of the open one.
#[unsafe(no_mangle)]
extern "C" fn tx_begin() -> i32 {
    call(0, |session, _| {
        session.heap.begin()?;
        Ok(0)
    })
}

/// Ends a level; the outermost makes all count.
#[unsafe(no_mangle)]
extern "C" fn tx_commit() -> i32 {
    call(0, |session, _| {
        session.heap.commit()?;
        Ok(0)
    })
}

/// Ends a level; the outermost takes all back.
#[unsafe(no_mangle)]
extern "C" fn tx_abort() -> i32 {
    call(0, |session, _| {
        session.heap.abort()?;
        Ok(0)
    })
}

/// Logs a range that is about to be stored to.
#[unsafe(no_mangle)]
extern "C" fn tx_log(at: u32, bytes: u32) -> i32 {
    call(0, |session, _| {
        bytes::log(&mut session.heap, at.into(), bytes.into())?;
        Ok(0)
    })
}

fn map_kinds(kinds: u32, value_layout: u64) -> MapKinds {
    MapKinds { key: kinds as u16, value: (kinds >> 16) as u16, value_layout }
}

/// Makes a map: 0 with its offset.
#[unsafe(no_mangle)]
extern "C" fn map_create(name: u32, kinds: u32, value_layout: u64, seed: u64) -> i32 {
    call(name, |session, input| {
        let kinds = map_kinds(kinds, value_layout);
        give([word(map::create(&mut session.heap, text(input)?, kinds, seed)?.offset())?]);
        Ok(0)
    })
}

/// Opens a map: 1 with its offset, or 0 where there is none.
#[unsafe(no_mangle)]
extern "C" fn map_open(name: u32, kinds: u32, value_layout: u64) -> i32 {
    call(name, |session, input| {
        match map::open(&session.heap, text(input)?, map_kinds(kinds, value_layout))? {
            Some(map) => {
                give([word(map.offset())?]);
                Ok(1)
            }
            None => Ok(0),
        }
    })
}

/// Looks a key up: 1 with offset and length of the value and the number of its cell, or 0.
#[unsafe(no_mangle)]
extern "C" fn map_get(at: u32, key: u32) -> i32 {
    call(key, |session, key| match Map::at(at.into()).get(&session.heap, key)? {
        Some(found) => {
            give([word(found.value.at)?, word(found.value.bytes)?, found.cell]);
            Ok(1)
        }
        None => Ok(0),
    })
}

/// Sets the value of a key, which is behind it in the input: 1 for a new key, or 0.
#[unsafe(no_mangle)]
extern "C" fn map_set(at: u32, key: u32, value: u32) -> i32 {
    call(total(&[key, value]), |session, input| {
        let (key, value) = split(input, key)?;
        Map::at(at.into()).set(&mut session.heap, key, value).map(i32::from)
    })
}

/// As [`map_set`], of a float.
#[unsafe(no_mangle)]
extern "C" fn map_set_number(at: u32, key: u32, value: f64) -> i32 {
    call(key, |session, key| {
        Map::at(at.into()).set(&mut session.heap, key, &value.to_le_bytes()).map(i32::from)
    })
}

/// As [`map_set`], of a word.
#[unsafe(no_mangle)]
extern "C" fn map_set_word(at: u32, key: u32, value: u32) -> i32 {
    call(key, |session, key| {
        Map::at(at.into()).set(&mut session.heap, key, &value.to_le_bytes()).map(i32::from)
    })
}

/// Removes a key: 1 where it was there, or 0.
#[unsafe(no_mangle)]
extern "C" fn map_delete(at: u32, key: u32) -> i32 {
    call(key, |session, key| Map::at(at.into()).delete(&mut session.heap, key).map(i32::from))
}

/// Removes all entries.
#[unsafe(no_mangle)]
extern "C" fn map_clear(at: u32) -> i32 {
    call(0, |session, _| Map::at(at.into()).clear(&mut session.heap).map(|()| 0))
}

/// Removes a map with its entries.
#[unsafe(no_mangle)]
extern "C" fn map_remove(at: u32, name: u32) -> i32 {
    call(name, |session, input| {
        Map::at(at.into()).remove(&mut session.heap, text(input)?).map(|()| 0)
    })
}

/// Checks the header: 0 with the number of entries, and how often cells moved.
#[unsafe(no_mangle)]
extern "C" fn map_header(at: u32) -> i32 {
    call(0, |session, _| {
        let header = Map::at(at.into()).header(&session.heap)?;
        give([header.length, header.moves]);
        Ok(0)
    })
}

/// So many entries at most, from a cell on: their count, with the place of five words for each: its
/// cell, offset and length of key and value.
#[unsafe(no_mangle)]
extern "C" fn map_scan(at: u32, from: u32, most: u32) -> i32 {
    call(0, |session, _| {
        let Session { heap, words, .. } = session;
        let (mut count, mut fits) = (0, true);
        words.clear();
        Map::at(at.into()).scan(heap, from, |found| {
            let (key, value) = (found.key, found.value);
            for number in [found.cell.into(), key.at, key.bytes, value.at, value.bytes] {
                words.push(u32::try_from(number).unwrap_or_else(|_| {
                    fits = false;
                    0
                }));
            }
            count += 1;
            (count as u32) < most
        })?;
        if !fits {
            return Err(Fault::corrupt("an entry of a map lies out of the heap"));
        }
        give([words.as_ptr() as usize as u32]);
        Ok(count)
    })
}

/// Makes an array: 0 with its offset.
#[unsafe(no_mangle)]
extern "C" fn array_create(name: u32, element_bytes: u32, layout: u64) -> i32 {
    call(name, |session, input| {
        give([word(array::create(&mut session.heap, text(input)?, element_bytes, layout)?)?]);
        Ok(0)
    })
}

/// Opens an array: 1 with its offset, or 0 where there is none.
#[unsafe(no_mangle)]
extern "C" fn array_open(name: u32, element_bytes: u32, layout: u64) -> i32 {
    call(name, |session, input| {
        match array::open(&session.heap, text(input)?, element_bytes, layout)? {
            Some(at) => {
                give([word(at)?]);
                Ok(1)
            }
            None => Ok(0),
        }
    })
}

/// Checks the header of an array.
#[unsafe(no_mangle)]
extern "C" fn array_check(at: u32) -> i32 {
    call(0, |session, _| array::header(&session.heap, at.into()).map(|_| 0))
}

/// Makes room for so many elements.
#[unsafe(no_mangle)]
extern "C" fn array_reserve(at: u32, room: u32) -> i32 {
    call(0, |session, _| array::reserve(&mut session.heap, at.into(), room).map(|()| 0))
}

/// Opens a document: 1 with a handle, or 0 where there is none.
#[unsafe(no_mangle)]
extern "C" fn document_open(name: u32) -> i32 {
    call(name, |session, input| {
        let name = text(input)?;
        if !kept::open(&mut session.heap, name)? {
            return Ok(0);
        }
        let handle = session.documents.iter().position(|known| known == name);
        let handle = handle.unwrap_or_else(|| {
            session.documents.push(name.to_owned());
            session.documents.len() - 1
        });
        give([handle as u32]);
        Ok(1)
    })
}

/// Parses a page, which is behind its name in the input.
#[unsafe(no_mangle)]
extern "C" fn document_parse(name: u32, html: u32) -> i32 {
    call(total(&[name, html]), |session, input| {
        let (name, html) = split(input, name)?;
        kept::parse(&mut session.heap, text(name)?, html).map(|()| 0)
    })
}

/// Removes a document.
#[unsafe(no_mangle)]
extern "C" fn document_remove(name: u32) -> i32 {
    call(name, |session, input| kept::remove(&mut session.heap, text(input)?).map(|()| 0))
}

/// The names of all documents, as [`root_names`].
#[unsafe(no_mangle)]
extern "C" fn document_names() -> i32 {
    call(0, |session, _| {
        let names = kept::names(&mut session.heap)?;
        session.text = names.iter().flat_map(|name| [name.as_str(), "\0"]).collect();
        give(place_of(session.text.as_bytes()));
        Ok(0)
    })
}

/// Runs `work` with the heap, the name of a document, and the input.
fn ask(
    document: u32,
    bytes: u32,
    work: impl FnOnce(&mut Heap, &str, &[u8]) -> Result<Answer, Fault>,
) -> i32 {
    call(bytes, |session, input| {
        let Session { heap, documents, words, text } = session;
        let name = documents.get(document as usize);
        let name = name.ok_or_else(|| Fault::new(Code::Stale, "the document is not open"))?;
        match work(heap, name, input)? {
            Answer::Nodes(nodes) => {
                *words = nodes;
                give([words.as_ptr() as usize as u32]);
                Ok(words.len() as i32)
            }
            Answer::Text(None) => Ok(0),
            Answer::Text(Some(answer)) => {
                *text = answer;
                give(place_of(text.as_bytes()));
                Ok(1)
            }
        }
    })
}

enum Answer {
    Nodes(Vec<u32>),
    Text(Option<String>),
}

/// Elements that a selector, the input, leads to from a node: their count, with the place of their
/// numbers. The way: 0 all below, 1 the first of these, 2 it or the nearest above, 3 it.
#[unsafe(no_mangle)]
extern "C" fn document_select(document: u32, node: u32, selector: u32, way: u32) -> i32 {
    ask(document, selector, |heap, name, input| {
        let way = match way {
            0 => Way::All,
            1 => Way::First,
            2 => Way::Closest,
            _ => Way::Matches,
        };
        kept::select(heap, name, node, text(input)?, way).map(Answer::Nodes)
    })
}

/// The elements in a node: as [`document_select`].
#[unsafe(no_mangle)]
extern "C" fn document_children(document: u32, node: u32) -> i32 {
    ask(document, 0, |heap, name, _| kept::children(heap, name, node).map(Answer::Nodes))
}

/// The element that a node is in: 1 with the place of its number, or 0.
#[unsafe(no_mangle)]
extern "C" fn document_parent(document: u32, node: u32) -> i32 {
    ask(document, 0, |heap, name, _| {
        Ok(Answer::Nodes(kept::parent(heap, name, node)?.into_iter().collect()))
    })
}

/// A text of a node: 1 with place and length. The part: 0 its name, 1 all text in it, 2 its HTML,
/// 3 the HTML of what it holds, 4 the URL of its namespace.
#[unsafe(no_mangle)]
extern "C" fn document_text(document: u32, node: u32, part: u32) -> i32 {
    ask(document, 0, |heap, name, _| {
        let part = match part {
            0 => Part::Name,
            1 => Part::Text,
            2 => Part::Outer,
            3 => Part::Inner,
            _ => Part::Namespace,
        };
        Ok(Answer::Text(Some(kept::text(heap, name, node, part)?)))
    })
}

/// An attribute, whose name is the input: 1 with place and length of its value, or 0.
#[unsafe(no_mangle)]
extern "C" fn document_attribute(document: u32, node: u32, attribute: u32) -> i32 {
    ask(document, attribute, |heap, name, input| {
        kept::attribute(heap, name, node, text(input)?).map(Answer::Text)
    })
}

/// The names of the attributes of an element, as [`root_names`], with status 1.
#[unsafe(no_mangle)]
extern "C" fn document_attributes(document: u32, node: u32) -> i32 {
    ask(document, 0, |heap, name, _| {
        let names = kept::attribute_names(heap, name, node)?;
        let names = names.iter().flat_map(|name| [name.as_str(), "\0"]).collect();
        Ok(Answer::Text(Some(names)))
    })
}
