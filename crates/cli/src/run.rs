//! `holdfast run`.

use holdfast_applet::{Applet, AppletError, FailureKind, Limits, Metrics, Outcome, Stdio};
use holdfast_region::{Consistency, Medium, NameSpace, Opened, OwnerKey, Places, Region, RegionName};

use crate::args::RunArgs;
use crate::exit::{Failure, HOST_FAILED, NO_APPLET, NOT_LOADABLE, TIME_LIMIT, TRAPPED, USAGE};
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
        applet = applet.dir(grant);
    }
    let mut heap = None;
    if let Some(name) = args.heap {
        let (granted, mut region) = Granted::open(places, name, &args.key, args.heap_size, args.backing)?;
        if args.atomic {
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
        places: Places,
        name: RegionName,
        key: &str,
        limit_bytes: u64,
        medium: Medium,
    ) -> Result<(Granted, Region), Failure> {
        let key = OwnerKey::load_or_create(&places, key).map_err(host)?;
        let names = NameSpace::new(places).with_medium(medium);
        let open = || names.open_or_create(&name, &key, limit_bytes);
        let region = with_progress(&format!("opening {name}"), open).map_err(host)?;
        let made_now = region.opened() == Opened::Created;
        Ok((Granted { names, name, key, made_now }, region))
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

/// In `run`, exit codes below 124 are the applet's own: whatever fails on our side is one of ours.
fn host(error: impl ToString) -> Failure {
    Failure::new(HOST_FAILED, error)
}
