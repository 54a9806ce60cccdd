//! `cargo xtask vm`: the failure lab from the command line.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use holdfast_lab::cause::Cause;
use holdfast_lab::initramfs::{ExtraProgram, Programs};
use holdfast_lab::lab::{Files, Lab, Plan};
use holdfast_lab::ledger::Ledger;

const USAGE: &str = "\
usage: holdfast-lab --guest FILE --caller FILE --applet FILE --kernel DIRECTORY [OPTION]...

  --long             40 of each failure instead of one
  --count N          N of each
  --minutes N        begins no round after so many
  --ledger FILE      keeps there what was found after each round, and goes on from there
  --only FAILURE     only this one; may be given again
                     (crash, hang, panic, button, hold, freeze, hold-off, power-cut)
  --seed N           what decides the moments
  --canary           acknowledges records before they are committed: the lab must find losses
  --env NAME=VALUE   for the program after --run
  --run PROGRAM [ARGUMENT]...
                     runs a program in the machine instead; HOLDFAST_TEST_DAX names the DAX file system
";
const LONG_ROUNDS: u64 = 40;
const RUN_TIMEOUT: Duration = Duration::from_secs(20 * 60);

struct LabOptions {
    files: Files,
    plan: Plan,
    run: Option<ExtraProgram>,
}

fn main() -> ExitCode {
    let wishes = match read(std::env::args().skip(1)) {
        Ok(wishes) => wishes,
        Err(what) => {
            eprintln!("error: {what}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match &wishes.run {
        Some(brought) => run_program(&wishes, brought),
        None => run_lab(&wishes),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn run_lab(wishes: &LabOptions) -> holdfast_lab::missing::Result<ExitCode> {
    let started = Instant::now();
    let lab = Lab::new(&wishes.files, None)?;
    let mut ledger = match &wishes.plan.kept_at {
        Some(path) => Ledger::of_file(path, &wishes.plan)?,
        None => Ledger::default(),
    };
    let run = lab.run(&wishes.plan, &mut ledger, &mut |line| println!("{line}"));
    println!("\n{}", ledger.to_table());
    for finding in ledger.findings() {
        println!("LOST: {finding}");
    }
    run?;
    let harmless = ledger.harmless();
    for cause in &harmless {
        println!("NO FAILURE: {}: nothing in ordinary memory was lost", cause.describe());
    }
    let lost = ledger.findings().len();
    println!(
        "{} of each failure, {lost} promises broken; seed {:#x}; {:.0} s",
        ledger.rounds(),
        wishes.plan.seed,
        started.elapsed().as_secs_f64()
    );
    let good = lost == 0 && harmless.is_empty();
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_program(
    wishes: &LabOptions,
    brought: &ExtraProgram,
) -> holdfast_lab::missing::Result<ExitCode> {
    let lab = Lab::new(&wishes.files, Some(brought))?;
    let status = lab.run_brought(RUN_TIMEOUT, &mut |line| println!("{line}"))?;
    let code = status.and_then(|status| u8::try_from(status).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn read(arguments: impl Iterator<Item = String>) -> Result<LabOptions, String> {
    let mut arguments = arguments.peekable();
    let (mut guest, mut caller, mut applet, mut kernel) = (None, None, None, None);
    let (mut time, mut kept_at) = (None, None);
    let mut plan = Plan {
        causes: Vec::new(),
        rounds: 1,
        time,
        kept_at: None,
        seed: 0x486f_6c64,
        early: false,
    };
    let mut environment = Vec::new();
    let mut run = None;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--guest" => guest = Some(PathBuf::from(value()?)),
            "--caller" => caller = Some(PathBuf::from(value()?)),
            "--applet" => applet = Some(PathBuf::from(value()?)),
            "--kernel" => kernel = Some(PathBuf::from(value()?)),
            "--long" => plan.rounds = LONG_ROUNDS,
            "--count" => plan.rounds = number(&value()?)?,
            "--minutes" => time = Some(Duration::from_secs(60 * number(&value()?)?)),
            "--ledger" => kept_at = Some(PathBuf::from(value()?)),
            "--seed" => plan.seed = number(&value()?)?,
            "--only" => {
                let name = value()?;
                plan.causes
                    .push(Cause::parse(&name).ok_or(format!("there is no failure `{name}`"))?);
            }
            "--canary" => plan.early = true,
            "--env" => environment.push(value()?),
            "--run" => {
                let program = PathBuf::from(value()?);
                let arguments = arguments.by_ref().collect();
                run = Some(ExtraProgram {
                    program,
                    arguments,
                    environment: std::mem::take(&mut environment),
                });
            }
            other => return Err(format!("`{other}` is not known")),
        }
    }
    if plan.causes.is_empty() {
        plan.causes = Cause::ALL.to_vec();
    }
    (plan.time, plan.kept_at) = (time, kept_at);
    let programs = Programs {
        guest: guest.ok_or("--guest is missing")?,
        caller: caller.ok_or("--caller is missing")?,
        applet: applet.ok_or("--applet is missing")?,
    };
    let files = Files { programs, kernel: kernel.ok_or("--kernel is missing")? };
    Ok(LabOptions { files, plan, run })
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{text}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(text: &str) -> Result<LabOptions, String> {
        read(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn wishes_are_read_and_what_is_not_known_is_named() {
        const FILES: &str = "--guest g --caller c --applet a --kernel k";
        let wishes = |text: &str| wishes(&format!("{FILES} {text}"));
        let read = wishes("--only panic --only crash --seed 0x10 --long --canary --minutes 90");
        assert!(read.is_ok_and(|wishes| {
            wishes.plan.causes == [Cause::Panic, Cause::Crash]
                && (wishes.plan.rounds, wishes.plan.seed, wishes.plan.early) == (40, 16, true)
                && wishes.plan.time == Some(Duration::from_secs(5400))
        }));
        let read = wishes("--env A=b --run p --long -x");
        assert!(
            read.is_ok_and(|wishes| wishes
                .run
                .is_some_and(|run| run.arguments == ["--long", "-x"]))
        );
        assert!(wishes("--only flood").is_err_and(|what| what.contains("flood")));
        assert!(self::wishes("--guest g --kernel k").is_err() && wishes("--fast").is_err());
    }
}
