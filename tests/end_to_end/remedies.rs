//! Every remedy of an error is a command that exists.

use std::fmt;

use holdfast_types::{AppletLimit, Remedy};

use crate::{scratch, tell};

/// Shows a remedy as the command line does.
struct Shown(Remedy<'static>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        holdfast_remedies::command(&self.0, f)
    }
}

const HEAP: &str = "words";

/// One of each.
fn all() -> Vec<Remedy<'static>> {
    let mut all = vec![
        Remedy::ListHeaps,
        Remedy::ListKeys,
        Remedy::ListGrants { heap: HEAP },
        Remedy::Grant { heap: None },
        Remedy::GrantWriting { heap: None },
        Remedy::GrantQuota { heap: HEAP },
        Remedy::RevokeAll { heap: HEAP },
        Remedy::RaiseLimit { heap: None },
        Remedy::LowerLimit { heap: HEAP },
        Remedy::Remove { heap: None },
        Remedy::RemoveWithCompartments { heap: HEAP },
        Remedy::RemoveImage { heap: None },
        Remedy::RemoveSnapshot { heap: HEAP, tag: "monday" },
        Remedy::TakeSnapshot { heap: HEAP },
        Remedy::Copy { heap: None },
        Remedy::Checkpoint { heap: HEAP },
        Remedy::Check { heap: None },
        Remedy::Repair { heap: HEAP },
        Remedy::Salvage { file: &"words.image" },
        Remedy::Export,
        Remedy::Import { file: &"words.holdfast" },
        Remedy::PutOnDisk,
        Remedy::LeavePool { pool: &"/dev/shm/old" },
        Remedy::AdoptPool,
        Remedy::HandOver { heap: HEAP },
        Remedy::AddPublisher { publisher: &"Acme" },
        Remedy::RemovePublisher { name: "Acme" },
        Remedy::OpenCompartment,
        Remedy::ExamineMachine,
    ];
    let limits = [
        AppletLimit::CallTime,
        AppletLimit::CompileMemory,
        AppletLimit::CompileTime,
        AppletLimit::Fuel,
        AppletLimit::Memory,
        AppletLimit::RunTime,
        AppletLimit::StartTime,
        AppletLimit::Text,
    ];
    all.extend(limits.map(Remedy::RaiseAppletLimit));
    all
}

/// What stands in backquotes, or in the parentheses of an option, as arguments after `holdfast`.
fn commands(shown: &str) -> Vec<Vec<&str>> {
    if let Some(option) = shown.strip_prefix(" (--").and_then(|rest| rest.strip_suffix(')')) {
        assert!(!option.contains(' '), "{shown}");
        let value = match option {
            "timeout" => "1s",
            "fuel" => "1000",
            _ => "1GiB",
        };
        let option = &shown[2..shown.len() - 1];
        return ["run", "call"].map(|command| vec![command, "APPLET", option, value]).into();
    }
    let quoted =
        shown.split('`').skip(1).step_by(2).filter_map(|text| text.split_once("holdfast "));
    quoted.map(|(_, rest)| rest.split(' ').collect()).collect()
}

/// Every remedy is a command, or an option, that the program takes.
///
/// Guarantee: heap/messages
#[test]
fn remedies_are_commands_that_exist() {
    let scratch = scratch();
    for remedy in all() {
        let shown = Shown(remedy).to_string();
        let commands = commands(&shown);
        assert!(!commands.is_empty(), "{remedy}: {shown:?} names no command");
        for arguments in commands {
            let arguments = arguments.iter().map(|word| match *word {
                "SIZE" => "1GiB",
                word => word,
            });
            // What stands before `--help` is parsed first, so a word that is not taken is refused.
            let told = tell(scratch.holdfast().args(arguments.clone()).arg("--help"));
            assert_eq!(told.status, 0, "{shown}: {}", told.err);
            // And nothing is missing: whatever comes of it in an empty home, it is understood.
            let told = tell(scratch.holdfast().args(arguments));
            assert!(!told.err.contains("try '--help'"), "{shown}: {}", told.err);
        }
    }
}
