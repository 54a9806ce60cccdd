//! A trace with a bit of everything, for tests of the forms.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::document::{Report, Source};
use crate::summary::{Options, Summary};
use crate::{Abi, Call, End, Event, Object, Split};

/// Names that programs can have, and that no form may take for its own.
pub(crate) const EVIL: &str = "</script><b>\u{1b}[2J;\t\n\"&";

pub(crate) fn events() -> Vec<Event> {
    let mut events = Vec::new();
    let began = |process, thread, command: &str| Event::Began {
        at_ns: 1_000_000,
        process,
        thread,
        parent: 1,
        command: command.to_owned(),
    };
    events.extend([began(100, 100, "make"), began(100, 101, "make"), began(200, 200, EVIL)]);
    let mut generator = SmallRng::seed_from_u64(3);
    let mut random = |below: u64| generator.random_range(0..below);
    let numbers = [0, 1, 3, 4, 5, 7, 9, 12, 13, 41, 61, 72, 74, 202, 257, 262, 425, 100_000];
    let mut start_ns = 2_000_000;
    for index in 0..3_000 {
        let number = numbers[random(numbers.len() as u64) as usize];
        let waits = matches!(number, 7 | 61 | 202);
        let time = Split::of(
            300 + random(20_000),
            if waits { random(40_000_000) } else { 0 },
            0,
            if number == 74 { random(9_000_000) } else { 0 },
            random(4_000),
        );
        let thread = [100, 101, 200][random(3) as usize];
        events.push(Event::Call(Call {
            process: if thread == 200 { 200 } else { 100 },
            thread,
            abi: if thread == 200 && index % 7 == 0 { Abi::I386 } else { Abi::X86_64 },
            number: u32::try_from(number).unwrap(),
            arguments: [random(5); 6],
            result: Some(if random(9) == 0 { -2 } else { random(5_000) as i64 }),
            start_ns,
            time,
            object: Object::File,
            restarted: false,
        }));
        start_ns += 100_000 + time.wall_ns / 3;
    }
    events.extend([
        Event::Signal { at_ns: start_ns, process: 100, thread: 101, signal: 15 },
        Event::Call(Call {
            process: 100,
            thread: 101,
            abi: Abi::X86_64,
            number: 202,
            arguments: [0; 6],
            result: None,
            start_ns,
            time: Split::of(900, 5_000_000_000, 0, 0, 0),
            object: Object::None,
            restarted: false,
        }),
        Event::ThreadTime {
            at_ns: start_ns,
            process: 100,
            thread: 101,
            cpu_ns: 900_000_000,
            queue_ns: 5,
        },
        Event::Ended { at_ns: start_ns + 1, process: 100, thread: 101, end: Some(End::Killed(15)) },
        Event::Lost { events: 12 },
        Event::IoUring { at_ns: start_ns, process: 100, thread: 100, opcode: 22, count: 77 },
    ]);
    events
}

pub(crate) fn report() -> Report {
    let mut summary = Summary::new(Options::default());
    events().iter().for_each(|event| summary.add(event));
    Report {
        crossings: Some(crate::crossings::tests::sample(EVIL)),
        ..summary.into_report(source())
    }
}

pub(crate) fn source() -> Source {
    Source {
        backend: "bpf".to_owned(),
        version: "0.1.0".to_owned(),
        command: ["make", "-j2", EVIL].map(str::to_owned).into(),
        began_unix_ns: 1_795_276_214_000_000_000,
        lasted_ns: 12_345_678_901,
        cost_per_call_ns: Some(225),
        clock: "tsc".to_owned(),
        kernel: "6.18.0".to_owned(),
        cpus: 2,
        file_systems: vec!["/home/ada ext4 /dev/sda1".to_owned()],
        cache: "as found".to_owned(),
        notes: vec!["Waiting for devices cannot be told from other waits here.".to_owned()],
        ..Source::default()
    }
}
