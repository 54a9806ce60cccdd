//! The arguments that `run` and `call` have in common: the applet, its grants, its limits.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use holdfast_applet::{DirGrant, HeapRequest, HeapRequestError};
use holdfast_identity::GivenName;
use holdfast_region::{Medium, MediumError, RegionName};

use holdfast_command::size::{parse_heap_limit, parse_size};
use holdfast_command::time::parse_time;

#[derive(Debug, Args)]
pub struct AppletArgs {
    /// The program: ELF for this machine, or WebAssembly for wasm32-wasip1 (.wasm or .wat); a path,
    /// or https://HOST/PATH#sha256=HEX
    pub applet: PathBuf,

    /// A heap, made when there is none; NAME is its name in the applet, `:ro` grants reading only.
    /// May be given several times: the first one is what an applet uses that names none
    #[arg(long = "heap", value_name = "[NAME=]HEAP[:ro]", value_parser = parse_heap)]
    pub heaps: Vec<HeapRequest>,

    /// How large a new heap may ever get: 1MiB to 1TiB, rounded up to 64KiB (an existing one keeps
    /// its limit)
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_heap_limit, requires = "heaps")]
    pub heap_size: u64,

    /// Before the applet starts, allocate at least so much of each heap that it may write to, so
    /// that it need not ask for it bit by bit. What the heap has already counts: the same command
    /// again allocates nothing more. What is left unused stays with the heap
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "heaps")]
    pub reserve: Option<u64>,

    /// Where a new heap lies: in the pool, or on the disk of the home, for heaps larger than the
    /// pool (an existing one stays where it is)
    #[arg(long, value_name = "memory|file", default_value_t, value_parser = parse_medium, requires = "heaps")]
    pub backing: Medium,

    /// Let the applet's stores to the heap count only together: when it ends by itself, commits, or
    /// answers a call
    #[arg(long, requires = "heaps")]
    pub atomic: bool,

    /// What this applet is called: its heaps are those of this name, whatever its code (an applet
    /// that its publisher signed keeps its own)
    #[arg(long, value_name = "NAME", value_parser = GivenName::parse, requires = "heaps", conflicts_with = "key")]
    pub app: Option<GivenName>,

    /// Name of the key that opens the heaps, instead of the one that follows from who the applet
    /// is: the owner's, or one that was granted something; made with a new heap
    #[arg(long, value_name = "KEY", requires = "heaps")]
    pub key: Option<String>,

    /// Give the applet the private compartment that this worker has in the heap, instead of the
    /// heap itself; whoever the applet is, without --key it is one of the key `default`
    #[arg(long, value_name = "WORKER", requires = "heaps", group = "parts", value_parser = RegionName::parse)]
    pub compartment: Option<RegionName>,

    /// Give the applet so many private compartments of its first heap, besides the heap itself:
    /// `thread-1` and so on, one for each thread that enters it (1 for WebAssembly)
    #[arg(long, value_name = "NUMBER", requires = "heaps", group = "parts", value_parser = clap::value_parser!(u32).range(1..=15))]
    pub compartments: Option<u32>,

    /// How large a new compartment may ever get: at least 1MiB; counts against the limit of the
    /// heap
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = parse_heap_limit, requires = "parts")]
    pub quota: u64,

    /// Grant a directory, optionally under another path, optionally read-only
    #[arg(long = "dir", value_name = "HOST[::GUEST][:ro]")]
    pub dirs: Vec<DirGrant>,

    /// Set an environment variable; without a value it is passed through
    #[arg(long = "env", value_name = "NAME[=VALUE]", value_parser = parse_variable)]
    pub env: Vec<String>,

    /// Limit of volatile memory; the heap does not count
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_memory)]
    pub memory: u64,

    /// WebAssembly: limit of fuel, about one unit an instruction; of each call where functions are
    /// called
    #[arg(long, value_name = "UNITS")]
    pub fuel: Option<u64>,

    /// WebAssembly: limit of the memory that compiling takes, which is done in a process of its own
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_memory)]
    pub compile_memory: u64,

    /// WebAssembly: the largest program in the text format (.wat) that is taken
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    pub text_limit: u64,

    /// Native: limit of processor time of all its threads together
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub cpu_time: Option<Duration>,

    /// Native: limit of threads at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: u32,

    /// Native: refuse to run where this machine lacks a layer of the sandbox, instead of saying so
    /// and going on
    #[arg(long)]
    pub strict: bool,

    /// Say on standard error what it cost
    #[arg(long)]
    pub metrics: bool,
}

/// A heap; the error for a compartment says how to name one.
fn parse_heap(text: &str) -> Result<HeapRequest, String> {
    HeapRequest::from_str(text).map_err(|error| match error {
        HeapRequestError::Compartment { heap, worker } => {
            format!("{text} is a compartment; write --heap {heap} --compartment {worker}")
        }
        error => error.to_string(),
    })
}

fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("no program runs in no memory; give it some, such as 64MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

fn parse_variable(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('=') {
        return Err(
            "it has no name; write NAME=VALUE, or NAME to pass the value through".to_owned()
        );
    }
    Ok(text.to_owned())
}

pub fn parse_medium(text: &str) -> Result<Medium, MediumError> {
    text.parse()
}
