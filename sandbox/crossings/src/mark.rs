//! Marks in the record of crossings.

use crate::log::{Log, log, now_ns};
use crate::record::{Answer, AppletKind, Record};

/// An applet, for as long as it is there. When the last one of a process goes, all that was marked
/// is written.
#[derive(Debug)]
pub struct Applet(Mark);

/// An applet that things are marked of: a copy of its number. Without a record it does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mark {
    log: Option<&'static Log>,
    applet: u32,
}

/// Something that goes on; it is marked when this is dropped.
#[derive(Debug, Default)]
#[must_use = "it lasts until it is dropped"]
pub struct Interval(Option<Open>);

#[derive(Debug)]
struct Open {
    log: &'static Log,
    applet: u32,
    what: MarkKind,
    thread: u32,
    start_ns: u64,
}

#[derive(Debug)]
enum MarkKind {
    Call(u32),
    Turn,
    Crossing(u32),
    Question { asked_by: u32, number: u32, answer: Option<Answer> },
}

impl Applet {
    /// An applet is being started; `name` is what people know it by.
    #[must_use]
    pub fn begin(kind: AppletKind, name: &str) -> Applet {
        let Some(log) = log() else { return Applet(Mark::default()) };
        Applet(Mark { log: Some(log), applet: log.begin(kind, name) })
    }

    /// For those who mark things of it.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.0
    }
}

impl Drop for Applet {
    fn drop(&mut self) {
        if let Some(log) = self.0.log {
            log.end(self.0.applet);
        }
    }
}

impl Mark {
    /// Whether anything of it is kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.log.is_some()
    }

    /// The host calls this function of it.
    pub fn call(&self, function: &str) -> Interval {
        let Some(log) = self.log else { return Interval::default() };
        let name = log.name(function);
        self.open(MarkKind::Call(name))
    }

    /// The same of a program of its own, which is called by being started: since [`Mark::runs_as`].
    pub fn call_from_begin(&self, function: &str) -> Interval {
        let mut interval = self.call(function);
        if let Some(open) = &mut interval.0 {
            open.start_ns = open.log.began_ns(self.applet).unwrap_or(open.start_ns);
        }
        interval
    }

    /// It runs on this thread, until this is dropped, on the same one.
    pub fn turn(&self) -> Interval {
        if self.log.is_none() {
            return Interval::default();
        }
        self.open(MarkKind::Turn)
    }

    /// It calls this function of the host's.
    pub fn cross(&self, function: &'static str) -> Interval {
        let Some(log) = self.log else { return Interval::default() };
        let name = log.name(function);
        self.open(MarkKind::Crossing(name))
    }

    /// The host takes up a system call of it, which it knows nothing of yet.
    pub fn question(&self) -> Interval {
        if self.log.is_none() {
            return Interval::default();
        }
        self.open(MarkKind::Question { asked_by: 0, number: 0, answer: None })
    }

    /// Its process is about to run its first instruction.
    pub fn runs_as(&self, process: u32) {
        if let Some(log) = self.log {
            let at_ns = now_ns();
            log.began(self.applet, at_ns);
            log.add(&Record::Process { applet: self.applet, process, at_ns }, at_ns);
        }
    }

    fn open(&self, what: MarkKind) -> Interval {
        Interval(self.log.map(|log| {
            let thread = log.thread();
            Open { log, applet: self.applet, what, thread, start_ns: now_ns() }
        }))
    }
}

impl Interval {
    /// Which system call it is about, of which of the applet's threads.
    pub fn asks(&mut self, number: i32, asked_by: u32) {
        if let Some(Open {
            what: MarkKind::Question { asked_by: thread, number: known, .. }, ..
        }) = &mut self.0
        {
            (*known, *thread) = (number as u32, asked_by);
        }
    }

    /// What the host says to it.
    pub fn answered(&mut self, with: Answer) {
        if let Some(Open { what: MarkKind::Question { answer, .. }, .. }) = &mut self.0 {
            *answer = Some(with);
        }
    }
}

impl Drop for Interval {
    fn drop(&mut self) {
        let Some(Open { log, applet, what, thread, start_ns }) = self.0.take() else { return };
        let end_ns = now_ns();
        let record = match what {
            MarkKind::Call(name) => Record::Call { applet, name, thread, start_ns, end_ns },
            MarkKind::Turn => Record::Turn { applet, thread, start_ns, end_ns },
            MarkKind::Crossing(name) => Record::Crossing { applet, name, thread, start_ns, end_ns },
            MarkKind::Question { asked_by, number, answer: Some(answer) } => {
                Record::Question { applet, thread, asked_by, number, answer, start_ns, end_ns }
            }
            // Nothing was asked: the thread was gone.
            MarkKind::Question { .. } => return,
        };
        log.add(&record, end_ns);
    }
}
