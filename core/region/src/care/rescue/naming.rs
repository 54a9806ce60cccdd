//! Gives written copies the names of rescue copies: durable first, then named, many together.

use std::fs::File;
use std::io;
use std::path::Path;

use holdfast_sys::file::private_options;
use holdfast_sys::lock::FileLock;
use holdfast_sys::process::may_open_more;

use crate::care::rescue::{Begun, Rescue, Writer};
use crate::error::{RegionError, Result};
use crate::media::files::rescue_path;
use crate::media::image::{BuildError, Image};
use crate::media::sparse::PAGE_BYTES;
use crate::name::RegionName;
use crate::names::namespace::NameSpace;
use crate::store::base::target_error;

/// Copies whose names newer ones have taken. It takes a disk a while to free a file, and no caller
/// has to wait for that while others are still to be saved: their room is free when this is
/// dropped, or when a copy finds the store full. Each takes a descriptor; when these run short, the
/// next one's room is free at once.
#[derive(Debug, Default)]
#[must_use = "the room of the copies that were replaced is free only when this is dropped"]
pub struct Replaced {
    files: Vec<File>,
}

impl Replaced {
    /// Whether dropping it frees nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Remembers the file that has this name now, if any.
    fn keep(&mut self, path: &Path) {
        if may_open_more() {
            self.files.extend(private_options().read(true).open(path).ok());
        }
    }
}

impl NameSpace {
    /// As [`NameSpace::rescue`] for each of several regions, whose copies become durable together:
    /// the disk is waited for once at the end, and for each only as long as it needs. Each is
    /// locked until its copy has its name. In the order of the regions. `stood_still` is asked for
    /// each as in [`NameSpace::rescue_if_changed`]. What the copies replace goes to `replaced`.
    ///
    /// # Errors
    /// Of each as there; a disk that fails at the end fails all that were written.
    pub fn rescue_each<'a>(
        &self,
        regions: impl IntoIterator<Item = (&'a RegionName, Option<u32>)>,
        stood_still: impl Fn(&RegionName) -> bool,
        replaced: &mut Replaced,
    ) -> Vec<Result<Rescue>> {
        let mut only: Option<FileLock> = None;
        let begun: Vec<Result<Begun>> = regions
            .into_iter()
            .map(|(name, stopped_writer)| {
                if !self.exists(name) {
                    return Err(self.not_found(name));
                }
                if only.is_none() {
                    only = Some(self.lock_rescues(name)?);
                }
                let writer = Writer::Stopped(stopped_writer);
                let mut begun = self.begin_rescue(name, writer, false, || stood_still(name));
                if matches!(begun, Err(RegionError::StoreFull { .. })) && !replaced.is_empty() {
                    *replaced = Replaced::default();
                    begun = self.begin_rescue(name, writer, false, || stood_still(name));
                }
                begun
            })
            .collect();
        // All before the first name: a name is work for the journal of the file system, which the
        // next file would wait for.
        let durable: Vec<Result<Begun>> =
            begun.into_iter().map(|begun| self.sync_rescue(begun?)).collect();
        let named: Vec<_> =
            durable.into_iter().map(|begun| self.name_rescue(begun?, replaced)).collect();
        let is_written = |named: &Result<Rescue>| matches!(named, Ok(Rescue::Written { .. }));
        if !named.iter().any(is_written) {
            return named;
        }
        let Err(failed) = self.storage().sync_directory(self.places().store()) else {
            return named;
        };
        let again = || io::Error::new(failed.kind(), failed.to_string());
        let failure = || RegionError::Io {
            step: "make durable",
            path: self.places().store().to_owned(),
            source: failed.raw_os_error().map_or_else(again, io::Error::from_raw_os_error),
        };
        named
            .into_iter()
            .map(|named| if is_written(&named) { Err(failure()) } else { named })
            .collect()
    }

    /// Makes a copy durable.
    pub(super) fn sync_rescue(&self, begun: Begun) -> Result<Begun> {
        if let Begun::Built { built, .. } = &begun
            && let Err(error) = self.storage().sync(&built.file)
        {
            return Err(self.not_named(built, "make durable", error));
        }
        Ok(begun)
    }

    /// Gives a durable copy its name, which is durable when the store is synced.
    pub(super) fn name_rescue(&self, begun: Begun, replaced: &mut Replaced) -> Result<Rescue> {
        let (mut built, written) = match begun {
            Begun::Done(rescue) => return Ok(rescue),
            Begun::Built { built, written, .. } => (built, written),
        };
        let path = rescue_path(self.places().store(), &built.header.name);
        replaced.keep(&path);
        match built.rename(self.storage(), path) {
            Ok(()) => Ok(Rescue::Written { bytes: written.pages * PAGE_BYTES }),
            // It was removed with what was copied, or by a commit.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Rescue::Busy),
            Err(error) => Err(self.not_named(&built, "rename", error)),
        }
    }

    /// Removes a copy that did not come to its name.
    fn not_named(&self, built: &Image, step: &'static str, source: io::Error) -> RegionError {
        let (storage, path) = (self.storage(), &built.path);
        let _ = storage.remove(path);
        let error = BuildError::Target { step, source };
        target_error(storage, error, path, self.places().store(), built.header.backed_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    /// However many copies are replaced, the next ones can be made.
    ///
    /// Guarantee: keeper/emergency
    #[test]
    fn replaced_copies_leave_descriptors_to_the_next() {
        const TEST: &str =
            "care::rescue::naming::tests::replaced_copies_leave_descriptors_to_the_next";
        const ROLE: &str = "HOLDFAST_REGION_TEST_WITH_FEW_DESCRIPTORS";
        let program = std::env::current_exe().unwrap();
        if std::env::var_os(ROLE).is_none() {
            // The limit is that of a whole process.
            let mut command = Command::new(program);
            command.args([TEST, "--exact", "--nocapture"]).env(ROLE, "1");
            let done = command.output().unwrap();
            let told = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && told.contains("1 passed"), "{told}");
            return;
        }
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).unwrap();
        let mut replaced = Replaced::default();
        (0..100).for_each(|_| replaced.keep(&program));
        let next: Vec<io::Result<File>> = (0..4).map(|_| File::open(&program)).collect();
        setrlimit(Resource::Nofile, limit).unwrap();
        assert!(next.iter().all(|opened| opened.is_ok()), "{next:?}");
        assert!(!replaced.is_empty());
    }
}
