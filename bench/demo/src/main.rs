//! The main job, shown to a person: a cold run, a run that is killed in the middle and resumed, a
//! warm run, and the same program the old way. One table, and a piece of the answer.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use holdfast_testkit::measure::require_text;
use holdfast_testkit::measure::stats::Series;
use holdfast_testkit::measure::timing::{ms_since, spell_check};
use holdfast_testkit::{Programs, Scratch, Spellcheck};

/// Runs of the two ways that are compared.
const RUNS: usize = 5;
/// A text with mistakes, from the root of the project, where `./demo` starts this.
const LETTER: &str = "applets/spellcheck/texts/letter.txt";
/// Lines of its report that are shown.
const REPORT_LINES: usize = 5;
const COLD: &str = "cold";
const KILLED: &str = "killed";

fn main() -> ExitCode {
    match show() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A row of the table.
struct Row {
    what: String,
    wall_ms: f64,
    /// A killed run has no answer.
    answered: bool,
}

fn show() -> io::Result<()> {
    let scratch = Scratch::new(Programs::find()?)?;
    let text = require_text()?;
    let job = Spellcheck::new(&scratch, text)?;
    // Compiles the applet once, as an installation would.
    let answer = spell_check(job.old_way(&[]))?.out;
    let mut out = io::stdout().lock();

    writeln!(
        out,
        "\nSpell-checking {} against WordNet and the huge American English word list.",
        text.display()
    )?;
    writeln!(
        out,
        "The applet is untrusted WebAssembly; its dictionaries live in its persistent heap.\n"
    )?;
    let cold = spell_check(job.building(COLD, &[]))?;
    let cold_ms = cold.wall_ms;
    let killed = kill_half_way(&job, cold_ms)?;
    let checked = scratch.holdfast().args(["heap", "check", KILLED]).output()?;
    if !checked.status.success() {
        return Err(io::Error::other(format!(
            "after the kill: {}",
            String::from_utf8_lossy(&checked.stderr)
        )));
    }
    let resumed = resume(&job)?;
    writeln!(
        out,
        "A build was killed (SIGKILL) with {} words committed. Then:",
        grouped(killed.words)
    )?;
    write!(
        out,
        "  $ holdfast heap check {KILLED}\n  {}",
        String::from_utf8_lossy(&checked.stdout)
    )?;
    writeln!(out, "  and the next run went on from there to {} words.\n", grouped(resumed.words))?;

    let (mut warm_ms, mut old_way_ms) = (Series::default(), Series::default());
    for _ in 0..RUNS {
        let (warm, old_way) = (spell_check(job.warm(COLD, &[]))?, spell_check(job.old_way(&[]))?);
        if warm.out != answer
            || old_way.out != answer
            || cold.out != answer
            || resumed.report != answer
        {
            return Err(io::Error::other(
                "the runs do not agree on the answer; `cargo xtask test` tells more",
            ));
        }
        warm_ms.push(warm.wall_ms);
        old_way_ms.push(old_way.wall_ms);
    }
    let row = |what: String, wall_ms| Row { what, wall_ms, answered: true };
    let to_do = grouped(resumed.words.saturating_sub(killed.words));
    let rows = [
        row("cold: builds the tables in the heap".to_owned(), cold_ms),
        Row {
            what: format!("killed after {} words", grouped(killed.words)),
            wall_ms: killed.wall_ms,
            answered: false,
        },
        row(format!("resumed: {to_do} words to do"), resumed.wall_ms),
        row(format!("warm: finds them (median of {RUNS})"), warm_ms.median()),
        row(format!("old way: parses the files (median of {RUNS})"), old_way_ms.median()),
    ];
    write!(out, "{}", table(&rows, old_way_ms.median()))?;
    writeln!(
        out,
        "\nEvery run that came to its end gave the same answer. The same tables, on {LETTER}:"
    )?;
    let letter = Spellcheck::new(&scratch, Path::new(LETTER))?;
    for line in spell_check(letter.warm(COLD, &[]))?.out.lines().take(REPORT_LINES) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// A build that acknowledged its words.
struct Build {
    words: u64,
    wall_ms: f64,
    /// What it wrote besides acknowledgements.
    report: String,
}

/// Starts a build and kills it when half of the time that a build takes is over.
fn kill_half_way(job: &Spellcheck<'_>, build_ms: f64) -> io::Result<Build> {
    let started = Instant::now();
    let mut child = job.building(KILLED, &["--ack"]).stdout(Stdio::piped()).spawn()?;
    let pipe = child.stdout.take();
    // Read meanwhile: a full pipe would hold the build up.
    let reader = std::thread::spawn(move || {
        let mut output = Vec::new();
        pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut output)).map(|_| output)
    });
    std::thread::sleep(Duration::from_secs_f64(build_ms / 2000.0));
    child.kill()?;
    let status = child.wait()?;
    let wall_ms = ms_since(started);
    let output = reader
        .join()
        .map_err(|_| io::Error::other("the reader of the build's output panicked"))??;
    if status.code().is_some() {
        return Err(io::Error::other("the build was done before it could be killed; try again"));
    }
    Ok(read_build(&output, wall_ms))
}

/// Runs the build again, to its end.
fn resume(job: &Spellcheck<'_>) -> io::Result<Build> {
    let resumed = spell_check(job.building(KILLED, &["--ack"]))?;
    Ok(read_build(resumed.out.as_bytes(), resumed.wall_ms))
}

/// Separates acknowledgements (`ack TABLE WORDS`, growing for each table) from the report.
fn read_build(output: &[u8], wall_ms: f64) -> Build {
    let mut tables: BTreeMap<String, u64> = BTreeMap::new();
    let mut report = String::new();
    for line in String::from_utf8_lossy(output).lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next().and_then(|count| count.parse::<u64>().ok()))
        {
            (Some("ack"), Some(table), Some(count)) => {
                // The last line may be cut off by the kill, and then says less.
                let known = tables.entry(table.to_owned()).or_default();
                *known = count.max(*known);
            }
            _ => report.push_str(&format!("{line}\n")),
        }
    }
    Build { words: tables.values().sum(), wall_ms, report }
}

fn table(rows: &[Row], old_way_ms: f64) -> String {
    let width = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
    let mut text = format!(
        "{:<width$}  {:>15}  {:>25}\n",
        "run", "start to answer", "times as fast as old way"
    );
    for Row { what, wall_ms, answered } in rows {
        let ratio = if *answered { format!("{:.1}", old_way_ms / wall_ms) } else { "-".to_owned() };
        text.push_str(&format!("{what:<width$}  {wall_ms:>12.1} ms  {ratio:>25}\n"));
    }
    text
}

/// A number as people write it: 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([7, 123, 1234, 1_234_567].map(grouped), ["7", "123", "1,234", "1,234,567"]);
    }

    #[test]
    fn acknowledgements_and_the_report_are_told_apart() {
        let build = read_build(b"ack a 64\nack a 128\nack b 3\nt:1:2: teh -> the\nack a 1", 1.0);
        assert_eq!((build.words, build.report.as_str()), (131, "t:1:2: teh -> the\n"));
    }
}
