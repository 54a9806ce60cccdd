//! Runs a program on a storage, and prints what it took.

use std::fs;
use std::io::{self, Write as _};
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::ProgramError;
use crate::options::{Kind, Options, Program};
use crate::storage::files::Files;
use crate::storage::mapped::Mapped;
use crate::storage::volatile::Volatile;
use crate::storage::{Reader, Storage, Writer};
use crate::{chunks, compress, fasta, knucleotide, mail, revcomp};

/// Runs the program on one of the storages that need no heap.
///
/// # Errors
/// Of the program; [`ProgramError::Usage`] for the heap.
pub fn run_without_heap(options: &Options) -> Result<(), ProgramError> {
    let directory = options.directory.clone();
    match options.kind {
        Kind::Files => run(&mut Files::new(directory, options.buffer_bytes), options),
        Kind::Mapped => run(&mut Mapped::new(directory), options),
        Kind::Volatile => {
            let mut storage = Volatile::default();
            for input in inputs(options) {
                storage.put(&input, read(options, &input)?);
            }
            run(&mut storage, options)
        }
        Kind::Heap => Err(ProgramError::Usage("there is no heap here".to_owned())),
    }
}

/// The objects that a program reads.
fn inputs(options: &Options) -> Vec<String> {
    match options.program {
        Program::Chunks | Program::Fasta | Program::Import => Vec::new(),
        Program::Revcomp | Program::Knucleotide => options.names[..1].to_vec(),
        Program::Compress => (0..options.count).map(compress::input).collect(),
        Program::Verify => {
            (0..options.count).flat_map(|n| [compress::input(n), compress::output(n)]).collect()
        }
        Program::MailLearn => (0..mail::CATEGORIES).map(mail::text).collect(),
        Program::MailParsed => {
            (0..mail::CATEGORIES).map(mail::text).chain([mail::NEW.to_owned()]).collect()
        }
        Program::MailKept => vec![mail::MODEL.to_owned(), mail::NEW.to_owned()],
        Program::Digest => options.names.clone(),
    }
}

fn read(options: &Options, name: &str) -> Result<Vec<u8>, ProgramError> {
    fs::read(options.directory.join(name)).map_err(|source| ProgramError::File {
        act: "read",
        name: name.to_owned(),
        source,
    })
}

/// Runs the program, as often as is wanted.
///
/// # Errors
/// Of the program.
pub fn run<S: Storage>(storage: &mut S, options: &Options) -> Result<(), ProgramError> {
    // Who counts system calls sees where a round begins: between two marks is nothing but the round.
    let mut said = String::new();
    for round in 0..options.rounds {
        if options.rounds > 1 {
            print(&format!("mark {round}\n{said}"))?;
            said.clear();
        }
        said += &once(storage, options)?;
    }
    if options.rounds > 1 {
        print(&format!("mark {}\n", options.rounds))?;
    }
    print(&said)
}

/// Returns what to print.
fn once<S: Storage>(storage: &mut S, options: &Options) -> Result<String, ProgramError> {
    let names = &options.names;
    let mut said = String::new();
    let before = storage.crossings();
    let started = Instant::now();
    let (bytes, ns) = match options.program {
        Program::Chunks => timed(started, chunks::write(storage, &names[0], options.bytes)?),
        Program::Fasta => timed(started, fasta::write(storage, &names[0], options.n)?),
        Program::Revcomp => timed(started, revcomp::run(storage, &names[0], &names[1])?),
        Program::Knucleotide => {
            let (report, ns) = timed(started, knucleotide::run(storage, &names[0])?);
            said = format!("{}reading_ns {}\n", report.text, report.reading.as_nanos());
            (report.text.len() as u64, ns)
        }
        Program::Compress => {
            let (report, ns) = timed(started, compress::run(storage, options.count)?);
            said = format!("encoding_ns {}\n", report.encoding.as_nanos());
            (report.bytes, ns)
        }
        Program::Verify => {
            let bytes = compress::verify(storage, options.count)?;
            return Ok(format!("verified {bytes}\n"));
        }
        Program::MailLearn => timed(started, mail::learn(storage)?),
        Program::MailParsed | Program::MailKept => {
            let categories = match options.program {
                Program::MailParsed => mail::classify_parsed(storage)?,
                _ => mail::classify_kept(storage)?,
            };
            let ns = timed(started, ()).1;
            for category in &categories {
                said += &format!("{category} ");
            }
            said += "\n";
            (categories.len() as u64, ns)
        }
        Program::Import => {
            for name in names {
                let content = read(options, name)?;
                let mut writer = storage.create(name, content.len() as u64)?;
                writer.write(&content)?;
                storage.finish(writer)?;
            }
            return Ok(said);
        }
        Program::Digest => {
            for name in names {
                let mut reader = storage.open(name)?;
                let bytes = reader.size_bytes();
                let sum = xxh3_64(reader.rest()?);
                said += &format!("{name} {bytes} {sum:016x}\n");
            }
            return Ok(said);
        }
    };
    let crossings = storage.crossings() - before;
    said += &format!("ns {ns}\nbytes {bytes}\ncrossings {crossings}\n");
    Ok(said)
}

fn timed<T>(started: Instant, result: T) -> (T, u128) {
    (result, started.elapsed().as_nanos())
}

/// Prints with one call.
fn print(text: &str) -> Result<(), ProgramError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|source| ProgramError::File {
        act: "write",
        name: "standard output".to_owned(),
        source,
    })
}
