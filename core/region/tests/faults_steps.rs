//! Row H7 of the fault matrix: EIO and ENOSPC in each step of a region's whole life, once and for
//! good. After the fault is gone, everything that was acknowledged is there, warm and cold, and the
//! region works.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::Arc;

use common::faulty::{Fault, FaultyStorage};
use common::noted::Notes;
use common::{Home, MIB, key, named, number, read, store_number};
use holdfast_region::{Consistency, Durability, NameSpace, RegionError, Result};
use holdfast_testkit::Trials;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
/// More steps than the life below has.
const STEPS_MAX: usize = 400;

/// The number that was stored last, and what was promised about it.
#[derive(Debug, Default, Clone, Copy)]
struct Promised {
    stored: u64,
    /// Survives the process.
    published: u64,
    /// Survives the pool.
    committed: u64,
}

/// Creates, commits, grows, publishes, closes, opens warm and cold, commits again; ends at the
/// first error.
fn live(home: &Home, names: &NameSpace, promised: &mut Promised) -> Result<()> {
    let mut region = names.create(&named("words"), &key(), 8 * MIB)?;
    let notes = Notes::of(&mut region);
    for next in 1..=3 {
        promised.stored = next;
        store_number(&mut region, next);
        for page in [0, 1, 2, 40, 300, 1000] {
            notes.add(page * 4096, 100);
        }
        region.commit(Durability::Process)?;
        promised.published = next;
        region.commit(Durability::Power)?;
        promised.committed = next;
    }
    region.grow(5 * MIB)?;
    region.checkpoint()?;
    region.close()?;
    let mut region = names.open(&named("words"), &key())?;
    region.set_consistency(Consistency::Atomic)?;
    for next in 4..=5 {
        promised.stored = next;
        store_number(&mut region, next);
        region.publish()?;
        promised.published = next;
    }
    region.close()?;
    promised.committed = 5;
    std::fs::remove_file(home.image("words")).unwrap();
    let mut region = names.open(&named("words"), &key())?;
    promised.stored = 6;
    store_number(&mut region, 6);
    region.commit(Durability::Power)?;
    (promised.published, promised.committed) = (6, 6);
    region.close()?;
    Ok(())
}

fn is_fine(error: &RegionError) -> bool {
    matches!(
        error,
        RegionError::Io { .. }
            | RegionError::NoRoom { .. }
            | RegionError::StoreFull { .. }
            | RegionError::Poisoned { .. }
    )
}

/// An error in any step of a region's life is typed, and no promise is broken.
///
/// Guarantee: heap/no-false-acknowledgement
/// Guarantee: heap/power
#[test]
fn error_at_any_step_is_typed_and_breaks_no_promise() {
    let mut trials = Trials::of_all("H7", "EIO and ENOSPC in each step, once and for good");
    for fault in [Fault::Once(EIO), Fault::Once(ENOSPC), Fault::Always(EIO), Fault::Always(ENOSPC)]
    {
        for step in 0.. {
            assert!(step < STEPS_MAX, "the life never comes to its end");
            trials.next();
            let home = Home::new();
            let storage = Arc::new(FaultyStorage::new(fault));
            storage.arm(step);
            let mut promised = Promised::default();
            let outcome = live(&home, &home.names_over(storage.clone()), &mut promised);
            if !storage.struck() {
                outcome.unwrap();
                break;
            }
            let context = format!("{fault:?} in step {step}, {promised:?}");
            // A step whose failure costs nothing may be passed over, as the removal of a stale
            // journal.
            if let Err(error) = &outcome {
                assert!(is_fine(error), "{context}: {error}");
            }
            let names = home.names();
            if promised.published > 0 && home.image("words").exists() {
                let found = number(&mut names.open(&named("words"), &key()).unwrap());
                assert!(
                    (promised.published..=promised.stored).contains(&found),
                    "{context}: {found}"
                );
            }
            if promised.committed > 0 {
                let _ = std::fs::remove_file(home.image("words"));
                let mut region = names.open(&named("words"), &key()).unwrap();
                let found = number(&mut region);
                assert!(
                    (promised.committed..=promised.stored).contains(&found),
                    "{context}: {found}"
                );
                // It goes on, and its promises hold again.
                store_number(&mut region, 7);
                region.commit(Durability::Power).unwrap();
                drop(region);
                std::fs::remove_file(home.image("words")).unwrap();
                let region = names.open(&named("words"), &key()).unwrap();
                assert_eq!(read(&region, 8, 8), 7_u64.to_le_bytes(), "{context}");
            } else {
                let _ = names.remove(&named("words"), &key());
                names.create(&named("words"), &key(), 8 * MIB).unwrap();
            }
            assert!(home.leftovers().is_empty(), "{context}");
        }
    }
}
