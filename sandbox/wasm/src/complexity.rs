//! Refuses what the compiler would take minutes or gigabytes for, before it begins: a cheap first
//! gate. What passes it is bounded by the limits of the compiler's process ([`crate::compiler`]).
//!
//! Compiling takes more than linear time and memory in some things that a hostile file has plenty
//! of and ordinary ones do not: values that cross blocks, calls and branches, and locals. Of other
//! things the compiler's result, which the host loads, has more than the file has. What is counted
//! here tells those files apart.
//!
//! Invariants: one pass over the file, no recursion, memory for the types of the file and the
//! locals and open blocks of one function. Nothing is validated: what cannot be read is left to the
//! compiler, which says what is wrong.
#![forbid(unsafe_code)]

use std::ops::ControlFlow;

use wasmparser::{
    BinaryReaderError, BlockType, ConstExpr, DataKind, ElementItems, ElementKind, FunctionBody,
    KnownCustom, Name, Operator, Parser, Payload, TypeRef,
};

use crate::names;

/// Code of one function in bytes; with less, time is about in proportion to it.
const BODY_BYTES_MAX: usize = 2 << 20;
/// Blocks, loops and conditions of one function.
const BLOCKS_MAX: usize = 1 << 15;
/// Loops among them: time grows with their square.
const LOOPS_MAX: usize = 1 << 12;
/// Blocks times the locals that are used in another block than the one that set them: each may be
/// merged in each.
const MERGES_MAX: usize = 1 << 22;
/// More locals than that WebAssembly does not allow a function.
const LOCALS_MAX: usize = 50_000;
/// Parameters and results of all blocks of a function: each is a value that is merged.
const BLOCK_VALUES_MAX: usize = 1 << 17;
/// Parameters and results of all calls of a function.
const CALL_VALUES_MAX: usize = 1 << 21;
/// Values that all branches of a function carry; each target of a `br_table` counts.
const BRANCH_VALUES_MAX: usize = 1 << 21;

/// Locals of all functions together.
const MODULE_LOCALS_MAX: usize = 1 << 24;
/// Parameters and results of all types of functions.
const TYPE_VALUES_MAX: usize = 1 << 20;
/// Functions, imported ones included. The largest programs have half as many.
const FUNCTIONS_MAX: usize = 1 << 18;
/// Bytes of the names of imports and exports, which the host keeps in memory.
const NAME_BYTES_MAX: usize = 4 << 20;
/// Entries in the list of the functions' names.
const FUNCTION_NAMES_MAX: usize = 1 << 19;
/// Segments of data, and segments of elements.
const SEGMENTS_MAX: usize = 1 << 15;
/// Elements of all segments: as many as all tables of an applet may have.
const ELEMENTS_MAX: usize = 1 << 20;
/// Bytes of all constant expressions: initial values of globals, places of segments.
const CONSTANT_BYTES_MAX: usize = 1 << 20;

/// What a program has too much of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Index and name of the function; `None` when it is the whole program.
    pub(crate) function: Option<(u32, Option<String>)>,
    pub(crate) what: String,
    pub(crate) found: usize,
    pub(crate) limit: usize,
}

/// Checks a binary module; the excess is the first one that is found.
pub(crate) fn check(module: &[u8]) -> Result<(), Excess> {
    // An error is the compiler's to report.
    let Ok(ControlFlow::Break((function, over))) = find(module) else { return Ok(()) };
    let LimitExceeded { what, found, limit } = over;
    let function = function.map(|index| (index, name_of(module, index).ok().flatten()));
    Err(Excess { function, what: what.to_owned(), found, limit })
}

struct LimitExceeded {
    what: &'static str,
    found: usize,
    limit: usize,
}

fn within(what: &'static str, found: usize, limit: usize) -> ControlFlow<LimitExceeded> {
    if found > limit {
        ControlFlow::Break(LimitExceeded { what, found, limit })
    } else {
        ControlFlow::Continue(())
    }
}

/// Counts of a whole module, and what its functions refer to.
#[derive(Default)]
struct ModuleCounts {
    /// Number of parameters and of results of each type.
    types: Vec<(u32, u32)>,
    /// The type of each function, imported ones first.
    functions: Vec<u32>,
    type_values: usize,
    name_bytes: usize,
    function_names: usize,
    data_segments: usize,
    element_segments: usize,
    elements: usize,
    constant_bytes: usize,
    locals: usize,
}

impl ModuleCounts {
    fn type_of(&self, index: u32) -> (u32, u32) {
        self.types.get(index as usize).copied().unwrap_or_default()
    }

    fn values_of(&self, index: u32) -> usize {
        let (params, results) = self.type_of(index);
        params as usize + results as usize
    }

    fn constant(&mut self, expression: &ConstExpr<'_>) {
        self.constant_bytes += expression.get_binary_reader().bytes_remaining();
    }

    fn check(&self) -> ControlFlow<LimitExceeded> {
        let checked = [
            ("parameters and results of its types", self.type_values, TYPE_VALUES_MAX),
            ("functions", self.functions.len(), FUNCTIONS_MAX),
            ("bytes of names of imports and exports", self.name_bytes, NAME_BYTES_MAX),
            ("names of functions", self.function_names, FUNCTION_NAMES_MAX),
            ("data segments", self.data_segments, SEGMENTS_MAX),
            ("element segments", self.element_segments, SEGMENTS_MAX),
            ("elements of tables", self.elements, ELEMENTS_MAX),
            ("bytes of constant expressions", self.constant_bytes, CONSTANT_BYTES_MAX),
            ("locals in all functions", self.locals, MODULE_LOCALS_MAX),
        ];
        checked.into_iter().try_for_each(|(what, found, limit)| within(what, found, limit))
    }

    /// Counts everything but the bodies of functions.
    fn count(&mut self, payload: Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::TypeSection(types) => {
                for ty in types.into_iter_err_on_gc_types() {
                    let ty = ty?;
                    let (params, results) = (ty.params().len(), ty.results().len());
                    self.types.push((params as u32, results as u32));
                    self.type_values += params + results;
                    if self.type_values > TYPE_VALUES_MAX {
                        return Ok(());
                    }
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import?;
                    self.name_bytes += import.module.len() + import.name.len();
                    if let TypeRef::Func(index) | TypeRef::FuncExact(index) = import.ty {
                        self.functions.push(index);
                    }
                }
            }
            Payload::FunctionSection(functions) => {
                for index in functions {
                    self.functions.push(index?);
                    if self.functions.len() > FUNCTIONS_MAX {
                        return Ok(());
                    }
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    self.name_bytes += export?.name.len();
                }
            }
            Payload::GlobalSection(globals) => {
                for global in globals {
                    self.constant(&global?.init_expr);
                }
            }
            Payload::ElementSection(segments) => {
                self.element_segments += segments.count() as usize;
                for segment in segments {
                    let segment = segment?;
                    if let ElementKind::Active { offset_expr, .. } = segment.kind {
                        self.constant(&offset_expr);
                    }
                    self.elements += match segment.items {
                        ElementItems::Functions(items) => items.count() as usize,
                        ElementItems::Expressions(_, items) => {
                            self.constant_bytes += items.range().len();
                            items.count() as usize
                        }
                    };
                }
            }
            Payload::DataSection(segments) => {
                self.data_segments += segments.count() as usize;
                for segment in segments {
                    if let DataKind::Active { offset_expr, .. } = segment?.kind {
                        self.constant(&offset_expr);
                    }
                }
            }
            Payload::CustomSection(section) => {
                // What is wrong in a custom section does not make a module invalid.
                if let KnownCustom::Name(parts) = section.as_known() {
                    for part in parts.into_iter().map_while(Result::ok) {
                        if let Name::Function(names) = part {
                            self.function_names += names.count() as usize;
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

type Found = ControlFlow<(Option<u32>, LimitExceeded)>;

fn find(module: &[u8]) -> Result<Found, BinaryReaderError> {
    let mut counts = ModuleCounts::default();
    let mut scratch = Scratch::default();
    let mut bodies = None;
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::CodeSectionEntry(body) => {
                // Imports and declarations come before the first body.
                let index: &mut usize = bodies
                    .get_or_insert_with(|| counts.functions.len().saturating_sub(scratch.bodies));
                // One that cannot be read is refused when it is compiled; others may be compiled
                // before.
                let checked = check_function(&body, *index, &mut counts, &mut scratch);
                if let Ok(ControlFlow::Break(over)) = checked {
                    return Ok(ControlFlow::Break((Some(*index as u32), over)));
                }
                *index += 1;
            }
            Payload::CodeSectionStart { count, .. } => scratch.bodies = count as usize,
            other => counts.count(other)?,
        }
        if let ControlFlow::Break(over) = counts.check() {
            return Ok(ControlFlow::Break((None, over)));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// What is used again for each function.
#[derive(Default)]
struct Scratch {
    /// Bodies in the code section.
    bodies: usize,
    locals: Locals,
    /// For each open block, how many values a branch to it carries.
    labels: Vec<u32>,
}

/// Values that cross the blocks, calls and branches of one function.
#[derive(Default)]
struct Values {
    blocks: usize,
    calls: usize,
    branches: usize,
}

fn check_function(
    body: &FunctionBody<'_>,
    index: usize,
    module: &mut ModuleCounts,
    scratch: &mut Scratch,
) -> Result<ControlFlow<LimitExceeded>, BinaryReaderError> {
    if let ControlFlow::Break(over) = within("bytes of code", body.range().len(), BODY_BYTES_MAX) {
        return Ok(ControlFlow::Break(over));
    }
    let (locals, labels) = (&mut scratch.locals, &mut scratch.labels);
    locals.clear();
    labels.clear();
    for group in body.get_locals_reader()? {
        module.locals = module.locals.saturating_add(group?.0 as usize);
    }
    let module = &*module;
    let results = module.functions.get(index).map_or(0, |ty| module.type_of(*ty).1);
    labels.push(results);
    let (mut blocks, mut loops) = (0, 0);
    let mut values = Values::default();
    let mut operators = body.get_operators_reader()?;
    while !operators.eof() {
        let operator = operators.read()?;
        match &operator {
            Operator::Block { blockty }
            | Operator::If { blockty }
            | Operator::Loop { blockty }
            | Operator::TryTable { try_table: wasmparser::TryTable { ty: blockty, .. } } => {
                let (params, results) = match blockty {
                    BlockType::Empty => (0, 0),
                    BlockType::Type(_) => (0, 1),
                    BlockType::FuncType(ty) => module.type_of(*ty),
                };
                let is_loop = matches!(operator, Operator::Loop { .. });
                (blocks, loops) = (blocks + 1, loops + usize::from(is_loop));
                labels.push(if is_loop { params } else { results });
                values.blocks += params as usize + results as usize;
                locals.next_block();
            }
            Operator::Else => locals.next_block(),
            Operator::End => {
                labels.pop();
                locals.next_block();
            }
            Operator::Br { relative_depth } | Operator::BrIf { relative_depth } => {
                values.branches += carried(labels, *relative_depth);
            }
            Operator::BrTable { targets } => {
                for target in targets.targets() {
                    values.branches += carried(labels, target?);
                }
                values.branches += carried(labels, targets.default());
            }
            Operator::Return => values.branches += results as usize,
            Operator::Call { function_index } | Operator::ReturnCall { function_index } => {
                let ty = module.functions.get(*function_index as usize);
                values.calls += ty.map_or(0, |ty| module.values_of(*ty));
            }
            Operator::CallIndirect { type_index, .. }
            | Operator::ReturnCallIndirect { type_index, .. } => {
                values.calls += module.values_of(*type_index);
            }
            Operator::LocalGet { local_index } => locals.used(*local_index),
            Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => {
                locals.set(*local_index);
            }
            _ => {}
        }
    }
    let merges = blocks * locals.across;
    let checked = [
        ("loops", loops, LOOPS_MAX),
        ("blocks and conditions", blocks, BLOCKS_MAX),
        ("merges of locals (blocks times locals that are used across them)", merges, MERGES_MAX),
        ("parameters and results of blocks", values.blocks, BLOCK_VALUES_MAX),
        ("parameters and results of calls", values.calls, CALL_VALUES_MAX),
        ("values that branches carry", values.branches, BRANCH_VALUES_MAX),
    ];
    Ok(checked.into_iter().try_for_each(|(what, found, limit)| within(what, found, limit)))
}

/// How many values a branch to the block at this depth carries.
fn carried(labels: &[u32], depth: u32) -> usize {
    let label = labels.len().checked_sub(1 + depth as usize).and_then(|index| labels.get(index));
    label.map_or(0, |values| *values as usize)
}

/// Which locals of a function are used in another block than the one that set them. Those that are
/// not, the many temporaries of code that was built without optimisation, cost the compiler little.
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

    type Named = Option<(Option<String>, String)>;

    /// What is found in a module with a few types and this body.
    fn excess(body: &str) -> Named {
        let text = format!(
            r#"(module (type $wide (func (param i32 i32 i32) (result i32 i32 i32))) (import "a" "b" (func))
               (func $big (local i32 i32) {body}) (func $other)
               (func $threes (type $wide) (local.get 0) (local.get 1) (local.get 2)))"#
        );
        let excess = check(&wat::parse_str(text).unwrap()).err()?;
        assert!(excess.found > excess.limit);
        let (index, name) = excess.function?;
        assert_eq!(index, 1);
        Some((name, excess.what))
    }

    fn nested(opening: &str, depth: usize) -> String {
        format!("{}{}", format!("{opening} ").repeat(depth), "end ".repeat(depth))
    }

    /// A function one past any complexity limit is refused, and the error names the function.
    ///
    /// Guarantee: sandbox/compile-bounds
    /// Guarantee: sandbox/compile-time
    #[test]
    fn complexity_limit_names_the_function() {
        let big = |what: &str| Some((Some("big".to_owned()), what.to_owned()));
        assert_eq!(excess(&nested("loop", LOOPS_MAX)), None);
        assert_eq!(excess(&nested("loop", LOOPS_MAX + 1)), big("loops"));
        assert_eq!(excess(&"block end ".repeat(BLOCKS_MAX)), None);
        assert_eq!(excess(&"block end ".repeat(BLOCKS_MAX + 1)), big("blocks and conditions"));
        assert_eq!(excess(&"nop ".repeat(BODY_BYTES_MAX)), big("bytes of code"));
    }

    /// Guarantee: sandbox/compile-bounds
    /// Guarantee: sandbox/compile-time
    #[test]
    fn values_of_blocks_calls_and_branches_count() {
        let big = |what: &str| Some((Some("big".to_owned()), what.to_owned()));
        let push = "i32.const 1 i32.const 2 i32.const 3";
        let drop = "drop drop drop";
        let body = |item: &str, times: usize| {
            format!("{push} {} {drop}", format!("{item} ").repeat(times))
        };
        // Six values each.
        let block = |times| body("block (type $wide) end", times);
        assert_eq!(excess(&block(BLOCK_VALUES_MAX / 6)), None);
        assert_eq!(
            excess(&block(BLOCK_VALUES_MAX / 6 + 1)),
            big("parameters and results of blocks")
        );
        let call = |times| body("call $threes", times);
        assert_eq!(excess(&call(CALL_VALUES_MAX / 6)), None);
        assert_eq!(excess(&call(CALL_VALUES_MAX / 6 + 1)), big("parameters and results of calls"));
        let table = |targets: usize| {
            format!(
                "{push} block (type $wide) i32.const 0 br_table {} end {drop}",
                "0 ".repeat(targets)
            )
        };
        assert_eq!(excess(&table(BRANCH_VALUES_MAX / 3)), None);
        assert_eq!(excess(&table(BRANCH_VALUES_MAX / 3 + 1)), big("values that branches carry"));
    }

    /// Guarantee: sandbox/compile-bounds
    /// Guarantee: sandbox/compile-time
    #[test]
    fn segments_and_names_of_the_module_count() {
        let what =
            |text: String| check(&wat::parse_str(text).unwrap()).err().map(|excess| excess.what);
        let data =
            |count| format!("(module (memory 1) {})", r#"(data (i32.const 0) "")"#.repeat(count));
        assert_eq!(what(data(1000)), None);
        assert_eq!(what(data(SEGMENTS_MAX + 1)).as_deref(), Some("data segments"));
        let elements = |count| format!("(module (func $f) {})", "(elem func $f)".repeat(count));
        assert_eq!(what(elements(SEGMENTS_MAX + 1)).as_deref(), Some("element segments"));
        let wide = format!("(type (func (param {})))", "i32 ".repeat(1000))
            .repeat(TYPE_VALUES_MAX / 1000 + 1);
        assert_eq!(
            what(format!("(module {wide})")).as_deref(),
            Some("parameters and results of its types")
        );
        let long = format!(r#"(import "a" "{}" (func))"#, "n".repeat(90_000)).repeat(50);
        assert_eq!(
            what(format!("(module {long})")).as_deref(),
            Some("bytes of names of imports and exports")
        );
    }

    /// Only locals that are used across blocks count as merges.
    #[test]
    fn only_locals_used_across_blocks_are_merges() {
        let locals = 2 * MERGES_MAX / BLOCKS_MAX;
        let declared = "i32 ".repeat(locals);
        let body = |uses: &str| {
            let uses: String =
                (0..locals).map(|local| uses.replace('N', &local.to_string())).collect();
            format!("(local {declared}) {uses} {}", "block end ".repeat(BLOCKS_MAX - locals))
        };
        assert_eq!(excess(&body("local.get N local.set N ")), None);
        let temporaries = "block i32.const 1 local.set N local.get N drop end ";
        assert_eq!(excess(&body(temporaries)), None);
        let across = "block local.get N drop end ";
        let found = excess(&body(across)).map(|(_, what)| what);
        assert!(found.as_ref().is_some_and(|what| what.starts_with("merges")), "{found:?}");
    }
}
