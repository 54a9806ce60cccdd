//! The host's record and the kernel's, joined by thread and time.

use std::collections::{HashMap, HashSet};
use std::io::Read as Source;

use holdfast_crossings::{Answer, Ending, Host, Read, VARIABLE, read};
use holdfast_sys::counted::counted;

use super::calls::{CallKind, CallsInMemory, KeptCall};
use super::document::{AppletKind, Crossings, Gate, RunPart};
use super::host::Indexed;
use super::sums::{FunctionSum, Sums};

/// What an applet did when it was not being called.
const OUTSIDE: &str = "(outside)";
/// The names of what is no call begin so; no program's entry does.
const NO_CALL: char = '(';

impl CallsInMemory {
    /// Joins the calls with the hosts' record, which is read to its end.
    #[must_use]
    pub fn join(mut self, record: &mut impl Source) -> Crossings {
        self.put_in_order();
        let mut sums = Sums::default();
        let found = match read(record) {
            Ok(found) => found,
            Err(error) => {
                sums.notes.push(format!("The hosts' record cannot be read: {error}."));
                Read::default()
            }
        };
        let mut is_told = vec![false; self.calls().len()];
        for host in &found.hosts {
            let mut join = Join { host, at: Indexed::of(host), kept: &self, sums: &mut sums };
            join.add_crossings();
            join.add_calls(&mut is_told);
            join.finish();
        }
        sums.other_calls = is_told.iter().filter(|is_told| !**is_told).count() as u64;
        sums.notes.extend(notes(&found, &self));
        sums.into_document(self.kinds())
    }
}

fn notes(found: &Read, kept: &CallsInMemory) -> Vec<String> {
    let mut notes = Vec::new();
    if found.hosts.is_empty() {
        notes.push(format!(
            "No process recorded what crossed: none of them ran applets with this version of Holdfast, {VARIABLE} was taken out of \
             its environment, or the size of its files is limited (`ulimit -f`): a record must not be what reaches the limit."
        ));
    }
    if let Ending::Torn { at_byte } = found.ending {
        notes.push(format!(
            "The hosts' record is damaged from byte {at_byte} on; this is what is before that."
        ));
    }
    if found.passed_over > 0 {
        notes.push(format!(
            "{} too many, which are not counted.",
            counted(found.passed_over, "crossing")
        ));
    }
    if kept.passed_over() > 0 {
        notes.push(format!(
            "{} too many, which are not in this table; trace a shorter run.",
            counted(kept.passed_over(), "system call")
        ));
    }
    for host in &found.hosts {
        let process = host.process();
        if !host.is_finished() {
            notes.push(format!(
                "Process {process} ended before its record did: what crossed last in it is not counted."
            ));
        }
        if host.has_gaps() || host.dropped() > 0 {
            notes.push(format!(
                "The record of process {process} has gaps ({} found no room): numbers are too small.",
                counted(host.dropped(), "entry")
            ));
        }
        if !kept.has(process) {
            notes.push(format!(
                "No system call of process {process} was seen: it has another number here (a PID name space), or was not traced."
            ));
        }
    }
    notes
}

/// Of one host.
struct Join<'a> {
    host: &'a Host,
    at: Indexed,
    kept: &'a CallsInMemory,
    sums: &'a mut Sums,
}

impl Join<'_> {
    /// The sums of a call of an applet, or of what it did outside of any.
    fn function(&mut self, applet: u32, call: Option<usize>) -> &mut FunctionSum {
        let unknown = || (AppletKind::Wasm, String::new());
        let (kind, name) = self.at.applets.get(&applet).cloned().unwrap_or_else(unknown);
        let call = call.and_then(|call| self.at.calls.get(call));
        let function = call.map_or(OUTSIDE, |call| call.name.as_str()).to_owned();
        self.sums.applets.entry((kind, name)).or_default().functions.entry(function).or_default()
    }

    fn cross(&mut self, applet: u32, call: Option<usize>, by: Gate, name: &str, wall_ns: u64) {
        if let Some(call) = call.and_then(|call| self.at.calls.get_mut(call)) {
            call.crossings += 1;
        }
        let sum = self.function(applet, call).crossed.entry((by, name.to_owned())).or_default();
        sum.crossings += 1;
        sum.wall_ns = sum.wall_ns.saturating_add(wall_ns);
    }

    /// What the host counted.
    fn add_crossings(&mut self) {
        for (kind, name) in self.at.applets.values() {
            self.sums.applets.entry((*kind, name.clone())).or_default().started += 1;
        }
        for crossing in std::mem::take(&mut self.at.crossings) {
            let (applet, start_ns, end_ns) = (crossing.applet, crossing.start_ns, crossing.end_ns);
            let call = self.at.call_at(applet, start_ns);
            let is_native = matches!(self.at.applets.get(&applet), Some((AppletKind::Native, _)));
            let (by, wall_ns) = if is_native {
                (Gate::Message, end_ns.saturating_sub(start_ns))
            } else {
                // A suspended applet is in a crossing, but nothing works for it.
                let end_ns = call
                    .and_then(|call| self.at.calls.get(call))
                    .map_or(end_ns, |call| call.end_ns.min(end_ns));
                (Gate::Import, self.at.turns_of_applets.covered_ns(applet, start_ns, end_ns))
            };
            self.cross(applet, call, by, &crossing.name, wall_ns);
            self.at.crossings.push(crossing);
        }
        for question in std::mem::take(&mut self.at.questions) {
            let call = self.at.call_at(question.applet, question.start_ns);
            let name = crate::call_name(crate::Abi::X86_64, question.number);
            let wall_ns = question.end_ns.saturating_sub(question.start_ns);
            self.cross(question.applet, call, Gate::Supervisor, &name, wall_ns);
            self.at.questions.push(question);
        }
    }

    /// What the kernel saw.
    fn add_calls(&mut self, is_told: &mut [bool]) {
        let kept = self.kept;
        let asked = self.asked();
        let writes = self.writes();
        let mut tell =
            |place: usize| is_told.get_mut(place).into_iter().for_each(|is_told| *is_told = true);
        for (place, call, _) in kept.of(self.host.process()) {
            tell(place);
            if writes.contains(&place) || self.at.own.at(call.thread, call.start_ns).is_some() {
                self.sums.own_calls += 1;
                self.sums.own_ns = self.sums.own_ns.saturating_add(call.wall_ns);
            } else {
                self.add_of_host(call);
            }
        }
        let processes = std::mem::take(&mut self.at.processes);
        for (process, (applet, began_ns)) in &processes {
            // A record that says that its host is an applet of its own changes nothing.
            let calls =
                kept.of(*process).filter(|(_, call, _)| call.process != self.host.process());
            for (place, call, kind) in calls {
                tell(place);
                // It becomes the program by this call, which is the host's last.
                let is_host =
                    call.start_ns < *began_ns || kind.number == Some(libc::SYS_execveat as u32);
                match asked.get(&place) {
                    _ if is_host => {
                        self.sums.outside.entry(RunPart::StartUp).or_default().add(call)
                    }
                    Some(question) => self.add_asked(*question, call, kind),
                    None => self.add_let_through(*applet, call, kind),
                }
            }
        }
        self.at.processes = processes;
    }

    /// A system call of an applet that the filter let through.
    fn add_let_through(&mut self, applet: u32, call: &KeptCall, kind: &CallKind) {
        let in_call = self.at.call_at(applet, call.start_ns);
        let left_ns = in_call.and_then(|call| self.at.calls.get(call));
        let left_ns =
            left_ns.map_or(u64::MAX, |in_call| in_call.end_ns.saturating_sub(call.start_ns));
        self.cross(applet, in_call, Gate::Filter, &kind.name, call.wall_ns.min(left_ns));
    }

    fn add_of_host(&mut self, call: &KeptCall) {
        let (thread, at_ns) = (call.thread, call.start_ns);
        if let Some(question) = self.at.questions_of_threads.at(thread, at_ns)
            && let Some(question) = self.at.questions.get(question.what)
        {
            let applet = question.applet;
            let name = crate::call_name(crate::Abi::X86_64, question.number).into_owned();
            let in_call = self.at.call_at(applet, question.start_ns);
            let crossed = &mut self.function(applet, in_call).crossed;
            crossed.entry((Gate::Supervisor, name)).or_default().kernel.add(call);
            return;
        }
        let turn = self.at.turns_of_threads.at(thread, at_ns);
        let crossing = match turn {
            Some(turn) => self.at.imports.at(turn.what as u32, at_ns),
            None => self.at.messages.at(thread, at_ns),
        };
        if let Some(crossing) = crossing.and_then(|span| self.at.crossings.get(span.what)) {
            let (applet, name) = (crossing.applet, crossing.name.clone());
            let by = if turn.is_some() { Gate::Import } else { Gate::Message };
            let in_call = self.at.call_at(applet, crossing.start_ns);
            let crossed = &mut self.function(applet, in_call).crossed;
            crossed.entry((by, name)).or_default().kernel.add(call);
            return;
        }
        let call_of_thread = self.at.calls_of_threads.at(thread, at_ns).map(|span| span.what);
        let place = match (turn, call_of_thread) {
            (Some(turn), _) => Some((turn.what as u32, self.at.call_at(turn.what as u32, at_ns))),
            (None, Some(index)) => {
                self.at.calls.get(index).map(|in_call| (in_call.applet, Some(index)))
            }
            (None, None) => None,
        };
        match place {
            Some((applet, in_call)) => self.function(applet, in_call).host.add(call),
            None => {
                let when = self.at.when(thread, at_ns);
                self.sums.outside.entry(when).or_default().add(call);
            }
        }
    }

    /// A system call of an applet that the host was asked about: it is counted already.
    fn add_asked(&mut self, question: usize, call: &KeptCall, kind: &CallKind) {
        let Some(question) = self.at.questions.get(question) else { return };
        let (applet, start_ns) = (question.applet, question.start_ns);
        let asked_ns = question.end_ns.saturating_sub(start_ns);
        // By ptrace the wait for the answer is a part of the call; by BPF it is before it.
        let holds_it = call.start_ns <= start_ns;
        let more_ns = if holds_it { call.wall_ns.saturating_sub(asked_ns) } else { call.wall_ns };
        let in_call = self.at.call_at(applet, start_ns);
        let crossed = &mut self.function(applet, in_call).crossed;
        let sum = crossed.entry((Gate::Supervisor, kind.name.clone())).or_default();
        sum.wall_ns = sum.wall_ns.saturating_add(more_ns);
    }

    /// Which question each call of an applet was about: places in both lists.
    fn asked(&self) -> HashMap<usize, usize> {
        let mut asked = HashMap::new();
        for (question, about) in self.at.questions.iter().enumerate() {
            // The thread waits from before the question until after the answer, so at most one call
            // fits.
            let next = self.next_call(about.asked_by, about.start_ns);
            let before = next.checked_sub(1);
            let fits = |index: &usize| {
                let call = self.kept.calls().get(*index)?;
                let kind = self.kept.kinds().get(usize::from(call.kind))?;
                let is_it = call.thread == about.asked_by && kind.number == Some(about.number);
                let holds_it = call.start_ns <= about.start_ns
                    && about.start_ns <= call.start_ns.saturating_add(call.wall_ns);
                // One that was refused is reported with its end. What ended the applet has none.
                let follows = call.start_ns > about.start_ns && about.answer != Answer::Ended;
                (is_it && (holds_it || follows)).then_some(*index)
            };
            let found = before.as_ref().and_then(fits).or_else(|| fits(&next));
            if let Some(index) = found {
                asked.insert(index, question);
            }
        }
        asked
    }

    /// The calls that wrote the record.
    fn writes(&self) -> HashSet<usize> {
        let mut writes = HashSet::new();
        for (thread, times) in &self.at.writes {
            for written_ns in times {
                let index = self.next_call(*thread, *written_ns);
                let Some(call) = self.kept.calls().get(index).filter(|call| call.thread == *thread)
                else {
                    continue;
                };
                let kind = self.kept.kinds().get(usize::from(call.kind));
                if kind.is_some_and(|kind| kind.number == Some(libc::SYS_writev as u32)) {
                    writes.insert(index);
                }
            }
        }
        writes
    }

    /// The place of the first call of a thread from a moment on.
    fn next_call(&self, thread: u32, at_ns: u64) -> usize {
        self.kept.calls().partition_point(|call| (call.thread, call.start_ns) < (thread, at_ns))
    }

    /// Counts the calls themselves.
    fn finish(mut self) {
        for index in 0..self.at.calls.len() {
            let Some(call) = self.at.calls.get(index) else { continue };
            let (applet, crossings) = (call.applet, call.crossings);
            let wall_ns = call.end_ns.saturating_sub(call.start_ns);
            let is_call = !call.name.starts_with(NO_CALL);
            let sum = self.function(applet, Some(index));
            sum.wall_ns = sum.wall_ns.saturating_add(wall_ns);
            if is_call {
                sum.each.push(crossings);
            }
        }
    }
}
