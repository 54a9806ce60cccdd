//! A sandbox without an applet, which says what a session does about things that no applet does on
//! demand.

use super::*;

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use holdfast_crossings::Mark;

use crate::buffer::SharedBuffer;
use crate::kind::SandboxKind;
use crate::sandbox::Ended;
use holdfast_wasm::Heaps;

/// Serves one function. In its call it stops in the middle of a message, and then the call is
/// cancelled.
struct Stalling {
    control: Arc<Control>,
    received: u32,
    /// So many looks of the host pass before it serves.
    starts_in: u32,
}

impl Stalling {
    fn boxed(starts_in: u32) -> Box<Stalling> {
        Box::new(Stalling { control: Arc::new(Control::new(|| {})), received: 0, starts_in })
    }
}

impl Sandbox for Stalling {
    fn crossings(&self) -> Mark {
        Mark::default()
    }

    fn control(&self) -> Arc<Control> {
        self.control.clone()
    }

    fn send(&mut self, _: &Header, _: &[u8], _: Option<Instant>) -> Result<(), Stop> {
        if self.received < 2 { Ok(()) } else { Err(Stop::HalfDone) }
    }

    fn receive(&mut self, payload: &mut Vec<u8>, _: Option<Instant>) -> Result<Header, Stop> {
        if self.starts_in > 0 {
            self.starts_in -= 1;
            return Err(Stop::Nudged);
        }
        self.received += 1;
        if self.received == 1 {
            payload.extend(b"\x01f");
            return Ok(AppletMessage::Hello {
                version: holdfast_channel::protocol::PROTOCOL_VERSION,
                count: 1,
            }
            .into());
        }
        self.control.cancel();
        Err(Stop::Nudged)
    }

    fn look_every(&mut self, _: Option<Duration>) {}

    fn seal(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn publish(&mut self) -> Result<(), Unpublished> {
        Ok(())
    }

    fn roll_back(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn is_atomic(&self) -> bool {
        false
    }

    fn outlives_cancel(&self) -> bool {
        true
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn cpu_time(&self) -> Duration {
        Duration::ZERO
    }

    fn heap_backed_bytes(&self) -> u64 {
        0
    }

    fn metrics(&self) -> Metrics {
        Metrics::new(SandboxKind::Native)
    }

    fn weaker(&self) -> Vec<String> {
        Vec::new()
    }

    fn buffer(&mut self, _: usize) -> Result<SharedBuffer, CallError> {
        Err(CallError::Busy)
    }

    fn handle_of(&self, _: &SharedBuffer) -> Result<Handle, CallError> {
        Err(CallError::Busy)
    }

    fn finish(self: Box<Self>, _: Option<&Failure>) -> Ended {
        Ended {
            failure: Failure::Busy,
            heaps: Heaps::none(),
            heap_error: None,
            stdout: Vec::new(),
            stderr: Vec::new(),
            is_output_truncated: false,
            metrics: self.metrics(),
        }
    }
}

/// An applet that stalls in the middle of a message has ignored the cancellation of its call.
#[test]
fn applet_stalled_in_a_message_ignored_its_cancel() {
    let Ok(mut session) = Session::begin(Stalling::boxed(0), &Limits::default(), None) else {
        panic!("it serves")
    };
    let request = Request {
        function: "f",
        input: b"",
        buffer: Handle::default(),
        time_limit: None,
        is_streamed: false,
        look_every: None,
        is_counted: false,
    };
    assert!(matches!(session.call(&request, &mut || {}), Ok(Ok(()))));
    let Err(SessionEnded(failure)) = session.step() else { panic!("it has a result") };
    assert!(matches!(failure, Some(Failure::IgnoredCancel { .. })), "{failure:?}");
}

/// A start is waited for while it is wanted, and given up when it is not.
#[test]
fn unwanted_start_is_given_up() {
    let looks = AtomicU32::new(0);
    let limits = Limits::default();
    let begin = |wanted: u32| {
        looks.store(0, Relaxed);
        let is_wanted = || looks.fetch_add(1, Relaxed) < wanted;
        Session::begin(Stalling::boxed(3), &limits, Some(&is_wanted))
    };
    assert!(begin(3).is_ok());
    let Err((_, SessionEnded(failure))) = begin(2) else { panic!("it was waited for") };
    assert!(matches!(failure, Some(Failure::StartGivenUp)), "{failure:?}");
    assert_eq!(looks.load(Relaxed), 3);
}
