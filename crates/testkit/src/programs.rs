//! Where the built programs are: `holdfast`, and the applets that `cargo xtask applets` made.

use std::io;
use std::path::{Path, PathBuf};

/// The built programs.
#[derive(Debug, Clone)]
pub struct Programs {
    holdfast: PathBuf,
    applets: PathBuf,
}

impl Programs {
    /// The programs that `HOLDFAST_PROGRAM` and `HOLDFAST_APPLETS` name, else those in the target directory
    /// from which this test runs.
    ///
    /// # Errors
    /// When a program is missing; the text says what builds it.
    pub fn find() -> io::Result<Programs> {
        let named = |variable| std::env::var_os(variable).map(PathBuf::from);
        // A test is TARGET/PROFILE/deps/NAME-HASH.
        let this = std::env::current_exe()?;
        let profile = this.parent().and_then(Path::parent).unwrap_or(Path::new("."));
        let target = profile.parent().unwrap_or(Path::new("."));
        let holdfast = named("HOLDFAST_PROGRAM").unwrap_or_else(|| profile.join("holdfast"));
        let applets = named("HOLDFAST_APPLETS").unwrap_or_else(|| target.join("applets"));
        require(&holdfast, "run ./test, or `cargo build` first")?;
        Ok(Programs { holdfast, applets })
    }

    /// The `holdfast` command.
    #[must_use]
    pub fn holdfast(&self) -> &Path {
        &self.holdfast
    }

    /// The applet of this name.
    ///
    /// # Errors
    /// When it was not built.
    pub fn applet(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.applets.join(format!("{name}.wasm"));
        require(&path, "run ./test, or `cargo xtask applets` first")?;
        Ok(path)
    }
    /// The native applet of this name, linked dynamically.
    ///
    /// # Errors
    /// When it was not built.
    pub fn native_applet(&self, name: &str) -> io::Result<PathBuf> {
        self.native("native", name)
    }

    /// The same, linked statically.
    ///
    /// # Errors
    /// When it was not built.
    pub fn static_applet(&self, name: &str) -> io::Result<PathBuf> {
        self.native("static", name)
    }

    fn native(&self, folder: &str, name: &str) -> io::Result<PathBuf> {
        let path = self.applets.join(folder).join(name);
        require(&path, "run ./test, or `cargo xtask applets` first")?;
        Ok(path)
    }
}

fn require(path: &Path, remedy: &str) -> io::Result<()> {
    if path.is_file() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is not built; {remedy}", path.display())))
}
