//! Resource limits (`setrlimit`) of a program: what it is to have, within what this process itself
//! may have.
//!
//! A limit can be lowered and not raised. Where this process may have less than the program is to
//! get, either the program gets so much less (what was not asked for by a number), or it is not
//! started and the error names the limit (what was promised to it).

#![forbid(unsafe_code)]

use holdfast_sys::spawn::ResourceLimit;
use rustix::process::{Resource, getrlimit};

use crate::error::JailError;
use crate::limits::JailLimits;
use crate::policy::Given;

/// Signals that may wait for it.
const PENDING_SIGNALS: u64 = 64;
/// Files that a program cannot do without: its loader has a library and its cache open.
const OPEN_FILES_MIN: u32 = 2;

/// The unit in which shells take a limit.
const KIB: u64 = 1 << 10;

/// What happens where this process may have less.
enum Short {
    /// The program has less, too.
    Takes,
    /// It is not started with less than this.
    Needs(u64, Words),
}

/// How the limit is called.
#[derive(Clone, Copy)]
struct Words {
    what: &'static str,
    command: &'static str,
    unit: u64,
    instead: &'static str,
}

const MEMORY: Words = Words {
    what: "KiB of address space",
    command: "ulimit -v",
    unit: KIB,
    instead: "give the applet less memory (memory) or a smaller heap",
};
const DATA: Words = Words { what: "KiB of data", command: "ulimit -d", ..MEMORY };
const FILES: Words = Words {
    what: "open files",
    command: "ulimit -n",
    unit: 1,
    instead: "close some files in the host",
};
const PROCESSES: Words = Words {
    what: "processes and threads",
    command: "ulimit -u",
    unit: 1,
    instead: "let the applet have fewer threads (threads)",
};

/// The limits, each with the name of the step that sets it. How many processes there are is counted
/// for each user of each user name space: that is the program's own number in one of its own;
/// elsewhere others are counted too, and the supervisor alone counts.
pub(crate) fn limits(
    ours: &JailLimits,
    given: &Given,
    in_user_name_space: bool,
) -> Result<Vec<(&'static str, ResourceLimit)>, JailError> {
    let promised = |bytes: u64, words| {
        if bytes == u64::MAX { Short::Takes } else { Short::Needs(bytes, words) }
    };
    let files = u64::from(given.first_free_descriptor);
    let files_min = files + u64::from(OPEN_FILES_MIN);
    let mut wanted = vec![
        (
            "limit the address space",
            Resource::As,
            ours.address_space_bytes,
            promised(ours.address_space_bytes, MEMORY),
        ),
        ("limit the data", Resource::Data, ours.private_bytes, promised(ours.private_bytes, DATA)),
        ("limit the stack", Resource::Stack, ours.stack_bytes, Short::Takes),
        (
            "limit the files",
            Resource::Nofile,
            files + u64::from(ours.open_files.max(OPEN_FILES_MIN)),
            Short::Needs(files_min, FILES),
        ),
        ("limit the size of files", Resource::Fsize, ours.file_size_bytes, Short::Takes),
        ("limit core dumps", Resource::Core, 0, Short::Takes),
        ("limit locked memory", Resource::Memlock, 0, Short::Takes),
        ("limit message queues", Resource::Msgqueue, 0, Short::Takes),
        ("limit real-time priority", Resource::Rtprio, 0, Short::Takes),
        ("limit priority", Resource::Nice, 0, Short::Takes),
        ("limit signals that wait", Resource::Sigpending, PENDING_SIGNALS, Short::Takes),
    ];
    if let Some(time) = ours.cpu_time {
        // The supervisor is exact; this is for when it is late.
        let late_s = time.as_secs().saturating_add(2);
        wanted.push(("limit CPU time", Resource::Cpu, late_s, Short::Takes));
    }
    if in_user_name_space {
        let threads = u64::from(ours.threads);
        wanted.push((
            "limit processes",
            Resource::Nproc,
            threads,
            Short::Needs(threads, PROCESSES),
        ));
    }
    let fitted = wanted.into_iter().map(|(step, resource, wanted, short)| {
        let may_have = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        match short {
            Short::Needs(needed, words) if may_have < needed => Err(JailError::ResourceLimit {
                what: words.what,
                command: words.command,
                may_have: may_have / words.unit,
                needed: needed.div_ceil(words.unit),
                instead: words.instead,
            }),
            _ => {
                Ok((step, ResourceLimit { resource: resource as u32, value: wanted.min(may_have) }))
            }
        }
    });
    fitted.collect()
}
