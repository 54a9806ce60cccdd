//! File operations that the standard library lacks: allocation, holes, file system types, owners,
//! room in pipes.
//!
//! Every call is a thin wrapper: no policy, no retries but for EINTR, no path is interpreted.

#![forbid(unsafe_code)]

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, OFlags, SeekFrom, Statx, StatxAttributes, StatxFlags, statx,
};
use rustix::io::Errno;

/// Magic number of tmpfs in `statfs`.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// Magic number of ramfs in `statfs`.
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// Magic numbers of file systems of this kernel that set a file's change time at every write: ext2
/// to ext4, XFS, Btrfs, F2FS, ZFS, bcachefs, overlayfs, tmpfs.
const CHANGE_TIME_MAGICS: [u64; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x794c_7630,
    TMPFS_MAGIC,
];
/// What is allocated at once, at least, however many signals come.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// Longer than a tick of the kernel's clock (at most 10 ms): what was written within one tick after
/// a stamp was taken would not show in the stamp.
const TICK_MAX: Duration = Duration::from_millis(100);
/// The same where a file system counts whole seconds, as ext2 and ext3 do.
const WHOLE_TICK_MAX: Duration = Duration::from_secs(2);

/// What changes whenever a file is replaced or written to: its identity, size and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Device and inode.
    pub identity: [u64; 2],
    /// Size.
    pub bytes: u64,
    /// When the content was last changed as its owner tells it, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// When content or metadata were last changed; no process can set this time.
    pub changed_ns: i128,
}

impl FileStamp {
    /// The stamp of a regular file, if a later stamp of the same file will tell whether it was
    /// written to in between (but through a shared writable mapping made before): the file system
    /// sets change times, and the last change was some time ago.
    ///
    /// # Errors
    /// What `fstat` or `fstatfs` report.
    pub fn of_settled(file: &File) -> io::Result<Option<FileStamp>> {
        let metadata = file.metadata()?;
        let magic = rustix::fs::fstatfs(file)?.f_type as u64 & 0xffff_ffff;
        if !metadata.is_file() || !CHANGE_TIME_MAGICS.contains(&magic) {
            return Ok(None);
        }
        let ns = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        let stamp = FileStamp {
            identity: [metadata.dev(), metadata.ino()],
            bytes: metadata.len(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let tick_max = if metadata.ctime_nsec() == 0 { WHOLE_TICK_MAX } else { TICK_MAX };
        let is_settled = stamp.changed_ns + (tick_max.as_nanos() as i128) < now.as_nanos() as i128;
        Ok(is_settled.then_some(stamp))
    }

    /// All of it, to be hashed.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 56] {
        let mut bytes = [0; 56];
        let times = [self.modified_ns, self.changed_ns].map(i128::to_le_bytes);
        let words = [self.identity[0], self.identity[1], self.bytes].map(u64::to_le_bytes);
        bytes[..24].copy_from_slice(words.as_flattened());
        bytes[24..].copy_from_slice(times.as_flattened());
        bytes
    }
}

/// Room on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total_bytes: u64,
    /// What this user may still allocate.
    pub available_bytes: u64,
}

/// Options that never follow a symbolic link in the last component, never leak the descriptor to a
/// child, and create private files.
#[must_use]
pub fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32 | OFlags::CLOEXEC.bits() as i32);
    options
}

/// Options for a file that the user named and may show to others (a picture, a report): others can
/// read it where the umask lets them, and never write to it, whatever the umask is.
#[must_use]
pub fn shown_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o644);
    options
}

/// Writes such a file, in place of one that is there.
///
/// # Errors
/// What the kernel reports; the file may then be cut off.
pub fn write_shown(path: &Path, bytes: &[u8]) -> io::Result<()> {
    shown_options().write(true).create(true).truncate(true).open(path)?.write_all(bytes)
}

/// Writes a file that is this user's alone, also where one with other rights is there.
///
/// # Errors
/// What the kernel reports; a symbolic link is refused. The file may then be cut off.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = private_options().write(true).create(true).truncate(true).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(bytes)
}

/// A file in memory without a name, `len_bytes` long, all hole. It is gone with its last descriptor
/// and mapping.
///
/// # Errors
/// What `memfd_create` or `ftruncate` report.
pub fn anonymous(label: &str, len_bytes: u64) -> io::Result<File> {
    let file = File::from(rustix::fs::memfd_create(label, rustix::fs::MemfdFlags::CLOEXEC)?);
    file.set_len(len_bytes)?;
    Ok(file)
}

/// Whether a file in memory is sealed against shrinking: what is mapped of it stays there.
///
/// # Errors
/// What `fcntl(F_GET_SEALS)` reports, for files of other kinds.
pub fn cannot_shrink(file: impl AsFd) -> io::Result<bool> {
    Ok(rustix::fs::fcntl_get_seals(file)?.contains(rustix::fs::SealFlags::SHRINK))
}

/// Whether an open with [`private_options`] failed because the last component is a symbolic link.
#[must_use]
pub fn refused_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Allocates a range of a file, so that no later store to it can fail; extends the file if needed.
///
/// # Errors
/// `StorageFull` when there is no room; the file is then as long as it was, and unchanged unless
/// signals came meanwhile. `Unsupported` where the file system cannot allocate.
pub fn allocate(file: &File, range: Range<u64>) -> io::Result<()> {
    allocate_by(file, range, &|piece| {
        let bytes = piece.end - piece.start;
        rustix::fs::fallocate(file, FallocateFlags::empty(), piece.start, bytes)
    })
}

/// At once, if no signal comes. A tmpfs of many kernels takes back what an interrupted call has
/// allocated: with a timer that ticks all the time no call for a large range would ever come to its
/// end. So each interruption makes the pieces smaller.
fn allocate_by(
    file: &File,
    range: Range<u64>,
    allocate: &dyn Fn(Range<u64>) -> Result<(), Errno>,
) -> io::Result<()> {
    let (mut start, mut piece_bytes) = (range.start, range.end.saturating_sub(range.start));
    let mut len_before = None;
    while start < range.end {
        let end = range.end.min(start.saturating_add(piece_bytes));
        match allocate(start..end) {
            Ok(()) => start = end,
            Err(Errno::INTR) => {
                if len_before.is_none() {
                    len_before = Some(length(file)?);
                }
                piece_bytes = (piece_bytes / 2).max(PIECE_BYTES_MIN);
            }
            Err(error) => {
                // Pieces before this one may have made it longer.
                if let Some(len_before) = len_before.filter(|_| start > range.start)
                    && length(file)? > len_before
                {
                    file.set_len(len_before)?;
                }
                return Err(error.into());
            }
        }
    }
    Ok(())
}

/// Gives the memory or the blocks of a range of a file back; the range reads as zeros then, and the
/// file keeps its length.
///
/// # Errors
/// What `fallocate(FALLOC_FL_PUNCH_HOLE)` reports, where the file system cannot.
pub fn give_back(file: &File, range: Range<u64>) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    loop {
        match rustix::fs::fallocate(file, flags, range.start, range.end - range.start) {
            Err(Errno::INTR) => {}
            other => return other.map_err(Into::into),
        }
    }
}

/// Makes `to` share all blocks of `from`, copy on write (`FICLONE`).
///
/// # Errors
/// What the kernel reports, where the file system cannot; `to` is then unchanged.
pub fn share_blocks(from: &File, to: &File) -> io::Result<()> {
    Ok(rustix::fs::ioctl_ficlone(to, from)?)
}

/// The next range of a file, from `offset` on, that holds data; `None` when only a hole follows.
///
/// # Errors
/// What `lseek` reports.
pub fn next_data(file: &File, offset: u64) -> io::Result<Option<Range<u64>>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    Ok(Some(start..end))
}

/// Whether a file or directory lives in memory that the kernel never writes to a disk but for swap.
///
/// # Errors
/// What `statfs` reports.
pub fn is_volatile_memory(path: &Path) -> io::Result<bool> {
    let magic = rustix::fs::statfs(path)?.f_type as u64 & 0xffff_ffff;
    Ok(magic == TMPFS_MAGIC || magic == RAMFS_MAGIC)
}

/// Room on the file system that holds `path`.
///
/// # Errors
/// What `statvfs` reports.
pub fn space(path: &Path) -> io::Result<Space> {
    let found = rustix::fs::statvfs(path)?;
    Ok(Space {
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
    })
}

/// Makes the entries of a directory durable.
///
/// # Errors
/// What `open` or `fsync` report.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The effective user.
#[must_use]
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Opens a regular file where another process may have put a pipe, which would keep the opener
/// waiting, or something else.
///
/// # Errors
/// `InvalidInput` where it is none; what the kernel reports.
pub fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// Whether a path still names the file behind a descriptor. Asks for no times, see [`FileId`].
///
/// # Errors
/// What `statx` reports, except that a missing path is `Ok(false)`.
pub fn path_names_file(path: &Path, file: impl AsFd) -> io::Result<bool> {
    let named = FileId::at(path)?;
    Ok(named == Some(FileId::of(file)?))
}

/// Device and inode of a file.
///
/// They are asked for without its times. Since Linux 6.13 (multigrain timestamps) a file system
/// notes that a process has seen a file's times, and the next write then changes the inode: on ext4
/// without a journal the `fdatasync` after it writes that to the disk, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Of an open file.
    ///
    /// # Errors
    /// What `statx` reports.
    pub fn of(file: impl AsFd) -> io::Result<FileId> {
        match statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::INO) {
            Ok(found) => Ok(FileId::from_statx(&found)),
            // Old containers refuse it.
            Err(_) => {
                let found = rustix::fs::fstat(file)?;
                Ok(FileId { device: found.st_dev, inode: found.st_ino })
            }
        }
    }

    /// Of what a path names, which may be a symbolic link; `None` where it names nothing.
    ///
    /// # Errors
    /// What `statx` reports.
    pub fn at(path: &Path) -> io::Result<Option<FileId>> {
        let found = match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO) {
            Ok(found) => Ok(FileId::from_statx(&found)),
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(_) => path.symlink_metadata().map(|found| FileId::from_metadata(&found)),
        };
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Of what was looked at as a whole.
    pub fn from_metadata(found: &Metadata) -> FileId {
        FileId { device: found.dev(), inode: found.ino() }
    }

    fn from_statx(found: &Statx) -> FileId {
        let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        FileId { device, inode: found.stx_ino }
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Bytes of a file. Asks for no times, see [`FileId`].
///
/// # Errors
/// What `statx` reports.
pub fn length(file: &File) -> io::Result<u64> {
    match statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::SIZE) {
        Ok(found) => Ok(found.stx_size),
        // Old containers refuse it.
        Err(_) => Ok(file.metadata()?.len()),
    }
}

/// Whether it is a regular file of this user, with one name, whose mode lets no other user open it.
/// Asks for no times, see [`FileId`].
///
/// # Errors
/// What `statx` reports.
pub fn is_private(file: &File) -> io::Result<bool> {
    const OTHERS: u32 = 0o077;
    let wanted = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::NLINK | StatxFlags::UID;
    let (mode, links, user) = match statx(file, c"", AtFlags::EMPTY_PATH, wanted) {
        Ok(found) => (found.stx_mode.into(), found.stx_nlink.into(), found.stx_uid),
        // Old containers refuse it.
        Err(_) => file.metadata().map(|found| (found.mode(), found.nlink(), found.uid()))?,
    };
    let is_regular = rustix::fs::FileType::from_raw_mode(mode).is_file();
    Ok(is_regular && mode & OTHERS == 0 && links == 1 && user == effective_user())
}

/// Whether a path is the root of a mount; `None` where the kernel does not say (before Linux 5.8).
///
/// # Errors
/// What `statx` reports.
pub fn is_mount_root(path: &Path) -> io::Result<Option<bool>> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())?;
    let is_known = found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
    Ok(is_known.then(|| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)))
}

/// Whether a write of a page would go through without waiting (pipe(7)). An error counts as yes:
/// the write itself then reports it.
pub fn is_writable_now(stream: impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut streams = [PollFd::new(&stream, PollFlags::OUT)];
    !matches!(poll(&mut streams, Some(&now)), Ok(0))
}

/// Waits until there is something to read from `input`, its end included: true; or until no process
/// can read from the pipe `output` any more: false.
///
/// # Errors
/// What `poll` reports.
pub fn await_input_for(input: impl AsFd, output: impl AsFd) -> io::Result<bool> {
    loop {
        let mut both =
            [PollFd::new(&input, PollFlags::IN), PollFd::new(&output, PollFlags::empty())];
        match poll(&mut both, None) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) if both[1].revents().contains(PollFlags::ERR) => return Ok(false),
            Ok(_) => return Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipe_is_not_writable_and_one_with_room_is() {
        let (_reader, writer) = io::pipe().unwrap();
        assert!(is_writable_now(&writer));
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
        assert!(!is_writable_now(&writer));
    }

    use std::io::Write;
    use std::os::unix::fs::{FileExt, PermissionsExt};

    #[test]
    fn holes_are_found_between_data() {
        let file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(next_data(&file, 0).unwrap(), None);
        file.write_all_at(&[1; 4096], 512 << 10).unwrap();
        let found = next_data(&file, 0).unwrap().unwrap();
        assert!(found.contains(&(512 << 10)) && found.end <= 1 << 20);
        assert_eq!(next_data(&file, found.end).unwrap(), None);
    }

    /// Allocation extends the file and an empty range changes nothing.
    #[test]
    fn allocation_extends_and_empty_range_does_nothing() {
        let file = tempfile::tempfile().unwrap();
        allocate(&file, 0..0).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        allocate(&file, 4096..65_536).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 65_536);
    }

    /// A range is allocated although each longer call is interrupted, and given back when there is
    /// no room for all of it.
    ///
    /// Guarantee: heap/room
    #[test]
    fn allocation_comes_to_its_end_between_signals() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let room = std::cell::Cell::new(4 << 20);
        let calls = std::cell::Cell::new(0);
        let step = |piece: Range<u64>| {
            calls.set(calls.get() + 1);
            assert!(calls.get() < 1000, "it goes on for ever");
            let bytes = piece.end - piece.start;
            match bytes {
                0 => Err(Errno::INVAL),
                _ if bytes > 256 << 10 => Err(Errno::INTR),
                _ if piece.end > room.get() => Err(Errno::NOSPC),
                _ => rustix::fs::fallocate(&file, FallocateFlags::empty(), piece.start, bytes),
            }
        };
        room.set(3 << 20);
        let refused = allocate_by(&file, 4096..4 << 20, &step).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.metadata().unwrap().len(), 4096);
        room.set(4 << 20);
        allocate_by(&file, 4096..4 << 20, &step).unwrap();
        let found = file.metadata().unwrap();
        assert_eq!(found.len(), 4 << 20);
        assert!(found.blocks() * 512 >= (4 << 20) - 4096, "{} blocks", found.blocks());
    }

    /// Private options make private files and refuse symbolic links.
    #[test]
    fn private_options_refuse_symbolic_links() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = private_options().write(true).create_new(true).open(&path).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(refused_link(&private_options().read(true).open(&link).unwrap_err()));
    }

    #[test]
    fn a_file_is_private_while_it_has_one_name_and_one_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = private_options().write(true).create_new(true).open(&path).unwrap();
        assert!(is_private(&file).unwrap());
        std::fs::hard_link(&path, folder.path().join("other")).unwrap();
        assert!(!is_private(&file).unwrap());
        std::fs::remove_file(folder.path().join("other")).unwrap();
        file.set_permissions(Permissions::from_mode(0o640)).unwrap();
        assert!(!is_private(&file).unwrap());
        assert!(!is_private(&File::open(folder.path()).unwrap()).unwrap());
    }

    #[test]
    fn a_mount_is_told_from_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        assert_ne!(is_mount_root(Path::new("/proc")).unwrap(), Some(false));
        assert_ne!(is_mount_root(folder.path()).unwrap(), Some(true));
        assert!(is_mount_root(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_replaced_path_no_longer_names_the_open_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = File::create(&path).unwrap();
        assert!(path_names_file(&path, &file).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(!path_names_file(&path, &file).unwrap());
        File::create(&path).unwrap();
        let _still_open = &file;
        assert!(!path_names_file(&path, &file).unwrap());
    }

    /// A stamp is taken only of a file at rest and shows every change.
    #[test]
    fn stamp_needs_rest_and_shows_every_change() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(b"one").unwrap();
        assert_eq!(FileStamp::of_settled(&file).unwrap(), None);
        std::thread::sleep(WHOLE_TICK_MAX + TICK_MAX);
        let Some(stamp) = FileStamp::of_settled(&file).unwrap() else {
            // A file system whose change times are not believed.
            return;
        };
        assert_eq!(FileStamp::of_settled(&file).unwrap(), Some(stamp));
        file.write_all_at(b"two", 0).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(stamp.modified_ns as u64))
            .unwrap();
        std::thread::sleep(WHOLE_TICK_MAX + TICK_MAX);
        let changed = FileStamp::of_settled(&file).unwrap().unwrap();
        assert_eq!((changed.modified_ns, changed.bytes), (stamp.modified_ns, stamp.bytes));
        assert_ne!(changed, stamp);
    }

    #[test]
    fn space_is_reported_for_the_current_directory() {
        let found = space(Path::new(".")).unwrap();
        assert!(found.total_bytes >= found.available_bytes);
    }
}
