//! A machine that is reset at every step, with a pool that outlives it: nothing that was
//! acknowledged at level `system` is lost, and nothing that is found is torn.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::Arc;

use common::power::Kept;
use common::reset::{ResetStorage, names_in_boot};
use common::{Home, MIB, PAGE_BYTES, key, load, named, number, store, store_number};
use holdfast_region::{
    Consistency, Durability, KernelStorage, Medium, NameSpace, Opened, Region, RegionError, Result,
    SharedRegion, Written,
};
use holdfast_sys::mapping::Reservation;

/// More steps than a life here has.
const STEPS_MAX: usize = 400;

fn words() -> holdfast_region::RegionName {
    named("words")
}

/// What was stored last, and what was acknowledged at level `system` or above.
#[derive(Debug, Clone, Copy, Default)]
struct Promised {
    stored: u64,
    acknowledged: u64,
}

/// Lets a life be reset in each of its steps, and opens what each reset may leave, in the next
/// boot. Returns how many states that were.
fn in_every_step(
    prepare: impl Fn() -> Home,
    live: impl Fn(&NameSpace, &mut Promised) -> Result<()>,
    look: impl Fn(&Home, &NameSpace, Promised, &str),
) -> usize {
    let mut states = 0;
    for step in 0.. {
        assert!(step < STEPS_MAX, "the life never comes to its end");
        let home = prepare();
        let storage = Arc::new(ResetStorage::new(&home));
        let names = names_in_boot(&home, 2, storage.clone());
        let mut promised = Promised::default();
        storage.arm(step);
        let outcome = live(&names, &mut promised);
        let is_over = !storage.struck();
        if is_over {
            outcome.unwrap();
        }
        let some = Kept::Some(step as u64);
        let kept = [Some(Kept::Nothing), Some(Kept::Everything), Some(some), None];
        for kept in kept {
            let after = kept.map_or_else(
                || storage.after_reset_with_headers(),
                |kept| storage.after_reset(kept),
            );
            let names = names_in_boot(&after, 3, Arc::new(KernelStorage));
            look(&after, &names, promised, &format!("step {step}, {kept:?}, {promised:?}"));
            states += 1;
        }
        if is_over {
            break;
        }
    }
    states
}

/// As the first store does, but with an error to return.
fn map(region: &mut Region) -> Result<()> {
    let range = Reservation::anywhere(region.limit_bytes() as usize, 64 << 10).unwrap();
    // SAFETY: the range covers the limit, and is never given back once something is mapped there.
    unsafe { region.map_into(range.base())? };
    std::mem::forget(range);
    Ok(())
}

fn slot(number: u64) -> usize {
    (number as usize * 37 % 900) * PAGE_BYTES + 24
}

fn slot_value(region: &mut Region, number: u64) -> u64 {
    u64::from_le_bytes(load(region, slot(number), 8).try_into().unwrap())
}

/// Stores numbers, each to a line of its own, so that none depends on another: an ordered writer
/// without a log.
fn append(
    region: &mut Region,
    numbers: std::ops::RangeInclusive<u64>,
    promised: &mut Promised,
) -> Result<()> {
    for number in numbers {
        promised.stored = number;
        store(region, slot(number), &number.to_le_bytes());
        let report = region.commit(Durability::System)?;
        assert_eq!((report.written, report.level), (Written::Memory, Durability::System));
        promised.acknowledged = number;
    }
    Ok(())
}

fn open_after_reset(names: &NameSpace, promised: Promised, context: &str) -> Option<Region> {
    match names.open(&words(), &key()) {
        Ok(region) => Some(region),
        Err(RegionError::NotFound { .. }) if promised.acknowledged == 0 => None,
        Err(error) => panic!("{context}: {error}"),
    }
}

/// After a reset in any step an ordered writer's commits are there.
///
/// Guarantee: heap/reset-ordered
#[test]
fn ordered_commits_survive_reset_at_every_step() {
    let states = in_every_step(
        Home::in_memory,
        |names, promised| {
            let mut region = names.create(&words(), &key(), 8 * MIB)?;
            assert!(region.needs_order());
            region.promise_order()?;
            assert!(region.is_ordered());
            map(&mut region)?;
            append(&mut region, 1..=2, promised)?;
            region.commit(Durability::Power)?;
            append(&mut region, 3..=3, promised)?;
            region.grow(5 * MIB)?;
            append(&mut region, 4..=5, promised)?;
            region.unmap()?;
            region.promise_order()?;
            map(&mut region)?;
            append(&mut region, 6..=6, promised)?;
            region.close()?;
            let mut region = names.open(&words(), &key())?;
            assert_eq!(region.opened(), Opened::Warm);
            region.promise_order()?;
            map(&mut region)?;
            append(&mut region, 7..=7, promised)?;
            // The process dies, and what it had not committed is its successor's to commit.
            promised.stored = 8;
            store(&mut region, slot(8), &8u64.to_le_bytes());
            drop(region);
            let mut region = names.open(&words(), &key())?;
            assert_eq!(region.opened(), Opened::WarmAfterCrash);
            region.promise_order()?;
            map(&mut region)?;
            assert_eq!(slot_value(&mut region, 8), 8);
            region.commit(Durability::System)?;
            promised.acknowledged = 8;
            append(&mut region, 9..=9, promised)
        },
        |_, names, promised, context| {
            let Some(mut region) = open_after_reset(names, promised, context) else { return };
            for number in 1..=9 {
                let found = slot_value(&mut region, number);
                let may_be =
                    if number <= promised.acknowledged { [number; 2] } else { [0, number] };
                assert!(may_be.contains(&found), "{context}: slot {number} has {found}");
                assert!(
                    found == 0 || number <= promised.stored,
                    "{context}: {number} was never stored"
                );
            }
            region.commit(Durability::Power).unwrap();
            region.close().unwrap();
            assert_eq!(names.open(&words(), &key()).unwrap().opened(), Opened::Warm, "{context}");
        },
    );
    assert!(states > 120, "{states}");
}

/// Creates, publishes at both levels, dies, goes on.
fn live_atomic(names: &NameSpace, promised: &mut Promised) -> Result<()> {
    let mut region = names.create(&words(), &key(), 8 * MIB)?;
    region.set_consistency(Consistency::Atomic)?;
    map(&mut region)?;
    for next in 1..=4 {
        promised.stored = next;
        store_number(&mut region, next);
        if next == 2 {
            region.publish()?;
            continue;
        }
        let report =
            region.commit(if next == 3 { Durability::Power } else { Durability::System })?;
        assert!(report.written == Written::Memory || next == 3, "{report:?}");
        promised.acknowledged = next;
    }
    drop(region);
    let mut region = names.open(&words(), &key())?;
    region.set_consistency(Consistency::Atomic)?;
    map(&mut region)?;
    promised.stored = 5;
    store_number(&mut region, 5);
    region.commit(Durability::System)?;
    promised.acknowledged = 5;
    region.close()?;
    Ok(())
}

fn look_for_number(names: &NameSpace, promised: Promised, context: &str) -> Option<Region> {
    let mut region = open_after_reset(names, promised, context)?;
    let found = number(&mut region);
    assert!((promised.acknowledged..=promised.stored).contains(&found), "{context}: {found}");
    Some(region)
}

/// After a reset in any step the mode atomic is at a publication and at none before the last
/// commit.
///
/// Guarantee: heap/reset-unordered
#[test]
fn atomic_mode_is_at_a_publication_after_any_reset() {
    in_every_step(Home::in_memory, live_atomic, |_, names, promised, context| {
        let Some(region) = look_for_number(names, promised, context) else { return };
        region.close().unwrap();
        let mut region = names.open(&words(), &key()).unwrap();
        assert_eq!(region.opened(), Opened::Warm, "{context}");
        assert!(number(&mut region) >= promised.acknowledged, "{context}");
    });
}

/// A recovery after a reset can itself be reset in any step.
///
/// Guarantee: heap/reset-ordered
#[test]
fn recovery_survives_reset_at_every_step() {
    let mut recoveries = 0;
    for first in (3..STEPS_MAX).step_by(9) {
        let home = Home::in_memory();
        let storage = Arc::new(ResetStorage::new(&home));
        storage.arm(first);
        let mut promised = Promised::default();
        let outcome = live_atomic(&names_in_boot(&home, 2, storage.clone()), &mut promised);
        if outcome.is_ok() {
            break;
        }
        for second in 0.. {
            assert!(second < STEPS_MAX, "the recovery never comes to its end");
            let home = storage.after_reset(Kept::Some(first as u64));
            let again = Arc::new(ResetStorage::new(&home));
            again.arm(second);
            let names = names_in_boot(&home, 3, again.clone());
            let recovered = names.open(&words(), &key()).and_then(Region::close);
            let context = format!("steps {first} and {second}, {promised:?}");
            let last = again.after_reset(Kept::Some(second as u64));
            let last = (names_in_boot(&last, 4, Arc::new(KernelStorage)), last);
            look_for_number(&last.0, promised, &context);
            recoveries += 1;
            if !again.struck() {
                let is_fine = matches!(recovered, Ok(_) | Err(RegionError::NotFound { .. }));
                assert!(is_fine, "{context}: {recovered:?}");
                break;
            }
        }
    }
    assert!(recoveries > 30, "{recoveries}");
}

/// After a reset in any step an unordered writer's region is as of its last commit and never torn.
///
/// Guarantee: heap/level-never-weaker
/// Guarantee: heap/reset-unordered
#[test]
fn unordered_region_returns_to_last_commit_untorn() {
    in_every_step(
        Home::in_memory,
        |names, promised| {
            let mut region = names.create(&words(), &key(), 8 * MIB)?;
            map(&mut region)?;
            for next in 1..=3 {
                promised.stored = next;
                store_number(&mut region, next);
                let report = region.commit(Durability::System)?;
                assert_eq!(report.level, Durability::Power, "a level was weakened, or claimed");
                promised.acknowledged = next;
            }
            promised.stored = 4;
            store_number(&mut region, 4);
            region.close()?;
            promised.acknowledged = 4;
            let mut region = names.open(&words(), &key())?;
            map(&mut region)?;
            promised.stored = 5;
            store_number(&mut region, 5);
            region.commit(Durability::Process)?;
            Ok(())
        },
        |_, names, promised, context| {
            let Some(region) = look_for_number(names, promised, context) else { return };
            assert_ne!(region.opened(), Opened::WarmAfterCrash, "{context}");
            region.close().unwrap();
        },
    );
}

/// An unordered writer after an ordered one that died costs no commit of it.
///
/// Guarantee: heap/reset-unordered
#[test]
fn unordered_writer_keeps_a_dead_ordered_ones_commits() {
    let prepare = || {
        let home = Home::in_memory();
        let names = names_in_boot(&home, 2, Arc::new(KernelStorage));
        let mut region = names.create(&words(), &key(), 8 * MIB).unwrap();
        region.promise_order().unwrap();
        store_number(&mut region, 7);
        assert_eq!(region.commit(Durability::System).unwrap().written, Written::Memory);
        drop(region);
        home
    };
    in_every_step(
        prepare,
        |names, promised| {
            *promised = Promised { stored: 7, acknowledged: 7 };
            let mut region = names.open(&words(), &key())?;
            assert_eq!(region.opened(), Opened::WarmAfterCrash);
            map(&mut region)?;
            promised.stored = 8;
            store_number(&mut region, 8);
            assert!(!region.is_ordered());
            region.commit(Durability::System)?;
            promised.acknowledged = 8;
            Ok(())
        },
        |_, names, promised, context| drop(look_for_number(names, promised, context).unwrap()),
    );
}

/// A writer that does not write back loses what it acknowledged.
#[test]
fn writer_without_write_back_loses_acknowledgements() {
    // That the tests above can fail.
    let home = Home::in_memory();
    let storage = Arc::new(ResetStorage::forgetful(&home));
    let mut region =
        names_in_boot(&home, 2, storage.clone()).create(&words(), &key(), 8 * MIB).unwrap();
    region.promise_order().unwrap();
    let mut promised = Promised::default();
    append(&mut region, 1..=1, &mut promised).unwrap();
    // From the second commit on, single pages are written back, and not the whole image synced.
    append(&mut region, 2..=2, &mut promised).unwrap();
    let after = storage.after_reset(Kept::Nothing);
    let mut region =
        names_in_boot(&after, 3, Arc::new(KernelStorage)).open(&words(), &key()).unwrap();
    assert_eq!((slot_value(&mut region, 1), slot_value(&mut region, 2)), (1, 0));
}

/// What an ordered writer commits at level power is in its image after a reset.
///
/// Guarantee: heap/reset-ordered
#[test]
fn ordered_power_commit_is_in_image_after_reset() {
    // The store has it, too; but after a reset the image is believed.
    let home = Home::in_memory();
    let storage = Arc::new(ResetStorage::new(&home));
    let mut region =
        names_in_boot(&home, 2, storage.clone()).create(&words(), &key(), 8 * MIB).unwrap();
    region.promise_order().unwrap();
    store_number(&mut region, 1);
    assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Base);
    store_number(&mut region, 2);
    let report = region.commit(Durability::Power).unwrap();
    assert_eq!((report.written, report.level), (Written::Journal, Durability::Power));
    let after = storage.after_reset(Kept::Nothing);
    let mut region =
        names_in_boot(&after, 3, Arc::new(KernelStorage)).open(&words(), &key()).unwrap();
    assert_eq!((region.opened(), number(&mut region)), (Opened::WarmAfterReset, 2));
}

/// An image that a reset may have torn is not read, and stays when there is nothing else.
///
/// Guarantee: heap/reset-unordered
#[test]
fn possibly_torn_image_is_kept_but_never_read() {
    let home = Home::in_memory();
    let mut region =
        names_in_boot(&home, 2, Arc::new(KernelStorage)).create(&words(), &key(), 8 * MIB).unwrap();
    store_number(&mut region, 1);
    region.commit(Durability::System).unwrap();
    store_number(&mut region, 2);
    drop(region);
    let names = names_in_boot(&home, 3, Arc::new(KernelStorage));
    let mut reader = names.open_read_only(&words(), &key()).unwrap();
    assert_eq!((reader.opened(), number(&mut reader)), (Opened::Cold, 1));
    drop(reader);
    assert!(home.image("words").exists(), "a reader changed something");
    let base = std::fs::read(home.base("words")).unwrap();
    std::fs::remove_file(home.base("words")).unwrap();
    for error in [
        names.open(&words(), &key()).unwrap_err(),
        names.evict(&words()).unwrap_err(),
        names.checkpoint_unheld(&words()).unwrap_err(),
    ] {
        assert!(matches!(error, RegionError::Torn { .. }), "{error}");
        assert!(error.to_string().contains("salvage what is there"), "{error}");
    }
    assert!(home.image("words").exists());
    std::fs::write(home.base("words"), base).unwrap();
    let mut region = names.open(&words(), &key()).unwrap();
    assert_eq!((region.opened(), number(&mut region)), (Opened::Cold, 1));
    drop(region);
    names.remove(&words(), &key()).unwrap();
    assert!(!home.image("words").exists());
}

/// An image that was left behind while its pool was away does not hide newer commits.
///
/// Guarantee: heap/one-home
#[test]
fn left_behind_image_does_not_hide_newer_commits() {
    let home = Home::in_memory();
    let names = names_in_boot(&home, 2, Arc::new(KernelStorage));
    let mut region = names.create(&words(), &key(), 8 * MIB).unwrap();
    region.promise_order().unwrap();
    store_number(&mut region, 1);
    region.close().unwrap();
    let old = std::fs::read(home.image("words")).unwrap();
    names.evict(&words()).unwrap();
    let mut region = names.open(&words(), &key()).unwrap();
    store_number(&mut region, 2);
    region.checkpoint().unwrap();
    region.close().unwrap();
    names.evict(&words()).unwrap();
    std::fs::write(home.image("words"), old).unwrap();
    let mut region =
        names_in_boot(&home, 3, Arc::new(KernelStorage)).open(&words(), &key()).unwrap();
    assert_eq!((region.opened(), number(&mut region)), (Opened::Cold, 2));
}

#[test]
fn many_threads_commit_to_memory_and_to_the_store() {
    let home = Home::in_memory();
    let mut region =
        names_in_boot(&home, 2, Arc::new(KernelStorage)).create(&words(), &key(), 8 * MIB).unwrap();
    region.promise_order().unwrap();
    store_number(&mut region, 3);
    let shared = SharedRegion::new(region);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(shared.commit(Durability::System).unwrap().level, Durability::System);
                assert_eq!(shared.commit(Durability::Power).unwrap().level, Durability::Power);
            });
        }
    });
    shared.into_inner().close().unwrap();
}

/// An image moved out of a pool that outlives the boot does not come back.
///
/// Guarantee: heap/reset-unordered
#[test]
fn moved_image_does_not_return_to_its_old_pool() {
    in_every_step(
        || {
            let home = Home::in_memory();
            let names = names_in_boot(&home, 2, Arc::new(KernelStorage));
            let mut region = names.create(&words(), &key(), 8 * MIB).unwrap();
            region.promise_order().unwrap();
            store_number(&mut region, 1);
            region.close().unwrap();
            home
        },
        |names, promised| {
            *promised = Promised { stored: 1, acknowledged: 1 };
            names.set_medium(&words(), &key(), Medium::File)?;
            let mut region = names.open(&words(), &key())?;
            assert!(!region.needs_order() && !region.is_ordered());
            map(&mut region)?;
            promised.stored = 2;
            store_number(&mut region, 2);
            region.commit(Durability::System)?;
            promised.acknowledged = 2;
            Ok(())
        },
        |_, names, promised, context| drop(look_for_number(names, promised, context).unwrap()),
    );
}
