//! Pages and programs that want more than they may have.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::client::{Client, Page, ask, ended, sha256, start_text};
use crate::program::{Program, within};
use crate::served::{FRIEND, Home, applet};

const CORS: &str = "access-control-allow-origin";
const PRIVATE: &str = "access-control-allow-private-network";

/// Guarantee: serve/origin
#[test]
fn page_of_another_origin_is_refused() {
    let home = Home::new();
    let served = home.serve();
    let own = served.own();
    let origins = [
        "https://evil.example",
        "null",
        "http://127.0.0.1:1",
        "https://friend.example.evil.example",
        "http://friend.example",
        "https://friend.example/",
        &format!("http://127.0.0.1:{}.evil.example", served.port),
    ];
    for origin in origins {
        let page = Page::of(served.port, origin);
        let answer = page.ask_token();
        assert_eq!((answer.status, answer.header(CORS)), (403, None), "{origin}");
        assert_eq!(page.socket().err(), Some(403), "{origin}");
        // A page that claims to be at home in one header only.
        let page = Page { site: "same-origin", ..page };
        assert_eq!(page.ask_token().status, 403, "{origin}");
    }
    let nobody = Page { origin: None, ..own.clone() };
    assert_eq!(nobody.ask_token().status, 403);
    assert_eq!(nobody.socket().err(), Some(403));
    for site in ["cross-site", "same-site", "none", ""] {
        assert_eq!(Page { site, ..own.clone() }.ask_token().status, 403, "{site}");
    }
    let headers = [("host", own.host.as_str()), ("origin", own.origin.as_deref().unwrap())];
    assert_eq!(ask(served.port, "POST", "/holdfast/token", &headers).status, 403);
    assert_eq!(own.ask_token().status, 200);
}

/// An allowed page of another origin may read its token, and nothing else, and no other page may.
///
/// Guarantee: serve/origin
#[test]
fn allowed_page_reads_its_token_and_nothing_else() {
    let home = Home::new();
    let served = home.serve();
    let friend = Page::of(served.port, FRIEND);
    let answer = friend.ask_token();
    assert_eq!((answer.status, answer.header(CORS)), (200, Some(FRIEND)));
    assert_eq!(answer.header("vary"), Some("Origin"));
    let preflight = |origin: &str| {
        let headers = [
            ("host", friend.host.as_str()),
            ("origin", origin),
            ("sec-fetch-site", "cross-site"),
            ("access-control-request-method", "POST"),
            ("access-control-request-private-network", "true"),
        ];
        ask(served.port, "OPTIONS", "/holdfast/token", &headers)
    };
    let answer = preflight(FRIEND);
    assert_eq!((answer.status, answer.header(CORS)), (204, Some(FRIEND)));
    assert_eq!(answer.header(PRIVATE), Some("true"));
    let answer = preflight("https://evil.example");
    assert_eq!((answer.status, answer.header(CORS), answer.header(PRIVATE)), (403, None, None));
    let file = ask(served.port, "GET", "/", &[("host", &friend.host), ("origin", FRIEND)]);
    assert_eq!((file.status, file.header(CORS)), (200, None));
    assert_eq!(served.own().ask_token().header(CORS), None);
}

/// A page that reaches the server by a name of its own gets nothing.
///
/// Guarantee: serve/rebinding
#[test]
fn foreign_host_name_is_misdirected() {
    let home = Home::new();
    let served = home.serve();
    let port = served.port;
    for host in ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost", "[::1]", ""] {
        for path in ["/", "/index.html", "/holdfast", "/holdfast/token"] {
            assert_eq!(ask(port, "GET", path, &[("host", host)]).status, 421, "{host} {path}");
        }
    }
    let host = format!("evil.example:{port}");
    let evil = Page { origin: Some(format!("http://{host}")), host, ..served.own() };
    assert_eq!(evil.ask_token().status, 421);
    assert_eq!(evil.socket().err(), Some(421));
    let own = served.own();
    let two = [("host", own.host.as_str()), ("host", "evil.example")];
    assert_ne!(ask(port, "GET", "/", &two).status, 200);
    // By this name a browser may reach what another user has at `::1`.
    let local = format!("localhost:{port}");
    let page = Page { origin: Some(format!("http://{local}")), host: local, ..served.own() };
    assert_eq!(page.ask_token().status, 421);
    let named = Page { host: own.host.clone(), ..page };
    assert_eq!(named.ask_token().status, 403);
}

/// A service worker would answer for what is served at the same port later.
///
/// Guarantee: serve/files
#[test]
fn no_script_of_a_service_worker_is_served() {
    let home = Home::new();
    let served = home.serve();
    let own = served.own();
    let plain = [("host", own.host.as_str())];
    assert_eq!(ask(served.port, "GET", "/index.html", &plain).status, 200);
    let worker = [plain[0], ("service-worker", "script")];
    assert_eq!(ask(served.port, "GET", "/index.html", &worker).status, 403);
}

/// The code with which a connection ends that presents this token.
fn presented(page: &Page, token: &[u8; 32]) -> Result<(), u16> {
    let mut client = Client { socket: page.socket().unwrap() };
    client.hello(token);
    client.next().map(|welcome| assert_eq!(welcome[0], 0x81))
}

/// A token is good once, for its origin, for a while.
///
/// Guarantee: serve/token
#[test]
fn token_is_good_once_for_its_origin() {
    let home = Home::new();
    let served = home.serve_with(|limits| limits.token_life = Duration::from_millis(400));
    let (own, friend) = (served.own(), Page::of(served.port, FRIEND));
    let token = own.token();
    assert_eq!(presented(&own, &token), Ok(()));
    assert_eq!(presented(&own, &token), Err(1008), "replayed");
    let token = friend.token();
    assert_eq!(presented(&own, &token), Err(1008), "of another origin");
    assert_eq!(presented(&friend, &token), Err(1008), "and used up by that");
    let token = own.token();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(presented(&own, &token), Err(1008), "expired");
    assert_eq!(presented(&own, &[0; 32]), Err(1008), "invented");
    assert_eq!(presented(&own, &own.token()), Ok(()));
}

/// Guarantee: serve/token
#[test]
fn nothing_is_done_before_the_token() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve_with(|limits| limits.hello_timeout = Duration::from_millis(200));
    let mut client = Client { socket: served.own().socket().unwrap() };
    client.message(2, &[1], start_text(&program, &[]).as_bytes());
    assert_eq!(client.closed(), 1008);
    let mut silent = Client { socket: served.own().socket().unwrap() };
    assert_eq!(silent.closed(), 1008);
    let mut twice = served.connect();
    twice.hello(&served.own().token());
    assert_eq!(twice.closed(), 1002);
}

/// Guarantee: serve/frames
#[test]
fn oversized_message_is_refused() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve();
    let mut client = served.connect();
    client.start(&program, &[]).unwrap();
    client.begin(1, false, "echo", &vec![0; (16 << 20) - 15]);
    let mut bytes = 0;
    while bytes < (16 << 20) - 15 {
        bytes += client.read().len() - 10;
    }
    client.begin(1, false, "echo", &vec![0; 16 << 20]);
    assert_eq!(client.closed(), 1009);
    let mut client = served.connect();
    let _ = client.socket.send(tungstenite::Message::Binary(vec![0; 40 << 20].into()));
    assert!([1009, 1006].contains(&client.closed()));
    assert!(served.connect().start(&program, &[]).is_ok());
}

/// Guarantee: serve/flood
#[test]
fn flood_is_closed_and_the_server_goes_on() {
    let (home, program) = (Home::new(), applet("trial"));
    let served = home.serve_with(|limits| {
        limits.messages_per_s = 1000;
        limits.flood = Duration::from_millis(200);
    });
    let mut client = served.connect();
    client.start(&program, &[]).unwrap();
    let patience = Duration::from_secs(10);
    client.socket.get_mut().set_write_timeout(Some(patience)).unwrap();
    let start = Instant::now();
    let more = [&[7_u8][..], &[0; 12]].concat();
    // Until the server hangs up.
    while client.socket.send(tungstenite::Message::Binary(more.clone().into())).is_ok()
        && start.elapsed() < patience
    {}
    assert!([1008, 1006].contains(&client.closed()));
    assert!(start.elapsed() < patience, "the flood went on for {:?}", start.elapsed());
    let mut client = served.connect();
    client.start(&program, &[]).unwrap();
    client.begin(1, false, "spin_until_cancelled", b"");
    (2..=64).for_each(|call| client.begin(call, false, "echo", b""));
    client.begin(65, false, "echo", b"");
    assert_eq!(client.closed(), 1008, "too many calls wait");
    let mut client = served.connect();
    client.start(&program, &[]).unwrap();
    client.begin(1, false, "spin_until_cancelled", b"");
    (2..=6).for_each(|call| client.begin(call, false, "echo", &vec![0; 15 << 20]));
    assert_eq!(client.closed(), 1008, "too many bytes wait");
    let mut client = served.connect();
    client.start(&program, &[]).unwrap();
    assert_eq!(client.call("echo", b"x").unwrap(), b"x");
}

/// A socket that says nothing, and one that says it byte by byte and never ends, would keep others
/// out for good.
///
/// Guarantee: serve/silent
#[test]
fn silent_sockets_are_closed() {
    let (home, program) = (Home::new(), applet("trial"));
    let served = home.serve_with(|limits| {
        limits.sockets = 4;
        limits.head_timeout = Duration::from_millis(300);
    });
    let sockets: Vec<_> =
        (0..4).map(|_| TcpStream::connect(("127.0.0.1", served.port)).unwrap()).collect();
    let start = Instant::now();
    let mut slow = &sockets[0];
    slow.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    while !is_closed(slow) && start.elapsed() < Duration::from_secs(20) {
        let _ = slow.write(b"GET / HTTP/1.1\r\nx: y\r\n");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "a head that never ends is waited for");
    for silent in &sockets[1..] {
        silent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(is_closed(silent));
    }
    // A connection that said what it wants may be silent for longer.
    let mut client = served.connect();
    client.start(&program, &[]).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(client.call("echo", b"x").unwrap(), b"x");
}

/// A connection that asked for something and says no more is closed, so others get its place; so is
/// one whose next request never ends. A WebSocket stays.
///
/// Guarantee: serve/silent
#[test]
fn idle_sockets_are_closed() {
    let (home, program) = (Home::new(), applet("trial"));
    let served = home.serve_with(|limits| {
        limits.sockets = 4;
        limits.idle_timeout = Duration::from_millis(300);
    });
    let mut client = served.connect();
    client.start(&program, &[]).unwrap();
    let request = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", served.own().host);
    let idle = || {
        let mut socket = TcpStream::connect(served.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"<p>hello") {
            let mut bytes = [0; 1000];
            let count = socket.read(&mut bytes).unwrap();
            assert_ne!(count, 0);
            answer.extend_from_slice(&bytes[..count]);
        }
        socket
    };
    let sockets = [idle(), idle(), idle()];
    let answer = ask(served.port, "GET", "/", &[("host", &served.own().host)]);
    assert_eq!(answer.status, 200, "an idle one gave its place");
    for mut socket in sockets {
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    }
    let (mut slow, start) = (idle(), Instant::now());
    slow.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    while !is_closed(&slow) && start.elapsed() < Duration::from_secs(20) {
        let _ = slow.write(b"x: y\r\n");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "a head that never ends is waited for");
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(client.call("echo", b"x").unwrap(), b"x");
}

/// A file that leaves slowly leaves as a whole; one that nobody reads is given up.
///
/// Guarantee: serve/silent
#[test]
fn unread_answer_is_given_up() {
    const BYTES: usize = 32 << 20;
    // A buffer that grows is pruned, and TCP waits for seconds until it sends again.
    const BUFFER_BYTES: usize = 256 << 10;
    let home = Home::new();
    std::fs::File::create(home.web().join("large")).unwrap().set_len(BYTES as u64).unwrap();
    let ask = |send_timeout| {
        let served = home.serve_with(|limits| {
            limits.idle_timeout = Duration::from_millis(100);
            limits.send_timeout = send_timeout;
        });
        let mut socket = TcpStream::connect(served.address).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let request = format!("GET /large HTTP/1.1\r\nhost: {}\r\n\r\n", served.own().host);
        socket.write_all(request.as_bytes()).unwrap();
        (served, socket)
    };

    // Far longer than a busy machine takes to send the next bytes.
    let send_timeout = Duration::from_secs(10);
    let (_served, mut slow) = ask(send_timeout);
    let (start, mut bytes, mut left) = (Instant::now(), vec![0; BUFFER_BYTES], 0);
    while left < BYTES {
        std::thread::sleep(Duration::from_millis(100));
        let count = slow.read(&mut bytes).unwrap();
        assert_ne!(count, 0, "{left} bytes came");
        left += count;
    }
    assert!(start.elapsed() > send_timeout, "the file left too fast to show anything");

    let send_timeout = Duration::from_millis(500);
    let (_served, mut unread) = ask(send_timeout);
    std::thread::sleep(4 * send_timeout);
    let mut came = Vec::new();
    let _ = unread.read_to_end(&mut came);
    assert!(came.len() < BYTES, "{}", came.len());
}

/// Whether the server has closed a socket, whose reads end soon.
fn is_closed(mut socket: &TcpStream) -> bool {
    match socket.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Guarantee: serve/garbage
#[test]
fn garbage_closes_the_connection() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve();
    let no_json = [&[2, 0, 0, 0, 0][..], b"{\"sha256\":1}"].concat();
    let unknown = start_text(&program, &[]).replace("\"heaps\"", "\"helps\"");
    let unknown = [&[2, 0, 0, 0, 0][..], unknown.as_bytes()].concat();
    for bad in [&[][..], &[0], &[0xff; 100], &[5, 1], &no_json, &unknown, &[4, 1, 0, 0, 0, 0]] {
        let mut client = served.connect();
        client.start(&program, &[]).unwrap();
        client.send(bad);
        assert_eq!(client.closed(), 1002, "{bad:?}");
    }
    // Messages that are right, at the wrong time.
    for (kind, numbers) in [(3, &[1][..]), (4, &[1])] {
        let mut client = served.connect();
        client.start(&program, &[]).unwrap();
        client.message(kind, numbers, b"");
        assert_eq!(client.closed(), 1002, "{kind}");
    }
    let mut client = served.connect();
    client.start(&program, &[]).unwrap();
    client.message(2, &[1], start_text(&program, &[]).as_bytes());
    assert_eq!(client.closed(), 1002, "two applets of one number");
    let mut client = served.connect();
    client.socket.send(tungstenite::Message::Text("hello".into())).unwrap();
    assert_eq!(client.closed(), 1003);
    // What is about nothing is answered, or nothing.
    let mut client = served.connect();
    for (kind, numbers) in [(3, &[9][..]), (4, &[9]), (6, &[9, 9]), (7, &[9, 9, 9]), (8, &[9])] {
        client.message(kind, numbers, b"");
    }
    client.start(&program, &[]).unwrap();
    assert_eq!(client.call("echo", b"x").unwrap(), b"x");
}

/// Guarantee: serve/hash-mismatch
#[test]
fn bytes_with_another_hash_do_not_run() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve();
    let mut client = served.connect();
    let other = applet("trial");
    let refused = client.start_as(1, &other, &start_text(&program, &["tally"])).unwrap_err();
    assert_eq!(refused.kind, 10);
    assert!(refused.words.contains(&sha256(&other)), "{refused:?}");
    assert_eq!(std::fs::read_dir(home.home().join("applets")).unwrap().count(), 0);
    let served = home.serve_with(|limits| limits.applet_bytes = 1000);
    let refused = served.connect().start(&program, &[]).unwrap_err();
    assert_eq!(refused.kind, 3);
}

/// Heaps follow from the origin, whatever a page names.
///
/// Guarantee: serve/heap-of-another-origin
#[test]
fn heap_of_another_origin_is_refused() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve();
    let mut own = served.connect();
    own.start(&program, &["tally"]).unwrap();
    assert_eq!(own.count(), 1);
    own.close();
    let mut friend = Page::of(served.port, FRIEND).connect();
    let refused = friend.start(&program, &["tally"]).unwrap_err();
    assert!(refused.kind == 7 && !refused.words.contains("file://"), "{refused:?}");
    friend.start(&program, &["theirs"]).unwrap();
    assert_eq!(friend.count(), 1);
    friend.close();
    assert_eq!(own.start(&program, &["theirs"]).unwrap_err().kind, 7);
    // A heap that all applets of the user share is no page's.
    let places = home.places();
    let key = holdfast_region::OwnerKey::load_or_create(&places, "default").unwrap();
    let names = holdfast_region::NameSpace::new(places);
    let shared = names.create(&"shared".parse().unwrap(), &key, 1 << 20).unwrap();
    shared.close().unwrap();
    let refused = own.start(&program, &["shared"]).unwrap_err();
    assert_eq!(refused.kind, 7, "{refused:?}");
    own.start(&program, &["tally"]).unwrap();
    assert_eq!(own.count(), 2);
}

/// A signed applet has the heaps of the page that runs it, and not those of its publisher.
///
/// Guarantee: serve/heap-of-another-origin
#[test]
fn signature_opens_no_heap_of_its_publisher() {
    let home = Home::new();
    let path = home.web().join("signed");
    std::fs::write(&path, applet("echo")).unwrap();
    let name = holdfast_identity::PublisherName::parse("Acme").unwrap();
    let key_file = home.web().join("key");
    let key = holdfast_identity::PublisherKey::generate(&key_file, name).unwrap();
    let application = holdfast_identity::ApplicationName::parse("tally").unwrap();
    holdfast_identity::sign(&path, &key, &application).unwrap();
    let program = std::fs::read(&path).unwrap();
    let places = home.places();
    let file = holdfast_identity::AppletFile::of_path(&path).unwrap();
    let identity = holdfast_identity::Identity::of(&file, None);
    let names = holdfast_region::NameSpace::new(places);
    let heap = "published".parse().unwrap();
    let key = holdfast_identity::key_for(&names, &heap, &identity).unwrap();
    names.create(&heap, key.key(), 1 << 20).unwrap().close().unwrap();
    let served = home.serve();
    let mut client = served.connect();
    assert_eq!(client.start(&program, &["published"]).unwrap_err().kind, 7);
    client.start(&program, &["tally"]).unwrap();
    client.close();
    client.start(&applet("echo"), &["tally"]).unwrap();
}

/// Guarantee: serve/applet-limits
/// Guarantee: serve/heap-limits
#[test]
fn page_has_as_many_applets_and_heaps_as_it_may() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve_with(|limits| {
        limits.applets_per_connection = 2;
        limits.applets = 5;
        limits.heaps_per_origin = 2;
        limits.connections_per_origin = 3;
    });
    let mut client = served.connect();
    let text = start_text(&program, &[]);
    client.start_as(1, &program, &text).unwrap();
    client.start_as(2, &program, &text).unwrap();
    assert_eq!(client.start_as(3, &program, &text).unwrap_err().kind, 9);
    let mut second = served.connect();
    second.start_as(1, &program, &text).unwrap();
    let refused = second.start_as(2, &program, &text).unwrap_err();
    assert!(refused.kind == 9 && refused.words.contains("this origin runs 3"), "{refused:?}");
    let third = served.connect();
    assert_eq!(served.own().socket().err(), Some(429), "too many connections");
    drop((second, third));
    client.close();
    client.start_as(3, &program, &start_text(&program, &["one"])).unwrap();
    let mut second = served.connect();
    within(|| second.start_as(1, &program, &start_text(&program, &["two"])).is_ok());
    client.message(8, &[3], b"");
    assert_eq!(client.read()[..2], [0x87, 3]);
    let refused = client.start_as(3, &program, &start_text(&program, &["three"])).unwrap_err();
    assert!(refused.kind == 9 && refused.words.contains("--heaps-per-origin"), "{refused:?}");
    client.start_as(3, &program, &start_text(&program, &["one"])).unwrap();
    second.close();
    let asks = |limits: &str| text.replace("}", &format!(",\"limits\":{{{limits}}}}}"));
    for limits in ["\"memoryBytes\":1000000000000", "\"callTimeoutMs\":0", "\"threads\":99"] {
        let refused = second.start_as(4, &program, &asks(limits)).unwrap_err();
        assert_eq!(refused.kind, 8, "{limits}: {refused:?}");
    }
}

/// Uploads that never end keep their places for a while only, and those of one origin leave some to
/// others. One that goes on is waited for.
///
/// Guarantee: serve/applet-limits
#[test]
fn endless_uploads_keep_no_places() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve_with(|limits| {
        limits.upload_idle = Duration::from_secs(2);
        limits.upload_timeout = Duration::from_secs(4);
    });
    let friend = Page::of(served.port, FRIEND);
    let mut clients: Vec<Client> = (0..4).map(|_| friend.connect()).collect();
    let text = start_text(b"never comes", &[]);
    let mut uploads = 0;
    for client in &mut clients {
        for applet in 1..=8 {
            client.message(2, &[applet], text.as_bytes());
            let answer = client.read();
            if answer[0] == 0x82 {
                uploads += 1;
                continue;
            }
            let refused = ended(&answer);
            assert!(refused.kind == 9 && refused.words.contains("close one first"), "{refused:?}");
        }
    }
    assert_eq!(uploads, 16, "half of all applets");
    let mut own = served.connect();
    own.start(&program, &[]).unwrap();
    own.close();
    let end = Instant::now() + Duration::from_secs(10);
    for client in &mut clients[..2] {
        for _ in 0..8 {
            let given_up = ended(&client.read());
            assert!(given_up.kind == 12 && given_up.words.contains("in time"), "{given_up:?}");
        }
    }
    assert!(Instant::now() < end);
    let upload = |client: &mut Client, program: &[u8], pause: Duration| {
        client.message(2, &[1], start_text(program, &[]).as_bytes());
        assert_eq!(client.read()[0], 0x82);
        for chunk in program.chunks(program.len().div_ceil(3)) {
            client.message(3, &[1], chunk);
            std::thread::sleep(pause);
        }
        client.message(4, &[1], b"");
        client.read()
    };
    let other = applet("trial");
    assert_eq!(upload(&mut clients[0], &other, Duration::from_secs(1))[0], 0x83, "it goes on");
    let given_up = ended(&upload(&mut clients[1], b"too slowly", Duration::from_millis(1500)));
    assert_eq!(given_up.kind, 12, "{given_up:?}");
}

/// What a page is told has no path of this machine and no number of a process; the user has both.
///
/// Guarantee: serve/discretion
#[test]
fn page_learns_no_path_and_no_process() {
    let (home, program) = (Home::new(), applet("echo"));
    let told = home.folder().join("told");
    let file = std::fs::File::create(&told).unwrap();
    let served = Program::start_telling(&home, &["--app", "tally"], file.into());
    let mut client = served.own().connect();
    client.message(2, &[1], start_text(&program, &["tally"]).as_bytes());
    assert_eq!(client.read()[0], 0x82);
    client.upload(1, &program);
    let started = client.read();
    assert_eq!(started[0], 0x83);
    let started = String::from_utf8(started[5..].to_vec()).unwrap();
    let place = home.folder().display().to_string();
    assert!(!started.contains(&place), "{started}");
    client.close();
    let names = holdfast_region::NameSpace::new(home.places());
    let heap = "tally".parse().unwrap();
    let identity =
        holdfast_identity::Identity::Named(holdfast_identity::GivenName::parse("tally").unwrap());
    let key = holdfast_identity::key_for(&names, &heap, &identity).unwrap();
    let region = names.open(&heap, key.key()).unwrap();
    let held = client.start(&program, &["tally"]).unwrap_err();
    assert!(held.kind == 6 && held.words.contains("held by another page or process;"), "{held:?}");
    region.close().unwrap();
    names.remove(&heap, key.key()).unwrap();
    client.start(&program, &["dict"]).unwrap();
    client.close();
    [home.pool(), home.home()].iter().for_each(|folder| cut_files_of(folder, "dict"));
    let damaged = client.start(&program, &["dict"]).unwrap_err();
    assert!(damaged.kind == 12 && !damaged.words.contains('/'), "{damaged:?}");
    assert!(damaged.words.contains("terminal of the server"), "{damaged:?}");
    let told = std::fs::read_to_string(&told).unwrap();
    let own = format!("held by process {};", std::process::id());
    assert!(told.contains(&own) && told.contains(&place), "{told}");
}

/// An applet has no path of this machine to tell its page.
///
/// Guarantee: serve/discretion
#[test]
fn applet_does_not_learn_where_its_file_is() {
    let home = Home::new();
    let served = home.serve();
    for name in ["trial", "trial.wasm"] {
        let mut client = served.connect();
        client.start(&applet(name), &["tally"]).unwrap();
        let told = client.call("own_name", b"").unwrap();
        assert_eq!(String::from_utf8(told).unwrap(), "applet", "{name}");
        client.close();
    }
}

/// Cuts off the files beneath a folder that have this in their name.
fn cut_files_of(folder: &Path, name: &str) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            cut_files_of(&path, name);
        } else if entry.file_name().to_string_lossy().contains(name) {
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(7).unwrap();
        }
    }
}

/// A heap that is open elsewhere is told so, after a while.
#[test]
fn heap_that_is_open_elsewhere_is_held() {
    let (home, program) = (Home::new(), applet("echo"));
    let served = home.serve_with(|limits| limits.heap_patience = Duration::from_millis(200));
    let (mut first, mut second) = (served.connect(), served.connect());
    first.start(&program, &["tally"]).unwrap();
    assert_eq!(second.start(&program, &["tally"]).unwrap_err().kind, 6);
    first.close();
    second.start(&program, &["tally"]).unwrap();
}

/// A program of another user may write any header, and is hung up on. (Only root can play one.)
///
/// Guarantee: serve/other-users
#[test]
fn program_of_another_user_is_not_served() {
    use std::os::unix::process::CommandExt;
    let home = Home::new();
    let served = Program::start(&home, &[]);
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{0}; printf 'GET / HTTP/1.1\\r\\nhost: 127.0.0.1:{0}\\r\\nconnection: close\\r\\n\\r\\n' >&3; \
         cat <&3",
        served.port
    );
    let ask = |user: Option<u32>| {
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir("/");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(ask(None).contains("200 OK"));
    if rustix::process::geteuid().is_root() {
        assert_eq!(ask(Some(65534)), "");
    }
}
