//! Opening a page again, against our own first opening: whole processes, from the start to the
//! pixels.
//!
//! Invariants: the cache has one page, and is created again in each round; the pictures of all
//! openings in one viewport are the same, byte for byte; an opening that was not served as it
//! should be is an error of its page, which has no keys then.

use std::io::{self, Error};
use std::path::{Path, PathBuf};

use super::list::{self, Page};
use super::ours::{COLD, DOCUMENT, LIST, Opened, PageProgram, WARM, fresh};
use crate::heap::ground::Ground;
use crate::report::{Goal, Outcome};
use crate::stats::Series;

/// A viewport in which nothing was kept, so that only the document is of use.
const OTHER_VIEWPORT: &str = "1280x801";
/// Larger pages are opened in fewer rounds.
const LARGE_BYTES: usize = 1 << 20;
const PARTS: [&str; 5] = ["disk", "parse", "layout", "paint", "png"];
const GOAL_MEDIAN: Goal = Goal::AtLeast(85.0);
const GOAL_PAGE: Goal = Goal::AtLeast(60.0);

/// The ways in which a page is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpeningMode {
    /// Without a cache.
    Cold,
    /// To be kept.
    Kept,
    /// From the document.
    Document,
    /// As a user gets it: from the pixels, if they are kept, with everything in memory.
    Warm,
    /// The same, with the cache on the disk.
    WarmOnDisk,
    /// From the display list, with everything in memory.
    List,
}

const WAYS: [(OpeningMode, &str); 6] = [
    (OpeningMode::Cold, "cold"),
    (OpeningMode::Kept, "kept"),
    (OpeningMode::Document, "document"),
    (OpeningMode::Warm, "warm"),
    (OpeningMode::WarmOnDisk, "warm_on_disk"),
    (OpeningMode::List, "list"),
];

/// Of pages of which only that is asked what opening them again saves.
const FEW_WAYS: [(OpeningMode, &str); 3] =
    [(OpeningMode::Cold, "cold"), (OpeningMode::Kept, "kept"), (OpeningMode::Warm, "warm")];
/// From the start of the process to the pixels.
const GOAL_WARM_MS: Goal = Goal::AtMost(5.0);

/// What is said of each page besides the median of all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OfPage {
    Nothing,
    /// How it is.
    Told,
    /// Also whether that is enough.
    Goal,
}

/// What came of a page, by round.
struct Rounds(Vec<Vec<Opened>>);

impl Rounds {
    fn of(&self, way: OpeningMode) -> &[Opened] {
        WAYS.iter().position(|(known, _)| *known == way).map_or(&[], |index| &self.0[index])
    }

    fn series(&self, way: OpeningMode, value: impl Fn(&Opened) -> f64) -> Series {
        self.of(way).iter().map(value).collect()
    }

    /// How much less time, in percent, `one` took than `other`.
    fn saving(
        &self,
        one: OpeningMode,
        other: OpeningMode,
        value: impl Fn(&Opened) -> f64 + Copy,
    ) -> Series {
        self.series(one, value).over(&self.series(other, value)).map(|ratio| (1.0 - ratio) * 100.0)
    }
}

/// Runs the section.
pub(super) fn run(
    ground: &Ground,
    pages: &[Page],
    runs: usize,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let ours = PageProgram::find()?;
    let bench = Bench {
        ours: &ours,
        memory: ground.in_memory("cache")?,
        disk: ground.on_disk("cache")?,
        pictures: ground.in_memory("pictures")?,
    };
    // Without articles there are the others.
    let articles = match list::articles() {
        Ok((articles, missing)) => {
            outcome.missing.extend(missing);
            articles
        }
        Err(error) => {
            outcome.missing.push(format!("articles opened again: {error}"));
            Vec::new()
        }
    };
    let mut all = Vec::new();
    for page in pages.iter().chain(&articles) {
        let rounds = if page.source.len() > LARGE_BYTES { super::fewer(runs) } else { runs };
        match bench.page(page, rounds, &WAYS) {
            Ok(found) => all.push((page.name, found)),
            Err(error) => {
                outcome.missing.push(format!("the page {} opened again: {error}", page.name))
            }
        }
    }
    let from_the_web = |name: &str| articles.iter().any(|article| article.name == name);
    let count = all.iter().filter(|(name, _)| from_the_web(name)).count();
    outcome.note(format!(
        "opened again: {} pages of documentation, {count} articles of the web",
        all.len() - count
    ));
    tell(&all, outcome);
    Ok(())
}

/// The same of the collection, in fewer ways: pages of which most are smaller, and which have no
/// style sheets beside them.
pub(super) fn collection(
    ground: &Ground,
    _: &[Page],
    runs: usize,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let ours = PageProgram::find()?;
    let (pages, missing) = list::collection()?;
    outcome.missing.extend(missing);
    let bench = Bench {
        ours: &ours,
        memory: ground.in_memory("cache")?,
        disk: ground.on_disk("cache")?,
        pictures: ground.in_memory("pictures")?,
    };
    let mut all = Vec::new();
    for page in &pages {
        match bench.page(page, super::fewer(runs), &FEW_WAYS) {
            Ok(found) => all.push(found),
            Err(error) => {
                outcome.missing.push(format!("the page {} opened again: {error}", page.name))
            }
        }
    }
    if all.is_empty() {
        return Ok(());
    }
    let pixels = |opened: &Opened| opened.pixels_ms;
    let saving =
        all.iter().map(|found| found.saving(OpeningMode::Warm, OpeningMode::Cold, pixels).median());
    let key = "reopen_saving_100_pages_pct";
    outcome.add(key, Some(saving.collect()), "%", Some(GOAL_MEDIAN));
    for (way, name) in FEW_WAYS {
        let medians = all.iter().map(|found| found.series(way, pixels).median()).collect();
        let goal = (way == OpeningMode::Warm).then_some(GOAL_WARM_MS);
        outcome.add(format!("start_to_pixels_ms/{name}_100_pages"), Some(medians), "ms", goal);
    }
    let count = Series::from_iter([all.len() as f64]);
    outcome.add("pages_of_collection", Some(count), "", Some(Goal::AtLeast(100.0)));
    Ok(())
}

struct Bench<'a> {
    ours: &'a PageProgram,
    memory: PathBuf,
    disk: PathBuf,
    pictures: PathBuf,
}

impl Bench<'_> {
    fn page(&self, page: &Page, rounds: usize, ways: &[(OpeningMode, &str)]) -> io::Result<Rounds> {
        let path = list::site().join(page.path);
        let address = path.to_str().ok_or_else(|| Error::other("its path is no text"))?;
        if ways.iter().any(|(way, _)| *way == OpeningMode::WarmOnDisk) {
            fresh(&self.disk)?;
            self.open(address, &[], &self.disk)?.served(COLD)?;
        }
        let mut found = Rounds(vec![Vec::new(); WAYS.len()]);
        for round in 0..=rounds {
            fresh(&self.memory)?;
            // What is kept comes before what is found; the way without a cache is first and last in
            // turns.
            let mut order: Vec<OpeningMode> = ways.iter().map(|(way, _)| *way).collect();
            order.rotate_left(round % 2);
            let mut opened: Vec<(OpeningMode, Opened)> = Vec::new();
            for way in order {
                opened.push((way, self.one(address, way)?));
            }
            let picture = |wanted: OpeningMode| {
                opened.iter().find(|(way, _)| *way == wanted).map(|(_, opened)| &opened.picture)
            };
            for way in
                [OpeningMode::Kept, OpeningMode::Warm, OpeningMode::WarmOnDisk, OpeningMode::List]
            {
                if picture(way).is_some_and(|other| Some(other) != picture(OpeningMode::Cold)) {
                    return Err(Error::other("its pictures differ"));
                }
            }
            // The first time is that of cold caches.
            for (way, mut opened) in opened.into_iter().filter(|_| round > 0) {
                opened.picture = Vec::new();
                let index = WAYS.iter().position(|(known, _)| *known == way).unwrap_or_default();
                found.0[index].push(opened);
            }
        }
        Ok(found)
    }

    fn one(&self, address: &str, way: OpeningMode) -> io::Result<Opened> {
        match way {
            OpeningMode::Cold => self.open(address, &["--no-cache"], &self.memory)?.served(COLD),
            OpeningMode::Kept => self.open(address, &[], &self.memory)?.served(COLD),
            OpeningMode::Document => {
                self.open(address, &["--viewport", OTHER_VIEWPORT], &self.memory)?.served(DOCUMENT)
            }
            OpeningMode::Warm => self.open(address, &[], &self.memory)?.served(WARM),
            OpeningMode::WarmOnDisk => self.open(address, &[], &self.disk)?.served(WARM),
            OpeningMode::List => self.open(address, &["--repaint"], &self.memory)?.served(LIST),
        }
    }

    fn open(&self, address: &str, options: &[&str], cache: &Path) -> io::Result<Opened> {
        self.ours.open(address, options, cache, &self.pictures.join("page.png"))
    }
}

fn tell(all: &[(&str, Rounds)], outcome: &mut Outcome) {
    if all.is_empty() {
        return;
    }
    let pixels = |opened: &Opened| opened.pixels_ms;
    let without_png = Opened::without_png_ms;
    let mut saving = |key: &str,
                      one: OpeningMode,
                      other: OpeningMode,
                      value: &dyn Fn(&Opened) -> f64,
                      goal: OfPage| {
        let of_page: Vec<(&str, Series)> =
            all.iter().map(|(name, found)| (*name, found.saving(one, other, value))).collect();
        let medians = of_page.iter().map(|(_, series)| series.median()).collect();
        outcome.add(
            key.to_owned(),
            Some(medians),
            "%",
            (goal != OfPage::Nothing).then_some(GOAL_MEDIAN),
        );
        for (name, series) in of_page.into_iter().filter(|_| goal != OfPage::Nothing) {
            let goal = (goal == OfPage::Goal).then_some(GOAL_PAGE);
            outcome.add(format!("{key}/{name}"), Some(series), "%", goal);
        }
    };
    saving("reopen_saving_pct", OpeningMode::Warm, OpeningMode::Cold, &pixels, OfPage::Goal);
    saving(
        "reopen_saving_without_png_pct",
        OpeningMode::Warm,
        OpeningMode::Cold,
        &without_png,
        OfPage::Goal,
    );
    saving("reopen_saving_list_pct", OpeningMode::List, OpeningMode::Cold, &pixels, OfPage::Told);
    saving(
        "reopen_saving_of_kept_pct",
        OpeningMode::Warm,
        OpeningMode::Kept,
        &pixels,
        OfPage::Nothing,
    );
    saving(
        "reopen_saving_on_disk_pct",
        OpeningMode::WarmOnDisk,
        OpeningMode::Cold,
        &pixels,
        OfPage::Nothing,
    );
    saving(
        "document_saving_of_kept_pct",
        OpeningMode::Document,
        OpeningMode::Kept,
        &pixels,
        OfPage::Nothing,
    );

    let keeping = all.iter().map(|(_, found)| {
        found.series(OpeningMode::Kept, |kept| kept.end_ms - kept.pixels_ms).median()
    });
    outcome.add("keep_ms", Some(keeping.collect()), "ms", None);
    for (way, name) in WAYS {
        let medians = all.iter().map(|(_, found)| found.series(way, pixels).median()).collect();
        let goal = (way == OpeningMode::Warm).then_some(GOAL_WARM_MS);
        outcome.add(format!("start_to_pixels_ms/{name}"), Some(medians), "ms", goal);
        for (page, found) in all {
            outcome.add(
                format!("start_to_pixels_ms/{name}/{page}"),
                Some(found.series(way, pixels)),
                "ms",
                None,
            );
        }
    }
    for (way, name) in WAYS
        .into_iter()
        .filter(|(way, _)| !matches!(way, OpeningMode::Kept | OpeningMode::WarmOnDisk))
    {
        let mut split = |part: &str, value: &dyn Fn(&Opened) -> f64| {
            let key = format!("split_ms/{name}/{part}");
            let medians: Series =
                all.iter().map(|(_, found)| found.series(way, value).median()).collect();
            if medians.max() > 0.0 {
                outcome.add(key.clone(), Some(medians), "ms", None);
                for (page, found) in all {
                    outcome.add(
                        format!("{key}/{page}"),
                        Some(found.series(way, value)),
                        "ms",
                        None,
                    );
                }
            }
        };
        for part in PARTS {
            split(part, &|opened| opened.part_ms(part));
        }
        split("start", &Opened::rest_ms);
    }
}
