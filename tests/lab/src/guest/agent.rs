//! The first process: carries out what the host orders, one thing after the other.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use super::part::{Part, VERIFY, WRITE, WRITE_EARLY, Writers};
use super::port::Port;
use super::{FLASH, PMEM, database_writer, keeping, system, writer};
use crate::initramfs::{ARGUMENTS, ENVIRONMENT, INIT, PROGRAM};
use crate::words::{Order, Report};

/// `struct input_event`: two words of time, then type, code, value.
const EVENT_BYTES: usize = 24;
const EV_KEY: u16 = 1;
const KEY_POWER: u16 = 116;

/// Never returns: the first process must not end.
pub fn run() -> ! {
    if let Err(what) = serve() {
        // Also where there is no port yet.
        println!("holdfast-lab-guest: {what}");
        if let Ok(mut port) = Port::open() {
            let _ = port.set_up();
            let _ = port.send_apart(&Report::Failed(what));
        }
    }
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn serve() -> Result<(), String> {
    let memory_kept = system::set_up()?;
    let mut port = Port::open().map_err(|error| format!("no port to the host: {error}"))?;
    port.set_up().map_err(|error| format!("the port to the host cannot be set up: {error}"))?;
    watch_button()?;
    let orders = port.orders().map_err(|error| error.to_string())?;
    let uptime = system::uptime().map_err(|error| error.to_string())?;
    say(&mut port, &Report::Ready { uptime, memory_kept })?;
    let mut writers = Writers::default();
    for order in orders {
        let report = match order {
            Order::Write { early } => {
                let word = if early { WRITE_EARLY } else { WRITE };
                writers = Writers::start(word)?;
                Report::Done
            }
            Order::Kill => writers.kill().map(|()| Report::Done)?,
            Order::Hang => writers.stop().map(|()| Report::Done)?,
            Order::Panic => {
                std::fs::write("/proc/sysrq-trigger", "c").map_err(|error| error.to_string())?;
                Report::Failed("the kernel did not panic".to_owned())
            }
            Order::Verify => {
                for part in Part::ALL {
                    let status = part.start(VERIFY)?.wait().map_err(|error| error.to_string())?;
                    if !status.success() {
                        return Err(format!(
                            "the reader of {part:?} ended with {status}; the console has its words"
                        ));
                    }
                }
                Report::Done
            }
            Order::Forget => {
                writer::forget()?;
                database_writer::forget()?;
                Report::Done
            }
            Order::Keep => keeping::start().map(|()| Report::Done)?,
            Order::Run => Report::Ended { status: run_program()? },
        };
        say(&mut port, &report)?;
    }
    Err("the host hung up".to_owned())
}

fn say(port: &mut Port, report: &Report) -> Result<(), String> {
    port.send_apart(report).map_err(|error| format!("the host cannot be told: {error}"))
}

pub(super) fn start(word: &str) -> Result<Child, String> {
    let started = Command::new(Path::new("/").join(INIT)).arg(word).spawn();
    started.map_err(|error| format!("{INIT} {word} cannot be started: {error}"))
}

/// Runs the program that was brought along; what it says goes to the console.
fn run_program() -> Result<Option<i32>, String> {
    let words = |path: &str| -> Result<Vec<String>, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("no {path}: {error}"))?;
        Ok(text.split_terminator('\0').map(str::to_owned).collect())
    };
    let mut command = Command::new(PROGRAM);
    command
        .args(words(ARGUMENTS)?)
        .env("HOLDFAST_TEST_DAX", PMEM)
        .env("HOLDFAST_TEST_DISK", FLASH)
        .env("HOME", "/root");
    for variable in words(ENVIRONMENT)? {
        if let Some((name, value)) = variable.split_once('=') {
            command.env(name, value);
        }
    }
    let status =
        command.status().map_err(|error| format!("{PROGRAM} cannot be started: {error}"))?;
    Ok(status.code())
}

/// Reports each press of the power button, from a thread of its own.
fn watch_button() -> Result<(), String> {
    let device = button().ok_or("there is no input device called Power Button")?;
    let mut events =
        File::open(&device).map_err(|error| format!("{}: {error}", device.display()))?;
    let mut port = Port::open().map_err(|error| error.to_string())?;
    std::thread::spawn(move || {
        let mut event = [0; EVENT_BYTES];
        while events.read_exact(&mut event).is_ok() {
            if is_press(&event) && port.send_apart(&Report::Button).is_err() {
                return;
            }
        }
    });
    Ok(())
}

fn is_press(event: &[u8; EVENT_BYTES]) -> bool {
    let word = |at: usize| u16::from_le_bytes([event[at], event[at + 1]]);
    word(16) == EV_KEY && word(18) == KEY_POWER && word(20) == 1
}

fn button() -> Option<PathBuf> {
    let entries = std::fs::read_dir("/sys/class/input").ok()?;
    let names = entries.flatten().map(|entry| entry.path());
    let is_button = |path: &PathBuf| {
        std::fs::read_to_string(path.join("device/name"))
            .is_ok_and(|name| name.trim() == "Power Button")
    };
    let found = names.filter(|path| path.join("dev").exists()).find(is_button)?;
    Some(PathBuf::from("/dev/input").join(found.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A press of the power button is distinguished from its release and from other keys.
    #[test]
    fn power_button_press_is_recognized() {
        let event = |kind: u8, code: u8, value: u8| {
            let mut event = [0; EVENT_BYTES];
            (event[16], event[18], event[20]) = (kind, code, value);
            event
        };
        assert!(is_press(&event(1, 116, 1)));
        assert!(
            !is_press(&event(1, 116, 0))
                && !is_press(&event(1, 30, 1))
                && !is_press(&event(0, 0, 0))
        );
    }
}
