//! The paths of the built programs: `holdfast`, and the applets that `cargo xtask applets` made.

use std::io;
use std::path::{Path, PathBuf};

/// The built programs.
#[derive(Debug, Clone)]
pub struct Programs {
    holdfast: PathBuf,
    applets: PathBuf,
}

/// Where programs are, if they are built.
struct Places {
    holdfast: PathBuf,
    applets: PathBuf,
}

impl Places {
    fn find() -> io::Result<Places> {
        let named = |variable| std::env::var_os(variable).map(PathBuf::from);
        let profile = profile_directory()?;
        let target = target_directory()?;
        Ok(Places {
            holdfast: named("HOLDFAST_PROGRAM").unwrap_or_else(|| profile.join("holdfast")),
            applets: named("HOLDFAST_APPLETS").unwrap_or_else(|| target.join("applets")),
        })
    }
}

impl Programs {
    /// The programs that `HOLDFAST_PROGRAM` and `HOLDFAST_APPLETS` name, else those in the target
    /// directory from which this test runs.
    ///
    /// # Errors
    /// When a program is missing; the text says what builds it.
    pub fn find() -> io::Result<Programs> {
        let Places { holdfast, applets } = Places::find()?;
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
        built(&self.applets, &format!("{name}.wasm"))
    }

    /// The native program of an applet, linked dynamically.
    ///
    /// # Errors
    /// When it was not built.
    pub fn native_applet(&self, name: &str) -> io::Result<PathBuf> {
        built(&self.applets, name)
    }

    /// The same, linked statically.
    ///
    /// # Errors
    /// When it was not built; only applets in plain C are built so.
    pub fn static_applet(&self, name: &str) -> io::Result<PathBuf> {
        built(&self.applets, &format!("{name}-static"))
    }
}

fn built(applets: &Path, name: &str) -> io::Result<PathBuf> {
    let path = applets.join(name);
    require(&path, "run ./test, or `cargo xtask applets` first")?;
    Ok(path)
}

/// Where cargo builds, of which this test is a part: TARGET/PROFILE/deps/NAME-HASH.
///
/// # Errors
/// When the system does not say where this program is.
pub fn target_directory() -> io::Result<PathBuf> {
    Ok(profile_directory()?.parent().unwrap_or(Path::new(".")).to_owned())
}

fn profile_directory() -> io::Result<PathBuf> {
    let this = std::env::current_exe()?;
    Ok(this.parent().and_then(Path::parent).unwrap_or(Path::new(".")).to_owned())
}

/// The native program of an applet, for the jail.
///
/// # Errors
/// When it was not built, or what it takes is not installed.
pub fn native_applet(name: &str) -> io::Result<PathBuf> {
    built(&Places::find()?.applets, name)
}

/// Any file that `cargo xtask applets` made: `echo.wasm`, `libmd5.so`.
///
/// # Errors
/// As [`native_applet`].
pub fn applet_file(name: &str) -> io::Result<PathBuf> {
    built(&Places::find()?.applets, name)
}

fn require(path: &Path, remedy: &str) -> io::Result<()> {
    if path.is_file() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!("{} is not built; {remedy}", path.display()),
    ))
}
