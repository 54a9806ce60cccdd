//! A screen without a machine's own: Xvfb, whose framebuffer is a file that is looked at without
//! asking the server.
//!
//! Invariant: a picture counts when it is as it should be and has been still for a while; its time
//! is that of the last change.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Error};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::process::Running;

pub(super) const WIDTH: usize = 1280;
pub(super) const HEIGHT: usize = 800;
/// What is right of it may be a scroll bar, which grows while the rest of a page is laid out.
const CONTENT_WIDTH: usize = WIDTH - 16;
const PIXEL_BYTES: usize = 4;
/// Of so many lines one is looked at for changes: text is higher.
const LINES_A_LOOK: usize = 4;
/// How long nothing may change.
pub(super) const STILL: Duration = Duration::from_millis(300);
/// How long something else than what is wanted may stay.
const STILL_ANOTHER: Duration = Duration::from_secs(5);
/// How long a picture may take.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// How long the whole suite may use the screen.
const SUITE_LIMIT: Duration = Duration::from_secs(4 * 3600);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// Numbers of the header of an X window dump that matter here.
const HEADER_WORDS: usize = 25;

/// A running Xvfb with its framebuffer mapped; stopped when it is dropped.
pub(super) struct Screen {
    /// For `DISPLAY`.
    pub(super) display: String,
    file: File,
    at: u64,
    line_bytes: usize,
    /// Ends with the screen.
    _server: Running,
}

/// When a picture was there, in milliseconds since the start of the program.
pub(super) struct SeenPicture {
    /// Without what may be a scroll bar.
    pub(super) content_ms: f64,
    pub(super) whole_ms: f64,
    pub(super) picture: Vec<u8>,
}

impl Screen {
    /// Starts the server; its framebuffer is in this folder.
    pub(super) fn start(program: &Path, folder: &Path) -> io::Result<Screen> {
        let mut command = Command::new(program);
        let screen = format!("{WIDTH}x{HEIGHT}x24");
        command.args([
            "-displayfd",
            "1",
            "-screen",
            "0",
            &screen,
            "-nolisten",
            "tcp",
            "-noreset",
            "-nocursor",
            "-br",
        ]);
        command.arg("-fbdir").arg(folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = Running::start(&mut command, SUITE_LIMIT)?;
        let mut number = String::new();
        if let Some(stdout) = server.child.stdout.take() {
            BufReader::new(stdout).read_line(&mut number)?;
        }
        let number: u32 = number.trim().parse().map_err(|_| Error::other("Xvfb does not start"))?;
        let file = File::open(folder.join("Xvfb_screen0"))?;
        let mut header = [0; HEADER_WORDS * 4];
        file.read_exact_at(&mut header, 0)?;
        let word = |index: usize| {
            let bytes = &header[index * 4..index * 4 + 4];
            u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
        };
        let (width, height, bits, line_bytes) = (word(4), word(5), word(11), word(12));
        if (width, height, bits) != (WIDTH, HEIGHT, PIXEL_BYTES * 8)
            || line_bytes < WIDTH * PIXEL_BYTES
        {
            return Err(Error::other("the framebuffer of Xvfb has another form"));
        }
        // Behind the header, the name in it, and the colours of twelve bytes each.
        let at = (word(0) + word(19) * 12) as u64;
        Ok(Screen { display: format!(":{number}"), file, at, line_bytes, _server: server })
    }

    /// Waits until no program shows anything.
    pub(super) fn wait_until_empty(&self) -> io::Result<()> {
        let started = Instant::now();
        while self.picture()?.iter().any(|byte| *byte != 0) {
            if started.elapsed() > LIMIT {
                return Err(Error::other("a window does not go away"));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Ok(())
    }

    /// Looks at the first `lines` of what a program shows, until they are `wanted` and stay as they
    /// are; without something that is wanted, until it shows something that stays for that long.
    pub(super) fn watch(
        &self,
        program: &Running,
        still: Duration,
        lines: usize,
        wanted: Option<&[u8]>,
    ) -> io::Result<SeenPicture> {
        let mut looked = Looked::new(lines);
        let (mut content, mut whole) = (None, None);
        loop {
            let now = Instant::now();
            let changed = looked.look(self)?;
            if changed.content {
                content = Some(now);
            }
            if changed.content || changed.rest {
                whole = Some(now);
            }
            if let (Some(content), Some(whole)) = (content, whole)
                && now.duration_since(whole) >= still
            {
                let mut picture = self.picture()?;
                picture.truncate(lines * WIDTH * PIXEL_BYTES);
                if wanted.is_none_or(|wanted| wanted == picture) {
                    let ms =
                        |then: Instant| then.duration_since(program.started).as_secs_f64() * 1e3;
                    return Ok(SeenPicture {
                        content_ms: ms(content),
                        whole_ms: ms(whole),
                        picture,
                    });
                }
            }
            let is_still = whole.is_some_and(|whole| now.duration_since(whole) > STILL_ANOTHER);
            if is_still || now.duration_since(program.started) > LIMIT {
                return Err(Error::other("it does not come to show what it showed before"));
            }
            if program.has_ended()? {
                return Err(Error::other("it ended before it showed the page"));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Red, green and blue of all pixels, with nothing in the fourth byte.
    fn picture(&self) -> io::Result<Vec<u8>> {
        let mut picture = vec![0; WIDTH * HEIGHT * PIXEL_BYTES];
        for (number, line) in picture.chunks_exact_mut(WIDTH * PIXEL_BYTES).enumerate() {
            self.file.read_exact_at(line, self.at + (number * self.line_bytes) as u64)?;
        }
        picture.chunks_exact_mut(PIXEL_BYTES).for_each(|pixel| pixel[PIXEL_BYTES - 1] = 0);
        Ok(picture)
    }
}

/// Some lines as they were when they were looked at last.
struct Looked {
    lines: Vec<u8>,
    line: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct Changed {
    content: bool,
    rest: bool,
}

impl Looked {
    /// As they are on an empty screen.
    fn new(lines: usize) -> Looked {
        let line = vec![0; WIDTH * PIXEL_BYTES];
        Looked { lines: vec![0; line.len() * (lines / LINES_A_LOOK)], line }
    }

    fn look(&mut self, screen: &Screen) -> io::Result<Changed> {
        let mut changed = Changed::default();
        for (number, then) in self.lines.chunks_exact_mut(WIDTH * PIXEL_BYTES).enumerate() {
            let at = (number * LINES_A_LOOK + LINES_A_LOOK / 2) * screen.line_bytes;
            screen.file.read_exact_at(&mut self.line, screen.at + at as u64)?;
            if self.line != *then {
                let (content, rest) = self.line.split_at(CONTENT_WIDTH * PIXEL_BYTES);
                changed.content |= content != &then[..CONTENT_WIDTH * PIXEL_BYTES];
                changed.rest |= rest != &then[CONTENT_WIDTH * PIXEL_BYTES..];
                then.copy_from_slice(&self.line);
            }
        }
        Ok(changed)
    }
}

/// Whether there is something on it: at least one of a hundred pixels has another colour than most.
/// What may be a scroll bar is nothing: a window has one before it has a page.
pub(super) fn shows_something(picture: &[u8]) -> bool {
    let mut colours = std::collections::HashMap::new();
    for line in picture.chunks_exact(WIDTH * PIXEL_BYTES) {
        for pixel in line[..CONTENT_WIDTH * PIXEL_BYTES].chunks_exact(PIXEL_BYTES) {
            *colours.entry(pixel).or_insert(0usize) += 1;
        }
    }
    let most = colours.values().max().copied().unwrap_or_default();
    let all: usize = colours.values().sum();
    (all - most) * 100 >= all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_page_shows_nothing() {
        let mut picture = vec![255; WIDTH * HEIGHT * PIXEL_BYTES];
        assert!(!shows_something(&picture));
        picture[..WIDTH * 10 * PIXEL_BYTES].fill(7);
        assert!(shows_something(&picture));
    }

    /// A window that shows only its scroll bar counts as empty.
    #[test]
    fn window_without_a_page_counts_as_empty() {
        let mut picture = vec![255; WIDTH * HEIGHT * PIXEL_BYTES];
        for line in picture.chunks_exact_mut(WIDTH * PIXEL_BYTES) {
            line[CONTENT_WIDTH * PIXEL_BYTES..].fill(0xe6);
        }
        assert!(!shows_something(&picture));
    }
}
