//! Refuses functions that the compiler would take minutes or gigabytes for, before it begins.
//!
//! Compiling takes more than linear time and memory in some things that a hostile file has plenty of and ordinary ones
//! do not. What is counted here tells those apart; a file that passes takes seconds for any one function. All functions
//! together take time in proportion to the file, which [`crate::engine`] bounds.
//!
//! Invariants: one pass over the file, no recursion, memory for the locals of one function. Nothing is validated:
//! what cannot be read is left to the compiler, which says what is wrong.
#![forbid(unsafe_code)]

use std::ops::ControlFlow;

use wasmparser::{BinaryReaderError, FunctionBody, KnownCustom, Name, Operator, Parser, Payload, TypeRef};

use crate::error::WasmError;
use crate::names;

/// Code of one function in bytes; with less, time is about in proportion to it.
const BODY_BYTES_MAX: usize = 2 << 20;
/// Blocks, loops and conditions of one function.
const BLOCKS_MAX: usize = 1 << 15;
/// Loops among them: time grows with their square.
const LOOPS_MAX: usize = 1 << 12;
/// Blocks times the locals that are used in another block than the one that set them: each may be merged in each.
const MERGES_MAX: usize = 1 << 22;
/// More locals than that WebAssembly does not allow a function.
const LOCALS_MAX: usize = 50_000;

/// Checks every function of a binary module.
///
/// # Errors
/// [`WasmError::TooComplex`] names the first function that exceeds a limit.
pub(crate) fn check(applet: &str, module: &[u8]) -> Result<(), WasmError> {
    // An error is the compiler's to report.
    let Ok(ControlFlow::Break((function_index, excess))) = find(module) else { return Ok(()) };
    Err(WasmError::TooComplex {
        applet: applet.to_owned(),
        function_index,
        function: name_of(module, function_index).ok().flatten(),
        what: excess.what,
        found: excess.found,
        limit: excess.limit,
    })
}

struct Excess {
    what: &'static str,
    found: usize,
    limit: usize,
}

fn within(what: &'static str, found: usize, limit: usize) -> ControlFlow<Excess> {
    if found > limit { ControlFlow::Break(Excess { what, found, limit }) } else { ControlFlow::Continue(()) }
}

fn find(module: &[u8]) -> Result<ControlFlow<(u32, Excess)>, BinaryReaderError> {
    let mut index = 0;
    let mut locals = Locals::default();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    index += u32::from(matches!(import?.ty, TypeRef::Func(_) | TypeRef::FuncExact(_)));
                }
            }
            Payload::CodeSectionEntry(body) => {
                if let ControlFlow::Break(excess) = check_function(&body, &mut locals)? {
                    return Ok(ControlFlow::Break((index, excess)));
                }
                index += 1;
            }
            _ => {}
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn check_function(
    body: &FunctionBody<'_>,
    locals: &mut Locals,
) -> Result<ControlFlow<Excess>, BinaryReaderError> {
    if let ControlFlow::Break(excess) = within("bytes of code", body.range().len(), BODY_BYTES_MAX) {
        return Ok(ControlFlow::Break(excess));
    }
    locals.clear();
    let (mut blocks, mut loops) = (0, 0);
    let mut operators = body.get_operators_reader()?;
    while !operators.eof() {
        match operators.read()? {
            Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                blocks += 1;
                locals.next_block();
            }
            Operator::Loop { .. } => {
                (blocks, loops) = (blocks + 1, loops + 1);
                locals.next_block();
            }
            Operator::Else | Operator::End => locals.next_block(),
            Operator::LocalGet { local_index } => locals.used(local_index),
            Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => {
                locals.set(local_index);
            }
            _ => {}
        }
    }
    let merges = blocks * locals.across;
    let checked = [
        ("loops", loops, LOOPS_MAX),
        ("blocks and conditions", blocks, BLOCKS_MAX),
        ("merges of locals (blocks times locals that are used across them)", merges, MERGES_MAX),
    ];
    Ok(checked.into_iter().try_for_each(|(what, found, limit)| within(what, found, limit)))
}

/// Which locals of a function are used in another block than the one that set them. Those that are not, the many
/// temporaries of code that was built without optimisation, cost the compiler little.
#[derive(Default)]
struct Locals {
    /// For each local, the block that set it last (0 is the function's beginning), or [`ACROSS`].
    set_in: Vec<u32>,
    block: u32,
    across: usize,
}

/// Marks a local that is known to be used across blocks.
const ACROSS: u32 = u32::MAX;

impl Locals {
    fn clear(&mut self) {
        self.set_in.clear();
        (self.block, self.across) = (0, 0);
    }

    fn next_block(&mut self) {
        self.block += 1;
    }

    fn of(&mut self, local: u32) -> Option<&mut u32> {
        let index = local as usize;
        if index >= self.set_in.len() && index < LOCALS_MAX {
            self.set_in.resize(index + 1, 0);
        }
        self.set_in.get_mut(index)
    }

    fn set(&mut self, local: u32) {
        let block = self.block;
        if let Some(set_in) = self.of(local)
            && *set_in != ACROSS
        {
            *set_in = block;
        }
    }

    fn used(&mut self, local: u32) {
        let block = self.block;
        if let Some(set_in) = self.of(local)
            && *set_in != ACROSS
            && *set_in != block
        {
            *set_in = ACROSS;
            self.across += 1;
        }
    }
}

/// The name that the file gives a function.
fn name_of(module: &[u8], function_index: u32) -> Result<Option<String>, BinaryReaderError> {
    for payload in Parser::new(0).parse_all(module) {
        let Payload::CustomSection(section) = payload? else { continue };
        let KnownCustom::Name(parts) = section.as_known() else { continue };
        for part in parts {
            let Name::Function(functions) = part? else { continue };
            for naming in functions {
                let naming = naming?;
                if naming.index == function_index {
                    return Ok(Some(names::function(naming.name)));
                }
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excess(body: &str) -> Option<(Option<String>, &'static str)> {
        let text = format!(
            r#"(module (import "a" "b" (func)) (func) (func $big (local i32 i32) {body}) (func $other))"#
        );
        match check("a.wat", &wat::parse_str(text).unwrap()) {
            Ok(()) => None,
            Err(WasmError::TooComplex { function, function_index, what, found, limit, .. }) => {
                assert!(function_index == 2 && found > limit);
                Some((function, what))
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn nested(opening: &str, depth: usize) -> String {
        format!("{}{}", format!("{opening} ").repeat(depth), "end ".repeat(depth))
    }

    #[test]
    fn each_limit_is_refused_one_past_it_and_names_the_function() {
        let big = Some("big".to_owned());
        assert_eq!(excess(&nested("loop", LOOPS_MAX)), None);
        assert_eq!(excess(&nested("loop", LOOPS_MAX + 1)), Some((big.clone(), "loops")));
        assert_eq!(excess(&"block end ".repeat(BLOCKS_MAX)), None);
        assert_eq!(
            excess(&"block end ".repeat(BLOCKS_MAX + 1)),
            Some((big.clone(), "blocks and conditions"))
        );
        assert_eq!(excess(&"nop ".repeat(BODY_BYTES_MAX)), Some((big, "bytes of code")));
    }

    #[test]
    fn only_locals_that_are_used_across_blocks_count_as_merged() {
        let locals = 2 * MERGES_MAX / BLOCKS_MAX;
        let declared = "i32 ".repeat(locals);
        let body = |uses: &str| {
            let uses: String = (0..locals).map(|local| uses.replace('N', &local.to_string())).collect();
            format!("(local {declared}) {uses} {}", "block end ".repeat(BLOCKS_MAX - locals))
        };
        assert_eq!(excess(&body("local.get N local.set N ")), None);
        let temporaries = "block i32.const 1 local.set N local.get N drop end ";
        assert_eq!(excess(&body(temporaries)), None);
        let across = "block local.get N drop end ";
        let found = excess(&body(across)).map(|(_, what)| what);
        assert!(found.is_some_and(|what| what.starts_with("merges")), "{found:?}");
    }
}
