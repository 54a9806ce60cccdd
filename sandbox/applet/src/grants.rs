//! The grants of an applet besides processor and memory.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use holdfast_region::{NameError, NameSpace, OwnerKey, Region, RegionError, RegionName};
use holdfast_wasm::{DirGrant, GrantedHeap, Heaps, HostFunction, HostFunctions, Stdio};

use crate::limits::Limits;
use crate::plan::Plan;

/// What an applet may use. By default: no heap, no directory, no environment, no arguments.
#[derive(Default)]
pub struct Grants {
    args: Vec<String>,
    env: Vec<(String, String)>,
    dirs: Vec<DirGrant>,
    heaps: Heaps,
    functions: HostFunctions,
    cache_dir: Option<PathBuf>,
}

/// The name of the compartment of a thread, by its number from 1 on: that of a worker.
///
/// # Errors
/// Those of all names; one of this form has none.
pub fn thread_name(number: u32) -> Result<RegionName, NameError> {
    RegionName::parse(&format!("thread-{number}"))
}

impl Grants {
    /// Nothing.
    #[must_use]
    pub fn none() -> Grants {
        Grants::default()
    }

    /// The plan to run a program with all of this but the heaps, and the heaps.
    pub(crate) fn into_plan(self, path: PathBuf) -> (Plan, Heaps) {
        let Grants { args, env, dirs, heaps, functions, cache_dir } = self;
        let functions = functions.for_another();
        let (stdio, limits) = (Stdio::default(), Limits::default());
        (
            Plan {
                path,
                examined: None,
                name: None,
                args,
                env,
                dirs,
                functions,
                cache_dir,
                stdio,
                limits,
                is_strict: false,
                start_wanted: None,
            },
            heaps,
        )
    }

    /// A heap, under its own name; one more, if there are some. What an applet does without naming
    /// a heap is done in the one that was granted first.
    #[must_use]
    pub fn heap(self, region: Region) -> Grants {
        let name = region.name().clone();
        self.heap_as(name, region)
    }

    /// A heap that the applet knows by another name than its own.
    #[must_use]
    pub fn heap_as(mut self, name: RegionName, region: Region) -> Grants {
        self.heaps.push(GrantedHeap { name, region, base: None });
        self
    }

    /// The private compartment that `worker` has in the region `parent`, made if there is none: see
    /// [`NameSpace::open_compartment`]. Workers run beside each other, each with its own.
    ///
    /// # Errors
    /// Those of opening the compartment.
    pub fn compartment(
        self,
        names: &NameSpace,
        parent: &RegionName,
        worker: &RegionName,
        owner: &OwnerKey,
        quota_bytes: u64,
    ) -> Result<Grants, RegionError> {
        Ok(self.heap(names.open_compartment(parent, worker, owner, quota_bytes)?))
    }

    /// Private compartments of the region `parent` for the threads of one applet, `thread-1` to
    /// `thread-COUNT`, each made with its own quota if there is none. The applet has them besides
    /// the heap that was granted first, which is what threads use that have entered none
    /// (`nv_compartment_enter`). An applet in WebAssembly has one thread.
    ///
    /// # Errors
    /// Those of [`NameSpace::open_compartment`].
    pub fn compartments(
        mut self,
        names: &NameSpace,
        parent: &RegionName,
        owner: &OwnerKey,
        count: u32,
        quota_bytes: u64,
    ) -> Result<Grants, RegionError> {
        for number in 1..=count {
            let worker = thread_name(number)?;
            self = self.compartment(names, parent, &worker, owner, quota_bytes)?;
        }
        Ok(self)
    }

    /// A function of the host, which the applet may call by this name: up to 64 bytes, each name
    /// once. It gets bytes, and returns bytes or a failure, at most 64 MiB; [`HostFunction`] has its
    /// limits.
    ///
    /// It may use anything but the applet itself: calling that is [`crate::CallError::Busy`], and
    /// its heaps are held. So whatever the applet has open in a transaction nothing else sees.
    #[must_use]
    pub fn function(
        mut self,
        name: impl Into<String>,
        function: impl Into<HostFunction>,
    ) -> Grants {
        self.functions.push(name, function);
        self
    }

    /// One argument more; the program's name is there already.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Grants {
        self.args.push(argument.into());
        self
    }

    /// An environment variable; the applet sees no others.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Grants {
        self.env.push((name.into(), value.into()));
        self
    }

    /// A directory.
    #[must_use]
    pub fn dir(mut self, grant: DirGrant) -> Grants {
        self.dirs.push(grant);
        self
    }

    /// A directory where compiled WebAssembly is kept, so that later starts are faster.
    #[must_use]
    pub fn cache_dir(mut self, directory: impl Into<PathBuf>) -> Grants {
        self.cache_dir = Some(directory.into());
        self
    }
}
