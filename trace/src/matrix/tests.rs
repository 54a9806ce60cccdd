//! The order of runs, what is in the way, and what comes out.

use super::*;
use crate::report::Look;
use crate::report::document::Source;
use crate::summary::Summary;
use crate::{Abi, Call, Event, Object, Split};

fn plan(specs: &[&str]) -> Plan {
    Plan {
        platforms: specs.iter().map(|spec| spec.parse().unwrap()).collect(),
        repetitions: 6,
        warm_ups: 1,
        set_up: None,
        drop_caches: false,
        image_bytes: 64 << 20,
    }
}

/// A run whose calls take this long each.
fn report(ns: u64) -> Report {
    let mut summary = Summary::default();
    for index in 0..50 {
        summary.add(&Event::Call(Call {
            process: 1,
            thread: 1,
            abi: Abi::X86_64,
            number: 0,
            arguments: [0; 6],
            result: Some(1),
            start_ns: index * 1_000_000,
            time: Split::of(ns, 0, 0, 0, 0),
            object: Object::None,
            restarted: false,
        }));
    }
    summary.into_report(Source { command: vec!["program".to_owned()], ..Source::default() })
}

/// Platforms take turns, and each repetition starts in a new, empty directory.
///
/// Guarantee: trace/matrix
#[test]
fn repetitions_alternate_in_new_directories() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spec = |name: &str, at: &tempfile::TempDir| format!("{name}={}", at.path().display());
    let mut plan = plan(&[&spec("one", &one), &spec("two", &two)]);
    plan.set_up = Some("echo prepared > input".to_owned());
    let (mut order, mut seen) = (Vec::new(), Vec::new());
    let mut trace = |directory: &Path| {
        let names: Vec<_> =
            std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["input"]);
        std::fs::write(directory.join("made"), "").unwrap();
        assert!(!seen.contains(&directory.to_owned()), "a new one each time");
        seen.push(directory.to_owned());
        order.push(if directory.starts_with(one.path()) { 1 } else { 2 });
        Ok(Run {
            report: report(if directory.starts_with(one.path()) { 1_000 } else { 3_000 }),
            end: Some(End::Exited(0)),
        })
    };
    let matrix = run(&plan, &mut trace, &mut |_| {}).unwrap();
    assert_eq!(order, [1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2]);
    assert_eq!(matrix.comparisons.len(), 1);
    assert_eq!(matrix.comparisons[0].calls[0].cost, crate::diff::Verdict::Differs);
    assert_eq!(std::fs::read_dir(one.path()).unwrap().count(), 0, "nothing is left");
    let first = &matrix.platforms[0];
    assert_eq!((first.threads.value, first.calls.len()), (1.0, 1));
    assert_eq!((first.calls[0].name.as_str(), first.calls[0].calls_percent), ("read", 100.0));
    let text = terminal(&matrix, &Look::default());
    assert!(text.contains("two against one") && text.contains("differs"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let again: Matrix = serde_json::from_str(&crate::report::pretty(&matrix)).unwrap();
    assert_eq!(again, matrix);
    let page = crate::report::html(crate::report::Page::Matrix(&matrix));
    assert!(page.contains("data-kind=\"matrix\""));
}

#[test]
fn a_set_up_that_fails_is_named_with_its_last_words() {
    let place = tempfile::tempdir().unwrap();
    let mut plan = plan(&[&format!("here={}", place.path().display())]);
    plan.set_up = Some("echo the reason >&2; exit 3".to_owned());
    let error =
        run(&plan, &mut |_| unreachable!("not measured"), &mut |_| {}).unwrap_err().to_string();
    assert!(
        error.contains("here") && error.contains("the reason") && error.contains('3'),
        "{error}"
    );
}

#[test]
fn runs_that_fail_are_counted_and_told() {
    let place = tempfile::tempdir().unwrap();
    let plan = plan(&[&format!("here={}", place.path().display())]);
    let mut trace = |_: &Path| Ok(Run { report: report(10), end: Some(End::Exited(2)) });
    let matrix = run(&plan, &mut trace, &mut |_| {}).unwrap();
    assert!(
        matrix.notes.iter().any(|note| note.contains("here") && note.contains("status 2")),
        "{:?}",
        matrix.notes
    );
}

/// File systems that a matrix creates for its run are removed afterwards.
///
/// Guarantee: trace/matrix
#[test]
fn made_file_systems_are_removed() {
    let plan =
        Plan { repetitions: 1, warm_ups: 0, ..plan(&["ext2=loop", "ext4=loop", "tmpfs=loop"]) };
    let plan = Plan { image_bytes: 32 << 20, ..plan };
    let done = std::thread::spawn(move || {
        let mut directories = Vec::new();
        let mut trace = |directory: &Path| {
            std::fs::write(directory.join("file"), [1; 4096]).unwrap();
            directories.push(directory.to_owned());
            Ok(Run { report: report(10), end: Some(End::Exited(0)) })
        };
        let done = run(&plan, &mut trace, &mut |_| {});
        (done, directories)
    });
    let (done, directories) = done.join().unwrap();
    if !rustix::process::geteuid().is_root() {
        assert!(done.unwrap_err().to_string().contains("ext2=DIRECTORY"));
        return;
    }
    let matrix = done.unwrap();
    let kinds: Vec<_> = matrix.platforms.iter().map(|platform| platform.kind.as_str()).collect();
    assert_eq!(kinds, ["ext2", "ext4", "tmpfs"]);
    assert_eq!(directories.len(), 3);
    assert!(directories.iter().all(|directory| !directory.exists()));
    assert!(matrix.notes.iter().any(|note| note.contains("Fewer than 6")));
}
