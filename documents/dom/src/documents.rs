//! The documents of a heap: each a root with the type of a document, beside whatever else the heap
//! holds.
//!
//! Invariant: a document appears, is replaced or goes in one transaction; a process that is killed
//! while it parses leaves the old one.

use std::borrow::BorrowMut;
use std::io::Read;
use std::marker::PhantomData;

use holdfast_heap::{Backing, Heap, HeapError, Owned, RootType};
use zerocopy::IntoBytes;

use crate::arena::Arena;
use crate::document::Document;
use crate::edit::Edit;
use crate::error::DomError;
use crate::image::Image;
use crate::layout::root_type;
use crate::limits::ParseLimits;
use crate::parse::{ParseOptions, ParsedSource, parse};

/// A heap for documents, its own or one that a caller lends; see the module.
pub struct Documents<B: Backing, H: BorrowMut<Owned<B>> = Owned<B>> {
    heap: H,
    backing: PhantomData<B>,
}

/// What parsing a page came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParseReport {
    /// Bytes of the source.
    pub source_bytes: u64,
    /// Bytes of the document in the heap.
    pub document_bytes: u64,
    /// Nodes of the document.
    pub nodes: u32,
    /// Errors in the source, which the specification says how to get over.
    pub errors: u64,
}

impl<B: Backing> Documents<B> {
    /// Takes the heap.
    #[must_use]
    pub fn new(heap: Heap<B>) -> Documents<B> {
        Documents { heap: Owned::new(heap), backing: PhantomData }
    }

    /// Gives the heap back.
    #[must_use]
    pub fn into_heap(self) -> Heap<B> {
        self.heap.into_heap()
    }
}

impl<'heap, B: Backing> Documents<B, &'heap mut Owned<B>> {
    /// Takes the heap for as long as it is lent; an open transaction goes on, and what is changed
    /// belongs to it. `None` while several threads allocate in the heap (`SharedHeap`).
    pub fn lent(heap: &'heap mut Heap<B>) -> Option<Self> {
        Some(Documents { heap: Owned::lent(heap)?, backing: PhantomData })
    }
}

impl<B: Backing, H: BorrowMut<Owned<B>>> Documents<B, H> {
    /// The heap, for what changes nothing.
    #[must_use]
    pub fn heap(&self) -> &Heap<B> {
        self.heap.borrow().heap()
    }

    /// The names of the documents, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let heap = self.heap();
        heap.roots()
            .with_types()
            .filter(|(.., stored)| is_of_document(*stored))
            .map(|(name, ..)| name)
    }

    /// Whether there is a document of this name, of whatever version and state.
    #[must_use]
    pub fn holds(&self, name: &str) -> bool {
        is_document(self.heap(), name)
    }

    /// Opens a document where it lies; costs the same whatever its size.
    ///
    /// # Errors
    /// [`DomError::NoSuchDocument`], [`DomError::NotADocument`], [`DomError::NewerFormat`],
    /// [`DomError::Damaged`].
    pub fn open(&self, name: &str) -> Result<Document<'_>, DomError> {
        let Some(bytes) = self.heap.borrow().bytes(name) else {
            return Err(DomError::NoSuchDocument { name: name.to_owned() });
        };
        if !is_document(self.heap(), name) {
            return Err(DomError::NotADocument { name: name.to_owned() });
        }
        Document::from_bytes(bytes)
    }

    /// Parses a page to its end and keeps it under a name, in the place of the document that had
    /// it.
    ///
    /// # Errors
    /// [`DomError::Limit`], [`DomError::Io`], [`DomError::NotADocument`] when something else has
    /// the name, and those of the heap: there is what there was before.
    pub fn parse(
        &mut self,
        name: &str,
        source: impl Read,
        options: &ParseOptions,
    ) -> Result<ParseReport, DomError> {
        self.check_place(name)?;
        let (arena, parsed) = parse(source, options)?;
        let image = Image::of(&arena, &options.limits)?;
        drop(arena);
        self.store(name, image.bytes(), |target| image.write(target))?;
        Ok(report(parsed, &image))
    }

    /// Keeps a page that was parsed before, as [`Documents::parse`] does: so that no caller waits
    /// for the heap while a page is parsed.
    ///
    /// # Errors
    /// [`DomError::NotADocument`] when something else has the name, and those of the heap: there is
    /// what there was before.
    pub fn keep(&mut self, name: &str, page: &LoosePage) -> Result<ParseReport, DomError> {
        self.check_place(name)?;
        self.store(name, page.bytes().len() as u64, |target| target.copy_from_slice(page.bytes()))?;
        Ok(page.report())
    }

    /// Changes a document: all that `work` does counts when it returns `Ok`, and none of it when it
    /// returns an error or panics, or the process is killed.
    ///
    /// # Errors
    /// What `work` returns; those of [`Documents::open`] and of the heap.
    pub fn edit<R, E: From<DomError>>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Edit<'_, '_, B>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.open(name)?;
        let result = self.heap.borrow_mut().transaction(|tx| -> Result<R, EditFailure<E>> {
            let mut edit = Edit::begin(tx, name)?;
            let result = work(&mut edit).map_err(EditFailure::Work)?;
            edit.finish()?;
            Ok(result)
        });
        result.map_err(|failed| match failed {
            EditFailure::Work(error) => error,
            EditFailure::Dom(error) => error.into(),
        })
    }

    /// Gives back what changes have left unused: removed nodes, older texts and attributes. Nodes
    /// get other numbers.
    ///
    /// # Errors
    /// Those of [`Documents::open`] and of the heap: there is what there was before.
    pub fn compact(&mut self, name: &str) -> Result<(), DomError> {
        let document = self.open(name)?;
        document.check()?;
        let limits = ParseLimits { depth: u32::MAX, ..ParseLimits::default() };
        let image = Image::of(&Arena::of(&document), &limits)?;
        self.store(name, image.bytes(), |target| image.write(target))
    }

    /// Puts a document in the place of that of its name.
    fn store(
        &mut self,
        name: &str,
        bytes: u64,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), DomError> {
        self.heap.borrow_mut().transaction(|tx| {
            if tx.root(name).is_some() {
                tx.remove(name)?;
            }
            tx.create(name, bytes, Some(root_type()), write)?;
            Ok(())
        })
    }

    /// Removes a document.
    ///
    /// # Errors
    /// [`DomError::NoSuchDocument`], [`DomError::NotADocument`], those of the heap.
    pub fn remove(&mut self, name: &str) -> Result<(), DomError> {
        if self.heap().root(name).is_none() {
            return Err(DomError::NoSuchDocument { name: name.to_owned() });
        }
        self.check_place(name)?;
        self.heap.borrow_mut().transaction(|tx| Ok(tx.remove(name)?))
    }

    /// Whether the name is free or that of a document, of whatever version and state.
    fn check_place(&self, name: &str) -> Result<(), DomError> {
        match self.heap().root(name) {
            Some(_) if !is_document(self.heap(), name) => {
                Err(DomError::NotADocument { name: name.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// A page that is parsed into plain memory: for one that is read once. The same document as in a
/// heap.
pub struct LoosePage {
    words: Vec<u64>,
    bytes: usize,
    report: ParseReport,
}

impl LoosePage {
    /// Parses a page to its end.
    ///
    /// # Errors
    /// [`DomError::Limit`], [`DomError::Io`].
    pub fn parse(source: impl Read, options: &ParseOptions) -> Result<LoosePage, DomError> {
        let (arena, parsed) = parse(source, options)?;
        let image = Image::of(&arena, &options.limits)?;
        let bytes = image.bytes() as usize;
        let mut words = vec![0u64; bytes.div_ceil(size_of::<u64>())];
        image.write(&mut words.as_mut_bytes()[..bytes]);
        Ok(LoosePage { words, bytes, report: report(parsed, &image) })
    }

    /// The document.
    ///
    /// # Errors
    /// None that is known: it was written a moment ago.
    pub fn open(&self) -> Result<Document<'_>, DomError> {
        Document::from_bytes(self.bytes())
    }

    /// The bytes of the document.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.bytes]
    }

    /// What parsing came to.
    #[must_use]
    pub fn report(&self) -> ParseReport {
        self.report
    }
}

fn report(parsed: ParsedSource, image: &Image) -> ParseReport {
    ParseReport {
        source_bytes: parsed.source_bytes,
        document_bytes: image.bytes(),
        nodes: image.nodes(),
        errors: parsed.errors,
    }
}

/// Why a change did not come about.
enum EditFailure<E> {
    Work(E),
    Dom(DomError),
}

impl<E> From<DomError> for EditFailure<E> {
    fn from(error: DomError) -> Self {
        EditFailure::Dom(error)
    }
}

impl<E> From<HeapError> for EditFailure<E> {
    fn from(error: HeapError) -> Self {
        EditFailure::Dom(error.into())
    }
}

fn is_document<B: Backing>(heap: &Heap<B>, name: &str) -> bool {
    is_of_document(heap.root_type(name))
}

fn is_of_document(stored: Option<RootType>) -> bool {
    stored.is_some_and(|stored| stored.layout == root_type().layout)
}
