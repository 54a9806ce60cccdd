//! Starts an applet for a page: its file by its hash, its heaps by the page's name.
//!
//! Invariants:
//! - The key of a heap follows from the page's name alone, also for a signed applet: a page that
//!   has a publisher's file must not get the publisher's heaps. A heap of the key that all applets share
//!   is refused.
//! - What starts is the file whose hash was asked for.
//! - A start that fails leaves no heap behind that it made.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_applet::{
    Applet, AppletError, Command, Failure, Grants, JailError, Limits, MAX_HEAP_LIMIT_BYTES,
    SandboxKind, Stdio, WasmError,
};
use holdfast_fetch::AppletHash;
use holdfast_identity::{
    AppletFile, GivenName, Identity, KeySource, OwnershipError, SignatureError, key_for,
};
use holdfast_region::{
    ErrorKind, KeyFingerprint, NameSpace, Opened, OwnerKey, Region, RegionError, RegionName,
};

use crate::discretion::Notices;
use crate::limits::ServeLimits;
use crate::message::{AccessBody, HeapBody, Kind, LimitsBody, StartBody};

const HEAPS_MAX: usize = 16;
const OUTPUT_BYTES_MAX: usize = 4096;
/// Argument 0 of every applet: the path of its file would say where this user keeps things.
const NAME: &str = "applet";
const AGAIN: Duration = Duration::from_millis(10);
/// How often a program is examined again that changed meanwhile, and after which time.
const EXAMINE_AGAIN_MAX: usize = 5;
const EXAMINE_AGAIN: Duration = Duration::from_millis(20);

/// Why an applet did not start.
pub(crate) struct NotStarted {
    pub(crate) kind: Kind,
    /// For the user; not all of it is for the page.
    pub(crate) words: String,
    /// What the applet itself wrote.
    pub(crate) output: String,
}

fn refused(kind: Kind, words: impl ToString) -> NotStarted {
    NotStarted { kind, words: words.to_string(), output: String::new() }
}

/// What all starts of a server have in common.
pub(crate) struct Opener {
    pub(crate) names: NameSpace,
    pub(crate) limits: ServeLimits,
    /// What the user was told about pages that run applets.
    pub(crate) notices: Notices,
    /// Held while a heap is made, so that heaps are counted one after the other.
    pub(crate) making: Mutex<()>,
}

/// A heap that a page wants.
struct Wanted {
    heap: RegionName,
    alias: RegionName,
    is_read_only: bool,
}

impl Opener {
    /// Starts the applet in `path`, which has this hash, for the page of this name, for as long as
    /// `is_wanted` says that the page is there.
    pub(crate) fn open(
        &self,
        path: PathBuf,
        page: &GivenName,
        asked: &StartBody,
        is_wanted: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Applet, NotStarted> {
        let limits = self.limits_of(&asked.limits)?;
        let wanted = wanted(&asked.heaps)?;
        let file = examine(|| AppletFile::of_path(&path))?;
        if file.hash().to_bytes() != asked.sha256.to_bytes() {
            let found = AppletHash::from_bytes(file.hash().to_bytes());
            return Err(refused(Kind::WrongHash, format!("the applet has SHA-256 {found}")));
        }
        let is_native = matches!(SandboxKind::of(&path), Ok(SandboxKind::Native));
        let identity = Identity::Named(page.clone());
        let mut grants = Grants::none().cache_dir(self.names.places().cache());
        let mut made = Vec::new();
        for heap in wanted {
            match self.open_heap(&heap, &identity, is_native, &is_wanted) {
                Ok((region, key)) => {
                    if region.opened() == Opened::Created {
                        made.push((heap.heap, key));
                    }
                    grants = grants.heap_as(heap.alias, region);
                }
                Err(error) => {
                    // It holds what is to be removed.
                    drop(grants);
                    self.remove(made);
                    return Err(error);
                }
            }
        }
        let command = Command::new(path, grants)
            .examined(file)
            .called(NAME)
            .limits(limits)
            .start_while(is_wanted);
        command.stdio(Stdio::capture(OUTPUT_BYTES_MAX)).spawn().map_err(|error| {
            self.remove(made);
            let output = output_of(&error);
            NotStarted { kind: kind_of(&error.failure), words: error.to_string(), output }
        })
    }

    /// The server's limits, with what the page made smaller.
    fn limits_of(&self, asked: &LimitsBody) -> Result<Limits, NotStarted> {
        let max = &self.limits;
        let within = |asked: Option<u64>, max: u64, what: &str| match asked {
            Some(asked) if asked == 0 || asked > max => {
                Err(refused(Kind::Refused, format!("{what} must be between 1 and {max}")))
            }
            asked => Ok(asked.unwrap_or(max)),
        };
        let timeout_max = u64::try_from(max.call_timeout.as_millis()).unwrap_or(u64::MAX);
        let timeout_ms = within(asked.call_timeout_ms, timeout_max, "callTimeoutMs")?;
        let mut limits = Limits::default();
        limits.memory_bytes = within(asked.memory_bytes, max.memory_bytes, "memoryBytes")?;
        limits.call_timeout = Some(Duration::from_millis(timeout_ms));
        let threads = within(asked.threads.map(u64::from), max.threads.into(), "threads")?;
        limits.threads = u32::try_from(threads).unwrap_or(max.threads);
        limits.start_timeout = max.start_timeout;
        limits.compile_timeout = Some(max.start_timeout);
        limits.grace = max.grace;
        limits.buffer_bytes = 0;
        Ok(limits)
    }

    fn open_heap(
        &self,
        wanted: &Wanted,
        identity: &Identity,
        is_native: bool,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(Region, OwnerKey), NotStarted> {
        let heap = &wanted.heap;
        let end = Instant::now() + self.limits.heap_patience;
        loop {
            match self.try_heap(wanted, identity, is_native) {
                Ok(opened) => return Ok(opened),
                Err(NotOpened::Region(error))
                    if error.kind() == ErrorKind::Held && Instant::now() < end && is_wanted() =>
                {
                    std::thread::sleep(AGAIN);
                }
                Err(NotOpened::Region(error)) => {
                    return Err(refused(kind_of_region(&error), error));
                }
                Err(NotOpened::Refused(error)) => return Err(error),
                Err(NotOpened::Shared) => {
                    let words = format!(
                        "heap `{heap}` is one that every applet of this user shares, which no page gets; use another name"
                    );
                    return Err(refused(Kind::Denied, words));
                }
            }
        }
    }

    fn try_heap(
        &self,
        wanted: &Wanted,
        identity: &Identity,
        is_native: bool,
    ) -> Result<(Region, OwnerKey), NotOpened> {
        let heap = &wanted.heap;
        let is_new = || matches!(self.names.summary(heap), Err(RegionError::NotFound { .. }));
        // Held for a new heap only: another one may have to be waited for.
        let making = is_new()
            .then(|| self.making.lock().unwrap_or_else(PoisonError::into_inner))
            .filter(|_| is_new());
        if making.is_some() && wanted.is_read_only {
            let words = format!("there is no heap `{heap}` to read");
            return Err(NotOpened::Refused(refused(Kind::Refused, words)));
        }
        let found = key_for(&self.names, heap, identity).map_err(|error| match error {
            // Whose it is a page need not know.
            OwnershipError::Refused { .. } => NotOpened::Refused(refused(
                Kind::Denied,
                format!("heap `{heap}` is not one of this origin; use another name"),
            )),
            OwnershipError::Region(error) => NotOpened::Region(error),
            error => NotOpened::Refused(refused(Kind::Other, error)),
        })?;
        if found.source() == KeySource::Legacy {
            return Err(NotOpened::Shared);
        }
        let key = found.key().clone();
        let region = if making.is_some() {
            self.check_count(&key)?;
            let limit_bytes = match is_native {
                true => self.limits.heap_bytes,
                false => self.limits.heap_bytes.min(MAX_HEAP_LIMIT_BYTES),
            };
            self.names.open_or_create(heap, &key, limit_bytes)
        } else if wanted.is_read_only
            || self.names.access(heap, &key).is_ok_and(|access| !access.may_write())
        {
            self.names.open_read_only(heap, &key)
        } else {
            self.names.open(heap, &key)
        };
        Ok((region.map_err(NotOpened::Region)?, key))
    }

    /// Whether the owner of this key may make one more heap.
    fn check_count(&self, key: &OwnerKey) -> Result<(), NotOpened> {
        let owner = KeyFingerprint::from_bytes(key.fingerprint());
        let heaps = self.names.list().map_err(NotOpened::Region)?;
        let count = heaps.iter().filter(|heap| heap.owner == Some(owner)).count();
        if count < self.limits.heaps_per_origin {
            return Ok(());
        }
        let words = format!(
            "this origin has {count} heaps, which is as many as it may; remove one (`holdfast heap rm`), or raise \
             --heaps-per-origin"
        );
        Err(NotOpened::Refused(refused(Kind::NoRoom, words)))
    }

    fn remove(&self, made: Vec<(RegionName, OwnerKey)>) {
        for (name, key) in made {
            // One that stays is empty, and opens at the next start.
            let _ = self.names.remove(&name, &key);
        }
    }
}

/// Examines a program. Another start that notes its use in the cache changes its times, so one that
/// changed meanwhile is examined again.
fn examine(
    mut read: impl FnMut() -> Result<AppletFile, SignatureError>,
) -> Result<AppletFile, NotStarted> {
    let mut again = 0;
    loop {
        match read() {
            Ok(file) => return Ok(file),
            Err(SignatureError::Changed) if again < EXAMINE_AGAIN_MAX => {
                again += 1;
                std::thread::sleep(EXAMINE_AGAIN);
            }
            Err(error @ (SignatureError::Changed | SignatureError::Io(_))) => {
                return Err(refused(Kind::Other, error));
            }
            Err(error) => return Err(refused(Kind::NotAnApplet, error)),
        }
    }
}

/// Why a heap was not opened.
enum NotOpened {
    Region(RegionError),
    Refused(NotStarted),
    Shared,
}

fn wanted(heaps: &[HeapBody]) -> Result<Vec<Wanted>, NotStarted> {
    if heaps.len() > HEAPS_MAX {
        return Err(refused(Kind::Refused, format!("an applet has at most {HEAPS_MAX} heaps")));
    }
    let name = |text: &str| RegionName::parse(text).map_err(|error| refused(Kind::Refused, error));
    heaps
        .iter()
        .map(|asked| {
            let heap = name(&asked.heap)?;
            let alias = asked.name.as_deref().map_or_else(|| Ok(heap.clone()), name)?;
            Ok(Wanted { heap, alias, is_read_only: asked.access == AccessBody::ReadOnly })
        })
        .collect()
}

fn kind_of_region(error: &RegionError) -> Kind {
    match error.kind() {
        ErrorKind::Held => Kind::Held,
        ErrorKind::Denied => Kind::Denied,
        ErrorKind::NoRoom => Kind::NoRoom,
        ErrorKind::Usage | ErrorKind::NotFound => Kind::Refused,
        _ => Kind::Other,
    }
}

fn kind_of(failure: &Failure) -> Kind {
    match failure {
        Failure::Wasm(error) => kind_of_wasm(error),
        Failure::NotServing { .. }
        | Failure::ChannelVersion { .. }
        | Failure::Jail(JailError::NotNative { .. }) => Kind::NotAnApplet,
        Failure::LimitNotOffered { .. } | Failure::Heaps(_) => Kind::Refused,
        Failure::Heap(error) => kind_of_region(error),
        Failure::Ended { .. } | Failure::Protocol { .. } => Kind::Died,
        _ => Kind::Other,
    }
}

/// The program itself is to blame for some failures only: a page that is told so looks for another
/// program.
fn kind_of_wasm(error: &WasmError) -> Kind {
    match error {
        WasmError::NotWasm { .. }
        | WasmError::Invalid { .. }
        | WasmError::TooComplex { .. }
        | WasmError::TooMany { .. }
        | WasmError::TextTooLarge { .. }
        | WasmError::CompileMemoryLimit { .. }
        | WasmError::UnknownImport { .. }
        | WasmError::NoStart { .. }
        | WasmError::TableLimit { .. } => Kind::NotAnApplet,
        WasmError::Heaps(_)
        | WasmError::HeapTooLarge { .. }
        | WasmError::HeapsOverlap { .. }
        | WasmError::HeapPlace { .. }
        | WasmError::NoRoomForHeap { .. }
        | WasmError::MemoryLimit { .. } => Kind::Refused,
        WasmError::Trap(_)
        | WasmError::OutOfFuel { .. }
        | WasmError::HostAccess { .. }
        | WasmError::ReadOnlyHeap { .. } => Kind::Died,
        WasmError::Heap(error) => kind_of_region(error),
        _ => Kind::Other,
    }
}

/// What an applet wrote before it ended, as the end of a message.
pub(crate) fn output_of(error: &AppletError) -> String {
    let said = [error.stdout.as_slice(), error.stderr.as_slice()].concat();
    let said = String::from_utf8_lossy(&said);
    match said.trim() {
        "" => String::new(),
        said if error.is_output_truncated => format!("\nit wrote, and more: {said}"),
        said => format!("\nit wrote: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a program that changes so often while it is examined.
    fn examined(changes: usize) -> Result<AppletFile, Kind> {
        let mut left = changes;
        let found = examine(|| match left {
            0 => AppletFile::of_bytes(b"program"),
            _ => {
                left -= 1;
                Err(SignatureError::Changed)
            }
        });
        found.map_err(|error| error.kind)
    }

    /// A program that another start marks as used meanwhile starts; one that never rests is not
    /// said to be no applet.
    ///
    /// Guarantee: serve/content-addressed
    #[test]
    fn changed_program_is_examined_again() {
        for changes in [0, 1, EXAMINE_AGAIN_MAX] {
            assert!(examined(changes).is_ok(), "{changes}");
        }
        assert_eq!(examined(usize::MAX), Err(Kind::Other));
    }
}
