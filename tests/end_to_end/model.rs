//! `holdfast model`: what a person and a program get to see, and each way in which it can be
//! wrongly started. Times are those of a busy machine; what they are is not tested.

use std::fs;
use std::process::Command;

use holdfast_testkit::{Scratch, applet_file};
use serde_json::Value;

use crate::{Finished, scratch, succeed, tell, victim};

fn model(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = scratch.holdfast();
    command.arg("model").args(arguments);
    command
}

fn applet(name: &str) -> String {
    applet_file(name).unwrap().to_str().unwrap().to_owned()
}

fn python_is_there() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        println!("not run: the model's measurements, since there is no python3");
    }
    found
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The JSON of a model has fixed fields, and its numbers are consistent.
///
/// Guarantee: project/model
#[test]
fn model_json_has_stable_and_consistent_fields() {
    if !python_is_there() {
        return;
    }
    let scratch = scratch();
    let names = ["md5", "md5.wasm", "eviction", "logicaldisk"].map(applet);
    let [md5, wasm, eviction, disk] = names.each_ref().map(String::as_str);
    let plots = ["pays.svg", "sizes.png"].map(|name| scratch.files().join(name));
    let [pays, sizes] = plots.each_ref().map(|path| path.to_str().unwrap());
    let out = succeed(&mut model(
        &scratch,
        &[
            md5,
            "--wasm",
            wasm,
            "--eviction",
            eviction,
            "--logical-disk",
            disk,
            "--runs",
            "3",
            "--json",
            "--plot",
            pays,
            "--plot-sizes",
            sizes,
        ],
    ));
    let found: Value = serde_json::from_str(&out).unwrap();
    let top = [
        "break_even",
        "break_evens",
        "calls",
        "format",
        "md5",
        "policies",
        "python",
        "runs",
        "speeds",
    ];
    assert_eq!(keys(&found), top);
    assert_eq!((&found["format"], &found["runs"]), (&1.into(), &3.into()));

    let calls = found["calls"].as_array().unwrap();
    let named: Vec<_> = calls.iter().map(|call| call["name"].as_str().unwrap()).collect();
    assert_eq!(named, ["native", "native, after a pause", "WebAssembly"]);
    for call in calls {
        assert_eq!(keys(call), ["mean_us", "median_us", "name", "runs", "standard_deviation_us"]);
        assert!(call["median_us"].as_f64().unwrap() > 0.0, "{call}");
    }
    // Compiled code beside an interpreter.
    for speed in found["speeds"].as_array().unwrap() {
        assert_eq!(keys(speed), ["name", "speedup", "us_per_byte"]);
        assert!(speed["speedup"].as_f64().unwrap() > 5.0, "{speed}");
    }
    // The model's own equation, with what was measured.
    let (at, call_us) = (&found["break_even"], calls[0]["median_us"].as_f64().unwrap());
    let time = |key: &str| at[key].as_f64().unwrap();
    assert!(
        (call_us + time("applet_us") - time("interface_us")).abs() < 1e-6 * time("interface_us"),
        "{at}"
    );
    assert_eq!(found["break_evens"].as_array().unwrap().len(), 3);

    let points = found["md5"]["deviations"].as_array().unwrap();
    let sizes_bytes: Vec<_> = points.iter().map(|point| point["bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes_bytes, [64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576]);
    for point in points {
        assert_eq!((&point["applet"]["runs"], &point["interface"]["runs"]), (&3.into(), &3.into()));
        assert!(point["applet_off"].is_f64() && point["interface_off"].is_f64(), "{point}");
    }
    let policies = found["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 7);
    for policy in policies {
        assert_eq!(keys(policy), ["applet", "interface", "items", "name", "pays"]);
    }
    assert!(fs::read(pays).unwrap().starts_with(b"<svg"));
    assert!(fs::read(sizes).unwrap().starts_with(b"\x89PNG"));
}

/// The text of a model gives the size from which a call pays and the error of the model.
#[test]
fn model_text_gives_break_even_and_its_error() {
    if !python_is_there() {
        return;
    }
    let scratch = scratch();
    let out = succeed(&mut model(&scratch, &[&applet("md5"), "--runs", "3"]));
    for words in [
        "A call that computes nothing",
        "So a call pays for",
        "times as fast",
        "The model is off by",
    ] {
        assert!(out.contains(words), "no {words:?} in: {out}");
    }
    assert!(!out.contains("Short decisions"), "{out}");
}

/// Guarantee: project/model
#[test]
fn a_model_that_is_wrongly_started_says_what_to_do() {
    let scratch = scratch();
    let fails = |command: &mut Command, status: i32, words: &[&str]| {
        let Finished { status: found, out, err } = tell(command);
        assert_eq!(found, status, "{out}{err}");
        for word in words {
            assert!(err.contains(word), "no {word:?} in: {err}");
        }
    };
    let md5 = applet("md5");
    fails(&mut model(&scratch, &["nowhere/md5"]), 127, &["nowhere/md5", "cargo xtask applets md5"]);
    fails(
        &mut model(&scratch, &[&applet("eviction")]),
        2,
        &["no function echo", "cargo xtask applets md5"],
    );
    fails(&mut model(&scratch, &[&md5, "--eviction", &md5]), 2, &["no function hot"]);
    fails(&mut model(&scratch, &[&md5, "--plot", "pays.pdf"]), 2, &[".svg", ".png"]);
    fails(
        &mut model(&scratch, &[&md5, "--plot-sizes", "nowhere/a.svg"]),
        2,
        &["no directory nowhere", "make it"],
    );
    let victim = victim("loops_for_ever");
    fails(
        &mut model(&scratch, &[&md5, "--wasm", victim.to_str().unwrap(), "--runs", "0"]),
        2,
        &["--runs"],
    );
    // An empty directory has no python3.
    let empty = scratch.files();
    fails(
        model(&scratch, &[&md5, "--runs", "1"]).env("PATH", &empty),
        125,
        &["python3", "apt-get install python3", "PATH"],
    );
    // One that is none.
    use std::os::unix::fs::PermissionsExt;
    let fake = scratch.write("python3", "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    fails(
        model(&scratch, &[&md5, "--runs", "1"]).env("PATH", &empty),
        125,
        &["ended before it answered"],
    );
}
