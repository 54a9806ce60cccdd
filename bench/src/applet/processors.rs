//! Pins the two sides to processors. Left to itself a scheduler puts both on one or each on its
//! own, and stays with it for a while. Asleep that makes more of a difference than anything else;
//! and two sides that spin for each other need one each, where it matters which: a word takes a
//! third of the time between hardware threads of one core, and several times as long between
//! sockets.
//!
//! Invariant: on a machine with one processor nothing is changed.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where the kernel tells what the processors are to each other.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// What two processors have in common, from the most to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Relation {
    /// Hardware threads of one core.
    Siblings,
    /// Cores of one socket.
    Cores,
    /// Sockets of one machine.
    Sockets,
}

/// Two processors of those that this program may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) relation: Relation,
    first: usize,
    second: usize,
    /// The lowest level of cache that both have, if any.
    shared_cache: Option<u32>,
}

impl Relation {
    /// As a part of a key.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Relation::Siblings => "siblings",
            Relation::Cores => "cores",
            Relation::Sockets => "sockets",
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pair { relation, first, second, shared_cache } = self;
        let relation = match relation {
            Relation::Siblings => "hardware threads of one core",
            Relation::Cores => "cores of one socket",
            Relation::Sockets => "cores of two sockets",
        };
        write!(f, "processors {first} and {second}: {relation}, ")?;
        match shared_cache {
            Some(level) => write!(f, "which share a cache of level {level} and none before it"),
            None => f.write_str("which share no cache"),
        }
    }
}

impl Pair {
    /// The first processor, and one of the others for each relation that there is, the nearest
    /// first. None on a machine with one processor.
    pub(crate) fn all() -> io::Result<Vec<Pair>> {
        let processors = processors(&sched_getaffinity(None)?);
        Ok(Pair::among(&processors, Path::new(PROCESSORS)))
    }

    /// The one whose processors have the least in common.
    pub(crate) fn farthest() -> io::Result<Option<Pair>> {
        Ok(Pair::all()?.last().copied())
    }

    fn among(processors: &[usize], tree: &Path) -> Vec<Pair> {
        let [first, others @ ..] = processors else { return Vec::new() };
        let mut pairs = Vec::new();
        for second in others {
            let relation = relation(tree, *first, *second);
            if pairs.iter().all(|pair: &Pair| pair.relation != relation) {
                let shared_cache = shared_cache(tree, *first, *second);
                pairs.push(Pair { relation, first: *first, second: *second, shared_cache });
            }
        }
        pairs.sort_by_key(|pair| pair.relation);
        pairs
    }
}

/// What a kernel that does not tell has are cores of one socket.
fn relation(tree: &Path, one: usize, other: usize) -> Relation {
    let topology = |of: usize, what: &str| {
        fs::read_to_string(tree.join(format!("cpu{of}/topology/{what}"))).ok()
    };
    let siblings = topology(one, "thread_siblings_list");
    if siblings.is_some_and(|list| has(&list, other)) {
        return Relation::Siblings;
    }
    let socket = |of| topology(of, "physical_package_id");
    if socket(one) == socket(other) { Relation::Cores } else { Relation::Sockets }
}

fn shared_cache(tree: &Path, one: usize, other: usize) -> Option<u32> {
    let caches = fs::read_dir(tree.join(format!("cpu{one}/cache"))).ok()?;
    let level = |cache: PathBuf| {
        let read = |what| fs::read_to_string(cache.join(what)).ok();
        if !has(&read("shared_cpu_list")?, other) {
            return None;
        }
        read("level")?.trim().parse::<u32>().ok()
    };
    caches.flatten().filter_map(|cache| level(cache.path())).min()
}

/// Whether a list such as `0-3,8` has a number.
fn has(list: &str, number: usize) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bounds = first.parse().ok().zip(last.parse().ok());
        bounds.is_some_and(|(first, last): (usize, usize)| (first..=last).contains(&number))
    })
}

/// Where two sides run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Both on the first processor.
    Together,
    /// Each on one of two processors; this side on the first one.
    On(Pair),
    /// Wherever the scheduler puts them.
    Free,
}

impl Placement {
    /// Each side on a processor, and these have as little in common as there are; both on the one
    /// that there is.
    pub(crate) fn apart() -> io::Result<Placement> {
        Ok(Pair::farthest()?.map_or(Placement::Together, Placement::On))
    }

    /// Keeps this thread and that process there until the values are dropped.
    pub(crate) fn hold(self, other: Pid) -> io::Result<Vec<Kept>> {
        match self {
            Placement::Together => {
                Ok(vec![Kept::on_the_first(None)?, Kept::on_the_first(Some(other))?])
            }
            Placement::On(pair) => {
                Ok(vec![Kept::on(None, pair.first)?, Kept::on(Some(other), pair.second)?])
            }
            Placement::Free => Ok(Vec::new()),
        }
    }

    /// Keeps this thread where the other side of the placement runs: what it starts until the value
    /// is dropped stays there.
    pub(crate) fn hold_for_other(self) -> io::Result<Option<Kept>> {
        match self {
            Placement::Together => Kept::on_the_first(None).map(Some),
            Placement::On(pair) => Kept::on(None, pair.second).map(Some),
            Placement::Free => Ok(None),
        }
    }

    /// Keeps this thread where this side runs.
    pub(crate) fn hold_this(self) -> io::Result<Option<Kept>> {
        match self {
            Placement::Free => Ok(None),
            _ => Kept::on_the_first(None).map(Some),
        }
    }
}

/// A thread that has only some of its processors until the value is dropped.
pub(crate) struct Kept {
    who: Option<Pid>,
    all: CpuSet,
}

impl Kept {
    /// The first alone; this thread or another one.
    pub(crate) fn on_the_first(who: Option<Pid>) -> io::Result<Kept> {
        let all = sched_getaffinity(who)?;
        match processors(&all).first() {
            Some(first) if all.count() > 1 => Kept::on(who, *first),
            _ => Ok(Kept { who, all }),
        }
    }

    fn on(who: Option<Pid>, processor: usize) -> io::Result<Kept> {
        let all = sched_getaffinity(who)?;
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(who, &only)?;
        Ok(Kept { who, all })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = sched_setaffinity(self.who, &self.all);
    }
}

fn processors(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with two sockets of two cores with two threads each.
    fn machine() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for processor in 0..8 {
            let (socket, core) = (processor / 4, processor % 4 / 2);
            let of = |folder: &str| {
                let path = tree.path().join(format!("cpu{processor}/{folder}"));
                fs::create_dir_all(&path).unwrap();
                path
            };
            let threads = format!("{},{}\n", socket * 4 + core * 2, socket * 4 + core * 2 + 1);
            fs::write(of("topology").join("thread_siblings_list"), &threads).unwrap();
            fs::write(of("topology").join("physical_package_id"), format!("{socket}\n")).unwrap();
            let all = format!("{}-{}\n", socket * 4, socket * 4 + 3);
            for (index, level, list) in [("index1", "1\n", &threads), ("index3", "3\n", &all)] {
                fs::write(of(&format!("cache/{index}")).join("level"), level).unwrap();
                fs::write(of(&format!("cache/{index}")).join("shared_cpu_list"), list).unwrap();
            }
        }
        tree
    }

    /// There is one pair for each relation, and each says what it is.
    #[test]
    fn pairs_are_those_of_the_machine() {
        let tree = machine();
        let pairs = Pair::among(&[0, 5, 3, 2, 1], tree.path());
        let told: Vec<_> = pairs.iter().map(|pair| (pair.relation, pair.to_string())).collect();
        let expected = [
            (
                Relation::Siblings,
                "processors 0 and 1: hardware threads of one core, which share a cache of level 1 \
                 and none before it",
            ),
            (
                Relation::Cores,
                "processors 0 and 3: cores of one socket, which share a cache of level 3 and none \
                 before it",
            ),
            (Relation::Sockets, "processors 0 and 5: cores of two sockets, which share no cache"),
        ];
        assert_eq!(told, expected.map(|(relation, text)| (relation, text.to_owned())));
        assert!(
            Pair::among(&[3], tree.path()).is_empty() && Pair::among(&[], tree.path()).is_empty()
        );
        // Without a word of the kernel about them.
        let unknown = Pair::among(&[0, 1], Path::new("/nowhere"));
        assert_eq!(unknown[0].relation, Relation::Cores);
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert!(has("0-3,8\n", 2) && has("0-3,8\n", 8) && has("7", 7));
        assert!(!has("0-3,8\n", 4) && !has("", 0) && !has("a-b", 1));
    }
}
