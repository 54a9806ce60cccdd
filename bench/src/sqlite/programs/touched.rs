//! Pages of databases that a program read or wrote, by strace's list of its calls: as many as its
//! page caches can have at most, which the paper's figure 2 is about. SQLite gives pages back when a
//! database is closed and when a cache has its size; that is not seen.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Calls in the order of their time.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Time, database, page, bytes of a page: each page once.
    pages: Vec<(f64, PathBuf, u64, u64)>,
    began: f64,
    ended: f64,
}

impl Touched {
    /// From the text of `strace -f -y -ttt -e trace=pread64,pwrite64`; `page_bytes` knows databases.
    pub(super) fn new(text: &str, page_bytes: impl Fn(&Path) -> Option<u64>) -> Touched {
        let (mut touched, mut seen) = (Touched::default(), HashSet::new());
        // Calls that others came between, by their thread.
        let mut unfinished: HashMap<&str, &str> = HashMap::new();
        for line in text.lines() {
            let Some((thread, rest)) = line.split_once(' ') else { continue };
            let Some((time, call)) = rest.trim_start().split_once(' ') else { continue };
            let Ok(time) = time.parse::<f64>() else { continue };
            if touched.began == 0.0 {
                touched.began = time;
            }
            touched.ended = time;
            let path = call.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
            let (path, rest) = match (call.starts_with("<... "), path) {
                (true, _) => match unfinished.remove(thread) {
                    Some(path) => (path, call),
                    None => continue,
                },
                (false, Some((path, rest))) => (path, rest),
                (false, None) => continue,
            };
            let Some((bytes, offset)) = place(rest) else {
                unfinished.insert(thread, path);
                continue;
            };
            let Some(page) = page_bytes(Path::new(path)) else { continue };
            for number in offset / page..(offset + bytes).div_ceil(page) {
                if seen.insert((path, number)) {
                    touched.pages.push((time, path.into(), number, page));
                }
            }
        }
        touched
    }

    /// Until each quarter of the time, in KB.
    pub(super) fn quarters_kb(&self) -> [f64; 4] {
        [1.0, 2.0, 3.0, 4.0].map(|quarter| {
            let until = self.began + (self.ended - self.began) * quarter / 4.0;
            let pages = self.pages.iter().filter(|(time, ..)| *time <= until);
            pages.map(|(.., bytes)| *bytes).sum::<u64>() as f64 / 1024.0
        })
    }

    /// How many databases were touched.
    pub(super) fn databases(&self) -> usize {
        self.by_database().len()
    }

    /// The one with the most pages, in KB.
    pub(super) fn largest_kb(&self) -> f64 {
        self.by_database().into_values().max().unwrap_or(0) as f64 / 1024.0
    }

    fn by_database(&self) -> HashMap<&Path, u64> {
        let mut sums = HashMap::new();
        for (_, path, _, bytes) in &self.pages {
            *sums.entry(path.as_path()).or_default() += bytes;
        }
        sums
    }
}

/// Bytes and offset, the last arguments: `, ""..., 4096, 8192) = 4096`.
fn place(call: &str) -> Option<(u64, u64)> {
    let (arguments, _) = call.split_once(')').or_else(|| call.split_once(" <unfinished"))?;
    let mut arguments = arguments.rsplit(", ");
    let offset = arguments.next()?.parse().ok()?;
    Some((arguments.next()?.parse().ok()?, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_count_once_and_by_their_database() {
        let text = "\
12  100.000000 pread64(5</h/a.db>, \"\"..., 100, 0) = 100
12  101.000000 pread64(5</h/a.db>, \"\"..., 4096, 0) = 4096
12  102.000000 pwrite64(5</h/a.db>, \"\"..., 4096, 8192 <unfinished ...>
13  102.500000 pread64(6</h/b.db>, <unfinished ...>
12  102.600000 <... pwrite64 resumed>) = 4096
13  103.000000 <... pread64 resumed>\"\"..., 1024, 1024) = 1024
13  104.000000 pread64(7</h/other>, \"\"..., 4096, 0) = 4096
";
        let touched = Touched::new(text, |path| match path.to_str() {
            Some("/h/a.db") => Some(4096),
            Some("/h/b.db") => Some(1024),
            _ => None,
        });
        assert_eq!(touched.quarters_kb(), [4.0, 8.0, 9.0, 9.0]);
        assert_eq!((touched.databases(), touched.largest_kb()), (2, 8.0));
    }
}
