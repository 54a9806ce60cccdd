//! Trying out the ways to find changed pages leaves nothing behind. Alone in its process, because
//! it counts what the process has.

use holdfast_sys::dirty::{DirtyMethod, available, best};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

/// Trying a tracker out leaves no descriptor and no mapping.
///
/// Guarantee: heap/dirty-pages
#[test]
fn tracker_trial_leaves_nothing_behind() {
    let before = descriptors();
    for kind in DirtyMethod::ALL {
        match available(kind).refusal() {
            None => println!("{kind} works"),
            Some(error) => println!("not run: {kind} (the kernel says: {error})"),
        }
    }
    println!("best: {}", best());
    assert_eq!(descriptors(), before);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("holdfast-probe"), "{maps}");
}
