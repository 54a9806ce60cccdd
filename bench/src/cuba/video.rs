//! Section `video` (table 4): a video decoded to pixels in C, in the applet, and by a player whose
//! interface part, in Python, shows each frame of the applet in a window as soon as it is decoded.
//!
//! Invariants: all sides decode every frame of the same file to the same pixels; C and applet run on
//! one processor, as two processors differ by more; the player and its applet run where the
//! scheduler puts them, so that both may work at once.

use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use holdfast_applet::{Applet, Call, SharedBuffer};
use holdfast_testkit::applet_file;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::applet::libraries::Video;
use crate::applet::processors::Kept;
use crate::applet::started::native;
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};
use crate::timing::ms_since;

const C: &str = "libvideo.so";
const APPLET: &str = "applet";
const INTERFACE: &str = "player";
const WINDOW: &str = "player with a window";

const FILE: &str = "city.mpg";
/// The file's folder, and a Python that has the package `holdfast`.
const VIDEOS_VARIABLE: &str = "HOLDFAST_VIDEOS";
const PYTHON_VARIABLE: &str = "HOLDFAST_PYTHON";
/// Bytes of a pixel.
const RGB24_BYTES: usize = 3;
/// The paper's viewers need 182 % of what decoding takes, and more.
const PAPER_WINDOW: f64 = 1.82;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    if applet_file("video").is_err() {
        outcome.missing.push(
            "video: the decoder is not built; `apt-get install libavformat-dev libavcodec-dev \
             libswscale-dev`, then `cargo xtask applets video`"
                .to_owned(),
        );
        return Ok(());
    }
    let Some(file) = std::env::var_os(VIDEOS_VARIABLE).map(|folder| Path::new(&folder).join(FILE))
    else {
        outcome.missing.push(format!(
            "video: {VIDEOS_VARIABLE} names the folder of {FILE}; `./test` takes it out of a package \
             (applets/video/README.md)"
        ));
        return Ok(());
    };
    let bytes = std::fs::read(&file)?;
    let _kept = Kept::on_the_first(None)?;
    let mut plain = Video::open(&bytes)?;
    let (frame_bytes, frames) = (plain.pixels() * RGB24_BYTES, plain.frames());
    let mut pixels = vec![0; frame_bytes];
    let mut player = Player::start(&bytes, frame_bytes)?;
    let (mut in_c, mut in_applet) = (Vec::new(), Vec::new());
    plain.rewind()?;
    while plain.next_frame(&mut pixels)? {
        in_c.push(xxh3_64(&pixels));
    }
    player.play(|buffer| {
        buffer.read(0, &mut pixels).map_err(Error::other)?;
        in_applet.push(xxh3_64(&pixels));
        Ok(())
    })?;
    if in_c != in_applet || in_c.is_empty() {
        return Err(Error::other("the applet's frames are others than C's"));
    }
    outcome.note(format!(
        "the video has {} frames of {} pixels",
        in_c.len().max(frames),
        plain.pixels()
    ));
    let sides = vec![
        Side::new(C, || {
            let started = Instant::now();
            plain.rewind()?;
            while plain.next_frame(&mut pixels)? {}
            Ok(ms_since(started) / 1e3)
        }),
        Side::new(APPLET, || {
            let started = Instant::now();
            player.play(|_| Ok(()))?;
            Ok(ms_since(started) / 1e3)
        }),
    ];
    let times = race(runs, sides)?;
    outcome.add("video_decode_c_s", times.of(C).cloned(), "s", None);
    outcome.add("video_applet_s", times.of(APPLET).cloned(), "s", None);
    outcome.add("video_applet_vs_c", times.ratio(APPLET, C), "x", Some(Goal::AtMost(PAPER_WINDOW)));
    drop(_kept);

    let Some(python) = std::env::var_os(PYTHON_VARIABLE).map(PathBuf::from) else {
        outcome.missing.push(format!(
            "video window: {PYTHON_VARIABLE} names no Python with the package holdfast; `cargo xtask \
             python` makes one in the target directory"
        ));
        return Ok(());
    };
    let mut sides = vec![
        Side::new(C, || {
            let started = Instant::now();
            plain.rewind()?;
            while plain.next_frame(&mut pixels)? {}
            Ok(ms_since(started) / 1e3)
        }),
        Side::new(INTERFACE, || played_s(&mut player_command(&python, &file, false))),
    ];
    match played_s(&mut player_command(&python, &file, true)) {
        Ok(_) => {
            let window = || played_s(&mut player_command(&python, &file, true));
            sides.push(Side::new(WINDOW, window));
        }
        Err(error) => outcome.missing.push(format!(
            "video window: {error}; `apt-get install xvfb xauth` brings a display, and `cargo xtask python` what shows a window"
        )),
    }
    let times = race(runs, sides)?;
    outcome.add("video_interface_vs_c", times.ratio(INTERFACE, C), "x", None);
    outcome.add("video_window_s", times.of(WINDOW).cloned(), "s", None);
    let goal = Some(Goal::AtMost(PAPER_WINDOW));
    outcome.add("video_window_vs_c", times.ratio(WINDOW, C), "x", goal);
    Ok(())
}

/// The applet with the video open.
struct Player {
    applet: Applet,
    frame: SharedBuffer,
}

impl Player {
    fn start(video: &[u8], frame_bytes: usize) -> io::Result<Player> {
        let applet = native("video")?;
        applet.call("open", video).map_err(Error::other)?;
        let frame = applet.buffer(frame_bytes).map_err(Error::other)?;
        Ok(Player { applet, frame })
    }

    /// From the first frame to the last.
    fn play(&mut self, mut show: impl FnMut(&SharedBuffer) -> io::Result<()>) -> io::Result<()> {
        self.applet.call("rewind", b"").map_err(Error::other)?;
        loop {
            let call = Call::new("next_frame", b"rgb24").buffer(&self.frame);
            let response = self.applet.call_with(call).map_err(Error::other)?;
            if response.bytes.is_empty() {
                return Ok(());
            }
            show(&self.frame)?;
        }
    }
}

/// The player of `applets/video`, on a display of its own if it is to show the frames.
fn player_command(python: &Path, video: &Path, shows: bool) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../applets/video/player.py");
    let mut command = if shows { Command::new("xvfb-run") } else { Command::new(python) };
    if shows {
        command.args(["--auto-servernum", "--server-args=-screen 0 1280x1024x24"]).arg(python);
    }
    command.arg(script).arg(video).arg("--json");
    if shows {
        command.args(["--window", "--no-wait"]);
    }
    command
}

/// What the player says its frames took: without its own start.
fn played_s(command: &mut Command) -> io::Result<f64> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::other(format!("the player ended with {}: {said}", output.status)));
    }
    let said: Value = serde_json::from_slice(&output.stdout)?;
    said["played_s"].as_f64().ok_or_else(|| Error::other("the player does not say what it took"))
}
