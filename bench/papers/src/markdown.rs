//! The report as Markdown, for the source tree and for review.

use std::fmt::Write;

use crate::number::{short, with_unit};
use crate::papers::Better;
use crate::report::{ExhibitPart, Report, Verdict, date, is_goal_met};

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
    writeln!(out, "{}\n", introduction(report))?;
    for paper in &report.papers {
        writeln!(out, "## {}\n\n{}\n", cell(&paper.title), cell(&paper.by))?;
        for exhibit in &paper.exhibits {
            write_exhibit(out, exhibit)?;
        }
    }
    writeln!(out, "## Every measurement\n")?;
    for (suite, measured) in &report.suites {
        writeln!(out, "### Suite `{suite}`\n\n| key | median | least | largest | n | goal |")?;
        writeln!(out, "|---|---:|---:|---:|---:|---|")?;
        for (key, one) in measured {
            let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
            let goal = match (&one.goal, is_goal_met(one)) {
                (Some(goal), Some(true)) => format!("{goal}: met"),
                (Some(goal), _) => format!("{goal}: **missed**"),
                (None, _) => String::new(),
            };
            let median = one.median.map_or_else(|| "-".to_owned(), |v| with_unit(v, &one.unit));
            writeln!(
                out,
                "| `{key}` | {median} | {} | {} | {} | {goal} |",
                number(one.min),
                number(one.max),
                one.n
            )?;
        }
        writeln!(out)?;
    }
    writeln!(out, "## Steps\n\n| step | runs | seconds | others had | numbers | |")?;
    writeln!(out, "|---|---:|---:|---:|---:|---|")?;
    for step in &report.steps {
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

/// What the report is of, in a few lines.
pub(crate) fn introduction(report: &Report) -> String {
    let (met, goals) = report.goals();
    format!(
        "{}. Source {}, from {} to {}. {}Of the tables and figures {} hold, {} hold in part, {} do not, {} only \
         describe, and {} were not measured; {met} of {goals} goals are met. A number marked ~ is not firm: it is of \
         fewer than five values, or others had more than a tenth of the machine.",
        report.machine.line(),
        report.source,
        date(report.between.0),
        date(report.between.1),
        if report.quick { "A quick run, with few repetitions. " } else { "" },
        report.count(Verdict::Holds),
        report.count(Verdict::Partly),
        report.count(Verdict::Fails),
        report.count(Verdict::Described),
        report.count(Verdict::Open),
    )
}

fn write_exhibit(out: &mut String, exhibit: &ExhibitPart) -> std::fmt::Result {
    writeln!(out, "### {}: {}\n\n{}", exhibit.label, cell(&exhibit.title), cell(&exhibit.setting))?;
    let better = match exhibit.better {
        Better::More => "More is better.",
        Better::Less => "Less is better.",
        Better::Neither => "",
    };
    writeln!(out, "{better}\n\n| | the paper | ours | spread | times as good |")?;
    writeln!(out, "|---|---:|---:|---|---:|")?;
    for row in &exhibit.rows {
        let (ours, spread) = row.ours_shown();
        let soft = if row.ours.as_ref().is_some_and(|ours| !ours.is_firm) { "~" } else { "" };
        let times = match (row.times_as_good, row.is_good) {
            (Some(times), _) => short(times),
            (None, Some(good)) => {
                let goal = row.ours.as_ref().and_then(|ours| ours.goal.clone()).unwrap_or_default();
                format!("goal {goal}: {}", if good { "met" } else { "**missed**" })
            }
            (None, None) => String::new(),
        };
        writeln!(
            out,
            "| {} | {} | {soft}{ours} | {spread} | {times} |",
            cell(&row.label),
            cell(&row.published_shown())
        )?;
    }
    writeln!(out, "\n{}\n", cell(&exhibit.sentence))
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
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        let busy = super::markdown(&sample(0.013, 0.5));
        assert!(busy.contains("| 20 MB | 1.3 s | ~0.013 s |"), "{busy}");
    }
}
