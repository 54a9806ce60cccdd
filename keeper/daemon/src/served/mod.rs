//! Regions for other users: each has a name space below the keeper's home, and programs that borrow
//! from it over a socket. See `docs/adr/0015-served-regions.md`.
//!
//! A borrower maps an image in memory that the keeper made and no process can resize. What it
//! stores is brought to the region when it commits and when it is gone. The region's own files no
//! borrower ever has.

mod asks;
mod connection;
mod ends;
mod image;
mod lease;
mod loan;
mod own_name;
mod place;
mod policy;
mod serving;
mod users;

#[cfg(fuzzing)]
pub(crate) mod fuzzing {
    //! As the crate's: what reads bytes of borrowers and of notes.

    use super::lease::Note;
    use holdfast_keeper_client::served_wire::{
        SERVED_REQUEST_BYTES_MAX, SERVED_VERSION, ServedAnswer, ServedAsk,
    };
    use holdfast_keeper_client::wire::{parse_answer, parse_request};

    pub(crate) fn parse_served_request(bytes: &[u8]) {
        let _ = parse_request::<ServedAsk>(bytes, SERVED_VERSION, SERVED_REQUEST_BYTES_MAX);
    }

    pub(crate) fn parse_served_answer(body: &[u8]) {
        let _ = parse_answer::<ServedAnswer>(body).map(|answer| format!("{answer:?}"));
    }

    pub(crate) fn parse_lease_note(bytes: &[u8]) {
        let _ = Note::parse(bytes);
    }
}

pub(crate) use loan::{Loan, LoanOutcome};
#[cfg(test)]
pub(crate) use loan::{LoanWork, Work};
pub use own_name::SERVED_NAME_BYTES_MAX;
#[cfg(test)]
pub(crate) use own_name::key_name;
pub(crate) use place::raise_descriptor_limit;
pub use policy::{Phase, PhaseHook, Quota, ServePolicy, Served};
pub(crate) use serving::Serving;
#[cfg(test)]
pub(crate) use serving::TurnReport;
