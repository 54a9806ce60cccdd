//! `holdfast page query` and `keep`: documents parsed once, and searched where they lie. No layout.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_command::exit::{BAD_FILE, FOUND, Failure, NO_ROOM, NOT_FOUND, OTHER, USAGE};
use holdfast_command::keys::{DEFAULT_KEY, key, key_for_new, name_space};
use holdfast_command::output::{print, print_each, print_json, print_json_each, with_progress};
use holdfast_command::size::show_size;
use holdfast_dom::{Document, Documents, DomError, LoosePage, Node, ParseOptions, Selector};
use holdfast_heap::Backing;
use holdfast_native_heap::{OpenHeapError, RegionBacking, open_data_heap};
use holdfast_region::{ErrorKind, RegionError, RegionName};
use holdfast_sys::counted::counted;
use serde::Serialize;

use crate::command::args::{KeepArgs, MatchForm, QueryArgs};
use crate::fetch::Url;
use crate::{Address, Cache, xhtml};

/// Where `holdfast page open` and `import` keep pages.
const PAGE_CACHE: &str = "page-cache";

/// Only what is kept beyond it matters; a query keeps nothing.
const CACHE_QUOTA_BYTES: u64 = u64::MAX;

/// How long it is waited for a process that changes a heap.
const PATIENCE: Duration = Duration::from_secs(2);

/// What `--json` prints of a match.
#[derive(Serialize)]
struct Match {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
}

/// What `keep --json` prints. Sizes in bytes.
#[derive(Serialize)]
struct Kept {
    heap: RegionName,
    name: String,
    source_bytes: u64,
    document_bytes: u64,
    nodes: u32,
    errors: u64,
}

pub(crate) fn query(args: &QueryArgs) -> Result<u8, Failure> {
    let selector = Selector::parse(&args.selector).map_err(of_dom)?;
    let path = Path::new(&args.source);
    if args.source.starts_with("http://") || args.source.starts_with("https://") {
        return query_kept(args, &selector);
    }
    if args.source == "-" || args.source.contains('/') || path.is_file() {
        if args.name.is_some() || args.key.is_some() {
            return Err(Failure::new(
                USAGE,
                format!(
                    "{} is no heap: --name and --key are of heaps; leave them out, or name one",
                    args.source
                ),
            ));
        }
        let page = with_progress(&format!("reading {}", args.source), || {
            LoosePage::parse(source(path)?, &ParseOptions::default()).map_err(of_dom)
        })?;
        return show(&page.open().map_err(of_dom)?, &selector, &args.form);
    }
    let heap = RegionName::parse(&args.source).map_err(|_| {
        Failure::new(
            NOT_FOUND,
            format!("there is no file {:?}, and no heap can have this name", args.source),
        )
    })?;
    let done = with_documents(&heap, args.key.as_deref(), |documents| {
        let name = chosen(documents, &heap, args.name.as_deref())?;
        show(&documents.open(&name).map_err(of_dom)?, &selector, &args.form)
    });
    done.map_err(|failure| unless_missing(failure, &heap))
}

/// A name may be that of a file as well: what is missing is said to be neither.
fn unless_missing(failure: Failure, heap: &RegionName) -> Failure {
    let is_missing = failure.code == NOT_FOUND
        && name_space()
            .is_ok_and(|names| matches!(names.summary(heap), Err(RegionError::NotFound { .. })));
    if !is_missing {
        return failure;
    }
    Failure::new(
        NOT_FOUND,
        format!(
            "there is no file {heap} in this folder, and no heap of this name; check the name, or keep a page \
             there: `holdfast page keep FILE --heap {heap}`"
        ),
    )
}

/// Queries what the cache of pages has of an address. No server is asked whether it is as it was.
fn query_kept(args: &QueryArgs, selector: &Selector) -> Result<u8, Failure> {
    if args.name.is_some() {
        return Err(Failure::new(USAGE, "an address has one document; leave --name out"));
    }
    let key = args.key.as_deref();
    let address = Address::parse(&args.source).map_err(|error| Failure::new(USAGE, error))?;
    let heap = RegionName::parse(PAGE_CACHE).map_err(|error| Failure::new(OTHER, error))?;
    let cache =
        Cache::new(name_space()?, heap.clone(), key.unwrap_or(DEFAULT_KEY), CACHE_QUOTA_BYTES);
    let name = cache
        .document_of(address.as_str())
        .map_err(|error| Failure::new(OTHER, error))?
        .ok_or_else(|| {
            let message =
                format!("the cache has no document of {address}; open or import the page first");
            Failure::new(NOT_FOUND, message)
        })?;
    with_documents(&heap, key, |documents| {
        show(&documents.open(&name).map_err(of_dom)?, selector, &args.form)
    })
}

/// Runs `work` with the documents of a heap.
fn with_documents<R>(
    heap: &RegionName,
    owner: Option<&str>,
    work: impl FnOnce(&Documents<RegionBacking>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let names = name_space()?;
    let key = key(&names, owner.unwrap_or(DEFAULT_KEY), Some(heap))?;
    // A process that fills a cache has it for a moment at a time.
    let end = Instant::now() + PATIENCE;
    let region = loop {
        match names.open_read_only(heap, &key) {
            Err(error) if error.kind() == ErrorKind::Held && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(2));
            }
            opened => break opened?,
        }
    };
    let (heap_of_pages, region) = open_data_heap(region).map_err(of_heap)?;
    let documents = Documents::new(heap_of_pages);
    let result = work(&documents);
    drop(documents.into_heap().close());
    region.close()?;
    result
}

/// The document that is meant.
fn chosen<B: Backing>(
    documents: &Documents<B>,
    heap: &RegionName,
    name: Option<&str>,
) -> Result<String, Failure> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let mut names: Vec<&str> = documents.names().collect();
    names.sort_unstable();
    match names[..] {
        [only] => Ok(only.to_owned()),
        [] => Err(Failure::new(
            NOT_FOUND,
            format!(
                "heap {heap} has no pages; put one there: `holdfast page keep FILE --heap {heap}`"
            ),
        )),
        _ => Err(Failure::new(
            USAGE,
            format!("heap {heap} has several pages; say which by --name: {}", names.join(", ")),
        )),
    }
}

fn show(page: &Document<'_>, selector: &Selector, form: &MatchForm) -> Result<u8, Failure> {
    let found = page.select(selector).map_err(of_dom)?;
    let code = if found.is_empty() { FOUND } else { 0 };
    if form.count {
        print(&format!("{}\n", found.len()))?;
        return Ok(code);
    }
    if form.json {
        print_json_each(found.into_iter().map(|node| matched(node).map_err(of_dom)))?;
        return Ok(code);
    }
    print_each(found.into_iter().filter_map(|node| match &form.attr {
        Some(name) => {
            let value = node.attribute(&name.to_ascii_lowercase()).or_else(|| node.attribute(name));
            value.map(|value| Ok(value.to_owned()))
        }
        None if form.text => Some(node.text().map_err(of_dom)),
        None => Some(node.html().map_err(of_dom)),
    }))?;
    // What was met while the values were read.
    match page.damage().filter(|_| form.attr.is_some()) {
        Some(damage) => Err(of_dom(DomError::Damaged(damage))),
        None => Ok(code),
    }
}

fn matched(node: Node<'_>) -> Result<Match, DomError> {
    let attribute = |at: holdfast_dom::AttributeRef<'_>| {
        let name = match at.prefix {
            Some(prefix) => format!("{prefix}:{}", at.name),
            None => at.name.to_owned(),
        };
        (name, at.value.to_owned())
    };
    Ok(Match {
        name: node.name().unwrap_or_default().to_owned(),
        attributes: node.attributes().map(attribute).collect(),
        text: node.text()?,
    })
}

pub(crate) fn keep(args: &KeepArgs) -> Result<u8, Failure> {
    let from_file = args.file.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = args.name.clone().or(from_file).filter(|name| name != "-").ok_or_else(|| {
        Failure::new(USAGE, "the page needs a name in the heap; give it one by --name")
    })?;
    // Before there is a heap, or it is opened for writing: the source may take its time, and the
    // page may be refused.
    let page = with_progress(&format!("parsing {}", args.file.display()), || {
        LoosePage::parse(source(&args.file)?, &ParseOptions::default()).map_err(of_dom)
    })?;
    let names = name_space()?;
    let key = key_for_new(&names, &args.key)?;
    let region = names.open_or_create(&args.heap, &key, args.heap_size)?;
    let (heap, region) = open_data_heap(region).map_err(of_heap)?;
    let mut documents = Documents::new(heap);
    let report = documents.keep(&name, &page);
    drop(documents.into_heap().close());
    region.close()?;
    let report = report.map_err(of_dom)?;
    if args.json {
        print_json(&Kept {
            heap: args.heap.clone(),
            name,
            source_bytes: report.source_bytes,
            document_bytes: report.document_bytes,
            nodes: report.nodes,
            errors: report.errors,
        })?;
    } else {
        print(&format!(
            "{name}: {} in {}, of a source of {}\n",
            counted(report.nodes, "node"),
            show_size(report.document_bytes),
            show_size(report.source_bytes)
        ))?;
    }
    Ok(0)
}

fn source(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let failed = |error: io::Error| {
        let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { OTHER };
        Failure::new(code, format!("cannot read {}: {error}", path.display()))
    };
    let file = File::open(path).map_err(failed)?;
    let url = std::path::absolute(path).ok().and_then(|path| Url::from_file_path(path).ok());
    if !url.is_some_and(|url| xhtml::is_said(&url, None)) {
        return Ok(Box::new(file));
    }
    let mut bytes = Vec::new();
    let bytes_max = ParseOptions::default().limits.source_bytes;
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Box::new(Cursor::new(for_parser(bytes, bytes_max))))
}

/// A page in XHTML for the parser of HTML, which refuses what is more than `bytes_max` and is to see
/// all of that: written as HTML it may be less.
fn for_parser(bytes: Vec<u8>, bytes_max: u64) -> Vec<u8> {
    if bytes.len() as u64 > bytes_max { bytes } else { xhtml::as_html(&bytes) }
}

fn of_dom(error: DomError) -> Failure {
    let code = match &error {
        DomError::Selector { .. } => USAGE,
        DomError::NoSuchDocument { .. } => NOT_FOUND,
        DomError::NotADocument { .. } | DomError::Damaged(_) | DomError::NewerFormat { .. } => {
            BAD_FILE
        }
        DomError::Heap(holdfast_heap::HeapError::OutOfMemory { .. }) => NO_ROOM,
        _ => OTHER,
    };
    if let DomError::Limit { limit, max } = &error
        && limit.of_pages()
    {
        // There is no option for it: who knows that a page is good writes the few lines that take
        // it.
        let limits =
            "only programs take such a page, which raise the limit (`holdfast_dom::ParseLimits`)";
        return Failure::new(code, format!("more than {max} {limit}; {limits}"));
    }
    Failure::new(code, error)
}

fn of_heap(error: OpenHeapError) -> Failure {
    match error {
        OpenHeapError::Region(error) => error.into(),
        error => Failure::new(BAD_FILE, error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// Which files are XHTML is decided as it is where they are opened, whatever bytes are in their
    /// names.
    ///
    /// Guarantee: pages/xhtml
    #[test]
    fn file_with_another_name_is_xhtml_too() {
        let folder = tempfile::tempdir().unwrap();
        for (name, html) in [
            (&b"\xE9.xhtml"[..], "<!DOCTYPE html><p></p>"),
            (b"\xE9.XHT", "<!DOCTYPE html><p></p>"),
            (b"\xE9.html", "<p/>"),
        ] {
            let path = folder.path().join(OsStr::from_bytes(name));
            std::fs::write(&path, "<p/>").unwrap();
            let mut read = String::new();
            source(&path).unwrap().read_to_string(&mut read).unwrap();
            assert_eq!(read, html);
        }
    }

    /// A page that is too long is refused by its length, and not read in part.
    ///
    /// Guarantee: pages/xhtml
    #[test]
    fn too_long_xhtml_stays_as_it_is() {
        let page = b"<?xml version='1.0'?><p/>".to_vec();
        let bytes = page.len() as u64;
        assert_eq!(for_parser(page.clone(), bytes), b"<!DOCTYPE html><p></p>");
        assert_eq!(for_parser(page.clone(), bytes - 1), page);
    }
}
