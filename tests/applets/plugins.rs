//! The host of plug-ins in Rust (`sandbox/applet/examples/plugin_host.rs`) with the plug-ins in C and
//! Rust, native and WebAssembly: a store by key, requests to servers that are allowed, a log.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use holdfast_applet::{Applet, CallError, Limits};
use holdfast_testkit::Programs;

use crate::plugin_host::{AllowedServer, Host};

fn plugins() -> Vec<PathBuf> {
    let programs = Programs::find().unwrap();
    ["plugin", "plugin-rust"]
        .iter()
        .flat_map(|name| [programs.native_applet(name), programs.applet(name)])
        .map(Result::unwrap)
        .collect()
}

/// A server on this machine, which ends with its value.
struct Server {
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = thread::spawn(move || while answer(listener.accept().unwrap().0) {});
        Server { address, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut last = TcpStream::connect(self.address).unwrap();
        last.write_all(b"GET /end HTTP/1.1\r\n\r\n").unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Answers one request; whether there may be more.
fn answer(mut stream: TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let request = lines.next().and_then(Result::ok).unwrap_or_default();
    for line in lines {
        if line.map_or(true, |line| line.is_empty()) {
            break;
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default();
    let (status, headers, body) = match path {
        "/page" => ("200 OK", "", "<HTML><Title lang=en>\n A page </TITLE>".to_owned()),
        "/untitled" => ("200 OK", "", "<p>no title".to_owned()),
        "/long" => ("200 OK", "", "x".repeat((4 << 20) + 1)),
        "/away" => ("302 Found", "Location: http://localhost:1/\r\n", String::new()),
        _ => ("404 Not Found", "", String::new()),
    };
    let length = body.len();
    // A client that has enough may be gone.
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    path != "/end"
}

/// Each plug-in runs on the same host, which keeps its state and stops what it does not allow.
///
/// Guarantee: applets/host-functions
#[test]
fn each_plugin_gets_what_its_host_allows() {
    let server = Server::start();
    let at = server.address;
    for path in plugins() {
        eprintln!("{}", path.display());
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = lines.clone();
        let host = Host::new(&[at.to_string()], "info", move |line| {
            log.lock().unwrap().push(line.to_owned());
        });
        let host = host.unwrap();
        for total in [3, 6] {
            let applet = Applet::spawn(&path, Limits::default(), host.grants()).unwrap();
            let counted = applet.call("count_vowels", b"Hello, World!").unwrap();
            let expected = format!(r#"{{"count":3,"total":{total},"vowels":"aeiouAEIOU"}}"#);
            assert_eq!(String::from_utf8_lossy(&counted), expected);
        }
        let applet = Applet::spawn(&path, Limits::default(), host.grants()).unwrap();
        let title = |url: &str| match applet.call("title", url.as_bytes()) {
            Ok(title) => Ok(String::from_utf8(title).unwrap()),
            Err(CallError::Failed { code, message }) => Err((code, message)),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(title(&format!("http://{at}/page")).unwrap(), "A page");
        for (url, code, words) in [
            ("http://example.org/".to_owned(), 403, "does not allow requests to example.org:80"),
            (format!("http://{at}@example.org/"), 403, "requests to example.org:80"),
            ("http://127.0.0.1:1/".to_owned(), 403, "does not allow requests to 127.0.0.1:1"),
            ("file:///etc/passwd".to_owned(), 400, "no URL of a server"),
            (format!("http://{at}/page\r\nX: y"), 400, "no URL of a server"),
            (format!("http://{at}/long"), 502, "longer than"),
            (format!("http://{at}/away"), 1, "no such page"),
            (format!("http://{at}/none"), 1, "no such page"),
            (format!("http://{at}/untitled"), 1, "no title"),
        ] {
            let (found, message) = title(&url).unwrap_err();
            assert!(found == code && message.contains(words), "{url}: {found}: {message}");
        }
        let lines = lines.lock().unwrap();
        assert_eq!(lines[..2], ["info: 3 vowels in 13 bytes", "info: 3 vowels in 13 bytes"]);
        assert!(lines.iter().any(|line| line == "warning: the server answered 302"), "{lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("debug")), "{lines:?}");
    }
}

/// Names of servers are whole names, and wrong ones are refused.
#[test]
fn allowed_servers_are_read_strictly() {
    for wrong in
        ["", "*", "*.", "a b", "a/b", "a@b", "*.*.org", "localhost:port", "localhost:70000"]
    {
        assert!(AllowedServer::parse(wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(AllowedServer::parse("Example.ORG"), AllowedServer::parse("example.org"));
    assert!(Host::new(&[], "loud", |_| {}).is_err());
}
