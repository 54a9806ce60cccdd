//! The view as data: a part of the report's JSON.

use serde::{Deserialize, Serialize};

use crate::classes::{Class, Subclass};

/// What crossed sandboxes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Crossings {
    /// Applets, those of the same name and kind together.
    pub applets: Vec<AppletCrossings>,
    /// System calls of hosts outside of calls of applets.
    pub outside: Vec<Outside>,
    /// System calls that the host's record itself took: they are in no other number here, and in
    /// all other tables.
    pub own_calls: u64,
    /// Their time.
    pub own_ns: u64,
    /// System calls of traced processes that neither ran applets nor were some.
    pub other_calls: u64,
    /// What is missing, and why: one sentence each.
    pub notes: Vec<String>,
}

/// The kinds of applets.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AppletKind {
    /// WebAssembly, in the host's process.
    Wasm,
    /// A process of its own.
    Native,
}

impl AppletKind {
    /// As tables have it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            AppletKind::Wasm => "WebAssembly",
            AppletKind::Native => "native",
        }
    }
}

/// Applets of one name.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AppletCrossings {
    /// The program, as the host was given it.
    pub name: String,
    /// Of which kind.
    pub kind: AppletKind,
    /// How many were started.
    pub started: u64,
    /// What was called, the longest first.
    pub functions: Vec<Function>,
}

/// Calls of one function of an applet.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Function {
    /// As the host called it. A program that is run to its end is one call, of `_start` or `main`;
    /// `(start)` is what an applet that serves did up to its greeting, `(outside)` what one did
    /// when no call was under way: those are no calls.
    pub name: String,
    /// How often it was called.
    pub calls: u64,
    /// The time of these calls.
    pub wall_ns: u64,
    /// Crossings out of the applet during them.
    pub crossings: u64,
    /// The least of one call.
    pub crossings_min: u64,
    /// The most of one call.
    pub crossings_max: u64,
    /// Time in crossings.
    pub crossings_ns: u64,
    /// System calls of the host during them, in crossings or not.
    pub kernel_calls: u64,
    /// Their time.
    pub kernel_ns: u64,
    /// The crossings, most first.
    pub crossed: Vec<Crossed>,
    /// System calls of the host during these calls and in no crossing: handing messages over,
    /// publishing stores, resolving faults.
    pub host: Vec<Kernel>,
}

/// The gate that let a crossing through.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// The host: a function of it that a WebAssembly applet imports.
    Import,
    /// The host: what a native applet asked it for by message.
    Message,
    /// The kernel, by the filter alone: a system call of a native applet.
    Filter,
    /// The host's supervisor: a system call of a native applet about which the filter asks.
    Supervisor,
}

impl Gate {
    /// As tables have it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Gate::Import => "import",
            Gate::Message => "message",
            Gate::Filter => "filter",
            Gate::Supervisor => "supervisor",
        }
    }
}

/// Crossings of one kind.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Crossed {
    /// The host's function, or the system call.
    pub name: String,
    /// The gate that let it through.
    pub by: Gate,
    /// How often.
    pub crossings: u64,
    /// The time in it, within the call that it began in.
    pub wall_ns: u64,
    /// System calls that the host made for it.
    pub kernel: Vec<Kernel>,
}

/// System calls of one kind.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Kernel {
    /// As the kernel calls it.
    pub name: String,
    /// Of which class.
    pub class: Class,
    /// Of which part of it.
    pub subclass: Subclass,
    /// How often.
    pub calls: u64,
    /// How many failed.
    pub errors: u64,
    /// Their time.
    pub wall_ns: u64,
    /// Their time without sleep.
    pub awake_ns: u64,
}

/// When a host's system call outside of all calls of applets was made.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RunPart {
    /// Before the first call: starting, loading, setting the sandbox up; also by the process that
    /// becomes a native applet.
    StartUp,
    /// Between calls.
    Between,
    /// After the last call: taking down, checkpoints.
    TearDown,
    /// By threads of the host that call no applet, at any time.
    OtherThreads,
}

impl RunPart {
    /// As tables have it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            RunPart::StartUp => "before the first call",
            RunPart::Between => "between calls",
            RunPart::TearDown => "after the last call",
            RunPart::OtherThreads => "other threads of the host",
        }
    }
}

/// System calls of hosts outside of calls of applets.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Outside {
    /// The part of the run.
    pub when: RunPart,
    /// How many.
    pub kernel_calls: u64,
    /// Their time.
    pub kernel_ns: u64,
    /// The system calls, by name.
    pub kernel: Vec<Kernel>,
}
