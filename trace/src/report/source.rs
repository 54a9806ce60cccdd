//! The description of a trace, in the words of the report.

use super::document::Source;
use crate::{Cache, Ending, Recording, TraceDescription};

impl From<&Recording> for Source {
    /// Of a recording that was read to its end.
    fn from(recording: &Recording) -> Source {
        let ending = recording.ending();
        Source {
            events_missing: ending.map_or(0, |ending| ending.missing),
            incomplete: ending.map_or_else(Vec::new, Ending::notes),
            ..recording.about().into()
        }
    }
}

impl From<&TraceDescription> for Source {
    fn from(about: &TraceDescription) -> Source {
        let file_system =
            |on: &crate::FileSystem| format!("{} {} {}", on.path.display(), on.kind, on.source);
        let mut notes = about.notes.clone();
        if let Some(group) = &about.cgroup {
            notes.insert(0, format!("traced: the control group {}", group.display()));
        }
        Source {
            backend: about.backend.name().to_owned(),
            version: about.version.clone(),
            command: about.command.clone(),
            attached: about.attached.clone(),
            began_unix_ns: about.began_unix_ns,
            lasted_ns: about.lasted_ns,
            cost_per_call_ns: about.cost.map(|cost| cost.slowdown_ns),
            events_lost: about.lost,
            events_missing: 0,
            incomplete: Vec::new(),
            clock: about.clock.clone(),
            kernel: about.kernel.clone(),
            cpus: about.cpus,
            pinned: about.pinned,
            file_systems: about.file_systems.iter().map(file_system).collect(),
            cache: match about.cache {
                Cache::AsFound => "as found",
                Cache::Dropped => "dropped",
                Cache::Warm => "warm",
            }
            .to_owned(),
            notes,
        }
    }
}
