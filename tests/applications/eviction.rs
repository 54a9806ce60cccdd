//! Page eviction: the policy's words, and the applet against the same in Python.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::{assert_fails, python, serving, to_bytes, to_numbers};

#[test]
fn the_least_recently_used_page_goes_unless_it_is_hot() {
    let mut host = serving("eviction", None);
    let lru = to_bytes(&[10, 11, 12, 13]);
    assert_eq!(to_numbers(&host.call("evict", &lru)), [10], "nothing is hot at first");
    host.call("hot", &to_bytes(&[11, 10, 99]));
    assert_eq!(to_numbers(&host.call("evict", &lru)), [12]);
    host.call("hot", &to_bytes(&[13]));
    assert_eq!(
        to_numbers(&host.call("evict", &lru)),
        [10],
        "a hot list takes the place of the one before"
    );
    host.call("hot", &to_bytes(&[10, 11, 12, 13]));
    assert_eq!(to_numbers(&host.call("evict", &lru)), [10], "all are hot: the system's choice");
    host.call("hot", b"");
    assert_eq!(to_numbers(&host.call("evict", &lru)), [10]);
}

#[test]
fn lists_that_are_none_are_refused() {
    let mut host = serving("eviction", None);
    assert_fails(host.try_call("evict", b"").unwrap(), 1, "one number");
    assert_fails(host.try_call("evict", b"12345").unwrap(), 1, "one number");
    assert_fails(host.try_call("hot", b"123").unwrap(), 1, "at most 1024");
    assert_fails(host.try_call("hot", &[0; 4 * 1025]).unwrap(), 1, "at most 1024");
    host.call("hot", &[0; 4 * 1024]);
}

/// The eviction applet and the Python reference choose the same pages.
#[test]
fn eviction_applet_matches_the_python_reference() {
    let mut host = serving("eviction", None);
    let mut random = StdRng::seed_from_u64(6);
    let (mut chosen, mut input) = (String::new(), String::new());
    for _ in 0..300 {
        let mut list = |most: usize| -> Vec<u32> {
            (0..random.random_range(1..=most)).map(|_| random.random_range(0..100)).collect()
        };
        let (hot, pages) = (list(128), list(40));
        host.call("hot", &to_bytes(&hot));
        chosen += &format!("{}\n", to_numbers(&host.call("evict", &to_bytes(&pages)))[0]);
        input += &format!("{hot:?}; {pages:?}\n");
    }
    let script = "import sys, json, reference\n\
                  for line in sys.stdin:\n\
                  \x20   hot, pages = map(json.loads, line.split(';'))\n\
                  \x20   eviction = reference.Eviction()\n\
                  \x20   eviction.hot(hot)\n\
                  \x20   print(eviction.evict(pages))\n";
    if let Some(python) = python::run("eviction", script, &input) {
        assert_eq!(chosen, python);
    }
}

/// A call with several lists decides on each as a call of its own does.
#[test]
fn batch_decides_as_single_calls_do() {
    let mut host = serving("eviction", None);
    host.call("hot", &to_bytes(&[11, 10]));
    let lists = to_bytes(&[4, 10, 11, 12, 13, 11, 10, 13, 12, 11, 10, 11, 10]);
    assert_eq!(to_numbers(&host.call("evict_each", &lists)), [12, 13, 11]);
    for wrong in [&[][..], &[4], &[0, 1], &[4, 1, 2]] {
        assert_fails(host.try_call("evict_each", &to_bytes(wrong)).unwrap(), 1, "whole lists");
    }
}
