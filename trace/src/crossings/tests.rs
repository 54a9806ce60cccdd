//! A made-up host with two applets, whose numbers are known, and what becomes of records that lie.

use holdfast_crossings::{Answer, AppletKind as RecordedKind, Record, frame};
use proptest::prelude::*;

use super::document::{AppletKind, Crossed, Function, Gate, RunPart};
use super::*;
use crate::classes::Scheme;
use crate::report::Look;
use crate::{Abi, Call, Event, Object, Split};

const HOST: u32 = 100;
const SUPERVISOR: u32 = 101;
const NATIVE: u32 = 200;
const WRITE: u32 = 1;
const CLOSE: u32 = 3;
const IOCTL: u32 = 16;
const OPENAT: u32 = 257;

fn call(process: u32, thread: u32, number: u32, start_ns: u64, wall_ns: u64) -> Event {
    Event::Call(Call {
        process,
        thread,
        abi: Abi::X86_64,
        number,
        arguments: [0; 6],
        result: Some(0),
        start_ns,
        time: Split::of(wall_ns, 0, 0, 0, 0),
        object: Object::File,
        restarted: false,
    })
}

fn name(number: u32, text: &str) -> Record {
    Record::Name { number, text: text.to_owned() }
}

/// A WebAssembly applet that is called twice: first it crosses twice, then once; and it is
/// suspended in between.
fn wasm() -> Vec<Record> {
    let crossing = |name, start_ns, end_ns| Record::Crossing {
        applet: 1,
        name,
        thread: HOST,
        start_ns,
        end_ns,
    };
    vec![
        name(0, "one.wasm"),
        Record::Applet { applet: 1, kind: RecordedKind::Wasm, name: 0, at_ns: 50 },
        name(1, "serve"),
        name(2, "fd_write"),
        name(3, "send"),
        crossing(2, 120, 140),
        Record::Turn { applet: 1, thread: HOST, start_ns: 110, end_ns: 200 },
        Record::Call { applet: 1, name: 1, thread: HOST, start_ns: 100, end_ns: 220 },
        // Suspended at 200, in the first call; it goes on in the second one.
        crossing(3, 180, 320),
        crossing(2, 330, 340),
        Record::Own { thread: HOST, start_ns: 345, end_ns: 347 },
        Record::Turn { applet: 1, thread: HOST, start_ns: 310, end_ns: 390 },
        Record::Call { applet: 1, name: 1, thread: HOST, start_ns: 300, end_ns: 400 },
    ]
}

/// A native applet that the host is asked about once, and that asks the host for more memory by
/// message.
fn native() -> Vec<Record> {
    vec![
        name(10, "./two"),
        Record::Applet { applet: 2, kind: RecordedKind::Native, name: 10, at_ns: 450 },
        Record::Process { applet: 2, process: NATIVE, at_ns: 500 },
        name(11, "grow"),
        name(12, "main"),
        Record::Question {
            applet: 2,
            thread: SUPERVISOR,
            asked_by: NATIVE,
            number: OPENAT,
            answer: Answer::Allowed,
            start_ns: 520,
            end_ns: 530,
        },
        Record::Crossing { applet: 2, name: 11, thread: HOST, start_ns: 550, end_ns: 560 },
        Record::Call { applet: 2, name: 12, thread: HOST, start_ns: 500, end_ns: 600 },
    ]
}

/// System calls around that; `asked_ns` is when the one was entered that the supervisor was asked
/// about.
fn calls(asked_ns: u64) -> Vec<Event> {
    vec![
        // Before and after all calls, between them, and of a thread that calls nothing.
        call(HOST, HOST, OPENAT, 10, 5),
        call(HOST, HOST, CLOSE, 230, 5),
        call(HOST, 103, IOCTL, 350, 5),
        call(HOST, HOST, CLOSE, 700, 5),
        // In crossings; in the applet's time and no crossing; in the call and not in the applet's
        // time.
        call(HOST, HOST, WRITE, 130, 5),
        call(HOST, HOST, WRITE, 335, 2),
        call(HOST, HOST, IOCTL, 150, 3),
        call(HOST, HOST, CLOSE, 210, 3),
        // In the record's own time.
        call(HOST, HOST, WRITE, 346, 1),
        // The applet's process: before it is the program, let through by the filter, asked about.
        call(NATIVE, NATIVE, CLOSE, 470, 5),
        call(NATIVE, NATIVE, WRITE, 505, 5),
        call(NATIVE, NATIVE, OPENAT, asked_ns, 20),
        call(HOST, SUPERVISOR, IOCTL, 521, 4),
        call(HOST, HOST, WRITE, 555, 2),
        // Of another process.
        call(900, 900, WRITE, 130, 5),
    ]
}

fn joined(events: &[Event], record: &[u8]) -> Crossings {
    let mut kept = CallsInMemory::new(Scheme::Paper);
    events.iter().for_each(|event| kept.add(event));
    kept.join(&mut &*record)
}

fn whole() -> Vec<u8> {
    frame(HOST, 0, true, &[wasm(), native()].concat())
}

/// A view with everything in it, of an applet and a function of this name.
pub(crate) fn sample(text: &str) -> Crossings {
    let mut records = [wasm(), native()].concat();
    records[0] = name(0, text);
    records[2] = name(1, text);
    joined(&calls(515), &frame(HOST, 3, false, &records))
}

fn function<'a>(crossings: &'a Crossings, kind: AppletKind, name: &str) -> &'a Function {
    let applet = crossings.applets.iter().find(|applet| applet.kind == kind).unwrap();
    applet.functions.iter().find(|function| function.name == name).unwrap()
}

fn crossed<'a>(function: &'a Function, name: &str, by: Gate) -> &'a Crossed {
    function.crossed.iter().find(|row| row.name == name && row.by == by).unwrap()
}

/// Every system call in the view, wherever it is.
fn told(crossings: &Crossings) -> u64 {
    let functions = crossings.applets.iter().flat_map(|applet| &applet.functions);
    let of_function = |function: &Function| {
        let by_filter = function.crossed.iter().filter(|row| row.by == Gate::Filter);
        function.kernel_calls + by_filter.map(|row| row.crossings).sum::<u64>()
    };
    let outside = crossings.outside.iter().map(|row| row.kernel_calls).sum::<u64>();
    functions.map(of_function).sum::<u64>() + outside + crossings.own_calls + crossings.other_calls
}

/// Each system call is assigned to the crossing, the call, or the time outside in which it was
/// made.
///
/// Guarantee: trace/crossings
/// Guarantee: trace/crossings-damage
#[test]
fn each_system_call_has_one_place() {
    // By ptrace a call that is asked about begins before the question, by BPF after the answer.
    for asked_ns in [515, 531] {
        let view = joined(&calls(asked_ns), &whole());
        assert_eq!(view.notes, Vec::<String>::new());
        let serve = function(&view, AppletKind::Wasm, "serve");
        assert_eq!((serve.calls, serve.crossings, serve.wall_ns), (2, 3, 220));
        assert_eq!((serve.crossings_min, serve.crossings_max), (1, 2));
        let write = crossed(serve, "fd_write", Gate::Import);
        assert_eq!((write.crossings, write.wall_ns, write.kernel[0].calls), (2, 30, 2));
        // Only while the applet was not suspended, and only within the call in which it began.
        assert_eq!((crossed(serve, "send", Gate::Import).wall_ns, serve.host.len()), (20, 2));
        let main = function(&view, AppletKind::Native, "main");
        assert_eq!((main.calls, main.crossings), (1, 3));
        assert_eq!(crossed(main, "write", Gate::Filter).wall_ns, 5);
        let asked = crossed(main, "openat", Gate::Supervisor);
        let wall_ns = if asked_ns == 515 { 20 } else { 30 };
        assert_eq!(
            (asked.crossings, asked.wall_ns, asked.kernel[0].name.as_str()),
            (1, wall_ns, "ioctl")
        );
        assert_eq!(crossed(main, "grow", Gate::Message).kernel[0].name, "write");
        let outside: Vec<_> = view.outside.iter().map(|row| (row.when, row.kernel_calls)).collect();
        assert_eq!(
            outside,
            [
                (RunPart::StartUp, 2),
                (RunPart::Between, 1),
                (RunPart::TearDown, 1),
                (RunPart::OtherThreads, 1)
            ]
        );
        assert_eq!((view.own_calls, view.other_calls), (1, 1));
        // The one that was asked about is a crossing that the host counted.
        assert_eq!(told(&view), calls(asked_ns).len() as u64 - 1);
    }
}

/// A call in a crossing that a signal interrupted and that begins again is no error.
///
/// Guarantee: trace/crossings
#[test]
fn interrupted_call_in_a_crossing_is_no_error() {
    for (result, errors) in [(-512, 0), (-514, 0), (-4, 1), (-9, 1)] {
        let mut events = calls(515);
        let Event::Call(first) = &mut events[4] else { panic!() };
        first.result = Some(result);
        let view = joined(&events, &whole());
        let serve = function(&view, AppletKind::Wasm, "serve");
        let write = crossed(serve, "fd_write", Gate::Import);
        assert_eq!((write.kernel[0].calls, write.kernel[0].errors), (2, errors), "{result}");
    }
}

/// A record that is missing, damaged, unfinished or of another process is reported; its readable
/// part counts.
///
/// Guarantee: trace/crossings-damage
#[test]
fn bad_record_is_reported_and_its_good_part_counts() {
    let none = joined(&calls(515), &[]);
    assert!(
        none.notes[0].contains("No process recorded") && none.other_calls == 15,
        "{:?}",
        none.notes
    );
    let mut cut = whole();
    cut.extend(&frame(HOST, 1, true, &wasm())[..70]);
    let cut = joined(&calls(515), &cut);
    assert!(cut.notes[0].contains("is damaged from byte"), "{:?}", cut.notes);
    assert_eq!(function(&cut, AppletKind::Wasm, "serve").crossings, 3);
    let unfinished = joined(&calls(515), &frame(HOST, 0, false, &wasm()));
    assert!(unfinished.notes[0].contains("ended before its record did"), "{:?}", unfinished.notes);
    let gap = joined(&calls(515), &frame(HOST, 7, true, &wasm()));
    assert!(gap.notes[0].contains("has gaps"), "{:?}", gap.notes);
    let elsewhere = joined(&calls(515), &frame(5, 0, true, &wasm()));
    assert!(elsewhere.notes[0].contains("PID name space"), "{:?}", elsewhere.notes);
    assert_eq!(function(&elsewhere, AppletKind::Wasm, "serve").crossings, 3);
}

/// Applet names cannot send control characters to a terminal, and no line is wider than the
/// terminal.
///
/// Guarantee: trace/crossings
#[test]
fn applet_names_are_plain_and_lines_fit() {
    let view = sample(&"\u{1b}[31mred\n\u{7}</script>".repeat(4));
    for width in [40, 60, 80, 120] {
        let text = terminal(&view, &Look { width, ..Look::default() });
        for line in text.lines() {
            assert!(
                line.chars().count() <= width && !line.chars().any(char::is_control),
                "{width}: {line:?}"
            );
        }
        let changes = CrossingChanges::of(&[Some(&view)], &[None]).unwrap();
        for line in change_terminal(&changes, &Look { width, ..Look::default() }).lines() {
            assert!(
                line.chars().count() <= width && !line.chars().any(char::is_control),
                "{width}: {line:?}"
            );
        }
    }
}

/// A comparison shows a crossing that only one side makes next to an empty column of the other
/// side.
///
/// Guarantee: trace/crossings
#[test]
fn crossings_of_one_side_only_are_compared() {
    let with = joined(&calls(515), &frame(HOST, 0, true, &wasm()));
    let mut without_writes = wasm();
    without_writes.retain(|record| !matches!(record, Record::Crossing { name: 2, .. }));
    let without = joined(&calls(515), &frame(HOST, 0, true, &without_writes));
    let changes = CrossingChanges::of(&[Some(&with)], &[Some(&without)]).unwrap();
    let row = |crossed: Option<&str>| {
        changes.rows.iter().find(|row| row.crossed.as_deref() == crossed).unwrap()
    };
    assert_eq!((row(None).a.crossings.value, row(None).b.crossings.value), (3.0, 1.0));
    assert_eq!(
        (row(None).a.crossings_per_call.value, row(None).b.crossings_per_call.value),
        (1.5, 0.5)
    );
    let write = row(Some("fd_write"));
    assert_eq!(
        (write.a.crossings.value, write.b.crossings.value, write.by),
        (2.0, 0.0, Some(Gate::Import))
    );
    let coloured = change_terminal(&changes, &Look { colour: true, ..Look::default() });
    assert!(coloured.starts_with("\n\u{1b}[1;36mCrossings\u{1b}[0m\n"), "{coloured:?}");
    let half = CrossingChanges::of(&[Some(&with)], &[None]).unwrap();
    assert!(half.notes[0].contains("Without --sandbox: 1 of 1 run of B"), "{:?}", half.notes);
    assert_eq!(CrossingChanges::of(&[None], &[None]), None);
}

fn any_record() -> impl Strategy<Value = Record> {
    let (applet, name, thread) = (0..4_u32, 0..4_u32, 100..104_u32);
    let time = 0..1000_u64;
    (0..7, applet, name, thread, time.clone(), time, any::<bool>()).prop_map(
        |(which, applet, name, thread, start_ns, end_ns, is_wasm)| match which {
            0 => Record::Call { applet, name, thread, start_ns, end_ns },
            1 => Record::Turn { applet, thread, start_ns, end_ns },
            2 => Record::Crossing { applet, name, thread, start_ns, end_ns },
            3 => Record::Own { thread, start_ns, end_ns },
            4 => Record::Process { applet, process: 200 + name, at_ns: start_ns },
            5 => Record::Question {
                applet,
                thread,
                asked_by: 200 + name,
                number: name,
                answer: Answer::Refused,
                start_ns,
                end_ns,
            },
            _ => {
                let kind = if is_wasm { RecordedKind::Wasm } else { RecordedKind::Native };
                Record::Applet { applet, kind, name, at_ns: start_ns }
            }
        },
    )
}

proptest! {
    /// For a record with any content, each system call is reported once and nothing panics.
    ///
    /// Guarantee: trace/crossings
    /// Guarantee: trace/crossings-damage
    #[test]
    fn any_record_counts_each_system_call_once(
        records in prop::collection::vec(any_record(), 0..40),
        times in prop::collection::vec((0..8_u32, 0..4_u32, 0..1000_u64, 0..500_u64), 0..60),
    ) {
        let events: Vec<_> = times.iter().map(|&(place, number, start_ns, wall_ns)| {
            let (process, thread) = if place < 4 { (HOST, 100 + place) } else { (196 + place, 196 + place) };
            call(process, thread, number, start_ns, wall_ns)
        }).collect();
        let view = joined(&events, &frame(HOST, 0, true, &records));
        // Those that the host says it was asked about are among its crossings.
        prop_assert!(told(&view) <= events.len() as u64);
        let asked = records.iter().filter(|record| matches!(record, Record::Question { .. })).count() as u64;
        prop_assert!(told(&view) + asked >= events.len() as u64);
        let _ = terminal(&view, &Look::default());
    }
}
