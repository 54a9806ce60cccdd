//! Every call on the lane of its thread, in the JSON that Perfetto's viewer (ui.perfetto.dev) and
//! other trace viewers open: the Trace Event Format.
//!
//! Invariants: it is written as events come, in bounded memory, and is complete JSON once it is
//! finished. An event comes out as one line. No name steers a terminal that it is printed on.

use std::collections::HashMap;
use std::io::{self, Write};

use holdfast_sys::terminal::ShownJson;
use serde_json::{Value, json};

use crate::classes::{self, Scheme};
use crate::{Call, End, Event};

/// Writes events as they come.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    origin_ns: u64,
    scheme: Scheme,
    first: bool,
    /// Names of calls and their classes, by ABI and number.
    named: HashMap<(crate::Abi, u32), (String, Option<&'static classes::Entry>)>,
}

/// Numbers that a program made up are not kept.
const NAMES_MAX: usize = 4096;

impl<W: Write> Writer<W> {
    /// Begins the file. Times count from `origin_ns`.
    ///
    /// # Errors
    /// Those of the output.
    pub fn new(mut out: W, origin_ns: u64, scheme: Scheme) -> io::Result<Writer<W>> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
        Ok(Writer { out, origin_ns, scheme, first: true, named: HashMap::new() })
    }

    /// Writes an event.
    ///
    /// # Errors
    /// Those of the output.
    pub fn add(&mut self, event: &Event) -> io::Result<()> {
        let us = |at_ns: u64| at_ns.saturating_sub(self.origin_ns) as f64 / 1e3;
        match event {
            Event::Call(call) => self.call(call),
            Event::Began { process, thread, command, .. } => {
                if process == thread {
                    self.name("process_name", *process, *thread, command)?;
                }
                self.name("thread_name", *process, *thread, command)
            }
            Event::Exec { process, command, .. } => {
                self.name("process_name", *process, *process, command)?;
                self.name("thread_name", *process, *process, command)
            }
            Event::Signal { at_ns, process, thread, signal } => {
                let line = json!({
                    "name": crate::names::signal(*signal), "cat": "signal", "ph": "i", "s": "t",
                    "ts": us(*at_ns), "pid": process, "tid": thread,
                });
                self.line(&line)
            }
            Event::Ended { at_ns, process, thread, end: Some(End::Killed(signal)) } => {
                let line = json!({
                    "name": format!("killed by {}", crate::names::signal(*signal)), "cat": "end", "ph": "i", "s": "t",
                    "ts": us(*at_ns), "pid": process, "tid": thread,
                });
                self.line(&line)
            }
            Event::Lost { events } => {
                let line = json!({ "name": "events lost", "ph": "M", "pid": 0, "tid": 0, "args": { "events": events } });
                self.line(&line)
            }
            Event::Ended { .. } | Event::ThreadTime { .. } | Event::IoUring { .. } => Ok(()),
        }
    }

    fn call(&mut self, call: &Call) -> io::Result<()> {
        if self.named.len() >= NAMES_MAX {
            self.named.clear();
        }
        let (name, entry) = self.named.entry((call.abi, call.number)).or_insert_with(|| {
            let name = call.name().into_owned();
            let entry = classes::known_as(&name);
            (name, entry)
        });
        let place = classes::place(self.scheme, *entry, &call.arguments, call.object);
        let time = &call.time;
        let mut arguments = json!({
            "subclass": place.subclass.id(),
            "on_cpu_us": time.cpu_ns as f64 / 1e3,
            "asleep_us": time.sleep_ns as f64 / 1e3,
            "waiting_us": time.wait_ns as f64 / 1e3,
            "device_us": time.io_wait_ns as f64 / 1e3,
            "run_queue_us": time.queue_ns as f64 / 1e3,
        });
        arguments["result"] = match (call.result, call.error()) {
            (None, _) => Value::from("did not return"),
            (Some(Call::TRAPPED), _) => Value::from("trapped: SIGSYS in its place"),
            (_, Some(code)) => Value::from(crate::names::error(code)),
            (Some(result), None) => Value::from(result),
        };
        let line = json!({
            "name": name, "cat": place.subclass.class().id(), "ph": "X",
            "ts": call.start_ns.saturating_sub(self.origin_ns) as f64 / 1e3, "dur": time.wall_ns as f64 / 1e3,
            "pid": call.process, "tid": call.thread, "args": arguments,
        });
        self.line(&line)
    }

    fn name(&mut self, what: &str, process: u32, thread: u32, name: &str) -> io::Result<()> {
        if name.is_empty() {
            return Ok(());
        }
        let line = json!({ "name": what, "ph": "M", "pid": process, "tid": thread, "args": { "name": name } });
        self.separate()?;
        // Of all lines these alone have text of the traced program.
        write!(self.out, "{}", ShownJson(&line.to_string()))
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        self.separate()?;
        serde_json::to_writer(&mut self.out, value)?;
        Ok(())
    }

    fn separate(&mut self) -> io::Result<()> {
        let separator: &[u8] = if std::mem::take(&mut self.first) { b"" } else { b",\n" };
        self.out.write_all(separator)
    }

    /// Where it is written to.
    pub fn out(&self) -> &W {
        &self.out
    }

    /// Ends the file, and gives it back with what became of that.
    pub fn finish(mut self) -> (W, io::Result<()>) {
        let done = self.out.write_all(b"\n]}\n").and_then(|()| self.out.flush());
        (self.out, done)
    }
}
