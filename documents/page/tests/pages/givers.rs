//! Whatever gives bytes can give pages.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_page::{
    Address, CachePolicy, Fetch, FetchAnswer, FetchError, FetchRequest, FetchedBytes, Headers,
    MissingResource, OpenOptions, PageError, PageLimits, Tier, open_with,
};

use crate::{Place, is_drawn, limits, view};

/// Pages in memory; one address is more than anybody wants, at another it panics.
struct Memory(HashMap<&'static str, &'static str>);

impl Fetch for Memory {
    fn fetch(&self, wanted: &FetchRequest<'_>) -> Result<FetchAnswer, FetchError> {
        let nothing = |status| MissingResource {
            url: wanted.url.clone(),
            status,
            headers: Headers::default(),
        };
        match wanted.url.path() {
            "/gone" => Ok(FetchAnswer::Nothing(nothing(410))),
            "/odd" => Ok(FetchAnswer::Nothing(nothing(200))),
            "/panic" => panic!("as a giver may"),
            "/much" => Ok(FetchAnswer::Bytes(FetchedBytes::new(
                wanted.url.clone(),
                vec![b'x'; wanted.bytes_max as usize + 1],
            ))),
            path => {
                let bytes = self.0.get(path).ok_or(FetchError::NotFound)?.as_bytes().to_vec();
                Ok(FetchAnswer::Bytes(FetchedBytes::new(wanted.url.clone(), bytes)))
            }
        }
    }
}

/// Pages come from any implementation of `Fetch`; its panics and excess data do no harm.
///
/// Guarantee: pages/no-local-files
/// Guarantee: pages/server-faults
#[test]
fn custom_fetch_is_contained() {
    let place = Place::new();
    let pages = HashMap::from([
        (
            "/a.html",
            "<!doctype html><link rel=stylesheet href=a.css><p>text<img src=/panic><img src=/much><img src=/gone><img src=/odd>",
        ),
        ("/a.css", "p { background: red }"),
    ]);
    let cache = place.cache();
    let memory = Arc::new(Memory(pages));
    let limits = PageLimits { resource_bytes: 1 << 20, source_bytes: 1 << 20, ..limits() };
    let open = |path: &str| {
        let asking = CachePolicy::Reload;
        let opening = OpenOptions {
            asking,
            ..OpenOptions::new(view(300, 200), &limits, Some(&cache), memory.clone())
        };
        let address = Address::parse(&format!("http://archive.invalid{path}")).unwrap();
        let mut opened = open_with(&address, &opening)?;
        if let Some(to_keep) = opened.to_keep.take() {
            to_keep.keep(&cache).unwrap();
        }
        Ok::<_, PageError>(opened)
    };
    let opened = open("/a.html").unwrap();
    assert!(is_drawn(&opened.pixels));
    for said in [
        "/panic: the server does not answer",
        "/much: it has more than 1048576 bytes",
        "/gone, http://archive.invalid/odd: there is nothing",
    ] {
        assert!(opened.notes.iter().any(|note| note.contains(said)), "{said}: {:?}", opened.notes);
    }
    assert_eq!(open("/a.html").unwrap().tier, Tier::Pixels);
    let answers = |path: &str| {
        let name = format!(
            "http:{:032x}",
            xxhash_rust::xxh3::xxh3_128(format!("http://archive.invalid{path}").as_bytes())
        );
        let mut found = false;
        place.spoil(|heap| found = heap.bytes(&name).is_some());
        found
    };
    assert!(
        answers("/a.html") && answers("/gone") && !answers("/odd"),
        "what is no answer is not kept"
    );
    for refused in ["/panic", "/much", "/none"] {
        let refused = open(refused);
        assert!(matches!(refused, Err(PageError::Fetch { .. })), "{refused:?}");
    }
}
