//! The report as one page: no script, nothing from elsewhere; readable on a phone, in the dark and
//! by a screen reader, since each bar stands beside its number.

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart;
use crate::markdown::{HOW_TO_READ, introduction};
use crate::number::{short, with_unit};
use crate::papers::Better;
use crate::report::{ExhibitPart, Missed, PaperPart, Report, RowPart, StepLine, Verdict};
use crate::scale::Scale;

const STYLE: &str = include_str!("page.css");

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { "Five papers, measured today" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { "Five papers, measured today" }
                    p { (introduction(report)) }
                    p class="soft" { (HOW_TO_READ) }
                    nav aria-label="Papers" {
                        ul {
                            @for paper in &report.papers {
                                li { a href={ "#" (paper.id) } { (paper.title) } }
                            }
                            @if !report.missed.is_empty() {
                                li { a href="#missed" { "Goals that are missed" } }
                            }
                            li { a href="#all" { "Every measurement" } }
                            li { a href="#steps" { "Steps" } }
                        }
                    }
                    @for paper in &report.papers { (paper_part(paper)) }
                    @if !report.missed.is_empty() { (missed(&report.missed)) }
                    (all(report))
                    (steps(&report.steps))
                }
            }
        }
    }
    .into_string()
}

fn paper_part(paper: &PaperPart) -> Markup {
    html! {
        section id=(paper.id) {
            h2 { (paper.title) }
            p class="soft" { (paper.by) }
            @for exhibit in &paper.exhibits { (exhibit_part(exhibit)) }
        }
    }
}

fn exhibit_part(exhibit: &ExhibitPart) -> Markup {
    let (class, verdict) = match exhibit.verdict {
        Verdict::Holds => ("holds", "holds"),
        Verdict::Partly => ("partly", "holds in part"),
        Verdict::Fails => ("fails", "does not hold"),
        Verdict::Open => ("open", "not measured"),
        Verdict::Described => ("described", "described"),
    };
    let better = match exhibit.better {
        Better::More => " More is better.",
        Better::Less => " Less is better.",
        Better::Neither => "",
    };
    let (points, rows): (Vec<_>, Vec<_>) = exhibit.rows.iter().partition(|row| row.at.is_some());
    html! {
        article {
            header {
                h3 { (exhibit.label) ": " (exhibit.title) }
                span class={ "verdict " (class) } { (verdict) }
            }
            p { (prose(&exhibit.sentence)) }
            p class="soft" { (prose(&exhibit.setting)) (better) }
            @if !rows.is_empty() { (bars(exhibit, &rows)) }
            @if let Some(lines) = chart::lines(exhibit) { (lines) }
            @if !points.is_empty() {
                details {
                    summary { "The numbers of the lines" }
                    (bars(exhibit, &points))
                }
            }
        }
    }
}

fn bars(exhibit: &ExhibitPart, rows: &[&RowPart]) -> Markup {
    html! {
        dl { @for row in rows { (row_part(row, Scale::of(exhibit, &row.unit))) } }
        (legend(exhibit, rows))
    }
}

/// What is drawn, without what none of the rows has.
fn legend(exhibit: &ExhibitPart, rows: &[&RowPart]) -> Markup {
    let has = |is_there: fn(&RowPart) -> bool| rows.iter().any(|row| is_there(row));
    let drawn = rows.iter().filter(|row| row.ours.is_some() || row.published.is_some());
    let units: BTreeSet<&str> = drawn.map(|row| row.unit.as_str()).collect();
    let scales: Vec<(&str, Scale)> =
        units.into_iter().map(|unit| (unit, Scale::of(exhibit, unit))).collect();
    html! {
        p class="legend" {
            @if has(|row| row.published.is_some()) { span { i class="theirs" {} "the paper" } }
            @if has(|row| row.ours.is_some()) { span { i class="ours" {} "ours" } }
            @if has(|row| row.ours.as_ref().is_some_and(|ours| ours.median < 0.0)) {
                span { i class="loss" {} "ours, below zero" }
            }
            @if has(|row| row.ours.as_ref().is_some_and(|ours| ours.n > 1)) {
                span { i class="reach" {} "least to largest" }
            }
            @if has(|row| row.ours.as_ref().is_some_and(|ours| ours.bound.is_some())) {
                span { i class="goal" {} "goal" }
            }
            @for (unit, scale) in scales.iter().filter(|(_, scale)| scale.is_logarithmic()) {
                span { (scale_note(unit, *scale)) }
            }
        }
    }
}

fn scale_note(unit: &str, scale: Scale) -> String {
    match unit {
        "x" => "logarithmic, from a line at 1".to_owned(),
        unit => format!("logarithmic, from {}", with_unit(scale.base(), unit)),
    }
}

fn row_part(row: &RowPart, scale: Scale) -> Markup {
    let (ours, spread) = row.ours_shown();
    html! {
        div class="row" {
            dt { (row.label) }
            dd {
                @if let Some(published) = row.published {
                    div class="pair" {
                        div class="track" {
                            span class="bar theirs" style=(scale.bar(published)) {}
                            (base_line(scale))
                        }
                        span { (row.published_shown()) }
                    }
                }
                div class="pair" {
                    (track(row, scale))
                    b { (ours) }
                }
            }
            dd class="told" {
                @if let (None, Some(text)) = (row.published, &row.published_text) {
                    "The paper: " (text) ". "
                }
                @if !spread.is_empty() { span class="soft" { (spread) ". " } }
                (judgement(row))
                @if let Some(why) = &row.why { div class="why" { (prose(why)) } }
            }
        }
    }
}

/// Our bar, over it the values' spread, and the goal.
fn track(row: &RowPart, scale: Scale) -> Markup {
    let Some(ours) = &row.ours else { return html! { div class="track none" {} } };
    let class = if ours.median < 0.0 { "bar loss" } else { "bar ours" };
    html! {
        div class="track" {
            span class=(class) style=(scale.bar(ours.median)) {}
            @if ours.n > 1 { span class="reach" style=(scale.between(ours.min, ours.max)) {} }
            (base_line(scale))
            @if let Some(bound) = ours.bound {
                span class="goal" style={ "left:" (format!("{:.1}", scale.place(bound))) "%" } {}
            }
        }
    }
}

fn base_line(scale: Scale) -> Markup {
    html! {
        @if let Some(place) = scale.base_line() {
            span class="base" style={ "left:" (format!("{place:.1}")) "%" } {}
        }
    }
}

fn judgement(row: &RowPart) -> Markup {
    let Some(good) = row.is_good else {
        return html! {
            @if let Some(times) = row.relative() { (short(times)) " times the paper's." }
        };
    };
    let class = if good { "good" } else { "bad" };
    html! {
        @if let Some(times) = row.times_as_good {
            span class=(class) { (short(times)) " times as good as the paper." }
        } @else {
            span class=(class) {
                "Goal " (row.ours.as_ref().and_then(|ours| ours.goal.clone()).unwrap_or_default())
                @if good { ": met." } @else { ": missed." }
            }
        }
    }
}

/// A sentence of the table, in which what is between backquotes is code.
fn prose(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn missed(missed: &[Missed]) -> Markup {
    html! {
        section id="missed" {
            h2 { "Goals that are missed" }
            dl class="missed" {
                @for one in missed {
                    dt { code { (one.suite) " " (one.key) } }
                    dd {
                        b { (one.shown) } " (goal " (one.goal) ") "
                        @if let Some(why) = &one.why { (prose(why)) }
                    }
                }
            }
        }
    }
}

fn all(report: &Report) -> Markup {
    html! {
        section id="all" {
            h2 { "Every measurement" }
            @for (suite, measured) in &report.suites {
                details {
                    summary { "Suite " (suite) " (" (measured.len()) " numbers)" }
                    div class="scroll" {
                        table {
                            thead { tr {
                                th { "key" } th { "median" } th { "least" } th { "largest" } th { "n" } th { "goal" }
                            } }
                            tbody {
                                @for (key, judged) in measured {
                                    @let one = &judged.measured;
                                    tr {
                                        td class="key" { (key) }
                                        td { (judged.shown()) }
                                        td { @if let Some(value) = one.min { (short(value)) } }
                                        td { @if let Some(value) = one.max { (short(value)) } }
                                        td { (one.n) }
                                        td class=(match judged.is_goal_met() {
                                            Some(true) => "good", Some(false) => "bad", None => "",
                                        }) { @if let Some(goal) = &one.goal { (goal) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn steps(steps: &[StepLine]) -> Markup {
    html! {
        section id="steps" {
            h2 { "Steps" }
            div class="scroll" {
                table {
                    thead { tr { th { "step" } th { "runs" } th { "seconds" } th { "others had" } th { "numbers" } th {} } }
                    tbody {
                        @for step in steps {
                            tr {
                                td { (step.name) }
                                td { (step.runs) }
                                td { (format!("{:.0}", step.seconds)) }
                                td { (format!("{:.0} %", step.others * 100.0)) }
                                td { (step.numbers) }
                                td class="remark" {
                                    @if let Some(why) = &step.failed { span class="bad" { "failed: " (why) } " " }
                                    (step.remarks().join("; "))
                                }
                            }
                        }
                    }
                }
            }
            @for step in steps.iter().filter(|step| !step.notes.is_empty()) {
                details {
                    summary { "Notes of " (step.name) }
                    pre class="scroll" { (step.notes.join("\n")) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    /// The page is alone, and what comes from outside is never markup.
    #[test]
    fn page_asks_for_nothing_and_escapes_everything() {
        let page = page(&sample(0.013, 0.01));
        assert!(page.contains("H. Luo &lt;and others&gt;") && page.contains("no &lt;root&gt;"));
        for outside in ["http:", "https:", "src=", "<script", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("100 times as good as the paper."), "{page}");
        for text in [
            "<code>strace</code> shows &lt;90 %&gt; in the disk.",
            "<code>pool missed</code>",
            "Figure &lt;4&gt;\n```\nWAL  1",
        ] {
            assert!(page.contains(text), "{text} is not in {page}");
        }
    }

    /// What is not there has neither a line nor a word in the legend.
    #[test]
    fn rows_without_a_published_number_have_one_line() {
        let report = sample(0.013, 0.0);
        let exhibits = &report.papers[0].exhibits;
        let shown = |exhibit| exhibit_part(exhibit).into_string();
        let (both, goal_alone) = (shown(&exhibits[0]), shown(&exhibits[2]));
        assert_eq!(both.matches("class=\"pair\"").count(), 3, "{both}");
        assert!(both.contains("\"theirs\""), "{both}");
        assert_eq!(goal_alone.matches("class=\"pair\"").count(), 2, "{goal_alone}");
        assert!(!goal_alone.contains("\"theirs\""), "{goal_alone}");
        assert!(goal_alone.contains("class=\"goal\"") && goal_alone.contains("class=\"reach\""));
    }

    /// A loss has another mark than a gain.
    #[test]
    fn values_below_zero_are_no_gain() {
        let mut exhibit = sample(0.013, 0.0).papers[0].exhibits[2].clone();
        if let Some(ours) = &mut exhibit.rows[0].ours {
            (ours.median, ours.min) = (-1.0, -2.0);
        }
        exhibit.rows.truncate(1);
        let shown = exhibit_part(&exhibit).into_string();
        assert!(shown.contains("bar loss") && !shown.contains("bar ours"), "{shown}");
    }
}
