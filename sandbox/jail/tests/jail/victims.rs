//! Victims: `tests/victims/native.c`, compiled once, as a static and as a dynamic program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use holdfast_jail::{End, Jail, JailStdio, Jailed};

/// Longer than anything takes that is not stuck.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The dynamic victim.
pub(crate) fn dynamic() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| compile("victim", &[]))
}

/// The static victim: quicker to start.
pub(crate) fn fixed() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| compile("victim-static", &["-static"]))
}

fn compile(name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/victims/native.c");
    let directory = std::env::temp_dir()
        .join(format!("holdfast-victims-{}", rustix::process::getuid().as_raw()));
    std::fs::create_dir_all(&directory).unwrap();
    let program = directory.join(name);
    let modified = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    if modified(&program) > modified(&source) {
        return program;
    }
    // Under a name of its own first: other test processes may be at the same.
    let fresh = directory.join(format!("{name}-{}", std::process::id()));
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
    let status =
        compiler.args(["-O1", "-pthread", "-o"]).arg(&fresh).args(flags).arg(source).status();
    assert!(status.expect("a C compiler").success());
    std::fs::rename(&fresh, &program).unwrap();
    program
}

/// A jail for the static victim, which does this; its output is captured.
pub(crate) fn jail(words: &[&str]) -> Jail {
    Jail::new(fixed()).args(words.iter().copied()).stdio(JailStdio::Capture { limit_bytes: 4096 })
}

/// Runs it to its end.
pub(crate) fn end(jail: Jail) -> End {
    finish(&jail.spawn().unwrap())
}

/// Waits for its end.
pub(crate) fn finish(jailed: &Jailed) -> End {
    jailed.wait(Some(LONG)).unwrap_or_else(|| panic!("{jailed:?} did not end"))
}

/// How a refusal ends the victim.
pub(crate) fn refused(errno: i32) -> End {
    End::Exited { status: 100 + errno }
}

/// What it did worked.
pub(crate) const WORKED: End = End::Exited { status: 0 };

/// A process of this user that has nothing to do with any jail; ended with this value.
pub(crate) struct Bystander(Child);

impl Bystander {
    pub(crate) fn start() -> Bystander {
        Bystander(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
