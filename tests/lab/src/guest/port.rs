//! The serial port to the host.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::words::{Order, Report};

const DEVICE: &str = "/dev/ttyS1";

/// Both directions.
#[derive(Debug)]
pub struct Port {
    file: File,
}

/// Passes on how a part of the guest ended; if badly, the host is told as well, which would wait
/// for it in vain.
///
/// # Errors
/// That of the part.
pub fn told(result: Result<(), String>) -> Result<(), String> {
    result.inspect_err(|what| {
        let said = Port::open().and_then(|mut port| port.send_apart(&Report::Failed(what.clone())));
        if let Err(error) = said {
            println!("the host cannot be told: {error}");
        }
    })
}

impl Port {
    /// Opens it as it is; [`Port::set_up`] has to come before, once in a start.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open() -> io::Result<Port> {
        // std opens nothing as a controlling terminal that is not asked for: this process has no
        // session of its own.
        Ok(Port { file: OpenOptions::new().read(true).write(true).open(DEVICE)? })
    }

    /// Has bytes go through as they are.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_up(&self) -> io::Result<()> {
        let mut settings = tcgetattr(&self.file)?;
        settings.make_raw();
        settings.set_speed(115_200)?;
        Ok(tcsetattr(&self.file, OptionalActions::Now, &settings)?)
    }

    /// Sends a line, in one piece: other processes send, too.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send(&mut self, report: &Report) -> io::Result<()> {
        self.file.write_all(report.to_line().as_bytes())
    }

    /// As [`Port::send`], for a process that cannot go on without.
    ///
    /// # Errors
    /// In words, what the kernel says.
    pub fn say(&mut self, report: &Report) -> Result<(), String> {
        self.send(report).map_err(|error| format!("the host cannot be told: {error}"))
    }

    /// As [`Port::send`], behind what another process may have left half-said when it died.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send_apart(&mut self, report: &Report) -> io::Result<()> {
        self.file.write_all(format!("\n{}", report.to_line()).as_bytes())
    }

    /// The orders that come, as they come.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn orders(&self) -> io::Result<impl Iterator<Item = Order> + use<>> {
        let lines = BufReader::new(self.file.try_clone()?).lines();
        Ok(lines.map_while(io::Result::ok).filter_map(|line| Order::read(&line)))
    }
}
