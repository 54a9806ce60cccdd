//! A plug-in in Rust, which does the same as the one in C (`applets/plugin`, whose README has the
//! functions of the host). Exports:
//!
//! - `count_vowels` counts the vowels of a text; the total over all calls is in the host's store.
//! - `title` fetches a page from a URL and returns the text of its `<title>`.
//!
//! Invariant: it has no state of its own, so any instance may serve any call.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use holdfast_guest::{Call, Failure, HostCallError, HostFunction, HostResult, export, serve};

const TOTAL_KEY: &[u8] = b"count-vowels";
const VOWELS: &str = "aeiouAEIOU";
/// The host's own code of a failure: there is no such key.
const NOT_FOUND: i32 = 404;

/// The functions of the host; a host that grants no log gets none.
struct Host {
    kv_get: HostFunction,
    kv_set: HostFunction,
    http_get: HostFunction,
    log: Option<HostFunction>,
}

impl Host {
    fn import() -> Result<Host, HostCallError> {
        Ok(Host {
            kv_get: HostFunction::import("kv_get")?,
            kv_set: HostFunction::import("kv_set")?,
            http_get: HostFunction::import("http_get")?,
            log: HostFunction::import("log").ok(),
        })
    }

    /// The host's value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<HostResult>, HostCallError> {
        match self.kv_get.call(key) {
            Ok(value) => Ok(Some(value)),
            Err(HostCallError::Failed { code: NOT_FOUND, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn set(&self, key: &[u8], value: &[u8]) -> Result<(), HostCallError> {
        self.kv_set.call(&[key, &[0], value].concat()).map(drop)
    }

    /// A line for the host's log, by a letter of "diwe".
    fn note(&self, level: char, text: &str) {
        if let Some(log) = self.log {
            // A log that is full is no reason to fail.
            let _ = log.call(format!("{level} {text}").as_bytes());
        }
    }
}

/// The host's own code and words for a failure of its function, else ours.
fn failure(call: &mut Call, error: HostCallError) -> Failure {
    match error {
        HostCallError::Failed { code, words } => call.fail(code, words),
        other => call.fail(1, other),
    }
}

fn count_vowels(host: &Host, call: &mut Call) -> Result<(), Failure> {
    let text = call.input();
    let count = text.iter().filter(|byte| VOWELS.as_bytes().contains(byte)).count() as u32;
    let kept = host.get(TOTAL_KEY).map_err(|error| failure(call, error))?;
    let total = match kept.as_ref().map(|kept| <[u8; 4]>::try_from(kept.bytes())) {
        None => count,
        Some(Ok(bytes)) => u32::from_le_bytes(bytes).wrapping_add(count),
        Some(Err(_)) => {
            host.note('w', "the total has not 4 bytes; it begins again");
            count
        }
    };
    host.set(TOTAL_KEY, &total.to_le_bytes()).map_err(|error| failure(call, error))?;
    host.note('i', &format!("{count} vowels in {} bytes", text.len()));
    let reply = format!("{{\"count\":{count},\"total\":{total},\"vowels\":\"{VOWELS}\"}}");
    Ok(call.reply(reply.as_bytes())?)
}

fn title(host: &Host, call: &mut Call) -> Result<(), Failure> {
    let answer = host.http_get.call(call.input()).map_err(|error| {
        host.note('e', &format!("no page: {error}"));
        failure(call, error)
    })?;
    // Three digits and a line feed stand before the body.
    let Some(body) = answer.bytes().strip_prefix(b"200\n") else {
        let status = String::from_utf8_lossy(answer.bytes().get(..3).unwrap_or_default());
        host.note('w', &format!("the server answered {status}"));
        return Err(call.fail(1, "the server has no such page"));
    };
    host.note('d', &format!("{} bytes", body.len()));
    match title_of(body) {
        Some(title) => Ok(call.reply(title)?),
        None => Err(call.fail(1, "the page has no title")),
    }
}

fn title_of(page: &[u8]) -> Option<&[u8]> {
    let from = find(page, b"<title")?;
    let from = from + page[from..].iter().position(|byte| *byte == b'>')? + 1;
    let length = find(&page[from..], b"</title")?;
    Some(page[from..from + length].trim_ascii())
}

/// Where a tag begins, without regard to case.
fn find(text: &[u8], tag: &[u8]) -> Option<usize> {
    text.windows(tag.len()).position(|window| window.eq_ignore_ascii_case(tag))
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let host: &'static Host = Box::leak(Box::new(Host::import()?));
    export("count_vowels", move |call: &mut Call| count_vowels(host, call))?;
    export("title", move |call: &mut Call| title(host, call))?;
    serve()?;
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plugin: {error}");
            ExitCode::FAILURE
        }
    }
}
