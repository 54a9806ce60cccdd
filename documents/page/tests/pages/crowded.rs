//! Imports of many pages at once, and of more than there is memory for at once.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Place;
use crate::importing::{counts, ended, importing, pages};

/// Guarantee: pages/import-kills
/// Guarantee: pages/memory
#[test]
fn each_of_many_pages_at_once_has_a_stack_of_its_own() {
    let place = Place::new();
    let site = pages(&place, 40);
    // More than there is room for with the memory that one page may take.
    let (report, said, _) = ended(importing(&place, &site).args(["--jobs", "24"]));
    assert_eq!((counts(&report), &report["waited"]), ([40, 40, 0, 0], &Value::from(0)), "{said}");
}

/// A page that does not fit in memory next to others is made alone.
///
/// Guarantee: pages/import-kills
/// Guarantee: pages/memory
#[test]
fn large_page_is_made_alone() {
    let place = Place::new();
    let site = pages(&place, 24);
    for round in 0..4 {
        // Of eight stacks there is room for two or three.
        let mut shell = Command::new("sh");
        let program = place.program();
        shell.args(["-c", "ulimit -d 900000 && exec \"$0\" \"$@\""]).arg(program.get_program());
        shell.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let viewport = format!("200x{}", 300 + round);
        shell.arg("import").arg(&site).args([
            "--timeout",
            "300",
            "--jobs",
            "8",
            "--viewport",
            &viewport,
        ]);
        let (report, said, _) = ended(shell.stdin(Stdio::null()));
        assert_eq!(counts(&report), [24, 24, 0, 0], "{viewport}: {said}");
    }
}
