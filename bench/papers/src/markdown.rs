//! The report as Markdown, for the source tree and for review.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::number::short;
use crate::papers::Better;
use crate::report::{ExhibitPart, Judged, Missed, Report, StepLine, Verdict, date};
use crate::source;

/// The report.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_report(&mut out, report);
    out
}

fn write_report(out: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(out, "# The papers' tables and figures, measured today\n")?;
    writeln!(out, "{}\n\n{HOW_TO_READ}\n", introduction(report))?;
    for paper in &report.papers {
        writeln!(out, "## {}\n\n{}\n", cell(&paper.title), cell(&paper.by))?;
        for exhibit in &paper.exhibits {
            write_exhibit(out, exhibit)?;
        }
    }
    write_missed(out, &report.missed)?;
    writeln!(out, "## Every measurement\n")?;
    for (suite, measured) in &report.suites {
        write_suite(out, suite, measured)?;
    }
    write_steps(out, &report.steps)?;
    write_notes(out, &report.steps)
}

fn write_missed(out: &mut String, missed: &[Missed]) -> std::fmt::Result {
    if missed.is_empty() {
        return Ok(());
    }
    writeln!(out, "## Goals that are missed\n\n| suite | key | measured | goal | why |")?;
    writeln!(out, "|---|---|---:|---|---|")?;
    for one in missed {
        let why = one.why.as_deref().map_or_else(String::new, cell);
        let Missed { suite, key, shown, goal, .. } = one;
        writeln!(out, "| {suite} | `{key}` | {shown} | {goal} | {why} |")?;
    }
    writeln!(out)
}

fn write_suite(
    out: &mut String,
    suite: &str,
    measured: &BTreeMap<String, Judged>,
) -> std::fmt::Result {
    writeln!(out, "### Suite `{suite}`\n\n| key | median | least | largest | n | goal |")?;
    writeln!(out, "|---|---:|---:|---:|---:|---|")?;
    for (key, judged) in measured {
        let one = &judged.measured;
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
        let goal = match (&one.goal, judged.is_goal_met()) {
            (Some(goal), Some(true)) => format!("{goal}: met"),
            (Some(goal), _) => format!("{goal}: **missed**"),
            (None, _) => String::new(),
        };
        let (median, min, max, n) = (judged.shown(), number(one.min), number(one.max), one.n);
        writeln!(out, "| `{key}` | {median} | {min} | {max} | {n} | {goal} |")?;
    }
    writeln!(out)
}

fn write_steps(out: &mut String, steps: &[StepLine]) -> std::fmt::Result {
    writeln!(out, "## Steps\n\n| step | runs | seconds | others had | numbers | |")?;
    writeln!(out, "|---|---:|---:|---:|---:|---|")?;
    for step in steps {
        let failed = step.failed.iter().map(|why| format!("failed: {why}"));
        let remarks: Vec<String> = failed.chain(step.remarks()).collect();
        writeln!(
            out,
            "| {} | {} | {:.0} | {:.0} % | {} | {} |",
            step.name,
            step.runs,
            step.seconds,
            step.others * 100.0,
            step.numbers,
            cell(&remarks.join("; "))
        )?;
    }
    Ok(())
}

/// What the suites say about their numbers, as they laid it out.
fn write_notes(out: &mut String, steps: &[StepLine]) -> std::fmt::Result {
    for (number, step) in steps.iter().filter(|step| !step.notes.is_empty()).enumerate() {
        if number == 0 {
            writeln!(out, "\n## Notes of the steps")?;
        }
        let text = step.notes.join("\n").trim_end().to_owned();
        let fence = "`".repeat(longest_run(&text, '`').max(2) + 1);
        writeln!(out, "\n### {}\n\n{fence}text\n{text}\n{fence}", step.name)?;
    }
    Ok(())
}

/// How often a letter follows itself at most.
fn longest_run(text: &str, letter: char) -> usize {
    text.split(|other| other != letter).map(str::len).max().unwrap_or(0)
}

/// What the marks of a report mean.
pub(crate) const HOW_TO_READ: &str = "\
    Each number is a median, with the least and the largest value and how many there are. A number marked ~ is not \
    firm: it is of fewer than five values, or others had more than a tenth of the machine, or its largest value is \
    more than four times its least (that may be noise, or pages and sizes that differ).";

/// What the report is of, in a few lines.
pub(crate) fn introduction(report: &Report) -> String {
    let (met, goals) = report.goals();
    let quick = match report.quick_steps() {
        0 => String::new(),
        few => format!("A quick run: {few} of {} steps had few repetitions. ", report.steps.len()),
    };
    let others = match report.steps_of_others() {
        (0, 0) => String::new(),
        (machine, source) => format!(
            "Of {} steps {machine} ran on another machine, or after another start of it, and {source} from another source, as the list of steps \
             says. ",
            report.steps.len()
        ),
    };
    let changed = match report.steps_of_changed_source() {
        0 => String::new(),
        changed => format!("{changed} were built from uncommitted changes. "),
    };
    // Results of before machines had ids.
    let alike = match report.machine.id {
        Some(_) => "",
        None => "Its steps do not tell machines of one kind apart. ",
    };
    format!(
        "{}. Source {}, from {} to {}. {quick}{others}{changed}{alike}Of the tables and figures {} hold, {} hold in part, {} do not ({} of \
         these judged by our goals, as the paper has no number), {} only describe, and of {} nothing was measured; \
         {met} of {goals} goals are met, {} of them by numbers that are not firm.",
        report.machine.line(),
        source::described(&report.source),
        date(report.between.0),
        date(report.between.1),
        report.count(Verdict::Holds),
        report.count(Verdict::Partly),
        report.count(Verdict::Fails),
        report.judged_by_goals(),
        report.count(Verdict::Described),
        report.count(Verdict::Open),
        report.goals_met_loosely(),
    )
}

fn write_exhibit(out: &mut String, exhibit: &ExhibitPart) -> std::fmt::Result {
    writeln!(out, "### {}: {}\n\n{}", exhibit.label, cell(&exhibit.title), cell(&exhibit.setting))?;
    let (better, compared) = match exhibit.better {
        Better::More => ("More is better.", "times as good"),
        Better::Less => ("Less is better.", "times as good"),
        Better::Neither => ("", "ours / the paper's"),
    };
    writeln!(out, "{better}\n\n| | the paper | ours | spread | {compared} |")?;
    writeln!(out, "|---|---:|---:|---|---:|")?;
    for row in &exhibit.rows {
        let (ours, spread) = row.ours_shown();
        let times = match (row.times_as_good, row.is_good) {
            (Some(times), _) => short(times),
            (None, Some(good)) => {
                let goal = row.ours.as_ref().and_then(|ours| ours.goal.clone()).unwrap_or_default();
                format!("goal {goal}: {}", if good { "met" } else { "**missed**" })
            }
            (None, None) => row.relative().map(short).unwrap_or_default(),
        };
        writeln!(
            out,
            "| {} | {} | {ours} | {spread} | {times} |",
            cell(&row.label),
            cell(&row.published_shown())
        )?;
    }
    writeln!(out, "\n{}\n", cell(&exhibit.sentence))?;
    let mut told: Vec<&str> = Vec::new();
    for (row, why) in exhibit.rows.iter().filter_map(|row| Some((row, row.why.as_deref()?))) {
        // Rows of one measurement beside several numbers of the paper have one reason.
        if told.contains(&why) {
            continue;
        }
        let head = if told.is_empty() { "Why a goal is missed:\n\n" } else { "" };
        let goal = row.ours.as_ref().and_then(|ours| ours.goal.as_deref());
        let goal = goal.map(|goal| format!(" (goal {})", cell(goal))).unwrap_or_default();
        writeln!(out, "{head}- {}{goal}: {}", cell(&row.label), cell(why))?;
        told.push(why);
    }
    match exhibit.rows.iter().any(|row| row.why.is_some()) {
        true => writeln!(out),
        false => Ok(()),
    }
}

/// Text that stays in its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use crate::report::tests::sample;

    #[test]
    fn tables_have_both_sides_and_their_spread() {
        let text = super::markdown(&sample(0.013, 0.01));
        for line in [
            "| 20 MB | 1.3 s | 0.013 s | 0.0065 to 0.026, 15 values | 100 |",
            "| ratio | - | 0.9× | 0.45 to 1.8, 15 values | goal <= 1: met |",
            "Not measured in this run: trace failed: no &lt;root>.",
            "H. Luo &lt;and others>",
            "- none (goal >= 2): `strace` shows &lt;90 %> in the disk.",
            "| pool | `missed` | 0.9 s | >= 1 | `strace` shows &lt;90 %> in the disk. |",
            "| `ratio` | 0.9 s | 0.45 | 1.8 | 15 | <= 1: met |",
            "1 of 2 goals are met, 0 of them by numbers",
            "### pool/flush\n\n````text\nFigure <4>\n```\nWAL  1\n````",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        let busy = super::markdown(&sample(0.013, 0.5));
        for line in ["| 20 MB | 1.3 s | ~0.013 s |", "| `ratio` | ~0.9 s |", "| ~0.9 s | >= 1 |"] {
            assert!(busy.contains(line), "{line} is not in\n{busy}");
        }
    }
}
