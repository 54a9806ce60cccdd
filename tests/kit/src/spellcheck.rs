//! The main job as commands: the spell checker over real dictionaries, with its tables in a heap
//! or, the old way, built anew from the files on every start.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scratch::Scratch;

/// How large the heap of the main job may get.
const HEAP_SIZE: &str = "256MiB";

/// The directories with word lists; the applet reads what it knows in them.
#[derive(Debug, Clone)]
pub struct Dictionaries(Vec<PathBuf>);

impl Dictionaries {
    /// The packages wordnet-base and wamerican-huge of Debian and Ubuntu.
    ///
    /// # Errors
    /// When one is not installed.
    pub fn installed() -> io::Result<Dictionaries> {
        for (file, package) in [
            ("/usr/share/wordnet/index.noun", "wordnet-base"),
            ("/usr/share/dict/american-english-huge", "wamerican-huge"),
        ] {
            if !Path::new(file).is_file() {
                let text = format!(
                    "{file} is missing; ./test installs it, or `apt-get install {package}`"
                );
                return Err(io::Error::new(io::ErrorKind::NotFound, text));
            }
        }
        Ok(Dictionaries(vec!["/usr/share/wordnet".into(), "/usr/share/dict".into()]))
    }
}

/// The main job in a scratch home, on one text.
#[derive(Debug)]
pub struct Spellcheck<'a> {
    scratch: &'a Scratch,
    applet: PathBuf,
    dictionaries: Dictionaries,
    text: PathBuf,
}

impl<'a> Spellcheck<'a> {
    /// The job on `text`.
    ///
    /// # Errors
    /// When the applet is not built or a dictionary is not installed.
    pub fn new(scratch: &'a Scratch, text: &Path) -> io::Result<Spellcheck<'a>> {
        Ok(Spellcheck {
            scratch,
            applet: scratch.programs().applet("spellcheck")?,
            dictionaries: Dictionaries::installed()?,
            text: text.to_owned(),
        })
    }

    /// With the tables in this heap, which are built as far as they are not there yet. Options of
    /// the applet come before the text.
    #[must_use]
    pub fn building(&self, heap: &str, options: &[&str]) -> Command {
        let mut command = self.run();
        command.args(["--heap", heap, "--heap-size", HEAP_SIZE]);
        self.grant_dictionaries(&mut command);
        command.arg("--").args(self.dictionary_options()).args(options).arg(&self.text);
        command
    }

    /// With the finished tables in this heap: no dictionary is granted or named.
    #[must_use]
    pub fn warm(&self, heap: &str, options: &[&str]) -> Command {
        let mut command = self.run();
        command.args(["--heap", heap, "--"]).args(options).arg(&self.text);
        command
    }

    /// The old way: without a heap, the dictionaries parsed on every start.
    #[must_use]
    pub fn old_way(&self, options: &[&str]) -> Command {
        let mut command = self.run();
        self.grant_dictionaries(&mut command);
        command
            .args(["--", "--volatile"])
            .args(self.dictionary_options())
            .args(options)
            .arg(&self.text);
        command
    }

    fn run(&self) -> Command {
        let mut command = self.scratch.holdfast();
        command.arg("run").arg(&self.applet);
        let folder = self.text.parent().unwrap_or(Path::new("/"));
        command.arg("--dir").arg(format!("{}:ro", folder.display()));
        command
    }

    fn grant_dictionaries(&self, command: &mut Command) {
        for directory in &self.dictionaries.0 {
            command.arg("--dir").arg(format!("{}:ro", directory.display()));
        }
    }

    fn dictionary_options(&self) -> Vec<PathBuf> {
        self.dictionaries
            .0
            .iter()
            .flat_map(|directory| [PathBuf::from("--dict"), directory.clone()])
            .collect()
    }
}
