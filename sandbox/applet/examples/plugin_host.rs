//! A host of plug-ins: a store by key, requests to the servers that it allows, and a log.
//!
//! ```text
//! cargo run -p holdfast-applet --example plugin_host -- \
//!     target/applets/plugin.wasm title http://localhost:8000/ --allow localhost:8000
//! ```
//!
//! The plug-ins are `applets/plugin` (C) and `applets/plugin-rust`; the first one's README has the
//! functions. The same host in Python is `bindings/python/examples/plugin_host.py`.
//!
//! Invariants: a plug-in reaches no server that is not allowed, also not by a redirect; nothing that
//! it logs reaches the terminal with a control character; what it stores is bounded.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_applet::{Applet, Grants, HostCall, HostFunction, HostFunctionError, Limits};
use rustls::crypto::ring;
use ureq::http::Uri;
use ureq::tls::TlsConfig;

const KEYS_MAX: usize = 1000;
const ENTRY_BYTES_MAX: usize = 64 << 10;
const URL_BYTES_MAX: usize = 8 << 10;
const BODY_BYTES_MAX: u64 = 4 << 20;
const LINE_BYTES_MAX: usize = 1000;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// What a request may take altogether, the look-up of the server's name included.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15);

/// Levels of the log, each with the letter by which a plug-in names it.
const LEVELS: [(u8, &str); 4] =
    [(b'd', "debug"), (b'i', "info"), (b'w', "warning"), (b'e', "error")];

/// What the host lets its plug-ins do. Each plug-in that gets these grants shares the store.
pub(crate) struct Host {
    store: Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>,
    allowed: Vec<AllowedServer>,
    level: usize,
    log: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Servers that a plug-in may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowedServer {
    name: String,
    is_suffix: bool,
    port: Option<u16>,
}

impl AllowedServer {
    /// Reads `example.org`, `*.example.org`, `localhost:8080`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(crate) fn parse(text: &str) -> Result<AllowedServer, String> {
        let wrong = || format!("{text:?} is no server; write NAME, *.NAME or NAME:PORT");
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
                (name, Some(port.parse().map_err(|_| wrong())?))
            }
            _ => (text, None),
        };
        let (name, is_suffix) = name.strip_prefix("*.").map_or((name, false), |name| (name, true));
        if name.is_empty() || name.contains(['*', '/', '@', ' ']) {
            return Err(wrong());
        }
        Ok(AllowedServer { name: name.to_ascii_lowercase(), is_suffix, port })
    }

    fn allows(&self, name: &str, port: u16) -> bool {
        let is_name = match self.is_suffix {
            false => name == self.name,
            true => name.strip_suffix(&self.name).is_some_and(|rest| rest.ends_with('.')),
        };
        is_name && self.port.is_none_or(|allowed| allowed == port)
    }
}

impl Host {
    /// A host that allows these servers and writes log lines from a level on.
    ///
    /// # Errors
    /// What is wrong with a server or with the level.
    pub(crate) fn new(
        allowed: &[String],
        level: &str,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Host, String> {
        let level = LEVELS
            .iter()
            .position(|(_, name)| *name == level)
            .ok_or_else(|| format!("{level:?} is no level; use debug, info, warning or error"))?;
        let allowed =
            allowed.iter().map(|text| AllowedServer::parse(text)).collect::<Result<_, _>>()?;
        Ok(Host { store: Arc::default(), allowed, level, log: Arc::new(log) })
    }

    /// Grants of one more plug-in.
    pub(crate) fn grants(&self) -> Grants {
        let (getting, setting) = (self.store.clone(), self.store.clone());
        let get = HostFunction::new(move |_, key| {
            let store = getting.lock().unwrap_or_else(PoisonError::into_inner);
            store
                .get(key)
                .cloned()
                .ok_or_else(|| HostFunctionError::new(404, "there is no such key"))
        });
        let set = HostFunction::new(move |_: &HostCall<'_>, pair: &[u8]| {
            let Some(end) = pair.iter().position(|byte| *byte == 0) else {
                return Err(HostFunctionError::new(400, "no zero byte ends the key"));
            };
            let mut store = setting.lock().unwrap_or_else(PoisonError::into_inner);
            if store.len() >= KEYS_MAX && !store.contains_key(&pair[..end]) {
                return Err(HostFunctionError::new(507, "the store has no room for one more key"));
            }
            store.insert(pair[..end].to_vec(), pair[end + 1..].to_vec());
            Ok(Vec::new())
        });
        let allowed = self.allowed.clone();
        let fetch = HostFunction::new(move |_, url| http_get(&allowed, url));
        let (level, log) = (self.level, self.log.clone());
        let note = HostFunction::new(move |_, line| {
            if let Some(line) = log_line(level, line)? {
                log(&line);
            }
            Ok(Vec::new())
        });
        Grants::none()
            .function("kv_get", get.input_bytes_max(ENTRY_BYTES_MAX))
            .function("kv_set", set.input_bytes_max(ENTRY_BYTES_MAX))
            .function("http_get", fetch.input_bytes_max(URL_BYTES_MAX).timeout(FETCH_TIMEOUT))
            .function("log", note.input_bytes_max(ENTRY_BYTES_MAX))
    }
}

/// The server's answer: three digits of its status, a line feed, the body.
fn http_get(allowed: &[AllowedServer], url: &[u8]) -> Result<Vec<u8>, HostFunctionError> {
    let wrong = || HostFunctionError::new(400, "this is no URL of a server");
    let url: Uri = Uri::try_from(url).map_err(|_| wrong())?;
    let port = match url.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return Err(wrong()),
    };
    let name = url.host().ok_or_else(wrong)?.to_ascii_lowercase();
    let port = url.port_u16().unwrap_or(port);
    if !allowed.iter().any(|server| server.allows(&name, port)) {
        let words = format!("the host does not allow requests to {name}:{port}");
        return Err(HostFunctionError::new(403, words));
    }
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        // The server that a redirect leads to may not be allowed.
        .max_redirects(0)
        .max_redirects_will_error(false)
        // Nor may a proxy of the environment.
        .proxy(None)
        .timeout_global(Some(REQUEST_TIMEOUT))
        .tls_config(
            TlsConfig::builder()
                .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
                .build(),
        )
        .build()
        .into();
    let failed = |error: &dyn std::error::Error| {
        HostFunctionError::new(502, format!("{name}:{port} cannot be reached: {error}"))
    };
    let mut response = agent.get(url.clone()).call().map_err(|error| failed(&error))?;
    let mut answer = format!("{:03}\n", response.status().as_u16()).into_bytes();
    let begin = answer.len() as u64;
    let body = response.body_mut().as_reader();
    body.take(BODY_BYTES_MAX + 1).read_to_end(&mut answer).map_err(|error| failed(&error))?;
    if answer.len() as u64 - begin > BODY_BYTES_MAX {
        let words = format!("the answer of {name}:{port} is longer than {BODY_BYTES_MAX} bytes");
        return Err(HostFunctionError::new(502, words));
    }
    Ok(answer)
}

/// The line as it is shown; `None` when its level is below the host's.
fn log_line(least: usize, line: &[u8]) -> Result<Option<String>, HostFunctionError> {
    let level = match line {
        [letter, b' ', ..] => LEVELS.iter().position(|(known, _)| known == letter),
        _ => None,
    };
    let Some(level) = level else {
        return Err(HostFunctionError::new(
            400,
            "a log line begins with d, i, w or e, and a blank",
        ));
    };
    if level < least {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&line[2..line.len().min(2 + LINE_BYTES_MAX)]);
    let mut shown = format!("{}: ", LEVELS[level].1);
    for character in text.chars() {
        match character {
            control if control.is_control() => shown.extend(control.escape_unicode()),
            other => shown.push(other),
        }
    }
    Ok(Some(shown))
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: plugin_host APPLET FUNCTION INPUT [--allow SERVER]... [--level LEVEL]";
    let (mut words, mut allowed, mut level) = (Vec::new(), Vec::new(), "info".to_owned());
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--allow" => allowed.push(arguments.next().ok_or(usage)?),
            "--level" => level = arguments.next().ok_or(usage)?,
            _ => words.push(word),
        }
    }
    let [applet, function, input] = &words[..] else { return Err(usage.into()) };
    let host = Host::new(&allowed, &level, |line| eprintln!("{line}"))?;
    let mut limits = Limits::default();
    limits.call_timeout = Some(Duration::from_secs(30));
    let applet = Applet::spawn(PathBuf::from(applet), limits, host.grants())?;
    println!("{}", String::from_utf8_lossy(&applet.call(function, input.as_bytes())?));
    applet.close()?;
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plugin_host: {error}");
            ExitCode::FAILURE
        }
    }
}
