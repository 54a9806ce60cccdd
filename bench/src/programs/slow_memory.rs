//! The section `programs` of the suite `slow`: the programs of the first paper with their heap in
//! slow memory, against files in memory as it is.
//!
//! A program's time in its heap is measured, and each access that misses a cache of 1 MiB adds what
//! the medium takes longer than this machine's memory. The paper counts its misses with instrumented
//! loads and stores and counters of the processor; here Cachegrind counts them, of the same program
//! without a sandbox and with its objects in ordinary memory.
//!
//! What makes the heap look slower than it would be:
//! - each miss waits for the medium alone, though processors wait for several side by side;
//! - a store that misses costs the line that is read and the line that is written back;
//! - the files are in this machine's memory. A second ratio has them on the same medium.
//!
//! What makes it look faster: accesses of the heap's own (its allocator, the table of roots, the
//! log of a transaction) are not counted, and a processor with a smaller cache misses more.
//!
//! Some programs pass over their objects once. Of their misses only as many count as these objects
//! have lines, because the others are misses of ordinary memory. Of programs that look things up all
//! misses count.

use std::fs;
use std::io::{self, Error};
use std::path::Path;
use std::process::{Command, Stdio};

use holdfast_heap::{Heap, OpenOptions, Pointers};
use holdfast_spellcheck::arena::HeapArena;
use holdfast_spellcheck::command;
use holdfast_spellcheck::options::Options;
use holdfast_testkit::TestMemory;
use tempfile::NamedTempFile;

use super::job::{Ground, Sandbox, Storage};
use super::sequences::{INPUT, OUTPUT, with_input};
use super::{compress, mail, rounds, spellcheck};
use crate::report::{Goal, Outcome};
use crate::stats::Series;
use crate::timing::spell_check;

/// A kind of memory, and what it takes longer than this machine's for each line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Medium {
    pub(crate) name: &'static str,
    pub(crate) read_ns: u32,
    pub(crate) write_ns: u32,
}

/// Of the modelled cache.
const LINE_BYTES: u64 = 64;
/// Of `fasta`: an output of 8.1 MB, eight times the modelled cache. Counting takes fifty times as
/// long as the program.
const N: &str = "800000";
const BYTES: &str = "8000000";
/// Of the cache's 3,001 files.
const FILES: usize = 300;
const TEXT_BYTES: usize = 2_000_000;
/// Of the tables that the spell check is counted with.
const TABLES_BYTES: u64 = 256 << 20;

/// Measures all programs whose files are there, for these media.
pub(crate) fn run(runs: usize, media: &[Medium], outcome: &mut Outcome) -> io::Result<()> {
    let version = Command::new("valgrind").arg("--version").stdin(Stdio::null()).output();
    if !version.is_ok_and(|output| output.status.success()) {
        outcome.missing.push("valgrind: `apt-get install valgrind` brings it".to_owned());
        return Ok(());
    }
    let bench = Bench { rounds: rounds(runs), media };
    bench.sequences(outcome)?;
    bench.compress(outcome)?;
    bench.mail(outcome)?;
    bench.spellcheck(outcome)
}

/// The role of this program that checks texts with tables in ordinary memory, without a sandbox:
/// DICTIONARIES TEXT...
pub const SPELL_CHECK: &str = "slow-memory-spellcheck";

/// The role [`SPELL_CHECK`].
///
/// # Errors
/// Those of the spell checker.
pub fn check_texts(words: &[String]) -> io::Result<()> {
    let options = std::iter::once("--dict".to_owned()).chain(words.iter().cloned());
    let options = Options::parse(options).map_err(Error::other)?;
    let memory = TestMemory::new(TABLES_BYTES);
    let portable = OpenOptions { pointers: Some(Pointers::PORTABLE), format_if_empty: true };
    let heap = Heap::open(memory, portable).map_err(Error::other)?;
    let (out, notes) = (&mut io::stdout().lock(), &mut io::sink());
    command::run(&mut HeapArena::new(heap), &options, out, notes).map_err(Error::other).map(drop)
}

/// What loads and stores came to.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Accesses {
    all: f64,
    /// Loads and stores whose line was in no cache.
    load_misses: f64,
    store_misses: f64,
}

impl Accesses {
    /// What these have that `other` has not, for a run that does the same once more.
    fn beyond(self, other: Accesses) -> Accesses {
        let more = |own: f64, other: f64| (own - other).max(0.0);
        Accesses {
            all: more(self.all, other.all),
            load_misses: more(self.load_misses, other.load_misses),
            store_misses: more(self.store_misses, other.store_misses),
        }
    }

    /// Of objects that are passed over once, no line misses twice.
    fn within(self, objects: Lines) -> Accesses {
        let store_misses = self.store_misses.min(objects.written);
        let others = objects.read + objects.written - store_misses;
        Accesses { load_misses: self.load_misses.min(others), store_misses, ..self }
    }

    fn miss_pct(self) -> f64 {
        (self.load_misses + self.store_misses) / self.all * 100.0
    }
}

/// Lines of the objects that a program reads and writes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lines {
    read: f64,
    written: f64,
}

impl Lines {
    fn of_bytes(read: u64, written: u64) -> Lines {
        let lines = |bytes: u64| bytes.div_ceil(LINE_BYTES) as f64;
        Lines { read: lines(read), written: lines(written) }
    }
}

impl Medium {
    /// What lines that are read, and lines that are read and written back, cost more there, in ms.
    fn added_ms(self, read: f64, written: f64) -> f64 {
        let (read_ns, write_ns) = (f64::from(self.read_ns), f64::from(self.write_ns));
        (read * read_ns + written * (read_ns + write_ns)) / 1e6
    }
}

/// Runs a command in Cachegrind. The spell check ends with 1 where it found unknown words.
fn count(command: &Command) -> io::Result<Accesses> {
    let report = NamedTempFile::new()?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--tool=cachegrind", "--cache-sim=yes"]);
    valgrind.args(["--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,8,64"]);
    let mut file = std::ffi::OsString::from("--cachegrind-out-file=");
    file.push(report.path());
    valgrind.arg(file).arg(command.get_program()).args(command.get_args());
    let output = valgrind.stdin(Stdio::null()).stdout(Stdio::null()).output()?;
    let text = fs::read_to_string(report.path())?;
    let failed = |what: &str| {
        let said = String::from_utf8_lossy(&output.stderr);
        Error::other(format!("{valgrind:?} {what}, {}: {said}", output.status))
    };
    if !matches!(output.status.code(), Some(0 | 1)) {
        return Err(failed("failed"));
    }
    of_cachegrind(&text).ok_or_else(|| failed("counted nothing"))
}

/// Of one run more of a program that can run several times.
fn count_one_run(ground: &Ground, files: &Path, arguments: &[&str]) -> io::Result<Accesses> {
    let count = |rounds| {
        let arguments = [arguments, &["--rounds", rounds]].concat();
        count(&ground.command(Sandbox::Unsandboxed, Storage::Ideal, files, &arguments))
    };
    Ok(count("2")?.beyond(count("1")?))
}

/// The names of the columns, and their sums.
fn of_cachegrind(text: &str) -> Option<Accesses> {
    let words = |head: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(head))?;
        Some(line.split_whitespace().collect::<Vec<_>>())
    };
    let (names, sums) = (words("events:")?, words("summary:")?);
    let sum = |event: &str| {
        let at = names.iter().position(|name| *name == event)?;
        sums.get(at)?.replace(',', "").parse::<f64>().ok()
    };
    Some(Accesses {
        all: sum("Dr")? + sum("Dw")?,
        load_misses: sum("DLmr")?,
        store_misses: sum("DLmw")?,
    })
}

/// A program in its heap and over files.
struct Contest<'a> {
    name: &'a str,
    /// Of a run in the heap.
    misses: Accesses,
    /// Of the files that the peer reads and writes.
    files: Lines,
    /// What a run takes, in ms.
    heap: &'a dyn Fn() -> io::Result<f64>,
    peer: &'a dyn Fn() -> io::Result<f64>,
}

/// How a program of `applets/programs` runs over files: its arguments, and how it reads them.
type Peer<'a> = (&'a [&'a str], Storage);

struct Bench<'a> {
    rounds: usize,
    media: &'a [Medium],
}

impl Bench<'_> {
    /// Both in turns, and what follows for each medium.
    fn hold(&self, contest: &Contest<'_>, outcome: &mut Outcome) -> io::Result<()> {
        let (mut heap, mut peer) = (Series::default(), Series::default());
        for round in 0..self.rounds {
            if round % 2 == 0 {
                heap.push((contest.heap)()?);
                peer.push((contest.peer)()?);
            } else {
                peer.push((contest.peer)()?);
                heap.push((contest.heap)()?);
            }
        }
        let Contest { name, misses, files, .. } = contest;
        let mut add = |key: String, series, unit, goal| {
            outcome.add(format!("slow_{name}_{key}"), Some(series), unit, goal);
        };
        let goal = Some(Goal::AtLeast(1.0));
        add("vs_posix/dram".to_owned(), peer.over(&heap), "x", goal);
        for medium in self.media {
            let in_heap = medium.added_ms(misses.load_misses, misses.store_misses);
            let in_files = medium.added_ms(files.read, files.written);
            let (slow_heap, slow_files) =
                (heap.map(|ms| ms + in_heap), peer.map(|ms| ms + in_files));
            let name = medium.name;
            add(format!("vs_posix/{name}"), peer.over(&slow_heap), "x", goal);
            add(format!("vs_slow_posix/{name}"), slow_files.over(&slow_heap), "x", None);
            add(format!("slowdown/{name}"), slow_heap.over(&heap), "x", None);
        }
        add("heap_ms".to_owned(), heap, "ms", None);
        add("posix_ms".to_owned(), peer, "ms", None);
        let one = |value| Series::from_iter([value]);
        add("load_misses".to_owned(), one(misses.load_misses), "", None);
        add("store_misses".to_owned(), one(misses.store_misses), "", None);
        add("miss_pct".to_owned(), one(misses.miss_pct()), "%", None);
        Ok(())
    }

    /// A program of `applets/programs` in WebAssembly, in the heap and over files. A first run of
    /// each compiles the applet and makes room; their results must be the same.
    fn hold_program(
        &self,
        ground: &Ground,
        (name, heap, peer): (&str, &[&str], Peer<'_>),
        (misses, files): (Accesses, Lines),
        outcome: &mut Outcome,
    ) -> io::Result<()> {
        let place = ground.files();
        let run =
            |storage, arguments: &[&str]| ground.run(Sandbox::Wasm, storage, &place, arguments);
        let (of_heap, of_peer) = (run(Storage::Heap, heap)?.result, run(peer.1, peer.0)?.result);
        if of_heap != of_peer {
            return Err(Error::other(format!("{name} in the heap said {of_heap}, not {of_peer}")));
        }
        let contest = Contest {
            name,
            misses,
            files,
            heap: &|| Ok(run(Storage::Heap, heap)?.ms),
            peer: &|| Ok(run(peer.1, peer.0)?.ms),
        };
        self.hold(&contest, outcome)
    }

    /// `write512`, `fasta`, `revcomp` and `knucleotide`, with a call for each record of a file.
    fn sequences(&self, outcome: &mut Outcome) -> io::Result<()> {
        let ground = with_input(N)?;
        let place = ground.files();
        let input = fs::metadata(place.join(INPUT))?.len();
        let bytes = BYTES.parse().map_err(Error::other)?;
        let programs: [(&str, &[&str], Lines); 4] = [
            ("write512", &["chunks", OUTPUT, "--bytes", BYTES], Lines::of_bytes(0, bytes)),
            ("fasta", &["fasta", OUTPUT, "--n", N], Lines::of_bytes(0, input)),
            ("revcomp", &["revcomp", INPUT, OUTPUT], Lines::of_bytes(input, input)),
            ("knucleotide", &["knucleotide", INPUT], Lines::of_bytes(input, 0)),
        ];
        for (name, arguments, objects) in programs {
            let misses = count_one_run(&ground, &place, arguments)?.within(objects);
            let program = (name, arguments, (arguments, Storage::Posix));
            self.hold_program(&ground, program, (misses, objects), outcome)?;
        }
        Ok(())
    }

    /// Snappy over some files of the cache, against a C library's buffer, as in the suite
    /// `programs`.
    fn compress(&self, outcome: &mut Outcome) -> io::Result<()> {
        let Some(folder) = compress::folder(outcome) else { return Ok(()) };
        let ground = Ground::new()?;
        let mix = compress::chosen(&folder)?;
        let some: Vec<_> = mix.iter().step_by(mix.len() / FILES).take(FILES).cloned().collect();
        let read = compress::load(&ground, &some)?;
        let place = ground.files();
        let count = some.len().to_string();
        let arguments = ["compress", "--count", &count];
        ground.run(Sandbox::Native, Storage::Buffered, &place, &arguments)?;
        let mut written = 0;
        for number in 0..some.len() {
            written += fs::metadata(place.join(format!("snappy-{number:04}")))?.len();
        }
        let objects = Lines::of_bytes(read, written);
        let misses = count_one_run(&ground, &place, &arguments)?.within(objects);
        let program = ("compress", &arguments[..], (&arguments[..], Storage::Glibc));
        self.hold_program(&ground, program, (misses, objects), outcome)
    }

    /// The mail classifier with what it learnt, against one that parses the mails.
    fn mail(&self, outcome: &mut Outcome) -> io::Result<()> {
        let Some(folder) = mail::folder(outcome) else { return Ok(()) };
        let (learnt, new) = mail::split(&folder)?;
        let ground = Ground::new()?;
        let place = ground.files();
        mail::learn(&ground, &learnt)?;
        mail::put_timed(&ground, &new)?;
        let read = mail::read_bytes(&place)?;
        let misses = count_one_run(&ground, &place, &mail::KEPT)?;
        let program = ("mail", &mail::KEPT[..], (&mail::PARSED[..], Storage::Posix));
        self.hold_program(&ground, program, (misses, Lines::of_bytes(read, 0)), outcome)
    }

    /// The spell check of one text with the tables in the heap, against dictionaries that are
    /// parsed.
    fn spellcheck(&self, outcome: &mut Outcome) -> io::Result<()> {
        let Some((lists, sources)) = spellcheck::folders(outcome)? else { return Ok(()) };
        let ground = Ground::new()?;
        let scratch = ground.scratch();
        let texts = spellcheck::texts(scratch, &sources, 1, TEXT_BYTES)?;
        let applet = scratch.programs().applet("spellcheck")?;
        let job = spellcheck::Job { scratch, applet: &applet, lists: &lists, texts: &texts };
        if spell_check(job.kept(true))?.out != spell_check(job.parsed(&texts))?.out {
            return Err(Error::other("tables in the heap find other words than those in memory"));
        }
        // The text once more costs what the tables take, and not what making them does.
        let this = std::env::current_exe()?;
        let checks = |times: usize| {
            let mut command = Command::new(&this);
            command.arg(SPELL_CHECK).arg(&lists);
            for _ in 0..times {
                command.args(&texts);
            }
            count(&command)
        };
        let misses = checks(2)?.beyond(checks(1)?);
        let mut read = 0;
        for entry in fs::read_dir(&lists)? {
            read += entry?.metadata()?.len();
        }
        let contest = Contest {
            name: "spellcheck",
            misses,
            files: Lines::of_bytes(read, 0),
            heap: &|| Ok(spell_check(job.kept(false))?.wall_ms),
            peer: &|| Ok(spell_check(job.parsed(&texts))?.wall_ms),
        };
        self.hold(&contest, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_report_of_cachegrind() {
        let text = "desc: LL cache: 1048576 B, 64 B, 8-way\n\
            events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw \n\
            fl=a.c\n\
            1 2 3 4 5 6 7 8 9 10\n\
            summary: 1000 10 9 300 30 20 100 15 12 \n";
        let expected = Accesses { all: 400.0, load_misses: 20.0, store_misses: 12.0 };
        assert_eq!(of_cachegrind(text), Some(expected));
        assert_eq!(of_cachegrind("events: Ir\nsummary: 5\n"), None);
    }

    #[test]
    fn one_run_is_what_two_have_more_than_one() {
        let one = Accesses { all: 100.0, load_misses: 30.0, store_misses: 9.0 };
        let two = Accesses { all: 160.0, load_misses: 50.0, store_misses: 8.0 };
        let run = two.beyond(one);
        assert_eq!(run, Accesses { all: 60.0, load_misses: 20.0, store_misses: 0.0 });
        assert!((run.miss_pct() - 100.0 / 3.0).abs() < 1e-9);
    }

    /// A pass over 640 bytes of input and 65 of output touches 10 lines and 2: what misses beyond
    /// that is not the heap's.
    #[test]
    fn no_line_of_a_pass_misses_twice() {
        let objects = Lines::of_bytes(640, 65);
        assert_eq!(objects, Lines { read: 10.0, written: 2.0 });
        for (store_misses, within) in [(1.0, (11.0, 1.0)), (9.0, (10.0, 2.0))] {
            let all = Accesses { all: 1e6, load_misses: 1e4, store_misses }.within(objects);
            assert_eq!((all.load_misses, all.store_misses), within);
        }
    }

    #[test]
    fn a_medium_adds_what_it_takes_longer() {
        let medium = Medium { name: "pcm", read_ns: 48, write_ns: 150 };
        // A million lines read, and a million that are read and written back.
        assert_eq!(medium.added_ms(1e6, 1e6), 48.0 + 48.0 + 150.0);
    }
}
