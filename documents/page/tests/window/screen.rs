//! A display of its own, a window on it, and hands.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_page::Pixels;
use tempfile::TempDir;

/// How long anything may take: other tests run meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);
const SCREEN: (u32, u32) = (1000, 700);
/// What of the window is not the page: the scroll bar, and the line below.
pub(crate) const AROUND: (u32, u32) = (14, 26);

/// A display.
pub(crate) struct Screen {
    server: Child,
    name: String,
    folder: TempDir,
}

impl Screen {
    /// None, if there can be none here; that is said.
    pub(crate) fn start() -> Option<Screen> {
        for program in ["Xvfb", "xdotool"] {
            let found = Command::new("which").arg(program).stdout(Stdio::null()).status();
            if !found.is_ok_and(|status| status.success()) {
                println!("not run: there is no {program}; `./test` installs it");
                return None;
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let size = format!("{}x{}x24", SCREEN.0, SCREEN.1);
        let mut server = Command::new("Xvfb")
            // Else it begins anew when the last one leaves, and who comes meanwhile is sent away.
            .arg("-noreset")
            // A key that is let go late is not one pressed again.
            .arg("-r")
            .args(["-displayfd", "1", "-nolisten", "tcp", "-screen", "0", &size, "-fbdir"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut number = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut number).unwrap();
        assert!(!number.trim().is_empty(), "Xvfb does not start");
        Some(Screen { server, name: format!(":{}", number.trim()), folder })
    }

    /// What it shows: Xvfb keeps it in a file, in the format XWD.
    fn shot(&self) -> Pixels {
        let bytes = std::fs::read(self.folder.path().join("Xvfb_screen0")).unwrap();
        let word = |number: usize| {
            u32::from_be_bytes(bytes[number * 4..][..4].try_into().unwrap()) as usize
        };
        let (header, width, height, of_line, colors) =
            (word(0), word(4), word(5), word(12), word(19));
        assert_eq!(word(11), 32, "bits of a pixel");
        let lines = bytes[header + 12 * colors..].chunks_exact(of_line).take(height);
        let pixels = lines.flat_map(|line| line[..width * 4].chunks_exact(4));
        // Blue, green, red and nothing.
        let bytes = pixels.flat_map(|pixel| [pixel[2], pixel[1], pixel[0], 255]).collect();
        Pixels { width: width as u32, height: height as u32, bytes }
    }

    /// A part of it: left, top, width, height.
    pub(crate) fn part(&self, [x, y, width, height]: [u32; 4]) -> Pixels {
        let shot = self.shot();
        let lines =
            shot.bytes.chunks_exact(shot.width as usize * 4).skip(y as usize).take(height as usize);
        let bytes =
            lines.flat_map(|line| &line[x as usize * 4..][..width as usize * 4]).copied().collect();
        Pixels { width, height, bytes }
    }

    /// Waits until the left top of it, where the window is, has this picture.
    pub(crate) fn wait_for(&self, picture: &Pixels, what: &str) {
        let area = [0, 0, picture.width, picture.height];
        let mut last = None;
        if !wait(|| {
            let shot = self.part(area);
            let is_there = shot == *picture;
            last = Some(shot);
            is_there
        }) {
            let last = last.unwrap();
            let [is, should] = [&last, picture].map(|pixels| {
                let (_, path) =
                    tempfile::Builder::new().suffix(".png").tempfile().unwrap().keep().unwrap();
                std::fs::write(&path, pixels.to_png().unwrap()).unwrap();
                path
            });
            let pairs = last.bytes.iter().zip(&picture.bytes);
            let other = pairs.filter(|(one, other)| one != other).count();
            panic!(
                "{what}: {other} bytes differ; it is {}, not {}",
                is.display(),
                should.display()
            );
        }
    }

    /// Does something with the keyboard or the mouse.
    pub(crate) fn hands(&self, words: &str) {
        let mut command = Command::new("xdotool");
        command.args(words.split_whitespace()).env("DISPLAY", &self.name);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "xdotool {words}: {output:?}");
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Asked to end it takes its socket away; killed it leaves it.
        let pid = rustix::process::Pid::from_child(&self.server);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        if !wait(|| self.server.try_wait().is_ok_and(|status| status.is_some())) {
            let _ = self.server.kill();
        }
        let _ = self.server.wait();
    }
}

/// Waits for something; false, if it does not come.
pub(crate) fn wait(mut is_there: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !is_there() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// The program with a window.
pub(crate) struct Window<'a> {
    pub(crate) child: Child,
    screen: &'a Screen,
}

impl<'a> Window<'a> {
    pub(crate) fn open(
        screen: &'a Screen,
        command: Command,
        page: &Path,
        size: (u32, u32),
    ) -> Window<'a> {
        Window::open_with(screen, command, page, size, &[])
    }

    pub(crate) fn open_with(
        screen: &'a Screen,
        mut command: Command,
        page: &Path,
        (width, height): (u32, u32),
        more: &[&str],
    ) -> Window<'a> {
        let viewport = format!("{width}x{height}");
        command
            .arg("open")
            .arg(page)
            .args(["--window", "--timeout", "300", "--viewport", &viewport])
            .args(more)
            .env("DISPLAY", &screen.name)
            .env_remove("WAYLAND_DISPLAY")
            .env("WINIT_X11_SCALE_FACTOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Window { child: command.spawn().unwrap(), screen }
    }

    /// Waits for the window, and gives it the keyboard.
    pub(crate) fn focus(&mut self) -> String {
        let pid = self.child.id().to_string();
        let mut window = String::new();
        let found = wait(|| {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the program has ended: {status}, {}", read(self.child.stderr.as_mut()));
            }
            let output = Command::new("xdotool")
                .args(["search", "--onlyvisible", "--pid", &pid])
                .env("DISPLAY", &self.screen.name)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            window = text.lines().last().unwrap_or_default().to_owned();
            !window.is_empty()
        });
        assert!(found, "there is no window");
        self.screen.hands(&format!("windowfocus --sync {window}"));
        window
    }

    /// Ends by a key, and gives what was said.
    pub(crate) fn quit(mut self) -> (String, String) {
        self.screen.hands("key ctrl+q");
        self.ended()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(&mut self) -> (String, String) {
        let mut status = None;
        wait(|| {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(
            status.is_some_and(|status| status.success()),
            "{status:?}: {}",
            read(self.child.stderr.as_mut())
        );
        let (out, notes) = (read(self.child.stdout.as_mut()), read(self.child.stderr.as_mut()));
        (out, notes)
    }
}

fn read(from: Option<&mut impl Read>) -> String {
    let mut text = String::new();
    from.unwrap().read_to_string(&mut text).unwrap();
    text
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder of pages, and a cache beside it.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let memory = Path::new("/dev/shm");
        let mut prefix = tempfile::Builder::new();
        prefix.prefix("holdfast-page-");
        let folder = if memory.is_dir() { prefix.tempdir_in(memory) } else { prefix.tempdir() };
        Place { folder: folder.unwrap() }
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn homes(&self) -> [PathBuf; 2] {
        ["home", "pool"].map(|name| self.folder.path().join(name))
    }

    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-page"));
        let [home, pool] = self.homes();
        command.env("HOLDFAST_HOME", home).env("HOLDFAST_POOL", pool);
        command
    }
}
