//! The video player: frames of a video made here, whose pixels are known, of odd sizes; videos that
//! are none; and a real one, where there is one.

use holdfast_channel::ArenaBuffer;
use serde_json::Value;

use crate::host::{Answer, Host};
use crate::{assert_fails, call_with};

const FRAMES: u8 = 5;
/// Behind the pixels in the buffer.
const GUARD: u8 = 0xa5;

/// The player; `None`, and that is said, where it cannot be built.
fn player() -> Option<Host> {
    match holdfast_testkit::native_applet("video") {
        Ok(program) => Some(Host::serving(std::process::Command::new(program), None)),
        Err(error) => {
            println!("not run: the video player, {error}; it takes libavcodec-dev");
            None
        }
    }
}

/// Grey frames, each brighter than the one before; uncompressed YUV4MPEG2, with as much colour as
/// films have.
fn grey_video(width: usize, height: usize) -> Vec<u8> {
    let mut file = format!("YUV4MPEG2 W{width} H{height} F25:1 Ip A1:1 C420\n").into_bytes();
    let colours = 2 * width.div_ceil(2) * height.div_ceil(2);
    for frame in 0..FRAMES {
        file.extend(b"FRAME\n");
        file.extend(std::iter::repeat_n(luma(frame), width * height));
        file.extend(std::iter::repeat_n(128, colours));
    }
    file
}

fn luma(frame: u8) -> u8 {
    16 + 40 * frame
}

/// What ITU-R BT.601 makes of it, from 0 to 255.
fn brightness(frame: u8) -> i32 {
    i32::from(luma(frame) - 16) * 255 / 219
}

fn properties(answer: &Answer) -> Value {
    match answer {
        Answer::Result(json) => serde_json::from_slice(json).unwrap(),
        failure => panic!("{failure:?}"),
    }
}

/// The next frame's time and pixels; `None` after the last one.
fn next_frame(host: &mut Host, buffer: &ArenaBuffer, format: &str) -> Option<(u64, Vec<u8>)> {
    buffer.copy_in(0, &vec![GUARD; buffer.len() as usize]).unwrap();
    match call_with(host, "next_frame", format.as_bytes(), buffer.handle()) {
        Answer::Result(time) if time.is_empty() => None,
        Answer::Result(time) => {
            let mut bytes = vec![0; buffer.len() as usize];
            buffer.copy_out(0, &mut bytes).unwrap();
            Some((u64::from_le_bytes(time.try_into().unwrap()), bytes))
        }
        failure => panic!("{failure:?}"),
    }
}

/// Frames of any width have the right pixels, and nothing behind them is changed.
///
/// Guarantee: applets/examples
#[test]
fn frames_of_any_width_stay_in_their_buffer() {
    let Some(mut host) = player() else { return };
    for (width, height) in [(64, 8), (33, 17), (2, 2), (31, 5), (97, 3), (72, 6), (1, 1)] {
        let answer = host.try_call("open", &grey_video(width, height)).unwrap();
        let it = properties(&answer);
        assert_eq!((&it["width"], &it["height"]), (&width.into(), &height.into()));
        assert_eq!((&it["frames"], &it["codec"]), (&FRAMES.into(), &"rawvideo".into()));
        assert_eq!(it["rate"].as_f64(), Some(25.0));
        for (format, pixel) in [("", 4), ("rgb24", 3)] {
            let used = width * height * pixel;
            let buffer = host.memory.buffer((used + 256) as u64).unwrap();
            for frame in 0..FRAMES {
                let (time_us, bytes) = next_frame(&mut host, &buffer, format).unwrap();
                assert_eq!(time_us, 40_000 * u64::from(frame));
                for (at, pixel) in bytes[..used].chunks_exact(pixel).enumerate() {
                    let near = pixel[..3]
                        .iter()
                        .all(|&part| (i32::from(part) - brightness(frame)).abs() <= 2);
                    assert!(
                        near && pixel.get(3).is_none_or(|&alpha| alpha == 255),
                        "{width}: {at}, {pixel:?}"
                    );
                }
                assert!(
                    bytes[used..].iter().all(|&byte| byte == GUARD),
                    "{width}: written past the end"
                );
            }
            assert!(next_frame(&mut host, &buffer, format).is_none());
            assert!(next_frame(&mut host, &buffer, format).is_none(), "the end stays the end");
            host.call("rewind", b"");
        }
    }
}

/// A video can be passed in the shared buffer, which is free again afterwards.
#[test]
fn video_in_a_shared_buffer_frees_it_afterwards() {
    let Some(mut host) = player() else { return };
    let file = grey_video(64, 48);
    let buffer = host.memory.buffer(file.len() as u64).unwrap();
    buffer.copy_in(0, &file).unwrap();
    let answer = call_with(&mut host, "open", b"", buffer.handle());
    assert_eq!(properties(&answer)["width"], 64);
    // The frame goes where the file was.
    let (_, first) = next_frame(&mut host, &buffer, "rgba").unwrap();
    assert_eq!(first[3], 255);
    let (time_us, _) = next_frame(&mut host, &buffer, "rgba").unwrap();
    assert_eq!(time_us, 40_000);
}

#[test]
fn a_call_that_makes_no_sense_is_refused() {
    let Some(mut host) = player() else { return };
    assert_fails(host.try_call("open", b"").unwrap(), 1, "needs a video");
    assert_fails(host.try_call("next_frame", b"").unwrap(), 3, "call open first");
    assert_fails(host.try_call("rewind", b"").unwrap(), 3, "call open first");
    host.call("open", &grey_video(64, 48));
    assert_fails(host.try_call("next_frame", b"").unwrap(), 1, "needs a shared buffer");
    assert_fails(host.try_call("next_frame", b"jpeg").unwrap(), 1, "rgb24");
    let buffer = host.memory.buffer(64 * 48 * 4 - 4096).unwrap();
    assert_fails(
        call_with(&mut host, "next_frame", b"", buffer.handle()),
        1,
        "needs a shared buffer",
    );
}

/// An invalid video is a failure of the call, and the player continues.
///
/// Guarantee: applets/examples
#[test]
fn invalid_video_is_a_failure_of_the_call() {
    let Some(mut host) = player() else { return };
    let whole = grey_video(64, 48);
    let mut broken: Vec<Vec<u8>> =
        vec![b"rubbish".to_vec(), vec![0; 100_000], whole[..30].to_vec()];
    broken.push(b"YUV4MPEG2 W1000000 H1000000 F25:1 C444\nFRAME\n".to_vec());
    for bytes in broken {
        let answer = host.try_call("open", &bytes).unwrap();
        assert!(
            matches!(&answer, Answer::Failure { code: 5, text } if !text.is_empty()),
            "{answer:?}"
        );
        assert_fails(host.try_call("next_frame", b"").unwrap(), 3, "call open first");
    }
    assert_eq!(properties(&host.try_call("open", &whole).unwrap())["frames"], FRAMES);
}

/// The text names a file that is there. libavformat's list demuxer opens a second container for it,
/// which once did not hear of the order to open nothing.
///
/// Guarantee: applets/examples
#[test]
fn a_list_that_names_other_files_gets_none_of_them() {
    let Ok(program) = holdfast_testkit::native_applet("video") else {
        println!("not run: the video player is not built; it takes libavcodec-dev");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("other.y4m"), grey_video(64, 48)).unwrap();
    let mut command = std::process::Command::new(program);
    command.current_dir(folder.path());
    let mut host = Host::serving(command, None);
    let lists = [
        "ffconcat version 1.0\nfile other.y4m\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nother.y4m\n#EXT-X-ENDLIST\n",
    ];
    for list in lists {
        assert_fails(host.try_call("open", list.as_bytes()).unwrap(), 5, "");
    }
}

/// A real video plays to its end, and again with the same frames.
#[test]
fn real_video_plays_twice_with_equal_frames() {
    let path = holdfast_testkit::target_directory().unwrap().join("videos/city.mpg");
    let Ok(file) = std::fs::read(&path) else {
        println!("not run: there is no {}; ./test gets it from a package", path.display());
        return;
    };
    let Some(mut host) = player() else { return };
    let it = properties(&host.try_call("open", &file).unwrap());
    assert_eq!((&it["width"], &it["height"], &it["rate"]), (&720.into(), &405.into(), &25.into()));
    let buffer = host.memory.buffer(720 * 405 * 4).unwrap();
    let mut play = || {
        let mut frames = Vec::new();
        while let Some((time_us, pixels)) = next_frame(&mut host, &buffer, "rgba") {
            frames.push((time_us, xxhash_rust::xxh3::xxh3_64(&pixels)));
        }
        host.call("rewind", b"");
        frames
    };
    let first = play();
    assert_eq!(first.len() as u64, it["frames"].as_u64().unwrap());
    assert!(first.windows(2).all(|pair| pair[1].0 - pair[0].0 == 40_000), "25 frames a second");
    assert!(first.windows(2).any(|pair| pair[0].1 != pair[1].1), "pictures that move");
    assert_eq!(play(), first);
}
