//! `holdfast run`.

use holdfast_applet::{
    Applet, AppletError, FailureKind, Limits, MAX_HEAP_LIMIT_BYTES, Metrics, Outcome, Stdio,
};
use holdfast_region::{
    Consistency, KeyError, NameSpace, Opened, OwnerKey, Places, Region, RegionError, RegionName,
};

use crate::args::RunArgs;
use crate::exit::{Failure, HOST_FAILED, NO_APPLET, NOT_LOADABLE, TIME_LIMIT, TRAPPED, USAGE};
use crate::heap::key_for_new;
use crate::output::with_progress;
use crate::size::show_size;

pub fn run(args: RunArgs) -> Result<u8, Failure> {
    if !args.applet.exists() {
        return Err(Failure::new(
            NO_APPLET,
            format!("there is no applet {}; check the path", args.applet.display()),
        ));
    }
    let places = Places::from_env().map_err(host)?;
    let mut limits = Limits::default();
    limits.timeout = args.timeout;
    limits.memory_bytes = args.memory;
    limits.fuel = args.fuel;
    let mut applet = Applet::new(&args.applet)
        .args(args.args)
        .stdio(Stdio::inherit())
        .limits(limits)
        .cache_dir(places.cache());
    for variable in &args.env {
        let (name, value) = environment(variable)?;
        applet = applet.env(name, value);
    }
    for grant in args.dirs {
        if !grant.host.is_dir() {
            let path = grant.host.display();
            return Err(usage(format!(
                "cannot grant {path}: there is no such directory; check the path after --dir"
            )));
        }
        applet = applet.dir(grant);
    }
    let mut heap = None;
    if let Some(name) = args.heap {
        let names = NameSpace::new(places).with_medium(args.backing);
        match &args.compartment {
            Some(worker) => {
                check_size(&names, &name.compartment(worker).map_err(usage)?, "--quota", args.quota)?;
            }
            None => check_size(&names, &name, "--heap-size", args.heap_size)?,
        }
        let key = key(&names, &args.key, &name)?;
        let (granted, mut region) = match args.compartment {
            Some(worker) => Granted::compartment(names, &name, &worker, key, args.heap_size, args.quota)?,
            None => Granted::open(names, name, key, args.heap_size)?,
        };
        // An applet that may only read has nothing to publish.
        if args.atomic && !region.is_read_only() {
            region.set_consistency(Consistency::Atomic).map_err(host)?;
        }
        applet = applet.heap(region);
        heap = Some(granted);
    }
    match applet.run() {
        Ok(outcome) => finish(outcome, args.metrics),
        Err(error) => {
            if args.metrics {
                show_metrics(&error.metrics);
            }
            Err(explain(&error, heap))
        }
    }
}

/// The heap of this run, for what has to be done when it fails.
struct Granted {
    names: NameSpace,
    name: RegionName,
    key: OwnerKey,
    made_now: bool,
}

impl Granted {
    fn open(
        names: NameSpace,
        name: RegionName,
        key: OwnerKey,
        limit_bytes: u64,
    ) -> Result<(Granted, Region), Failure> {
        let region = with_progress(&format!("opening {name}"), || match names.access(&name, &key) {
            Ok(access) if !access.may_write() => names.open_read_only(&name, &key),
            // Whatever else there is to say is said by the opening.
            _ => names.open_or_create(&name, &key, limit_bytes),
        });
        Ok(Granted::with(names, name, key, region.map_err(host)?))
    }

    /// The compartment of a worker, below a heap that is made if there is none.
    fn compartment(
        names: NameSpace,
        parent: &RegionName,
        worker: &RegionName,
        key: OwnerKey,
        limit_bytes: u64,
        quota_bytes: u64,
    ) -> Result<(Granted, Region), Failure> {
        let open = || names.open_compartment(parent, worker, &key, quota_bytes);
        let region = match with_progress(&format!("opening {worker} of {parent}"), open) {
            Err(RegionError::NotFound { .. }) => {
                match names.create(parent, &key, limit_bytes) {
                    Ok(parent) => drop(parent.close().map_err(host)?),
                    // Another worker made it.
                    Err(RegionError::AlreadyExists { .. }) => {}
                    Err(error @ RegionError::LimitOutOfRange { .. }) => return Err(error.into()),
                    Err(error) => return Err(host(error)),
                }
                open()
            }
            other => other,
        };
        let name = parent.compartment(worker).map_err(host)?;
        Ok(Granted::with(names, name, key, region.map_err(host)?))
    }

    fn with(names: NameSpace, name: RegionName, key: OwnerKey, region: Region) -> (Granted, Region) {
        let made_now = region.opened() == Opened::Created;
        (Granted { names, name, key, made_now }, region)
    }

    /// A program that was never started leaves no empty heap behind.
    fn forget_if_made_now(self) {
        if self.made_now
            && let Err(error) = self.names.remove(&self.name, &self.key)
        {
            eprintln!("holdfast: the new heap {} could not be removed again: {error}", self.name);
        }
    }
}

/// The key of the run. Only with a new heap one is made; whoever mistypes the name of a key gets none.
fn key(names: &NameSpace, key_name: &str, heap: &RegionName) -> Result<OwnerKey, Failure> {
    let key = if is_new(names, heap) {
        key_for_new(names, key_name)
    } else {
        OwnerKey::load_existing(names.places(), key_name)
    };
    key.map_err(|error| match error {
        KeyError::Name(_) => error.into(),
        KeyError::Missing { .. } => host(format!(
            "{error}; a key that is to use this heap is made by its owner: `holdfast heap grant {heap} --to KEY`"
        )),
        _ => host(error),
    })
}

/// Whether a run would make this heap.
fn is_new(names: &NameSpace, name: &RegionName) -> bool {
    matches!(names.summary(name), Err(RegionError::NotFound { .. }))
}

/// Asked before a heap is made: one that no applet can use would stay behind.
fn check_size(names: &NameSpace, name: &RegionName, option: &str, asked_bytes: u64) -> Result<(), Failure> {
    if asked_bytes <= MAX_HEAP_LIMIT_BYTES || !is_new(names, name) {
        return Ok(());
    }
    let message = format!(
        "{option} is {} and a WebAssembly applet can use a heap of {} MiB at most; choose a smaller size (`holdfast heap \
         limit NAME SIZE` raises it later)",
        show_size(asked_bytes),
        MAX_HEAP_LIMIT_BYTES >> 20
    );
    Err(Failure::new(USAGE, message))
}

fn finish(outcome: Outcome, metrics: bool) -> Result<u8, Failure> {
    for note in &outcome.notes {
        eprintln!("holdfast: {note}");
    }
    if metrics {
        show_metrics(&outcome.metrics);
    }
    if let Some(error) = &outcome.heap_error {
        eprintln!("holdfast: {error}");
    }
    if let Some(region) = outcome.region {
        let name = region.name().clone();
        with_progress(&format!("writing {name} to the store"), || region.close()).map_err(host)?;
    }
    Ok(u8::try_from(outcome.exit_status).unwrap_or(u8::MAX))
}

fn explain(error: &AppletError, heap: Option<Granted>) -> Failure {
    let code = match error.kind() {
        FailureKind::NotFound => NO_APPLET,
        FailureKind::CannotLoad => NOT_LOADABLE,
        FailureKind::Trap => TRAPPED,
        FailureKind::TimeLimit => TIME_LIMIT,
        _ => HOST_FAILED,
    };
    if matches!(code, NO_APPLET | NOT_LOADABLE)
        && let Some(heap) = heap
    {
        heap.forget_if_made_now();
    }
    Failure::new(code, error)
}

/// `NAME=VALUE`, or `NAME` with the value that this process has.
fn environment(variable: &str) -> Result<(String, String), Failure> {
    if let Some((name, value)) = variable.split_once('=') {
        return Ok((name.to_owned(), value.to_owned()));
    }
    let value = std::env::var(variable).map_err(|_| {
        let message = format!(
            "the environment has no variable {variable} to pass through; write --env {variable}=VALUE"
        );
        Failure::new(USAGE, message)
    })?;
    Ok((variable.to_owned(), value))
}

fn show_metrics(metrics: &Metrics) {
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1000.0;
    let how = if metrics.compiled { "compiled" } else { "from the cache" };
    eprintln!(
        "holdfast: engine {:.2} ms, load {:.2} ms ({how}), start {:.2} ms, run {:.2} ms (CPU {:.2} ms)",
        ms(metrics.engine_time),
        ms(metrics.load_time),
        ms(metrics.instantiate_time),
        ms(metrics.wall_time),
        ms(metrics.cpu_time),
    );
    let fuel = metrics.fuel_used.map(|fuel| format!(", fuel {fuel}")).unwrap_or_default();
    eprintln!(
        "holdfast: volatile memory {} at most, heap {}{}{fuel}",
        show_size(metrics.peak_volatile_bytes),
        show_size(metrics.heap_backed_bytes),
        if metrics.heap_dirty { ", changed" } else { ", unchanged" },
    );
}

fn usage(error: impl ToString) -> Failure {
    Failure::new(USAGE, error)
}

/// In `run`, exit codes below 124 are the applet's own: whatever fails on our side is one of ours.
fn host(error: impl ToString) -> Failure {
    Failure::new(HOST_FAILED, error)
}
