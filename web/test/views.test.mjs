// Typed values of JavaScript in portable heaps, shared with applets of `holdfast call`.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { APPLETS, HOLDFAST } from "./browser.mjs";
import { heapTab } from "./views-tab.mjs";

const LIMIT = 16 * 2 ** 20;
let folder, environment;

before(() => {
  folder = mkdtempSync(join(tmpdir(), "holdfast-views-"));
  environment = {
    ...process.env, HOLDFAST_HOME: join(folder, "home"), HOLDFAST_POOL: join(folder, "pool"),
  };
});
after(() => rmSync(folder, { recursive: true, force: true }));

const holdfast = (...args) =>
  execFileSync(HOLDFAST, args, { env: environment, timeout: 60_000 });
/** A function of the applet `portable`, with the ledger in this heap. */
const ledger = (applet, heap, name) =>
  holdfast("call", "--key", "default", "--heap", `book=${heap}`, "--heap-size", "16MiB",
    join(APPLETS, applet), name, "book");
const look = (heap) => ledger("portable.wasm", heap, "look").readUInt32LE(0);

/** The types of `applets/portable/ledger.h`, in the worker. */
async function declare({ array, ref, struct, u32, u64, u8 }, kept) {
  kept.Entry = struct("entry",
    { older: ref("entry"), below: ref("entry"), number: u64, by: array(u8, 8) }, { version: 1 });
  kept.Ledger = struct("ledger", {
    newest: ref(kept.Entry), count: u32, sum: u64, shelves: array(ref(kept.Entry), 8),
  }, { version: 1 });
  /** As `ledger_add` of C. */
  kept.add = (heap, by) => heap.transaction(() => {
    const book = kept.Ledger.open(heap, "ledger") ?? kept.Ledger.create(heap, "ledger");
    const count = book.count + 1, shelf = count % 8;
    const entry = kept.Entry.new(heap, {
      older: book.newest, below: book.shelves.get(shelf), number: BigInt(count),
      by: new TextEncoder().encode(by),
    });
    book.newest = entry;
    book.shelves.set(shelf, entry);
    book.count = count;
    book.sum += BigInt(count);
  });
  kept.list = (heap) => {
    const entries = [];
    for (let at = kept.Ledger.open(heap, "ledger").newest; at !== null; at = at.older) {
      entries.push(`${at.number} ${new TextDecoder().decode(at.by).replaceAll("\0", "")}`);
    }
    return entries;
  };
}

// Guarantee: web/views
test("a ledger is kept by an applet, a native one and JavaScript in turn", async () => {
  ledger("portable.wasm", "out", "add");
  ledger("portable", "out", "add");
  holdfast("heap", "export", "out", join(folder, "out"));
  const { run, step } = await heapTab();
  const base64 = readFileSync(join(folder, "out")).toString("base64");
  await step("importHeap", { name: "book", base64 });
  await run(declare);
  const listed = await run(async ({ PersistentHeap }, kept) => {
    const heap = await PersistentHeap.open("book", { size: 16 * 2 ** 20 });
    kept.add(heap, "page");
    const entries = kept.list(heap);
    await heap.close();
    return entries;
  });
  assert.deepEqual(listed, ["3 page", "2 applet", "1 applet"]);
  const back = await step("exportHeap", { name: "book", limit: LIMIT });
  writeFileSync(join(folder, "back"), Buffer.from(back, "base64"));
  holdfast("heap", "import", join(folder, "back"), "back");
  assert.equal(look("back"), 3, "the applet reads every entry by both chains");
  ledger("portable", "back", "add");
  assert.equal(look("back"), 4);
  holdfast("heap", "check", "back");
});

// Guarantee: web/views
test("a heap that JavaScript made is one of applets", async () => {
  const { run, step } = await heapTab();
  await run(declare);
  await run(async ({ PersistentHeap }, kept) => {
    const heap = await PersistentHeap.open("born", { size: 16 * 2 ** 20 });
    for (let count = 0; count < 20; count++) kept.add(heap, "born");
    await heap.close();
  });
  const born = await step("exportHeap", { name: "born", limit: LIMIT });
  writeFileSync(join(folder, "born"), Buffer.from(born, "base64"));
  holdfast("heap", "import", join(folder, "born"), "born");
  assert.equal(look("born"), 20);
  holdfast("heap", "check", "born");
});

// Guarantee: web/views
test("layouts are the numbers that other languages compute", async () => {
  const { run } = await heapTab();
  // Those that `core/heap/src/portable.rs` pins.
  const layouts = await run(async ({ array, f64, ref, struct, u32, u64, u8 }) => {
    const Node = struct("Node", { next: ref("Node"), flags: u32, key: u64 }, { version: 1 });
    const version = 1;
    const First = struct("First", { second: ref(() => Second), text: array(u8, 4) }, { version });
    const Second = struct("Second", { third: ref(() => Third), count: u32 }, { version });
    const Third = struct("Third", { first: ref(First), node: ref(Node) }, { version });
    const Whole = struct("Whole", { first: array(First, 2), at: f64 }, { version });
    return [Node, First, Whole].map((type) => type.layout().toString(16));
  });
  assert.deepEqual(layouts, ["e85007852806a773", "f19c71ee76eeaaad", "ccdacff2969ff358"]);
});

// Guarantee: web/views
test("the types of TypeScript are those of the fields", () => {
  const web = new URL("..", import.meta.url);
  const options = ["--noEmit", "--strict", "--skipLibCheck", "--target", "ES2022", "--module",
    "ES2022", "--moduleResolution", "bundler", "--lib", "ES2022,WebWorker", "test/types.ts"];
  execFileSync("node_modules/.bin/tsc", options, { cwd: web, encoding: "utf8" });
});

// Guarantee: web/package
test("a page in the place of heap.wasm is an UnsupportedError", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ PersistentHeap }) => {
    const { fetch } = globalThis;
    const headers = { "content-type": "text/html" };
    globalThis.fetch = async () => new Response("<!doctype html>", { headers });
    const failure = await PersistentHeap.open("plain")
      .then(() => ["nothing failed"], ({ name, message }) => [name, message]);
    globalThis.fetch = fetch;
    await (await PersistentHeap.open("plain")).close();
    return failure;
  });
  assert.equal(told[0], "UnsupportedError");
  assert.match(told[1], /not found.*text\/html.*option module/);
});

// Guarantee: web/no-files
test("a browser without memory for a heap is an UnsupportedError", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ PersistentHeap }) => {
    const { grow } = WebAssembly.Memory.prototype;
    WebAssembly.Memory.prototype.grow = () => { throw new RangeError("failed to grow memory"); };
    const failure = await PersistentHeap.open("large", { size: 512 * 2 ** 20 })
      .then(() => ["nothing failed"], ({ name, message }) => [name, message]);
    WebAssembly.Memory.prototype.grow = grow;
    // Nobody holds its lock.
    await (await PersistentHeap.open("large", { size: 2 ** 20 })).close();
    return failure;
  });
  assert.equal(told[0], "UnsupportedError");
  assert.match(told[1], /no memory of 2 GiB \+ 512 MiB.*smaller `size`/);
});

// Guarantee: web/views-layout
test("other layouts, heaps with pointers and wrong values are refused", async () => {
  const { run, step } = await heapTab();
  const told = await run(async (holdfast, kept) => {
    const { array, f32, f64, PersistentArray, PersistentHeap, PersistentMap, ref, struct, u16,
      u64, u8 } = holdfast;
    const heap = await PersistentHeap.open("typed", { size: 2 ** 20 });
    const failure = (work) => {
      try {
        return [`nothing failed: ${work()}`];
      } catch (error) {
        return [error.name, error.message];
      }
    };
    const Point = struct("Point", { x: f64, small: u16, wide: array(u8, 6), next: ref("Point"),
      pad: array(u8, 4), key: u64 });
    const Other = struct("Point", { x: f64, small: u16, wide: array(u8, 6), next: ref("Point"),
      pad: array(u8, 4), id: u64 });
    const point = Point.create(heap, "point");
    PersistentMap.open(heap, "map", { value: "number" });
    PersistentArray.open(heap, "array", f64);
    kept.strings = [Point.layout(), Other.layout()].map((layout) => layout.toString(16));
    const told = {
      other: failure(() => Other.open(heap, "point")),
      again: failure(() => Point.create(heap, "point")),
      text: failure(() => { point.x = "1"; }),
      large: failure(() => { point.small = 70_000; }),
      half: failure(() => { point.small = 0.5; }),
      number: failure(() => { point.key = 1; }),
      bytes: failure(() => { point.wide = new Uint8Array(7); }),
      reference: failure(() => { point.next = {}; }),
      init: failure(() => Point.new(heap, { z: 1 })),
      gap: failure(() => struct("Gap", { small: u8, large: f64 })),
      end: failure(() => struct("End", { large: f64, small: u8 })),
      kind: failure(() => struct("Kind", { kind: Number })),
      map: failure(() => PersistentMap.open(heap, "map", { value: "string" })),
      array: failure(() => PersistentArray.open(heap, "array", f32)),
      point: failure(() => PersistentMap.open(heap, "point")),
      name: failure(() => Point.create(heap, "n".repeat(256))),
      root: failure(() => point.free()),
      free: failure(() => heap.free(24)),
    };
    await heap.close();
    return [told, ...kept.strings];
  });
  const [failures, stored, wanted] = told;
  const expect = (name, kind, words) => {
    assert.equal(failures[name][0], kind, `${name}: ${failures[name]}`);
    assert.match(failures[name][1], words, name);
  };
  expect("other", "LayoutMismatchError", new RegExp(`point.*${stored}.*Point.*${wanted}`));
  expect("again", "ExistsError", /root/);
  expect("text", "TypeError", /f64 is a number, and not the string "1"/);
  expect("large", "RangeError", /between 0 and 65535/);
  expect("half", "RangeError", /integer/);
  expect("number", "TypeError", /u64 is a bigint/);
  expect("bytes", "RangeError", /7 bytes do not fit into 6/);
  expect("reference", "TypeError", /must be a Point of the heap/);
  expect("init", "TypeError", /no field z/);
  expect("gap", "TypeError", /7 bytes before large/);
  expect("end", "TypeError", /7 bytes at the end/);
  expect("kind", "TypeError", /no portable kind/);
  expect("map", "LayoutMismatchError", /from string to number.*from string to string/);
  expect("array", "LayoutMismatchError", /8 bytes.*4 bytes/s);
  expect("point", "LayoutMismatchError", /the root has layout/);
  expect("name", "RangeError", /255/);
  expect("root", "ExistsError", /root "point"; remove that/);
  expect("free", "StaleReferenceError", /not the start of an allocated object/);
  assert.equal((await step("run", { applet: "guestbook", args: ["add", "Ada"], limit: LIMIT }))
    .exitCode, 0);
  const pointers = await run(({ PersistentHeap }) => PersistentHeap.open("guestbook")
    .then(() => "opened", (error) => [error.name, error.message]));
  assert.equal(pointers[0], "LayoutMismatchError");
  assert.match(pointers[1], /pointers/);
});

// Guarantee: web/views-layout
test("a value that is wrong in a part stores nothing", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ array, PersistentArray, PersistentHeap, struct, u16 }) => {
    const heap = await PersistentHeap.open("parts", { size: 2 ** 20 });
    const Pair = struct("Pair", { a: u16, b: u16 });
    const All = struct("All", { pair: Pair, row: array(u16, 4), pairs: array(Pair, 2) });
    const all = All.create(heap, "all", { pair: { a: 1, b: 2 }, row: [1, 2, 3, 4] });
    const list = PersistentArray.open(heap, "list", Pair);
    list.push({ a: 1, b: 2 });
    const failures = [
      () => { all.pair = { a: 9, b: "9" }; }, () => { all.row = [9, 9, 9, 70_000]; },
      () => { all.pairs = [{ a: 9 }, { c: 9 }]; }, () => all.pairs.set(1, { a: 9, b: -1 }),
      () => list.set(0, { a: 9, b: 0.5 }), () => list.push({ a: 9 }, null),
      () => All.create(heap, "a\0b"), () => All.create(heap, 7),
    ].map((work) => {
      try {
        return `nothing failed: ${work()}`;
      } catch (error) {
        return error.name;
      }
    });
    const pairs = [all.pair, ...all.pairs, ...list].map(({ a, b }) => [a, b]);
    // What a value calls may move where it goes to, and remove it.
    list.set(0, { get a() { list.reserve(1000); return 5; } });
    try {
      Pair.create(heap, "gone", { get a() { heap.removeRoot("gone"); return 9; } });
    } catch (error) {
      failures.push(error.name);
    }
    return { failures, row: [...all.row], pairs, moved: list.get(0).a, names: heap.names() };
  });
  assert.deepEqual(told, {
    failures: ["TypeError", "RangeError", "TypeError", "RangeError", "RangeError", "TypeError",
      "RangeError", "TypeError", "StaleReferenceError"],
    row: [1, 2, 3, 4], pairs: [[1, 2], [0, 0], [0, 0], [1, 2]], moved: 5, names: ["all", "list"],
  });
});

// Guarantee: web/views-layout
test("a reference that a later part frees stores nothing", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ array, PersistentArray, PersistentHeap, ref, struct, u32, u64 }) => {
    const heap = await PersistentHeap.open("late", { size: 2 ** 20 });
    const Node = struct("Node", { key: u64 });
    const Part = struct("Part", { a: u32, b: u32 });
    const Whole = struct("Whole", { key: u64, node: ref(Node), count: u32, part: Part });
    const Book = struct("Book", { whole: Whole, row: array(Whole, 2), parts: array(Part, 2) });
    const whole = (key) => ({ key, part: { a: 1, b: 2 } });
    const book = Book.create(heap, "book", {
      whole: whole(1n), row: [whole(2n), whole(3n)], parts: [{ a: 4 }, { a: 5 }],
    });
    const list = PersistentArray.open(heap, "list", Whole);
    list.push(whole(6n));
    /** A value whose last part frees what an earlier one refers to. */
    const late = () => {
      const node = Node.new(heap);
      return { key: 9n, node, part: { get a() { node.free(); return 9; } } };
    };
    /** A value of its own that the next one frees. */
    const gone = () => {
      const other = Whole.new(heap, whole(9n));
      return [other, { get key() { other.free(); return 9n; } }];
    };
    const failures = [
      () => { book.whole = late(); }, () => { book.row = [whole(9n), late()]; },
      () => { book.row = gone(); }, () => book.row.set(0, late()), () => list.set(0, late()),
      () => list.push(whole(9n), late()), () => Book.create(heap, "second", { whole: late() }),
    ].map((work) => {
      try {
        return `nothing failed: ${work()}`;
      } catch (error) {
        return error.name;
      }
    });
    const keys = [book.whole, ...book.row, ...list].map(({ key, part }) => `${key} ${part.a}`);
    // Each part is what it was when the value was given.
    book.parts = [...book.parts].reverse();
    return { failures: [...new Set(failures)], keys, parts: [...book.parts].map(({ a }) => a), names: heap.names() };
  });
  assert.deepEqual(told, {
    failures: ["StaleReferenceError"], keys: ["1 1", "2 1", "3 1", "6 1"], parts: [5, 4],
    names: ["book", "list"],
  });
});

// Guarantee: web/views
test("arrays of every number are set from what gives numbers", async () => {
  const { run } = await heapTab();
  const told = await run(async (holdfast) => {
    const { array, PersistentHeap, struct } = holdfast;
    const heap = await PersistentHeap.open("rows", { size: 2 ** 20 });
    const names = ["u64", "i64", "f64", "u32", "i32", "f32", "u16", "i16", "u8", "i8"];
    const fields = names.map((name) => [name, array(holdfast[name], 8)]);
    const Rows = struct("Rows", Object.fromEntries(fields));
    const rows = Rows.create(heap, "rows");
    const given = (name) => Array.from({ length: 8 }, (_, index) => {
      const number = name.startsWith("u") ? 100 + index : 3 - index;
      return name.endsWith("64") && name !== "f64" ? BigInt(number) : number;
    });
    const wrong = names.filter((name) => {
      rows[name] = new Set(given(name)).values();
      return String([...rows[name]]) !== String(given(name));
    });
    rows.f32 = [0.1, NaN, Infinity, -0, 0, 0, 0, 0];
    // In a transaction that is undone, all of it comes back.
    try {
      heap.transaction(() => { rows.i16 = [9, 9, 9, 9, 9, 9, 9, 9]; throw new Error("undone"); });
    } catch {}
    return [wrong, [...rows.f32].slice(0, 3).map(String), [...rows.i16], [...rows.u16]];
  });
  assert.deepEqual(told, [[], [String(Math.fround(0.1)), "NaN", "Infinity"],
    [3, 2, 1, 0, -1, -2, -3, -4], [100, 101, 102, 103, 104, 105, 106, 107]]);
});

// Guarantee: web/views
test("an object begins as a copy of another", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ array, f64, PersistentHeap, ref, struct, u8 }) => {
    const heap = await PersistentHeap.open("copies", { size: 2 ** 20 });
    const other = await PersistentHeap.open("other copies", { size: 2 ** 20 });
    const Point = struct("Point", { x: f64, next: ref("Point"), bytes: array(u8, 4) });
    const Plain = struct("Plain", { x: f64 });
    const first = Point.create(heap, "first", { x: 1, bytes: [1, 2, 3, 4] });
    first.next = first;
    const copies = [Point.new(heap, first), Point.create(heap, "second", first)];
    first.x = 2;
    const failures = [
      () => Point.create(heap, "third", Plain.new(heap, { x: 3 })),
      () => Point.create(heap, "third", Point.new(other)),
    ].map((work) => {
      try {
        return `nothing failed: ${work()}`;
      } catch (error) {
        return error.name;
      }
    });
    const parts = copies.map(({ x, next, bytes }) => [x, next.offset === first.offset, [...bytes]]);
    return { parts, failures, names: heap.names() };
  });
  const copy = [1, true, [1, 2, 3, 4]];
  assert.deepEqual(told, {
    parts: [copy, copy], failures: ["TypeError", "RangeError"], names: ["first", "second"],
  });
});

// Guarantee: web/views
test("who closes a heap again waits until it is released", async () => {
  const { run } = await heapTab();
  const order = await run(async ({ PersistentHeap }) => {
    const heap = await PersistentHeap.open("twice", { size: 2 ** 20 });
    heap.allocate(8);
    const ended = [];
    const first = heap.close().then(() => ended.push("first"));
    await heap.close();
    ended.push("second");
    await first;
    return ended;
  });
  assert.deepEqual(order, ["first", "second"]);
});

// Guarantee: web/views-stale
test("a reference to a part of another value is refused", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ array, PersistentArray, PersistentHeap, PersistentMap, ref, struct, u64 }) => {
    const heap = await PersistentHeap.open("whole", { size: 2 ** 20 });
    const Node = struct("Node", { number: u64, next: ref("Node"), count: ref("Node") });
    const Pair = struct("Pair", { first: Node, others: array(Node, 2) });
    const list = PersistentArray.open(heap, "list", Node);
    const refs = PersistentArray.open(heap, "refs", ref(Node));
    const map = PersistentMap.open(heap, "map", { value: Node });
    list.push({ number: 7n }, { number: 8n });
    const pair = Pair.create(heap, "pair", { first: { number: 9n } });
    const node = Node.create(heap, "node", { number: 1n });
    const failures = [list.get(0), list.get(1), pair.first, pair.others.get(1)].flatMap((part) => [
      () => { node.next = part; }, () => { pair.first.next = part; }, () => list.push({ next: part }),
      () => list.set(0, { next: part }), () => refs.push(part), () => map.set("part", part),
      () => heap.setRoot("part", part), () => Node.new(heap, { next: part }),
    ].map((work) => {
      try {
        return `nothing failed: ${work()}`;
      } catch ({ name, message }) {
        return `${name}: ${message}`;
      }
    }));
    const kept = { lengths: [list.length, refs.length, map.size], names: heap.names(), next: node.next };
    // Its own object, also one that was read.
    const own = Node.new(heap, { number: 2n });
    node.next = own;
    refs.push(node.next);
    map.set("own", refs.get(0));
    heap.setRoot("own", map.get("own"));
    // Copies, also of an element that moves.
    const first = list.get(0);
    const { offset } = first;
    for (let count = 0; count < 100; count++) list.push(first);
    const numbers = [...list].map(({ number }) => Number(number));
    return { failures: [...new Set(failures)], ...kept, own: Number(Node.open(heap, "own").number),
      moved: first.offset !== offset, numbers: [numbers.length, ...new Set(numbers)],
      copy: Number(Node.new(heap, pair.first).number) };
  });
  assert.deepEqual(told, {
    failures: ["RangeError: the value is a part of another one; refer to an object of its own (Type.new)"],
    lengths: [2, 0, 0], names: ["list", "map", "node", "pair", "refs"], next: null, own: 2, moved: true,
    numbers: [102, 7, 8], copy: 9,
  });
});

// Guarantee: web/views-stale
test("a container is stale where another object is", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ f64, PersistentArray, PersistentHeap, PersistentMap, struct, u64 }) => {
    const heap = await PersistentHeap.open("others", { size: 2 ** 20 });
    const failure = (work) => {
      try {
        return `nothing failed: ${work()}`;
      } catch (error) {
        return error.name;
      }
    };
    // As large as the header of a map, and that of an array.
    const Six = struct("Six", { a: u64, b: u64, c: u64, d: u64, e: u64, f: u64 });
    const Three = struct("Three", { a: u64, b: u64, c: u64 });
    /** Gives the name to an object of this type that lies where the container did. */
    const replace = (container, name, Type) => {
      const { offset } = heap.root(name);
      const first = Type.new(heap);
      container.remove();
      let other = first;
      for (let tries = 0; other.offset !== offset && tries < 1000; tries++) other = Type.new(heap);
      heap.setRoot(name, other);
      return other.offset === offset ? other : undefined;
    };
    const map = PersistentMap.open(heap, "map"), list = PersistentArray.open(heap, "list", f64);
    const six = replace(map, "map", Six), three = replace(list, "list", Three);
    const failures = [() => map.set("key", 1), () => map.size, () => [...map], () => list.push(1),
      () => list.length].map(failure);
    // An offset of more than 32 bits is none of an object.
    const spare = heap.allocate(8);
    failures.push(failure(() => heap.free(2 ** 32 + spare)), failure(() => heap.bytes(2 ** 32 + spare)));
    const words = [six, three].map((value) => [...heap.bytes(value)].every((byte) => byte === 0));
    return [...new Set(failures), ...words, heap.bytes(spare).length >= 8];
  });
  assert.deepEqual(told, ["StaleReferenceError", true, true, true]);
});

// Guarantee: web/views-stale
test("a value whose object is gone is stale, and views survive growth", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ f64, PersistentArray, PersistentHeap, ref, struct, u64 }) => {
    const heap = await PersistentHeap.open("stale");
    const failure = (work) => {
      try {
        return `nothing failed: ${work()}`;
      } catch (error) {
        return error.name;
      }
    };
    const Node = struct("Node", { value: f64, next: ref("Node"), count: ref("Node") });
    const root = Node.create(heap, "root", { value: 1 });
    const freed = Node.new(heap, { value: 2 });
    root.next = freed;
    const other = root.next;
    freed.free();
    const told = { freed: failure(() => freed.value), other: failure(() => other.value) };
    told.dangling = failure(() => root.next);
    root.next = null;
    let undone;
    failure(() => heap.transaction(() => {
      undone = Node.new(heap);
      root.value = 7;
      throw new Error("undone");
    }));
    told.undone = failure(() => undone.value);
    told.value = root.value;
    const array = PersistentArray.open(heap, "array", Node);
    for (let count = 0; count < 5; count++) array.push({ value: count });
    const element = array.get(4), bytes = heap.bytes(root);
    // Far more than there is, so that everything moves, and linear memory grows.
    for (let count = 0; count < 200_000; count++) array.push({ value: count });
    heap.allocate(2 ** 20);
    await new Promise((done) => setTimeout(done));
    told.element = element.value;
    told.length = array.length;
    array.length = 4;
    told.popped = failure(() => element.value);
    element.constructor;
    told.root = root.value;
    told.bytes = bytes.length;
    array.remove();
    told.array = failure(() => array.length);
    heap.removeRoot("root");
    told.removed = failure(() => root.value);
    await heap.close();
    told.closed = failure(() => root.value);
    told.open = failure(() => heap.names());
    return told;
  });
  const gone = "StaleReferenceError";
  assert.deepEqual(told, {
    freed: gone, other: gone, dangling: gone, undone: gone, value: 1, element: 4, length: 200_005,
    popped: gone, root: 1, bytes: 16, array: gone, removed: gone, closed: gone, open: gone,
  });
});

// Guarantee: web/transactions
test("a transaction that throws leaves everything as it was", async () => {
  const { run } = await heapTab();
  const told = await run(async (holdfast) => {
    const { array, f64, KeptDocument, PersistentArray, PersistentHeap, PersistentMap, struct, u8 }
      = holdfast;
    const heap = await PersistentHeap.open("undo");
    const Point = struct("Point", { x: f64, bytes: array(u8, 8) });
    const point = Point.create(heap, "point", { x: 1, bytes: new Uint8Array(8).fill(1) });
    const map = PersistentMap.open(heap, "map"), list = PersistentArray.open(heap, "list", f64);
    map.set("stays", [1]).set("changes", [2]);
    list.push(1, 2, 3);
    KeptDocument.open(heap, "page", { html: "<p>before" });
    const raw = heap.allocate(32);
    const state = () => [point.x, [...point.bytes], [...map], [...list],
      KeptDocument.open(heap, "page").textContent, heap.names(), [...heap.bytes(raw)]];
    const before = JSON.stringify(state());
    const change = () => {
      point.x = 2;
      point.bytes[3] = 9;
      heap.bytes(raw)[5] = 5;
      map.set("new", 1).set("changes", "a longer value than there was").delete("stays");
      for (let count = 0; count < 3000; count++) map.set(`key ${count}`, count);
      list.set(0, 100);
      for (let count = 0; count < 3000; count++) list.push(count);
      list.view()[1] = 50;
      KeptDocument.parse(heap, "page", "<p>after");
      Point.create(heap, "second");
      heap.removeRoot("second");
      PersistentMap.open(heap, "inner").set("a", 1);
    };
    const failures = [];
    const fails = (work) => {
      try {
        heap.transaction(work);
      } catch (error) {
        failures.push(error.name);
      }
    };
    fails(() => { change(); throw new SyntaxError("no"); });
    const undone = JSON.stringify(state()) === before;
    fails(async () => {});
    fails(() => heap.commit());
    fails(() => heap.close());
    // An inner one that fails takes the outer one with it.
    fails(() => {
      change();
      try {
        heap.transaction(() => { throw new Error("inner"); });
      } catch { /* goes on */ }
    });
    const nested = JSON.stringify(state()) === before;
    heap.transaction(() => { heap.transaction(change); });
    const counts = [map.size, list.length, point.x, point.bytes[3]];
    await heap.close();
    const again = await PersistentHeap.open("undo");
    counts.push(PersistentMap.open(again, "map").size);
    again.close();
    return { undone, nested, failures, counts };
  });
  assert.deepEqual(told, {
    undone: true, nested: true, counts: [3002, 3003, 2, 9, 3002],
    failures: ["SyntaxError", "TypeError", "TransactionError", "TransactionError",
      "TransactionError"],
  });
});
