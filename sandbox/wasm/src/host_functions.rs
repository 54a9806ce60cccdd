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
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use holdfast_types::RequestStatus;

use crate::mailbox::PAYLOAD_BYTES_MAX;

/// The most that one applet can be granted.
pub const HOST_FUNCTIONS_MAX: usize = 1024;
/// Longest name of a host function, in bytes.
pub const HOST_FUNCTION_NAME_BYTES_MAX: usize = 64;
/// How deep host functions may lie within each other: one that calls an applet that calls one.
const DEPTH_MAX: u32 = 16;
/// Threads of functions with a time limit, under way or left to themselves, for one applet.
const THREADS_MAX: usize = 16;
/// The code of a failure whose function chose 0, which stands for success.
const CODE_OF_FAILURE: i32 = 1;

thread_local! {
    /// Host functions that this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The chain of calls that this thread works for: its own, or that of the thread which waits for
    /// it.
    static CHAIN: Cell<u64> = const { Cell::new(NO_CHAIN) };
}

const NO_CHAIN: u64 = 0;
static NEXT_CHAIN: AtomicU64 = AtomicU64::new(NO_CHAIN + 1);

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

/// The number of the chain of calls that this thread works for, never 0: a thread that runs a host
/// function for another one has the number of that.
#[must_use]
pub fn call_chain() -> u64 {
    if CHAIN.get() == NO_CHAIN {
        CHAIN.set(NEXT_CHAIN.fetch_add(1, Ordering::Relaxed));
    }
    CHAIN.get()
}

type Answer = Result<Vec<u8>, HostFunctionError>;
type Work = dyn Fn(&HostCall<'_>, &[u8]) -> Answer + Send + Sync;
type FutureWork = dyn Fn(Vec<u8>) -> Pin<Box<dyn Future<Output = Answer>>> + Send + Sync;

/// How a function runs.
#[derive(Clone)]
enum Body {
    /// To its end, on one thread.
    Blocking(Arc<Work>),
    /// As a future, which can be dropped before its end.
    Future(Arc<FutureWork>),
}

/// A function of the host, and what bounds it.
#[derive(Clone)]
pub struct HostFunction {
    body: Body,
    timeout: Option<Duration>,
    input_bytes_max: usize,
    result_bytes_max: usize,
}

impl HostFunction {
    /// A function that runs on the thread that called the applet, which waits for it: one that is
    /// quick, or has a limit of its own for what it waits for.
    pub fn new<F>(work: F) -> HostFunction
    where
        F: Fn(&HostCall<'_>, &[u8]) -> Result<Vec<u8>, HostFunctionError> + Send + Sync + 'static,
    {
        HostFunction::from_body(Body::Blocking(Arc::new(work)))
    }

    /// An asynchronous function. The thread that called the applet polls its future and sleeps in
    /// between; after [`HostFunction::timeout`] the future is dropped, which cancels it, and no
    /// thread is started for that.
    ///
    /// A future that needs a runtime for its timers and sockets finds it where the applet is called
    /// on a thread of the runtime for blocking work (tokio's `spawn_blocking`); elsewhere the
    /// function enters the runtime (`Handle::enter`) in its future.
    pub fn asynchronous<F, T>(work: F) -> HostFunction
    where
        F: Fn(Vec<u8>) -> T + Send + Sync + 'static,
        T: Future<Output = Result<Vec<u8>, HostFunctionError>> + 'static,
    {
        HostFunction::from_body(Body::Future(Arc::new(move |input| Box::pin(work(input)))))
    }

    fn from_body(body: Body) -> HostFunction {
        HostFunction {
            body,
            timeout: None,
            input_bytes_max: PAYLOAD_BYTES_MAX,
            result_bytes_max: PAYLOAD_BYTES_MAX,
        }
    }

    /// Ends it after this time: the applet gets a failure then. A function that blocks runs on a
    /// thread of its own, which is left to itself; that costs the start of a thread for each call.
    /// The future of an asynchronous one is dropped.
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
    /// The chain of calls that one of them is in, or [`NO_CHAIN`]. A thread asks for its own chain
    /// alone, so no order with other memory is needed.
    running: Arc<AtomicU64>,
    /// Threads of functions with a time limit.
    threads: Arc<AtomicUsize>,
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
        HostFunctions { functions: self.functions.clone(), ..HostFunctions::default() }
    }

    /// Whether this thread is in a function that the applet called, or works for one that is: it
    /// must not wait for that.
    #[must_use]
    pub fn is_running_here(&self) -> bool {
        self.running.load(Ordering::Relaxed) == call_chain()
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
        self.running.store(call_chain(), Ordering::Relaxed);
        let outcome = match (&function.body, function.timeout) {
            (Body::Blocking(work), Some(timeout)) => self.run_aside(work, name, input, timeout),
            (Body::Blocking(work), None) => run(work, name, input),
            (Body::Future(work), timeout) => run_future(work, name, input, timeout),
        };
        self.running.store(NO_CHAIN, Ordering::Relaxed);
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
        let Some(place) = ThreadPlace::take(&self.threads) else {
            return Err(format!(
                "{THREADS_MAX} calls of host functions have not returned in time and hold their threads; the host \
                 function {name:?} was not started"
            ));
        };
        let (sender, receiver) = mpsc::sync_channel(1);
        let (work, own_name, input) = (work.clone(), name.to_owned(), input.to_vec());
        let (depth, chain) = (DEPTH.get(), call_chain());
        let started =
            thread::Builder::new().name(format!("host function {name}")).spawn(move || {
                let _place = place;
                DEPTH.set(depth);
                CHAIN.set(chain);
                // No caller waits for one that comes too late.
                let _ = sender.send(run(&work, &own_name, &input));
            });
        if let Err(error) = started {
            return Err(format!("no thread for the host function {name:?}: {error}"));
        }
        match receiver.recv_timeout(timeout) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => Err(too_late(name, timeout)),
            Err(RecvTimeoutError::Disconnected) => Err(format!("the host function {name:?} ended")),
        }
    }
}

/// A thread among those that one applet's functions may have.
struct ThreadPlace(Arc<AtomicUsize>);

impl ThreadPlace {
    fn take(threads: &Arc<AtomicUsize>) -> Option<ThreadPlace> {
        let one_more = |taken| (taken < THREADS_MAX).then_some(taken + 1);
        threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(ThreadPlace(threads.clone()))
    }
}

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a function returned, or why it did not return.
type Outcome = Result<Result<Vec<u8>, HostFunctionError>, String>;

fn run(work: &Arc<Work>, name: &str, input: &[u8]) -> Outcome {
    // What a panic leaves behind is the function's own: nothing of the sandbox is lent to it.
    catch_unwind(AssertUnwindSafe(|| work(&HostCall { function: name }, input)))
        .map_err(|_| format!("the host function {name:?} panicked"))
}

fn too_late(name: &str, timeout: Duration) -> String {
    format!("the host function {name:?} did not return within {timeout:?}")
}

/// Polls a future on this thread until it is ready or too late. A panic of it, or of its drop, ends
/// here.
fn run_future(
    work: &Arc<FutureWork>,
    name: &str,
    input: &[u8],
    timeout: Option<Duration>,
) -> Outcome {
    let begun = Instant::now();
    let polled = catch_unwind(AssertUnwindSafe(|| {
        let mut future = pin!(work(input.to_vec()));
        let waker = Waker::from(Arc::new(Sleeper(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
                return Some(answer);
            }
            // A wake that came before this is not lost: the thread does not sleep then.
            match timeout.map(|timeout| timeout.checked_sub(begun.elapsed())) {
                None => thread::park(),
                Some(Some(left)) if !left.is_zero() => thread::park_timeout(left),
                Some(_) => return None,
            }
        }
    }));
    match polled {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(too_late(name, timeout.unwrap_or_default())),
        Err(_) => Err(format!("the host function {name:?} panicked")),
    }
}

/// Wakes the thread that waits for a future.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
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

    /// A future that another thread completes.
    struct Later {
        input: Vec<u8>,
        thread: Option<thread::JoinHandle<()>>,
    }

    impl Future for Later {
        type Output = Answer;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
            match self.thread.take() {
                Some(thread) => {
                    thread.join().unwrap();
                    Poll::Ready(Ok(std::mem::take(&mut self.input)))
                }
                None => {
                    let waker = context.waker().clone();
                    self.thread = Some(thread::spawn(move || waker.wake()));
                    Poll::Pending
                }
            }
        }
    }

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
        functions.push("later", HostFunction::asynchronous(|input| Later { input, thread: None }));
        let ever = HostFunction::asynchronous(|_| std::future::pending());
        functions.push("ever", ever.timeout(Duration::from_millis(20)));
        functions.push("async panic", HostFunction::asynchronous(async |_| panic!("as asked")));
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
        assert_eq!(invoke("later", b"ab"), (RequestStatus::Ok, 0, "ab".to_owned()));
        assert_eq!(invoke("fail", b""), (RequestStatus::Ok, 1, "no".to_owned()));
        for (name, input, status, words) in [
            ("panic", &b""[..], RequestStatus::Failed, "panicked"),
            ("hang", b"", RequestStatus::Failed, "did not return within 20ms"),
            ("ever", b"", RequestStatus::Failed, "did not return within 20ms"),
            ("async panic", b"", RequestStatus::Failed, "panicked"),
            ("small", b"12345", RequestStatus::TooLarge, "takes 4 bytes"),
            ("small", b"1234", RequestStatus::TooLarge, "has 8 bytes, more than 6"),
        ] {
            let (found, code, text) = invoke(name, input);
            assert_eq!((found, code), (status, 0), "{name}");
            assert!(text.contains(words), "{text}");
        }
        assert_eq!(functions().invoke(99, b"").status, RequestStatus::NotGranted);
        assert_eq!(functions().find(b"other"), None);
    }

    /// An applet that makes functions hang again and again gets no more than its threads.
    #[test]
    fn hung_functions_hold_a_bounded_number_of_threads() {
        let mut functions = HostFunctions::none();
        let (end, hang) = mpsc::channel::<()>();
        let hang = std::sync::Mutex::new(hang);
        let wait = move |_: &HostCall<'_>, _: &[u8]| {
            let _ = hang.lock().unwrap().recv();
            Ok(Vec::new())
        };
        functions.push("hang", HostFunction::new(wait).timeout(Duration::from_millis(1)));
        let words = |returned: Returned| String::from_utf8(returned.payload).unwrap();
        for _ in 0..THREADS_MAX {
            assert!(words(functions.invoke(0, b"")).contains("did not return"));
        }
        assert!(words(functions.invoke(0, b"")).contains("was not started"));
        assert!(words(functions.for_another().invoke(0, b"")).contains("did not return"));
        drop(end);
        let begun = Instant::now();
        while functions.invoke(0, b"").status != RequestStatus::Ok {
            assert!(begun.elapsed() < Duration::from_secs(20), "their threads are free again");
        }
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
