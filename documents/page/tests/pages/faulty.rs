//! Servers that do wrong, and two programs at one: typed errors within bounds, and nothing kept
//! that is not whole.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use holdfast_page::{CachePolicy, FetchError, StaleReason};

use crate::network::{anew, error_of, server, try_anew};
use crate::processes::out;
use crate::server::{
    Reply, Server, Way, own_authority_tls, plain_at_the_port_of_tls, self_made_tls,
};
use crate::{Place, view};

/// Guarantee: pages/half-answers
#[test]
fn half_of_an_answer_is_never_kept_as_all_of_it() {
    let (place, server) =
        (Place::new(), server(&[("Cache-Control", "max-age=1000"), ("ETag", "\"one\"")]));
    let url = server.url("/a.html");
    let long = format!("h1 {{ color: red }} {:9999} h1 {{ color: blue }}", "");
    let whole = Reply::css(&long).with("Cache-Control", "max-age=1000");
    server.say("/a.css", whole.clone().on(Way::Half));
    let opened = place.usual(&url);
    assert!(opened.notes.iter().any(|note| note.contains("only a part")), "{:?}", opened.notes);
    server.say("/a.css", whole);
    let opened = place.usual(&url);
    assert_eq!(opened.stale, Some(StaleReason::Resource(server.url("/a.css"))));
    assert_eq!(opened.pixels, anew(&url, view(300, 200)));

    let page = Reply::html(format!("<!doctype html>{}", "<p>text".repeat(1_000)));
    let gzip = Reply::html(gzip(&page.body)).with("Content-Encoding", "gzip");
    let longer = page.clone().with("Content-Length", &(page.body.len() + 1).to_string());
    let chunked = Reply::html("ff\r\nonly this")
        .with("Transfer-Encoding", "chunked")
        .with("Content-Length", "");
    for broken in [page.on(Way::Half), gzip.on(Way::Half), longer, chunked] {
        server.say("/half.html", broken.clone());
        let error =
            error_of(place.visit(&server.url("/half.html"), view(300, 200), CachePolicy::Usual));
        assert!(
            matches!(*error, FetchError::Cut { .. } | FetchError::Protocol { .. }),
            "{error:?} {:?}",
            broken.headers
        );
    }
    assert_eq!(place.cache().views().unwrap().len(), 1);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

/// Guarantee: pages/server-faults
#[test]
fn a_page_comes_compressed_as_it_is_asked_for() {
    let server = Server::new();
    let page = "<!doctype html><p>text";
    server.say("/plain.html", Reply::html(page));
    server.say("/gzip.html", Reply::html(gzip(page.as_bytes())).with("Content-Encoding", "gzip"));
    let view = view(300, 200);
    assert_eq!(anew(&server.url("/gzip.html"), view), anew(&server.url("/plain.html"), view));
    assert!(server.asked()[0].1["accept-encoding"].contains("gzip"));
}

/// Faults of servers are typed errors within time and size limits.
///
/// Guarantee: pages/server-faults
#[test]
fn server_faults_are_typed_errors() {
    let server = Server::new();
    let bomb = gzip(&vec![b'x'; 200 << 20]);
    assert!(bomb.len() < 2 << 20);
    let html = |body: &str| Reply::html(body);
    type Is = fn(&FetchError) -> bool;
    let cases: [(&str, Reply, Is); 18] = [
        ("endless", html(&"x".repeat(65_536)).on(Way::Endless), |e| {
            matches!(e, FetchError::TooLarge { .. })
        }),
        ("bomb", Reply::html(bomb).with("Content-Encoding", "gzip"), |e| {
            matches!(e, FetchError::TooLarge { .. })
        }),
        ("long", html("x").with("Content-Length", "99999999999"), |e| {
            matches!(e, FetchError::TooLarge { .. })
        }),
        ("stuck", html("x").on(Way::Stuck), |e| {
            matches!(e, FetchError::Slow | FetchError::TimeOut { .. })
        }),
        ("drop", html(&"x".repeat(5_000)).on(Way::Drop), |e| {
            matches!(e, FetchError::Slow | FetchError::TimeOut { .. })
        }),
        ("mute", html("x").on(Way::Mute), |e| matches!(e, FetchError::TimeOut { .. })),
        ("circle", Reply::redirect("/circle"), |e| matches!(e, FetchError::Redirects { .. })),
        ("file", Reply::redirect("file:///etc/hostname"), |e| matches!(e, FetchError::Refused(_))),
        ("nowhere", Reply::status(302), |e| matches!(e, FetchError::Refused(_))),
        ("missing", Reply::status(404), |e| matches!(e, FetchError::NotFound)),
        ("fault", Reply::status(500), |e| matches!(e, FetchError::Status { status: 500 })),
        ("secret", Reply::status(401), |e| matches!(e, FetchError::Status { status: 401 })),
        ("part", Reply::status(206), |e| matches!(e, FetchError::Status { status: 206 })),
        ("unasked", Reply::status(304).with("Content-Length", "0"), |e| {
            matches!(e, FetchError::Status { status: 304 })
        }),
        ("image", Reply::new("image/png", "x"), |e| matches!(e, FetchError::NotHtml { .. })),
        ("other", html("x").with("Content-Encoding", "zstd"), |e| {
            matches!(e, FetchError::Encoding { .. })
        }),
        ("no-http", html("").on(Way::Raw(b"220 mail.example.org\r\n".to_vec())), |e| {
            matches!(e, FetchError::Protocol { .. })
        }),
        ("nothing", html("").on(Way::Raw(Vec::new())), |e| {
            matches!(e, FetchError::Unreachable(_) | FetchError::Protocol { .. })
        }),
    ];
    for (name, reply, is_right) in cases {
        let path = format!("/{name}");
        server.say(&path, reply);
        let patience =
            Duration::from_secs(if ["stuck", "drop", "mute"].contains(&name) { 1 } else { 60 });
        let error = error_of(try_anew(&server.url(&path), view(300, 200), patience));
        assert!(is_right(&error), "{name}: {error:?}");
        assert!(error.to_string().len() > 20, "{name}: {error}");
    }
    assert!(server.asked().iter().filter(|(path, _)| path == "/circle").count() < 20);
    let error =
        error_of(try_anew("http://no-such-name.invalid/", view(300, 200), Duration::from_secs(60)));
    assert!(
        matches!(
            *error,
            FetchError::HostNotFound
                | FetchError::Unreachable(_)
                | FetchError::TimeOut { .. }
                | FetchError::Status { .. }
        ),
        "{error:?}"
    );
}

/// A server that never answers is waited for once, not once for each part of a page.
///
/// Guarantee: pages/offline
#[test]
fn mute_server_is_waited_for_once() {
    let (server, mute) = (Server::new(), Server::new());
    let styles: String = (0..40)
        .map(|n| {
            let path = format!("/{n}.css");
            mute.say(&path, Reply::css("").on(Way::Mute));
            format!("<link rel=stylesheet href='{}'>", mute.url(&path))
        })
        .collect();
    server.say("/a.html", Reply::html(format!("<!doctype html>{styles}<p>text")));
    let opened = try_anew(&server.url("/a.html"), view(300, 200), Duration::from_secs(10)).unwrap();
    assert!(
        opened.notes.iter().any(|note| note.contains("has not answered within 10 s")),
        "{:?}",
        opened.notes
    );
    let asked = mute.asked().len();
    assert!((1..20).contains(&asked), "{asked}");
}

/// Guarantee: pages/server-faults
#[test]
fn a_server_that_cannot_show_who_it_is_is_not_asked() {
    for address in [self_made_tls("<p>x").0, plain_at_the_port_of_tls()] {
        let url = format!("https://127.0.0.1:{}/", address.port());
        let error = error_of(try_anew(&url, view(300, 200), Duration::from_secs(60)));
        assert!(matches!(*error, FetchError::Tls { .. }), "{error:?}");
        assert!(error.to_string().contains("not trusted"), "{error}");
    }
}

/// A server whose certificate the user's certificates sign is trusted.
///
/// Guarantee: pages/server-faults
#[test]
fn user_certificates_are_trusted() {
    let place = Place::new();
    let (address, certificate) = self_made_tls("<!doctype html><title>Safe</title><p>text");
    let trusted = place.write("trusted.pem", certificate);
    let url = format!("https://127.0.0.1:{}/", address.port());
    let open = |file: &std::path::Path| {
        let mut command = place.program();
        command
            .args(["open", &url, "--viewport", "300x200"])
            .env("SSL_CERT_FILE", file)
            .env_remove("SSL_CERT_DIR");
        command.output().unwrap()
    };
    let output = open(&trusted);
    assert!(output.status.success() && out(&output).0.ends_with("Safe\n"), "{output:?}");
    let (_, other) = self_made_tls("");
    let output = open(&place.write("other.pem", other));
    assert!(out(&output).1.contains("not trusted"), "{output:?}");
}

/// What `openssl req -x509` makes was refused, as a certificate that may sign others was not taken
/// for a server's.
#[test]
fn a_trusted_certificate_may_be_its_own_authority() {
    const PAGE: &str = "<!doctype html><title>Safe</title><p>text";
    let place = Place::new();
    let open = |port: u16, trusted: &str| {
        let file = place.write("trusted.pem", trusted);
        let url = format!("https://127.0.0.1:{port}/");
        let mut command = place.program();
        command
            .args(["open", &url, "--viewport", "300x200", "--no-cache"])
            .env("SSL_CERT_FILE", file)
            .env_remove("SSL_CERT_DIR");
        command.output().unwrap()
    };
    let (address, certificate) = own_authority_tls(PAGE, |_| {});
    let output = open(address.port(), &certificate);
    assert!(output.status.success() && out(&output).0.ends_with("Safe\n"), "{output:?}");
    // One that is not named, that is over, or that is of another server, is refused as before.
    let (_, other) = own_authority_tls("", |_| {});
    let (over, of_over) = own_authority_tls(PAGE, |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let (elsewhere, of_elsewhere) = own_authority_tls(PAGE, |params| {
        params.subject_alt_names = vec![rcgen::SanType::DnsName("example.org".try_into().unwrap())];
    });
    for (port, trusted) in
        [(address.port(), other), (over.port(), of_over), (elsewhere.port(), of_elsewhere)]
    {
        let output = open(port, &trusted);
        assert!(out(&output).1.contains("not trusted"), "{output:?}");
    }
}

/// Several programs show a page of one server from one cache.
///
/// Guarantee: pages/program
#[test]
fn programs_share_one_cached_server_page() {
    let (place, server) = (Place::new(), server(&[("ETag", "\"one\"")]));
    let url = server.url("/a.html");
    let open = |more: &[&str]| {
        let mut command = place.program();
        command.args(["open", &url, "--viewport", "300x200", "--timeout", "300"]).args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    for round in 0..3 {
        if round == 1 {
            server.say("/a.css", Reply::css("h1 { color: tan }").with("ETag", "\"two\""));
        }
        let children: Vec<_> = (0..5).map(|_| open(&[]).spawn().unwrap()).collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "round {round}: {output:?}");
        }
    }
    let picture = place.folder.path().join("a.png");
    let output = open(&["--png", picture.to_str().unwrap()]).output().unwrap();
    assert!(out(&output).0.starts_with("pixels: "), "{output:?}");
    assert_eq!(std::fs::read(&picture).unwrap(), anew(&url, view(300, 200)).to_png().unwrap());
    assert_eq!(place.cache().check().unwrap(), []);
    server.asked();
    let output = open(&["--reload"]).output().unwrap();
    assert!(out(&output).0.starts_with("pixels: ") && server.paths().len() == 3, "{output:?}");
    drop(server);
    let output = open(&["--offline"]).output().unwrap();
    assert!(output.status.success() && out(&output).1.contains("nobody was asked"), "{output:?}");
    let output = open(&["--no-cache"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(out(&output).1.contains("cannot be reached"), "{output:?}");
    let output = place.program().args(["rm", &url]).output().unwrap();
    assert_eq!(out(&output).0, "1 view removed\n");
    let output = open(&["--offline"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}
