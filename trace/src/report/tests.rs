//! The properties of every form of a report.

use std::collections::BTreeSet;

use holdfast_sys::terminal::steers;
use serde_json::Value;

use super::samples::{EVIL, events, report};
use super::*;
use crate::Event;
use crate::classes::Scheme;
use crate::diff::{Diff, Runs};

/// No line is wider than the terminal, and no output character can move the cursor.
///
/// Guarantee: trace/forms
#[test]
fn terminal_lines_fit_and_never_move_the_cursor() {
    let report = report();
    for width in [40, 60, 80, 120] {
        for by in [
            None,
            Some(Grouping::Class),
            Some(Grouping::Call),
            Some(Grouping::Thread),
            Some(Grouping::Process),
            Some(Grouping::Crossing),
        ] {
            let text = terminal(&report, &Look { width, by, ..Look::default() });
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
                assert!(!line.chars().any(char::is_control), "{line:?}");
            }
        }
    }
}

#[test]
fn a_terminal_gets_colours_only_when_they_are_wanted() {
    assert!(!terminal(&report(), &Look::default()).contains('\u{1b}'));
    assert!(terminal(&report(), &Look { colour: true, ..Look::default() }).contains("\u{1b}[1m"));
}

/// The terminal report has the rows of the study, the lost records and the calls that did not
/// return.
#[test]
fn terminal_shows_study_rows_losses_and_unfinished() {
    let text = terminal(&report(), &Look::default());
    for row in [
        "  Process/Thread",
        "  Synchronization",
        "OS related",
        "Metadata related",
        "User data related",
    ] {
        assert!(text.lines().any(|line| line.starts_with(row)), "{row}\n{text}");
    }
    for part in [
        "LOST: 12 events",
        "had not returned",
        "77 READ",
        "1 SIGTERM",
        "225 ns a call",
        "How long futex took",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

/// A request for crossings that were not recorded is answered with a message.
///
/// Guarantee: trace/crossings
#[test]
fn missing_crossings_are_reported() {
    let without = Report { crossings: None, ..report() };
    let text = |by| terminal(&without, &Look { by, ..Look::default() });
    assert!(text(Some(Grouping::Crossing)).contains("was not recorded; trace with --sandbox"));
    assert!(!text(None).contains("--sandbox"));
}

/// Every list of rows twice, and every number of these fields as large as it gets.
fn swollen(value: &Value, fields: &BTreeSet<String>) -> Value {
    match value {
        Value::Object(of) => {
            let each = of.iter().map(|(name, value)| {
                let is_one = value.is_u64() && fields.contains(name);
                (name.clone(), if is_one { Value::from(u64::MAX) } else { swollen(value, fields) })
            });
            Value::Object(each.collect())
        }
        Value::Array(rows) => {
            let twice = if rows.iter().all(Value::is_object) { 2 } else { 1 };
            let rows: Vec<_> = rows.iter().map(|row| swollen(row, fields)).collect();
            Value::Array(vec![rows; twice].concat())
        }
        value => value.clone(),
    }
}

fn fields_of(value: &Value, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(of) => of.iter().for_each(|(name, value)| {
            fields.extend(value.is_u64().then(|| name.clone()));
            fields_of(value, fields);
        }),
        Value::Array(rows) => rows.iter().for_each(|row| fields_of(row, fields)),
        _ => {}
    }
}

/// JSON with numbers that no trace can have is shown and compared without a panic.
///
/// Guarantee: trace/json
#[test]
fn impossible_numbers_do_not_panic() {
    let whole = serde_json::to_value(report()).unwrap();
    let mut fields = BTreeSet::new();
    fields_of(&whole, &mut fields);
    // Some have fewer bits.
    let read =
        |fields: &BTreeSet<String>| serde_json::from_value::<Report>(swollen(&whole, fields));
    fields.retain(|field| read(&BTreeSet::from([field.clone()])).is_ok());
    assert!(
        ["calls", "kernel_calls", "wall_ns", "sleep_ns", "threads"]
            .iter()
            .all(|field| fields.contains(*field))
    );
    let swollen = read(&fields).unwrap();
    let mut forms = vec![html(Page::Report(&swollen)), tsv(&swollen)];
    for by in [
        None,
        Some(Grouping::Call),
        Some(Grouping::Thread),
        Some(Grouping::Process),
        Some(Grouping::Crossing),
    ] {
        forms.push(terminal(&swollen, &Look { by, ..Look::default() }));
    }
    forms.extend(study::Case::ALL.map(|case| study::beside_report(&swollen, case, 80, false)));
    forms.extend([Part::Wall, Part::Cpu, Part::Awake].map(|part| folded(&swollen, part)));
    let runs = |report: &Report| Runs { name: "runs".to_owned(), reports: vec![report.clone()] };
    for (a, b) in [(&swollen, &swollen), (&swollen, &report()), (&report(), &swollen)] {
        let diff = Diff::of(&runs(a), &runs(b));
        forms.extend([crate::diff::terminal(&diff, &Look::default()), html(Page::Diff(&diff))]);
    }
    assert!(forms.iter().all(|form| !form.is_empty()));
}

/// Guarantee: trace/json
#[test]
fn json_is_the_report_and_is_read_back_as_it_was() {
    let report = report();
    let again: Report = serde_json::from_str(&json(&report)).unwrap();
    assert_eq!(again, report);
}

/// Guarantee: trace/forms
#[test]
fn every_row_of_columns_has_all_of_them() {
    let text = tsv(&report());
    let columns = text.lines().next().unwrap().split('\t').count();
    assert_eq!(columns, 26);
    for line in text.lines() {
        assert_eq!(line.split('\t').count(), columns, "{line:?}");
    }
    let calls: u64 = text
        .lines()
        .filter(|line| line.starts_with("call\t"))
        .map(|line| line.split('\t').nth(5).unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(calls, report().total.calls);
}

/// Folded stacks have five frames each, and their times add up to the total.
#[test]
fn folded_stacks_add_up_to_the_time() {
    let report = report();
    for (part, whole) in
        [(Part::Wall, report.total.time.wall_ns), (Part::Cpu, report.total.time.cpu_ns)]
    {
        let mut sum = 0;
        let text = folded(&report, part);
        for line in text.lines() {
            let (stack, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(stack.split(';').count(), 5, "{line}");
            sum += value.parse::<u64>().unwrap() * 1_000;
        }
        let lines = text.lines().count() as u64;
        assert!(sum.abs_diff(whole) <= lines * 500, "{sum} of {whole}");
    }
}

/// The Perfetto output is valid JSON and has every call in the lane of its thread.
///
/// Guarantee: trace/forms
#[test]
fn perfetto_json_has_every_call_on_its_lane() {
    let mut writer = perfetto::Writer::new(Vec::new(), 1_000_000, Scheme::Paper).unwrap();
    events().iter().for_each(|event| writer.add(event).unwrap());
    let json: Value = serde_json::from_slice(&writer.finish().0).unwrap();
    let lines = json["traceEvents"].as_array().unwrap();
    let calls: Vec<_> = lines.iter().filter(|line| line["ph"] == "X").collect();
    assert_eq!(calls.len(), 3_001);
    for call in calls {
        assert!(call["ts"].as_f64().unwrap() >= 0.0 && call["dur"].as_f64().unwrap() >= 0.0);
        assert!(
            call["pid"].is_u64()
                && call["tid"].is_u64()
                && call["name"].is_string()
                && call["cat"].is_string()
        );
    }
    let named = |name: &str| {
        lines.iter().any(|line| line["name"] == "process_name" && line["args"]["name"] == name)
    };
    assert!(named("make") && named(EVIL));
    assert!(lines.iter().any(|line| line["ph"] == "i" && line["name"] == "SIGTERM"));
    assert!(lines.iter().any(|line| line["args"]["result"] == "did not return"));
}

/// A name in the Perfetto output steers no terminal, and means the same.
///
/// Guarantee: trace/forms
#[test]
fn names_of_lanes_steer_no_terminal() {
    let name = "a\u{9b}2Jb\u{202e}c";
    let event = Event::Began { at_ns: 0, process: 1, thread: 1, parent: 0, command: name.into() };
    let mut writer = perfetto::Writer::new(Vec::new(), 0, Scheme::Paper).unwrap();
    writer.add(&event).unwrap();
    let text = String::from_utf8(writer.finish().0).unwrap();
    assert!(!text.chars().any(|c| c != '\n' && steers(c)), "{text:?}");
    let json: Value = serde_json::from_str(&text).unwrap();
    let names = [0_usize, 1].map(|line| json["traceEvents"][line]["args"]["name"].as_str());
    assert_eq!(names, [Some(name); 2]);
}

#[test]
fn an_empty_trace_has_every_form() {
    let report = crate::summary::Summary::default().into_report(document::Source::default());
    assert!(terminal(&report, &Look::default()).contains("OS related"));
    assert!(tsv(&report).starts_with("kind\t"));
    assert_eq!(folded(&report, Part::Wall), "");
    assert!(html(Page::Report(&report)).contains("<main"));
    let _: Report = serde_json::from_str(&json(&report)).unwrap();
    let writer = perfetto::Writer::new(Vec::new(), 0, Scheme::Paper).unwrap();
    let _: Value = serde_json::from_slice(&writer.finish().0).unwrap();
}

/// The HTML report loads nothing from the network and escapes names.
///
/// Guarantee: trace/forms
#[test]
fn page_is_offline_and_escapes_names() {
    let report = report();
    let runs = |name: &str| Runs { name: name.to_owned(), reports: vec![report.clone()] };
    let diff = Diff::of(&runs("a"), &runs(EVIL));
    for page in [html(Page::Report(&report)), html(Page::Diff(&diff))] {
        assert!(page.contains("default-src 'none'"));
        // The name of a kind of element, which is not asked for.
        let rest = page.replace("http://www.w3.org/2000/svg", "");
        for link in [
            "src=",
            "href=",
            "http:",
            "https:",
            "@import",
            "url(",
            "fetch(",
            "XMLHttp",
            "innerHTML",
        ] {
            assert!(!rest.contains(link), "{link}");
        }
        assert_eq!(page.matches("</script>").count(), 2, "only the two of the page");
        assert!(!page.contains("<b>\u{1b}"));
        let data = page.split_once("type=\"application/json\"").unwrap().1;
        let data = data.split_once('>').unwrap().1.split_once("</script>").unwrap().0;
        let _: Value = serde_json::from_str(data).unwrap();
    }
}

/// Guarantee: trace/watch
#[test]
fn a_screen_fits_its_terminal() {
    let report = report();
    for (width, height) in [(80, 24), (40, 10), (20, 3), (200, 60)] {
        for colour in [false, true] {
            let screen = watch::screen(&report, width, height, colour);
            assert!(screen.lines().count() <= height, "{width}x{height}\n{screen}");
            if !colour {
                assert!(
                    screen.lines().all(|line| line.chars().count() <= width),
                    "{width}x{height}\n{screen}"
                );
            }
        }
    }
}

/// `--watch` shows through which door (64 bits, i386, x32) calls of the same name came.
///
/// Guarantee: trace/watch
#[test]
fn screen_names_the_door_of_a_call() {
    let screen = watch::screen(&report(), 140, 80, false);
    assert!(screen.contains("(i386)"), "{screen}");
}

/// Guarantee: trace/watch
#[test]
fn the_terminal_is_given_back_when_the_view_is_left() {
    let mut terminal = Vec::new();
    let mut view = watch::View::open(&mut terminal).unwrap();
    view.draw("one\ntwo\n").unwrap();
    drop(view);
    let text = String::from_utf8(terminal).unwrap();
    assert!(text.starts_with("\x1b[?1049h") && text.ends_with("\x1b[?1049l"), "{text:?}");
    assert!(!text.contains('\n') || text.contains("\r\n"));
}

/// A heading says what is below it: kinds of calls, and calls. The study is named.
///
/// Guarantee: trace/forms
#[test]
fn headings_name_kinds_calls_and_the_study() {
    let report = report();
    let text = terminal(&report, &Look::default());
    let header = text.lines().find(|line| line.contains("awake %")).unwrap();
    assert_eq!(header.split_whitespace().take(3).collect::<Vec<_>>(), ["kinds", "calls", "%"]);
    let process =
        text.lines().find(|line| line.trim_start().starts_with("Process/Thread")).unwrap();
    let row = report.subclasses.iter().find(|row| row.subclass.id() == "process").unwrap();
    let cells: Vec<_> = process.split_whitespace().collect();
    assert_eq!(cells[1..3], [text::count(row.sums.distinct), text::count(row.sums.calls)]);
    let screen = watch::screen(&report, 80, 24, false);
    for form in [&text, &screen, &html(Page::Report(&report))] {
        assert!(!form.contains("frequency"), "{form}");
    }
    let beside = study::beside_report(&report, study::Case::Compilation, 80, false);
    assert!(
        beside.contains("Dubeyko et al., 2017") && beside.contains("arXiv:1712.07759"),
        "{beside}"
    );
}

/// What can be seen of it without a browser; `pages_fit_a_phone_and_a_desk` looks at it with one.
///
/// Guarantee: trace/forms
#[test]
fn a_page_is_made_for_narrow_windows() {
    let page = html(Page::Report(&report()));
    assert!(
        page.contains(r#"<meta name="viewport" content="width=device-width, initial-scale=1">"#)
    );
    assert!(
        page.contains("@media screen and (max-width: 1080px)")
            && page.contains(".scroll { overflow-x: auto; }")
    );
    // Each cell says what it is where there is no header, and every table is in a container.
    assert!(page.contains("content: attr(data-title)") && page.contains(r#""data-title": title"#));
    assert_eq!(
        page.matches(r#"element("table""#).count(),
        page.matches(r#"{ class: "scroll" }, element("table""#).count()
    );
    // Labels of pictures have a size that is not scaled: these are drawn to the width that there
    // is.
    assert!(page.contains("svg text { fill: var(--soft); font: 12px"));
    for drawn in [
        "chart((width) => histogram(call, width)",
        "chart((width) => lanes(report, threads, width)",
    ] {
        assert!(page.contains(drawn), "{drawn}");
    }
    assert!(!page.contains(r#"width: "100%""#), "a picture that is scaled");
}

/// A recording that lacks something says so in every form that says how it came about, and never
/// that nothing was lost.
///
/// Guarantee: trace/cut
/// Guarantee: trace/killed-tracer
#[test]
fn what_a_recording_lacks_is_in_the_report() {
    let mut report = report();
    report.source.events_lost = 0;
    assert!(terminal(&report, &Look::default()).contains("No event was lost."));
    report.source.events_missing = 48_887;
    report.source.incomplete = vec!["INCOMPLETE: 48,887 events are missing.".to_owned()];
    let text = terminal(&report, &Look::default());
    assert!(
        text.contains("48,887 events are missing") && !text.contains("No event was lost"),
        "{text}"
    );
    assert!(html(Page::Report(&report)).contains("48,887 events are missing"));
    let again: Report = serde_json::from_str(&json(&report)).unwrap();
    assert_eq!(again, report);
    // Reports of earlier versions do not have these.
    let mut value: Value = serde_json::from_str(&json(&report)).unwrap();
    let source = value["source"].as_object_mut().unwrap();
    assert!(source.remove("incomplete").is_some() && source.remove("events_missing").is_some());
    let older: Report = serde_json::from_value(value).unwrap();
    assert!(older.source.incomplete.is_empty());
}
