//! One run: from understood options to an exit status.

use std::fs;
use std::io::{self, Read, Write};

use crate::arena::Arena;
use crate::builder;
use crate::checker::Checker;
use crate::error::SpellError;
use crate::options::{HELP, Mode, Options};
use crate::report::Report;
use crate::source::{ROOT_PREFIX, Source};
use crate::speller::Speller;
use crate::suggest::suggest;
use crate::summary::{self, Summary};
use crate::table::Table;
use crate::trials;

/// Exit status: nothing was found.
pub const STATUS_CLEAN: u8 = 0;
/// Exit status: unknown or missing words.
pub const STATUS_FOUND: u8 = 1;
/// Exit status: an error.
pub const STATUS_ERROR: u8 = 2;

/// Does what needs neither heap nor tables; `None` when there is more to do.
///
/// # Errors
/// Output.
pub fn run_without_tables(
    options: &Options,
    out: &mut dyn Write,
) -> Result<Option<u8>, SpellError> {
    match options.mode {
        Mode::Help => out.write_all(HELP.as_bytes())?,
        Mode::Version => {
            out.write_all(concat!("spellcheck ", env!("CARGO_PKG_VERSION"), "\n").as_bytes())?
        }
        _ => return Ok(None),
    }
    Ok(Some(STATUS_CLEAN))
}

/// Does the rest, with tables in `arena`. Returns the exit status.
///
/// # Errors
/// Everything that [`SpellError`] lists.
pub fn run<A: Arena>(
    arena: &mut A,
    options: &Options,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<u8, SpellError> {
    match &options.mode {
        Mode::Forget { root } => return forget(arena, root, notes),
        Mode::Verify { file } => {
            let sources = Source::find(&options.dictionaries)?;
            let counts = read_text(file)?;
            let (text, complete) =
                trials::verify(arena, &sources, &String::from_utf8_lossy(&counts))?;
            out.write_all(text.as_bytes())?;
            return Ok(if complete { STATUS_CLEAN } else { STATUS_FOUND });
        }
        _ => {}
    }
    build(arena, options, out)?;
    let (names, tables) = finished_tables(arena)?;
    summary::ensure(arena, &tables)?;
    let arena = &*arena;
    let dictionaries = tables.iter().map(|table| table.dictionary(arena)).collect();
    let speller = Speller::new(dictionaries, Summary::open(arena));
    if let Mode::BenchLookups { count } = options.mode {
        let mut text = Vec::new();
        for path in &options.texts {
            text.extend(read_text(path)?);
            text.push(b'\n');
        }
        let elapsed = trials::bench_lookups(&speller, &options.texts[0], &text, count)?;
        // In hundredths, without floating point: its formatting alone would be a tenth of the
        // applet.
        let hundredths = elapsed.as_nanos() as u64 * 50 / u64::from(count);
        out.write_all(
            format!("lookup_ns {}.{:02}\n", hundredths / 100, hundredths % 100).as_bytes(),
        )?;
        return Ok(STATUS_CLEAN);
    }
    check(&speller, &names, options, out, notes)
}

fn build<A: Arena>(
    arena: &mut A,
    options: &Options,
    out: &mut dyn Write,
) -> Result<(), SpellError> {
    for source in Source::find(&options.dictionaries)? {
        builder::ensure(arena, &source, options.batch_words, &mut |root, words| {
            if options.ack {
                // One write, and at once: its reader counts on the words.
                out.write_all(["ack ", root, " ", &words.to_string(), "\n"].concat().as_bytes())?;
                out.flush()?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Names and tables of the arena, which must all be finished.
fn finished_tables<A: Arena>(arena: &A) -> Result<(Vec<String>, Vec<Table>), SpellError> {
    let mut roots = arena.roots(ROOT_PREFIX);
    roots.sort_unstable();
    let mut tables = Vec::with_capacity(roots.len());
    for root in &roots {
        let Some(table) = Table::open(arena, root)? else { continue };
        if !table.progress().complete {
            return Err(SpellError::Unfinished {
                root: root.clone(),
                bytes_done: table.progress().bytes,
                source_bytes: table.stamp().bytes,
            });
        }
        tables.push(table);
    }
    if tables.is_empty() {
        return Err(SpellError::NoDictionary);
    }
    let names = roots.iter().map(|root| root[ROOT_PREFIX.len()..].to_owned()).collect();
    Ok((names, tables))
}

fn check(
    speller: &Speller<'_>,
    dictionaries: &[String],
    options: &Options,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<u8, SpellError> {
    let mut checker = Checker::default();
    for (file, path) in options.texts.iter().enumerate() {
        checker.read(speller, file, &read_text(path)?);
    }
    let unknown: Vec<&str> = checker.unknown().iter().map(String::as_str).collect();
    let suggestions = suggest(speller, &unknown);
    let report = Report {
        files: &options.texts,
        checker: &checker,
        suggestions: &suggestions,
        dictionaries,
    };
    out.write_all(report.render(options.format).as_bytes())?;
    out.flush()?;
    notes.write_all(report.summary().as_bytes())?;
    Ok(if checker.findings().is_empty() { STATUS_CLEAN } else { STATUS_FOUND })
}

fn forget<A: Arena>(arena: &mut A, root: &str, notes: &mut dyn Write) -> Result<u8, SpellError> {
    let root =
        if root.starts_with(ROOT_PREFIX) { root.to_owned() } else { [ROOT_PREFIX, root].concat() };
    if arena.root(&root).is_none() {
        let mut present = arena.roots(ROOT_PREFIX).join(", ");
        if present.is_empty() {
            present = "none".to_owned();
        }
        return Err(SpellError::NoSuchRoot { root, present });
    }
    Table::remove(arena, &root)?;
    notes.write_all(["removed ", &root, "\n"].concat().as_bytes())?;
    Ok(STATUS_CLEAN)
}

fn read_text(path: &str) -> Result<Vec<u8>, SpellError> {
    let read = if path == "-" {
        let mut text = Vec::new();
        io::stdin().read_to_end(&mut text).map(|_| text)
    } else {
        fs::read(path)
    };
    read.map_err(|source| SpellError::Read { path: path.to_owned(), source })
}
