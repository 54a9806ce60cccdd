//! The failure lab: a machine of its own, in QEMU, whose programs are killed, whose kernel panics,
//! that is reset and loses its power while writers acknowledge records; afterwards every
//! acknowledged record must be there.
//!
//! Three programs. `holdfast-lab` runs on the host: it makes the machine, causes the failures, and
//! keeps the ledger of what was acknowledged (`lab`, `session`, `machine`, `qmp`, `kernel`,
//! `initramfs`, `flash`, `ledger`). `holdfast-lab-guest` is the first process of the machine and
//! starts itself again as the writers and readers of records in heaps and databases;
//! `holdfast-lab-caller` has an applet note some (`guest`, `place`). They speak `words`, in lines
//! over a serial port: what the host has heard cannot be lost with the machine.
//!
//! Invariants:
//! - Every wait is bounded; no machine outlives the value that stands for it.
//! - A record is acknowledged after its commit has returned, unless the lab tests itself.
//!
//! What it must not do: need root, or a kernel of the host's; use hardware virtualization, which
//! would make what is found depend on the host.

#![deny(unsafe_code)]

pub mod cause;
pub mod flash;
pub mod guest;
pub mod initramfs;
pub mod kernel;
pub mod lab;
pub mod ledger;
pub mod machine;
pub mod missing;
pub mod place;
pub mod qmp;
mod session;
pub mod words;
