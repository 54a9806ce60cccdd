//! A block trace of one device with ext4: every write that the device completed, with the file that
//! each block belonged to, by the kernel's tracepoints.
//!
//! Invariants:
//! - The file system is empty when the trace begins, so every block of a file was given to it in
//!   the trace.
//! - A trace that lost an event is an error.
//! - What a block held is read from the file behind the device right after the write: a block that
//!   was written again within that moment counts with its later content.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Error, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a block of the file system.
pub(super) const BLOCK: usize = 4096;
const SECTORS_PER_BLOCK: u64 = 8;
const TRACING: &str = "/sys/kernel/tracing";
const EVENTS: [&str; 5] = [
    "block/block_rq_complete",
    "ext4/ext4_allocate_blocks",
    "ext4/ext4_free_blocks",
    "ext4/ext4_allocate_inode",
    "ext4/ext4_sync_file_enter",
];
/// For each processor.
const BUFFER_KIB: &str = "16384";
const PAUSE: Duration = Duration::from_millis(2);
/// How a database of SQLite begins.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// What happened at the device, or to its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A number of an inode was given to a new file.
    NewFile { inode: u64, is_directory: bool },
    /// Blocks were given to a file, as those from `logical` on.
    Allocated { inode: u64, block: u64, count: u64, logical: u64, is_data: bool },
    /// Blocks were taken from their file.
    Freed { block: u64, count: u64 },
    /// A block was written; with the sum of its content.
    Written { block: u64, sum: u64, begins_database: bool },
    /// A program asked for a file to be on the device.
    Sync,
    /// The device was asked to empty its cache.
    Flush,
}

/// With its time on the monotonic clock, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at: u64,
    pub(super) what: What,
}

/// A running trace.
pub(super) struct BlockTrace {
    instance: PathBuf,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<io::Result<Vec<Event>>>>,
}

impl BlockTrace {
    /// Begins one; the text says what the kernel lacks. `number` is the device's, as `7:0`, and
    /// `image` the file behind it. Mounts the kernel's trace files for this thread if they are not
    /// there.
    pub(super) fn start(number: &str, image: &Path) -> io::Result<Result<BlockTrace, String>> {
        if !Path::new(TRACING).join("events").is_dir() {
            let mount = ["-t", "tracefs", "none", TRACING];
            let mounted = Command::new("mount").args(mount).output()?;
            if !mounted.status.success() {
                let said = String::from_utf8_lossy(&mounted.stderr).trim().to_owned();
                return Ok(Err(format!("the kernel has no trace files ({said})")));
            }
        }
        if let Some(event) =
            EVENTS.iter().find(|event| !Path::new(TRACING).join("events").join(event).is_dir())
        {
            return Ok(Err(format!(
                "the kernel has no tracepoint {event}; CONFIG_BLK_DEV_IO_TRACE and ext4 bring it"
            )));
        }
        let (major, minor) = number
            .split_once(':')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
            .ok_or_else(|| Error::other(format!("{number} is not the number of a device")))?;
        let device: u64 = kernel_number(major, minor);
        let name = format!("instances/holdfast-{}", std::process::id());
        let instance = Path::new(TRACING).join(name);
        fs::create_dir(&instance)?;
        let mut trace = BlockTrace { instance, stop: Arc::default(), reader: None };
        trace.set("trace_clock", "mono")?;
        trace.set("buffer_size_kb", BUFFER_KIB)?;
        for event in EVENTS {
            trace.set(&format!("events/{event}/filter"), &format!("dev == {device}"))?;
            trace.set(&format!("events/{event}/enable"), "1")?;
        }
        let pipe = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(trace.instance.join("trace_pipe"))?;
        let (stop, image) = (Arc::clone(&trace.stop), File::open(image)?);
        trace.reader = Some(std::thread::spawn(move || read(pipe, &image, &stop)));
        Ok(Ok(trace))
    }

    /// Ends it; all events, in the order of their time.
    pub(super) fn finish(mut self) -> io::Result<Vec<Event>> {
        self.set("tracing_on", "0")?;
        self.stop.store(true, Ordering::Relaxed);
        let reader = self.reader.take().ok_or_else(|| Error::other("the trace was not begun"))?;
        let mut events =
            reader.join().map_err(|_| Error::other("the reader of the trace panicked"))??;
        for cpu in fs::read_dir(self.instance.join("per_cpu"))? {
            let stats = fs::read_to_string(cpu?.path().join("stats"))?;
            if let Some(lost) = lost(&stats) {
                return Err(Error::other(format!("the kernel lost {lost} events of the trace")));
            }
        }
        // Equal times keep their order.
        events.sort_by_key(|event| event.at);
        Ok(events)
    }

    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        let path = self.instance.join(file);
        fs::write(&path, value)
            .map_err(|error| Error::other(format!("cannot write {}: {error}", path.display())))
    }
}

impl Drop for BlockTrace {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        // What stays is an empty buffer under a name of this process.
        let _ = fs::remove_dir(&self.instance);
    }
}

/// A device as the kernel's filters compare it.
fn kernel_number(major: u64, minor: u64) -> u64 {
    major << 20 | minor
}

fn lost(stats: &str) -> Option<u64> {
    let counts = stats
        .lines()
        .filter(|line| ["overrun:", "dropped events:"].iter().any(|name| line.starts_with(name)));
    let sum: u64 = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    (sum > 0).then_some(sum)
}

/// Reads events until `stop` is set and the pipe is empty.
fn read(mut pipe: File, image: &File, stop: &AtomicBool) -> io::Result<Vec<Event>> {
    let (mut events, mut text, mut chunk) = (Vec::new(), Vec::new(), vec![0; 1 << 16]);
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        match pipe.read(&mut chunk) {
            Ok(count) if count > 0 => {
                text.extend_from_slice(&chunk[..count]);
                let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
                for line in String::from_utf8_lossy(&text[..end]).lines() {
                    take(line, image, &mut events)?;
                }
                text.drain(..end);
                continue;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if is_last {
            return Ok(events);
        }
        std::thread::sleep(PAUSE);
    }
}

fn take(line: &str, image: &File, events: &mut Vec<Event>) -> io::Result<()> {
    if line.contains("[LOST") {
        return Err(Error::other(format!("the trace was read too slowly: {line}")));
    }
    match parse(line) {
        None => {}
        Some(Line::Event(event)) => events.push(event),
        Some(Line::Write { at, sector, sectors }) => {
            for block in sector / SECTORS_PER_BLOCK..(sector + sectors).div_ceil(SECTORS_PER_BLOCK)
            {
                let mut content = [0; BLOCK];
                image.read_exact_at(&mut content, block * BLOCK as u64)?;
                let begins_database = content.starts_with(MAGIC);
                let what = What::Written { block, sum: xxh3_64(&content), begins_database };
                events.push(Event { at, what });
            }
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Event(Event),
    Write { at: u64, sector: u64, sectors: u64 },
}

/// `TASK-PID [CPU] FLAGS SECONDS.MICROSECONDS: NAME: fields`.
fn parse(line: &str) -> Option<Line> {
    let (name, start) = EVENTS.iter().find_map(|event| {
        let name = event.rsplit('/').next()?;
        Some((name, line.find(&format!(": {name}: "))?))
    })?;
    let (seconds, micros) = line[..start].rsplit(' ').next()?.split_once('.')?;
    let at = (seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?) * 1000;
    let fields = &line[start + name.len() + 4..];
    let words: Vec<&str> = fields.split_whitespace().collect();
    // `name value`, as ext4 prints its fields.
    let value = |wanted: &str| {
        let place = words.iter().position(|word| *word == wanted)?;
        words.get(place + 1)?.parse::<u64>().ok()
    };
    let event = |what| Some(Line::Event(Event { at, what }));
    match name {
        // `7,0 WS () 25888 + 8 be,0,3 [0]`
        "block_rq_complete" => {
            let kinds = words.get(1)?;
            let plus = words.iter().position(|word| *word == "+")?;
            let sectors = words.get(plus + 1)?.parse().ok()?;
            match sectors {
                0 if kinds.starts_with("FF") => event(What::Flush),
                0 => None,
                _ if kinds.contains('W') => {
                    Some(Line::Write { at, sector: words.get(plus - 1)?.parse().ok()?, sectors })
                }
                _ => None,
            }
        }
        "ext4_allocate_inode" => {
            let place = words.iter().position(|word| *word == "mode")?;
            let mode = u32::from_str_radix(words.get(place + 1)?, 8).ok()?;
            let is_directory = mode & libc::S_IFMT == libc::S_IFDIR;
            event(What::NewFile { inode: value("ino")?, is_directory })
        }
        "ext4_allocate_blocks" => event(What::Allocated {
            inode: value("ino")?,
            block: value("block")?,
            count: value("len")?,
            logical: value("lblk")?,
            is_data: fields.contains("HINT_DATA"),
        }),
        "ext4_free_blocks" => event(What::Freed { block: value("block")?, count: value("count")? }),
        "ext4_sync_file_enter" => event(What::Sync),
        _ => None,
    }
}

/// The blocks of the file system's own journal, of an ext4 in that file.
pub(super) fn journal_blocks(image: &Path) -> io::Result<std::collections::HashSet<u64>> {
    let output = Command::new("debugfs").args(["-R", "blocks <8>"]).arg(image).output();
    let output = output.map_err(|error| {
        Error::other(format!("debugfs cannot be started ({error}); apt-get install e2fsprogs"))
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let blocks = text.split_whitespace().map(str::parse).collect::<Result<_, _>>();
    match blocks {
        Ok(blocks) if !text.trim().is_empty() => Ok(blocks),
        _ => Err(Error::other(format!(
            "debugfs did not name the blocks of the journal: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

/// One life of an inode's number: a file from its making to its removal.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) inode: u64,
    pub(super) born: u64,
    pub(super) is_directory: bool,
    pub(super) is_database: bool,
    /// Time, block of the file, sum of its content.
    pub(super) writes: Vec<(u64, u64, u64)>,
}

/// What a trace says about files and about the rest.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) lives: Vec<Life>,
    /// Times at which a block of the file system's journal was written.
    pub(super) journal: Vec<u64>,
    /// Times at which another block was written that is no file's content.
    pub(super) metadata: Vec<u64>,
    pub(super) syncs: Vec<u64>,
    pub(super) flushes: Vec<u64>,
}

impl Files {
    /// Follows which block belongs to which file.
    pub(super) fn follow(events: &[Event], journal: &std::collections::HashSet<u64>) -> Files {
        let mut files = Files::default();
        let mut owners: HashMap<u64, (usize, u64)> = HashMap::new();
        let mut alive: HashMap<u64, usize> = HashMap::new();
        for &Event { at, what } in events {
            match what {
                What::NewFile { inode, is_directory } => {
                    alive.insert(inode, files.lives.len());
                    files.lives.push(Life { inode, born: at, is_directory, ..Life::default() });
                }
                What::Allocated { inode, block, count, logical, is_data } => {
                    let life = alive.get(&inode).filter(|_| is_data);
                    for index in 0..count {
                        match life {
                            Some(&life) => owners.insert(block + index, (life, logical + index)),
                            None => owners.remove(&(block + index)),
                        };
                    }
                }
                What::Freed { block, count } => {
                    for index in 0..count {
                        owners.remove(&(block + index));
                    }
                }
                What::Written { block, .. } if journal.contains(&block) => files.journal.push(at),
                What::Written { block, sum, begins_database } => match owners.get(&block) {
                    Some(&(life, logical)) if !files.lives[life].is_directory => {
                        let life = &mut files.lives[life];
                        life.writes.push((at, logical, sum));
                        life.is_database |= logical == 0 && begins_database;
                    }
                    _ => files.metadata.push(at),
                },
                What::Sync => files.syncs.push(at),
                What::Flush => files.flushes.push(at),
            }
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let event = |at, what| Some(Line::Event(Event { at, what }));
        let line = "  kworker/1:1H-44      [001] ..... 10773.569410: block_rq_complete: 7,0 WSM () 25952 + 16 be,0,3 [0]";
        assert_eq!(
            parse(line),
            Some(Line::Write { at: 10_773_569_410_000, sector: 25952, sectors: 16 })
        );
        let line = "ksoftirqd/1-22 [001] ..s.. 10773.570548: block_rq_complete: 7,0 FF () 18446744073709551615 + 0 none,0,0 [0]";
        assert_eq!(parse(line), event(10_773_570_548_000, What::Flush));
        let read = "x-1 [001] ..s.. 1.000001: block_rq_complete: 7,0 RM () 224 + 8 be,0,4 [0]";
        let sequence = "x-1 [001] d.s1. 1.000001: block_rq_complete: 7,0 WS () 0 + 0 be,0,4 [0]";
        assert_eq!((parse(read), parse(sequence)), (None, None));
        let line =
            "a b-1 [001] ..... 1.000002: ext4_allocate_inode: dev 7,0 ino 13 dir 2 mode 0100644";
        assert_eq!(
            parse(line),
            event(1_000_002_000, What::NewFile { inode: 13, is_directory: false })
        );
        let line = "s-1 [001] ..... 1.000003: ext4_allocate_blocks: dev 7,0 ino 13 flags HINT_DATA|USE_RESV len 3 block 7335 lblk 4 goal 32768 lleft 0 lright 0 pleft 0 pright 0";
        let what = What::Allocated { inode: 13, block: 7335, count: 3, logical: 4, is_data: true };
        assert_eq!(parse(line), event(1_000_003_000, what));
        let line = "s-1 [001] ..... 1.000004: ext4_free_blocks: dev 7,0 ino 13 mode 0100644 block 7335 count 3 flags VALIDATED";
        assert_eq!(parse(line), event(1_000_004_000, What::Freed { block: 7335, count: 3 }));
        assert_eq!(parse("# tracer: nop"), None);
    }

    #[test]
    fn lost_events_are_seen() {
        assert_eq!(lost("entries: 3\noverrun: 0\ndropped events: 0\n"), None);
        assert_eq!(lost("entries: 3\noverrun: 2\ndropped events: 1\n"), Some(3));
    }

    /// A block goes to the file that had it when it was written, and a number of an inode that was
    /// given again is another file.
    #[test]
    fn blocks_follow_their_files() {
        let mut at = 0;
        let mut event = |what| {
            at += 1;
            Event { at, what }
        };
        let allocated =
            |block| What::Allocated { inode: 12, block, count: 2, logical: 0, is_data: true };
        let written = |block, begins_database| What::Written { block, sum: 7, begins_database };
        let events = [
            event(What::NewFile { inode: 12, is_directory: false }),
            event(allocated(100)),
            event(written(100, true)),
            event(written(50, false)),
            event(What::Freed { block: 100, count: 2 }),
            event(written(101, false)),
            event(What::NewFile { inode: 12, is_directory: false }),
            event(allocated(101)),
            event(written(102, true)),
        ];
        let files = Files::follow(&events, &[50].into());
        let [first, second] = &files.lives[..] else { panic!("{files:?}") };
        assert_eq!((&first.writes[..], first.is_database), (&[(3, 0, 7)][..], true));
        assert_eq!((&second.writes[..], second.is_database), (&[(9, 1, 7)][..], false));
        assert_eq!((&files.journal[..], &files.metadata[..]), (&[4][..], &[6][..]));
    }
}
