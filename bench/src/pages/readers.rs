//! Several processes that search the same mapped document at a time, against one alone.

use std::io::{self, BufRead, BufReader, Error, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use holdfast_dom::Selector;

use super::Shelf;
use super::list::Page;
use crate::heap::ground::{Ground, Home, Store};
use crate::stats::Series;

/// The role of this program that reads.
pub const READER: &str = "pages-reader";
const HEAP: &str = "pages";
const DOCUMENT: &str = "page";
/// The page that is closest to this size is searched.
const PAGE_BYTES: usize = 1 << 20;
const SELECTORS: [&str; 4] = ["a", "div a", "a:not([class])", ":nth-child(3)"];
/// Passes over all selectors in a turn.
const PASSES: usize = 200;
const READERS_MAX: usize = 4;

/// How many readers there were, and how much more they did at a time than one alone.
pub(super) fn run(ground: &Ground, pages: &[Page], rounds: usize) -> io::Result<(usize, Series)> {
    let home = ground.home(Store::Memory)?;
    let page = pages.iter().min_by_key(|page| page.source.len().abs_diff(PAGE_BYTES));
    let page = page.ok_or_else(|| Error::other("there is no page"))?;
    let mut shelf = Shelf::create(&home, HEAP)?;
    shelf.documents.parse(DOCUMENT, &page.source[..], &super::options()).map_err(Error::other)?;
    shelf.close()?;
    let many = std::thread::available_parallelism()?.get().clamp(2, READERS_MAX);
    let mut readers = (0..many).map(|_| Reader::start(&home)).collect::<io::Result<Vec<_>>>()?;
    let mut scaling = Series::default();
    for round in 0..=rounds {
        let alone_ms = at_a_time(&mut readers[..1])?;
        let together_ms = at_a_time(&mut readers)?;
        if round > 0 {
            scaling.push(many as f64 * alone_ms / together_ms);
        }
    }
    readers.into_iter().try_for_each(Reader::end)?;
    Ok((many, scaling))
}

/// Milliseconds until the last of them is done.
fn at_a_time(readers: &mut [Reader]) -> io::Result<f64> {
    let started = Instant::now();
    readers.iter_mut().try_for_each(Reader::go)?;
    readers.iter_mut().try_for_each(Reader::wait)?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

struct Reader {
    process: Child,
    told: BufReader<ChildStdout>,
}

impl Reader {
    fn start(home: &Home) -> io::Result<Reader> {
        let places = home.names.places();
        let mut process = Command::new(std::env::current_exe()?)
            .arg(READER)
            .args([places.home(), places.pool()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let told = process.stdout.take().ok_or_else(|| Error::other("a reader says nothing"))?;
        let mut reader = Reader { process, told: BufReader::new(told) };
        reader.wait()?;
        Ok(reader)
    }

    fn go(&mut self) -> io::Result<()> {
        let stdin =
            self.process.stdin.as_mut().ok_or_else(|| Error::other("a reader does not listen"))?;
        stdin.write_all(b"go\n")
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut line = String::new();
        if self.told.read_line(&mut line)? > 0 {
            return Ok(());
        }
        Err(Error::other("a reader has ended before it was done"))
    }

    /// A reader ends when no one asks any more.
    fn end(mut self) -> io::Result<()> {
        drop(self.process.stdin.take());
        let status = self.process.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::other(format!("a reader ended with {status}")))
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Of no effect on one that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Plays the reader: searches the document whenever it is told to.
///
/// # Errors
/// When the document cannot be opened or searched, or no one listens.
pub fn play(places: &[String]) -> io::Result<()> {
    let [home, pool] = places else { return Err(Error::other("a reader needs a home and a pool")) };
    let home = Home::at(PathBuf::from(home), PathBuf::from(pool))?;
    let shelf = Shelf::open_to_read(&home, HEAP)?;
    let document = shelf.documents.open(DOCUMENT).map_err(Error::other)?;
    let selectors = SELECTORS
        .iter()
        .map(|text| Selector::parse(text))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Error::other)?;
    println!("ready");
    for line in io::stdin().lines() {
        line?;
        let mut found = 0;
        for selector in (0..PASSES).flat_map(|_| &selectors) {
            found += document.select(selector).map_err(Error::other)?.len();
        }
        println!("{found}");
    }
    shelf.close()
}
