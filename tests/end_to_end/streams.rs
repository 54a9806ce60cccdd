//! Standard output that takes nothing: no command passes its results off as printed. Standard error
//! that takes nothing: no command gives up what it was to do.

use std::fs::OpenOptions;
use std::process::Stdio;

use crate::guestbook::with_two_entries;
use crate::tell;

/// A full standard output is a failure of every command.
///
/// Guarantee: heap/messages
#[test]
fn full_standard_output_fails_every_command() {
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

/// A full or closed standard error does not change what a command does.
///
/// Guarantee: keeper/clients
#[test]
fn full_standard_error_changes_no_command() {
    let scratch = with_two_entries();
    let (full_copy, closed_copy) = (scratch.home().join("one"), scratch.home().join("two"));
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let nobody = || Stdio::from(std::io::pipe().unwrap().1);
    let commands: [(&[&str], i32); 2] =
        [(&["heap", "show", "none"], 3), (&["heap", "rm", "none"], 3)];
    for (copy, there) in [(full_copy, &full as &dyn Fn() -> Stdio), (closed_copy, &nobody)] {
        let export = ["heap", "export", "book", copy.to_str().unwrap()];
        for (arguments, status) in commands.into_iter().chain([(&export[..], 0)]) {
            let told = tell(scratch.holdfast().args(arguments).stderr(there()));
            assert_eq!(told.status, status, "{arguments:?}");
        }
        assert!(copy.exists());
    }
}
