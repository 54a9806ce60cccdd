//! A page, as the server sees it: HTTP by hand, and a WebSocket.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tungstenite::client::IntoClientRequest;
use tungstenite::http::HeaderValue;
use tungstenite::{Message, WebSocket};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Sends a request with these headers, and reads the answer to its end.
pub(crate) fn ask(port: u16, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask_at(SocketAddr::from(([127, 0, 0, 1], port)), method, path, headers)
}

pub(crate) fn ask_at(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n");
    headers.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head, body: bytes.get(end + 4..).unwrap_or_default().to_vec() }
}

/// Who a page says that it is.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(crate) address: SocketAddr,
    pub(crate) host: String,
    pub(crate) origin: Option<String>,
    pub(crate) site: &'static str,
}

impl Page {
    /// A page of the server's own.
    pub(crate) fn own(port: u16) -> Page {
        Page::own_at(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// The same of a server at any address, as a browser writes it.
    pub(crate) fn own_at(address: SocketAddr) -> Page {
        let url = url::Url::parse(&format!("http://{address}/")).unwrap();
        let origin = url.origin().ascii_serialization();
        let host = origin.strip_prefix("http://").unwrap().to_owned();
        Page { address, origin: Some(origin), host, site: "same-origin" }
    }

    /// A page of another origin.
    pub(crate) fn of(port: u16, origin: &str) -> Page {
        Page { origin: Some(origin.to_owned()), site: "cross-site", ..Page::own(port) }
    }

    pub(crate) fn ask_token(&self) -> Answer {
        let mut headers = vec![("host", self.host.as_str()), ("sec-fetch-site", self.site)];
        if let Some(origin) = &self.origin {
            headers.push(("origin", origin));
        }
        ask_at(self.address, "POST", "/holdfast/token", &headers)
    }

    pub(crate) fn token(&self) -> [u8; 32] {
        let answer = self.ask_token();
        assert_eq!(answer.status, 200, "{answer:?}");
        let digits = String::from_utf8(answer.body).unwrap();
        std::array::from_fn(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
    }

    /// The WebSocket, before the token; else the status of the refusal.
    pub(crate) fn socket(&self) -> Result<WebSocket<TcpStream>, u16> {
        let url = format!("ws://{}/holdfast", self.host);
        let mut request = url.into_client_request().unwrap();
        if let Some(origin) = &self.origin {
            request.headers_mut().insert("origin", HeaderValue::from_str(origin).unwrap());
        }
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(socket),
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
                Err(answer.status().as_u16())
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// A connection that the server has welcomed.
    pub(crate) fn connect(&self) -> Client {
        let mut client = Client { socket: self.socket().unwrap() };
        client.hello(&self.token());
        let welcome = client.read();
        assert_eq!(welcome[..2], [0x81, 1], "{welcome:?}");
        client
    }
}

/// A connection with the server.
pub(crate) struct Client {
    pub(crate) socket: WebSocket<TcpStream>,
}

/// How a call or an applet ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) kind: u8,
    pub(crate) words: String,
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The start of an applet, as JSON, with heaps by their names.
pub(crate) fn start_text(program: &[u8], heaps: &[&str]) -> String {
    let heaps: Vec<String> = heaps.iter().map(|heap| format!("{{\"heap\":\"{heap}\"}}")).collect();
    format!("{{\"sha256\":\"{}\",\"heaps\":[{}]}}", sha256(program), heaps.join(","))
}

impl Client {
    pub(crate) fn hello(&mut self, token: &[u8; 32]) {
        self.send(&[&[1, 1][..], token].concat());
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let mut sent = self.socket.send(Message::Binary(bytes.to_vec().into()));
        while let Err(tungstenite::Error::Io(error)) = &sent
            && error.kind() == ErrorKind::Interrupted
        {
            sent = self.socket.flush();
        }
        sent.unwrap();
    }

    pub(crate) fn message(&mut self, kind: u8, numbers: &[u32], rest: &[u8]) {
        let mut bytes = vec![kind];
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes.extend_from_slice(rest);
        self.send(&bytes);
    }

    /// The next message; panics when the connection is closed.
    pub(crate) fn read(&mut self) -> Vec<u8> {
        self.next().unwrap_or_else(|code| panic!("closed with {code}"))
    }

    /// The next message, or the code of the close; 1006 without one.
    pub(crate) fn next(&mut self) -> Result<Vec<u8>, u16> {
        loop {
            match self.socket.read() {
                Ok(Message::Binary(bytes)) => return Ok(bytes.to_vec()),
                Ok(Message::Close(frame)) => {
                    return Err(frame.map_or(1005, |frame| frame.code.into()));
                }
                Ok(_) => {}
                // The jails of other tests in this process make signals.
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // For the reader of a failed test.
                    eprintln!("the connection ended: {error}");
                    return Err(1006);
                }
            }
        }
    }

    /// The code with which the server closes the connection.
    pub(crate) fn closed(&mut self) -> u16 {
        loop {
            if let Err(code) = self.next() {
                return code;
            }
        }
    }

    /// Starts applet 1; `Ok` says whether its bytes were asked for.
    pub(crate) fn start(&mut self, program: &[u8], heaps: &[&str]) -> Result<bool, Failed> {
        self.start_as(1, program, &start_text(program, heaps))
    }

    pub(crate) fn start_as(
        &mut self,
        applet: u32,
        program: &[u8],
        text: &str,
    ) -> Result<bool, Failed> {
        self.message(2, &[applet], text.as_bytes());
        let mut answer = self.read();
        let is_needed = answer[0] == 0x82;
        if is_needed {
            self.upload(applet, program);
            answer = self.read();
        }
        match answer[0] {
            0x83 => Ok(is_needed),
            0x87 => Err(ended(&answer)),
            other => panic!("message {other}"),
        }
    }

    /// Has an applet started that the server does not know, and does not wait until it serves.
    pub(crate) fn begin_start(&mut self, program: &[u8], heaps: &[&str]) {
        self.message(2, &[1], start_text(program, heaps).as_bytes());
        assert_eq!(self.read()[0], 0x82);
        self.upload(1, program);
    }

    pub(crate) fn upload(&mut self, applet: u32, program: &[u8]) {
        for chunk in program.chunks(100_000) {
            self.message(3, &[applet], chunk);
        }
        self.message(4, &[applet], b"");
    }

    pub(crate) fn begin(&mut self, call: u32, streams: bool, function: &str, input: &[u8]) {
        let head = [u8::from(streams), function.len() as u8];
        self.message(5, &[1, call], &[&head, function.as_bytes(), input].concat());
    }

    /// Calls a function of applet 1.
    pub(crate) fn call(&mut self, function: &str, input: &[u8]) -> Result<Vec<u8>, Failed> {
        self.begin(7, false, function, input);
        let mut result = Vec::new();
        loop {
            let message = self.read();
            match message[0] {
                0x85 => {
                    result.extend_from_slice(&message[10..]);
                    if message[9] & 1 == 0 {
                        return Ok(result);
                    }
                }
                0x86 => {
                    let words = String::from_utf8(message[14..].to_vec()).unwrap();
                    return Err(Failed { kind: message[9], words });
                }
                0x87 => return Err(ended(&message)),
                other => panic!("message {other}"),
            }
        }
    }

    /// The count of `echo`, one higher at each call.
    pub(crate) fn count(&mut self) -> u64 {
        u64::from_le_bytes(self.call("count", b"").unwrap().try_into().unwrap())
    }

    /// Ends applet 1 in order.
    pub(crate) fn close(&mut self) {
        self.message(8, &[1], b"");
        let message = self.read();
        assert_eq!((message[0], message[5]), (0x87, 0), "{message:?}");
    }
}

pub(crate) fn ended(message: &[u8]) -> Failed {
    Failed { kind: message[5], words: String::from_utf8(message[6..].to_vec()).unwrap() }
}
