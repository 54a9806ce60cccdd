//! One line of a log, taken apart. Nothing is looked up and nothing remembered here.
//!
//! Invariant: any bytes are a line or are not one; nothing panics, and the work is linear in the
//! length.

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line<'a> {
    /// The thread, if the line names it.
    pub(super) thread: Option<u32>,
    /// When, as far as the line tells.
    pub(super) at: LineTime,
    pub(super) body: Body<'a>,
}

/// When a line was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LineTime {
    /// It does not tell.
    Unknown,
    /// Since 1970.
    Clock(u64),
    /// Of the day.
    OfDay(u64),
    /// Since the line before.
    After(u64),
}

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Body<'a> {
    /// A call, from its beginning to its end.
    Call {
        name: &'a str,
        arguments: &'a str,
        returned: Returned<'a>,
        took_ns: Option<u64>,
    },
    /// A call that goes on in a later line.
    Unfinished {
        name: &'a str,
        arguments: &'a str,
    },
    /// The end of a call that began in an earlier line.
    Resumed {
        name: &'a str,
        returned: Returned<'a>,
        took_ns: Option<u64>,
    },
    /// A signal, by its name.
    Signal(&'a str),
    Exited(u8),
    /// By a signal, by its name.
    Killed(&'a str),
    /// This process runs another program, which that thread started.
    Superseded {
        by: u32,
    },
    /// From here on the process uses this ABI: `32`, `64`, `x32`.
    Mode {
        process: u32,
        mode: &'a str,
    },
    /// A line of strace's own that says nothing of a call.
    Remark,
}

/// What a call returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Returned<'a> {
    Value(i64),
    /// By its name: ENOENT.
    Error(&'a str),
    /// It did not.
    Nothing,
}

/// None if it is no line of strace.
pub(super) fn parse(text: &str) -> Option<Line<'_>> {
    let text = text.trim_end_matches(['\n', '\r']);
    let (thread, rest) = thread(text);
    let (at, rest) = at(rest);
    let body = body(rest.trim_start())?;
    Some(Line { thread, at, body })
}

/// `[pid  123] ` on a terminal, `123  ` in a file.
fn thread(text: &str) -> (Option<u32>, &str) {
    if let Some(rest) = text.strip_prefix("[pid")
        && let Some((number, rest)) = rest.split_once(']')
        && let Ok(number) = number.trim().parse()
    {
        return (Some(number), rest);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    match number.parse() {
        // A time is digits and something else than a space.
        Ok(number) if rest.starts_with(' ') => (Some(number), rest),
        _ => (None, text),
    }
}

fn at(text: &str) -> (LineTime, &str) {
    let text = text.trim_start();
    let end = text.find(' ').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let plausible = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b':');
    if word.is_empty() || !plausible || !word.starts_with(|c: char| c.is_ascii_digit()) {
        return (LineTime::Unknown, text);
    }
    // With both options there is `(+     0.000123)` behind.
    let after = |rest: &str| -> Option<usize> {
        let trimmed = rest.trim_start();
        let inside = trimmed.strip_prefix("(+")?;
        let end = inside.find(')')?;
        Some(rest.len() - inside.len() + end + 1)
    };
    let rest = after(rest).map_or(rest, |end| &rest[end..]);
    let at = match word.split(':').collect::<Vec<_>>()[..] {
        [seconds] => match ns(seconds) {
            // The year 1973 and later; no two lines are so far apart.
            Some(ns) if ns >= 100_000_000_000_000_000 => LineTime::Clock(ns),
            Some(ns) => LineTime::After(ns),
            None => LineTime::Unknown,
        },
        [hours, minutes, seconds] => {
            match (hours.parse::<u64>(), minutes.parse::<u64>(), ns(seconds)) {
                (Ok(hours), Ok(minutes), Some(ns)) if hours < 24 && minutes < 60 => {
                    LineTime::OfDay(
                        (hours * 3600 + minutes * 60) * 1_000_000_000 + ns % 61_000_000_000,
                    )
                }
                _ => LineTime::Unknown,
            }
        }
        _ => LineTime::Unknown,
    };
    (at, rest)
}

/// Seconds as a decimal, in nanoseconds.
pub(super) fn ns(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    let part = part.get(..9).unwrap_or(part);
    let scale = 10_u64.checked_pow(9 - u32::try_from(part.len()).ok()?)?;
    let part = if part.is_empty() { 0 } else { part.parse::<u64>().ok()? * scale };
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part)
}

fn body(text: &str) -> Option<Body<'_>> {
    if let Some(rest) = text.strip_prefix("--- ") {
        let word = rest.split([' ', '{', '(']).next().unwrap_or_default();
        return Some(if word.starts_with("SIG") { Body::Signal(word) } else { Body::Remark });
    }
    if let Some(rest) = text.strip_prefix("+++ ") {
        return ended(rest);
    }
    if let Some(rest) = text.strip_prefix("<... ") {
        return resumed(rest);
    }
    if text.starts_with("strace: ") || text.starts_with("Process ") || text.starts_with("> /") {
        return Some(Body::Remark);
    }
    if let Some(rest) = text.strip_prefix("[ Process PID=") {
        let (process, rest) = rest.split_once(' ')?;
        let mode = rest.strip_prefix("runs in ")?.split_once(' ')?.0;
        return Some(Body::Mode { process: process.parse().ok()?, mode });
    }
    call(text)
}

fn ended(rest: &str) -> Option<Body<'_>> {
    if let Some(rest) = rest.strip_prefix("exited with ") {
        return Some(Body::Exited(rest.split(' ').next()?.parse().ok()?));
    }
    if let Some(rest) = rest.strip_prefix("killed by ") {
        return Some(Body::Killed(rest.split(' ').next()?));
    }
    let by = rest.strip_prefix("superseded by execve in pid ")?;
    Some(Body::Superseded { by: by.split(' ').next()?.parse().ok()? })
}

fn resumed(rest: &str) -> Option<Body<'_>> {
    let (name, rest) = rest.split_once(" resumed>")?;
    if !is_name(name) {
        return None;
    }
    // What stands before the result is the end of the arguments, and these may hold anything.
    let end = end_of_arguments(rest).or_else(|| rest.rfind(") = "))?;
    let (returned, took_ns) = result(&rest[end + 1..])?;
    Some(Body::Resumed { name, returned, took_ns })
}

fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first
        && name.len() <= 64
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn call(text: &str) -> Option<Body<'_>> {
    let (name, rest) = text.split_once('(')?;
    if !is_name(name) {
        return None;
    }
    if let Some(arguments) = rest.strip_suffix("<unfinished ...>") {
        // `exit(0) = ?` and calls of threads that were killed have both: these do not go on.
        return Some(Body::Unfinished { name, arguments: arguments.trim_end() });
    }
    if let Some(arguments) = rest.strip_suffix("<detached ...>") {
        return Some(Body::Call { name, arguments, returned: Returned::Nothing, took_ns: None });
    }
    let end = end_of_arguments(rest).or_else(|| rest.rfind(") = "))?;
    let (returned, took_ns) = result(&rest[end + 1..])?;
    Some(Body::Call { name, arguments: &rest[..end], returned, took_ns })
}

/// Where the parenthesis is that closes the arguments: brackets are counted, and those in strings
/// are not.
fn end_of_arguments(text: &str) -> Option<usize> {
    let (mut depth, mut string, mut escaped) = (0_u32, false, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if string => escaped = true,
            b'"' => string = !string,
            _ if string => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                return text[index + 1..].trim_start().starts_with('=').then_some(index);
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// ` = -1 ENOENT (No such file or directory) <0.000012>`
fn result(text: &str) -> Option<(Returned<'_>, Option<u64>)> {
    let text = text.trim_start().strip_prefix('=')?.trim();
    let timed = text.strip_suffix('>').and_then(|text| text.rsplit_once('<'));
    let (text, took_ns) = match timed {
        Some((before, took)) if ns(took).is_some() => (before.trim_end(), ns(took)),
        _ => (text, None),
    };
    let mut words = text.split([' ', '<', '(']).filter(|word| !word.is_empty());
    let value = words.next()?;
    let error = words.next().filter(|word| {
        word.starts_with('E')
            && word
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    });
    let returned = match (value, error) {
        ("?" | "-1", Some(error)) => Returned::Error(error),
        ("?", None) => Returned::Nothing,
        (value, _) => Returned::Value(number(value)?),
    };
    Some((returned, took_ns))
}

/// Decimal or hexadecimal; addresses are above the largest signed number.
fn number(text: &str) -> Option<i64> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(|value| value as i64);
    }
    text.parse().ok().or_else(|| text.parse::<u64>().ok().map(|value| value as i64))
}
