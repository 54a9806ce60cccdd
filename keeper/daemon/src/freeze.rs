//! Stopping the programs that store to heaps and databases, and letting them go on.
//!
//! Invariants:
//! - Before anybody is stopped, a note in the pool says who; it goes when all of them go on. The
//!   next keeper, and the guard process when this one is killed, let go on a process that is still
//!   in it. Both do so under the lock of the home: a guard that is late touches no note of the next
//!   keeper.
//! - The note's memory is allocated before it is needed: a pool that is full when the machine goes
//!   keeps no heap from being saved.
//! - Only who was running is stopped, and let go on: a program that a person stopped stays stopped.
//! - A process is named by its PID and start time, and signalled through a descriptor: never a
//!   later one with that PID, nor one of which that cannot be seen.
//! - A process that cannot be looked at may be storing: the heaps that it may have are not quiet.
//! - This process is never stopped.
//! - A process that cannot be stopped, or ends meanwhile, costs no heap anything that it did not
//!   store to. One that has ended stores nothing: its heaps are saved.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_sys::file::private_options;
use holdfast_sys::process::ProcessId;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::procfs::{FileId, Maps, maps, processes, stat, thread_states};

/// How long the kernel may take until the last thread of a process stands still.
const STOP_PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_micros(200);
/// How often writers are looked for: who starts others faster than they are stopped has none of its
/// heaps saved.
const LOOKS_MAX: u32 = 4;
/// No chain of parents is longer.
const PARENTS_MAX: usize = 4096;
/// A page, which has room for some two hundred processes. For more, the pool needs room.
const NOTE_BYTES_MIN: usize = 4096;

/// How to start the process that lets stopped programs go on if the keeper is killed: it must wait
/// for the end of its standard input, and then call [`crate::thaw_after_killed_keeper`].
#[derive(Debug, Clone)]
pub struct Guard {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// A heap or a database that a process has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) name: String,
    /// The process that has its lock.
    pub(crate) holders: Vec<u32>,
    /// None when it is not known.
    pub(crate) image: Option<FileId>,
}

/// A process that may store to heaps.
#[derive(Debug)]
struct Writer {
    pid: u32,
    /// None when it could not be looked at: then it is neither stopped nor still.
    id: Option<ProcessId>,
    /// For each of the heaps that were asked about whether it may store to that.
    stores: Vec<bool>,
}

/// Processes that stand still until this is dropped.
#[derive(Debug)]
pub(crate) struct Frozen {
    held: Vec<Held>,
    writers: Vec<Writer>,
    stopped: Vec<(ProcessId, OwnedFd)>,
    /// Those that stood still already.
    still: Vec<ProcessId>,
    /// What the note says; it names all of the above that are stopped.
    noted: String,
    note: PathBuf,
    guard: Option<Child>,
}

/// The processes that may store to any of these heaps.
///
/// # Errors
/// When processes cannot be listed.
fn writers(held: &[Held]) -> io::Result<Vec<Writer>> {
    let files: Vec<Option<FileId>> = held.iter().map(|heap| heap.image).collect();
    let known: Vec<FileId> = files.iter().flatten().copied().collect();
    let parent = |pid: u32| stat(pid).map(|stat| stat.parent);
    let descends = |pid: u32, holder: u32| {
        let chain =
            std::iter::successors(Some(pid), |&pid| parent(pid).filter(|&parent| parent > 1));
        chain.take(PARENTS_MAX).any(|pid| pid == holder)
    };
    let us = std::process::id();
    let others = processes()?.into_iter().filter(|&pid| pid != us);
    let mut found: Vec<Writer> = others
        .filter_map(|pid| {
            // Before its memory is looked at: what is seen is of this process, or of no process.
            let id = match ProcessId::of(pid) {
                Ok(None) => return None,
                found => found.ok().flatten(),
            };
            let maps = maps(pid, &known);
            let stores_to = |(heap, file): (&Held, &Option<FileId>)| {
                heap.holders.contains(&pid)
                    || match &maps {
                        Maps::Stores(stores) => file.is_some_and(|file| {
                            known
                                .iter()
                                .position(|found| *found == file)
                                .is_some_and(|at| stores[at])
                        }),
                        Maps::NoMemory => false,
                        // An applet in its jail: only its kin can have been lent an image.
                        Maps::Unknown => heap.holders.iter().any(|holder| descends(pid, *holder)),
                    }
            };
            let stores: Vec<bool> = held.iter().zip(&files).map(stores_to).collect();
            stores.contains(&true).then_some(Writer { pid, id, stores })
        })
        .collect();
    found.sort_unstable_by_key(|writer| writer.pid);
    Ok(found)
}

impl Frozen {
    /// Stops the processes that may store to these heaps, and waits until they stand still. Whose
    /// writers cannot be stopped, of that heap [`Frozen::is_quiet`] says so; it costs the others
    /// nothing.
    ///
    /// # Errors
    /// When who is stopped cannot be noted, or processes cannot be listed; then no process is.
    pub(crate) fn stop(pool: &Path, held: &[Held], guard: Option<&Guard>) -> io::Result<Frozen> {
        let (held, note) = (held.to_vec(), note_path(pool));
        let mut frozen = Frozen {
            held,
            writers: Vec::new(),
            stopped: Vec::new(),
            still: Vec::new(),
            noted: String::new(),
            note,
            guard: None,
        };
        for _ in 0..LOOKS_MAX {
            // A process that ran during the search may have started another one.
            if !frozen.look()? {
                return Ok(frozen);
            }
            frozen.stop_all(guard)?;
        }
        frozen.look()?;
        Ok(frozen)
    }

    /// Looks who may store to the heaps now; whether there is a new one.
    fn look(&mut self) -> io::Result<bool> {
        let found = writers(&self.held)?;
        let known: Vec<ProcessId> = self.writers.iter().filter_map(|writer| writer.id).collect();
        let is_new = found.iter().filter_map(|writer| writer.id).any(|id| !known.contains(&id));
        self.writers = found;
        Ok(is_new)
    }

    fn stop_all(&mut self, guard: Option<&Guard>) -> io::Result<()> {
        let mut running = Vec::new();
        let until = Instant::now() + STOP_PATIENCE;
        for id in self.writers.iter().filter_map(|writer| writer.id) {
            let is_known =
                self.still.contains(&id) || self.stopped.iter().any(|(stopped, _)| *stopped == id);
            if is_known {
                continue;
            }
            match was_stopped(id.pid, until) {
                Ok(true) => self.still.push(id),
                Ok(false) => {
                    let descriptor = open(id).ok().flatten();
                    running.extend(descriptor.map(|descriptor| (id, descriptor)));
                }
                // A person may have stopped it, who would see it go on.
                Err(_) => {}
            }
        }
        if running.is_empty() {
            return Ok(());
        }
        let is_new = self.noted.is_empty();
        for (id, _) in &running {
            self.noted.push_str(&format!("{} {}\n", id.pid, id.start_ticks));
        }
        // No process is stopped of whom nothing would tell.
        write_note(&self.note, &self.noted, is_new)?;
        if self.guard.is_none() {
            // Without a guard the next keeper does it.
            self.guard = guard.and_then(|guard| start_guard(guard).ok());
        }
        for (id, descriptor) in running {
            if pidfd_send_signal(&descriptor, Signal::STOP).is_ok() {
                self.stopped.push((id, descriptor));
            }
        }
        let started = Instant::now();
        while !self.stopped.iter().all(|(id, _)| stands_still(id.pid))
            && started.elapsed() < STOP_PATIENCE
        {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Whether no thread stores to a heap now. One that no process had is asked about in vain, and
    /// quiet.
    pub(crate) fn is_quiet(&self, name: &str) -> bool {
        let heap = self.held.iter().position(|heap| heap.name == name);
        let stores = |writer: &&Writer| heap.is_some_and(|heap| writer.stores[heap]);
        let is_still = |writer: &Writer| writer.id.is_some_and(|id| self.is_still(id));
        self.writers.iter().filter(stores).all(is_still)
    }

    /// Whether a process stores nothing: this has it, and it stands still, or it has ended.
    fn is_still(&self, id: ProcessId) -> bool {
        let ours =
            self.still.contains(&id) || self.stopped.iter().any(|(stopped, _)| *stopped == id);
        !id.is_alive() || ours && stands_still(id.pid)
    }

    /// Whom this stopped.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.stopped.iter().map(|(id, _)| id.pid).collect();
        pids.sort_unstable();
        pids
    }

    /// Whether one of those who may store to the heaps is, or may be, like this.
    pub(crate) fn any_writer(held: &[Held], is_like: impl FnMut(u32) -> bool) -> bool {
        match writers(held) {
            Ok(found) => found.iter().map(|writer| writer.pid).any(is_like),
            Err(_) => true,
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let mut is_left = false;
        for (_, descriptor) in &self.stopped {
            // It may have been killed meanwhile.
            is_left |= pidfd_send_signal(descriptor, Signal::CONT)
                .is_err_and(|error| error != Errno::SRCH);
        }
        // Of a process that did not go on the note still tells.
        if !is_left && !self.noted.is_empty() && put_note_away(&self.note).is_err() {
            let _ = fs::remove_file(&self.note);
        }
        if let Some(mut guard) = self.guard.take() {
            // The end of its input ends it.
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}

/// Whether a note says that processes are stopped.
pub(crate) fn somebody_is_stopped(pool: &Path) -> bool {
    note_path(pool).exists()
}

/// Lets the processes go on that a killed keeper left stopped. Returns how many these were. Only
/// who has the lock of the home may call it: the note of a living keeper is that keeper's.
///
/// # Errors
/// When the note in the pool cannot be read or removed, or one of the processes cannot be looked
/// at: then the note stays.
pub(crate) fn thaw_left_over(pool: &Path) -> io::Result<usize> {
    let note = note_path(pool);
    let text = match fs::read(&note) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other?,
    };
    let (mut count, mut unknown) = (0, None);
    for id in parse_note(&String::from_utf8_lossy(&text)) {
        match open(id) {
            Ok(Some(found)) => {
                count += usize::from(pidfd_send_signal(found, Signal::CONT).is_ok());
            }
            Ok(None) => {}
            Err(error) => unknown = Some(error),
        }
    }
    if let Some(error) = unknown {
        return Err(error);
    }
    match fs::remove_file(&note) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(count),
    }
}

/// The processes that a note names; what is no line of one is passed over.
pub(crate) fn parse_note(text: &str) -> impl Iterator<Item = ProcessId> {
    text.lines().filter_map(|line| {
        let (pid, start_ticks) = line.split_once(' ')?;
        Some(ProcessId { pid: pid.parse().ok()?, start_ticks: start_ticks.parse().ok()? })
    })
}

fn note_path(pool: &Path) -> PathBuf {
    pool.join(".stopped")
}

/// A descriptor of this very process; none when it has ended.
///
/// # Errors
/// When it cannot be seen whether the process of this number is that one: it is not signalled then.
fn open(id: ProcessId) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = i32::try_from(id.pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(descriptor) => descriptor,
        // Of the latter two kernels say one when the number is a thread's by now.
        Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // Asked after it was opened: from now on the descriptor means one process.
    match ProcessId::of(id.pid) {
        Ok(found) => Ok((found == Some(id)).then_some(descriptor)),
        // It is hidden from this user, who could not have stopped it.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn stands_still(pid: u32) -> bool {
    // One that is gone stores nothing either; one that cannot be looked at may.
    thread_states(pid).is_ok_and(|states| states.iter().all(is_still))
}

fn is_still(state: &char) -> bool {
    matches!(state, 'T' | 't' | 'Z' | 'X')
}

/// Whether a process has stopped a process: all of its threads that are left. A stop that is under
/// way, and has not reached all of them, is waited for until then: a process that would stop them
/// once more would let them go on.
///
/// # Errors
/// When it cannot be looked at.
fn was_stopped(pid: u32, until: Instant) -> io::Result<bool> {
    loop {
        let states = thread_states(pid)?;
        if states.iter().all(is_still) {
            return Ok(states.iter().any(|state| matches!(state, 'T' | 't')));
        }
        if !states.contains(&'T') || Instant::now() >= until {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Where a note is while it says nothing.
fn blank_path(note: &Path) -> PathBuf {
    note.with_extension("new")
}

/// Allocates the memory of the next note, so that it can be written in a full pool.
///
/// # Errors
/// When there is no room for it now; then the note needs room when it is written.
pub(crate) fn keep_note_ready(pool: &Path) -> io::Result<()> {
    let file = open_note(&blank_path(&note_path(pool)))?;
    holdfast_sys::file::allocate(&file, 0..NOTE_BYTES_MIN as u64)
}

fn open_note(path: &Path) -> io::Result<fs::File> {
    private_options().write(true).create(true).truncate(false).open(path)
}

/// A new one is there whole or not at all. One that is there gets lines behind those that it has,
/// before the processes that they name are stopped.
fn write_note(note: &Path, text: &str, is_new: bool) -> io::Result<()> {
    let blank = blank_path(note);
    let mut bytes = text.as_bytes().to_vec();
    // Over what it said before; empty lines say nothing.
    bytes.resize(bytes.len().max(NOTE_BYTES_MIN), b'\n');
    let file = open_note(if is_new { blank.as_path() } else { note })?;
    file.write_all_at(&bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    if is_new { fs::rename(blank, note) } else { Ok(()) }
}

/// Ends a note, and keeps its memory for the next one.
fn put_note_away(note: &Path) -> io::Result<()> {
    fs::rename(note, blank_path(note))
}

fn start_guard(guard: &Guard) -> io::Result<Child> {
    let mut command = Command::new(&guard.program);
    command
        .args(&guard.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn end(mut child: Child) {
        let _ = child.kill();
        let _ = child.wait();
    }

    /// A heap that a process has, as far as locks tell.
    fn held_by(child: &Child) -> Held {
        Held { name: format!("heap-{}", child.id()), holders: vec![child.id()], image: None }
    }

    /// A process that was running goes on, and one that was stopped stays stopped.
    #[test]
    fn running_goes_on_and_stopped_stays_stopped() {
        let pool = tempfile::tempdir().unwrap();
        let (running, stopped) = (sleeper(), sleeper());
        let pid = Pid::from_child(&stopped);
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        while !stands_still(stopped.id()) {
            std::thread::sleep(PAUSE);
        }
        let us = Held { holders: vec![std::process::id()], ..held_by(&running) };
        let held = [held_by(&running), held_by(&stopped), us];
        let frozen = Frozen::stop(pool.path(), &held, None).unwrap();
        assert_eq!(frozen.pids(), [running.id()]);
        assert!(stands_still(running.id()) && held.iter().all(|heap| frozen.is_quiet(&heap.name)));
        assert!(note_path(pool.path()).exists());
        drop(frozen);
        let started = Instant::now();
        while stands_still(running.id()) && started.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(PAUSE);
        }
        assert!(!stands_still(running.id()) && stands_still(stopped.id()));
        assert!(!note_path(pool.path()).exists());
        end(running);
        end(stopped);
    }

    /// A process that goes on although it was stopped costs only its own heaps.
    ///
    /// Guarantee: keeper/one-slow-writer
    /// Guarantee: keeper/stopped-programs
    #[test]
    fn process_that_resists_stopping_costs_its_own_heaps() {
        let pool = tempfile::tempdir().unwrap();
        let (one, other) = (sleeper(), sleeper());
        let held = [held_by(&one), held_by(&other)];
        let frozen = Frozen::stop(pool.path(), &held, None).unwrap();
        rustix::process::kill_process(Pid::from_child(&one), Signal::CONT).unwrap();
        while stands_still(one.id()) {
            std::thread::sleep(PAUSE);
        }
        assert!(!frozen.is_quiet(&held[0].name) && frozen.is_quiet(&held[1].name));
        end(one);
        assert!(frozen.is_quiet(&held[0].name), "who has ended stores nothing");
        end(other);
    }

    /// A process that a killed keeper left stopped goes on; a later one of that number is left
    /// alone.
    ///
    /// Guarantee: keeper/stopped-programs
    #[test]
    fn left_over_stop_ends_and_a_reused_pid_is_spared() {
        let pool = tempfile::tempdir().unwrap();
        let child = sleeper();
        // A keeper that is killed drops nothing.
        std::mem::forget(Frozen::stop(pool.path(), &[held_by(&child)], None).unwrap());
        assert!(stands_still(child.id()));
        let kept = fs::read_to_string(note_path(pool.path())).unwrap();
        fs::write(note_path(pool.path()), format!("{} 1\nnonsense\n", child.id())).unwrap();
        assert_eq!(thaw_left_over(pool.path()).unwrap(), 0);
        assert!(stands_still(child.id()));
        fs::write(note_path(pool.path()), kept).unwrap();
        assert_eq!(thaw_left_over(pool.path()).unwrap(), 1);
        assert_eq!(thaw_left_over(pool.path()).unwrap(), 0);
        end(child);
    }

    /// Without a free descriptor nothing can be seen of a process: it is not signalled, and it is
    /// neither taken for one that stands still nor for one that stores to nothing.
    ///
    /// Guarantee: keeper/stopped-programs
    /// Guarantee: keeper/atomic-copy
    #[test]
    fn process_that_cannot_be_looked_at_is_not_signalled() {
        use std::os::fd::AsRawFd;

        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

        const TEST: &str = "freeze::tests::process_that_cannot_be_looked_at_is_not_signalled";
        const ROLE: &str = "HOLDFAST_KEEPER_TEST_WITHOUT_DESCRIPTORS";
        if std::env::var_os(ROLE).is_none() {
            // The limit is that of a whole process.
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([TEST, "--exact", "--nocapture"]).env(ROLE, "1");
            let done = command.output().unwrap();
            let told = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && told.contains("1 passed"), "{told}");
            return;
        }
        let (pool, child) = (tempfile::tempdir().unwrap(), sleeper());
        let held = [held_by(&child)];
        // What a process left that had this number before.
        let earlier = ProcessId { pid: child.id(), start_ticks: 1 };
        fs::write(note_path(pool.path()), format!("{} 1\n", child.id())).unwrap();
        let limit = getrlimit(Resource::Nofile);
        let free = rustix::io::fcntl_dupfd_cloexec(io::stderr(), 0).unwrap().as_raw_fd() as u64;
        let leave = |count: u64| {
            let left = Rlimit { current: Some(free + count), ..limit };
            setrlimit(Resource::Nofile, left).unwrap();
        };
        // For the descriptor of the process itself, and for nothing of `/proc`.
        leave(1);
        let (opened, gone_on) = (open(earlier), thaw_left_over(pool.path()));
        let is_noted = note_path(pool.path()).exists();
        leave(0);
        let is_still = stands_still(child.id());
        let is_watched = Frozen::any_writer(&held, |_| false);
        let frozen = Frozen::stop(pool.path(), &held, None);
        setrlimit(Resource::Nofile, limit).unwrap();
        assert!(opened.is_err() && gone_on.is_err(), "{opened:?} {gone_on:?}");
        assert!(is_noted, "nothing tells any more who is stopped");
        assert!(!is_still && is_watched && frozen.is_err(), "{is_still} {is_watched} {frozen:?}");
        end(child);
    }

    /// A note of bytes that are no text is passed over, line by line.
    #[test]
    fn note_that_is_no_text_is_passed_over() {
        let pool = tempfile::tempdir().unwrap();
        fs::write(note_path(pool.path()), b"\xff\xfe 1\n").unwrap();
        assert_eq!(thaw_left_over(pool.path()).unwrap(), 0);
        assert!(!note_path(pool.path()).exists());
    }

    /// In a pool without any room processes are stopped, noted, and let go on.
    ///
    /// Guarantee: keeper/emergency
    /// Guarantee: keeper/stopped-programs
    #[test]
    fn full_pool_keeps_no_process_from_being_stopped() {
        const TEST: &str = "freeze::tests::full_pool_keeps_no_process_from_being_stopped";
        const ROLE: &str = "HOLDFAST_KEEPER_TEST_FULL_POOL";
        let Some(pool) = std::env::var_os(ROLE).map(PathBuf::from) else {
            let pool = tempfile::tempdir().unwrap();
            let script = "mount -t tmpfs -o size=64k,mode=0700 none \"$0\" || exit 99; exec \"$@\"";
            let mut command = Command::new("unshare");
            command.args(["-Urm", "sh", "-c", script]).arg(pool.path());
            command.arg(std::env::current_exe().unwrap()).args([TEST, "--exact", "--nocapture"]);
            let done = command.env(ROLE, pool.path()).output();
            let told = match &done {
                Ok(done) if done.status.success() => String::from_utf8_lossy(&done.stdout),
                Ok(done) if done.status.code() == Some(101) => {
                    panic!("{}", String::from_utf8_lossy(&done.stderr))
                }
                other => {
                    println!("not run: no tmpfs can be mounted in a user name space ({other:?})");
                    return;
                }
            };
            assert!(told.contains("1 passed"), "{told}");
            return;
        };
        keep_note_ready(&pool).unwrap();
        let filler = fs::File::create(pool.join("filler")).unwrap();
        let mut filled = 0;
        while filler.write_all_at(&[1; 4096], filled).is_ok() {
            filled += 4096;
        }
        // Twice: the memory of a note is that of the next one.
        for _ in 0..2 {
            let children = [sleeper(), sleeper()];
            let held = children.each_ref().map(held_by);
            let mut frozen = Frozen::stop(&pool, &held[..1], None).unwrap();
            assert!(stands_still(children[0].id()));
            // One that began meanwhile.
            frozen.held.extend_from_slice(&held[1..]);
            assert!(frozen.look().unwrap());
            frozen.stop_all(None).unwrap();
            let noted = fs::read_to_string(note_path(&pool)).unwrap();
            let noted: Vec<u32> = parse_note(&noted).map(|id| id.pid).collect();
            assert_eq!(noted, children.each_ref().map(Child::id));
            assert!(held.iter().all(|heap| frozen.is_quiet(&heap.name)));
            drop(frozen);
            assert!(!somebody_is_stopped(&pool));
            children.into_iter().for_each(end);
        }
    }

    /// A process that has the file mapped for itself only is none that stores to it.
    #[test]
    fn private_mapping_is_not_a_writer() {
        let child = sleeper();
        let program = fs::read_link(format!("/proc/{}/exe", child.id())).unwrap();
        let nobody = Held { holders: Vec::new(), image: FileId::of(&program), ..held_by(&child) };
        assert!(!Frozen::any_writer(&[nobody], |pid| pid == child.id()));
        assert!(Frozen::any_writer(&[held_by(&child)], |pid| pid == child.id()));
        end(child);
    }
}
