//! The program `holdfast-keeper` (`holdfast keeper`): runs a keeper, or asks the one that runs.
//! Where none does, `flush` and `status` do what they can themselves.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;

use std::process::ExitCode;

use holdfast_keeper::{
    Config, DaemonError, Guard, Keeper, PoolLimit, Profile, ServePolicy, Sources, status_of_files,
    thaw_after_killed_keeper,
};
use holdfast_keeper_client::{
    Cause, Client, DatabaseStatus, FlushReport, KeeperError, SavedKind, ServedStatus, Status,
    UnsavedReason,
};
use holdfast_region::{NameSpace, Places};
use holdfast_sys::counted::counted;

use holdfast_command::exit::{FOUND, Failure, OTHER};
use holdfast_command::finding::{Finding, Grade};
use holdfast_command::program;

use crate::args::{AskArgs, Cli, Command, LimitArg, ProfileArg, RunArgs, SocketArgs, StatusArgs};
use holdfast_command::output::{print, print_as_is, print_json, print_table, shown};
use holdfast_command::size::show_size;

fn main() -> ExitCode {
    ExitCode::from(program::run(std::env::args_os(), dispatch))
}

fn dispatch(cli: Cli) -> Result<u8, Failure> {
    match &cli.command {
        Command::Run(args) => keep(args),
        Command::Flush(args) => flush(args),
        Command::Status(args) => status(args),
        Command::Metrics(args) => metrics(args),
        Command::Guard => guard(),
        Command::Doctor(_) => doctor(),
    }
}

fn failure(error: DaemonError) -> Failure {
    match error {
        DaemonError::Region(error) => error.into(),
        other => Failure::new(OTHER, other),
    }
}

fn no_answer(error: KeeperError) -> Failure {
    Failure::new(OTHER, error)
}

fn doctor() -> Result<u8, Failure> {
    print_json(&[pool_limit()])?;
    Ok(0)
}

/// The default limit of the pool.
fn pool_limit() -> Finding {
    let limit = Config::default().pool_limit;
    let found = match (limit.bytes(), limit.reason()) {
        (Some(bytes), Some(reason)) => {
            format!("{}, {reason} (`keeper run --pool-limit`)", show_size(bytes))
        }
        _ => "none: the size of the memory cannot be told".to_owned(),
    };
    Finding::new("limit of the pool with a keeper", Grade::Ok, found, "")
}

fn keep(args: &RunArgs) -> Result<u8, Failure> {
    let mut config = Config::of(match args.profile {
        ProfileArg::Phone => Profile::Phone,
        ProfileArg::Desktop => Profile::Desktop,
    });
    if let Some(limit) = args.pool_limit {
        config.pool_limit = match limit {
            LimitArg::Bytes(bytes) => PoolLimit::Bytes(bytes),
            LimitArg::Percent(percent) => PoolLimit::PercentOfMemory(percent),
            LimitArg::None => PoolLimit::None,
        };
    }
    config.emergency = args.emergency.unwrap_or(config.emergency);
    config.loss_window = args.loss_window.unwrap_or(config.loss_window);
    config.write_bytes_per_s = args.write_rate.unwrap_or(config.write_bytes_per_s);
    config.first.clone_from(&args.first);
    config.stop_for_copies = !args.never_stop;
    config.guard = own_guard();
    let mut sources = Sources::default();
    sources.socket.clone_from(&args.socket.socket);
    sources.buttons = (!args.button.is_empty()).then(|| args.button.clone());
    sources.button_hold = args.button_hold;
    sources.power_supply.clone_from(&args.power_supply);
    sources.battery_percent = args.battery;
    sources.metrics_file.clone_from(&args.metrics_file);
    sources.serve = args.serve.as_ref().map(|socket| {
        let mut policy = ServePolicy::at(socket);
        policy.users = args.serve_to.clone().unwrap_or_default();
        policy.quota.bytes = args.user_bytes;
        policy.quota.regions = args.user_regions;
        policy.quota.connections = args.user_connections;
        policy.quota.requests_per_turn = args.user_requests.into();
        policy.total_bytes = args.serve_bytes;
        policy
    });
    let mut keeper = Keeper::new(Places::from_env()?, config).map_err(failure)?;
    keeper.run(&sources).map_err(failure)?;
    Ok(0)
}

/// This program, in the role of the guard.
fn own_guard() -> Option<Guard> {
    let program = std::env::current_exe().ok()?;
    Some(Guard { program, arguments: vec!["guard".into()] })
}

fn guard() -> Result<u8, Failure> {
    let places = Places::from_env()?;
    // Whatever ends it, the keeper is done then, or dead.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    thaw_after_killed_keeper(&places).map_err(|error| Failure::new(OTHER, error))?;
    Ok(0)
}

fn client(places: &Places, args: &SocketArgs) -> Client {
    args.socket.clone().map_or_else(|| Client::of(places.pool()), Client::new)
}

fn flush(args: &AskArgs) -> Result<u8, Failure> {
    let places = Places::from_env()?;
    let report = match client(&places, &args.socket).flush() {
        Err(KeeperError::NoKeeper { .. }) if args.socket.socket.is_none() => {
            let mut config = Config::default();
            config.guard = own_guard();
            // A person waits for it, and no machine goes.
            config.emergency = std::time::Duration::from_secs(3600);
            Keeper::new(places, config).map_err(failure)?.flush(Cause::Asked)
        }
        other => other.map_err(no_answer)?,
    };
    if args.json {
        print_json(&report)?;
    } else {
        print(&flush_text(&report))?;
    }
    Ok(if report.left.is_empty() { 0 } else { FOUND })
}

fn flush_text(report: &FlushReport) -> String {
    let mut text = String::new();
    for saved in &report.saved {
        text.push_str(&format!(
            "{}: {} written to the store\n",
            saved.name,
            show_size(saved.bytes)
        ));
    }
    for left in &report.left {
        let why = match &left.why {
            UnsavedReason::NoTime => {
                "it takes longer than there was time; save it with `holdfast keeper flush`"
            }
            UnsavedReason::NoRoom => "the store is full; free some room there",
            UnsavedReason::Running => "who writes to it could not be stopped; end that program",
            UnsavedReason::Failed(why) => why,
            _ => "unknown",
        };
        text.push_str(&format!("{}: NOT saved: {why}\n", left.name));
    }
    let (heaps, databases) =
        (report.saved_of(SavedKind::Heap), report.saved_of(SavedKind::Database));
    let bytes = show_size(report.saved_bytes());
    let databases = match databases {
        0 => String::new(),
        databases => format!(" and {}", counted(databases, "database")),
    };
    let heaps = counted(heaps, "heap");
    text.push_str(&format!("{heaps}{databases} saved, {bytes} in {} ms\n", report.milliseconds));
    text
}

fn status(args: &StatusArgs) -> Result<u8, Failure> {
    let places = Places::from_env()?;
    let names = NameSpace::new(places.clone());
    loop {
        let status = match client(&places, &args.ask.socket).status() {
            Err(KeeperError::NoKeeper { .. }) if args.ask.socket.socket.is_none() => {
                status_of_files(&names).map_err(failure)?
            }
            other => other.map_err(no_answer)?,
        };
        if args.ask.json {
            print_json(&status)?;
        } else {
            if args.watch.is_some() {
                // The start of an empty screen.
                print_as_is("\x1b[H\x1b[2J")?;
            }
            show(&status, &places)?;
        }
        match args.watch {
            Some(pause) => std::thread::sleep(pause),
            None => return Ok(0),
        }
    }
}

fn show(status: &Status, places: &Places) -> Result<(), Failure> {
    let counters = &status.counters;
    let reason =
        status.pool_limit_reason.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    let limit = status
        .pool_limit_bytes
        .map_or_else(String::new, |bytes| format!(" of {}{reason}", show_size(bytes)));
    let mut text = match status.keeper {
        Some(pid) => format!("keeper: process {pid}, for {} s\n", status.up_s),
        None => "keeper: none; `holdfast keeper run` starts one\n".to_owned(),
    };
    text.push_str(&format!("pool: {}{limit} in {}\n", show_size(status.pool_bytes), pool(places)));
    if let (Some(bytes_per_s), Some(bytes)) = (status.bandwidth_bytes_per_s, status.emergency_bytes)
    {
        text.push_str(&format!(
            "store: {}/s; an emergency saves {}\n",
            show_size(bytes_per_s),
            show_size(bytes)
        ));
        text.push_str(&format!(
            "done: {} ({}, {} not saved), {}, {}, {}, {}\n",
            counted(counters.flushes, "flush"),
            counted(counters.flushed_heaps, "heap"),
            counters.left_heaps,
            counted(counters.checkpointed_heaps, "checkpoint"),
            counted(counters.copied_heaps, "copy"),
            counted(counters.evicted_heaps, "eviction"),
            counted(counters.failures, "failure")
        ));
        text.push_str(&format!(
            "done for databases: {} saved in flushes ({} not), {}, {}\n",
            counters.flushed_databases,
            counters.left_databases,
            counted(counters.copied_databases, "copy"),
            counted(counters.evicted_databases, "eviction")
        ));
    }
    print(&text)?;
    let rows: Vec<Vec<String>> = status
        .heaps
        .iter()
        .map(|heap| {
            vec![
                heap.name.clone(),
                heap.state.clone(),
                show_size(heap.image_bytes),
                format!("{} s", heap.unsaved_s),
                heap.holder.map_or_else(String::new, |pid| pid.to_string()),
            ]
        })
        .collect();
    if !rows.is_empty() {
        print_table(&["HEAP", "STATE", "IMAGE", "SAVED", "HOLDER"], &[2, 3, 4], &rows)?;
    }
    show_databases(&status.databases)?;
    status.served.as_ref().map_or(Ok(()), show_served)
}

fn show_databases(databases: &[DatabaseStatus]) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = databases
        .iter()
        .map(|found| {
            let holders: Vec<String> = found.holders.iter().map(u32::to_string).collect();
            vec![
                found.path.clone(),
                found.state.clone(),
                show_size(found.image_bytes),
                show_size(found.unsaved_bytes),
                format!("{} s", found.unsaved_s),
                holders.join(" "),
            ]
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    print_table(
        &["DATABASE", "STATE", "IMAGE", "ONLY THERE", "SAVED", "OPEN IN"],
        &[2, 3, 4],
        &rows,
    )
}

fn show_served(served: &ServedStatus) -> Result<(), Failure> {
    let (bytes, total) = (show_size(served.bytes), show_size(served.total_bytes));
    print(&format!("serves at {}: {bytes} of {total}\n", served.socket))?;
    let rows: Vec<Vec<String>> = served
        .users
        .iter()
        .map(|user| {
            vec![
                user.user.to_string(),
                user.regions.to_string(),
                show_size(user.bytes),
                user.lent.to_string(),
                user.connections.to_string(),
                user.requests.to_string(),
                user.quota_refusals.to_string(),
            ]
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    let columns = ["UID", "REGIONS", "LIMITS", "LENT", "CONNECTIONS", "REQUESTS", "QUOTA REFUSALS"];
    print_table(&columns, &[0, 1, 2, 3, 4, 5, 6], &rows)
}

fn pool(places: &Places) -> String {
    shown(places.pool())
}

fn metrics(args: &SocketArgs) -> Result<u8, Failure> {
    let places = Places::from_env()?;
    let text = match client(&places, args).metrics() {
        Err(KeeperError::NoKeeper { .. }) if args.socket.is_none() => {
            status_of_files(&NameSpace::new(places)).map_err(failure)?.metrics()
        }
        other => other.map_err(no_answer)?,
    };
    print(&text)?;
    Ok(0)
}
