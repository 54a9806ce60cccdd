//! Pages from a server: shown from what is kept when the server says that it is so still, made anew
//! when not.

use std::sync::Arc;
use std::time::Duration;

use holdfast_page::{
    Address, CachePolicy, FetchError, OpenOptions, OpenPage, PageError, Pixels, StaleReason, Tier,
    View, Web, open_with,
};

use crate::server::{Reply, Server};
use crate::{Place, limits, png, view};

const PAGE: &str = "<!doctype html><title>T</title><link rel=stylesheet href=/a.css><h1>Page</h1><img src=a.png><p>text";

impl Place {
    /// Opens a page of a server and keeps it.
    pub(crate) fn visit(
        &self,
        url: &str,
        view: View,
        asking: CachePolicy,
    ) -> Result<OpenPage, PageError> {
        let cache = self.cache();
        let limits = limits();
        let web = Arc::new(Web::new(Duration::from_secs(60)));
        let opening = OpenOptions { asking, ..OpenOptions::new(view, &limits, Some(&cache), web) };
        let mut opened = open_with(&Address::parse(url).unwrap(), &opening)?;
        if let Some(to_keep) = opened.to_keep.take() {
            to_keep.keep(&cache).unwrap();
        }
        Ok(opened)
    }

    pub(crate) fn usual(&self, url: &str) -> OpenPage {
        self.visit(url, view(300, 200), CachePolicy::Usual).unwrap()
    }
}

/// As it looks without a cache.
pub(crate) fn anew(url: &str, view: View) -> Pixels {
    try_anew(url, view, Duration::from_secs(60)).unwrap().pixels
}

pub(crate) fn try_anew(url: &str, view: View, patience: Duration) -> Result<OpenPage, PageError> {
    let opening = OpenOptions::new(view, &limits(), None, Arc::new(Web::new(patience)));
    open_with(&Address::parse(url).unwrap(), &opening)
}

pub(crate) fn error_of(opened: Result<OpenPage, PageError>) -> Arc<FetchError> {
    match opened {
        Err(PageError::Fetch { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

/// A server with a page, a style sheet and an image, each with these headers.
pub(crate) fn server(headers: &[(&str, &str)]) -> Server {
    let server = Server::new();
    let with =
        |reply: Reply| headers.iter().fold(reply, |reply, (name, value)| reply.with(name, value));
    server.say("/a.html", with(Reply::html(PAGE)));
    server.say("/a.css", with(Reply::css("h1 { color: red }")));
    server.say("/a.png", with(Reply::new("image/png", png(20, 20, [9, 99, 9, 255]))));
    server
}

const ALL: [&str; 3] = ["/a.css", "/a.html", "/a.png"];

/// If the server answers that nothing changed, the cached picture is shown.
///
/// Guarantee: pages/servers
#[test]
fn not_modified_shows_the_kept_picture() {
    for (said, asked) in [
        (("ETag", "\"one\""), "if-none-match"),
        (("Last-Modified", "Tue, 14 Nov 2023 22:13:20 GMT"), "if-modified-since"),
    ] {
        let (place, server) = (Place::new(), server(&[said]));
        let url = server.url("/a.html");
        let cold = place.usual(&url);
        assert_eq!(
            (cold.tier, cold.title.as_str(), cold.base.as_str()),
            (Tier::Nothing, "T", url.as_str())
        );
        assert_eq!(server.paths(), ALL);
        let again = place.usual(&url);
        assert_eq!(
            (again.tier, again.pixels == cold.pixels, again.notes),
            (Tier::Pixels, true, vec![])
        );
        let requests = server.asked();
        assert_eq!(requests.iter().map(|one| one.0.as_str()).collect::<Vec<_>>(), ALL);
        for (path, headers) in requests {
            assert_eq!(headers.get(asked).map(String::as_str), Some(said.1), "{path}");
            assert!(
                headers["user-agent"].starts_with("holdfast-page/")
                    && !headers.contains_key("cookie")
            );
        }
        assert_eq!(anew(&url, view(300, 200)), cold.pixels);
    }
}

/// A fresh page needs no request, and a new lifetime from the server takes effect.
///
/// Guarantee: pages/servers
#[test]
fn fresh_answer_needs_no_request() {
    let (place, server) = (Place::new(), server(&[("Cache-Control", "max-age=1000")]));
    let url = server.url("/a.html");
    place.usual(&url);
    assert_eq!(server.paths().len(), 3);
    assert_eq!(place.usual(&url).tier, Tier::Pixels);
    // In another viewport as well.
    assert_eq!(place.visit(&url, view(200, 200), CachePolicy::Usual).unwrap().tier, Tier::Document);
    assert_eq!(server.paths(), [""; 0], "all of it is good still");
    assert_eq!(place.visit(&url, view(300, 200), CachePolicy::Reload).unwrap().tier, Tier::Pixels);
    let requests = server.asked();
    assert_eq!(requests.len(), 3, "all of it is asked for by a reload");
    assert!(requests.iter().all(|(_, headers)| headers["cache-control"] == "no-cache"));

    // It is as old already when it comes.
    let old = Reply::html("<!doctype html><p>old")
        .with("Cache-Control", "max-age=100")
        .with("Age", "200")
        .with("ETag", "\"o\"");
    server.say("/old.html", old.clone());
    let url = server.url("/old.html");
    place.usual(&url);
    server.asked();
    server.say(
        "/old.html",
        Reply {
            headers: vec![
                ("ETag".into(), "\"o\"".into()),
                ("Cache-Control".into(), "max-age=1000".into()),
            ],
            ..old
        },
    );
    assert_eq!(place.usual(&url).tier, Tier::Pixels);
    assert_eq!(server.paths(), ["/old.html"]);
    assert_eq!(place.usual(&url).tier, Tier::Pixels);
    assert_eq!(server.paths(), [""; 0], "it was renewed by the answer that nothing had changed");
}

/// Guarantee: pages/servers
#[test]
fn what_changed_on_the_server_is_made_anew_and_told() {
    let (place, server) = (Place::new(), server(&[("ETag", "\"one\"")]));
    let url = server.url("/a.html");
    let view = view(300, 200);
    let first = place.usual(&url);
    server.say("/a.css", Reply::css("h1 { color: tan }").with("ETag", "\"two\""));
    let opened = place.usual(&url);
    assert_eq!(
        (opened.tier, opened.stale),
        (Tier::Document, Some(StaleReason::Resource(server.url("/a.css"))))
    );
    assert!(opened.pixels != first.pixels && opened.pixels == anew(&url, view));
    server.say("/a.html", Reply::html(PAGE.replace("text", "test")).with("ETag", "\"three\""));
    let opened = place.usual(&url);
    assert_eq!((opened.tier, opened.stale), (Tier::Nothing, Some(StaleReason::Source)));
    assert_eq!(opened.pixels, anew(&url, view));
    server.say("/a.png", Reply::status(404));
    let opened = place.usual(&url);
    assert_eq!(opened.stale, Some(StaleReason::Resource(server.url("/a.png"))));
    assert_eq!(opened.pixels, anew(&url, view));
    // Other words for the same bytes.
    server.say("/a.html", Reply::html(PAGE.replace("text", "test")).with("ETag", "\"four\""));
    server.asked();
    let opened = place.usual(&url);
    assert_eq!((opened.tier, opened.pixels), (Tier::Pixels, anew(&url, view)));
}

/// Another viewport uses the cached document and parts.
///
/// Guarantee: pages/servers
#[test]
fn other_viewport_uses_the_kept_parts() {
    let (place, server) = (Place::new(), server(&[("ETag", "\"one\"")]));
    let url = server.url("/a.html");
    place.usual(&url);
    // A request without a tag gets nothing from here on.
    for path in ALL {
        server.say(path, Reply::status(404).with("ETag", "\"one\""));
    }
    let opened = place.visit(&url, view(200, 200), CachePolicy::Usual).unwrap();
    assert_eq!((opened.tier, opened.notes), (Tier::Document, vec![]));
    let whole = self::server(&[]);
    assert_eq!(opened.pixels, anew(&whole.url("/a.html"), view(200, 200)));
}

/// A page whose document is missing is fetched again even if it has not changed.
///
/// Guarantee: pages/servers
#[test]
fn missing_document_is_fetched_again() {
    let (place, server) = (Place::new(), server(&[("ETag", "\"one\"")]));
    let url = server.url("/a.html");
    place.usual(&url);
    place.spoil(|heap| {
        let names: Vec<String> = heap.heap().roots().map(|(name, _)| name.to_owned()).collect();
        let document = names.iter().find(|name| name.starts_with("dom:")).unwrap();
        heap.transaction(|tx| tx.remove(document)).unwrap();
    });
    server.asked();
    let opened = place.visit(&url, view(200, 200), CachePolicy::Usual).unwrap();
    assert_eq!((opened.tier, opened.pixels), (Tier::Nothing, anew(&url, view(200, 200))));
    assert_eq!(place.usual(&url).tier, Tier::Pixels);
}

/// If the server does not answer, the cached page is shown with a note.
///
/// Guarantee: pages/offline
#[test]
fn silent_server_leaves_the_kept_page() {
    let (place, gone) = (Place::new(), server(&[("ETag", "\"one\"")]));
    let url = gone.url("/a.html");
    let first = place.usual(&url);
    gone.say(
        "/strict.html",
        Reply::html("<!doctype html><p>strict").with("Cache-Control", "no-cache"),
    );
    let (strict, other) = (gone.url("/strict.html"), gone.url("/other.html"));
    place.usual(&strict);
    let address = gone.address();
    drop(gone);
    let opened = place.usual(&url);
    assert_eq!((opened.tier, opened.pixels == first.pixels), (Tier::Pixels, true));
    assert!(
        opened
            .notes
            .iter()
            .any(|note| note.contains("as it was kept") && note.contains("cannot be reached")),
        "{:?}",
        opened.notes
    );
    assert_eq!(opened.notes.len(), 2, "one word for all: {:?}", opened.notes);
    let opened = place.visit(&url, view(200, 200), CachePolicy::Usual).unwrap();
    assert_eq!(opened.tier, Tier::Document);
    let error = error_of(place.visit(&other, view(300, 200), CachePolicy::Usual));
    assert!(matches!(*error, FetchError::Unreachable(_)), "{error:?}");
    let error = error_of(place.visit(&strict, view(300, 200), CachePolicy::Usual));
    assert!(
        matches!(&*error, FetchError::MustAsk { .. }) && error.to_string().contains("--offline"),
        "{error:?}"
    );
    let opened = place.visit(&strict, view(300, 200), CachePolicy::Offline).unwrap();
    assert_eq!(opened.tier, Tier::Pixels, "whoever asks for it so knows");
    assert!(
        opened.notes.iter().any(|note| note.contains("nobody was asked")),
        "{:?}",
        opened.notes
    );
    let error = error_of(place.visit(&other, view(300, 200), CachePolicy::Offline));
    assert!(matches!(*error, FetchError::Offline), "{error:?}");

    // What was said of the parts is lost as well: the picture is what it was, and not one without
    // them.
    place.spoil(|heap| {
        let names: Vec<String> = heap.heap().roots().map(|(name, _)| name.to_owned()).collect();
        let page = format!("http:{:032x}", xxhash_rust::xxh3::xxh3_128(url.as_bytes()));
        for name in names.iter().filter(|name| name.starts_with("http:") && **name != page) {
            heap.transaction(|tx| tx.remove(name)).unwrap();
        }
    });
    let opened = place.usual(&url);
    assert_eq!(
        (opened.tier, opened.pixels == first.pixels, opened.notes.len()),
        (Tier::Pixels, true, 2)
    );

    // One with a fault is as good as gone; one that is back counts.
    let back = Server::at(&address.to_string());
    for path in ALL {
        back.say(path, Reply::status(503));
    }
    let opened = place.usual(&url);
    assert_eq!((opened.tier, opened.pixels == first.pixels), (Tier::Pixels, true));
    assert!(opened.notes.iter().any(|note| note.contains("503")), "{:?}", opened.notes);
    back.say("/a.html", Reply::html("<!doctype html><p>back"));
    assert_eq!(place.usual(&url).stale, Some(StaleReason::Source));
}

/// Guarantee: pages/no-store
#[test]
fn what_must_not_be_kept_is_not_and_that_is_said() {
    let (place, server) = (Place::new(), server(&[]));
    server.say(
        "/secret.html",
        Reply::html("<!doctype html><p>secret").with("Cache-Control", "no-store"),
    );
    server.say(
        "/secret.css",
        Reply::css("p { color: red }").with("Cache-Control", "private, no-store"),
    );
    server.say(
        "/beside.html",
        Reply::html("<!doctype html><link rel=stylesheet href=secret.css><p>x"),
    );
    for path in ["/secret.html", "/beside.html"] {
        for _ in 0..2 {
            let opened = place.usual(&server.url(path));
            assert_eq!(opened.tier, Tier::Nothing);
            assert!(
                opened.notes.iter().any(|note| note.contains("not kept: the server of")),
                "{:?}",
                opened.notes
            );
        }
    }
    assert_eq!(place.cache().views().unwrap(), []);
    assert_eq!(place.cache().stats().unwrap().answers_bytes, 0);
}

/// A page from a server cannot read files, and a page from a file requests no server unless
/// allowed.
///
/// Guarantee: pages/no-local-files
#[test]
fn files_and_servers_are_kept_apart() {
    let (place, server) = (Place::new(), server(&[]));
    let style = place.write("evil.css", "h1 { color: red }");
    let link =
        format!("<!doctype html><link rel=stylesheet href='file://{}'><h1>x</h1>", style.display());
    server.say("/evil.html", Reply::html(&link));
    let opened = place.usual(&server.url("/evil.html"));
    assert!(opened.notes.iter().any(|note| note.contains("gets no files")), "{:?}", opened.notes);
    server.say("/evil.html", Reply::html("<!doctype html><h1>x</h1>"));
    assert_eq!(opened.pixels, anew(&server.url("/evil.html"), view(300, 200)));

    server.asked();
    let page =
        format!("<!doctype html><link rel=stylesheet href='{}'><h1>x</h1>", server.url("/a.css"));
    let page = place.write("a.html", page);
    let may = |network: bool| {
        let cache = place.cache();
        let opening = OpenOptions {
            network,
            ..OpenOptions::new(
                view(300, 200),
                &limits(),
                Some(&cache),
                Arc::new(Web::new(Duration::from_secs(60))),
            )
        };
        let mut opened = open_with(&crate::address(&page), &opening).unwrap();
        if let Some(to_keep) = opened.to_keep.take() {
            to_keep.keep(&cache).unwrap();
        }
        opened
    };
    let without = may(false);
    assert!(without.notes.iter().any(|note| note.contains("--network")), "{:?}", without.notes);
    assert_eq!((may(false).tier, server.paths()), (Tier::Pixels, vec![]));
    let with = may(true);
    assert_eq!(
        (&with.stale, server.paths()),
        (&Some(StaleReason::Network), vec!["/a.css".to_owned()])
    );
    assert_ne!(with.pixels, without.pixels);
    assert_eq!((may(true).tier, may(false).stale), (Tier::Pixels, Some(StaleReason::Network)));
}

/// A redirected page is requested at its own address, and its links are relative to the target.
///
/// Guarantee: pages/redirects
#[test]
fn redirected_page_has_the_base_of_its_target() {
    let (place, server) =
        (Place::new(), server(&[("Cache-Control", "max-age=1000"), ("ETag", "\"one\"")]));
    server.say("/moved", Reply::redirect("/sub/page.html#x"));
    let page = Reply::html("<!doctype html><link rel=stylesheet href=b.css><p>x")
        .with("Cache-Control", "max-age=1000")
        .with("ETag", "\"one\"");
    server.say("/sub/page.html", page.clone());
    server.say("/sub/b.css", Reply::css("p { color: red }").with("Cache-Control", "max-age=1000"));
    let url = server.url("/moved");
    let opened = place.usual(&url);
    assert_eq!(opened.base, server.url("/sub/page.html"));
    assert_eq!(server.paths(), ["/moved", "/sub/b.css", "/sub/page.html"]);
    assert_eq!(place.usual(&url).tier, Tier::Pixels);
    let requests = server.asked();
    assert_eq!(
        requests.iter().map(|one| one.0.as_str()).collect::<Vec<_>>(),
        ["/moved", "/sub/page.html"]
    );
    assert!(!requests[0].1.contains_key("if-none-match"), "the tag is the other address's");
    assert!(requests[1].1.contains_key("if-none-match"));
    // The same tag at another place says nothing.
    server.say("/sub/other.html", Reply { body: b"<!doctype html><p>other".to_vec(), ..page });
    server.say("/moved", Reply::redirect("/sub/other.html"));
    assert_eq!(place.usual(&url).stale, Some(StaleReason::Source));
}

/// A redirect to an address in letters that are not of ASCII was refused.
///
/// Guarantee: pages/redirects
#[test]
fn redirect_leads_to_letters_of_any_kind() {
    let (place, server) = (Place::new(), Server::new());
    server.say("/moved", Reply::redirect("/\u{e9}.html"));
    server.say("/%C3%A9.html", Reply::html("<!doctype html><p>x"));
    let opened = place.usual(&server.url("/moved"));
    assert_eq!(opened.base, server.url("/%C3%A9.html"));
}

/// The same bytes at another place are another page: its addresses lead elsewhere.
///
/// Guarantee: pages/redirects
#[test]
fn same_bytes_behind_another_redirect_are_another_page() {
    let (place, server) = (Place::new(), server(&[("Cache-Control", "max-age=1000")]));
    for (version, color) in [("v1", "red"), ("v2", "blue")] {
        let page = "<!doctype html><link rel=stylesheet href=b.css><p>x";
        server
            .say(&format!("/{version}/"), Reply::html(page).with("Cache-Control", "max-age=1000"));
        let style = Reply::css(format!("p {{ color: {color} }}"));
        server.say(&format!("/{version}/b.css"), style.with("Cache-Control", "max-age=1000"));
    }
    let url = server.url("/latest/");
    server.say("/latest/", Reply::redirect("/v1/"));
    let first = place.usual(&url);
    server.say("/latest/", Reply::redirect("/v2/"));
    let second = place.usual(&url);
    assert_eq!((second.stale, second.base), (Some(StaleReason::Source), server.url("/v2/")));
    assert_ne!(first.pixels, second.pixels);
    let again = place.usual(&url);
    assert_eq!((again.tier, again.pixels), (Tier::Pixels, second.pixels));
}

/// Addresses in a style sheet were relative to where it was asked for, also where a redirect led
/// elsewhere; and where the redirect led elsewhere later, to the same bytes, was not seen.
///
/// Guarantee: pages/addresses
#[test]
fn style_sheet_behind_a_redirect_has_the_base_of_its_target() {
    let (place, server) = (Place::new(), Server::new());
    for (version, color) in [("v1", [9, 99, 9, 255]), ("v2", [99, 9, 9, 255])] {
        let style = Reply::css("@import 'c.css'; p { background: url(b.png) }");
        server.say(&format!("/{version}/a.css"), style);
        server.say(&format!("/{version}/c.css"), Reply::css("p { color: tan }"));
        server.say(&format!("/{version}/b.png"), Reply::new("image/png", png(20, 20, color)));
        let page = format!("<!doctype html><link rel=stylesheet href=/{version}/a.css><p>x");
        server.say(&format!("/{version}.html"), Reply::html(page));
    }
    server.say("/a.html", Reply::html("<!doctype html><link rel=stylesheet href=a.css><p>x"));
    let (url, style) = (server.url("/a.html"), server.url("/a.css"));
    let direct = |version: &str| anew(&server.url(&format!("/{version}.html")), view(300, 200));
    let (first, second) = (direct("v1"), direct("v2"));
    assert_ne!(first, second);

    server.asked();
    server.say("/a.css", Reply::redirect("/v1/a.css"));
    let opened = place.usual(&url);
    assert_eq!((opened.pixels, opened.notes), (first, vec![]));
    assert_eq!(server.paths(), ["/a.css", "/a.html", "/v1/a.css", "/v1/b.png", "/v1/c.css"]);
    assert_eq!(place.usual(&url).tier, Tier::Pixels);
    server.say("/a.css", Reply::redirect("/v2/a.css"));
    let opened = place.usual(&url);
    assert_eq!((opened.stale, opened.pixels), (Some(StaleReason::Resource(style)), second));
    assert_eq!(place.usual(&url).tier, Tier::Pixels);
}

/// The page that a server has in the place of a style sheet was read as one, and a style sheet was
/// shown as it was when its server said that the same bytes are something else.
///
/// Guarantee: pages/style-sheets
#[test]
fn what_a_server_calls_a_page_is_no_style_sheet() {
    let (place, server) = (Place::new(), Server::new());
    let body = "<!doctype html><p>no such file<style> {} p { color: red }</style>";
    let page = "<link rel=stylesheet href=a.css><p>x";
    server.say("/a.css", Reply::html(body));
    server.say("/a.html", Reply::html(format!("<!doctype html>{page}")));
    server.say("/old.html", Reply::html(page));
    server.say("/none.html", Reply::html("<!doctype html><p>x"));
    let (url, none) = (server.url("/a.html"), anew(&server.url("/none.html"), view(300, 200)));
    let opened = place.usual(&url);
    assert_eq!(opened.pixels, none);
    assert!(opened.notes.iter().any(|note| note.contains("text/html")), "{:?}", opened.notes);
    assert_eq!(place.usual(&url).tier, Tier::Pixels);
    let red = anew(&server.url("/old.html"), view(300, 200));
    assert_ne!(red, none, "browsers take it for a page of old");

    server.say("/a.css", Reply::css(body));
    let opened = place.usual(&url);
    assert_eq!(opened.stale, Some(StaleReason::Resource(server.url("/a.css"))));
    assert_eq!(opened.pixels, red);
    // The same bytes are other letters.
    let style = b"p::before { content: '\xd0\xd2' }";
    let pixels = ["koi8-r", "windows-1252"].map(|letters| {
        server.say("/a.css", Reply::new(&format!("text/css; charset={letters}"), style));
        let opened = place.usual(&url);
        assert_eq!(opened.stale, Some(StaleReason::Resource(server.url("/a.css"))), "{letters}");
        opened.pixels
    });
    assert_ne!(pixels[0], pixels[1]);
}

/// A server that names the type of a style sheet in other words at each visit, with the same meaning,
/// does not cause another layout of the page.
///
/// Guarantee: pages/servers
#[test]
fn same_kind_in_other_words_changes_nothing() {
    let (place, server) = (Place::new(), Server::new());
    server.say("/a.html", Reply::html("<!doctype html><link rel=stylesheet href=a.css><p>x"));
    let url = server.url("/a.html");
    let style = "p::before { content: '\u{43f}' }".as_bytes();
    let of_old = b"p::before { content: '\xd0\xd2' }".as_slice();
    for (style, kinds) in [
        (style, ["text/css", "text/css; charset=utf-8", "Text/CSS ;charset=\"UTF-8\"", "text/css"]),
        (
            of_old,
            [
                "text/css;charset=koi8-r",
                "text/css; charset=KOI8-R",
                "TEXT/CSS; charset='koi8-r'",
                "text/css; a=b; charset=koi8-r",
            ],
        ),
    ] {
        server.say("/a.css", Reply::new(kinds[0], style));
        let first = place.usual(&url);
        assert_ne!(first.tier, Tier::Pixels);
        for kind in kinds {
            server.say("/a.css", Reply::new(kind, style));
            let again = place.usual(&url);
            assert_eq!((again.tier, &again.pixels), (Tier::Pixels, &first.pixels), "{kind}");
        }
    }
}

/// A server that says that nothing changed may say something else of the kind of what it does not
/// send, which was believed.
///
/// Guarantee: pages/servers
#[test]
fn unchanged_answer_does_not_change_the_kind() {
    let (place, server) = (Place::new(), Server::new());
    let page = "<!doctype html><link rel=stylesheet href=a.css><p>x";
    server.say("/a.html", Reply::html(page).with("ETag", "\"one\""));
    let style = Reply::new("text/css; charset=koi8-r", b"p::before { content: '\xd0\xd2' }");
    server.say("/a.css", style.with("ETag", "\"one\""));
    let url = server.url("/a.html");
    let right = [view(300, 200), view(200, 200)].map(|view| anew(&url, view));
    assert_eq!(place.usual(&url).pixels, right[0]);
    for kind in ["text/html", "text/css; charset=utf-8"] {
        server.say("/a.css", Reply::new(kind, "").with("ETag", "\"one\""));
        assert_eq!(place.usual(&url).tier, Tier::Pixels, "{kind}");
        let other = place.visit(&url, view(200, 200), CachePolicy::Usual).unwrap();
        assert_eq!(other.pixels, right[1], "{kind}");
    }
}

/// A page whose kind its server says twice was refused, as of no kind that there is.
///
/// Guarantee: pages/encodings
#[test]
fn last_kind_that_a_server_says_counts() {
    let (place, server) = (Place::new(), Server::new());
    let text = "<!doctype html><p>\u{43f}\u{440}";
    let (bytes, ..) = encoding_rs::KOI8_R.encode(text);
    let twice = Reply::new("text/html", &bytes).with("Content-Type", "text/html; charset=koi8-r");
    server.say("/a.html", twice);
    server.say("/b.html", Reply::html(text));
    let right = anew(&server.url("/b.html"), view(300, 200));
    assert_eq!(place.usual(&server.url("/a.html")).pixels, right);
}

/// What a page says that addresses in it are relative to was not looked at.
///
/// Guarantee: pages/addresses
#[test]
fn addresses_are_relative_to_the_base_that_a_page_says() {
    let place = Place::new();
    std::fs::create_dir(place.folder.path().join("sub")).unwrap();
    place.write("sub/b.css", "p { color: red }");
    place.write("sub/b.png", png(20, 20, [9, 99, 9, 255]));
    let with = |head: &str, below: &str| {
        place.write(
            &format!("{}.html", if below.is_empty() { "base" } else { "direct" }),
            format!(
                "<!doctype html><head>{head}<link rel=stylesheet href={below}b.css></head>\
                 <body background={below}b.png><p>x<img src={below}b.png><a href=c.html>c</a>"
            ),
        )
    };
    let (page, direct) = (with("<base href=sub/x>", ""), with("", "sub/"));
    let view = view(300, 200);
    let base = crate::address(&page).join("sub/x").unwrap().as_str().to_owned();
    let opened = place.open(&page, view);
    assert_eq!(
        (opened.pixels, opened.base, opened.notes),
        (crate::anew(&direct, view), base.clone(), vec![])
    );
    let again = place.open(&page, view);
    assert_eq!((again.tier, again.base), (Tier::Pixels, base));
    let style = place.write("sub/b.css", "p { color: tan }");
    let changed = StaleReason::Resource(crate::address(&style).as_str().to_owned());
    assert_eq!(place.open(&page, view).stale, Some(changed));

    // A page of a server has no files, whatever it says.
    let server = Server::new();
    let said =
        format!("<!doctype html><base href='file://{}/'><p>x", place.folder.path().display());
    server.say("/a.html", Reply::html(said));
    let url = server.url("/a.html");
    assert_eq!(place.usual(&url).base, url);
}

/// A redirect that must not be kept leaves nothing of where it led.
///
/// Guarantee: pages/no-store
#[test]
fn what_a_redirect_forbids_holds_for_its_target() {
    for (word, is_kept) in [("no-store", false), ("No-Cache", true), ("must-revalidate", true)] {
        let (place, server) = (Place::new(), server(&[]));
        server.say("/report", Reply::redirect("/download").with("Cache-Control", word));
        let page = Reply::html("<!doctype html><p>x").with("Cache-Control", "private, max-age=600");
        server.say("/download", page);
        let url = server.url("/report");
        place.usual(&url);
        assert_eq!(!place.cache().views().unwrap().is_empty(), is_kept, "{word}");
        drop(server);
        assert!(place.visit(&url, view(300, 200), CachePolicy::Usual).is_err(), "{word}");
    }
}

/// Guarantee: pages/encodings
#[test]
fn pages_in_other_letters_look_as_those_in_utf_8() {
    let (place, server) = (Place::new(), Server::new());
    let text = "<!doctype html><p>\u{43f}\u{440}\u{438}\u{432}\u{435}\u{442}";
    let (bytes, ..) = encoding_rs::KOI8_R.encode(text);
    server.say("/utf-8.html", Reply::html(text));
    server.say("/koi8-r.html", Reply::new("text/html; charset=KOI8-R", &bytes));
    let right = anew(&server.url("/utf-8.html"), view(300, 200));
    let opened = place.usual(&server.url("/koi8-r.html"));
    assert_eq!(opened.pixels, right);
    let again = place.usual(&server.url("/koi8-r.html"));
    assert_eq!((again.tier, again.pixels), (Tier::Pixels, right.clone()));
    // The server takes its word back: the same bytes are other letters.
    server.say("/koi8-r.html", Reply::new("text/html; charset=KOI8-U", &bytes));
    assert_eq!(place.usual(&server.url("/koi8-r.html")).stale, Some(StaleReason::Source));
    let meta =
        [b"<!doctype html><meta charset=koi8-r>".as_slice(), &bytes["<!doctype html>".len()..]]
            .concat();
    let file = place.write("a.html", meta);
    assert_eq!(place.open(&file, view(300, 200)).pixels, right);
    // A style sheet of which one byte is no letter is one all the same.
    let style = |bytes: &[u8]| {
        server.say("/a.css", Reply::css(bytes));
        server.say(
            "/styled.html",
            Reply::html("<!doctype html><link rel=stylesheet href=a.css><p>x"),
        );
        anew(&server.url("/styled.html"), view(300, 200))
    };
    assert_eq!(style(b"/* \xe9 */ p { color: red }"), style(b"p { color: red }"));
    // One that says nothing is in the letters of its page.
    let page = "<!doctype html><link rel=stylesheet href=a.css><p>x";
    let styled = |letters: &str, kind: &str| {
        server.say("/a.css", Reply::new(kind, b"p::before { content: '\xd0\xd2' }"));
        server.say("/b.html", Reply::new(&format!("text/html; charset={letters}"), page));
        anew(&server.url("/b.html"), view(300, 200))
    };
    let right = styled("utf-8", "text/css; charset=koi8-r");
    assert_eq!(styled("koi8-r", "text/css"), right);
    assert_ne!(styled("windows-1252", "text/css"), right);
}

/// Server responses count against the quota, leave with their page and are trusted only with a
/// valid checksum.
///
/// Guarantee: pages/servers
/// Guarantee: pages/quota
#[test]
fn server_answers_count_against_the_quota() {
    let (place, server) = (Place::new(), server(&[("ETag", "\"one\"")]));
    server.say("/b.html", Reply::html(PAGE.replace("T<", "B<")).with("ETag", "\"b\""));
    place.usual(&server.url("/a.html"));
    let one = place.cache().stats().unwrap();
    assert!(one.answers_bytes > 0);
    place.usual(&server.url("/b.html"));
    let both = place.cache().stats().unwrap();
    assert!(both.answers_bytes < one.answers_bytes + 1_000, "parts are shared: {one:?} {both:?}");

    // The bytes of the style sheet rot: it is asked for again, whole.
    place.spoil(|heap| {
        let name = format!("body:{:032x}", xxhash_rust::xxh3::xxh3_128(b"h1 { color: red }"));
        heap.transaction(|tx| tx.write(tx.root(&name).unwrap(), 0, b"x")).unwrap();
    });
    let narrow = place.visit(&server.url("/a.html"), view(200, 200), CachePolicy::Usual).unwrap();
    assert_eq!(
        (narrow.tier, narrow.pixels),
        (Tier::Document, anew(&server.url("/a.html"), view(200, 200)))
    );
    // What was said rots: it is asked for again.
    place.spoil(|heap| {
        let answers: Vec<String> = heap
            .heap()
            .roots()
            .map(|(name, _)| name.to_owned())
            .filter(|name| name.starts_with("http:"))
            .collect();
        for name in answers {
            heap.transaction(|tx| tx.write(tx.root(&name).unwrap(), 9, &[0xee])).unwrap();
        }
    });
    let opened = place.usual(&server.url("/a.html"));
    assert_eq!(
        (opened.tier, opened.pixels),
        (Tier::Pixels, anew(&server.url("/a.html"), view(300, 200)))
    );

    let views: Vec<String> =
        place.cache().views().unwrap().into_iter().map(|row| row.name).collect();
    assert_eq!(place.cache().remove(&views).unwrap(), 3);
    assert_eq!(place.cache().stats().unwrap().answers_bytes, 0);
}

/// A fragment of a page is also found when the page is painted from its list.
///
/// Guarantee: pages/viewports
#[test]
fn fragment_is_found_from_the_list() {
    let (place, server) = (Place::new(), Server::new());
    let text = "<p>text".repeat(50);
    server.say(
        "/a.html",
        Reply::html(format!(
            "<!doctype html>{text}<h2 id='c d'>There</h2>{text}<a name=e></a><p>E</p>{text}<p id=last>{text}"
        )),
    );
    let url = server.url("/a.html");
    let top = place.usual(&url);
    let mut places = vec![];
    for fragment in ["c%20d", "e", "last"] {
        let url = format!("{url}#{fragment}");
        let kept = place.usual(&url);
        assert_eq!(kept.tier, Tier::List, "a place in a page is the same page");
        let made = try_anew(&url, view(300, 200), Duration::from_secs(60)).unwrap();
        assert_eq!((made.scroll, made.pixels == kept.pixels), (kept.scroll, true), "{fragment}");
        places.push(kept.scroll);
    }
    assert!(places[0] > 1_000 && places.is_sorted_by(|one, other| one < other), "{places:?}");
    for fragment in ["", "#", "#no-such-place", "#top"] {
        assert_eq!(place.usual(&format!("{url}{fragment}")).scroll, 0, "{fragment}");
    }
    assert_eq!(
        place
            .visit(&format!("{url}#e"), view(300, 200).scrolled(7), CachePolicy::Usual)
            .unwrap()
            .scroll,
        7
    );
    assert!(place.usual(&url).pixels == top.pixels);
}

/// An address first used for a part of another page can be opened as a page.
///
/// Guarantee: pages/redirects
#[test]
fn part_of_a_page_opens_as_a_page() {
    for said in [("ETag", "\"one\""), ("Cache-Control", "max-age=1000")] {
        let (place, server) = (Place::new(), Server::new());
        let with = |reply: Reply| reply.with(said.0, said.1);
        server.say(
            "/q.html",
            with(Reply::html("<!doctype html><img src=b.html><a href=a.png><img src=a.png></a>")),
        );
        server.say("/b.html", with(Reply::html("<!doctype html><title>B</title><p>text")));
        server.say("/a.png", with(Reply::new("image/png", png(20, 20, [9, 99, 9, 255]))));
        place.usual(&server.url("/q.html"));
        let opened = place.usual(&server.url("/b.html"));
        assert_eq!((opened.title.as_str(), opened.tier), ("B", Tier::Nothing));
        assert_eq!(opened.pixels, anew(&server.url("/b.html"), view(300, 200)));
        let image = place.visit(&server.url("/a.png"), view(300, 200), CachePolicy::Usual);
        let error = error_of(image);
        assert!(matches!(*error, FetchError::NotHtml { .. }), "{error:?}");
    }
}

/// If the target of a redirect is unreachable, the note names the target and not the redirecting
/// server.
///
/// Guarantee: pages/redirects
#[test]
fn broken_redirect_blames_its_target() {
    let server = Server::new();
    let gone = format!("http://{}/", Server::new().address());
    server.say("/t.gif", Reply::redirect(&gone));
    let styles: String = (0..20)
        .map(|n| {
            server.say(
                &format!("/{n}.css"),
                Reply::css(format!("p.c{n} {{ color: rgb({}, 0, 0) }}", 100 + n)),
            );
            format!("<link rel=stylesheet href={n}.css><p class=c{n}>text")
        })
        .collect();
    server.say("/a.html", Reply::html(format!("<!doctype html><img src=t.gif>{styles}")));
    let opened = try_anew(&server.url("/a.html"), view(300, 800), Duration::from_secs(60)).unwrap();
    let asked = server.paths();
    assert!((0..20).all(|n| asked.contains(&format!("/{n}.css"))), "{asked:?}");
    assert!(
        opened.notes.iter().any(|note| note.contains("leads on to 127.0.0.1")),
        "{:?}",
        opened.notes
    );
}
