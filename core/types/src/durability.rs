//! The failures that a commit survives.

use core::fmt;

/// Which failure a commit survives. Each level includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[repr(u32)]
pub enum Durability {
    /// Crash, hang or kill of applet and host. Costs nothing where stores are in the image at once.
    Process = 0,
    /// A panic or reset of the machine. In a pool that outlives it, what an ordered writer changed
    /// is written back from the processor's caches; everywhere else this is done as `Power`.
    System = 1,
    /// The plug. What changed is written to the store and synced; or written back, in a pool that
    /// survives this.
    Power = 2,
}

impl Durability {
    /// All levels, the weakest first.
    pub const ALL: [Durability; 3] = [Durability::Process, Durability::System, Durability::Power];

    /// As C, applets and wires know it: `enum nv_level`.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The level of this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Durability> {
        match number {
            0 => Some(Durability::Process),
            1 => Some(Durability::System),
            2 => Some(Durability::Power),
            _ => None,
        }
    }

    /// As options and messages name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Durability::Process => "process",
            Durability::System => "system",
            Durability::Power => "power",
        }
    }

    /// The level of this name, in capitals or not.
    #[must_use]
    pub fn parse(name: &str) -> Option<Durability> {
        Durability::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back() {
        for (number, level) in Durability::ALL.into_iter().enumerate() {
            assert_eq!(level.number() as usize, number);
            assert_eq!(Durability::from_number(level.number()), Some(level));
            assert_eq!(Durability::parse(&level.name().to_uppercase()), Some(level));
        }
        assert_eq!((Durability::from_number(3), Durability::parse("plug")), (None, None));
        assert!(Durability::Process < Durability::System && Durability::System < Durability::Power);
    }
}
