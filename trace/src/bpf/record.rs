//! Records of the programs in the kernel, as events.

use zerocopy::FromBytes;

use super::layout::{
    CALL_HAS_ALL_ARGUMENTS, CALL_HAS_PARTS, CALL_RESTARTED, CALL_UNFINISHED, CallHead, END_BY_EXEC,
    KIND_BEGAN, KIND_CALL, KIND_ENDED, KIND_EXEC, KIND_IO_URING, KIND_SIGNAL, KIND_TIME, Parts,
    ThreadRecord,
};
use crate::{Abi, Call, End, Event, Object, Split};

/// Gives the events of a record to `sink`. A record that is none, which cannot be, is passed over
/// and said to be lost.
pub(super) fn decode(record: &[u8], sink: &mut dyn FnMut(Event)) {
    let known = match record.first() {
        Some(&KIND_CALL) => decode_calls(record, sink),
        Some(_) => ThreadRecord::read_from_prefix(record)
            .ok()
            .and_then(|(thread, _)| decode_thread(&thread, sink)),
        None => None,
    };
    if known.is_none() {
        sink(Event::Lost { events: 1 });
    }
}

/// One call after another of a thread; each says how long it is.
fn decode_calls(mut rest: &[u8], sink: &mut dyn FnMut(Event)) -> Option<()> {
    while !rest.is_empty() {
        let call;
        (call, rest) = decode_call(rest).filter(|_| rest[0] == KIND_CALL)?;
        sink(Event::Call(call));
    }
    Some(())
}

/// The first call, and what follows it.
fn decode_call(record: &[u8]) -> Option<(Call, &[u8])> {
    let (head, mut rest) = CallHead::read_from_prefix(record).ok()?;
    let mut parts: Parts = [0; 4];
    let mut more_arguments = [0_u64; 3];
    if head.flags & CALL_HAS_PARTS != 0 {
        (parts, rest) = Parts::read_from_prefix(rest).ok()?;
    }
    if head.flags & CALL_HAS_ALL_ARGUMENTS != 0 {
        (more_arguments, rest) = FromBytes::read_from_prefix(rest).ok()?;
    }
    let [first, second, third] = head.arguments;
    let [fourth, fifth, sixth] = more_arguments;
    let [sleep_ns, wait_ns, io_wait_ns, queue_ns] = parts;
    let off_ns = parts.into_iter().fold(0, u64::saturating_add);
    let abi = match head.abi {
        0 => Abi::X86_64,
        1 => Abi::I386,
        _ => Abi::X32,
    };
    let call = Call {
        process: head.process,
        thread: head.thread,
        abi,
        number: head.number,
        arguments: [first, second, third, fourth, fifth, sixth],
        result: (head.flags & CALL_UNFINISHED == 0).then_some(head.result),
        start_ns: head.start_ns,
        time: Split {
            // The clock is read before the record is made, and on a kernel that preempts the thread
            // may leave the CPU in between: the call lasts longer then. And two CPUs read the
            // clock, so that a difference may be a little too small.
            wall_ns: head.wall_ns.max(off_ns),
            cpu_ns: head.wall_ns.saturating_sub(off_ns),
            sleep_ns,
            wait_ns,
            io_wait_ns,
            queue_ns,
        },
        object: object(head.object),
        restarted: head.flags & CALL_RESTARTED != 0,
    };
    Some((call, rest))
}

fn object(code: u8) -> Object {
    match code {
        0 => Object::None,
        2 => Object::File,
        3 => Object::Directory,
        4 => Object::BlockDevice,
        5 => Object::CharacterDevice,
        6 => Object::Terminal,
        7 => Object::Pipe,
        8 => Object::Socket,
        9 => Object::EventFd,
        10 => Object::TimerFd,
        11 => Object::SignalFd,
        12 => Object::Epoll,
        13 => Object::Notify,
        14 => Object::PidFd,
        15 => Object::IoUring,
        16 => Object::Anonymous,
        17 => Object::Other,
        _ => Object::Unknown,
    }
}

fn decode_thread(record: &ThreadRecord, sink: &mut dyn FnMut(Event)) -> Option<()> {
    let ThreadRecord { at_ns, process, thread, .. } = *record;
    let command = || {
        let name = record.command.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    };
    match record.kind {
        KIND_BEGAN => {
            sink(Event::Began { at_ns, process, thread, parent: record.other, command: command() })
        }
        KIND_EXEC => {
            sink(Event::Exec { at_ns, process, former_thread: record.other, command: command() });
        }
        KIND_SIGNAL => sink(Event::Signal { at_ns, process, thread, signal: record.signal }),
        KIND_IO_URING => sink(Event::IoUring {
            at_ns,
            process,
            thread,
            opcode: record.opcode,
            count: record.cpu_ns,
        }),
        KIND_TIME | KIND_ENDED => {
            let (cpu_ns, queue_ns) = (record.cpu_ns, record.queue_ns);
            sink(Event::ThreadTime { at_ns, process, thread, cpu_ns, queue_ns });
            if record.kind == KIND_ENDED {
                sink(Event::Ended { at_ns, process, thread, end: end(record) });
            }
        }
        _ => return None,
    }
    Some(())
}

/// From the status as wait(2) has it.
fn end(record: &ThreadRecord) -> Option<End> {
    if record.how == END_BY_EXEC {
        return None;
    }
    let [low, high, ..] = record.other.to_le_bytes();
    Some(match low & 0x7f {
        0 => End::Exited(high),
        signal => End::Killed(signal),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    const CALL: CallHead = CallHead {
        kind: KIND_CALL,
        flags: 0,
        abi: 0,
        object: 7,
        number: 1,
        process: 10,
        thread: 11,
        start_ns: 1000,
        wall_ns: 100,
        result: -11,
        arguments: [1, 2, 3],
    };

    fn events(record: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        decode(record, &mut |event| events.push(event));
        events
    }

    /// A call during which its thread never leaves the CPU spends all its time on the CPU.
    #[test]
    fn uninterrupted_call_is_all_cpu_time() {
        let [Event::Call(call)] = events(CALL.as_bytes())[..] else { panic!() };
        assert_eq!(call.time, Split::of(100, 0, 0, 0, 0));
        assert_eq!(
            (call.result, call.object, call.arguments),
            (Some(-11), Object::Pipe, [1, 2, 3, 0, 0, 0])
        );
    }

    /// The flags of a record decide which parts and arguments follow its head.
    #[test]
    fn flags_decide_parts_and_arguments() {
        let flags = CALL_HAS_PARTS | CALL_HAS_ALL_ARGUMENTS | CALL_UNFINISHED | CALL_RESTARTED;
        let mut record = CallHead { flags, ..CALL }.as_bytes().to_vec();
        record.extend([10_u64, 20, 30, 15].as_bytes());
        record.extend([4_u64, 5, 6].as_bytes());
        let [Event::Call(call)] = events(&record)[..] else { panic!() };
        assert_eq!(call.time, Split::of(25, 10, 20, 30, 15));
        assert_eq!((call.result, call.restarted, call.arguments), (None, true, [1, 2, 3, 4, 5, 6]));
        record.truncate(100);
        assert_eq!(events(&record), [Event::Lost { events: 1 }]);
    }

    /// Calls that a thread sent together come out one by one, in their order; what follows the last
    /// whole one is lost, and counted.
    ///
    /// Guarantee: trace/every-call
    #[test]
    fn calls_sent_together_come_out_in_order() {
        let calls = [1, 2, 3].map(|number| CallHead { number, ..CALL });
        let numbers = |events: &[Event]| {
            let number = |event: &Event| match event {
                Event::Call(call) => Some(call.number),
                _ => None,
            };
            events.iter().map(number).collect::<Vec<_>>()
        };
        let mut record = calls.as_bytes().to_vec();
        assert_eq!(numbers(&events(&record)), [Some(1), Some(2), Some(3)]);
        record.pop();
        assert_eq!(numbers(&events(&record)), [Some(1), Some(2), None]);
        let mut record = calls.as_bytes().to_vec();
        record[size_of::<CallHead>()] = KIND_SIGNAL;
        assert_eq!(numbers(&events(&record)), [Some(1), None]);
    }

    /// A call whose thread is preempted while its exit is recorded has a length equal to the sum of
    /// its parts.
    #[test]
    fn preempted_call_lasts_as_long_as_its_parts() {
        let flags = CALL_HAS_PARTS;
        let mut record = CallHead { flags, ..CALL }.as_bytes().to_vec();
        record.extend([0_u64, 0, 0, 700].as_bytes());
        let [Event::Call(call)] = events(&record)[..] else { panic!() };
        assert_eq!((call.time.wall_ns, call.time.cpu_ns, call.time.queue_ns), (700, 0, 700));
    }

    /// A thread that queues operations for hours reports more than 32 bits of them.
    ///
    /// Guarantee: trace/io-uring
    #[test]
    fn more_operations_than_32_bits_are_counted() {
        let count = (1_u64 << 32) + 7;
        let record = ThreadRecord {
            kind: KIND_IO_URING,
            how: 0,
            signal: 0,
            opcode: 22,
            other: 0,
            process: 10,
            thread: 11,
            at_ns: 5,
            cpu_ns: count,
            queue_ns: 0,
            command: [0; 16],
        };
        let expected = Event::IoUring { at_ns: 5, process: 10, thread: 11, opcode: 22, count };
        assert_eq!(events(record.as_bytes()), [expected]);
    }

    #[test]
    fn the_end_of_a_thread_is_told_with_its_time() {
        let mut record = ThreadRecord {
            kind: KIND_ENDED,
            how: 0,
            signal: 0,
            opcode: 0,
            other: 9,
            process: 10,
            thread: 11,
            at_ns: 5,
            cpu_ns: 6,
            queue_ns: 7,
            command: [0; 16],
        };
        let ended = |end| Event::Ended { at_ns: 5, process: 10, thread: 11, end };
        let time = Event::ThreadTime { at_ns: 5, process: 10, thread: 11, cpu_ns: 6, queue_ns: 7 };
        assert_eq!(events(record.as_bytes()), [time.clone(), ended(Some(End::Killed(9)))]);
        record.other = 3 << 8;
        assert_eq!(events(record.as_bytes()), [time.clone(), ended(Some(End::Exited(3)))]);
        record.how = END_BY_EXEC;
        assert_eq!(events(record.as_bytes()), [time, ended(None)]);
    }
}
