//! A name for the source tree as it is, by which a run knows the steps of another source.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use xxhash_rust::xxh3::Xxh3;

/// The source's name where there is no git, or no commit.
pub(crate) const UNKNOWN: &str = "no commit";

/// The commit, and a sum of what differs from it: changes, and files that git neither knows nor
/// ignores, but for those below `out`, which a run itself writes. [`UNKNOWN`] without git.
pub(crate) fn fingerprint(source: &Path, out: &Path) -> String {
    try_fingerprint(source, out).unwrap_or_else(|| UNKNOWN.to_owned())
}

/// Whether a source differs from its commit.
pub(crate) fn is_changed(name: &str) -> bool {
    name.contains('+')
}

/// A source's name for a person, who need not know what `+` means in it.
pub(crate) fn described(name: &str) -> String {
    match is_changed(name) {
        true => format!("{name} (with uncommitted changes)"),
        false => name.to_owned(),
    }
}

fn try_fingerprint(source: &Path, out: &Path) -> Option<String> {
    let git = |arguments: &[&str]| -> Option<Vec<u8>> {
        let output = Command::new("git").arg("-C").arg(source).args(arguments).output().ok()?;
        output.status.success().then_some(output.stdout)
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let commit = String::from_utf8_lossy(&commit).trim().to_owned();
    let changes = git(&["diff", "HEAD", "--no-ext-diff", "--full-index"])?;
    let unknown = git(&["ls-files", "--others", "--exclude-standard", "-z"])?;
    let files = unknown.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let files: Vec<&OsStr> =
        files.map(OsStr::from_bytes).filter(|name| !source.join(name).starts_with(out)).collect();
    if changes.is_empty() && files.is_empty() {
        return Some(commit);
    }
    let mut sum = Xxh3::new();
    sum.update(&changes);
    for name in files {
        sum.update(name.as_bytes());
        // What is no file that can be read counts by its name.
        sum.update(&std::fs::read(source.join(name)).unwrap_or_default());
    }
    Some(format!("{commit}+{:08x}", sum.digest() as u32))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn git(folder: &Path, arguments: &[&str]) {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let git = Command::new("git").arg("-C").arg(folder).args(identity).args(arguments).output();
        assert!(git.unwrap().status.success(), "{arguments:?}");
    }

    /// A change, a new file and a change of a new file are another source; the report in the tree
    /// and what git ignores are not.
    #[test]
    fn each_difference_is_another_source() {
        let _alone = crate::account::tests::alone();
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().canonicalize().unwrap();
        let out = source.join("report");
        let name = || fingerprint(&source, &out);
        assert_eq!(name(), UNKNOWN);
        git(&source, &["init", "--quiet"]);
        assert_eq!(name(), UNKNOWN);
        fs::write(source.join("a"), "1").unwrap();
        fs::write(source.join(".gitignore"), "/target\n").unwrap();
        git(&source, &["add", "."]);
        git(&source, &["commit", "--quiet", "-m", "a"]);
        let mut names = vec![name()];
        fs::write(source.join("a"), "2").unwrap();
        names.push(name());
        fs::write(source.join("b"), "1").unwrap();
        names.push(name());
        fs::write(source.join("b"), "2").unwrap();
        names.push(name());
        for ignored in ["target", "report"] {
            fs::create_dir(source.join(ignored)).unwrap();
            fs::write(source.join(ignored).join("c"), "1").unwrap();
            assert_eq!(&name(), names.last().unwrap(), "{ignored}");
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
    }
}
