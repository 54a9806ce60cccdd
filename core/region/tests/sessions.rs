//! Sessions that go well: creating, opening warm and cold, growing, checkpointing, listing,
//! removing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::io::Read;
use std::os::unix::fs::MetadataExt;

use common::{DATA_OFFSET, Home, MIB, key, load, map, named, other_key, read, store};
use holdfast_region::{Opened, Region, RegionError, RegionState};
use holdfast_sys::mapping::Reservation;

#[test]
fn what_one_session_stores_the_next_one_finds_warm() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!(region.opened(), Opened::Warm);
    assert_eq!(load(&mut region, 0, 6), b"hello\0");
    assert!(!region.is_dirty(), "a load made the region dirty");
}

/// A new region is zero and its first 4 mib are allocated.
#[test]
fn new_region_is_zero_with_4_mib_allocated() {
    let home = Home::new();
    let region = home.names().create(&named("words"), &key(), 64 * MIB).unwrap();
    assert_eq!(
        (region.opened(), region.limit_bytes(), region.backed_bytes()),
        (Opened::Created, 64 * MIB, 4 * MIB)
    );
    assert!(read(&region, 0, 4 << 20).iter().all(|&byte| byte == 0));
    assert!(home.image("words").metadata().unwrap().blocks() * 512 >= 4 * MIB);
    let small = home.names().create(&named("small"), &key(), 5).unwrap();
    assert_eq!((small.limit_bytes(), small.backed_bytes()), (MIB, MIB));
    let huge = home.names().create(&named("huge"), &key(), u64::MAX).unwrap_err();
    assert!(matches!(huge, RegionError::LimitOutOfRange { .. }));
}

/// A session that stores nothing skips the checkpoint and leaves all data alone.
#[test]
fn session_without_stores_skips_the_checkpoint() {
    let home = Home::with_text("words", b"hello");
    let base_before = home.base("words").metadata().unwrap();
    let data_before = std::fs::read(home.image("words")).unwrap().split_off(DATA_OFFSET as usize);
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    load(&mut region, 0, 4 << 20);
    assert!(region.close().unwrap().checkpoint.skipped);
    let base_after = home.base("words").metadata().unwrap();
    assert_eq!(
        (base_before.ino(), base_before.mtime_nsec()),
        (base_after.ino(), base_after.mtime_nsec())
    );
    assert!(
        std::fs::read(home.image("words")).unwrap().split_off(DATA_OFFSET as usize) == data_before
    );
}

/// The first store makes a warm region dirty and a checkpoint makes it clean again.
#[test]
fn first_store_dirties_and_checkpoint_cleans() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    // Before the first checkpoint nothing notices what changes: it compares. From then on it is
    // known.
    for text in [b"one", b"two"] {
        assert!(!region.is_dirty());
        store(&mut region, 4096, text);
        assert!(region.is_dirty());
        let report = region.checkpoint().unwrap();
        assert_eq!((report.pages, report.bytes, report.skipped), (1, 4096, false));
    }
    assert!(region.checkpoint().unwrap().skipped);
    drop(region);
    std::fs::remove_file(home.image("words")).unwrap();
    let region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!(read(&region, 4096, 3), b"two");
}

/// Stores after the last checkpoint are in the image even without a close.
#[test]
fn stores_after_checkpoint_survive_without_close() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    store(&mut region, 0, b"later");
    drop(region);
    let region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!(region.opened(), Opened::WarmAfterCrash);
    assert_eq!(read(&region, 0, 5), b"later");
    assert!(region.is_dirty(), "the store lacks what the last session stored");
    assert!(!region.close().unwrap().checkpoint.skipped);
}

/// Without its image a region opens cold with identical bytes.
///
/// Guarantee: heap/cold-open
#[test]
fn cold_open_restores_identical_bytes() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 32 * MIB).unwrap();
    region.grow(12 * MIB).unwrap();
    let noise: Vec<u8> =
        (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    store(&mut region, 5_000_001, &noise);
    store(&mut region, (12 << 20) - 1, b"!");
    let (uuid, address) = (region.uuid(), region.address());
    let whole = read(&region, 0, 12 << 20);
    region.close().unwrap();
    std::fs::remove_file(home.image("words")).unwrap();
    assert_eq!(home.names().summary(&named("words")).unwrap().state, RegionState::Cold);

    let region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!(region.opened(), Opened::Cold);
    assert_eq!((region.uuid(), region.address(), region.backed_bytes()), (uuid, address, 12 * MIB));
    assert!(read(&region, 0, 12 << 20) == whole);
    assert!(
        home.image("words").metadata().unwrap().blocks() * 512 >= 12 * MIB,
        "the image has holes"
    );
    assert!(region.close().unwrap().checkpoint.skipped, "a cold open alone made the region dirty");
}

/// A checkpoint of a mostly zero region is mostly hole.
#[test]
fn checkpoint_of_a_sparse_region_is_sparse() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 64 * MIB).unwrap();
    region.grow(64 * MIB).unwrap();
    store(&mut region, 40 << 20, b"lonely");
    // Touched and zero again: allocated in the image, a hole in the store.
    store(&mut region, 1 << 20, &vec![1; 1 << 20]);
    store(&mut region, 1 << 20, &vec![0; 1 << 20]);
    let report = region.close().unwrap().checkpoint;
    assert_eq!((report.pages, report.bytes), (1, 4096));
    let base = home.base("words").metadata().unwrap();
    assert_eq!(base.len(), DATA_OFFSET + 64 * MIB);
    assert!(base.blocks() * 512 <= 128 << 10, "{} bytes allocated", base.blocks() * 512);
}

/// Growth goes in 4 mib steps without moving and new bytes are zero.
///
/// Guarantee: heap/fixed-address
#[test]
fn growth_takes_4_mib_zeroed_steps_in_place() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 50 * MIB).unwrap();
    store(&mut region, 0, b"start");
    let mut expected = 4 * MIB;
    while expected < 50 * MIB {
        let grown = region.grow(expected + 1).unwrap();
        assert_eq!(grown, (expected + 4 * MIB).min(50 * MIB));
        assert!(
            load(&mut region, expected as usize, (grown - expected) as usize)
                .iter()
                .all(|&byte| byte == 0)
        );
        store(&mut region, grown as usize - 3, b"end");
        expected = grown;
    }
    assert_eq!(load(&mut region, 0, 5), b"start");
    assert_eq!(load(&mut region, (8 << 20) - 3, 3), b"end");
    assert_eq!(region.grow(1).unwrap(), 50 * MIB);
    let error = region.grow(50 * MIB + 1).unwrap_err();
    assert!(
        matches!(error, RegionError::LimitReached { limit_bytes, .. } if limit_bytes == 50 * MIB)
    );
    region.close().unwrap();
    assert_eq!(home.names().open(&named("words"), &key()).unwrap().backed_bytes(), 50 * MIB);
}

/// A growth hint makes larger steps and is kept between 4 and 16 mib.
#[test]
fn growth_hint_is_clamped_to_4_to_16_mib() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 128 * MIB).unwrap();
    region.set_growth_hint(u64::MAX);
    assert_eq!(region.grow(4 * MIB + 1).unwrap(), 16 * MIB);
    region.set_growth_hint(5 * MIB);
    assert_eq!(region.grow(16 * MIB + 1).unwrap(), 24 * MIB);
    region.set_growth_hint(0);
    assert_eq!(region.grow(24 * MIB + 1).unwrap(), 28 * MIB);
}

/// Growth of a clean mapped region keeps the new part writable.
#[test]
fn growth_of_clean_mapping_stays_writable() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    map(&mut region);
    assert!(!region.is_dirty());
    region.grow(8 * MIB).unwrap();
    store(&mut region, (8 << 20) - 4, b"tail");
    region.checkpoint().unwrap();
    store(&mut region, (8 << 20) - 4, b"TAIL");
    assert!(region.is_dirty());
}

/// Stores by the kernel go through once the mapping was made writable.
#[test]
fn kernel_stores_pass_once_made_writable() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    let base = map(&mut region);
    // SAFETY: backed bytes of the mapping, which nothing else refers to.
    let buffer = unsafe { std::slice::from_raw_parts_mut(base, 5) };
    let file = std::fs::File::open("/dev/zero").unwrap();
    let error = (&file).read(buffer).unwrap_err();
    assert!(!region.is_dirty(), "{error}");
    region.make_writable().unwrap();
    assert!(region.is_dirty());
    assert_eq!((&file).read(buffer).unwrap(), 5);
    assert_eq!(load(&mut region, 0, 5), [0; 5]);
}

/// A region maps into address space of the caller and leaves it reserved.
#[test]
fn region_maps_into_reserved_space_of_the_caller() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    let range = Reservation::anywhere(16 << 20, 64 << 10).unwrap();
    let base = range.base().wrapping_add(64 << 10);
    // SAFETY: the reservation covers the limit of 8 MiB from `base` and outlives the mapping.
    unsafe { region.map_into(base).unwrap() };
    assert!(matches!(region.map_native(), Err(RegionError::AlreadyMapped)));
    // SAFETY: the backed bytes from `base` on are mapped.
    unsafe {
        assert_eq!(base.read_volatile(), b'h');
        base.write_volatile(b'H');
    }
    region.unmap().unwrap();
    assert!(region.is_dirty(), "unmapping forgot the store");
    // Were the range not reserved any more, this would find it free.
    assert!(Reservation::at(base as usize, 4096).is_err());
    assert_eq!(read(&region, 0, 5), b"Hello");
    assert_eq!(load(&mut region, 0, 5), b"Hello");
}

/// Every region has an address range of its own and keeps it.
///
/// Guarantee: heap/fixed-address
#[test]
fn every_region_keeps_an_address_of_its_own() {
    let home = Home::new();
    let names = home.names();
    let mut regions: Vec<_> = (0..4)
        .map(|i| names.create(&named(&format!("r{i}")), &key(), (i + 1) << 30).unwrap())
        .collect();
    for region in &mut regions {
        let base = region.map_native().unwrap();
        assert_eq!(base.as_ptr() as u64, region.address());
        assert_eq!(region.address() % (1 << 30), 0);
    }
    let range = |region: &Region| region.address()..region.address() + region.limit_bytes();
    let mut ranges: Vec<_> = regions.iter().map(range).collect();
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:x?}");
    let third = range(&regions[2]);
    regions.remove(2).close().unwrap();
    // The image is gone, but the base still owns the address.
    std::fs::remove_file(home.image("r2")).unwrap();
    assert!(!third.contains(&names.create(&named("r9"), &key(), MIB).unwrap().address()));
    assert_eq!(names.open(&named("r2"), &key()).unwrap().address(), third.start);
}

/// Open or create creates once and keeps the first limit.
#[test]
fn open_or_create_keeps_the_first_limit() {
    let home = Home::new();
    let region = home.names().open_or_create(&named("words"), &key(), 16 * MIB).unwrap();
    assert_eq!(region.opened(), Opened::Created);
    let uuid = region.uuid();
    region.close().unwrap();
    let region = home.names().open_or_create(&named("words"), &key(), 512 * MIB).unwrap();
    assert_eq!(
        (region.opened(), region.uuid(), region.limit_bytes()),
        (Opened::Warm, uuid, 16 * MIB)
    );
    drop(region);
    let error = home.names().create(&named("words"), &key(), MIB).unwrap_err();
    assert!(matches!(error, RegionError::AlreadyExists { .. }));
}

/// Readers see the data share the region and change nothing.
#[test]
fn readers_share_the_data_and_change_nothing() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    let before = std::fs::read(home.image("words")).unwrap();
    let first = names.open_read(&named("words")).unwrap();
    let second = names.open_read(&named("words")).unwrap();
    assert_eq!(&first.bytes()[..6], b"hello\0");
    assert_eq!(first.bytes().len(), 4 << 20);
    assert!(second.read_all().unwrap() == first.bytes());
    assert!(matches!(
        names.open(&named("words"), &key()),
        Err(RegionError::Held { holder: None, .. })
    ));
    assert!(!first.lost_backing());
    drop((first, second));
    assert!(std::fs::read(home.image("words")).unwrap() == before);

    std::fs::remove_file(home.image("words")).unwrap();
    let cold = names.open_read(&named("words")).unwrap();
    assert_eq!(&cold.bytes()[..6], b"hello\0");
    assert_eq!(cold.summary().state, RegionState::Cold);
    assert!(!home.image("words").exists(), "reading built an image");
}

#[test]
fn the_list_tells_what_every_region_is_doing() {
    let home = Home::with_text("clean", b"hello");
    let names = home.names();
    let held = names.create(&named("held"), &key(), 8 * MIB).unwrap();
    drop(names.create(&named("crashed"), &key(), 8 * MIB).unwrap());
    names.create(&named("cold"), &key(), 8 * MIB).unwrap().close().unwrap();
    std::fs::remove_file(home.image("cold")).unwrap();
    names.create(&named("damaged"), &key(), 8 * MIB).unwrap().close().unwrap();
    common::truncate(&home.image("damaged"), 3 * MIB);
    std::fs::write(home.pool().join("notes.txt"), "not ours").unwrap();
    let list = names.list().unwrap();
    let states: Vec<_> = list.iter().map(|found| (found.name.as_str(), found.state)).collect();
    assert_eq!(
        states,
        [
            ("clean", RegionState::Clean),
            ("cold", RegionState::Cold),
            ("crashed", RegionState::Crashed),
            ("damaged", RegionState::Damaged),
            ("held", RegionState::Held),
        ]
    );
    assert_eq!(list[4].holder, Some(std::process::id()));
    assert_eq!(list[4].uuid, {
        let hex: String = held.uuid().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    });
    let reason = list[3].damaged.as_ref().unwrap();
    assert!(reason.contains("drop the image"), "{reason}");
    assert!(list[0].image.is_some() && list[0].base.is_some() && list[0].damaged.is_none());
}

/// A missing heap is reported with names that are near.
///
/// Guarantee: heap/messages
#[test]
fn missing_heap_is_reported_with_near_names() {
    let home = Home::with_text("spelling", b"");
    let error = home.names().open(&named("speling"), &key()).unwrap_err();
    assert!(matches!(&error, RegionError::NotFound { near, .. } if near == &["spelling"]));
    assert!(error.to_string().contains("near names: spelling"));
    assert!(
        matches!(home.names().open_read(&named("zz")), Err(RegionError::NotFound { near, .. }) if near.is_empty())
    );
    assert!(matches!(home.names().summary(&named("zz")), Err(RegionError::NotFound { .. })));
    assert!(matches!(home.names().remove(&named("zz"), &key()), Err(RegionError::NotFound { .. })));
    assert!(matches!(
        home.names().remove_image(&named("zz"), &key()),
        Err(RegionError::NotFound { .. })
    ));
    assert!(!home.pool().join("zz.lock").exists());
}

/// Only the key that created a region opens or removes it.
///
/// Guarantee: heap/keys
#[test]
fn only_the_creating_key_opens_or_removes() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    let before =
        (std::fs::read(home.image("words")).unwrap(), std::fs::read(home.base("words")).unwrap());
    let not_owner = |result: Result<(), RegionError>| {
        assert!(matches!(result, Err(RegionError::NotOwner { .. })))
    };
    not_owner(names.open(&named("words"), &other_key()).map(drop));
    not_owner(names.open_or_create(&named("words"), &other_key(), MIB).map(drop));
    not_owner(names.remove(&named("words"), &other_key()));
    not_owner(names.remove_image(&named("words"), &other_key()));
    assert!(
        (std::fs::read(home.image("words")).unwrap(), std::fs::read(home.base("words")).unwrap())
            == before
    );
    std::fs::remove_file(home.image("words")).unwrap();
    not_owner(names.open(&named("words"), &other_key()).map(drop));
    not_owner(names.remove(&named("words"), &other_key()));
    assert!(home.base("words").exists() && !home.image("words").exists());
}

/// Removing a region removes every file of it and of no other.
#[test]
fn removal_takes_exactly_the_regions_files() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    names.create(&named("words2"), &key(), MIB).unwrap().close().unwrap();
    let held = names.open(&named("words"), &key()).unwrap();
    assert!(matches!(names.remove(&named("words"), &key()), Err(RegionError::Held { .. })));
    held.close().unwrap();
    names.remove(&named("words"), &key()).unwrap();
    assert!(!home.image("words").exists() && !home.base("words").exists());
    assert!(!home.pool().join("words.lock").exists());
    assert!(home.image("words2").exists() && home.base("words2").exists());
    names.create(&named("words"), &key(), MIB).unwrap();
}

#[test]
fn a_read_past_the_backed_bytes_is_an_error() {
    let home = Home::with_text("words", b"hello");
    let region = home.names().open(&named("words"), &key()).unwrap();
    let mut two = [0; 2];
    assert!(matches!(region.read_at(4 * MIB - 1, &mut two), Err(RegionError::OutOfBounds { .. })));
    assert!(matches!(region.read_at(u64::MAX, &mut two), Err(RegionError::OutOfBounds { .. })));
    region.read_at(4 * MIB - 2, &mut two).unwrap();
}
