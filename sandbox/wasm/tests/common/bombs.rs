//! Small programs that are made to take a compiler gigabytes, minutes, or its stack: generated,
//! never stored.
//!
//! Some are past a limit of the gate, some pass it by a little, so that the limits of the
//! compiler's process are what stops them.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A program, and what there is too much of in it.
pub(crate) struct Bomb {
    pub(crate) name: &'static str,
    pub(crate) make: fn() -> Vec<u8>,
}

/// Bombs by name; each is made when it is wanted.
macro_rules! bombs {
    ($($name:literal => $make:expr,)*) => { vec![$(Bomb { name: $name, make: || $make }),*] };
}

const MIB: usize = 1 << 20;
const BLOCK: u8 = 0x02;
const LOOP: u8 = 0x03;
const CONDITION: u8 = 0x04;
/// Pieces of code that leave the stack as it was.
const SELECT: [u8; 9] = [0x20, 0, 0x20, 1, 0x20, 2, 0x1b, 0x21, 0];
const LOAD: [u8; 7] = [0x20, 0, 0x28, 2, 0, 0x21, 0];
const DIVIDE: [u8; 7] = [0x20, 0, 0x20, 1, 0x6d, 0x21, 0];

const I32: u8 = 0x7f;
const VOID: u8 = 0x40;
const END: u8 = 0x0b;

fn leb(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// `count` items, whose bytes follow.
fn list(count: usize, items: Vec<u8>) -> Vec<u8> {
    [leb(count as u64), items].concat()
}

fn sized(bytes: Vec<u8>) -> Vec<u8> {
    list(bytes.len(), bytes)
}

fn name(length: usize, number: usize) -> Vec<u8> {
    sized(format!("{number:0>length$}").into_bytes())
}

/// The type of a function with so many parameters and results, all `i32`.
fn ty(params: usize, results: usize) -> Vec<u8> {
    [vec![0x60], list(params, vec![I32; params]), list(results, vec![I32; results])].concat()
}

/// The body of a function with so many locals.
fn body(locals: usize, code: &[u8]) -> Vec<u8> {
    let locals =
        if locals == 0 { vec![0] } else { [vec![1], leb(locals as u64), vec![I32]].concat() };
    sized([&locals, code, &[END]].concat())
}

fn op(code: u8, index: u64) -> Vec<u8> {
    [vec![code], leb(index)].concat()
}

fn zeros(count: usize) -> Vec<u8> {
    [0x41, 0].repeat(count)
}

fn drops(count: usize) -> Vec<u8> {
    vec![0x1a; count]
}

/// Sections by number; what is not given is left out.
#[derive(Default, Clone)]
struct Module(Vec<(u8, Vec<u8>)>);

impl Module {
    fn with(mut self, section: u8, count: usize, items: Vec<u8>) -> Module {
        self.0.push((section, list(count, items)));
        self
    }

    fn types(self, types: &[(usize, usize)]) -> Module {
        let items = types.iter().flat_map(|(params, results)| ty(*params, *results)).collect();
        self.with(1, types.len(), items)
    }

    fn memory(self) -> Module {
        self.with(5, 1, vec![0, 1])
    }

    fn bytes(mut self) -> Vec<u8> {
        // The custom section, 0, goes last.
        self.0.sort_by_key(|(section, _)| match section {
            0 => 99,
            // Counts of data come before code.
            12 => 95,
            10 => 96,
            11 => 97,
            section => 2 * section,
        });
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        for (section, content) in self.0 {
            bytes.push(section);
            bytes.extend(sized(content));
        }
        bytes
    }
}

/// One function of the type 0, which is `() -> ()`, and these further types.
fn one_function(types: &[(usize, usize)], locals: usize, code: &[u8]) -> Vec<u8> {
    let types: Vec<_> = [(0, 0)].into_iter().chain(types.iter().copied()).collect();
    Module::default()
        .types(&types)
        .with(3, 1, vec![0])
        .memory()
        .with(10, 1, body(locals, code))
        .bytes()
}

fn functions(count: usize, locals: usize, code: &[u8]) -> Vec<u8> {
    let module = Module::default().types(&[(0, 0)]).with(3, count, vec![0; count]).memory();
    module.with(10, count, body(locals, code).repeat(count)).bytes()
}

/// Blocks of the kind `code` and the type 1, one in the other.
fn nested(code: u8, depth: usize, values: usize) -> Vec<u8> {
    let inner = [op(code, 1).repeat(depth), vec![END; depth]].concat();
    one_function(&[(values, values)], 0, &[zeros(values), inner, drops(values)].concat())
}

/// Conditions, one after the other, each of which may set one of the locals.
fn merging(conditions: usize, locals: usize) -> Vec<u8> {
    let mut code = Vec::new();
    for step in 0..conditions as u64 {
        let local = |factor| (step * factor) % locals as u64;
        code.extend(
            [
                op(0x20, local(7)),
                vec![0x04, VOID],
                op(0x20, local(13)),
                op(0x21, local(11)),
                vec![END],
            ]
            .concat(),
        );
    }
    one_function(&[], locals, &code)
}

/// Calls of a function with so many parameters and results.
fn calls(count: usize, values: usize, indirect: bool) -> Vec<u8> {
    let call = if indirect { [vec![0x41, 0], vec![0x11, 1, 0]].concat() } else { op(0x10, 1) };
    let first = [zeros(values), call.repeat(count), drops(values)].concat();
    let second: Vec<u8> = (0..values as u64).flat_map(|local| op(0x20, local)).collect();
    let module = Module::default().types(&[(0, 0), (values, values)]).with(3, 2, vec![0, 1]);
    let module = module.with(4, 1, vec![0x70, 0, 1]).memory();
    module.with(10, 2, [body(0, &first), body(0, &second)].concat()).bytes()
}

fn tables(count: usize, targets: usize, values: usize) -> Vec<u8> {
    let table = [vec![0x41, 0, 0x0e], list(targets, vec![0; targets]), leb(0)].concat();
    let block = [zeros(values), op(0x02, 1), table, vec![END], drops(values)].concat();
    one_function(&[(values, values)], 0, &block.repeat(count))
}

fn imports(count: usize, length: usize) -> Vec<u8> {
    let items =
        (0..count).flat_map(|number| [name(length, number), name(1, 0), vec![0, 0]].concat());
    Module::default().types(&[(0, 0)]).with(2, count, items.collect()).bytes()
}

fn exports(count: usize, length: usize) -> Vec<u8> {
    let items = (0..count).flat_map(|number| [name(length, number), vec![0, 0]].concat());
    let module =
        Module::default().types(&[(0, 0)]).with(3, 1, vec![0]).with(7, count, items.collect());
    module.with(10, 1, body(0, &[])).bytes()
}

fn function_names(count: usize) -> Vec<u8> {
    let items = (0..count).flat_map(|index| [leb(index as u64), name(1, 0)].concat()).collect();
    let part = [vec![1], sized(list(count, items))].concat();
    let mut module = functions(1, 0, &[]);
    module.push(0);
    module.extend(sized([sized(b"name".to_vec()), part].concat()));
    module
}

fn elements(segments: usize, items: usize) -> Vec<u8> {
    let segment = [vec![0, 0x41, 0, END], list(items, vec![0; items])].concat();
    let module = Module::default().types(&[(0, 0)]).with(3, 1, vec![0]);
    let module = module.with(4, 1, [vec![0x70, 0], leb(items as u64)].concat());
    module.with(9, segments, segment.repeat(segments)).with(10, 1, body(0, &[])).bytes()
}

fn data(segments: usize, bytes: usize) -> Vec<u8> {
    let segment = [vec![0, 0x41, 0, END], sized(vec![7; bytes])].concat();
    let module = Module::default().types(&[(0, 0)]).with(3, 1, vec![0]).memory();
    module.with(11, segments, segment.repeat(segments)).with(10, 1, body(0, &[])).bytes()
}

fn globals(count: usize, additions: usize) -> Vec<u8> {
    let value = [vec![0x41, 0], [0x41, 1, 0x6a].repeat(additions), vec![END]].concat();
    Module::default().with(6, count, [vec![I32, 0], value].concat().repeat(count)).bytes()
}

/// One function of that many bytes, of a piece of code that leaves the stack as it was.
fn repeated(piece: &[u8], bytes: usize) -> Vec<u8> {
    one_function(&[], 4, &piece.repeat(bytes / piece.len()))
}

fn types(count: usize, params: usize) -> Vec<u8> {
    Module::default().with(1, count, ty(params, 0).repeat(count)).bytes()
}

fn vectors() -> Vec<u8> {
    let constant = |byte| [&[0xfd, 12][..], &[byte; 16]].concat();
    repeated(&[&constant(1)[..], &constant(2), &[0xfd, 0x95, 1, 0x1a]].concat(), 2 * MIB - 100)
}

/// One after the other, each carrying 1000 values out of its function.
fn returns() -> Vec<u8> {
    let code = [vec![0x41, 1, CONDITION, VOID], zeros(1000), vec![0x0f, END]].concat().repeat(1000);
    let module = Module::default().types(&[(0, 1000)]).with(3, 1, vec![0]);
    module.with(10, 1, body(0, &[code, zeros(1000)].concat())).bytes()
}

fn open_conditions() -> Vec<u8> {
    let open = [vec![0x41, 1], vec![CONDITION, VOID]].concat().repeat(30_000);
    one_function(&[], 0, &[open, vec![END; 30_000]].concat())
}

fn custom_section(bytes: usize) -> Vec<u8> {
    let mut module = functions(1, 0, &[]);
    module.push(0);
    module.extend(sized([name(1, 0), vec![0; bytes]].concat()));
    module
}

fn cut(keep: fn(usize) -> usize) -> Vec<u8> {
    let mut whole = functions(100, 10, &SELECT.repeat(100));
    whole.truncate(keep(whole.len()));
    whole
}

fn huge_count() -> Vec<u8> {
    [&functions(1, 0, &[])[..8], &[3, 6], &leb(u64::from(u32::MAX)), &[0]].concat()
}

fn noise() -> Vec<u8> {
    let mut noise = b"\0asm\x01\0\0\0".to_vec();
    noise.resize(8 + MIB, 0);
    SmallRng::seed_from_u64(7).fill_bytes(&mut noise[8..]);
    noise
}

fn text(content: impl AsRef<str>) -> Vec<u8> {
    format!("(module {})", content.as_ref()).into_bytes()
}

/// All of them.
pub(crate) fn all() -> Vec<Bomb> {
    bombs![
        "loops with 1000 values, 500 deep" => nested(LOOP, 500, 1000),
        "loops with 1000 values, 1000 deep" => nested(LOOP, 1000, 1000),
        "loops with 500 values, 130 deep" => nested(LOOP, 130, 500),
        "loops without values, 4000 deep" => nested(LOOP, 4000, 0),
        "blocks with 1000 values, 64 deep" => nested(BLOCK, 64, 1000),
        "blocks without values, 30,000 deep" => nested(BLOCK, 30_000, 0),
        "30,000 conditions that merge 139 locals" => merging(30_000, 139),
        "4000 conditions that merge 1000 locals" => merging(4000, 1000),
        "30,000 conditions that merge 1000 locals" => merging(30_000, 1000),
        "conditions without an else, 30,000 deep" => open_conditions(),
        "5000 calls with 1000 values" => calls(5000, 1000, false),
        "1000 calls with 1000 values" => calls(1000, 1000, false),
        "1000 indirect calls with 1000 values" => calls(1000, 1000, true),
        "1000 returns of 1000 values" => returns(),
        "a table of 2 million branches" => tables(1, 2_000_000, 0),
        "200 tables of 9000 branches" => tables(200, 9000, 0),
        "a table of 20,000 branches with 100 values" => tables(1, 20_000, 100),
        "20,000 functions of 50,000 locals" => functions(20_000, 50_000, &[]),
        "300 functions of 50,000 locals" => functions(300, 50_000, &[]),
        "a million functions" => functions(1_000_000, 0, &[]),
        "250,000 functions" => functions(250_000, 0, &[]),
        "1000 functions of 20 KB" => functions(1000, 4, &DIVIDE.repeat(20_000 / DIVIDE.len())),
        "10 functions of 2 MB" => functions(10, 4, &LOAD.repeat(2_000_000 / LOAD.len())),
        "20,000 types of 1000 parameters" => types(20_000, 1000),
        "1000 types of 1000 parameters" => types(1000, 1000),
        "a million types" => types(1_000_000, 0),
        "20,000 imports with long names" => imports(20_000, 500),
        "4000 imports with long names" => imports(4000, 1000),
        "100,000 exports with long names" => exports(100_000, 200),
        "30,000 exports" => exports(30_000, 100),
        "5 million names of functions" => function_names(5_000_000),
        "500,000 names of functions" => function_names(500_000),
        "a custom section of 32 MB" => custom_section(32 * MIB),
        "10 million elements" => elements(1, 10_000_000),
        "a million elements" => elements(1, 1_000_000),
        "100,000 segments of elements" => elements(100_000, 1),
        "100,000 data segments" => data(100_000, 1),
        "30,000 data segments" => data(30_000, 1),
        "a million globals" => globals(1_000_000, 0),
        "a constant of a million additions" => globals(1, 1_000_000),
        "100 constants of 3000 additions" => globals(100, 3000),
        "a chain of 230,000 selects" => repeated(&SELECT, 2 * MIB - 100),
        "100,000 operations on vectors" => vectors(),
        "300,000 loads" => repeated(&LOAD, 2 * MIB - 100),
        "300,000 divisions" => repeated(&DIVIDE, 2 * MIB - 100),
        "half a million values on the stack" => one_function(&[], 0, &[zeros(500_000), drops(500_000)].concat()),
        "unreachable code of 2 MB" => repeated(&[0x00, 0x41, 0, 0x1a], 2 * MIB - 100),
        "a memory of 64 bits" => Module::default().with(5, 1, vec![4, 1]).bytes(),
        "100 memories" => Module::default().with(5, 100, [0, 1].repeat(100)).bytes(),
        "100,000 structures of the garbage collector" => Module::default().with(1, 100_000, [0x5f, 2, I32, 0, I32, 1].repeat(100_000)).bytes(),
        "a table of 100 million entries" => Module::default().with(4, 1, [vec![0x70, 0], leb(100_000_000)].concat()).bytes(),
        "text of 96 MB" => text("(func)".repeat(16 * MIB)),
        "text with an error in a line of 6 MB" => text(format!("(func nop {} bad)", "nop ".repeat(1_500_000))),
        "text with an error at the start of a line of 900 KB" => text(format!("bad {}", "nop ".repeat(225_000))),
        "expressions in text, 100,000 deep" => text(format!("(func {})", "(drop ".repeat(100_000))),
        "100,000 functions in text" => text("(func)".repeat(100_000)),
        "a name of 900 KB in text" => text(format!("(func (call ${}))", "n".repeat(900_000))),
        "a module cut in the middle" => cut(|bytes| bytes / 2),
        "a module cut at its last byte" => cut(|bytes| bytes - 1),
        "a count of 4 billion functions" => huge_count(),
        "noise after the header" => noise(),
    ]
}
