//! Files of a home whose fields are absurd and whose checksums are right.
//!
//! A flipped bit is found by a checksum. Someone who can write a file can also write its checksum,
//! so what stands behind the sums has to refuse absurd values by itself. This changes fields, words
//! and lengths of all files of a home and makes the sums right again, as `docs/format.md` describes
//! them.
//!
//! Invariants: a [`Home`] is laid out exactly as it was recorded, with one file changed; what
//! commands made in between is gone. Files are sparse: a length that a change claims takes no
//! memory.
//!
//! What it must not do: judge what a command says.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use holdfast_heap::layout::{SUPER_MAGIC, SUPER_SUM};
use rand::RngExt;
use rand::rngs::StdRng;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const PAGE_BYTES: usize = 4096;
const SLOT_SUM: usize = 4088;
/// Where the data area of an image or base file starts.
const DATA_OFFSET: u64 = 2 << 20;
/// Data areas that claim more are not summed: their sum stays wrong.
const SUMMED_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a header slot that have a meaning.
const SLOT_FIELDS: u64 = 312;
/// Of `flags` in a header slot: the data is packed, and there is no data area.
const PACKED: u64 = 8;
/// Where a packed file has its packed part, and where that has its table.
const PACKED_OFFSET: u64 = 8192;
const PACKED_TABLE: u64 = PACKED_OFFSET + 32;
const GRANTS_BYTES_MAX: u64 = 64 << 10;

/// Values on both sides of what a field can hold: of times, sizes, counts, offsets and lengths.
pub const ABSURD: [u64; 24] = [
    0,
    1,
    7,
    63,
    4095,
    4097,
    65_536,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 40,
    (1 << 40) + 65_536,
    1 << 44,
    253_402_300_799, // the last second of the year 9999
    253_402_300_800,
    (1 << 62) - 1,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 4095,
    u64::MAX - 1,
    u64::MAX,
];

/// Which checksums a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// An image in the pool.
    Image,
    /// A base file or a snapshot.
    Base,
    /// A rescue copy.
    Rescue,
    /// A journal.
    Journal,
    /// A redo log.
    Redo,
    /// An exported stream.
    Stream,
    /// An access table.
    Grants,
    /// A file without a checksum: text, a key, a lock.
    Plain,
}

impl FileKind {
    /// By the end of its name.
    #[must_use]
    pub fn of(path: &Path) -> FileKind {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("image") => FileKind::Image,
            Some("base") => FileKind::Base,
            Some("rescue") => FileKind::Rescue,
            Some("journal") => FileKind::Journal,
            Some("redo") => FileKind::Redo,
            Some("holdfast") => FileKind::Stream,
            Some("grants") => FileKind::Grants,
            _ => FileKind::Plain,
        }
    }
}

/// A file as its length and its pages that are not zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sketch {
    /// Of the file, holes included.
    len_bytes: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Sketch {
    /// Makes the file longer by a hole, or shorter.
    pub fn set_len(&mut self, len_bytes: u64) {
        self.len_bytes = len_bytes;
    }

    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Sketch {
        let pages = bytes
            .chunks(PAGE_BYTES)
            .zip(0..)
            .filter(|(page, _)| page.iter().any(|byte| *byte != 0));
        let pages = pages.map(|(page, number)| {
            let mut page = page.to_vec();
            page.resize(PAGE_BYTES, 0);
            (number, page)
        });
        Sketch { len_bytes: bytes.len() as u64, pages: pages.collect() }
    }

    /// Bytes of it; zeros where it has none.
    #[must_use]
    pub fn load(&self, at: u64, count: usize) -> Vec<u8> {
        let (page_bytes, end) = (PAGE_BYTES as u64, at.saturating_add(count as u64));
        let mut bytes = vec![0; count];
        for (number, page) in self.pages.range(at / page_bytes..end.div_ceil(page_bytes)) {
            let start = number * page_bytes;
            let (from, to) = (start.max(at), (start + page_bytes).min(end));
            let part = &page[(from - start) as usize..(to - start) as usize];
            bytes[(from - at) as usize..(to - at) as usize].copy_from_slice(part);
        }
        bytes
    }

    /// A word of it.
    #[must_use]
    pub fn word(&self, at: u64) -> u64 {
        self.load(at, 8).try_into().map_or(0, u64::from_le_bytes)
    }

    /// Stores bytes; the length stays.
    pub fn store(&mut self, at: u64, bytes: &[u8]) {
        for (at, byte) in (at..).zip(bytes) {
            let page =
                self.pages.entry(at / PAGE_BYTES as u64).or_insert_with(|| vec![0; PAGE_BYTES]);
            page[at as usize % PAGE_BYTES] = *byte;
        }
    }

    /// Writes the file, sparse.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, path: &Path, mode: u32) -> io::Result<()> {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(true).mode(mode).open(path)?;
        for (number, page) in &self.pages {
            let at = number * PAGE_BYTES as u64;
            let bytes = self.len_bytes.saturating_sub(at).min(PAGE_BYTES as u64) as usize;
            file.write_all_at(&page[..bytes], at)?;
        }
        file.set_len(self.len_bytes)
    }

    /// Makes all checksums of a file of this kind right, as far as its lengths lead.
    pub fn seal(&mut self, kind: FileKind) {
        match kind {
            FileKind::Image => {
                self.seal_superblock();
                self.seal_slots();
            }
            FileKind::Base if self.is_packed() => {
                self.seal_packed();
                self.seal_slots();
            }
            FileKind::Base | FileKind::Rescue => {
                self.seal_superblock();
                self.seal_data();
                self.seal_slots();
                if kind == FileKind::Rescue {
                    self.seal_range(8192, 40);
                }
            }
            FileKind::Journal => self.seal_journal(),
            FileKind::Redo => {
                let count = self.word(40).min(200) as usize;
                let summed = [self.load(0, 48), self.load(PAGE_BYTES as u64, count * 16)].concat();
                self.store(48, &xxh3_64(&summed).to_le_bytes());
            }
            FileKind::Stream => self.seal_stream(),
            FileKind::Grants => {
                let at = (64 + self.word(8) / (1 << 32) * 128).min(GRANTS_BYTES_MAX);
                self.seal_range(0, at as usize);
            }
            FileKind::Plain => {}
        }
    }

    /// Puts the sum of `count` bytes behind them.
    fn seal_range(&mut self, at: u64, count: usize) {
        let sum = xxh3_64(&self.load(at, count));
        self.store(at + count as u64, &sum.to_le_bytes());
    }

    fn seal_slots(&mut self) {
        self.seal_range(0, SLOT_SUM);
        self.seal_range(PAGE_BYTES as u64, SLOT_SUM);
    }

    fn seal_superblock(&mut self) {
        let sum =
            xxh3_64(&self.load(DATA_OFFSET + SUPER_MAGIC, (SUPER_SUM - SUPER_MAGIC) as usize));
        self.store(DATA_OFFSET + SUPER_SUM, &sum.to_le_bytes());
    }

    /// The sum of the data area, in both slots.
    fn seal_data(&mut self) {
        let backed_bytes = self.word(56);
        if backed_bytes <= SUMMED_BYTES_MAX {
            let sum = xxh3_64(&self.load(DATA_OFFSET, backed_bytes as usize)).to_le_bytes();
            self.store(104, &sum);
            self.store(PAGE_BYTES as u64 + 104, &sum);
        }
    }

    fn is_packed(&self) -> bool {
        self.word(72) >> 32 & PACKED != 0
    }

    /// Entries of the table of a packed file: where each belongs in the data, and its bytes.
    fn packed_runs(&self) -> Vec<(u64, u64)> {
        let count = (self.word(PACKED_OFFSET + 16) & u64::from(u32::MAX)).min(1 << 16);
        let entry = |index| self.word(PACKED_TABLE + index * 8);
        (0..count).map(entry).map(|word| (word & u64::from(u32::MAX), word >> 32)).collect()
    }

    /// The sum of head and table of a packed file, and that of the data in both slots.
    fn seal_packed(&mut self) {
        let (runs, backed_bytes) = (self.packed_runs(), self.word(56));
        let table_bytes = runs.len() * 8;
        let summed = [self.load(PACKED_OFFSET, 24), self.load(PACKED_TABLE, table_bytes)].concat();
        self.store(PACKED_OFFSET + 24, &xxh3_64(&summed).to_le_bytes());
        if backed_bytes > SUMMED_BYTES_MAX {
            return;
        }
        let mut data = Sketch::of(&[]);
        let mut at = PACKED_TABLE + table_bytes as u64;
        for (offset, bytes) in runs {
            if offset + bytes <= backed_bytes {
                data.store(offset, &self.load(at, bytes as usize));
            }
            at = at.saturating_add(bytes);
        }
        let sum = xxh3_64(&data.load(0, backed_bytes as usize)).to_le_bytes();
        self.store(104, &sum);
        self.store(PAGE_BYTES as u64 + 104, &sum);
    }

    fn seal_journal(&mut self) {
        self.seal_range(0, SLOT_SUM);
        let salt = self.word(48);
        for at in self.journal_records() {
            let (seed, body_bytes) = (salt ^ self.word(at + 8), self.word(at + 24));
            let body = xxh3_64_with_seed(&self.load(at + 64, body_bytes as usize), seed);
            self.store(at + 32, &body.to_le_bytes());
            let head = xxh3_64_with_seed(&self.load(at, 56), seed);
            self.store(at + 56, &head.to_le_bytes());
        }
    }

    /// Where the records of a journal are, as far as their lengths lead.
    fn journal_records(&self) -> Vec<u64> {
        let (mut found, mut at) = (Vec::new(), PAGE_BYTES as u64);
        while found.len() < 8 && at < self.len_bytes && self.load(at, 4) == b"HFrc" {
            let body_bytes = self.word(at + 24);
            if body_bytes > SUMMED_BYTES_MAX {
                break;
            }
            found.push(at);
            at += 64 + body_bytes;
        }
        found
    }

    /// Where the blocks of a stream are, as far as their lengths lead.
    fn stream_blocks(&self) -> Vec<u64> {
        let (mut found, mut at) = (Vec::new(), 256);
        while found.len() < 64 && at + 24 <= self.len_bytes {
            found.push(at);
            at += 24 + (self.word(at) >> 32);
        }
        found
    }

    fn seal_stream(&mut self) {
        self.seal_range(0, 248);
        for at in self.stream_blocks() {
            let payload_bytes = (self.word(at) >> 32).min(SUMMED_BYTES_MAX) as usize;
            let summed = [self.load(at, 16), self.load(at + 24, payload_bytes)].concat();
            self.store(at + 16, &xxh3_64(&summed).to_le_bytes());
        }
    }

    /// The place of a field, or of any word where something is.
    fn place(&self, kind: FileKind, random: &mut StdRng) -> u64 {
        let among = |random: &mut StdRng, places: &[u64], bytes: u64| match places.len() {
            0 => random.random_range(0..bytes),
            count => places[random.random_range(0..count)] + random.random_range(0..bytes),
        };
        match (kind, random.random_range(0..4)) {
            (FileKind::Image | FileKind::Base | FileKind::Rescue, 0 | 1) => {
                random.random_range(0..SLOT_FIELDS)
            }
            (FileKind::Base, 2 | 3) if self.is_packed() => {
                let table_bytes = self.packed_runs().len() as u64 * 8;
                PACKED_OFFSET + random.random_range(0..32 + table_bytes + 64)
            }
            (FileKind::Image | FileKind::Base | FileKind::Rescue, 2) => {
                DATA_OFFSET + random.random_range(0..4096)
            }
            (FileKind::Rescue, _) => random.random_range(8192..8240),
            (FileKind::Journal, 0 | 1) => among(random, &self.journal_records(), 64),
            (FileKind::Journal, 2) => random.random_range(0..64),
            (FileKind::Redo, 0 | 1) => random.random_range(0..56),
            (FileKind::Redo, _) => PAGE_BYTES as u64 + random.random_range(0..32),
            (FileKind::Stream, 0 | 1) => random.random_range(0..256),
            (FileKind::Stream, 2) => among(random, &self.stream_blocks(), 24),
            (FileKind::Grants, 0 | 1) => random.random_range(0..64),
            _ => {
                let pages: Vec<_> = self.pages.keys().collect();
                let page =
                    if pages.is_empty() { 0 } else { *pages[random.random_range(0..pages.len())] };
                page * PAGE_BYTES as u64 + random.random_range(0..PAGE_BYTES as u64)
            }
        }
    }

    /// Makes one field absurd; of a pair of header slots, mostly both. Sums are wrong until
    /// [`Sketch::seal`].
    pub fn distort(&mut self, kind: FileKind, random: &mut StdRng) {
        if kind == FileKind::Plain && random.random_ratio(1, 2) {
            return self.distort_text(random);
        }
        if random.random_ratio(1, 12) {
            self.len_bytes =
                ABSURD[random.random_range(0..ABSURD.len())].min(DATA_OFFSET + (1 << 40));
            return;
        }
        let width = [1, 2, 4, 8, 8][random.random_range(0..5)];
        let at = self.place(kind, random) / width * width;
        let value = match random.random_range(0..8) {
            0 => self.word(at).wrapping_add(1),
            1 => self.word(at).wrapping_sub(1),
            2 => random.random(),
            // What steers a terminal, in a name.
            3 => u64::from_le_bytes(*b"\x1b[2J\r\n\0\xff"),
            _ => ABSURD[random.random_range(0..ABSURD.len())],
        };
        let bytes = &value.to_le_bytes()[..width as usize];
        self.store(at, bytes);
        let has_slots = matches!(kind, FileKind::Image | FileKind::Base | FileKind::Rescue);
        if has_slots && at < SLOT_FIELDS && random.random_ratio(7, 8) {
            self.store(PAGE_BYTES as u64 + at, bytes);
        }
    }

    /// As [`Sketch::distort`] for numbers that are written as text.
    fn distort_text(&mut self, random: &mut StdRng) {
        let number = ABSURD[random.random_range(0..ABSURD.len())];
        let text = match random.random_range(0..6) {
            0 => format!("{number}"),
            1 => format!("{number} {number}\n"),
            2 => format!("-{number} 1e400 0x{number:x}\n"),
            3 => format!(
                "{{\"token\":\"\\u001b[2J\",\"device\":{number},\"inode\":{number},\"is_lent\":true}}"
            ),
            4 => "\x1b[2J\n".repeat(random.random_range(1..5000)),
            _ => String::new(),
        };
        *self = Sketch::of(text.as_bytes());
    }

    /// A header that claims the largest region there is, in a file that is as long and has nothing
    /// in it.
    pub fn inflate(&mut self) {
        for slot in [0, PAGE_BYTES as u64] {
            self.store(slot + 48, &(1_u64 << 40).to_le_bytes());
            self.store(slot + 56, &(1_u64 << 40).to_le_bytes());
            let flags = self.load(slot + 76, 1)[0] & !(PACKED as u8);
            self.store(slot + 76, &[flags]);
        }
        self.len_bytes = DATA_OFFSET + (1 << 40);
    }
}

/// All files below some directories, as they were.
#[derive(Debug)]
pub struct Home {
    directories: Vec<PathBuf>,
    /// By path: kind, permissions, content.
    files: BTreeMap<PathBuf, (FileKind, u32, Sketch)>,
}

impl Home {
    /// Records the files of these directories. Sockets and other things that are no files are left
    /// alone.
    ///
    /// # Errors
    /// What the file system says.
    pub fn record(directories: &[&Path]) -> io::Result<Home> {
        let mut files = BTreeMap::new();
        for directory in directories {
            for path in files_below(directory)? {
                let mode = path.metadata()?.permissions().mode() & 0o777;
                let sketch = Sketch::of(&std::fs::read(&path)?);
                files.insert(path.clone(), (FileKind::of(&path), mode, sketch));
            }
        }
        Ok(Home { directories: directories.iter().map(|path| path.to_path_buf()).collect(), files })
    }

    /// All files, in the order of their paths.
    pub fn paths(&self) -> impl Iterator<Item = (&Path, FileKind)> {
        self.files.iter().map(|(path, (kind, ..))| (path.as_path(), *kind))
    }

    /// One file as it was.
    #[must_use]
    pub fn sketch(&self, path: &Path) -> Option<&Sketch> {
        self.files.get(path).map(|(.., sketch)| sketch)
    }

    /// Lays everything out as it was, but for one file.
    ///
    /// # Errors
    /// What the file system says.
    pub fn lay_out(&self, changed: &Path, with: &Sketch) -> io::Result<()> {
        for directory in &self.directories {
            for path in
                files_below(directory)?.into_iter().filter(|path| !self.files.contains_key(path))
            {
                std::fs::remove_file(path)?;
            }
        }
        for (path, (_, mode, sketch)) in &self.files {
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory)?;
            }
            let sketch = if path == changed { with } else { sketch };
            // A new file each time: a descriptor that a failed command left says nothing about it.
            if path.symlink_metadata().is_ok_and(|found| found.nlink() > 0) {
                std::fs::remove_file(path)?;
            }
            sketch.write(path, *mode)?;
        }
        Ok(())
    }
}

fn files_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut left) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}
