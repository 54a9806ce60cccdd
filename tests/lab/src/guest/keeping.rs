//! The keeper of the heaps and databases in ordinary memory, and who tells the host what it did.
//!
//! Invariant: only an emergency makes it save anything here. In the background it would save now
//! and then, and what came back after a failure would prove nothing.

use std::time::{Duration, Instant};

use holdfast_keeper::{Config, Keeper, Sources, Status};
use holdfast_keeper_client::Client;

use super::port::Port;
use super::{KEEP, agent, names};
use crate::place::Pool;
use crate::words::Report;

/// How long the key is held. The machine's time is the host's, which may have other things to do.
const EMERGENCY: Duration = Duration::from_secs(60);
/// Longer than a machine of the lab lives.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);
/// It measures its disk before it answers.
const START_PATIENCE: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(50);

/// Keeps, until the machine goes.
///
/// # Errors
/// In words, what failed.
pub fn keep() -> Result<(), String> {
    let places = names(Pool::Tmpfs)?.places().clone();
    let mut config = Config::default();
    config.loss_window = NEVER;
    config.emergency = EMERGENCY;
    let mut keeper = Keeper::new(places, config).map_err(|error| error.to_string())?;
    // Its buttons are those that it finds by itself.
    keeper.run(&Sources::default()).map_err(|error| error.to_string())
}

/// Starts one, returns when it listens, and tells the host of the first emergency that it has dealt
/// with, from a thread.
///
/// # Errors
/// When it does not start.
pub fn start() -> Result<(), String> {
    let mut child = agent::start(KEEP)?;
    let client = Client::new(Client::default_socket(names(Pool::Tmpfs)?.places().pool()));
    let mut port = Port::open().map_err(|error| format!("no port to the host: {error}"))?;
    let until = Instant::now() + START_PATIENCE;
    // Its buttons are open before it answers anybody.
    while client.status().is_err() {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("the keeper ended with {status}; the console has its words"));
        }
        if Instant::now() > until {
            return Err(format!("the keeper does not answer after {START_PATIENCE:?}"));
        }
        std::thread::sleep(PAUSE);
    }
    std::thread::spawn(move || {
        loop {
            let report = match client.status() {
                Ok(status) => dealt_with(&status),
                Err(error) => Some(Report::Failed(format!("the keeper is gone: {error}"))),
            };
            if let Some(report) = report {
                // A reader that does not hear it waits in vain, and says so.
                let _ = port.send_apart(&report);
                return;
            }
            std::thread::sleep(PAUSE);
        }
    });
    Ok(())
}

fn dealt_with(status: &Status) -> Option<Report> {
    let counters = &status.counters;
    (counters.flushes > 0).then(|| Report::Saved {
        heaps: counters.flushed_heaps,
        databases: counters.flushed_databases,
        left: counters.left_heaps + counters.left_databases,
        took: Duration::from_millis(counters.last_flush_ms),
    })
}
