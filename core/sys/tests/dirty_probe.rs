//! Trying out the ways to find changed pages leaves nothing behind. Alone in its process, because
//! it counts what the process has.

use holdfast_sys::dirty::{Kind, available, best};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

/// Guarantee: heap/dirty-pages
#[test]
fn trying_a_tracker_out_leaves_no_descriptor_and_no_mapping() {
    let before = descriptors();
    for kind in Kind::ALL {
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
