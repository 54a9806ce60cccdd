//! Rules about files as such: size, kind, mode.

use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt;

use super::{File, Findings};

/// Larger things come from a package or are made by a script.
const FILE_BYTES_MAX: usize = 300_000;
/// The measurements that documents quote, by which they are tested, and the report of them; no
/// script makes them again.
const MEASURED: [&str; 4] =
    ["docs/results.json", "docs/results.md", "docs/results-xeon.json", "docs/results-xeon.md"];
const MEASURED_BYTES_MAX: usize = 1_000_000;

pub(crate) fn check(file: &File, findings: &mut Findings) {
    let is_measured = MEASURED.contains(&file.path.as_str());
    let max = if is_measured { MEASURED_BYTES_MAX } else { FILE_BYTES_MAX };
    if file.bytes.len() > max {
        let what = format!(
            "has {} bytes, more than {max}; get it from a package, or make it by a script",
            file.bytes.len()
        );
        findings.in_file(&file.path, &what);
    }
    if file.bytes.contains(&0) || std::str::from_utf8(&file.bytes).is_err() {
        findings.in_file(&file.path, "is binary; keep what it is made from instead");
    }
    let is_script = file.bytes.starts_with(b"#!") && !file.bytes.starts_with(b"#![");
    if is_script && !file.executable {
        findings.in_file(&file.path, "is a script that cannot be started; chmod +x it");
    }
}

pub(crate) fn is_executable(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & 0o111 == 0o111
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings_about;

    /// The tidy check finds a script that is not executable and a binary file.
    #[test]
    fn unrunnable_script_and_binary_file_are_found() {
        assert_eq!(findings_about("run", "#!/bin/sh\n", check).len(), 1);
        assert_eq!(findings_about("lib.rs", "#![no_std]\n", check), [""; 0]);
        assert_eq!(findings_about("image", "a\0b", check).len(), 1);
        let long = "a".repeat(FILE_BYTES_MAX + 1);
        assert_eq!(findings_about("long", &long, check).len(), 1);
        for measured in MEASURED {
            assert_eq!(findings_about(measured, &long, check), [""; 0]);
            assert_eq!(findings_about(measured, &long.repeat(4), check).len(), 1);
        }
    }
}
