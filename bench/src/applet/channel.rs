//! Section `channel`: calls to another process, and data in shared buffers, beside a bare futex and
//! a socket.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_channel::protocol::{AppletMessage, HostMessage};
use holdfast_channel::wait::Deadline;
use holdfast_channel::{
    ArenaBuffer, ChannelError, ChannelMemory, Endpoint, Handle, Header, HostWait, Layout, SliceSink,
};

use super::futex::PingPong;
use super::other_side::{OtherSide, descriptor};
use super::processors::Placement;
use super::socket::Socket;
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};

/// Serves calls, spinning as long as the channel allows.
pub(crate) const ROLE_SPIN: &str = "channel";
/// Serves calls, sleeping until each.
pub(crate) const ROLE_SLEEP: &str = "channel-asleep";

const SPINNING: &str = "channel, spinning";
const SLEEPING: &str = "channel, sleeping";
const FUTEX: &str = "futex";
const WORD: &str = "word";
const SOCKET: &str = "socket";
const BUFFER: &str = "buffer";

/// A round trip takes less than a microsecond, or some.
const SPIN_TRIPS: u32 = 20_000;
const SLEEP_TRIPS: u32 = 1_000;
/// Rounds of sleeping sides for each run: what else the machine does falls into some of them.
const SLEEP_SLICES: usize = 4;
/// Where sleeping sides run, the keys of that, and whether the goals are for it.
const PLACEMENTS: [(Placement, [&str; 3], bool); 3] = [
    (
        Placement::Together,
        ["call_sleep_us", "call_sleep_vs_futex", "call_sleep_vs_seqpacket"],
        true,
    ),
    (
        Placement::Apart,
        ["call_sleep_apart_us", "call_sleep_apart_vs_futex", "call_sleep_apart_vs_seqpacket"],
        false,
    ),
    (
        Placement::Free,
        ["call_sleep_free_us", "call_sleep_free_vs_futex", "call_sleep_free_vs_seqpacket"],
        false,
    ),
];
const PIECE_BYTES: usize = 1 << 20;
const PIECES: usize = 100;
/// No answer takes that long.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// The only exports: the answer to a call is its input; or the last byte of its buffer, when all of
/// it was read.
const ECHO: u32 = 0;
const READ: u32 = 1;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let mut spinning = Caller::start(ROLE_SPIN)?;
    let mut socket = Socket::start()?;
    let sides = vec![
        Side::new(SPINNING, || spinning.round_trip_us(Placement::Apart, SPIN_TRIPS)),
        // It spins as long as it is there, and so is there only now.
        Side::new(WORD, || PingPong::start(true)?.round_trip_us(Placement::Apart, SPIN_TRIPS)),
        Side::new(SOCKET, || socket.round_trip_us(Placement::Apart, SLEEP_TRIPS)),
    ];
    let times = race(runs, sides)?;
    outcome.add("call_spin_us", times.of(SPINNING).cloned(), "us", Some(Goal::AtMost(0.5)));
    outcome.add("call_spin_vs_word", times.ratio(SPINNING, WORD), "x", None);
    outcome.add("call_spin_vs_seqpacket", times.ratio(SOCKET, SPINNING), "x", None);
    asleep(runs, outcome)?;
    let mut writer = Writer::start()?;
    let times = race(runs, vec![Side::new(BUFFER, || writer.gigabytes_per_s())])?;
    outcome.add("throughput_gbps", times.of(BUFFER).cloned(), "GB/s", None);
    Ok(())
}

/// Sides that sleep until each message. Where they run decides more than what they do, so each
/// placement is a race of its own.
fn asleep(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let mut channel = Caller::start(ROLE_SLEEP)?;
    channel.host.waiter().set_spin_ns_max(0);
    let mut futex = PingPong::start(false)?;
    let mut socket = Socket::start()?;
    for (placement, [call_us, vs_futex, vs_seqpacket], has_goals) in PLACEMENTS {
        let sides = vec![
            Side::new(SLEEPING, || channel.round_trip_us(placement, SLEEP_TRIPS)),
            Side::new(FUTEX, || futex.round_trip_us(placement, SLEEP_TRIPS)),
            Side::new(SOCKET, || socket.round_trip_us(placement, SLEEP_TRIPS)),
        ];
        let times = race(runs * SLEEP_SLICES, sides)?;
        let goal = |goal| has_goals.then_some(goal);
        outcome.add(call_us, times.of(SLEEPING).cloned(), "us", None);
        outcome.add(vs_futex, times.ratio(SLEEPING, FUTEX), "x", goal(Goal::AtMost(1.5)));
        outcome.add(vs_seqpacket, times.ratio(SOCKET, SLEEPING), "x", goal(Goal::AtLeast(1.5)));
    }
    Ok(())
}

fn failed(error: ChannelError) -> io::Error {
    io::Error::other(error)
}

/// The measuring side.
pub(crate) struct Caller {
    host: Endpoint<HostWait>,
    memory: Arc<ChannelMemory>,
    other: OtherSide,
}

impl Caller {
    pub(crate) fn start(role: &str) -> io::Result<Caller> {
        let memory =
            ChannelMemory::create(Layout::default(), &[], true).map_err(io::Error::other)?;
        let (host, _) = memory.host().ok_or(io::ErrorKind::InvalidInput)?;
        let other = OtherSide::start(role, memory.descriptor()?)?;
        Ok(Caller { host, memory, other })
    }

    fn begin(&mut self, index: u32, buffer: Handle, input: &[u8]) -> io::Result<()> {
        let message = HostMessage::Call { call: 1, index, buffer, time_ns: 0 };
        self.host.send(&message.into(), input, Deadline::NEVER).map_err(failed)
    }

    fn finish(&mut self, deadline: Deadline) -> io::Result<[u8; 8]> {
        let mut answer = [0; 8];
        self.host.receive(&mut SliceSink::new(&mut answer), 8, deadline).map_err(failed)?;
        Ok(answer)
    }

    /// Microseconds for a call with 8 bytes of input and of result.
    pub(crate) fn round_trip_us(&mut self, placement: Placement, trips: u32) -> io::Result<f64> {
        let _kept = placement.hold(self.other.pid())?;
        let deadline = self.host.deadline_in(ANSWER_TIME);
        let started = Instant::now();
        for trip in 0..trips {
            let input = u64::from(trip).to_le_bytes();
            self.begin(ECHO, Handle::default(), &input)?;
            if self.finish(deadline)? != input {
                return Err(io::Error::other("the channel's answer is wrong"));
            }
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(trips))
    }
}

/// Two shared buffers in turns: one is written while the other one is read.
struct Writer {
    caller: Caller,
    buffers: [ArenaBuffer; 2],
    source: Vec<u8>,
}

impl Writer {
    fn start() -> io::Result<Writer> {
        let caller = Caller::start(ROLE_SPIN)?;
        let buffer = || caller.memory.buffer(PIECE_BYTES as u64).map_err(io::Error::other);
        let buffers = [buffer()?, buffer()?];
        Ok(Writer { caller, buffers, source: vec![7; PIECE_BYTES] })
    }

    fn gigabytes_per_s(&mut self) -> io::Result<f64> {
        let _kept = Placement::Apart.hold(self.caller.other.pid())?;
        let deadline = self.caller.host.deadline_in(ANSWER_TIME);
        let started = Instant::now();
        for piece in 0..=PIECES {
            let last = (piece % 251) as u8;
            if piece < PIECES {
                self.source[PIECE_BYTES - 1] = last;
                self.buffers[piece % 2].copy_in(0, &self.source).map_err(io::Error::other)?;
            }
            if piece > 0 && self.caller.finish(deadline)?[0] != ((piece - 1) % 251) as u8 {
                return Err(io::Error::other(
                    "the other side has read something else than was written",
                ));
            }
            if piece < PIECES {
                self.caller.begin(READ, self.buffers[piece % 2].handle(), &[])?;
            }
        }
        Ok((PIECES * PIECE_BYTES) as f64 / 1e9 / started.elapsed().as_secs_f64())
    }
}

/// The other side.
pub(crate) fn serve(spins: bool) -> io::Result<()> {
    let memory = ChannelMemory::open(descriptor()?).map_err(io::Error::other)?;
    let (mut applet, _) = memory.applet().ok_or(io::ErrorKind::InvalidInput)?;
    if !spins {
        applet.waiter().set_spin_ns_max(0);
    }
    let mut piece = vec![0; PIECE_BYTES];
    let mut input = [0; 8];
    loop {
        let mut sink = SliceSink::new(&mut input);
        let header = applet.receive(&mut sink, 8, Deadline::NEVER).map_err(failed)?;
        let HostMessage::Call { call, index, buffer, .. } =
            HostMessage::parse(&header).map_err(io::Error::other)?
        else {
            return Ok(());
        };
        if index == READ {
            let shared = memory.given(buffer).ok_or(io::ErrorKind::InvalidInput)?;
            shared.copy_out(0, &mut piece).map_err(io::Error::other)?;
            input = [piece[PIECE_BYTES - 1]; 8];
        }
        let done = Header::from(AppletMessage::Result { call });
        applet.send(&done, &input, Deadline::NEVER).map_err(failed)?;
    }
}
