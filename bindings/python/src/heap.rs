//! A heap that Python itself uses.
//!
//! Invariant: whatever a method hands out of the heap's memory was counted by its core before.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_region::{Durability, NameSpace};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMemoryView, PyTuple};

use crate::convert::Size;
use crate::error::region_error;
use crate::grants::{HeapSpec, places};
use crate::heap_core::{Core, Found};
use crate::heap_error::Refusal;
use crate::input::Input;
use crate::process::Maker;
use crate::transaction::Transaction;
use crate::view::RootMemory;

/// A persistent heap, opened by name, and made if there is none: named roots, each a `memoryview`
/// of memory that outlives the process.
///
/// Stores count at once (a kill loses nothing), or, with `atomic=True`, all together at `commit`
/// and `close`. One process has a heap at a time; an applet that is given it has it instead.
///
/// Closing is refused (`BufferError`) while memoryviews of roots are alive. Data that applets have
/// stored can be read and changed as well, whatever pointers they keep in it.
#[pyclass(frozen, weakref, module = "holdfast")]
pub(crate) struct Heap {
    core: Mutex<Option<Arc<Core>>>,
    name: String,
    maker: Maker,
}

impl Heap {
    pub(crate) fn core(&self, py: Python<'_>) -> PyResult<Arc<Core>> {
        self.maker.check(py)?;
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner).clone();
        core.ok_or_else(|| Refusal::Closed { name: self.name.clone() }.raise(py))
    }

    /// Works with the heap in this thread's turn, without the interpreter.
    fn work<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Core) -> Result<R, Refusal> + Send,
    ) -> PyResult<R> {
        let core = self.core(py)?;
        let _turn = core.my_turn(py)?;
        py.detach(|| work(&core)).map_err(|refused| refused.raise(py))
    }

    /// As [`Heap::work`] with the interpreter in hand: Python's own threads store nothing
    /// meanwhile.
    fn work_alone<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Core) -> Result<R, Refusal>,
    ) -> PyResult<R> {
        let core = self.core(py)?;
        let _turn = core.my_turn(py)?;
        work(&core).map_err(|refused| refused.raise(py))
    }

    fn find<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        match self.work_alone(py, |core| core.find(name))? {
            Some(found) => self.view(py, found).map(Some),
            None => Ok(None),
        }
    }

    fn view<'py>(&self, py: Python<'py>, found: Found) -> PyResult<Bound<'py, PyMemoryView>> {
        RootMemory::view(py, self.core(py)?, found)
    }

    /// Takes the memory from the values of portable types, so that a variable that holds one keeps
    /// no heap open; what [`Heap::restore_values`] needs to give it back.
    fn release_values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("holdfast._portable")?.call_method1("_release", (slf,))
    }

    fn restore_values(slf: &Bound<'_, Self>, released: &Bound<'_, PyAny>) -> PyResult<()> {
        let module = slf.py().import("holdfast._portable")?;
        module.call_method1("_restore", (slf, released)).map(drop)
    }

    fn let_go(&self) -> Option<Arc<Core>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Heap {
    /// Opens the heap `name`, or makes it with this limit (bytes, or a text such as `"64MiB"`) and
    /// for this key. Without a key, one that there is opens with its applet's own, and a new one
    /// gets the key `default`, with which every applet may be granted it.
    ///
    /// With `create=False` only one that there is. With `read_only=True` one that there is, for
    /// reading: any number of processes at a time, while none has it to write. So it is not with
    /// `atomic=True`.
    ///
    /// With `portable=True` a new heap is a portable one: it holds references and no pointers, in
    /// types that `Portable` describes, and serves native applets, applets in WebAssembly and
    /// native programs as well. One that holds pointers is refused then (`HeapError`).
    ///
    /// `home` and `pool` are the directories of heaps; by default those of the environment
    /// (`HOLDFAST_HOME`, `HOLDFAST_POOL`), as for the command `holdfast`.
    #[new]
    #[pyo3(signature = (name, *, limit=None, key=None, atomic=false, create=true, read_only=false, portable=false, home=None, pool=None))]
    #[allow(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        name: &str,
        limit: Option<Size>,
        key: Option<String>,
        atomic: bool,
        create: bool,
        read_only: bool,
        portable: bool,
        home: Option<PathBuf>,
        pool: Option<PathBuf>,
    ) -> PyResult<Heap> {
        if read_only && atomic {
            return Err(PyValueError::new_err(
                "a heap that is opened for reading has no stores to commit; leave out atomic, or read_only",
            ));
        }
        let spec = HeapSpec {
            name: name.to_owned(),
            alias: None,
            is_read_only: false,
            reserved_bytes: 0,
            limit_bytes: limit.map_or(64 << 20, |size| size.0),
            key,
            compartment: None,
            compartments: 0,
            quota_bytes: 0,
            is_atomic: atomic,
        };
        let opened = py.detach(|| -> Result<Core, Refusal> {
            let places = places(home, pool).map_err(holdfast_region::RegionError::from)?;
            let names = NameSpace::new(places);
            let makes = create && !read_only;
            let region =
                if makes { spec.open_here(&names)? } else { spec.open_there(&names, read_only)? };
            Core::open(region, portable)
        });
        let core = opened.map_err(|refused| match &refused {
            Refusal::Open(holdfast_native_heap::OpenHeapError::Region(error)) => {
                region_error(py, error)
            }
            refused => refused.raise(py),
        })?;
        let maker = core.maker;
        Ok(Heap { name: core.name.clone(), core: Mutex::new(Some(Arc::new(core))), maker })
    }

    /// The heap's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        core.as_ref().is_none_or(|core| core.is_closed())
    }

    /// How large it may get, in bytes.
    #[getter]
    fn limit_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.work_alone(py, |core| core.with(|open| Ok(open.region.limit_bytes())))
    }

    /// How much of it is allocated in the pool, in bytes.
    #[getter]
    fn backed_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.work_alone(py, |core| {
            core.with(|open| Ok(open.region.with(|region| region.backed_bytes())))
        })
    }

    /// Whether this key may only read it.
    #[getter]
    fn read_only(&self, py: Python<'_>) -> PyResult<bool> {
        self.work_alone(py, |core| core.with(|open| Ok(open.is_read_only())))
    }

    /// Whether it holds references and no pointers.
    #[getter]
    fn portable(&self, py: Python<'_>) -> PyResult<bool> {
        self.work_alone(py, |core| core.with(|open| Ok(open.heap.is_portable())))
    }

    /// Makes a root that carries a layout; for `Portable`.
    fn _create(
        &self,
        py: Python<'_>,
        name: &str,
        size: u64,
        layout: u64,
    ) -> PyResult<Py<PyMemoryView>> {
        let found = self.work(py, |core| core.create(name, size, Some(layout)))?;
        self.view(py, found).map(Bound::unbind)
    }

    /// The layout that a root carries; for `Portable`.
    fn _layout(&self, py: Python<'_>, name: &str) -> PyResult<Option<u64>> {
        self.work_alone(py, |core| core.layout(name))
    }

    /// Makes an anonymous object of zero bytes; for `Portable`.
    fn _allocate(&self, py: Python<'_>, size: u64) -> PyResult<Py<PyMemoryView>> {
        let found = self.work(py, |core| core.allocate(size))?;
        self.view(py, found).map(Bound::unbind)
    }

    /// So many bytes of the object at an offset from the heap's first byte; for `Portable`.
    fn _object(&self, py: Python<'_>, offset: u64, size: u64) -> PyResult<Py<PyMemoryView>> {
        let found = self.work_alone(py, |core| core.object(offset, size))?;
        self.view(py, found).map(Bound::unbind)
    }

    /// Frees the anonymous object at an offset; for `Portable`.
    fn _free(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        self.work(py, |core| core.free(offset))
    }

    /// Where a view begins, from the heap's first byte; for `Portable`.
    fn _offset(&self, py: Python<'_>, view: &Bound<'_, PyAny>) -> PyResult<u64> {
        let input = Input::view(view)?;
        let (start, _) = input.place();
        self.work_alone(py, |core| core.offset_of(start))
    }

    /// Makes a root of so many zero bytes and returns it. Name and memory appear together or not at
    /// all.
    ///
    /// Raises `RootExists`, `HeapNoRoom`; `ValueError` for a name that is none.
    fn create<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        size: Size,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let found = self.work(py, |core| core.create(name, size.0, None))?;
        self.view(py, found)
    }

    /// The root of this name, or `default`.
    #[pyo3(signature = (name, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(py, name)?.map(Bound::into_any).or(default))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyMemoryView>> {
        let missing = holdfast_heap::HeapError::NoSuchRoot;
        self.find(py, name)?.ok_or_else(|| Refusal::Call(missing, Some(name.to_owned())).raise(py))
    }

    fn __delitem__(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.work(py, |core| core.remove(name))
    }

    fn __contains__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(name) = name.extract::<String>() else { return Ok(false) };
        self.work_alone(py, |core| core.with(|open| Ok(open.heap.root(&name).is_some())))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.work_alone(py, |core| core.with(|open| Ok(open.heap.roots().count())))
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// The names of the roots, in the order of the alphabet, as they are now.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let names = self.work_alone(py, |core| {
            core.with(|open| {
                let mut names: Vec<String> =
                    open.heap.roots().map(|(name, _)| name.to_owned()).collect();
                names.sort();
                Ok(names)
            })
        })?;
        Ok(PyList::new(py, names)?.try_iter()?.into_any())
    }

    /// A transaction, for a `with` block.
    fn transaction(&self, py: Python<'_>) -> PyResult<Transaction> {
        Ok(Transaction::new(self.core(py)?))
    }

    /// Brings these parts of roots (contiguous views, such as `view[0:8]`) from the processor's
    /// caches to memory, one after the other: for programs that order their stores themselves.
    /// Where the pool is memory that survives a reset of the machine, they are there after one.
    /// Elsewhere, and with `atomic=True`, it does nothing; transactions do it by themselves.
    #[pyo3(signature = (*views))]
    fn persist(&self, py: Python<'_>, views: &Bound<'_, PyTuple>) -> PyResult<()> {
        for view in views {
            let input = Input::view(&view)?;
            let (start, bytes) = input.place();
            if bytes > 0 {
                self.work_alone(py, |core| {
                    core.with(|open| Ok(open.heap.persist(start, bytes as u64)?))
                })?;
            }
        }
        Ok(())
    }

    /// Makes everything that was stored so far count, and survive: with `"process"` the end of this
    /// process, with `"system"` a reset of the machine, with `"power"` the plug. No other thread
    /// may store to the heap meanwhile (Python's own code in other threads waits).
    #[pyo3(signature = (level="power"))]
    fn commit(&self, py: Python<'_>, level: &str) -> PyResult<()> {
        let durability = match level {
            "process" => Durability::Process,
            "system" => Durability::System,
            "power" => Durability::Power,
            other => {
                let text = format!(
                    "{other:?} is no level of durability; it is \"process\", \"system\" or \"power\""
                );
                return Err(PyValueError::new_err(text));
            }
        };
        self.work_alone(py, |core| core.commit(durability))
    }

    /// With `atomic=True`: undoes everything since the last commit. Refused (`BufferError`) while
    /// memoryviews are alive.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.work_alone(py, Core::roll_back)
    }

    /// Closes the heap; what was stored counts. Refused (`BufferError`) while memoryviews of roots
    /// are alive; values of portable types lose their memory instead. Closing twice does nothing.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (heap, py) = (slf.get(), slf.py());
        heap.maker.check(py)?;
        if heap.closed() {
            return Ok(());
        }
        let core = heap.core(py)?;
        // Until it is closed: no value loses its memory in the middle of another thread's
        // transaction.
        let turn = core.my_turn(py)?;
        if py.detach(|| core.is_closed_in_turn()) {
            // By the thread that had the turn.
            return Ok(());
        }
        let module = py.import("holdfast._portable")?;
        let with_values: usize = module.call_method1("_objects", (slf,))?.extract()?;
        core.check_close(with_values).map_err(|refused| refused.raise(py))?;
        let released = Self::release_values(slf)?;
        let (closed, is_closed) = py.detach(|| (core.close(true), core.is_closed_in_turn()));
        if let Err(refused) = closed {
            // A heap that is closed has no memory for them.
            if !is_closed {
                Self::restore_values(slf, &released)?;
            }
            return Err(refused.raise(py));
        }
        drop(turn);
        drop(heap.let_go());
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().core(slf.py())?;
        Ok(slf)
    }

    /// After an exception nothing that is not committed counts in the mode `atomic`; and a heap of
    /// which memoryviews are alive (in the traceback, say) is closed when the last one goes, so
    /// that the exception is the one that is seen.
    #[pyo3(signature = (kind, _value, _traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() {
            return Self::close(slf);
        }
        let (heap, py) = (slf.get(), slf.py());
        if let Ok(core) = heap.core(py) {
            let _turn = core.my_turn(py)?;
            // Where that fails they keep it open, as other views do.
            let _ = Self::release_values(slf);
        }
        heap.maker.check(py)?;
        if let Some(core) = heap.let_go() {
            let turn = core.my_turn(py)?;
            // With views it is left to the last of them.
            let _ = py.detach(|| core.close(false));
            drop(turn);
            heap.maker.let_go(core);
        }
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!(
            "<holdfast.Heap {:?} ({})>",
            self.name,
            if self.closed() { "closed" } else { "open" }
        )
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if let Some(core) = self.let_go() {
            self.maker.let_go(core);
        }
    }
}
