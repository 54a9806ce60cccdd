//! Standard output that takes nothing: no command passes its results off as printed.

use std::fs::OpenOptions;

use crate::guestbook::with_two_entries;
use crate::tell;

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
