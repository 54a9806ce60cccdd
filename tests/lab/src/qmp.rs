//! QEMU's own line: orders to the machine from outside of it, as JSON over a unix socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// An answer comes at once, or the host has far too much to do.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// Events come between an order and its answer.
const LINES_MAX: usize = 1000;

/// A connection that is past its greeting.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects to the socket at which a machine listens.
    ///
    /// # Errors
    /// When nothing listens yet, or what listens is no QEMU.
    pub fn connect(socket: &Path) -> io::Result<Qmp> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let mut qmp = Qmp { reader: BufReader::new(stream) };
        let greeting = qmp.line()?;
        if greeting.get("QMP").is_none() {
            return Err(io::Error::other(format!("no greeting of QEMU: {greeting}")));
        }
        qmp.order("qmp_capabilities")?;
        Ok(qmp)
    }

    /// Has QEMU carry out a command without arguments.
    ///
    /// # Errors
    /// What QEMU answers, or that it does not.
    pub fn order(&mut self, command: &str) -> io::Result<()> {
        self.carry_out(command, &json!({ "execute": command }))
    }

    /// Presses the power key of the keyboard, or lets it go. A key that is pressed stays so until
    /// it is let go.
    ///
    /// # Errors
    /// As [`Qmp::order`].
    pub fn power_key(&mut self, is_down: bool) -> io::Result<()> {
        let key = json!({ "type": "qcode", "data": "power" });
        let event = json!({ "type": "key", "data": { "down": is_down, "key": key } });
        let command = "input-send-event";
        self.carry_out(command, &json!({ "execute": command, "arguments": { "events": [event] } }))
    }

    fn carry_out(&mut self, command: &str, order: &Value) -> io::Result<()> {
        self.reader.get_mut().write_all(format!("{order}\n").as_bytes())?;
        for _ in 0..LINES_MAX {
            let line = self.line()?;
            if let Some(error) = line.get("error") {
                return Err(io::Error::other(format!("QEMU refuses {command}: {error}")));
            }
            if line.get("return").is_some() {
                return Ok(());
            }
        }
        Err(io::Error::other(format!("QEMU talks, but does not answer {command}")))
    }

    fn line(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_str(&line).map_err(io::Error::other)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Events before a QMP answer are skipped, and a refusal is an error.
    #[test]
    fn qmp_events_are_skipped_and_errors_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let machine = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            reader.get_mut().write_all(b"{\"QMP\": {}}\n").unwrap();
            for answer in
                ["{\"return\": {}}", "{\"event\": \"RESET\"}\n{\"return\": {}}", "{\"error\": {}}"]
            {
                reader.read_line(&mut line).unwrap();
                reader.get_mut().write_all(format!("{answer}\n").as_bytes()).unwrap();
            }
            line
        });
        let mut qmp = Qmp::connect(&path).unwrap();
        qmp.power_key(true).unwrap();
        assert!(qmp.order("nonsense").is_err());
        let heard = machine.join().unwrap();
        assert!(
            heard.contains("\"down\":true") && heard.contains("{\"execute\":\"nonsense\"}"),
            "{heard}"
        );
    }
}
