//! Reports of runs that go wrong.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::{Duration, Instant};

use common::{error_text, options, program_with};
use holdfast_wasm::{Finished, TrapCause, WasmError};

fn run_function(function: &str) -> Finished {
    let program = program_with("2", function, "(call $culprit)");
    holdfast_wasm::run(&program, &options(), None)
}

fn cause(finished: &Finished) -> TrapCause {
    match &finished.end {
        Err(WasmError::Trap(report)) => report.cause.clone(),
        other => panic!("{other:?}"),
    }
}

/// Guarantee: sandbox/own-status
#[test]
fn a_trap_names_the_function_and_the_cause() {
    let cases = [
        ("(func $culprit unreachable)", TrapCause::Unreachable, "panicked or aborted"),
        (
            "(func $culprit (drop (i32.load (i32.const 0x20000))))",
            TrapCause::OutOfBounds {
                address: Some(0x20000),
                place: Some("past the end of the applet's memory"),
            },
            "memory access out of bounds at 0x20000",
        ),
        (
            "(func $culprit (drop (i32.div_u (i32.const 1) (i32.load (i32.const 0)))))",
            TrapCause::DivisionByZero,
            "integer division by zero",
        ),
        (
            "(func $culprit (drop (i32.div_s (i32.const 0x80000000) (i32.sub (i32.load (i32.const 0)) (i32.const 1)))))",
            TrapCause::IntegerOverflow,
            "integer overflow",
        ),
        (
            "(func $culprit (drop (i32.trunc_f32_s (f32.div (f32.const 1) (f32.load (i32.const 0))))))",
            TrapCause::IntegerOverflow,
            "integer overflow",
        ),
        ("(func $culprit (call $culprit))", TrapCause::StackOverflow, "stack overflow"),
        (
            "(table 1 funcref) (func $culprit (call_indirect (i32.load (i32.const 0))))",
            TrapCause::BadIndirectCall { detail: "uninitialized element".to_owned() },
            "bad indirect call",
        ),
    ];
    for (function, expected, text) in cases {
        let finished = run_function(function);
        assert_eq!(cause(&finished), expected, "{function}");
        let message = error_text(&finished);
        assert!(message.contains("`culprit`") && message.contains(text), "{message}");
    }
}

#[test]
fn a_trap_reports_the_calls_that_led_to_it() {
    let finished = run_function("(func $inner unreachable) (func $culprit (call $inner))");
    let Err(WasmError::Trap(report)) = &finished.end else { panic!("{:?}", finished.end) };
    let names: Vec<_> = report.frames.iter().map(|frame| frame.function.as_deref()).collect();
    assert_eq!(names, [Some("inner"), Some("culprit"), Some("start")]);
    assert!(report.frames.iter().all(|frame| frame.module_offset.is_some()));
}

#[test]
fn names_are_shown_as_the_programmer_wrote_them() {
    let finished = run_function(
        "(func $_ZN5hello5world17h0123456789abcdefE unreachable)
         (func $culprit (call $_ZN5hello5world17h0123456789abcdefE))",
    );
    assert!(error_text(&finished).contains("`hello::world`"), "{}", error_text(&finished));
    let finished =
        run_function("(func $_ZN3foo3barEi unreachable) (func $culprit (call $_ZN3foo3barEi))");
    assert!(error_text(&finished).contains("`foo::bar(int)`"), "{}", error_text(&finished));
}

/// A pointer past the memory ends the applet with the reason of the host function.
#[test]
fn pointer_past_memory_ends_with_the_host_reason() {
    for call in [
        "(call $random_get (i32.const 0x1fff0) (i32.const 100))",
        "(call $poll_oneoff (i32.const 256) (i32.const 0x1fff8) (i32.const 1) (i32.const 0))",
    ] {
        let program = program_with("2", "", &format!("(call $exit {call})"));
        let finished = holdfast_wasm::run(&program, &options(), None);
        assert!(matches!(cause(&finished), TrapCause::HostCall { .. }), "{:?}", finished.end);
        assert!(error_text(&finished).contains("out of bounds"), "{}", error_text(&finished));
    }
}

/// A mangled name that expands to huge text costs little time and does not hide the cause of a
/// trap.
///
/// Guarantee: sandbox/terminal
#[test]
fn exponential_name_does_not_hide_a_trap() {
    // Six times fourteen to one: gigabytes of text from 300 bytes, asked for by each of the two
    // ways to a name.
    let mut name = "_Z1f1aIiE".to_owned();
    for (step, class) in "bcdefg".chars().enumerate() {
        let back = char::from_digit(2 * step as u32, 36).unwrap().to_ascii_uppercase();
        name.push_str(&format!("1{class}I{}E", format!("S{back}_").repeat(14)));
    }
    let function =
        format!("(func ${name} (drop (i32.load (i32.const -64)))) (func $culprit (call ${name}))",);
    let started = Instant::now();
    let finished = run_function(&function);
    let place = Some("past the end of the applet's memory");
    assert_eq!(cause(&finished), TrapCause::OutOfBounds { address: Some(0xffff_ffc0), place });
    assert!(error_text(&finished).contains("`_Z1f1aIiE1bI"), "{}", error_text(&finished));
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[test]
fn names_of_c_functions_are_not_taken_for_types() {
    for name in ["f", "i", "culprit"] {
        let wrapper = if name == "culprit" {
            String::new()
        } else {
            format!("(func $culprit (call ${name}))")
        };
        let finished = run_function(&format!("(func ${name} unreachable) {wrapper}"));
        assert!(
            error_text(&finished).contains(&format!("in `{name}`")),
            "{}",
            error_text(&finished)
        );
    }
}

/// Guarantee: sandbox/terminal
#[test]
fn control_characters_in_names_are_written_out() {
    let name = r#"$"\1b[31mX\1b]0;pwned\07\n\nholdfast: everything is fine""#;
    let finished =
        run_function(&format!("(func {name} unreachable) (func $culprit (call {name}))"));
    let text = error_text(&finished);
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert!(text.contains(r"\u{1b}[31mX") && text.contains(r"\n\nholdfast"), "{text}");

    let import = r#"(module (import "e\1b[2Jnv" "x\07" (func)) (memory (export "memory") 1) (func (export "_start")))"#;
    let program = holdfast_wasm::Program::from_bytes("import.wat", import).unwrap();
    let text = error_text(&holdfast_wasm::run(&program, &options(), None));
    assert!(
        !text.chars().any(char::is_control) && text.contains(r"e\u{1b}[2Jnv.x\u{7}"),
        "{text:?}"
    );
}
