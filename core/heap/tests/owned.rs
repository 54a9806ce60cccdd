//! The bytes of roots in safe code.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{TestMemory, open};
use holdfast_heap::layout::SUPER_ROOTS;
use holdfast_heap::{HeapError, Owned, RootType};

const TYPE: Option<RootType> = Some(RootType { layout: 7, version: 1 });

/// Roots are read changed replaced and rolled back as bytes.
///
/// Guarantee: documents/safe-roots
#[test]
fn roots_are_read_and_changed_as_bytes() {
    let mut owned = Owned::new(open(TestMemory::new(16 << 20)));
    assert_eq!(owned.bytes("table"), None);
    owned
        .transaction(|tx| {
            let object = tx.create("table", 100, TYPE, |bytes| bytes.fill(1))?;
            tx.write(object, 90, &[2; 10])?;
            assert_eq!(tx.write(object, 95, &[3; 6]), Err(HeapError::OutsideHeap));
            assert_eq!(tx.write(object, u64::MAX, &[3]), Err(HeapError::OutsideHeap));
            Ok::<_, HeapError>(())
        })
        .unwrap();
    let expected = [vec![1; 90], vec![2; 10]].concat();
    assert_eq!(owned.bytes("table"), Some(&expected[..]));
    assert_eq!(owned.heap().root_type("table"), TYPE);
    // Whatever a transaction did that fails, it did not.
    let failed = owned.transaction(|tx| {
        let object = tx.root("table").unwrap();
        tx.write(object, 0, &[9; 50])?;
        let moved = tx.replace("table", 300_000, None, |old, new| {
            new.fill(8);
            new[..old.len()].copy_from_slice(old);
        })?;
        assert_eq!(
            tx.bytes(moved).unwrap()[49..101],
            [vec![9], vec![1; 40], vec![2; 10], vec![8]].concat()
        );
        assert!(tx.write(object, 0, &[1]).is_ok(), "the old object is freed by the commit only");
        tx.create("other", 10, None, |_| {})?;
        Err::<(), _>(HeapError::BadName)
    });
    assert_eq!(failed, Err(HeapError::BadName));
    assert_eq!((owned.bytes("table"), owned.bytes("other")), (Some(&expected[..]), None));
    owned
        .transaction(|tx| {
            tx.replace("table", 200, TYPE, |old, new| {
                new.fill(5);
                new[..100].copy_from_slice(old);
            })?;
            Ok::<_, HeapError>(())
        })
        .unwrap();
    let owned = Owned::new(open(owned.into_heap().close().copy()));
    assert_eq!(owned.bytes("table"), Some(&[&expected[..], &[5; 100]].concat()[..]));
}

/// Guarantee: documents/readers
#[test]
fn a_heap_is_lent_with_its_open_transaction() {
    let mut heap = open(TestMemory::new(16 << 20));
    heap.begin().unwrap();
    let lent = Owned::lent(&mut heap).unwrap();
    lent.transaction(|tx| tx.create("table", 4, TYPE, |bytes| bytes.fill(1)).map(drop)).unwrap();
    assert_eq!(lent.bytes("table"), Some(&[1; 4][..]));
    heap.abort().unwrap();
    assert_eq!(
        Owned::lent(&mut heap).unwrap().bytes("table"),
        None,
        "it belonged to the transaction"
    );
}

/// A heap is not lent while several threads allocate in it.
///
#[cfg(feature = "std")]
/// Guarantee: documents/readers
#[test]
fn heap_is_not_lent_while_threads_allocate() {
    let shared = common::share(open(TestMemory::new(16 << 20)));
    assert!(shared.handle().with_heap(|heap| Owned::lent(heap).is_none()));
    let mut heap = shared.into_heap().ok().unwrap();
    assert!(Owned::lent(&mut heap).is_some());
}

/// A root that claims more than it has is read within the heap and never stored to.
///
/// Guarantee: documents/safe-roots
#[test]
fn overlong_root_is_read_within_bounds_only() {
    let mut heap = open(TestMemory::new(16 << 20));
    let object = heap.create_root("table", 100).unwrap();
    let offset = heap.offset_of(object).unwrap();
    let mut memory = heap.close();
    // Its entry, by the root table: the only slot in use.
    let word = |memory: &TestMemory, at: u64| {
        u64::from_le_bytes(memory.bytes()[at as usize..at as usize + 8].try_into().unwrap())
    };
    let table = word(&memory, SUPER_ROOTS);
    let slot = (0..64).map(|slot| word(&memory, table + slot * 8)).find(|slot| *slot != 0).unwrap();
    let entry = (slot & ((1 << 48) - 1)) as usize;
    for (start, bytes, is_there) in [
        (offset, 1 << 20, true),
        (16, (4 << 20) - 16, true),
        (offset, 1 << 40, false),
        (u64::MAX, 8, false),
    ] {
        memory.bytes_mut()[entry..entry + 8].copy_from_slice(&start.to_le_bytes());
        memory.bytes_mut()[entry + 8..entry + 16].copy_from_slice(&u64::to_le_bytes(bytes));
        let mut owned = Owned::new(open(memory));
        assert_eq!(owned.bytes("table").map(<[u8]>::len), is_there.then_some(bytes as usize));
        let refused = owned.transaction(|tx| {
            let Some(root) = tx.root("table") else { return Err(HeapError::NoSuchRoot) };
            tx.write(root, 0, &[7; 8])
        });
        assert!(refused.is_err());
        let mut were_lent = false;
        let moved = owned.transaction(|tx| {
            tx.replace("table", 1000, None, |_, _| were_lent = true)?;
            Err::<(), _>(HeapError::BadName)
        });
        assert!(moved.is_err() && !were_lent, "the old bytes and the new ones overlap");
        memory = owned.into_heap().close();
    }
}
