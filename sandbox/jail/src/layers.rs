//! The layers of confinement that can be turned off one by one, and what a machine cannot give.
//!
//! Not here, because never optional: the seccomp filter, `NO_NEW_PRIVS`, resource limits, closed
//! descriptors, death with the host.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;

use holdfast_types::Remedy;

/// The version of Landlock's interface that has TCP.
const LANDLOCK_TCP: u32 = 4;
/// The version that has signals and abstract sockets, too.
const LANDLOCK_WHOLE: u32 = 6;

/// A layer of confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layer {
    /// A user name space (where it can be made) and a root of its own that holds the loader's files
    /// and what was granted, all of it read-only but directories granted for writing.
    Mounts,
    /// A process name space: it sees no other process.
    Processes,
    /// A network name space without interfaces.
    Network,
    /// Name spaces for System V IPC, POSIX queues and the machine's name.
    Ipc,
    /// Landlock: only the loader's files and granted directories; no TCP (Linux 6.7), no signals
    /// and no abstract sockets (Linux 6.12) out of the jail. An older kernel's has a [`Weakness`]
    /// that says so. Files in memory that have no path are beyond it.
    Landlock,
    /// All capabilities dropped for good.
    Capabilities,
    /// A host that is root starts the program as the user 65534, unless directories are granted.
    Unprivileged,
    /// A control group that counts processes and memory. Off unless asked for: only administrators
    /// can make one.
    ControlGroup,
}

impl Layer {
    /// All of them.
    pub const ALL: [Layer; 8] = [
        Layer::Mounts,
        Layer::Processes,
        Layer::Network,
        Layer::Ipc,
        Layer::Landlock,
        Layer::Capabilities,
        Layer::Unprivileged,
        Layer::ControlGroup,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layer::Mounts => "mount name space",
            Layer::Processes => "process name space",
            Layer::Network => "network name space",
            Layer::Ipc => "IPC name space",
            Layer::Landlock => "Landlock",
            Layer::Capabilities => "dropped capabilities",
            Layer::Unprivileged => "unprivileged user",
            Layer::ControlGroup => "control group",
        }
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A set of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layers(u16);

impl Layers {
    /// Every layer.
    #[must_use]
    pub fn all() -> Layers {
        Layer::ALL.into_iter().fold(Layers::none(), Layers::with)
    }

    /// No layer but those that are never optional.
    #[must_use]
    pub fn none() -> Layers {
        Layers(0)
    }

    /// The same with one more.
    #[must_use]
    pub fn with(self, layer: Layer) -> Layers {
        Layers(self.0 | layer.bit())
    }

    /// The same with one less.
    #[must_use]
    pub fn without(self, layer: Layer) -> Layers {
        Layers(self.0 & !layer.bit())
    }

    /// Whether a layer is among them.
    #[must_use]
    pub fn has(self, layer: Layer) -> bool {
        self.0 & layer.bit() != 0
    }
}

impl Default for Layers {
    /// Every layer that an ordinary user can have: all but the control group.
    fn default() -> Layers {
        Layers::all().without(Layer::ControlGroup)
    }
}

/// A layer that was asked for and that this machine cannot give, or not all of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Weakness {
    /// The layer.
    pub layer: Layer,
    /// The layer is there, but lacks something.
    pub is_partial: bool,
    /// Why it is missing: the step that failed and the kernel's error number, if it was the kernel.
    pub why: String,
    /// What would bring it.
    pub remedy: &'static str,
}

impl Weakness {
    pub(crate) fn new(layer: Layer, step: &str, errno: i32) -> Weakness {
        let why = format!("{step}: {}", io::Error::from_raw_os_error(errno));
        Weakness { layer, is_partial: false, why, remedy: remedy(layer) }
    }

    /// What Landlock of this version does not confine, if anything.
    pub(crate) fn of_old_landlock(abi: u32) -> Option<Weakness> {
        let lacks = match abi {
            LANDLOCK_WHOLE.. => return None,
            LANDLOCK_TCP.. => "signals and abstract sockets",
            _ => "TCP, signals and abstract sockets",
        };
        let why = format!("version {abi} of the kernel's Landlock does not know {lacks}");
        let remedy = "use Linux 6.12 or later; other layers and the system-call policy confine those meanwhile";
        Some(Weakness { layer: Layer::Landlock, is_partial: true, why, remedy })
    }

    /// All of them in one line, for a reader that saw the details before; `None` for none.
    #[must_use]
    pub fn summary(all: &[Weakness]) -> Option<String> {
        let names: Vec<&str> = all.iter().map(|weakness| weakness.layer.name()).collect();
        let (last, others) = names.split_last()?;
        let how = match all.iter().filter(|weakness| weakness.is_partial).count() {
            0 => "missing",
            partial if partial == all.len() => "incomplete",
            _ => "missing or incomplete",
        };
        let names = if others.is_empty() {
            format!("the layer {last} is")
        } else {
            format!("the layers {} and {last} are", others.join(", "))
        };
        Some(format!(
            "{names} {how} here; to see why, and what brings them, {}",
            Remedy::ExamineMachine
        ))
    }
}

impl fmt::Display for Weakness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_partial { "incomplete" } else { "missing" };
        write!(formatter, "the layer {} is {how} here ({}); {}", self.layer, self.why, self.remedy)
    }
}

fn remedy(layer: Layer) -> &'static str {
    match layer {
        Layer::Mounts | Layer::Processes | Layer::Network | Layer::Ipc => {
            "allow user name spaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns; in a container: a seccomp profile with clone and mount)"
        }
        Layer::Landlock => "use Linux 5.13 or later with `landlock` in the boot parameter lsm=",
        Layer::Capabilities => "let the host have CAP_SETPCAP, or start it as an ordinary user",
        Layer::Unprivileged => {
            "start the host as an ordinary user, or with CAP_SETUID, CAP_SETGID and CAP_SYS_PTRACE; and make the \
             program executable for everybody (chmod a+rx)"
        }
        Layer::ControlGroup => {
            "delegate a control group with the controllers pids and memory to this user"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_can_be_added_and_taken_away() {
        for layer in Layer::ALL {
            assert!(Layers::all().has(layer));
            assert!(!Layers::all().without(layer).has(layer));
            assert_eq!(Layers::none().with(layer).without(layer), Layers::none());
        }
        assert!(!Layers::default().has(Layer::ControlGroup));
    }

    /// Guarantee: sandbox/ordinary-programs
    #[test]
    fn several_weaknesses_are_one_line() {
        let of = |layers: &[Layer]| {
            let all: Vec<_> =
                layers.iter().map(|layer| Weakness::new(*layer, "clone", libc::EPERM)).collect();
            Weakness::summary(&all)
        };
        assert_eq!(of(&[]), None);
        let told = of(&[Layer::Mounts, Layer::Network, Layer::Ipc]).unwrap();
        assert!(
            told.contains("mount name space, network name space and IPC name space are"),
            "{told}"
        );
        assert!(of(&[Layer::Landlock]).unwrap().starts_with("the layer Landlock is missing"));
        assert!(
            !told.contains('\n') && told.ends_with(&Remedy::ExamineMachine.to_string()),
            "{told}"
        );
    }

    /// Guarantee: sandbox/missing-layers
    #[test]
    fn a_landlock_that_knows_less_than_all_is_incomplete() {
        for (abi, lacks) in [
            (1, Some("TCP")),
            (3, Some("TCP")),
            (4, Some("signals")),
            (5, Some("signals")),
            (6, None),
        ] {
            let text = Weakness::of_old_landlock(abi).map(|weakness| weakness.to_string());
            assert_eq!(text.is_some(), lacks.is_some(), "{abi}");
            let (text, lacks) = (text.unwrap_or_default(), lacks.unwrap_or_default());
            assert!(
                text.contains(lacks) && (lacks.is_empty() || text.contains("incomplete")),
                "{text}"
            );
        }
        let partial = Weakness::of_old_landlock(5).unwrap();
        let told = Weakness::summary(std::slice::from_ref(&partial)).unwrap();
        assert!(told.contains("Landlock is incomplete"), "{told}");
        let both = [partial, Weakness::new(Layer::Mounts, "clone", libc::EPERM)];
        assert!(Weakness::summary(&both).unwrap().contains("are missing or incomplete"));
    }

    #[test]
    fn a_weakness_names_layer_cause_and_remedy() {
        let text =
            Weakness::new(Layer::Landlock, "landlock_create_ruleset", libc::EOPNOTSUPP).to_string();
        assert!(
            text.contains("Landlock") && text.contains("not supported") && text.contains("lsm="),
            "{text}"
        );
    }
}
