//! Section `channel`: calls to another process, and data in shared buffers, beside a bare word, a
//! bare futex, a socket and a bare copy.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use holdfast_channel::hello::{HELLO_BYTES_MAX, Names};
use holdfast_channel::protocol::{AppletMessage, HostMessage};
use holdfast_channel::wait::Deadline;
use holdfast_channel::{
    ArenaBuffer, CHANNEL_FD, ChannelError, ChannelMemory, Endpoint, Handle, Header, HostWait,
    Layout, MESSAGE_BYTES_MAX, SliceSink,
};
use holdfast_jail::{Jail, JailLimits, Jailed};
use rustix::process::Pid;

use super::futex::PingPong;
use super::memcpy;
use super::other_side::{OtherSide, descriptor};
use super::processors::{Pair, Placement};
use super::socket::Socket;
use crate::race::{Side, bursts, race};
use crate::report::{Goal, Outcome};

/// Serves calls as every channel does: whether it spins, it measures.
pub(crate) const ROLE: &str = "channel";
/// Serves calls, sleeping until each.
pub(crate) const ROLE_SLEEP: &str = "channel-asleep";

const SPINNING: &str = "channel, spinning";
const SLEEPING: &str = "channel, sleeping";
const FUTEX: &str = "futex";
const WORD: &str = "word";
const SOCKET: &str = "socket";
const BUFFER: &str = "buffer";
const MEMCPY: &str = "memcpy";
const USUAL: &str = "channel, as it is";

/// A round trip takes less than a microsecond, or some.
pub(crate) const SPIN_TRIPS: u32 = 20_000;
pub(crate) const SLEEP_TRIPS: u32 = 1_000;
/// Rounds of sleeping sides for each run: what else the machine does falls into some of them.
const SLEEP_SLICES: usize = 4;
/// What a call may take of what a word takes that goes to and fro.
pub(crate) const VS_WORD: Goal = Goal::AtMost(3.0);
pub(crate) const PIECE_BYTES: usize = 1 << 20;
const PIECES: u32 = 100;
/// No answer takes that long.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// The only exports: the answer to a call is its input; or the last byte of its buffer, when all of
/// it was read.
const ECHO: u32 = 0;
const READ: u32 = 1;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let mut channel = Caller::start(ROLE)?;
    let mut socket = Socket::start()?;
    let pairs = Pair::all()?;
    if pairs.is_empty() {
        outcome.note("there is one processor, so no side can spin for another one".to_owned());
    }
    for (index, pair) in pairs.iter().enumerate() {
        outcome.note(format!("call_spin_{}_us is between {pair}", pair.relation.name()));
        let place = Placement::On(*pair);
        let sides = vec![
            Side::new(SPINNING, || channel.round_trip_us(place, SPIN_TRIPS)),
            // It spins as long as it is there, and so is there only now.
            Side::new(WORD, || PingPong::start(true)?.round_trip_us(place, SPIN_TRIPS)),
            Side::new(SOCKET, || socket.round_trip_us(place, SLEEP_TRIPS)),
        ];
        let times = race(runs, sides)?;
        let (us, vs_word) = (times.of(SPINNING), times.ratio(SPINNING, WORD));
        let key = |what| format!("call_spin_{}_{what}", pair.relation.name());
        outcome.add(key("us"), us.cloned(), "us", None);
        outcome.add(key("vs_word"), vs_word.clone(), "x", Some(VS_WORD));
        // The farthest is what a user may get.
        if index + 1 == pairs.len() {
            outcome.add("call_spin_us", us.cloned(), "us", None);
            outcome.add("call_spin_vs_word", vs_word, "x", Some(VS_WORD));
            let vs_seqpacket = times.ratio(SOCKET, SPINNING);
            outcome.add("call_spin_vs_seqpacket", vs_seqpacket, "x", None);
        }
    }
    asleep(runs, outcome, &mut channel)?;
    if let Some(pair) = pairs.last() {
        let place = Placement::On(*pair);
        let mut ours = Writer::start()?;
        let sides = vec![
            Side::new(BUFFER, || ours.gigabytes_per_s(place)),
            // It spins, too.
            Side::new(MEMCPY, || memcpy::Writer::start()?.gigabytes_per_s(place, PIECES)),
        ];
        let speeds = race(runs, sides)?;
        outcome.add("throughput_gbps", speeds.of(BUFFER).cloned(), "GB/s", None);
        let vs_memcpy = speeds.ratio(BUFFER, MEMCPY);
        outcome.add("throughput_vs_memcpy", vs_memcpy, "x", Some(Goal::AtLeast(0.8)));
    }
    Ok(())
}

/// Sides that sleep until each message, and the channel as it is, which finds out. Where they run
/// decides more than what they do, so each placement is a race of its own.
fn asleep(runs: usize, outcome: &mut Outcome, usual: &mut Caller) -> io::Result<()> {
    let mut channel = Caller::start(ROLE_SLEEP)?;
    channel.never_spin();
    let mut futex = PingPong::start(false)?;
    let mut socket = Socket::start()?;
    let apart = Placement::apart()?;
    for (place, name, has_goals) in [
        (Placement::Together, "", true),
        (apart, "_apart", false),
        (Placement::Free, "_free", false),
    ] {
        let sides = vec![
            Side::new(SLEEPING, || channel.round_trip_us(place, SLEEP_TRIPS)),
            Side::new(FUTEX, || futex.round_trip_us(place, SLEEP_TRIPS)),
            Side::new(SOCKET, || socket.round_trip_us(place, SLEEP_TRIPS)),
            Side::new(USUAL, || usual.round_trip_us(place, SLEEP_TRIPS)),
        ];
        let times = race(runs * SLEEP_SLICES, sides)?;
        let goal = |goal| has_goals.then_some(goal);
        let key = |what: &str| format!("call_sleep{name}_{what}");
        outcome.add(key("us"), times.of(SLEEPING).cloned(), "us", None);
        let vs_futex = times.ratio(SLEEPING, FUTEX);
        outcome.add(key("vs_futex"), vs_futex, "x", goal(Goal::AtMost(1.5)));
        let vs_seqpacket = times.ratio(SOCKET, SLEEPING);
        outcome.add(key("vs_seqpacket"), vs_seqpacket, "x", goal(Goal::AtLeast(1.5)));
        let key = |what: &str| format!("call_default{name}_{what}");
        outcome.add(key("us"), times.of(USUAL).cloned(), "us", None);
        let vs_sleep = times.ratio(USUAL, SLEEPING);
        outcome.add(key("vs_sleep"), vs_sleep, "x", Some(Goal::AtMost(1.1)));
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
    other: Other,
}

/// Who answers.
enum Other {
    /// This program.
    Role(OtherSide),
    /// An applet in the jail.
    Jailed(Jailed),
    /// The same program out of it.
    Unjailed(Child),
}

impl Other {
    fn pid(&self) -> io::Result<Pid> {
        match self {
            Other::Role(other) => Ok(other.pid()),
            Other::Jailed(jailed) => i32::try_from(jailed.pid())
                .ok()
                .and_then(Pid::from_raw)
                .ok_or_else(|| io::Error::other("the applet has no process")),
            Other::Unjailed(child) => Ok(Pid::from_child(child)),
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // The others end with their values.
        if let Other::Unjailed(child) = self {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Caller {
    pub(crate) fn start(role: &str) -> io::Result<Caller> {
        Caller::over(|memory| Ok(Other::Role(OtherSide::start(role, memory.descriptor()?)?)))
    }

    /// An applet whose first export is `echo`, in all layers of the jail.
    pub(crate) fn jailed(program: &Path) -> io::Result<Caller> {
        let start = |memory: &ChannelMemory| {
            let mapped_bytes = memory.layout().total_bytes();
            let mut limits = JailLimits::default();
            limits.address_space_bytes = limits.address_space_bytes.saturating_add(mapped_bytes);
            let jail = Jail::new(program).limits(limits);
            let jail = jail.descriptor(CHANNEL_FD, memory.descriptor()?);
            jail.spawn().map(Other::Jailed).map_err(io::Error::other)
        };
        Caller::over(start)?.greeted()
    }

    /// The same program on the same channel, without a jail and its filter.
    pub(crate) fn unjailed(program: &Path) -> io::Result<Caller> {
        let start = |memory: &ChannelMemory| {
            let script = format!("exec \"$0\" {CHANNEL_FD}<&0 </dev/null");
            let mut command = Command::new("sh");
            command.args(["-c", &script]).arg(program);
            command.stdin(memory.descriptor()?).stdout(Stdio::null());
            command.spawn().map(Other::Unjailed)
        };
        Caller::over(start)?.greeted()
    }

    fn over(start: impl FnOnce(&ChannelMemory) -> io::Result<Other>) -> io::Result<Caller> {
        let memory =
            ChannelMemory::create(Layout::default(), &[], true).map_err(io::Error::other)?;
        let (host, _) = memory.host().ok_or(io::ErrorKind::InvalidInput)?;
        let other = start(&memory)?;
        Ok(Caller { host, memory, other })
    }

    /// After the applet has said what it exports, it loads nothing more.
    fn greeted(mut self) -> io::Result<Caller> {
        let deadline = self.host.deadline_in(ANSWER_TIME);
        let mut payload = Vec::new();
        let header =
            self.host.receive(&mut payload, HELLO_BYTES_MAX as u64, deadline).map_err(failed)?;
        let broken = |what| io::Error::other(format!("the applet {what}"));
        let names = Names::parse(&header, &payload).map_err(broken)?;
        if names.iter().nth(ECHO as usize) != Some("echo") {
            return Err(io::Error::other("the applet's first export is not echo"));
        }
        if let Other::Jailed(jailed) = &self.other {
            jailed.seal().map_err(io::Error::other)?;
        }
        Ok(self)
    }

    /// From here on this side sleeps until each answer.
    pub(crate) fn never_spin(&self) {
        self.host.waiter().set_spin_ns_max(0);
    }

    fn begin(&mut self, index: u32, buffer: Handle, input: &[u8]) -> io::Result<()> {
        let message = HostMessage::Call { call: 1, index, buffer, time_ns: 0 };
        self.host.send(&message.into(), input, Deadline::NEVER).map_err(failed)
    }

    /// Microseconds for a call whose input and result have so many bytes.
    pub(crate) fn round_trip_of_us(
        &mut self,
        placement: Placement,
        trips: u32,
        input: &[u8],
    ) -> io::Result<f64> {
        let _kept = placement.hold(self.other.pid()?)?;
        let deadline = self.host.deadline_in(ANSWER_TIME);
        let limit_bytes = input.len() as u64;
        let mut answer = Vec::new();
        bursts(trips, || {
            self.begin(ECHO, Handle::default(), input)?;
            self.host.receive(&mut answer, limit_bytes, deadline).map_err(failed)?;
            if answer != input {
                return Err(io::Error::other("the channel's answer is wrong"));
            }
            Ok(())
        })
    }

    fn finish(&mut self, deadline: Deadline) -> io::Result<[u8; 8]> {
        let mut answer = [0; 8];
        self.host.receive(&mut SliceSink::new(&mut answer), 8, deadline).map_err(failed)?;
        Ok(answer)
    }

    /// Microseconds for a call with 8 bytes of input and of result.
    pub(crate) fn round_trip_us(&mut self, placement: Placement, trips: u32) -> io::Result<f64> {
        let _kept = placement.hold(self.other.pid()?)?;
        let deadline = self.host.deadline_in(ANSWER_TIME);
        let mut trip = 0_u64;
        bursts(trips, || {
            trip += 1;
            let input = trip.to_le_bytes();
            self.begin(ECHO, Handle::default(), &input)?;
            if self.finish(deadline)? != input {
                return Err(io::Error::other("the channel's answer is wrong"));
            }
            Ok(())
        })
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
        let caller = Caller::start(ROLE)?;
        let buffer = || caller.memory.buffer(PIECE_BYTES as u64).map_err(io::Error::other);
        let buffers = [buffer()?, buffer()?];
        Ok(Writer { caller, buffers, source: vec![7; PIECE_BYTES] })
    }

    /// Gigabytes a second, of a burst of pieces in the middle.
    fn gigabytes_per_s(&mut self, place: Placement) -> io::Result<f64> {
        let _kept = place.hold(self.caller.other.pid()?)?;
        let deadline = self.caller.host.deadline_in(ANSWER_TIME);
        let last_of = |piece: usize| (piece % 251) as u8;
        let mut piece = 0;
        let us = bursts(PIECES, || {
            self.source[PIECE_BYTES - 1] = last_of(piece);
            self.buffers[piece % 2].copy_in(0, &self.source).map_err(io::Error::other)?;
            if piece > 0 {
                self.read(piece - 1, deadline)?;
            }
            self.caller.begin(READ, self.buffers[piece % 2].handle(), &[])?;
            piece += 1;
            Ok(())
        })?;
        self.read(piece - 1, deadline)?;
        Ok(PIECE_BYTES as f64 / 1e3 / us)
    }

    /// The other side has read a piece.
    fn read(&mut self, piece: usize, deadline: Deadline) -> io::Result<()> {
        if self.caller.finish(deadline)?[0] == (piece % 251) as u8 {
            return Ok(());
        }
        Err(io::Error::other("the other side has read something else than was written"))
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
    let mut input = Vec::new();
    loop {
        let header =
            applet.receive(&mut input, MESSAGE_BYTES_MAX, Deadline::NEVER).map_err(failed)?;
        let HostMessage::Call { call, index, buffer, .. } =
            HostMessage::parse(&header).map_err(io::Error::other)?
        else {
            return Ok(());
        };
        if index == READ {
            let shared = memory.given(buffer).ok_or(io::ErrorKind::InvalidInput)?;
            shared.copy_out(0, &mut piece).map_err(io::Error::other)?;
            input = vec![piece[PIECE_BYTES - 1]; 8];
        }
        let done = Header::from(AppletMessage::Result { call });
        applet.send(&done, &input, Deadline::NEVER).map_err(failed)?;
    }
}
