//! The inputs and results of calls.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_applet::{Applet, Call, CallError, Command, Failure, Grants, Limits, Stdio};

use crate::{ask, death, spawn, spawn_with, with_each};

/// A result is what the function made of its input, whatever its size.
///
/// Guarantee: applets/results
#[test]
fn result_is_what_the_function_returned_at_any_size() {
    with_each(|_, path| {
        let applet = spawn(path);
        for size in [0, 1, 47, 4096, 100_000, 131_023, 131_024, 262_144, 5_000_000] {
            let input: Vec<u8> = (0..size).map(|at| (at * 7 + at / 251) as u8).collect();
            assert!(applet.call("echo", &input).unwrap() == input, "{size} bytes");
        }
        assert_eq!(applet.call("large", &3_000_000_u64.to_le_bytes()).unwrap().len(), 3_000_000);
        assert_eq!(applet.metrics().calls, 10);
        assert!(applet.close().unwrap().heaps.is_empty());
    });
}

/// Functions are found by name, and the error for a wrong name lists the right ones.
///
/// Guarantee: applets/results
#[test]
fn wrong_function_name_is_answered_with_the_right() {
    with_each(|_, path| {
        let applet = spawn(path);
        assert!(applet.functions().contains(&"echo".to_owned()));
        let error = applet.call("ehco", b"").unwrap_err();
        assert!(
            matches!(&error, CallError::UnknownFunction { known, .. } if known.len() > 20),
            "{error}"
        );
        assert!(error.to_string().contains("\"echo\""), "{error}");
        assert_eq!(applet.call("echo", b"x").unwrap(), b"x");
    });
}

/// A failure has the function's code and text without control characters, and the applet continues.
///
/// Guarantee: applets/results
#[test]
fn failure_has_code_and_escaped_text() {
    with_each(|_, path| {
        let applet = spawn(path);
        for _ in 0..3 {
            let error = applet.call("fail", b"").unwrap_err();
            let CallError::Failed { code, message } = &error else { panic!("{error}") };
            assert_eq!((*code, message.as_str()), (42, "as it was asked to\u{fffd}[31m"));
        }
        assert_eq!(applet.call("echo", b"x").unwrap(), b"x");
    });
}

/// A streamed result arrives part by part, and whole for a caller that does not stream.
///
/// Guarantee: applets/streams
#[test]
fn streamed_result_arrives_in_parts_or_whole() {
    with_each(|_, path| {
        let applet = spawn(path);
        let parts: Vec<Vec<u8>> = applet
            .stream(Call::new("parts", &100_u64.to_le_bytes()))
            .unwrap()
            .map(|part| part.unwrap().bytes)
            .collect();
        assert_eq!(parts.len(), 101);
        assert_eq!(parts[7], 7_u64.to_le_bytes());
        assert_eq!(applet.call("parts", &100_u64.to_le_bytes()).unwrap(), parts.concat());
        // More than a ring holds, so that the applet has to wait.
        let count = applet.stream(Call::new("parts", &20_000_u64.to_le_bytes())).unwrap().count();
        assert_eq!(count, 20_001);
    });
}

/// What one message holds.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// An input too large for a message is refused before it is sent, and the applet continues.
///
/// Guarantee: applets/message-size
/// Guarantee: applets/results
#[test]
fn oversized_input_is_refused_before_sending() {
    with_each(|_, path| {
        let applet = spawn(path);
        let mut input = vec![7; MESSAGE_BYTES_MAX as usize + 1];
        let refused = applet.call("echo", &input).unwrap_err();
        let CallError::InputTooLarge { bytes, limit_bytes } = &refused else { panic!("{refused}") };
        assert_eq!(
            (*bytes as u64, *limit_bytes as u64),
            (MESSAGE_BYTES_MAX + 1, MESSAGE_BYTES_MAX)
        );
        assert!(refused.to_string().contains("shared buffer"), "{refused}");
        input.pop();
        assert!(applet.call("echo", &input).unwrap() == input);
        assert!(applet.stream(Call::new("echo", &[0; 10])).unwrap().all(|part| part.is_ok()));
        assert_eq!(applet.metrics().calls, 2);
    });
}

/// A result too large for a message is an error in the function, and the applet continues.
///
/// Guarantee: applets/message-size
/// Guarantee: applets/results
#[test]
fn oversized_result_is_an_error_in_the_function() {
    with_each(|_, path| {
        let mut limits = Limits::default();
        limits.result_bytes = 100 << 20;
        let applet = spawn_with(path, limits);
        for function in ["large", "large_part"] {
            let failed = ask(&applet, function, MESSAGE_BYTES_MAX + 1).unwrap_err();
            let CallError::Failed { message, .. } = &failed else { panic!("{function}: {failed}") };
            assert!(message.contains("64 MiB"), "{message}");
            let whole = applet.call(function, &MESSAGE_BYTES_MAX.to_le_bytes()).unwrap();
            assert!(whole.len() as u64 == MESSAGE_BYTES_MAX);
        }
        let failed = ask(&applet, "large_failure", MESSAGE_BYTES_MAX + 1).unwrap_err();
        let CallError::Failed { message, .. } = &failed else {
            panic!("its death is told in 64 MiB")
        };
        assert!(message.len() <= 64 << 10 && message.starts_with("xxx"), "{} bytes", message.len());
        assert_eq!(applet.call("echo", b"x").unwrap(), b"x");
    });
}

/// A result beyond its limit is refused; the same result as a stream is not.
///
/// Guarantee: applets/streams
#[test]
fn result_limit_does_not_apply_to_streams() {
    with_each(|_, path| {
        let mut limits = Limits::default();
        limits.result_bytes = 1 << 20;
        limits.grace = Duration::from_secs(10);
        let applet = spawn_with(path, limits);
        let one = applet.call("large", &2_000_000_u64.to_le_bytes());
        assert!(matches!(one, Err(CallError::ResultTooLarge { .. })), "{one:?}");
        assert_eq!(applet.call("large", &1_000_000_u64.to_le_bytes()).unwrap().len(), 1_000_000);
        let over = 100_000_u64 * 2;
        let refused = applet.call("parts", &over.to_le_bytes());
        assert!(
            matches!(refused, Err(CallError::ResultTooLarge { limit_bytes: 1_048_576 })),
            "{refused:?}"
        );
        assert_eq!(applet.call("echo", b"it lives").unwrap(), b"it lives");
        // Each part has room, and all of them together have; but not what is returned then.
        let refused = applet.call("parts", &131_072_u64.to_le_bytes());
        assert!(matches!(refused, Err(CallError::ResultTooLarge { .. })), "{refused:?}");
        assert_eq!(
            applet.stream(Call::new("parts", &over.to_le_bytes())).unwrap().count(),
            200_001
        );
    });
}

/// While a thread has a stream open, its other requests are answered or refused as busy.
///
/// Guarantee: applets/busy
#[test]
fn applet_with_open_stream_is_busy() {
    with_each(|_, path| {
        let applet = spawn(path);
        let mut stream = applet.stream(Call::new("parts", &3_u64.to_le_bytes())).unwrap();
        assert!(stream.next().unwrap().is_ok());
        assert!(matches!(applet.call("echo", b"x"), Err(CallError::Busy)));
        assert!(matches!(applet.stream(Call::new("echo", b"x")).err(), Some(CallError::Busy)));
        assert!(matches!(applet.respawn(), Err(error) if matches!(error.failure, Failure::Busy)));
        assert!(!applet.functions().is_empty() && applet.cause_of_death().is_none());
        assert_eq!(applet.metrics().calls, 1);
        assert!(applet.buffer(1).is_ok());
        assert_eq!(stream.by_ref().filter(Result::is_ok).count(), 3);
        assert_eq!(applet.call("echo", b"x").unwrap(), b"x");
        drop(stream);
    });
}

/// Calls from many threads take turns, and each gets its own result.
///
/// Guarantee: applets/threads
#[test]
fn calls_from_many_threads_get_their_own_results() {
    with_each(|_, path| {
        let applet = Arc::new(spawn(path));
        let callers: Vec<_> = (0..8_u64)
            .map(|caller| {
                let applet = applet.clone();
                thread::spawn(move || {
                    for call in 0..200_u64 {
                        let input = (caller << 32 | call).to_le_bytes();
                        assert_eq!(applet.call("echo", &input).unwrap(), input);
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.join().unwrap();
        }
        assert_eq!(applet.metrics().calls, 1600);
    });
}

/// Guarantee: applets/threads
#[test]
fn many_applets_work_at_once_from_many_threads() {
    with_each(|_, path| {
        let workers: Vec<_> = (0..6_u64)
            .map(|worker| {
                let path = path.clone();
                thread::spawn(move || {
                    for round in 0..3 {
                        let applet = spawn(path.clone());
                        let input = (worker << 8 | round).to_le_bytes();
                        for _ in 0..100 {
                            assert_eq!(applet.call("echo", &input).unwrap(), input);
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

/// A shared buffer is processed in place and belongs to one applet.
///
/// Guarantee: applets/buffers
#[test]
fn shared_buffer_is_used_in_place_by_one_applet() {
    with_each(|_, path| {
        let applet = spawn(path.clone());
        let buffer = applet.buffer(1_000_000).unwrap();
        assert!(buffer.to_vec().iter().all(|byte| *byte == 0));
        buffer.write(0, b"abc").unwrap();
        for _ in 0..2 {
            let size = applet.call_with_buffer("increment", b"", &buffer).unwrap();
            assert_eq!(size, 1_000_000_u64.to_le_bytes());
        }
        assert_eq!(buffer.to_vec()[..4], *b"cde\x02");
        assert!(buffer.write(999_999, b"xx").is_err());
        let other = spawn(path);
        let foreign = other.call_with_buffer("increment", b"", &buffer);
        assert!(matches!(foreign, Err(CallError::ForeignBuffer)), "{foreign:?}");
        assert!(matches!(applet.call("increment", b""), Err(CallError::Failed { .. })));
        let refused = applet.buffer(1 << 30).unwrap_err();
        assert!(refused.to_string().contains("buffer_bytes"), "{refused}");
    });
}

/// The output of an applet is captured, and its cost is counted.
#[test]
fn applet_output_and_cost_are_recorded() {
    with_each(|_, path| {
        let applet = spawn(path);
        applet.call("write_output", b"hello").unwrap();
        let response = applet.call_with(Call::new("echo", &[7; 1000])).unwrap();
        assert_eq!(
            (response.bytes.len(), response.metrics.messages, response.metrics.message_bytes),
            (1000, 2, 2000)
        );
        assert!(response.metrics.wall_time < Duration::from_secs(5));
        let closed = applet.close().unwrap();
        assert_eq!(closed.stdout, b"hello");
        assert_eq!(closed.metrics.calls, 2);
        assert!(closed.metrics.peak_memory_bytes > 0 && closed.metrics.cpu_time > Duration::ZERO);
    });
}

/// Output beyond its limit is taken and dropped; the applet serves on, and its host learns of it.
///
/// Guarantee: applets/captured-output
#[test]
fn output_beyond_its_limit_is_dropped_and_reported() {
    with_each(|_, path| {
        let text: Vec<u8> = (0..50_000_u32).map(|at| (at % 251) as u8).collect();
        let start = |limit_bytes| {
            let command = Command::new(path.clone(), Grants::none());
            command.stdio(Stdio::capture(limit_bytes)).spawn().unwrap()
        };
        for (limit_bytes, is_truncated) in [(100_000, false), (70_000, true)] {
            let applet = start(limit_bytes);
            for _ in 0..2 {
                applet.call("write_output", &text).unwrap();
            }
            assert_eq!(applet.call("echo", b"x").unwrap(), b"x");
            let closed = applet.close().unwrap();
            let written = text.repeat(2);
            assert!(closed.stdout == written[..limit_bytes], "{} bytes", closed.stdout.len());
            assert_eq!(closed.is_output_truncated, is_truncated);
        }
        for (limit_bytes, is_truncated) in [(50_000, false), (40_000, true)] {
            let applet = start(limit_bytes);
            applet.call("write_output", &text).unwrap();
            let error = death(applet.call("crash", b""));
            assert!(error.stdout == text[..limit_bytes], "{} bytes", error.stdout.len());
            assert_eq!(error.is_output_truncated, is_truncated);
        }
    });
}

/// An applet that never serves is refused, and the error says what to do.
///
/// Guarantee: applets/run-or-call
/// Guarantee: programs/python-run
#[test]
fn applet_that_never_serves_is_refused() {
    with_each(|_, path| {
        let grants = Grants::none().arg("--never-serve");
        let Err(error) = Applet::spawn(path, Limits::default(), grants) else {
            panic!("it serves")
        };
        assert!(error.to_string().contains("holdfast_serve"), "{error}");
    });
}

#[test]
fn a_quiet_applet_costs_nothing_while_it_waits() {
    with_each(|_, path| {
        let applet = spawn(path);
        applet.call("echo", b"x").unwrap();
        let before = applet.metrics().cpu_time;
        thread::sleep(Duration::from_millis(300));
        let spent = applet.metrics().cpu_time.saturating_sub(before);
        assert!(spent < Duration::from_millis(100), "{spent:?}");
        let started = Instant::now();
        applet.call("echo", b"x").unwrap();
        assert!(started.elapsed() < Duration::from_secs(5));
    });
}

/// An applet that uses the library reads a file in a granted directory.
///
/// Guarantee: applets/native-files
#[test]
fn library_applet_reads_a_granted_file() {
    with_each(|kind, path| {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("greeting"), "hello").unwrap();
        let home = crate::Home::new();
        let host = directory.path().to_owned();
        let grant = holdfast_applet::DirGrant {
            host,
            guest: "/in".to_owned(),
            access: holdfast_applet::PathAccess::ReadOnly,
        };
        let grants = Grants::none().heap(home.region()).dir(grant);
        let applet = Applet::spawn(path, Limits::default(), grants).unwrap();
        assert_eq!(ask(&applet, "count", 0).unwrap(), 1);
        for _ in 0..3 {
            assert_eq!(applet.call("read_file", b"/in/greeting").unwrap(), b"hello", "{kind}");
        }
        assert_eq!(ask(&applet, "count", 0).unwrap(), 2);
    });
}
