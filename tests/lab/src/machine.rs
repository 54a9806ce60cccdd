//! One machine: a QEMU that emulates every instruction, its serial ports, and the line to QEMU
//! itself.
//!
//! Invariants: every wait is bounded; the process ends with this value, and with the thread that
//! started it, however that ends. A reset keeps the contents of memory, as it does on a device; a
//! new machine begins with zeros.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::flash::{Flash, find};
use crate::missing::{LabError, Result, host};
use crate::qmp::Qmp;
use crate::words::{Order, Report};

const QEMU: &str = "qemu-system-x86_64";
/// Where the kernel is told to leave memory alone, and how much: it treats that as persistent.
pub const RESERVED_MIB: u64 = 96;
/// `no_timer_check`: on a host that does other things a kernel that tests its timer finds it too
/// slow, and gives up.
const KERNEL_LINE: &str =
    "console=ttyS0 quiet loglevel=4 panic=1 nokaslr no_timer_check memmap=96M!0x10000000";
const MEMORY_MIB: u64 = 512;
/// What QEMU has translated of one kernel makes loading the next one slow, unless there is no room
/// to keep it.
const TRANSLATIONS_MIB: u64 = 32;
/// QEMU opens its sockets at once.
const SOCKET_PATIENCE: Duration = Duration::from_secs(90);
const CONSOLE_LINES: usize = 40;

/// What a machine is made of; images stay when it is gone.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The compressed kernel.
    pub kernel: PathBuf,
    /// What it unpacks.
    pub initramfs: PathBuf,
    /// The disk.
    pub flash: Flash,
    /// An empty file system for the reserved memory.
    pub template: PathBuf,
    /// For sockets and the console's words. Its path is short: a socket's has 107 bytes at most.
    pub directory: PathBuf,
}

/// A machine that runs.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    qmp: Qmp,
    port: UnixStream,
    lines: Receiver<(Instant, Report)>,
    console: PathBuf,
}

/// Whether the programs are there that a machine needs.
///
/// # Errors
/// `Missing` with what is not.
pub fn check() -> Result<()> {
    for program in [QEMU, "mkfs.ext4", "setpriv", "ldd"] {
        find(program)?;
    }
    Ok(())
}

impl Machine {
    /// Switches one on.
    ///
    /// # Errors
    /// When QEMU does not start.
    pub fn start(parts: &Parts) -> Result<Machine> {
        let console = parts.directory.join("console");
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&console)
            .map_err(host("open", &console))?;
        let (port, control) = (parts.directory.join("port"), parts.directory.join("qmp"));
        for socket in [&port, &control] {
            // Of an earlier machine.
            let _ = std::fs::remove_file(socket);
        }
        let said = file.try_clone().map_err(host("open", &console))?;
        // Ends with the thread that starts it, whatever happens to that.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(find(QEMU)?)
            .args(arguments(parts, &port, &control));
        let child = command.stdin(Stdio::null()).stdout(file).stderr(said).spawn();
        let mut child = child.map_err(host("start", QEMU))?;
        let connected = connect(&mut child, &control, &port, &console);
        let (qmp, port) = match connected {
            Ok(lines) => lines,
            Err(error) => {
                end(&mut child);
                return Err(error);
            }
        };
        let heard = port.try_clone().map_err(host("listen to", "the machine's port"));
        let lines = match heard {
            Ok(heard) => listen(heard),
            Err(error) => {
                end(&mut child);
                return Err(error);
            }
        };
        Ok(Machine { child, qmp, port, lines, console })
    }

    /// Has the guest do something. It answers later.
    ///
    /// # Errors
    /// When the line is broken.
    pub fn order(&mut self, order: Order) -> Result<()> {
        let written = self.port.write_all(order.to_line().as_bytes());
        written.map_err(|error| self.failed(format!("cannot be told anything: {error}")))
    }

    /// Has QEMU do something to the machine.
    ///
    /// # Errors
    /// What QEMU says.
    pub fn control(&mut self, command: &str) -> Result<()> {
        self.qmp
            .order(command)
            .map_err(|error| self.failed(format!("cannot be controlled: {error}")))
    }

    /// Presses the power key of the guest's keyboard, or lets it go.
    ///
    /// # Errors
    /// What QEMU says.
    pub fn power_key(&mut self, is_down: bool) -> Result<()> {
        let moved = self.qmp.power_key(is_down);
        moved.map_err(|error| self.failed(format!("does not feel its power key: {error}")))
    }

    /// The next thing that the guest says, and when it was heard; `None` when it says nothing for
    /// so long.
    ///
    /// # Errors
    /// When it has failed, or is gone.
    pub fn hear(&mut self, timeout: Duration) -> Result<Option<(Instant, Report)>> {
        match self.lines.recv_timeout(timeout) {
            Ok((_, Report::Failed(what))) => Err(self.failed(format!("gives up: {what}"))),
            Ok(heard) => Ok(Some(heard)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.failed("is gone".to_owned())),
        }
    }

    /// Takes the machine away at once; returns what it had still said.
    #[must_use]
    pub fn cut_power(mut self) -> Vec<(Instant, Report)> {
        // The signal would do: nothing of the machine must have time to put itself in order.
        end(&mut self.child);
        self.lines.iter().collect()
    }

    /// What the console has said so far.
    #[must_use]
    pub fn console(&self) -> &Path {
        &self.console
    }

    /// The error that the machine did this.
    #[must_use]
    pub fn failed(&self, what: String) -> LabError {
        LabError::Machine { what, console: last_lines(&self.console) }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn arguments(parts: &Parts, port: &Path, control: &Path) -> Vec<String> {
    let shown = |path: &Path| path.display().to_string();
    let words = [
        "-nodefaults -no-user-config -display none -machine pc -cpu max".to_owned(),
        format!("-accel tcg,tb-size={TRANSLATIONS_MIB}"),
        format!(
            "-m {MEMORY_MIB}M -serial stdio -serial chardev:port -device virtio-rng-pci -device virtio-keyboard-pci"
        ),
    ];
    let mut arguments: Vec<String> =
        words.iter().flat_map(|line| line.split(' ').map(str::to_owned)).collect();
    let paths = [
        ("-kernel", shown(&parts.kernel)),
        ("-initrd", shown(&parts.initramfs)),
        ("-append", KERNEL_LINE.to_owned()),
        (
            "-blockdev",
            format!(
                "driver=file,node-name=template,read-only=on,filename={}",
                shown(&parts.template)
            ),
        ),
        ("-device", "virtio-blk-pci,drive=template".to_owned()),
        ("-chardev", format!("socket,id=port,path={},server=on,wait=off", shown(port))),
        ("-qmp", format!("unix:{},server=on,wait=off", shown(control))),
    ];
    // Before the template: the first disk is /dev/vda.
    arguments.extend(parts.flash.arguments());
    arguments.extend(paths.into_iter().flat_map(|(option, value)| [option.to_owned(), value]));
    arguments
}

fn connect(
    child: &mut Child,
    control: &Path,
    port: &Path,
    console: &Path,
) -> Result<(Qmp, UnixStream)> {
    let until = Instant::now() + SOCKET_PATIENCE;
    loop {
        let connected =
            UnixStream::connect(port).and_then(|port| Ok((Qmp::connect(control)?, port)));
        let error = match connected {
            Ok(lines) => return Ok(lines),
            Err(error) => error,
        };
        let ended = child.try_wait().ok().flatten();
        if ended.is_some() || Instant::now() > until {
            let what = match ended {
                Some(status) => format!("did not start: QEMU ended with {status}"),
                None => format!("did not start: {error}"),
            };
            return Err(LabError::Machine { what, console: last_lines(console) });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Reads what comes, with its time, until the machine is gone.
fn listen(port: UnixStream) -> Receiver<(Instant, Report)> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(port).split(b'\n') {
            let Ok(line) = line else { return };
            let report = Report::read(&String::from_utf8_lossy(&line));
            if report.is_some_and(|report| sender.send((Instant::now(), report)).is_err()) {
                return;
            }
        }
    });
    receiver
}

fn last_lines(console: &Path) -> String {
    let text = std::fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n")
}
