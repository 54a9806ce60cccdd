//! The report as one page: no script, nothing from elsewhere; readable on a phone, in the dark and
//! by a screen reader, since each bar stands beside its number.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::markdown::introduction;
use crate::number::{short, with_unit};
use crate::papers::Better;
use crate::report::{ExhibitPart, PaperPart, Report, RowPart, Verdict, is_goal_met};

const STYLE: &str = include_str!("page.css");
/// Bars of an exhibit whose numbers are further apart than this are drawn on a logarithmic scale.
const LINEAR_UP_TO: f64 = 40.0;

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
                    nav aria-label="Papers" {
                        ul {
                            @for paper in &report.papers {
                                li { a href={ "#" (paper.id) } { (paper.title) } }
                            }
                            li { a href="#all" { "Every measurement" } }
                            li { a href="#steps" { "Steps" } }
                        }
                    }
                    @for paper in &report.papers { (paper_part(paper)) }
                    (all(report))
                    (steps(report))
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
    let scale = Scale::of(exhibit);
    html! {
        article {
            header {
                h3 { (exhibit.label) ": " (exhibit.title) }
                span class={ "verdict " (class) } { (verdict) }
            }
            p { (exhibit.sentence) }
            p class="soft" { (exhibit.setting) (better) }
            dl { @for row in &exhibit.rows { (row_part(row, &scale)) } }
            @if let Scale::Log { .. } = scale {
                p class="legend" {
                    i class="theirs" {} "the paper" i class="ours" {} "ours" " (logarithmic scale)"
                }
            } @else {
                p class="legend" { i class="theirs" {} "the paper" i class="ours" {} "ours" }
            }
        }
    }
}

fn row_part(row: &RowPart, scale: &Scale) -> Markup {
    let (ours, spread) = row.ours_shown();
    let soft = row.ours.as_ref().is_some_and(|ours| !ours.is_firm);
    html! {
        dt { (row.label) }
        dd {
            div class="pair" {
                @if let Some(published) = row.published {
                    span class="bar theirs" style={ "width:" (scale.percent(published)) "%" } {}
                } @else { span {} }
                span { (row.published_shown()) }
                @if let Some(ours) = &row.ours {
                    span class="bar ours" style={ "width:" (scale.percent(ours.median)) "%" } {}
                } @else { span {} }
                span { b { @if soft { "~" } (ours) } }
            }
            @if !spread.is_empty() { span class="spread" { (spread) ". " } }
            @match (row.times_as_good, row.is_good) {
                (Some(times), Some(good)) => {
                    span class=(if good { "good" } else { "bad" }) { (short(times)) " times as good as the paper." }
                }
                (None, Some(good)) => {
                    span class=(if good { "good" } else { "bad" }) {
                        "Goal " (row.ours.as_ref().and_then(|ours| ours.goal.clone()).unwrap_or_default())
                        @if good { ": met." } @else { ": missed." }
                    }
                }
                _ => {}
            }
        }
    }
}

/// How long the bars of an exhibit are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    Linear { most: f64 },
    Log { least: f64, most: f64 },
}

impl Scale {
    fn of(exhibit: &ExhibitPart) -> Scale {
        let values = exhibit.rows.iter().flat_map(|row| {
            row.published.into_iter().chain(row.ours.as_ref().map(|ours| ours.median))
        });
        let shown = values.filter(|value| value.is_finite() && *value > 0.0);
        let (least, most) = shown
            .fold((f64::MAX, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
        match most / least > LINEAR_UP_TO {
            true => Scale::Log { least, most },
            false => Scale::Linear { most },
        }
    }

    /// Width in percent, with one digit behind the point.
    fn percent(self, value: f64) -> String {
        let part = match self {
            _ if value.is_nan() || value <= 0.0 => 0.0,
            Scale::Linear { most } => value / most,
            // The least is still to be seen.
            Scale::Log { least, most } => 0.05 + 0.95 * (value / least).ln() / (most / least).ln(),
        };
        format!("{:.1}", part.clamp(0.0, 1.0) * 100.0)
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
                                @for (key, one) in measured {
                                    tr {
                                        td class="key" { (key) }
                                        td { @if let Some(value) = one.median { (with_unit(value, &one.unit)) } }
                                        td { @if let Some(value) = one.min { (short(value)) } }
                                        td { @if let Some(value) = one.max { (short(value)) } }
                                        td { (one.n) }
                                        td class=(match is_goal_met(one) {
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

fn steps(report: &Report) -> Markup {
    html! {
        section id="steps" {
            h2 { "Steps" }
            div class="scroll" {
                table {
                    thead { tr { th { "step" } th { "runs" } th { "seconds" } th { "others had" } th { "numbers" } th {} } }
                    tbody {
                        @for step in &report.steps {
                            tr {
                                td { (step.name) }
                                td { (step.runs) }
                                td { (format!("{:.0}", step.seconds)) }
                                td { (format!("{:.0} %", step.others * 100.0)) }
                                td { (step.numbers) }
                                td class="told" {
                                    @if let Some(why) = &step.failed { span class="bad" { "failed: " (why) } " " }
                                    (step.remarks().join("; "))
                                }
                            }
                        }
                    }
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
    }

    #[test]
    fn bars_are_as_long_as_their_numbers() {
        let linear = Scale::Linear { most: 10.0 };
        assert_eq!((linear.percent(5.0), linear.percent(10.0)), ("50.0".into(), "100.0".into()));
        let log = Scale::Log { least: 1.0, most: 10_000.0 };
        assert_eq!((log.percent(1.0), log.percent(100.0)), ("5.0".into(), "52.5".into()));
        assert_eq!(log.percent(f64::NAN), "0.0");
        let exhibit = |flush_s| sample(flush_s, 0.0).papers[0].exhibits[0].clone();
        assert!(matches!(Scale::of(&exhibit(0.013)), Scale::Log { .. }));
        assert!(matches!(Scale::of(&exhibit(2.0)), Scale::Linear { .. }));
    }
}
