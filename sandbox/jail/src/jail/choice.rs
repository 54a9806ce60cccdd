//! Chooses the layers of a jail, those that were asked for and that this machine has; and the user
//! of its program.
//!
//! Invariant: a layer that was asked for and is not chosen is an error, or in `weaker`.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use holdfast_types::PathAccess;
use rustix::thread::CapabilitySet;

use crate::error::JailError;
use crate::jail::{Jail, PathGrant};
use crate::layers::{Layer, Layers, Weakness};
use crate::machine::{Machine, NOBODY, Refusal};
use crate::program::ElfProgram;

/// The layers that this jail is going to have.
pub(crate) struct Chosen {
    pub(crate) layers: Layers,
    pub(crate) weaker: Vec<Weakness>,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) changes_user: bool,
}

/// Decides which layers there will be.
pub(crate) fn choose(
    jail: &Jail,
    machine: &Machine,
    program: &ElfProgram,
) -> Result<Chosen, JailError> {
    let mut chosen = Chosen {
        layers: jail.layers,
        weaker: Vec::new(),
        user: machine.user,
        group: machine.group,
        changes_user: false,
    };
    for layer in Layer::ALL.into_iter().filter(|layer| jail.layers.has(*layer)) {
        let masked = jail.masked.contains(&layer).then(|| ("masked".to_owned(), libc::ENOSYS));
        let weakness = match masked.map_or_else(|| offered(layer, jail, machine, program), Err) {
            Err((step, errno)) => Weakness::new(layer, &step, errno),
            Ok(()) if layer == Layer::Landlock => {
                let abi = machine.landlock.as_ref().copied().unwrap_or_default();
                let Some(weakness) = Weakness::of_old_landlock(abi) else { continue };
                weakness
            }
            Ok(()) => continue,
        };
        if jail.strict {
            return Err(JailError::Weaker(weakness));
        }
        if !weakness.is_partial {
            chosen.layers = chosen.layers.without(layer);
        }
        chosen.weaker.push(weakness);
    }
    if !jail.paths.is_empty() {
        let has_root = chosen.layers.has(Layer::Mounts);
        let weakness = chosen.weaker.iter().find(|weak| weak.layer == Layer::Mounts).cloned();
        let weakness =
            weakness.unwrap_or_else(|| Weakness::new(Layer::Mounts, "turned off", libc::EINVAL));
        if !has_root && !chosen.layers.has(Layer::Landlock) {
            return Err(JailError::Unconfined(weakness));
        }
        let elsewhere = jail.paths.iter().find(|grant| grant.host != grant.guest);
        if let (false, Some(grant)) = (has_root, elsewhere) {
            let value = grant.guest.display().to_string();
            return Err(JailError::Text {
                what: "without a mount name space, the guest path",
                value,
                advice: "grant the directory under its own path",
            });
        }
        if let (false, Some(grant)) = (has_root, reading_within_writing(&jail.paths)) {
            let value = grant.host.display().to_string();
            return Err(JailError::Text {
                what: "without a mount name space, the path granted for reading",
                value,
                advice: "it lies in a directory granted for writing, and could be written to: grant the parts of that one for writing, not all of it",
            });
        }
    }
    if machine.user == 0 && chosen.layers.has(Layer::Unprivileged) && jail.paths.is_empty() {
        (chosen.user, chosen.group, chosen.changes_user) = (NOBODY, NOBODY, true);
    }
    Ok(chosen)
}

/// A grant for reading in a directory that is granted for writing: Landlock adds the rights up.
fn reading_within_writing(grants: &[PathGrant]) -> Option<&PathGrant> {
    let found =
        |grant: &PathGrant| grant.host.canonicalize().unwrap_or_else(|_| grant.host.clone());
    let writable: Vec<PathBuf> =
        grants.iter().filter(|grant| grant.access == PathAccess::ReadWrite).map(found).collect();
    grants.iter().filter(|grant| grant.access == PathAccess::ReadOnly).find(|grant| {
        let host = found(grant);
        writable.iter().any(|outer| host.starts_with(outer))
    })
}

/// Whether this machine has a layer.
fn offered(
    layer: Layer,
    jail: &Jail,
    machine: &Machine,
    program: &ElfProgram,
) -> Result<(), Refusal> {
    match layer {
        Layer::Mounts => machine.mounts.clone(),
        Layer::Processes => machine.processes.clone(),
        Layer::Network => machine.network.clone(),
        Layer::Ipc => machine.ipc.clone(),
        Layer::Landlock => machine.landlock.clone().map(drop),
        Layer::ControlGroup => machine.groups().as_ref().map(drop).map_err(Clone::clone),
        // A process that has none has nothing to drop.
        Layer::Capabilities => {
            let none = machine.capabilities.is_empty() || machine.user_name_space;
            if none || machine.capabilities.contains(CapabilitySet::SETPCAP) {
                Ok(())
            } else {
                Err(("CAP_SETPCAP".to_owned(), libc::EPERM))
            }
        }
        Layer::Unprivileged if machine.user != 0 || !jail.paths.is_empty() => Ok(()),
        Layer::Unprivileged if !program.for_everybody => {
            Err((program.path.display().to_string(), libc::EACCES))
        }
        Layer::Unprivileged => machine.can_change_user(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An old Landlock version is used and reported; strict mode refuses it.
    ///
    /// Guarantee: sandbox/missing-layers
    #[test]
    fn old_landlock_is_used_unless_strict() {
        let path = std::env::current_exe().unwrap();
        let program = ElfProgram::open(&path, None).unwrap();
        let mut machine = Machine::look();
        machine.landlock = Ok(3);
        let jail = || Jail::new(&path).layers(Layers::none().with(Layer::Landlock));
        let chosen = choose(&jail(), &machine, &program).unwrap();
        assert!(chosen.layers.has(Layer::Landlock));
        assert!(chosen.weaker.iter().any(|weakness| weakness.is_partial), "{:?}", chosen.weaker);
        let refused = choose(&jail().strict(true), &machine, &program);
        assert!(matches!(refused, Err(JailError::Weaker(weakness)) if weakness.is_partial));
    }
}
