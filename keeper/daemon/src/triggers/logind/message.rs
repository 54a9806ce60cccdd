//! Messages of D-Bus, as far as the keeper needs them: method calls with text, and the header fields of whatever comes. See
//! "Message Protocol" in the D-Bus specification.
//!
//! Invariants:
//! - No byte of a message is believed: every length is checked against what is there.
//! - A message whose header cannot be understood breaks the connection: which descriptors are its own is not known. A bus
//!   lets none through. Bodies are not looked at unless they are wanted.

/// Longest message that is looked at; the bodies of longer ones are skipped.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 << 10;
const FIXED_BYTES: usize = 16;
const VERSION: u8 = 1;

const CALL: u8 = 1;
const ANSWER: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;

const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SENDER: u8 = 7;
const SIGNATURE: u8 = 8;
const UNIX_FDS: u8 = 9;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Call,
    Answer,
    Error,
    Signal,
    /// Of a later specification, to be passed over.
    Other,
}

/// What was understood of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) serial: u32,
    pub(super) reply_serial: Option<u32>,
    pub(super) interface: String,
    pub(super) member: String,
    pub(super) error_name: String,
    pub(super) sender: String,
    pub(super) signature: String,
    /// How many descriptors came with it.
    pub(super) descriptors: usize,
    big_endian: bool,
    body: Vec<u8>,
}

/// How much of a message there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// All but the body.
    pub(super) header_bytes: usize,
    pub(super) body_bytes: usize,
}

impl Extent {
    /// Of the message that begins here; `None` before enough of it is there.
    ///
    /// # Errors
    /// When this is no message, or its header is longer than any: where the next one begins is not known then.
    pub(super) fn of(bytes: &[u8]) -> Result<Option<Extent>, &'static str> {
        let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else { return Ok(None) };
        let big_endian = match fixed[0] {
            b'l' => false,
            b'B' => true,
            _ => return Err("what came is no message of a bus"),
        };
        if fixed[3] != VERSION {
            return Err("the bus speaks another version of its protocol");
        }
        let field = |at: usize| number(&fixed[at..at + 4], big_endian) as usize;
        let header_bytes = FIXED_BYTES.saturating_add(field(12)).next_multiple_of(8);
        if header_bytes > MESSAGE_BYTES_MAX {
            return Err("a message with a header that is too long came");
        }
        Ok(Some(Extent { header_bytes, body_bytes: field(4) }))
    }
}

impl Message {
    /// A message of which all of the header, and perhaps no body, is there. `None` when it cannot be understood.
    pub(super) fn parse(header: &[u8], body: &[u8]) -> Option<Message> {
        let big_endian = *header.first()? == b'B';
        let fields_bytes = number(header.get(12..16)?, big_endian) as usize;
        let mut message = Message {
            kind: match *header.get(1)? {
                CALL => Kind::Call,
                ANSWER => Kind::Answer,
                ERROR => Kind::Error,
                SIGNAL => Kind::Signal,
                _ => Kind::Other,
            },
            serial: number(header.get(8..12)?, big_endian),
            reply_serial: None,
            interface: String::new(),
            member: String::new(),
            error_name: String::new(),
            sender: String::new(),
            signature: String::new(),
            descriptors: 0,
            big_endian,
            body: body.to_vec(),
        };
        let bytes = header.get(..FIXED_BYTES.checked_add(fields_bytes)?)?;
        let mut reader = Reader { bytes, at: FIXED_BYTES, big_endian };
        while reader.at < bytes.len() {
            reader.align(8);
            let code = reader.byte()?;
            match (code, reader.signature()?) {
                (INTERFACE, "s") => message.interface = reader.text()?.to_owned(),
                (MEMBER, "s") => message.member = reader.text()?.to_owned(),
                (ERROR_NAME, "s") => message.error_name = reader.text()?.to_owned(),
                (SENDER, "s") => message.sender = reader.text()?.to_owned(),
                (SIGNATURE, "g") => message.signature = reader.signature()?.to_owned(),
                (REPLY_SERIAL, "u") => message.reply_serial = Some(reader.number()?),
                (UNIX_FDS, "u") => message.descriptors = reader.number()? as usize,
                (_, "s" | "o") => drop(reader.text()?),
                (_, "g") => drop(reader.signature()?),
                (_, "u") => drop(reader.number()?),
                _ => return None,
            }
        }
        Some(message)
    }

    /// The body, if it is one truth value.
    pub(super) fn truth(&self) -> Option<bool> {
        let value = self.body.get(..4).filter(|_| self.signature == "b")?;
        Some(number(value, self.big_endian) != 0)
    }

    /// The first text in the body, if it begins with one.
    pub(super) fn text(&self) -> Option<&str> {
        let mut reader = Reader { bytes: &self.body, at: 0, big_endian: self.big_endian };
        if self.signature.starts_with('s') { reader.text() } else { None }
    }
}

/// A method, and where it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Method {
    pub(super) destination: &'static str,
    pub(super) path: &'static str,
    pub(super) interface: &'static str,
    pub(super) member: &'static str,
}

/// A call with texts as its arguments.
pub(super) fn call(serial: u32, method: Method, arguments: &[&str]) -> Vec<u8> {
    let mut body = Vec::new();
    arguments.iter().for_each(|text| put_text(&mut body, text));
    let signature = "s".repeat(arguments.len());
    let fields = [
        (PATH, "o", method.path),
        (INTERFACE, "s", method.interface),
        (MEMBER, "s", method.member),
        (DESTINATION, "s", method.destination),
        (SIGNATURE, "g", signature.as_str()),
    ];
    let fields: Vec<_> = fields.into_iter().filter(|(_, _, value)| !value.is_empty()).collect();
    message(CALL, serial, &fields, &[], &body)
}

fn message(kind: u8, serial: u32, texts: &[(u8, &str, &str)], numbers: &[(u8, u32)], body: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    for (code, signature, value) in texts {
        align(&mut fields, 8);
        fields.push(*code);
        put_signature(&mut fields, signature);
        if *signature == "g" { put_signature(&mut fields, value) } else { put_text(&mut fields, value) }
    }
    for (code, value) in numbers {
        align(&mut fields, 8);
        fields.push(*code);
        put_signature(&mut fields, "u");
        align(&mut fields, 4);
        fields.extend_from_slice(&value.to_le_bytes());
    }
    let mut bytes = vec![b'l', kind, 0, VERSION];
    for number in [body.len() as u32, serial, fields.len() as u32] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&fields);
    align(&mut bytes, 8);
    bytes.extend_from_slice(body);
    bytes
}

fn align(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    align(bytes, 4);
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
}

fn put_signature(bytes: &mut Vec<u8>, signature: &str) {
    bytes.push(signature.len() as u8);
    bytes.extend_from_slice(signature.as_bytes());
    bytes.push(0);
}

/// Four bytes as a number; what is not there is zero.
fn number(bytes: &[u8], big_endian: bool) -> u32 {
    let bytes = bytes.first_chunk::<4>().copied().unwrap_or_default();
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// Where in the bytes one is.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

impl<'a> Reader<'a> {
    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn number(&mut self) -> Option<u32> {
        self.align(4);
        self.take(4).map(|bytes| number(bytes, self.big_endian))
    }

    fn text(&mut self) -> Option<&'a str> {
        let count = self.number()? as usize;
        self.ended(count)
    }

    fn signature(&mut self) -> Option<&'a str> {
        let count = usize::from(self.byte()?);
        self.ended(count)
    }

    /// Text, and the zero behind it.
    fn ended(&mut self, count: usize) -> Option<&'a str> {
        let text = std::str::from_utf8(self.take(count)?).ok()?;
        self.byte().filter(|&end| end == 0)?;
        Some(text)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A signal with a truth value, as logind sends it.
    pub(crate) fn signal(sender: &str, member: &str, value: bool) -> Vec<u8> {
        let texts = [
            (PATH, "o", "/org/freedesktop/login1"),
            (INTERFACE, "s", "org.freedesktop.login1.Manager"),
            (MEMBER, "s", member),
            (SENDER, "s", sender),
            (SIGNATURE, "g", "b"),
        ];
        message(SIGNAL, 9, &texts, &[], &u32::from(value).to_le_bytes())
    }

    /// An answer, with descriptors or without.
    pub(crate) fn answer(to: u32, destination: &str, sender: &str, descriptors: u32) -> Vec<u8> {
        let mut texts = vec![(DESTINATION, "s", destination), (SENDER, "s", sender)];
        let mut numbers = vec![(REPLY_SERIAL, to)];
        if descriptors > 0 {
            texts.push((SIGNATURE, "g", "h"));
            numbers.push((UNIX_FDS, descriptors));
        }
        texts.retain(|(_, _, text)| !text.is_empty());
        message(ANSWER, 8, &texts, &numbers, if descriptors > 0 { &[0; 4] } else { &[] })
    }

    pub(crate) fn refusal(to: u32, name: &str, why: &str) -> Vec<u8> {
        let mut body = Vec::new();
        put_text(&mut body, why);
        let texts = [(ERROR_NAME, "s", name), (SENDER, "s", "org.freedesktop.DBus"), (SIGNATURE, "g", "s")];
        message(ERROR, 7, &texts, &[(REPLY_SERIAL, to)], &body)
    }

    /// A long message of no interest, with descriptors.
    pub(crate) fn long(body_bytes: usize, descriptors: u32) -> Vec<u8> {
        let numbers = [(UNIX_FDS, descriptors)];
        let numbers = if descriptors > 0 { &numbers[..] } else { &[] };
        message(SIGNAL, 6, &[(MEMBER, "s", "Noise"), (SENDER, "s", ":1.666")], numbers, &vec![7; body_bytes])
    }

    pub(crate) fn parsed(bytes: &[u8]) -> Option<Message> {
        let extent = Extent::of(bytes).ok()??;
        let body = bytes.get(extent.header_bytes..extent.header_bytes.checked_add(extent.body_bytes)?)?;
        Message::parse(&bytes[..extent.header_bytes], body)
    }

    const HELLO: Method = Method {
        destination: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member: "Hello",
    };

    #[test]
    fn a_call_is_laid_out_as_the_specification_says() {
        let bytes = call(3, HELLO, &["delay"]);
        assert_eq!(&bytes[..4], b"l\x01\x00\x01");
        assert_eq!(bytes[4..12], [10, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(&bytes[16..24], b"\x01\x01o\0\x15\0\0\0");
        assert_eq!(&bytes[bytes.len() - 10..], b"\x05\0\0\0delay\0");
        let message = parsed(&bytes).unwrap();
        assert_eq!(
            (message.kind, message.member.as_str(), message.text()),
            (Kind::Call, "Hello", Some("delay"))
        );
    }

    #[test]
    fn what_comes_is_understood() {
        let message = parsed(&signal(":1.2", "PrepareForShutdown", true)).unwrap();
        assert_eq!(
            (message.kind, message.sender.as_str(), message.truth()),
            (Kind::Signal, ":1.2", Some(true))
        );
        let message = parsed(&answer(3, ":1.9", ":1.2", 1)).unwrap();
        assert_eq!((message.kind, message.reply_serial, message.descriptors), (Kind::Answer, Some(3), 1));
        let message = parsed(&refusal(3, "org.x.Denied", "no")).unwrap();
        assert_eq!(
            (message.kind, message.error_name.as_str(), message.text()),
            (Kind::Error, "org.x.Denied", Some("no"))
        );
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let whole = refusal(3, "org.x.Denied", "no");
        for cut in 0..whole.len() {
            assert_eq!(parsed(&whole[..cut]), None);
            for value in [0, 1, 7, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[cut] = value;
                let _ = parsed(&bytes).map(|message| (message.truth(), message.text().is_some()));
            }
        }
    }
}
