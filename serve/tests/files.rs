//! The files of the server's own page.

use std::os::unix::fs::symlink;

use crate::client::{Answer, ask};
use crate::served::{Home, Served};

fn get(served: &Served, path: &str) -> Answer {
    ask(served.port, "GET", path, &[("host", &served.own().host)])
}

/// Guarantee: serve/files
#[test]
fn files_have_their_types() {
    let home = Home::new();
    for (name, bytes) in [("a.wasm", "\0asm"), ("b.mjs", "1"), ("c.js", "2"), ("applet", "\x7fELF")]
    {
        std::fs::write(home.web().join(name), bytes).unwrap();
    }
    std::fs::create_dir(home.web().join("sub")).unwrap();
    std::fs::write(home.web().join("sub/index.html"), "below").unwrap();
    let served = home.serve();
    for (path, kind, body) in [
        ("/", "text/html; charset=utf-8", "<p>hello"),
        ("/index.html?x=1", "text/html; charset=utf-8", "<p>hello"),
        ("/a.wasm", "application/wasm", "\0asm"),
        ("/b.mjs", "text/javascript; charset=utf-8", "1"),
        ("/c.js", "text/javascript; charset=utf-8", "2"),
        ("/applet", "application/octet-stream", "\x7fELF"),
        ("/sub/", "text/html; charset=utf-8", "below"),
    ] {
        let answer = get(&served, path);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{path}");
        assert_eq!(answer.body, body.as_bytes(), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let moved = get(&served, "/sub");
    assert_eq!((moved.status, moved.header("location")), (308, Some("/sub/")));
    let moved = get(&served, "/sub?heap=a&x=%2F");
    assert_eq!((moved.status, moved.header("location")), (308, Some("/sub/?heap=a&x=%2F")));
    // Some programs send what is beyond ASCII as it is.
    std::fs::create_dir(home.web().join("ä")).unwrap();
    let moved = get(&served, "/ä?x=é");
    assert_eq!((moved.status, moved.header("location")), (308, Some("/%C3%A4/?x=%C3%A9")));
    let head = ask(served.port, "HEAD", "/c.js", &[("host", &served.own().host)]);
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some("1"), 0));
    assert_eq!(ask(served.port, "PUT", "/c.js", &[("host", &served.own().host)]).status, 405);
}

/// No path and no link leads out of the directory.
///
/// Guarantee: serve/files
#[test]
fn nothing_outside_of_the_directory_is_served() {
    let home = Home::new();
    let outside = home.web().parent().unwrap().join("secret");
    std::fs::write(&outside, "secret").unwrap();
    symlink(&outside, home.web().join("absolute")).unwrap();
    symlink("../secret", home.web().join("relative")).unwrap();
    symlink("/", home.web().join("root")).unwrap();
    symlink("/proc/self/root", home.web().join("magic")).unwrap();
    symlink("index.html", home.web().join("within")).unwrap();
    std::fs::write(home.web().join(".hidden"), "secret").unwrap();
    std::fs::create_dir(home.web().join(".git")).unwrap();
    std::fs::write(home.web().join(".git/config"), "secret").unwrap();
    let served = home.serve();
    for path in [
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/x/../../secret",
        "//secret",
        "/absolute",
        "/relative",
        "/root/etc/passwd",
        "/magic/etc/passwd",
        "/.hidden",
        "/.git/config",
        "/missing",
        "/index.html/",
        "/%00",
    ] {
        let answer = get(&served, path);
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
    assert_eq!(get(&served, "/within").status, 200);
}
