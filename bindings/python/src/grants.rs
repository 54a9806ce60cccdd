//! Reads from Python objects which heaps and directories an applet is granted.
//!
//! Invariants:
//! - A whole heap that was made for an `Applet` that did not even start is removed again. (One that
//!   was made for compartments stays: others may have theirs in it by now.)
//! - What is opened for an applet that is refused before it starts is closed in order.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use holdfast_applet::{
    AppletError, DirGrant, Grants, HeapRequest, HeapRequestError, MAX_HEAP_LIMIT_BYTES, PathAccess,
    SandboxKind, thread_name,
};
use holdfast_identity::{
    AppletFile, GivenName, Identity, IdentityError, KeySource, LEGACY_KEY, Publishers,
    SignatureError, Trust, implicit_owner_key, key_for,
};
use holdfast_region::{
    Consistency, NameSpace, OwnerKey, PlaceError, Places, Region, RegionError, RegionName,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::convert::Size;
use crate::error::{applet_error, extend};
use crate::functions::{Callables, Functions};

/// What stands in the name of a compartment for a number of which no other applet has the
/// compartment.
const NUMBER: &str = "{}";
/// Compartments of one applet's threads: one heap fewer than it can have.
const COMPARTMENTS_MAX: u32 = 15;
/// Compartments that a pool tries before it gives up.
const NUMBERS_MAX: u32 = 4096;

/// A heap by name, and how it is to be opened.
#[derive(Debug, Clone)]
pub(crate) struct HeapSpec {
    pub(crate) name: String,
    /// Its name in the applet, if not its own.
    pub(crate) alias: Option<String>,
    pub(crate) is_read_only: bool,
    /// Room that is made before the applet starts.
    pub(crate) reserved_bytes: u64,
    pub(crate) limit_bytes: u64,
    /// The key that the caller named.
    pub(crate) key: Option<String>,
    pub(crate) compartment: Option<String>,
    /// Compartments for the applet's threads, besides the heap.
    pub(crate) compartments: u32,
    pub(crate) quota_bytes: u64,
    pub(crate) is_atomic: bool,
}

impl HeapSpec {
    /// What is given as heap: none, one, or several.
    pub(crate) fn read_all(grants: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<HeapSpec>> {
        match grants {
            None => Ok(Vec::new()),
            Some(one) if one.is_instance_of::<PyString>() || one.hasattr("name")? => {
                Ok(vec![HeapSpec::read(one)?])
            }
            // Nothing to iterate over is no grant either.
            Some(several) if several.try_iter().is_err() => Ok(vec![HeapSpec::read(several)?]),
            Some(several) => several.try_iter()?.map(|one| HeapSpec::read(&one?)).collect(),
        }
    }

    /// A text as the command line has it, or a `HeapGrant`.
    fn read(grant: &Bound<'_, PyAny>) -> PyResult<HeapSpec> {
        if let Ok(text) = grant.cast::<PyString>() {
            let request: HeapRequest = text
                .to_cow()?
                .parse()
                .map_err(|error: HeapRequestError| PyValueError::new_err(error.to_string()))?;
            let types = grant.py().import("holdfast._types")?;
            let plain = types.getattr("HeapGrant")?.call1((request.heap.as_str(),))?;
            let spec = HeapSpec::read(&plain)?;
            let alias = request.alias.map(|alias| alias.to_string());
            return Ok(HeapSpec { alias, is_read_only: request.is_read_only, ..spec });
        }
        if !grant.hasattr("limit")? {
            return Err(PyTypeError::new_err(
                "a heap is granted by its name, as a text \"[NAME=]HEAP[:ro]\" or a HeapGrant",
            ));
        }
        Ok(HeapSpec {
            alias: grant.getattr("alias")?.extract()?,
            is_read_only: grant.getattr("read_only")?.extract()?,
            reserved_bytes: grant.getattr("reserve")?.extract::<Size>()?.0,
            name: grant.getattr("name")?.extract()?,
            limit_bytes: grant.getattr("limit")?.extract::<Size>()?.0,
            key: grant.getattr("key")?.extract()?,
            compartment: grant.getattr("compartment")?.extract()?,
            compartments: grant.getattr("compartments")?.extract()?,
            quota_bytes: grant.getattr("quota")?.extract::<Size>()?.0,
            is_atomic: grant.getattr("atomic")?.extract()?,
        })
    }

    fn alias(&self) -> Result<Option<RegionName>, RegionError> {
        Ok(self.alias.as_deref().map(RegionName::parse).transpose()?)
    }

    /// Whether several applets at once can each have what this names.
    fn is_for_many(&self) -> bool {
        self.is_read_only || self.compartment.as_ref().is_some_and(|worker| worker.contains(NUMBER))
    }

    /// The key with which the region is opened for an applet, and whether it is that of all
    /// applets.
    fn key_for(
        &self,
        names: &NameSpace,
        identity: Option<&Identity>,
    ) -> Result<(OwnerKey, bool), IdentityError> {
        let name = RegionName::parse(&self.name).map_err(RegionError::from)?;
        match identity {
            Some(identity) if self.is_the_applets() => {
                let found = key_for(names, &name, identity)?;
                Ok((found.key().clone(), found.source() == KeySource::Legacy))
            }
            // That of another applet opens nothing here that no caller named.
            _ => {
                let key_name = self.key.as_deref().unwrap_or(LEGACY_KEY);
                Ok((key_of_caller(names, &name, key_name)?, false))
            }
        }
    }

    /// Opens the region for an applet, and makes it if there is none; and the compartments of the
    /// applet's threads in it. After an error `opened` has those that are to be closed.
    fn open_for(
        &self,
        names: &NameSpace,
        key: &OwnerKey,
        opened: &mut Opened,
    ) -> Result<(), RegionError> {
        let alias = self.alias()?;
        let name = RegionName::parse(&self.name)?;
        let mut region = self.open_region(names, &name, key)?;
        if region.opened() == holdfast_region::Opened::Created && self.compartment.is_none() {
            opened.made_now.push(self.clone());
        }
        let ready = self.make_ready(&mut region);
        let alias = alias.unwrap_or_else(|| region.name().clone());
        // It is to be closed, too, where it cannot be made ready.
        opened.heaps.push((alias, region));
        ready?;
        for number in 1..=self.compartments {
            let worker = thread_name(number)?;
            let part = names.open_compartment(&name, &worker, key, self.quota_bytes)?;
            opened.heaps.push((part.name().clone(), part));
        }
        Ok(())
    }

    /// Opens the region for this program, and makes it if there is none.
    pub(crate) fn open_here(&self, names: &NameSpace) -> Result<Region, RegionError> {
        let name = RegionName::parse(&self.name)?;
        let key = self.key_here(names, &name)?;
        let mut region = self.open_region(names, &name, &key)?;
        if let Err(error) = self.make_ready(&mut region) {
            // Left open, it would count as not closed in order. Why it cannot be made ready says
            // more than why it cannot be closed.
            let _ = region.close();
            return Err(error);
        }
        Ok(region)
    }

    fn open_region(
        &self,
        names: &NameSpace,
        name: &RegionName,
        key: &OwnerKey,
    ) -> Result<Region, RegionError> {
        match &self.compartment {
            None => self.open_whole(names, name, key),
            Some(worker) if !worker.contains(NUMBER) => self.open_part(names, name, key, worker),
            Some(worker) => {
                let mut number = 0;
                loop {
                    let worker = worker.replace(NUMBER, &number.to_string());
                    match self.open_part(names, name, key, &worker) {
                        Err(RegionError::Held { .. }) if number < NUMBERS_MAX => number += 1,
                        other => break other,
                    }
                }
            }
        }
    }

    /// Makes the room and chooses the mode that were asked for. A key that may only read uses no
    /// room and has nothing to publish.
    fn make_ready(&self, region: &mut Region) -> Result<(), RegionError> {
        if region.is_read_only() {
            return Ok(());
        }
        if self.reserved_bytes > 0 {
            // In all: each start with the same grant must not take more.
            region.grow(self.reserved_bytes)?;
        }
        if self.is_atomic {
            region.set_consistency(Consistency::Atomic)?;
        }
        Ok(())
    }

    /// Opens the region that there is, to write or for reading; makes nothing.
    pub(crate) fn open_there(
        &self,
        names: &NameSpace,
        read_only: bool,
    ) -> Result<Region, RegionError> {
        let name = RegionName::parse(&self.name)?;
        names.summary(&name)?;
        match read_only {
            true => names.open_read_only(&name, &self.key_here(names, &name)?),
            false => self.open_here(names),
        }
    }

    fn open_whole(
        &self,
        names: &NameSpace,
        name: &RegionName,
        key: &OwnerKey,
    ) -> Result<Region, RegionError> {
        match names.access(name, key) {
            _ if self.is_read_only => names.open_read_only(name, key),
            Ok(access) if !access.may_write() => names.open_read_only(name, key),
            // Whatever else there is to say is said by the opening.
            _ => names.open_or_create(name, key, self.limit_bytes),
        }
    }

    fn open_part(
        &self,
        names: &NameSpace,
        name: &RegionName,
        key: &OwnerKey,
        worker: &str,
    ) -> Result<Region, RegionError> {
        let worker = RegionName::parse(worker)?;
        let open = || names.open_compartment(name, &worker, key, self.quota_bytes);
        match open() {
            Err(RegionError::NotFound { .. }) => match names.create(name, key, self.limit_bytes) {
                Ok(parent) => {
                    parent.close()?;
                    open()
                }
                // Another process made it.
                Err(RegionError::AlreadyExists { .. }) => open(),
                Err(error) => Err(error),
            },
            other => other,
        }
    }

    /// Whether its key follows from who the applet is. Compartments are the host's, which tells
    /// the workers apart.
    fn is_the_applets(&self) -> bool {
        self.key.is_none() && self.compartment.is_none()
    }

    /// The key that the caller named, or the one that owns the heap, if no caller has to name it.
    /// Only with a new heap one is made; a caller that mistypes the name of a key gets none.
    fn key_here(&self, names: &NameSpace, name: &RegionName) -> Result<OwnerKey, RegionError> {
        if self.key.is_none()
            && names.summary(name).is_ok()
            && let Some((_, key)) = implicit_owner_key(names, name)?
        {
            return Ok(key);
        }
        key_of_caller(names, name, self.key.as_deref().unwrap_or(LEGACY_KEY))
    }

    /// Whether an applet can have its compartments.
    fn check_parts(&self, is_native: bool) -> PyResult<()> {
        let wrong = match self.compartments {
            0 => return Ok(()),
            _ if self.compartment.is_some() => {
                "compartment gives the applet one instead of the heap, compartments some besides it; choose one of both"
            }
            _ if self.is_read_only || self.is_atomic => {
                "threads have compartments of a heap that may be written to, in the mode direct; leave out read_only and \
                 atomic, or compartments"
            }
            1 => return Ok(()),
            _ if !is_native => {
                "a WebAssembly applet has one thread, and so one compartment; start several applets"
            }
            count if count > COMPARTMENTS_MAX => "an applet can have 15 compartments; grant fewer",
            _ => return Ok(()),
        };
        Err(PyValueError::new_err(wrong))
    }

    /// Refuses what would have no effect beside `read_only`, or another one than it says.
    fn check_reading(&self) -> PyResult<()> {
        if !self.is_read_only {
            return Ok(());
        }
        let grant = format!("HeapGrant({:?}, read_only=True)", self.name);
        if self.compartment.is_some() {
            return Err(PyValueError::new_err(format!(
                "{grant} grants reading only, and an applet writes to its compartment; leave out read_only, or compartment \
                 to have the heap itself read"
            )));
        }
        let for_writing = [("reserve", self.reserved_bytes > 0), ("atomic", self.is_atomic)];
        let ignored = for_writing.into_iter().find(|(_, is_given)| *is_given);
        let Some((ignored, _)) = ignored else { return Ok(()) };
        Err(PyValueError::new_err(format!(
            "{ignored} is about a heap that the applet may write to, and {grant} grants reading only; leave out {ignored}, \
             or read_only"
        )))
    }

    /// Removes a heap that was made for nothing.
    pub(crate) fn forget(&self, names: &NameSpace) {
        let remove = || {
            let name = RegionName::parse(&self.name)?;
            names.remove_with_compartments(&name, &self.key_here(names, &name)?)
        };
        // The reason why it was for nothing says more.
        let _: Result<(), RegionError> = remove();
    }
}

/// The key of a name, made only with a new heap.
fn key_of_caller(
    names: &NameSpace,
    heap: &RegionName,
    key_name: &str,
) -> Result<OwnerKey, RegionError> {
    Ok(match names.summary(heap) {
        Err(RegionError::NotFound { .. }) => OwnerKey::load_or_create(names.places(), key_name)?,
        _ => OwnerKey::load_existing(names.places(), key_name)?,
    })
}

/// All that an applet is given, to be given again for each of a pool's.
#[derive(Clone)]
pub(crate) struct Given {
    args: Vec<String>,
    env: Vec<(String, String)>,
    dirs: Vec<DirGrant>,
    heaps: Vec<HeapSpec>,
    /// What the host calls the applet.
    app: Option<GivenName>,
    functions: Functions,
    places: Option<Places>,
}

/// What is granted for one start.
pub(crate) struct Opened {
    /// All of it but the heaps.
    pub(crate) grants: Grants,
    /// Each with its name in the applet.
    pub(crate) heaps: Vec<(RegionName, Region)>,
    /// Which of the heaps were made now.
    pub(crate) made_now: Vec<HeapSpec>,
    /// What must be started, where heaps are granted.
    pub(crate) examined: Option<AppletFile>,
}

/// Why nothing is granted.
pub(crate) struct OpenError {
    pub(crate) error: Box<AppletError>,
    /// Which of the heaps before could not be closed, in words.
    pub(crate) unclosed: Vec<String>,
}

impl OpenError {
    /// As the exception of Python.
    pub(crate) fn raise(&self, py: Python<'_>) -> PyErr {
        extend(py, applet_error(py, &self.error), &self.unclosed)
    }
}

impl Given {
    /// Checks it, as far as that is possible before something starts.
    #[allow(clippy::too_many_arguments, reason = "each is a thing of its own")]
    pub(crate) fn new(
        path: &Path,
        args: Vec<String>,
        env: Vec<(String, String)>,
        dirs: Vec<DirGrant>,
        heaps: Vec<HeapSpec>,
        app: Option<GivenName>,
        functions: Functions,
        places: Option<Places>,
    ) -> PyResult<Given> {
        if let Some(grant) = dirs.iter().find(|grant| !grant.host.is_dir()) {
            let path = grant.host.display();
            return Err(PyValueError::new_err(format!(
                "cannot grant {path}: there is no such directory"
            )));
        }
        for heap in &heaps {
            heap.check_parts(matches!(SandboxKind::of(path), Ok(SandboxKind::Native)))?;
            heap.check_reading()?;
        }
        if app.is_some() && heaps.is_empty() {
            return Err(PyValueError::new_err(
                "app would do nothing: it says whose heaps the applet is given, and no heap is granted; pass heap=\"NAME\", \
                 or leave out app",
            ));
        }
        if app.is_some() && !heaps.iter().any(HeapSpec::is_the_applets) {
            return Err(PyValueError::new_err(format!(
                "app would do nothing: HeapGrant(compartment=...) opens a heap with the key `{LEGACY_KEY}` or the one after \
                 key=, whatever the applet is called; leave out app, or grant a heap without compartment and key"
            )));
        }
        // With a compartment it never sees the heap itself.
        let limits = heaps.iter().map(|heap| match heap.compartment {
            Some(_) => heap.quota_bytes,
            None => heap.limit_bytes,
        });
        if limits.max().unwrap_or_default() > MAX_HEAP_LIMIT_BYTES
            && !matches!(SandboxKind::of(path), Ok(SandboxKind::Native))
        {
            return Err(PyValueError::new_err(format!(
                "a WebAssembly applet can use a heap of {} MiB at most; choose a smaller limit",
                MAX_HEAP_LIMIT_BYTES >> 20
            )));
        }
        Ok(Given { args, env, dirs, heaps, app, functions, places })
    }

    /// The grants, with the heaps opened for the applet at this path. Where one cannot be opened,
    /// those before it are closed again, in order, and none stays that was made. What the user
    /// should be told is added to the notes, also then.
    pub(crate) fn open(&self, path: &Path, notes: &mut Vec<String>) -> Result<Opened, OpenError> {
        let mut grants = Grants::none();
        for argument in &self.args {
            grants = grants.arg(argument);
        }
        for (name, value) in &self.env {
            grants = grants.env(name, value);
        }
        for grant in &self.dirs {
            grants = grants.dir(grant.clone());
        }
        grants = self.functions.grant(grants);
        if let Some(places) = &self.places {
            grants = grants.cache_dir(places.cache());
        }
        let (heaps, made_now) = (Vec::new(), Vec::new());
        let mut opened = Opened { grants, heaps, made_now, examined: None };
        match self.open_heaps(path, notes, &mut opened) {
            Ok(()) => Ok(opened),
            Err(error) => Err(OpenError { error: error.into(), unclosed: self.undo(opened) }),
        }
    }

    /// Opens the heaps in turn. After an error `opened` has those that are to be closed and
    /// removed.
    fn open_heaps(
        &self,
        path: &Path,
        notes: &mut Vec<String>,
        opened: &mut Opened,
    ) -> Result<(), IdentityError> {
        let Some(places) = &self.places else { return Ok(()) };
        let names = NameSpace::new(places.clone());
        let identity = self.identify(path, places, opened)?;
        let keys = self.heaps.iter().map(|heap| heap.key_for(&names, identity.as_ref()));
        let keys: Vec<_> = keys.collect::<Result<_, _>>()?;
        // Only one that may use all of its heaps makes its publisher known.
        if let (Some(identity), Some(file)) = (&identity, &opened.examined)
            && let Some(signature) = file.signature()
            && Publishers::of(places).meet(signature)? == Trust::FirstUse
        {
            notes.push(format!(
                "this is the first applet of its publisher here: {identity}; the key is recorded, and another one under \
                 that name will be refused"
            ));
        }
        for (heap, (key, is_of_all)) in self.heaps.iter().zip(keys) {
            if is_of_all {
                notes.push(format!(
                    "heap {0} is one of the key `{LEGACY_KEY}`, which every applet may use; `holdfast heap adopt {0} --by \
                     APPLET` hands it over to one alone",
                    heap.name
                ));
            }
            heap.open_for(&names, &key, opened)?;
        }
        Ok(())
    }

    /// Undoes what [`Given::open`] did: closes the heaps, in order, and removes those that were
    /// made. Left open, they would count as not closed in order. Says which could not be closed.
    pub(crate) fn undo(&self, opened: Opened) -> Vec<String> {
        let mut unclosed = Vec::new();
        for (_, region) in opened.heaps {
            let name = region.name().clone();
            if let Err(error) = region.close() {
                unclosed.push(format!("the heap {name} could not be closed in order: {error}"));
            }
        }
        self.forget_heaps(&opened.made_now);
        unclosed
    }

    /// Who the applet is, if a heap is opened for that. With any heap its file is examined: one
    /// with a signature that is not good gets none.
    fn identify(
        &self,
        path: &Path,
        places: &Places,
        opened: &mut Opened,
    ) -> Result<Option<Identity>, IdentityError> {
        if self.heaps.is_empty() {
            return Ok(None);
        }
        if !self.heaps.iter().any(HeapSpec::is_the_applets) {
            opened.examined = match AppletFile::of_path(path) {
                Ok(file) => Some(file),
                // Its start says more.
                Err(SignatureError::Io(_)) => None,
                Err(source) => {
                    return Err(IdentityError::File { path: path.to_owned(), source });
                }
            };
            return Ok(None);
        }
        let (file, identity, _) = Publishers::of(places).identify_path(path, self.app.as_ref())?;
        opened.examined = Some(file);
        Ok(Some(identity))
    }

    /// Whether several applets at once can be given it.
    pub(crate) fn is_for_many(&self) -> bool {
        self.heaps.iter().all(HeapSpec::is_for_many)
    }

    /// The functions that the applet may call; see [`Functions::callables`].
    pub(crate) fn callables(&self, py: Python<'_>) -> PyResult<Py<Callables>> {
        self.functions.callables(py)
    }

    /// Removes what [`Given::open`] made, once it is closed.
    pub(crate) fn forget_heaps(&self, made_now: &[HeapSpec]) {
        if let Some(places) = &self.places {
            made_now.iter().for_each(|heap| heap.forget(&NameSpace::new(places.clone())));
        }
    }
}

/// The places of heaps: those of the environment, but for what is named here.
pub(crate) fn places(home: Option<PathBuf>, pool: Option<PathBuf>) -> Result<Places, PlaceError> {
    holdfast_keeper_client::use_for_room();
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path).into_os_string();
    let (home, pool) = (home.map(absolute), pool.map(absolute));
    let lookup = |name: &str| -> Option<OsString> {
        match name {
            "HOLDFAST_HOME" if home.is_some() => home.clone(),
            "HOLDFAST_POOL" if pool.is_some() => pool.clone(),
            other => std::env::var_os(other),
        }
    };
    Places::from_variables(lookup, Path::new("/dev/shm"))
}

/// A directory: a path, a text as the command line has it, or a `DirGrant`.
pub(crate) fn directory(grant: &Bound<'_, PyAny>) -> PyResult<DirGrant> {
    if let Ok(text) = grant.cast::<PyString>() {
        return text.to_cow()?.parse().map_err(|error| {
            let error: holdfast_applet::GrantError = error;
            PyValueError::new_err(error.to_string())
        });
    }
    if !grant.hasattr("host")? {
        let host: PathBuf = grant.extract()?;
        let guest = host.to_string_lossy().into_owned();
        return Ok(DirGrant { host, guest, access: PathAccess::ReadWrite });
    }
    let host: PathBuf = grant.getattr("host")?.extract()?;
    let guest: Option<String> = grant.getattr("guest")?.extract()?;
    let guest = guest.unwrap_or_else(|| host.to_string_lossy().into_owned());
    let is_read_only: bool = grant.getattr("read_only")?.extract()?;
    Ok(DirGrant {
        host,
        guest,
        access: if is_read_only { PathAccess::ReadOnly } else { PathAccess::ReadWrite },
    })
}
