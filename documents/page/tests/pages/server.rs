//! A server for tests, on loopback: it says what it is told to, and keeps what it was asked.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How an answer goes out.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// As it should.
    Whole,
    /// Half of the body, then the connection ends.
    Half,
    /// Body after body.
    Endless,
    /// The head, then nothing for as long as the test takes.
    Stuck,
    /// The head, then a byte now and then.
    Drop,
    /// Nothing for as long as the test takes.
    Mute,
    /// These bytes, and nothing of HTTP about them.
    Raw(Vec<u8>),
}

/// What the server says of an address.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) way: Way,
}

impl Reply {
    pub(crate) fn html(body: impl AsRef<[u8]>) -> Reply {
        Reply::new("text/html; charset=utf-8", body)
    }

    pub(crate) fn css(body: impl AsRef<[u8]>) -> Reply {
        Reply::new("text/css", body)
    }

    pub(crate) fn new(kind: &str, body: impl AsRef<[u8]>) -> Reply {
        let headers = vec![("Content-Type".to_owned(), kind.to_owned())];
        Reply { status: 200, headers, body: body.as_ref().to_vec(), way: Way::Whole }
    }

    pub(crate) fn status(status: u16) -> Reply {
        Reply { status, ..Reply::html("<!doctype html><p>no") }
    }

    pub(crate) fn redirect(to: &str) -> Reply {
        Reply::status(302).with("Location", to)
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn on(self, way: Way) -> Reply {
        Reply { way, ..self }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// A request: the path, and its headers with names in small letters.
pub(crate) type Asked = (String, HashMap<String, String>);

#[derive(Default)]
struct Shared {
    replies: Mutex<HashMap<String, Reply>>,
    asked: Mutex<Vec<Asked>>,
    ends: AtomicBool,
}

/// A server on loopback with scripted answers, which records its requests.
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Server {
    pub(crate) fn new() -> Server {
        Server::at("127.0.0.1:0")
    }

    /// One that comes back at the place of another.
    pub(crate) fn at(address: &str) -> Server {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let server = Server { shared: Arc::clone(&shared), address };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ends.load(Ordering::SeqCst) {
                    break;
                }
                let shared = Arc::clone(&shared);
                // The client may have gone.
                std::thread::spawn(move || stream.and_then(|stream| serve(&shared, stream)));
            }
        });
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn say(&self, path: &str, reply: Reply) {
        self.shared.replies.lock().unwrap().insert(path.to_owned(), reply);
    }

    /// What it was asked since the last time, sorted by path.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let mut asked = std::mem::take(&mut *self.shared.asked.lock().unwrap());
        asked.sort_by(|one, other| one.0.cmp(&other.0));
        asked
    }

    /// The same, of which only the paths.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|(path, _)| path).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        // Its thread waits for a client.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(shared: &Shared, stream: TcpStream) -> std::io::Result<()> {
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    while !shared.ends.load(Ordering::SeqCst) {
        let mut first = String::new();
        if lines.read_line(&mut first)? == 0 {
            break;
        }
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            lines.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let reply = shared
            .replies
            .lock()
            .unwrap()
            .get(&path)
            .cloned()
            .unwrap_or_else(|| Reply::status(404));
        shared.asked.lock().unwrap().push((path, headers.clone()));
        if !answer(shared, &mut stream, &reply, &headers)? {
            break;
        }
    }
    Ok(())
}

/// Whether the connection goes on.
fn answer(
    shared: &Shared,
    stream: &mut TcpStream,
    reply: &Reply,
    asked: &HashMap<String, String>,
) -> std::io::Result<bool> {
    if let Way::Raw(bytes) = &reply.way {
        stream.write_all(bytes)?;
        return Ok(false);
    }
    let rest = || std::thread::sleep(Duration::from_millis(20));
    if matches!(reply.way, Way::Mute) {
        while !shared.ends.load(Ordering::SeqCst) {
            rest();
        }
        return Ok(false);
    }
    let is_known = |said: &str, known: &str| {
        asked.get(known).is_some_and(|known| reply.header(said).is_some_and(|said| said == known))
    };
    let is_unchanged = is_known("ETag", "if-none-match")
        || !asked.contains_key("if-none-match") && is_known("Last-Modified", "if-modified-since");
    let status = if is_unchanged { 304 } else { reply.status };
    let mut head = format!("HTTP/1.1 {status} Said\r\n");
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let is_endless = matches!(reply.way, Way::Endless);
    if !is_unchanged && !is_endless && reply.header("Content-Length").is_none() {
        head.push_str(&format!("Content-Length: {}\r\n", reply.body.len()));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    if is_unchanged {
        return Ok(true);
    }
    match reply.way {
        Way::Half => stream.write_all(&reply.body[..reply.body.len() / 2])?,
        Way::Endless => {
            // A limit in case no client has one.
            for _ in 0..(1 << 30) / reply.body.len() {
                stream.write_all(&reply.body)?;
            }
        }
        Way::Stuck => {
            while !shared.ends.load(Ordering::SeqCst) {
                rest();
            }
        }
        Way::Drop => {
            for byte in &reply.body {
                stream.write_all(&[*byte])?;
                rest();
            }
        }
        Way::Whole | Way::Raw(_) | Way::Mute => {
            stream.write_all(&reply.body)?;
            // What is said of the length may not be so.
            return Ok(reply.header("Content-Length").is_none());
        }
    }
    Ok(false)
}

/// Talks TLS with a certificate that only it has signed itself, and says the same of everything;
/// the certificate in PEM.
pub(crate) fn self_made_tls(page: &'static str) -> (SocketAddr, String) {
    tls_with(page, rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap())
}

/// As [`self_made_tls`], with a certificate that is its own authority, as `openssl req -x509` makes
/// them.
pub(crate) fn own_authority_tls(
    page: &'static str,
    describe: impl FnOnce(&mut rcgen::CertificateParams),
) -> (SocketAddr, String) {
    let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    describe(&mut params);
    tls_with(page, params)
}

fn tls_with(page: &'static str, params: rcgen::CertificateParams) -> (SocketAddr, String) {
    let signing_key = rcgen::KeyPair::generate().unwrap();
    let cert = params.self_signed(&signing_key).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(4).flatten() {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
            if let Ok(connection) = rustls::ServerConnection::new(Arc::clone(&config)) {
                let mut stream = rustls::StreamOwned::new(connection, stream);
                if stream.read(&mut [0; 4096]).is_ok() {
                    let length = page.len();
                    let _ =
                        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{page}");
                    let _ = stream.flush();
                }
            }
        }
    });
    (address, cert.pem())
}

/// Takes what is TLS for a bad request, as servers do that talk none.
pub(crate) fn plain_at_the_port_of_tls() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().take(4).flatten() {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    address
}
