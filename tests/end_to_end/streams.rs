//! Standard output that takes nothing: no command passes its results off as printed. Standard error that takes nothing: no command
//! gives up what it was to do.

use std::fs::OpenOptions;
use std::process::Stdio;

use crate::guestbook::with_two_entries;
use crate::tell;

/// Guarantee: heap/messages
#[test]
fn a_standard_output_that_is_full_is_a_failure_of_every_command() {
    let scratch = with_two_entries();
    let commands: [&[&str]; 6] = [
        &["--help"],
        &["--version"],
        &["completions", "bash"],
        &["doctor"],
        &["heap", "ls"],
        &["heap", "export", "book"],
    ];
    for arguments in commands {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let told = tell(scratch.holdfast().args(arguments).stdout(full));
        assert_eq!(told.status, 7, "{arguments:?}: {}", told.err);
        assert!(told.err.contains("No space left on device"), "{arguments:?}: {}", told.err);
    }
}

/// Guarantee: keeper/clients
#[test]
fn a_standard_error_that_is_full_or_closed_changes_nothing_of_what_a_command_does() {
    let scratch = with_two_entries();
    let (full_copy, closed_copy) = (scratch.home().join("one"), scratch.home().join("two"));
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let nobody = || Stdio::from(std::io::pipe().unwrap().1);
    let commands: [(&[&str], i32); 2] = [(&["heap", "show", "none"], 3), (&["heap", "rm", "none"], 3)];
    for (copy, there) in [(full_copy, &full as &dyn Fn() -> Stdio), (closed_copy, &nobody)] {
        let export = ["heap", "export", "book", copy.to_str().unwrap()];
        for (arguments, status) in commands.into_iter().chain([(&export[..], 0)]) {
            let told = tell(scratch.holdfast().args(arguments).stderr(there()));
            assert_eq!(told.status, status, "{arguments:?}");
        }
        assert!(copy.exists());
    }
}
