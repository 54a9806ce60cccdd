//! Functions that a host lets an applet call: by name, bytes in and bytes out, in both sandboxes.
//!
//! Invariants:
//! - What is not granted cannot be called: an applet names a function, gets its number, and numbers
//!   lead nowhere else.
//! - Whatever a function does, the applet gets an answer of at most [`PAYLOAD_BYTES_MAX`] bytes: a
//!   panic ends in it, and so does, where the function has a time limit, a function that hangs.
//! - A function gets a copy of the applet's bytes, which nothing changes any more.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use holdfast_types::RequestStatus;

use crate::mailbox::PAYLOAD_BYTES_MAX;

/// The most that one applet can be granted.
pub const HOST_FUNCTIONS_MAX: usize = 1024;
/// Longest name of a host function, in bytes.
pub const HOST_FUNCTION_NAME_BYTES_MAX: usize = 64;
/// How deep host functions may lie within each other: one that calls an applet that calls one.
const DEPTH_MAX: u32 = 16;
/// The code of a failure whose function chose 0, which stands for success.
const CODE_OF_FAILURE: i32 = 1;

thread_local! {
    /// Host functions that this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// A number that no other thread of this process has had; not [`NO_THREAD`].
    static THREAD: u64 = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
}

const NO_THREAD: u64 = 0;
static NEXT_THREAD: AtomicU64 = AtomicU64::new(NO_THREAD + 1);

/// A call of a host function, as the function sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostCall<'a> {
    /// The name by which the applet called it.
    pub function: &'a str,
}

/// A failure of a host function, for the applet: a code of its choice, and words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFunctionError {
    code: i32,
    message: String,
}

impl HostFunctionError {
    /// A failure with a code; 0 becomes 1.
    #[must_use]
    pub fn new(code: i32, message: impl Into<String>) -> HostFunctionError {
        let code = if code == 0 { CODE_OF_FAILURE } else { code };
        HostFunctionError { code, message: message.into() }
    }

    /// The code, never 0.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.code
    }
}

impl fmt::Display for HostFunctionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for HostFunctionError {}

fn this_thread() -> u64 {
    THREAD.with(|number| *number)
}

type Work = dyn Fn(&HostCall<'_>, &[u8]) -> Result<Vec<u8>, HostFunctionError> + Send + Sync;

/// A function of the host, and what bounds it.
#[derive(Clone)]
pub struct HostFunction {
    work: Arc<Work>,
    timeout: Option<Duration>,
    input_bytes_max: usize,
    result_bytes_max: usize,
}

impl HostFunction {
    /// A function that runs on the thread that called the applet, which waits for it: one that is
    /// quick, or has a limit of its own for what it waits for.
    ///
    /// An asynchronous host waits here for its future, by its runtime's own means.
    pub fn new<F>(work: F) -> HostFunction
    where
        F: Fn(&HostCall<'_>, &[u8]) -> Result<Vec<u8>, HostFunctionError> + Send + Sync + 'static,
    {
        HostFunction {
            work: Arc::new(work),
            timeout: None,
            input_bytes_max: PAYLOAD_BYTES_MAX,
            result_bytes_max: PAYLOAD_BYTES_MAX,
        }
    }

    /// Has it run on a thread of its own, which is left to itself after this time: the applet gets
    /// a failure then. It costs the start of a thread for each call.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> HostFunction {
        self.timeout = Some(timeout);
        self
    }

    /// Refuses longer inputs; 64 MiB at most.
    #[must_use]
    pub fn input_bytes_max(mut self, bytes: usize) -> HostFunction {
        self.input_bytes_max = bytes.min(PAYLOAD_BYTES_MAX);
        self
    }

    /// Refuses longer results; 64 MiB at most.
    #[must_use]
    pub fn result_bytes_max(mut self, bytes: usize) -> HostFunction {
        self.result_bytes_max = bytes.min(PAYLOAD_BYTES_MAX);
        self
    }
}

impl<F> From<F> for HostFunction
where
    F: Fn(&HostCall<'_>, &[u8]) -> Result<Vec<u8>, HostFunctionError> + Send + Sync + 'static,
{
    fn from(work: F) -> HostFunction {
        HostFunction::new(work)
    }
}

impl fmt::Debug for HostFunction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HostFunction")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Why host functions cannot be granted so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostFunctionsError {
    /// Two have one name.
    #[error("two host functions have the name {name:?}; an applet knows them by their names")]
    SameName {
        /// The name.
        name: String,
    },
    /// A name is none.
    #[error(
        "{name:?} is no name of a host function; use 1 to {HOST_FUNCTION_NAME_BYTES_MAX} bytes without control characters"
    )]
    BadName {
        /// The text.
        name: String,
    },
    /// There are too many.
    #[error("an applet can be granted {HOST_FUNCTIONS_MAX} host functions, and this is one more")]
    TooMany,
}

/// The functions that an applet may call. A copy is the same functions.
#[derive(Debug, Clone, Default)]
pub struct HostFunctions {
    functions: Arc<Vec<(String, HostFunction)>>,
    /// The thread that one of them runs on, or [`NO_THREAD`]. A thread asks for itself alone, so no
    /// order with other memory is needed.
    running: Arc<AtomicU64>,
}

/// What an applet is told of a call: whether the function ran, its code, and its result or its
/// words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    /// `Ok` when the function ran to its end.
    pub status: RequestStatus,
    /// 0, or the function's own code.
    pub code: i32,
    /// The result, or what there is to say about the failure.
    pub payload: Vec<u8>,
}

impl Returned {
    fn refused(status: RequestStatus, words: impl Into<String>) -> Returned {
        Returned { status, code: 0, payload: words.into().into_bytes() }
    }
}

impl HostFunctions {
    /// None.
    #[must_use]
    pub fn none() -> HostFunctions {
        HostFunctions::default()
    }

    /// One more.
    pub fn push(&mut self, name: impl Into<String>, function: impl Into<HostFunction>) {
        Arc::make_mut(&mut self.functions).push((name.into(), function.into()));
    }

    /// The same functions, for one more applet.
    #[must_use]
    pub fn for_another(&self) -> HostFunctions {
        HostFunctions { functions: self.functions.clone(), running: Arc::default() }
    }

    /// Whether this thread is in a function that the applet called: it must not wait for that.
    #[must_use]
    pub fn is_running_here(&self) -> bool {
        self.running.load(Ordering::Relaxed) == this_thread()
    }

    /// Whether an applet can be granted all of them.
    ///
    /// # Errors
    /// [`HostFunctionsError`].
    pub fn check(&self) -> Result<(), HostFunctionsError> {
        if self.functions.len() > HOST_FUNCTIONS_MAX {
            return Err(HostFunctionsError::TooMany);
        }
        for (index, (name, _)) in self.functions.iter().enumerate() {
            let is_long = name.len() > HOST_FUNCTION_NAME_BYTES_MAX;
            if name.is_empty() || is_long || name.chars().any(char::is_control) {
                return Err(HostFunctionsError::BadName { name: name.clone() });
            }
            if self.functions[..index].iter().any(|(other, _)| other == name) {
                return Err(HostFunctionsError::SameName { name: name.clone() });
            }
        }
        Ok(())
    }

    /// The number of a function.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<u32> {
        let index = self.functions.iter().position(|(known, _)| known.as_bytes() == name)?;
        u32::try_from(index).ok()
    }

    /// The name of a number, for messages.
    #[must_use]
    pub fn name(&self, index: u32) -> Option<&str> {
        self.functions.get(index as usize).map(|(name, _)| name.as_str())
    }

    /// Runs a function for an applet. Never panics.
    #[must_use]
    pub fn invoke(&self, index: u32, input: &[u8]) -> Returned {
        let Some((name, function)) = self.functions.get(index as usize) else {
            return Returned::refused(
                RequestStatus::NotGranted,
                "no host function has this number",
            );
        };
        if input.len() > function.input_bytes_max {
            let words = format!(
                "the host function {name:?} takes {} bytes, and this has {}",
                function.input_bytes_max,
                input.len()
            );
            return Returned::refused(RequestStatus::TooLarge, words);
        }
        let Some(_within) = Within::enter() else {
            return Returned::refused(
                RequestStatus::LimitReached,
                "host functions and applets call each other without end",
            );
        };
        let outcome = match function.timeout {
            None => {
                self.running.store(this_thread(), Ordering::Relaxed);
                run(&function.work, name, input)
            }
            Some(timeout) => self.run_aside(&function.work, name, input, timeout),
        };
        self.running.store(NO_THREAD, Ordering::Relaxed);
        match outcome {
            Ok(Ok(result)) if result.len() > function.result_bytes_max => {
                let words = format!(
                    "the result of the host function {name:?} has {} bytes, more than {}",
                    result.len(),
                    function.result_bytes_max
                );
                Returned::refused(RequestStatus::TooLarge, words)
            }
            Ok(Ok(payload)) => Returned { status: RequestStatus::Ok, code: 0, payload },
            Ok(Err(HostFunctionError { code, mut message })) => {
                message.truncate(message.floor_char_boundary(PAYLOAD_BYTES_MAX));
                Returned { status: RequestStatus::Ok, code, payload: message.into_bytes() }
            }
            Err(words) => Returned::refused(RequestStatus::Failed, words),
        }
    }
}

impl HostFunctions {
    /// Runs it on a thread of its own, which is left to itself after the time.
    fn run_aside(&self, work: &Arc<Work>, name: &str, input: &[u8], timeout: Duration) -> Outcome {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (work, own_name, input) = (work.clone(), name.to_owned(), input.to_vec());
        let (depth, running) = (DEPTH.get(), self.running.clone());
        let started =
            thread::Builder::new().name(format!("host function {name}")).spawn(move || {
                DEPTH.set(depth);
                // One that starts too late takes no other's place.
                let _ = running.compare_exchange(
                    NO_THREAD,
                    this_thread(),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                // No caller waits for one that comes too late.
                let _ = sender.send(run(&work, &own_name, &input));
            });
        if let Err(error) = started {
            return Err(format!("no thread for the host function {name:?}: {error}"));
        }
        match receiver.recv_timeout(timeout) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("the host function {name:?} did not return within {timeout:?}"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(format!("the host function {name:?} ended")),
        }
    }
}

/// What a function returned, or why it did not return.
type Outcome = Result<Result<Vec<u8>, HostFunctionError>, String>;

fn run(work: &Arc<Work>, name: &str, input: &[u8]) -> Outcome {
    // What a panic leaves behind is the function's own: nothing of the sandbox is lent to it.
    catch_unwind(AssertUnwindSafe(|| work(&HostCall { function: name }, input)))
        .map_err(|_| format!("the host function {name:?} panicked"))
}

/// Being in one more host function.
struct Within;

impl Within {
    fn enter() -> Option<Within> {
        let depth = DEPTH.get();
        (depth < DEPTH_MAX).then(|| {
            DEPTH.set(depth + 1);
            Within
        })
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions() -> HostFunctions {
        let mut functions = HostFunctions::none();
        functions.push("double", |_: &HostCall<'_>, input: &[u8]| Ok([input, input].concat()));
        functions.push("name", |call: &HostCall<'_>, _: &[u8]| Ok(call.function.into()));
        functions.push("fail", |_: &HostCall<'_>, _: &[u8]| Err(HostFunctionError::new(0, "no")));
        functions.push("panic", |_: &HostCall<'_>, _: &[u8]| panic!("as it was asked to"));
        let hang = |_: &HostCall<'_>, _: &[u8]| {
            thread::sleep(Duration::from_secs(2));
            Ok(Vec::new())
        };
        functions.push("hang", HostFunction::new(hang).timeout(Duration::from_millis(20)));
        let small = HostFunction::new(|_, input| Ok([input, input].concat()));
        functions.push("small", small.input_bytes_max(4).result_bytes_max(6));
        functions
    }

    fn invoke(name: &str, input: &[u8]) -> (RequestStatus, i32, String) {
        let functions = functions();
        functions.check().unwrap();
        let returned = functions.invoke(functions.find(name.as_bytes()).unwrap(), input);
        (returned.status, returned.code, String::from_utf8(returned.payload).unwrap())
    }

    #[test]
    fn functions_return_bytes_or_a_failure_in_every_case() {
        assert_eq!(invoke("double", b"ab"), (RequestStatus::Ok, 0, "abab".to_owned()));
        assert_eq!(invoke("name", b""), (RequestStatus::Ok, 0, "name".to_owned()));
        assert_eq!(invoke("fail", b""), (RequestStatus::Ok, 1, "no".to_owned()));
        for (name, input, status, words) in [
            ("panic", &b""[..], RequestStatus::Failed, "panicked"),
            ("hang", b"", RequestStatus::Failed, "did not return within 20ms"),
            ("small", b"12345", RequestStatus::TooLarge, "takes 4 bytes"),
            ("small", b"1234", RequestStatus::TooLarge, "has 8 bytes, more than 6"),
        ] {
            let (found, code, text) = invoke(name, input);
            assert_eq!((found, code), (status, 0), "{name}");
            assert!(text.contains(words), "{text}");
        }
        assert_eq!(functions().invoke(6, b"").status, RequestStatus::NotGranted);
        assert_eq!(functions().find(b"other"), None);
    }

    #[test]
    fn depth_of_functions_within_functions_is_bounded() {
        fn nested() -> Returned {
            let mut functions = HostFunctions::none();
            functions.push("again", |_: &HostCall<'_>, _: &[u8]| {
                let inner = nested();
                let count = inner.payload.first().copied().unwrap_or_default();
                Ok(vec![if inner.status == RequestStatus::Ok { count + 1 } else { 1 }])
            });
            functions.invoke(0, b"")
        }
        assert_eq!(nested().payload, [DEPTH_MAX as u8]);
        assert_eq!(nested().payload, [DEPTH_MAX as u8], "it counts down again");
    }

    #[test]
    fn impossible_names_are_refused() {
        let check = |names: &[&str]| {
            let mut functions = HostFunctions::none();
            for name in names {
                functions.push(*name, |_: &HostCall<'_>, _: &[u8]| Ok(Vec::new()));
            }
            functions.check()
        };
        assert_eq!(check(&["a", "b", "kv.get"]), Ok(()));
        assert!(matches!(check(&["a", "b", "a"]), Err(HostFunctionsError::SameName { .. })));
        for bad in ["", "a\nb", &"x".repeat(65)] {
            assert!(matches!(check(&[bad]), Err(HostFunctionsError::BadName { .. })), "{bad:?}");
        }
        let many: Vec<_> = (0..=HOST_FUNCTIONS_MAX).map(|number| number.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(check(&many), Err(HostFunctionsError::TooMany));
    }
}
