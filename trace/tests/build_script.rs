//! The decisions of the build script: without clang the build goes on without the BPF backend, and
//! with a clang that refuses the programs it ends. (What the command then says of itself:
//! `src/bpf/absent.rs`.)

#![forbid(unsafe_code)]

#[path = "../build/clang.rs"]
mod clang;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use clang::{Compiled, compile};

/// The build succeeds without clang and fails if clang reports an error.
///
/// Guarantee: trace/no-privilege
#[test]
fn build_needs_no_clang_but_stops_at_its_errors() {
    let place = tempfile::tempdir().expect("a place");
    let [source, object] = ["program.c", "program.o"].map(|name| place.path().join(name));
    let with = |clang: &str, text: &str| {
        fs::write(&source, text).expect("room");
        compile(OsStr::new(clang), place.path(), Path::new(&source), &object)
    };
    let missing = with("/no/such/clang", "int answer = 42;");
    assert!(
        matches!(&missing, Compiled::NoCompiler(error) if error.kind() == std::io::ErrorKind::NotFound)
    );
    let refused = with("false", "int answer = 42;");
    assert!(matches!(refused, Compiled::Refused(_)), "{refused:?}");
    assert!(!object.exists());
    match with("clang", "int answer = 42;") {
        Compiled::Done => assert!(object.exists()),
        Compiled::NoCompiler(error) => return println!("not run: clang cannot be run: {error}"),
        Compiled::Refused(why) => panic!("{why}"),
    }
    let wrong = with("clang", "int answer = ;");
    assert!(
        matches!(&wrong, Compiled::Refused(why) if why.contains("expected expression")),
        "{wrong:?}"
    );
}
