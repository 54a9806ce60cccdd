//! The same pages in other browsers, over HTTP from this machine: from the start of a process to
//! pixels that are right and stay.
//!
//! Invariants: all have the same size and the same server, and take turns; what a browser shows is
//! what it showed when it was given all the time; who cannot show a page is named, and has no keys
//! for it.

use std::cell::RefCell;
use std::fs;
use std::io::{self, BufRead, BufReader, Error};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::list::{self, Page};
use super::ours::{COLD, PageProgram, WARM, fresh};
use super::process::{Running, find};
use super::screen::{HEIGHT, LIMIT, STILL, Screen, WIDTH, shows_something};
use super::server::{ASK, FRESH, Server};
use crate::heap::ground::Ground;
use crate::report::Outcome;
use crate::stats::Series;

mod told;

/// How long a picture has to stay to be what the others are compared with.
const SURELY_STILL: Duration = Duration::from_millis(1500);
/// How often Dillo may try to show the same as before.
const ATTEMPTS: usize = 3;
/// Larger pages are opened in fewer rounds.
const LARGE_BYTES: usize = 1 << 20;
/// Chromium takes part in one of so many rounds.
const ROUNDS_OF_CHROMIUM: usize = 5;
/// Chromium's preferences without scripts.
const NO_SCRIPTS: &str = r#"{"profile":{"default_content_setting_values":{"javascript":2}}}"#;
/// Our window has a scroll bar and a status line beside the page; with them it is as large as the
/// others.
const PAGE_IN_WINDOW: &str = "1264x770";
const LINES_IN_WINDOW: usize = 770;
const OPTIONS: [&str; 9] = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--password-store=basic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-breakpad",
];

/// What a side measured in one turn: names and milliseconds.
type Turn = io::Result<Vec<(&'static str, f64)>>;

/// A side of a page's race.
struct Side<'a> {
    name: &'static str,
    /// In which rounds it takes part; round 0 does not count.
    takes_part: Box<dyn Fn(usize) -> bool + 'a>,
    turn: Box<dyn FnMut() -> Turn + 'a>,
}

/// The times of a page.
struct Times(Vec<(&'static str, Series)>);

impl Times {
    fn of(&self, name: &str) -> Option<&Series> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, series)| series)
    }

    fn push(&mut self, name: &'static str, value: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, series)) => series.push(value),
            None => self.0.push((name, Series::from_iter([value]))),
        }
    }
}

/// Runs the section.
pub(super) fn run(
    ground: &Ground,
    pages: &[Page],
    runs: usize,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let bench = Bench::new(ground, outcome)?;
    let mut all = Vec::new();
    for page in pages {
        let rounds = if page.source.len() > LARGE_BYTES { super::fewer(runs) } else { runs };
        match bench.page(page, rounds, outcome) {
            Ok(times) => all.push((page.name, times)),
            Err(error) => {
                outcome.missing.push(format!("the page {} in browsers: {error}", page.name))
            }
        }
    }
    told::tell(&all, outcome);
    Ok(())
}

struct Bench {
    ours: PageProgram,
    server: Server,
    screen: Option<Screen>,
    dillo: Option<PathBuf>,
    chromium: Option<PathBuf>,
    memory: PathBuf,
    disk: PathBuf,
}

impl Bench {
    fn new(ground: &Ground, outcome: &mut Outcome) -> io::Result<Bench> {
        let mut program = |names: &[&str], package: &str| {
            let found = find(names);
            if found.is_none() {
                outcome.missing.push(format!("{} (`apt-get install {package}`)", names[0]));
            }
            found
        };
        let memory = ground.in_memory("browsers")?;
        let screen = match program(&["Xvfb"], "xvfb") {
            Some(program) => Some(Screen::start(&program, &ground.in_memory("screen")?)?),
            None => None,
        };
        Ok(Bench {
            ours: PageProgram::find()?,
            server: Server::start(&list::site())?,
            screen,
            dillo: program(&["dillo"], "dillo"),
            // The one in PATH is a script of Debian's, which takes its own time.
            chromium: program(&["/usr/lib/chromium/chromium", "chromium"], "chromium"),
            memory,
            disk: ground.on_disk("browsers")?,
        })
    }

    fn page(&self, page: &Page, rounds: usize, outcome: &mut Outcome) -> io::Result<Times> {
        let mut sides = self.ours(page)?;
        if let (Some(program), Some(screen)) = (&self.dillo, &self.screen) {
            sides.push(self.dillo(program, screen, page)?);
        }
        if let Some(screen) = &self.screen {
            sides.push(self.our_window(screen, page)?);
        }
        if let Some(program) = &self.chromium {
            let of_chromium = |round: usize| round % ROUNDS_OF_CHROMIUM == 1;
            for (name, place) in [("chromium", &self.memory), ("chromium on the disk", &self.disk)]
            {
                let profile = place.join("profile");
                let turn = move || self.headless(program, &profile, page, name != "chromium");
                sides.push(Side { name, takes_part: Box::new(of_chromium), turn: Box::new(turn) });
            }
            if let Some(screen) = &self.screen {
                let wanted = RefCell::new(None);
                let turn = move || self.in_window(program, screen, page, &wanted);
                sides.push(Side {
                    name: "chromium in a window",
                    takes_part: Box::new(of_chromium),
                    turn: Box::new(turn),
                });
            }
        }
        let mut times = Times(Vec::new());
        for round in 0..=rounds {
            for turn in 0..sides.len() {
                let side = (round + turn) % sides.len();
                let side = &mut sides[side];
                if !(side.takes_part)(round) {
                    continue;
                }
                match (side.turn)() {
                    Ok(values) if round > 0 => {
                        values.into_iter().for_each(|(name, ms)| times.push(name, ms))
                    }
                    Ok(_) => {}
                    Err(error) => {
                        outcome
                            .missing
                            .push(format!("the page {} in {}: {error}", page.name, side.name));
                        side.takes_part = Box::new(|_| false);
                    }
                }
            }
        }
        if times.of("ours_cold").is_none() {
            return Err(Error::other("we cannot show it"));
        }
        Ok(times)
    }

    /// Cold, and from caches in memory and on the disk that have the page.
    fn ours(&self, page: &Page) -> io::Result<Vec<Side<'_>>> {
        let picture = self.memory.join("page.png");
        let caches = [self.memory.join("cache"), self.disk.join("cache")];
        let mut wanted = Vec::new();
        for cache in &caches {
            fresh(cache)?;
            for how in [FRESH, ASK] {
                // The second has the document of the first.
                wanted = self
                    .ours
                    .open(&self.server.address(how, page.path), &[], cache, &picture)?
                    .picture;
            }
        }
        let side = |name: &'static str,
                    how: &str,
                    cache: &Path,
                    options: &'static [&'static str],
                    tier: &'static str| {
            let (address, cache) = (self.server.address(how, page.path), cache.to_owned());
            let (picture, wanted) = (picture.clone(), wanted.clone());
            let turn = move || {
                let opened = self.ours.open(&address, options, &cache, &picture)?.served(tier)?;
                if opened.picture != wanted {
                    return Err(Error::other("its pictures differ"));
                }
                Ok(vec![(name, opened.pixels_ms)])
            };
            Side { name, takes_part: Box::new(|_| true), turn: Box::new(turn) }
        };
        Ok(vec![
            side("ours_cold", FRESH, &caches[0], &["--no-cache"], COLD),
            side("ours_warm", FRESH, &caches[0], &[], WARM),
            side("ours_warm_on_disk", FRESH, &caches[1], &[], WARM),
            side("ours_warm_asked", ASK, &caches[0], &[], WARM),
        ])
    }

    /// Dillo, which keeps nothing from one start to the next.
    fn dillo<'a>(
        &'a self,
        program: &'a Path,
        screen: &'a Screen,
        page: &Page,
    ) -> io::Result<Side<'a>> {
        let address = self.server.address(FRESH, page.path);
        let home = self.memory.join("dillo");
        fs::create_dir_all(&home)?;
        let start = move || {
            screen.wait_until_empty()?;
            let mut command = Command::new(program);
            command.args(["-f", "-g", &format!("{}x{}+0+0", WIDTH, HEIGHT), &address]);
            command.env("HOME", &home).env("DISPLAY", &screen.display);
            quiet(&mut command);
            let before = self.server.answers();
            Ok::<_, Error>((Running::start(&mut command, LIMIT * 2)?, before))
        };
        let mut wanted: Option<Vec<u8>> = None;
        let turn = move || -> Turn {
            let mut last = None;
            // On a busy machine something can come so late that the picture to compare with was
            // without it.
            for _ in 0..ATTEMPTS {
                if wanted.is_none() {
                    let (running, before) = start()?;
                    wanted = Some(self.reference(screen, &running, HEIGHT, before)?);
                }
                let (running, _) = start()?;
                match screen.watch(&running, STILL, HEIGHT, wanted.as_deref()) {
                    Ok(seen) => {
                        return Ok(vec![
                            ("dillo", seen.content_ms),
                            ("dillo_whole", seen.whole_ms),
                        ]);
                    }
                    Err(error) => (wanted, last) = (None, Some(error)),
                }
            }
            Err(last.unwrap_or_else(|| Error::other("it was not started")))
        };
        Ok(Side { name: "dillo", takes_part: Box::new(|_| true), turn: Box::new(turn) })
    }

    /// Ours in a window, without a cache and then from one that has the page.
    fn our_window<'a>(&'a self, screen: &'a Screen, page: &Page) -> io::Result<Side<'a>> {
        let address = self.server.address(FRESH, page.path);
        let cache = self.memory.join("cache-of-window");
        fresh(&cache)?;
        let start = move |address: &str, cache: &Path, options: &[&str]| {
            screen.wait_until_empty()?;
            let mut command = self.ours.in_window(address, options, cache);
            command.args(["--viewport", PAGE_IN_WINDOW]).env("DISPLAY", &screen.display);
            quiet(&mut command);
            Running::start(&mut command, LIMIT * 2)
        };
        let mut wanted: Option<Vec<u8>> = None;
        let turn = move || -> Turn {
            if wanted.is_none() {
                // Kept without a window: one that ends as soon as it shows the page, and is killed,
                // may have kept nothing.
                let picture = self.memory.join("page.png");
                for tier in [COLD, WARM] {
                    self.ours
                        .open(&address, &["--viewport", PAGE_IN_WINDOW], &cache, &picture)?
                        .served(tier)?;
                }
                let running = start(&address, &cache, &[])?;
                wanted = Some(self.shown(screen, &running, LINES_IN_WINDOW)?);
            }
            let mut times = Vec::new();
            for (name, options) in
                [("ours_window_cold", &["--no-cache"][..]), ("ours_window_warm", &[])]
            {
                let running = start(&address, &cache, options)?;
                let seen = screen.watch(&running, STILL, LINES_IN_WINDOW, wanted.as_deref())?;
                times.push((name, seen.content_ms));
            }
            Ok(times)
        };
        Ok(Side { name: "our window", takes_part: Box::new(|_| true), turn: Box::new(turn) })
    }

    /// What a browser shows when it has all the time, and asked for the page.
    fn reference(
        &self,
        screen: &Screen,
        running: &Running,
        lines: usize,
        answers_before: u64,
    ) -> io::Result<Vec<u8>> {
        let picture = self.shown(screen, running, lines)?;
        if self.server.answers() == answers_before {
            return Err(Error::other("it did not ask for the page"));
        }
        Ok(picture)
    }

    /// What a browser shows when it has all the time.
    fn shown(&self, screen: &Screen, running: &Running, lines: usize) -> io::Result<Vec<u8>> {
        let seen = screen.watch(running, SURELY_STILL, lines, None)?;
        if !shows_something(&seen.picture) {
            return Err(Error::other("it shows nothing"));
        }
        Ok(seen.picture)
    }

    /// Chromium's own picture of a page, with an empty profile and then with the same.
    fn headless(&self, program: &Path, profile: &Path, page: &Page, on_disk: bool) -> Turn {
        let names = if on_disk {
            ["chromium_cold_on_disk", "chromium_warm_on_disk"]
        } else {
            ["chromium_cold", "chromium_warm"]
        };
        let picture = self.memory.join("chromium.png");
        empty_profile(profile)?;
        let mut times = Vec::new();
        let mut first = Vec::new();
        for name in names {
            let mut command = self.chromium(program, profile);
            command.arg("--headless").arg(format!("--screenshot={}", picture.display()));
            command.arg(self.server.address(FRESH, page.path));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            let before = self.server.answers();
            let mut running = Running::start(&mut command, LIMIT)?;
            let stderr = running
                .child
                .stderr
                .take()
                .ok_or_else(|| Error::other("it has no standard error"))?;
            let mut is_there = None;
            for line in BufReader::new(stderr).lines() {
                if line?.contains("written to file") {
                    is_there = Some(running.ms());
                    break;
                }
            }
            times.push((name, is_there.ok_or_else(|| Error::other("it wrote no picture"))?));
            drop(running);
            let found = fs::read(&picture)?;
            fs::remove_file(&picture)?;
            if first.is_empty() {
                if self.server.answers() == before {
                    return Err(Error::other("it did not ask for the page"));
                }
                first = found;
            } else if found != first {
                return Err(Error::other("its pictures differ"));
            }
        }
        Ok(times)
    }

    /// Chromium in a window, with an empty profile and then with the same.
    fn in_window(
        &self,
        program: &Path,
        screen: &Screen,
        page: &Page,
        wanted: &RefCell<Option<Vec<u8>>>,
    ) -> Turn {
        let profile = self.memory.join("profile-of-window");
        let start = || {
            screen.wait_until_empty()?;
            let mut command = self.chromium(program, &profile);
            command.args(["--window-position=0,0", "--kiosk"]);
            command.arg(format!("--app={}", self.server.address(FRESH, page.path)));
            command.env("DISPLAY", &screen.display);
            quiet(&mut command);
            let before = self.server.answers();
            Ok::<_, Error>((Running::start(&mut command, LIMIT * 2)?, before))
        };
        if wanted.borrow().is_none() {
            empty_profile(&profile)?;
            let (running, before) = start()?;
            *wanted.borrow_mut() = Some(self.reference(screen, &running, HEIGHT, before)?);
        }
        empty_profile(&profile)?;
        let mut times = Vec::new();
        for name in ["chromium_window_cold", "chromium_window_warm"] {
            let (running, _) = start()?;
            let seen = screen.watch(&running, STILL, HEIGHT, wanted.borrow().as_deref())?;
            times.push((name, seen.content_ms));
        }
        Ok(times)
    }

    fn chromium(&self, program: &Path, profile: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(OPTIONS).arg(format!("--window-size={},{}", WIDTH, HEIGHT));
        command.arg(format!("--user-data-dir={}", profile.display()));
        command.env("HOME", &self.memory);
        command
    }
}

fn quiet(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
}

/// A profile that has nothing but that there are no scripts.
fn empty_profile(profile: &Path) -> io::Result<()> {
    if profile.exists() {
        fs::remove_dir_all(profile)?;
    }
    fs::create_dir_all(profile.join("Default"))?;
    fs::write(profile.join("Default/Preferences"), NO_SCRIPTS)
}
