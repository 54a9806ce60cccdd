// Maps and arrays of JavaScript in portable heaps: reloads, kills, full and damaged heaps.
import assert from "node:assert/strict";
import { test } from "node:test";
import { KILLS, kill } from "./browser.mjs";
import { PHASES } from "./page-store.test.mjs";
import { heapTab } from "./views-tab.mjs";

// Guarantee: web/containers
test("maps and arrays of all kinds are there after a reload", async () => {
  const first = await heapTab();
  await first.run(async (holdfast) => {
    const { f64, i16, PersistentArray, PersistentHeap, PersistentMap, ref, struct, u64, u8 }
      = holdfast;
    const heap = await PersistentHeap.open("kept");
    const Point = struct("Point", { x: f64, y: f64 });
    PersistentMap.open(heap, "json").set("ä", { a: [1, null] }).set("", false)
      .set("ß".repeat(99), 1);
    PersistentMap.open(heap, "text", { value: "string" }).set("k", "").set("l", "Ω".repeat(9999));
    PersistentMap.open(heap, "bytes", { key: "bytes", value: "bytes" })
      .set(new Uint8Array([0, 255]), new Uint8Array([1, 2, 3]))
      .set(new Uint8Array(), new Uint8Array());
    PersistentMap.open(heap, "number", { value: "number" }).set("nan", NaN).set("minus", -0.5);
    PersistentMap.open(heap, "points", { value: Point }).set("p", Point.new(heap, { x: 1, y: 2 }));
    PersistentArray.open(heap, "i16", i16).push(-1, 32767);
    PersistentArray.open(heap, "u64", u64).push(2n ** 64n - 1n);
    const structs = PersistentArray.open(heap, "structs", Point);
    structs.push({ x: 3, y: 4 }, { x: 6, y: 7 });
    structs.length = 1;
    structs.push({ x: 5 });
    PersistentArray.open(heap, "refs", ref(Point)).push(Point.new(heap, { y: 8 }), null);
    PersistentArray.open(heap, "empty", u8);
    heap.commit();
  });
  await first.page.close();
  const told = await (await heapTab()).run(async (holdfast) => {
    const { f64, i16, PersistentArray, PersistentHeap, PersistentMap, ref, struct, u64, u8 }
      = holdfast;
    const heap = await PersistentHeap.open("kept", { wait: true });
    const Point = struct("Point", { x: f64, y: f64 });
    const text = PersistentMap.open(heap, "text", { value: "string" });
    return {
      json: [...PersistentMap.open(heap, "json")],
      text: [text.get("k"), text.get("l").length, text.get("m") ?? null],
      bytes: [...PersistentMap.open(heap, "bytes", { key: "bytes", value: "bytes" })]
        .map(([key, value]) => [[...key], [...value]]),
      number: [...PersistentMap.open(heap, "number", { value: "number" }).values()].map(String),
      point: PersistentMap.open(heap, "points", { value: Point }).get("p").y,
      i16: [...PersistentArray.open(heap, "i16", i16)],
      u64: [...PersistentArray.open(heap, "u64", u64)].map(String),
      structs: [...PersistentArray.open(heap, "structs", Point)].map(({ x, y }) => [x, y]),
      refs: [...PersistentArray.open(heap, "refs", ref(Point))].map((point) => point?.y ?? null),
      empty: [...PersistentArray.open(heap, "empty", u8)],
    };
  });
  assert.deepEqual(told, {
    json: [["ä", { a: [1, null] }], ["", false], ["ß".repeat(99), 1]],
    text: ["", 9999, null], bytes: [[[0, 255], [1, 2, 3]], [[], []]], number: ["NaN", "-0.5"],
    point: 2, i16: [-1, 32767], u64: ["18446744073709551615"], structs: [[3, 4], [5, 0]],
    refs: [8, null], empty: [],
  });
});

// Guarantee: web/containers
test("a map and an array are their models after random operations and reopenings", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ f64, PersistentArray, PersistentHeap, PersistentMap }) => {
    let seed = 12345;
    const random = (below) => {
      seed = Math.imul(seed ^ seed >>> 15, 0x2c1b3c6d) + 0x9e3779b9 | 0;
      return (seed >>> 8) % below;
    };
    let heap, map, list;
    const open = async () => {
      heap = await PersistentHeap.open("fuzz");
      map = PersistentMap.open(heap, "map");
      list = PersistentArray.open(heap, "list", f64);
    };
    await open();
    let model = new Map(), numbers = [], checks = 0;
    const same = () => {
      checks += 1;
      const [stored, wanted] = [[...map], [...model]].map((entries) => JSON.stringify(entries));
      if (stored !== wanted) throw new Error(`the map differs at check ${checks}`);
      if (JSON.stringify([...list]) !== JSON.stringify(numbers)) {
        throw new Error(`the array differs at check ${checks}`);
      }
      if (map.size !== model.size) throw new Error("the sizes differ");
    };
    const step = () => {
      const key = `${random(3) ? "key" : "a long key with an ö, "}${random(500)}`;
      switch (random(12)) {
        case 0: case 1: case 2: case 3: case 4: {
          const value = "v".repeat(random(50)) + random(1000);
          map.set(key, value);
          model.set(key, value);
          break;
        }
        case 5: case 6: case 7:
          if (map.delete(key) !== model.delete(key)) throw new Error("delete differs");
          break;
        case 8:
          if (map.get(key) !== model.get(key)) throw new Error("get differs");
          break;
        case 9:
          list.push(random(1e6));
          numbers.push(list.at(-1));
          break;
        case 10:
          if (numbers.length > 0) {
            const index = random(numbers.length);
            list.set(index, -index);
            numbers[index] = -index;
          }
          break;
        default:
          if (list.pop() !== numbers.pop()) throw new Error("pop differs");
      }
    };
    for (let round = 0; round < 120; round++) {
      const steps = random(150), before = [new Map(model), [...numbers]];
      switch (random(6)) {
        case 0:
          try {
            heap.transaction(() => {
              for (let count = 0; count < steps; count++) step();
              throw new Error("undone");
            });
          } catch (error) {
            if (error.message !== "undone") throw error;
          }
          [model, numbers] = before;
          break;
        case 1:
          heap.transaction(() => { for (let count = 0; count < steps; count++) step(); });
          break;
        case 2:
          heap.commit("relaxed");
          for (let count = 0; count < steps; count++) step();
          // Without a commit nothing since the last one is there.
          await heap.close({ commit: false });
          await open();
          [model, numbers] = before;
          break;
        case 3:
          await heap.close();
          await open();
          break;
        default:
          for (let count = 0; count < steps; count++) step();
      }
      same();
    }
    await heap.close();
    return checks;
  });
  assert.equal(told, 120);
});

// Guarantee: web/containers
test("a map may change while it is iterated over", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ PersistentHeap, PersistentMap }) => {
    const heap = await PersistentHeap.open("iterated", { size: 4 * 2 ** 20 });
    const map = PersistentMap.open(heap, "map", { value: "number" });
    const model = new Map();
    for (let count = 0; count < 1000; count++) {
      [map, model].forEach((to) => to.set(`${count}`, count));
    }
    const walk = (to) => {
      const seen = [];
      for (const [key, value] of to) {
        seen.push(key);
        if (value % 3 === 0) to.delete(key);
        if (value % 5 === 0) to.delete(`${value + 1}`);
        // An even one stays: the table is made anew behind it.
        if (value % 2 === 0 && value % 3 !== 0 && value < 1500) {
          to.set(`${value + 2000}`, value + 2001);
        }
      }
      return seen.join();
    };
    return walk(map) === walk(model) && [...map.keys()].join() === [...model.keys()].join();
  });
  assert.equal(told, true);
});

// Guarantee: web/containers
test("a key that is set anew while iterated over hides no other", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ PersistentHeap, PersistentMap }) => {
    const heap = await PersistentHeap.open("renewed", { size: 4 * 2 ** 20 });
    const found = [];
    for (const kind of ["string", "bytes"]) {
      const keyOf = (number) => kind === "string" ? `${number}` : Uint8Array.of(number);
      /** Sets every key anew when it comes first, with so many entries: how often keys came, or the error. */
      const renew = (name, count, meanwhile = () => {}) => {
        const map = PersistentMap.open(heap, `${kind} ${name}`, { key: kind, value: "number" });
        for (let number = 0; number < count; number++) map.set(keyOf(number), 0);
        let steps = 0;
        try {
          for (const [key, value] of map) {
            steps += 1;
            meanwhile(map);
            if (value > 0) continue;
            map.delete(kind === "string" ? key : key.slice());
            map.set(key, 1);
          }
        } catch (error) {
          return error.name;
        }
        return steps;
      };
      // The first table has room for twelve: it is made anew for the first key, or for none.
      found.push(renew("full", 12), renew("roomy", 5));
      // Iterations that nobody ends, and one that is over.
      found.push(renew("given up", 5, (map) => {
        for (let count = 0; count < 40; count++) map.keys().next();
        [...map];
      }));
      // Nor do those whose key is removed at once count where the table is made anew behind another key.
      const walked = PersistentMap.open(heap, `${kind} walked`, { key: kind, value: "number" });
      const queue = PersistentMap.open(heap, `${kind} queue`);
      for (let number = 0; number < 12; number++) walked.set(keyOf(number), 0);
      let steps = 0;
      for (const _ of walked.keys()) {
        steps += 1;
        for (let count = 0; count < 40; count++) {
          queue.set(`${count}`, 0);
          queue.delete(queue.keys().next().value);
        }
        if (steps > 1) continue;
        walked.delete(keyOf(5));
        walked.set(keyOf(100), 0);
      }
      found.push(steps);
    }
    await heap.close();
    return found;
  });
  const kind = ["StaleReferenceError", 10, 10, 12];
  assert.deepEqual(told, [...kind, ...kind]);
});

// Guarantee: web/containers
test("what a value calls while it is stored does not mix with it", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ PersistentHeap, PersistentMap }) => {
    const heap = await PersistentHeap.open("mixed");
    const map = PersistentMap.open(heap, "map");
    map.set("first", "of the first");
    map.set("second", { toJSON: () => `${map.get("first")} and ${map.size}` });
    return [...map];
  });
  assert.deepEqual(told, [["first", "of the first"], ["second", "of the first and 1"]]);
});

// Guarantee: web/containers
test("views of the heap are stored in it, also when memory grows", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ KeptDocument, PersistentHeap, PersistentMap }) => {
    const heap = await PersistentHeap.open("views");
    const at = heap.allocate(2 ** 20);
    heap.bytes(at).fill(65);
    const part = (bytes) => heap.bytes(at, bytes);
    const map = PersistentMap.open(heap, "map", { key: "bytes", value: "bytes" });
    // Each has memory grow for the input: the key, the value behind it, and the page.
    map.set(part(100_000), part(10)).set(part(5), part(400_000));
    const page = KeptDocument.parse(heap, "page", part(900_000));
    const isWhole = (bytes) => bytes.every((byte) => byte === 65);
    return [[...map].map(([key, value]) => [key.length, value.length, isWhole(key) && isWhole(value)]),
      page.textContent.length];
  });
  assert.deepEqual(told, [[[100_000, 10, true], [5, 400_000, true]], 900_000]);
});

// Guarantee: web/views-read-only
test("a heap that is only read answers, and refuses every change", async () => {
  const { run } = await heapTab();
  const told = await run(async (holdfast) => {
    const { f64, KeptDocument, PersistentArray, PersistentHeap, PersistentMap, struct } = holdfast;
    const Point = struct("Point", { x: f64 });
    const all = (heap) => [Point.open(heap, "point"), PersistentMap.open(heap, "map"),
      PersistentArray.open(heap, "list", f64), KeptDocument.open(heap, "page", { html: "<p>one" })];
    const writer = await PersistentHeap.open("read", { size: 2 ** 20 });
    Point.create(writer, "point", { x: 1 });
    const [, written, numbers] = all(writer);
    written.set("a", 1);
    numbers.push(2);
    writer.close();
    const options = { size: 2 ** 20, access: "read-only" };
    const [heap, other] =
      [await PersistentHeap.open("read", options), await PersistentHeap.open("read", options)];
    const [point, map, list, page] = all(heap);
    const read = [point.x, map.get("a"), list.get(0), page.querySelector("p").textContent,
      Point.open(other, "point").x];
    const failures = [
      () => { point.x = 2; }, () => map.set("a", 2), () => map.delete("a"), () => map.clear(),
      () => list.set(0, 1), () => list.push(1), () => list.pop(), () => { list.length = 0; },
      () => KeptDocument.parse(heap, "page", ""), () => page.remove(), () => Point.new(heap),
      () => Point.create(heap, "more"), () => heap.transaction(() => {}), () => heap.commit(),
      () => heap.removeRoot("point"), () => heap.setRoot("more", point), () => point.free(),
      () => heap.allocate(8), () => PersistentMap.open(heap, "more"),
      () => PersistentArray.open(heap, "more", f64),
    ].map((work) => {
      try {
        return `nothing failed: ${work()}`;
      } catch (error) {
        return error.name;
      }
    });
    await Promise.all([heap, other].map((open) => open.close()));
    return { read, failures: [...new Set(failures)] };
  });
  assert.deepEqual(told.read, [1, 1, 2, "one", 1]);
  assert.deepEqual(told.failures, ["ReadOnlyError", "NotFoundError"]);
});

// Guarantee: web/containers-kill
test("a browser killed in a commit leaves all of a map's changes, or none", async () => {
  let count = 0;
  for (let round = 0; round < KILLS; round++) {
    const phase = PHASES[round % PHASES.length];
    const { run } = await heapTab();
    const found = await run(async ({ PersistentHeap, PersistentMap }) => {
      const heap = await PersistentHeap.open("killed", { size: 8 * 2 ** 20 });
      const entries = [...PersistentMap.open(heap, "map")];
      await heap.close();
      return entries;
    });
    const numbers = Array.from({ length: count }, (_, index) => [`key ${index}`, count]);
    assert.deepEqual(found, numbers, `before ${phase}`);
    // It stands still behind a step, and the browser is killed there.
    const stalled = await run(async ({ PersistentHeap, PersistentMap }, kept, { phase, count }) => {
      const heap = await PersistentHeap.open("killed", { size: 8 * 2 ** 20, onPhase: (now) => {
        if (now !== phase) return;
        postMessage({ ok: "stalled" });
        for (;;);
      } });
      const map = PersistentMap.open(heap, "map");
      for (let index = 0; index < count; index++) map.set(`key ${index}`, count);
      heap.commit();
      await heap.close();
    }, { phase, count: count + 50 });
    assert.equal(stalled, "stalled");
    await kill();
    if (phase !== "written") count += 50;
  }
});

// Guarantee: web/heap-full
test("a full heap is a HeapFullError, and leaves everything as it was", async () => {
  const { run } = await heapTab();
  const told = await run(async ({ f64, PersistentArray, PersistentHeap, PersistentMap }) => {
    const heap = await PersistentHeap.open("full", { size: 2 ** 20 });
    const map = PersistentMap.open(heap, "map", { value: "string" });
    const list = PersistentArray.open(heap, "list", f64);
    // Other sizes than the map's: who fills the heap takes the room of all that is not used.
    while (list.length <= 8) list.push(1);
    const failures = [];
    let count = 0;
    const failure = (work) => {
      try {
        work();
      } catch (error) {
        failures.push(error.name);
      }
    };
    failure(() => { for (;; count++) map.set(`key ${count}`, "v".repeat(100)); });
    const whole = map.size === count && [...map].length === count;
    failure(() => { for (;;) list.push(1); });
    const numbers = [...list];
    failure(() => list.reserve(1e8));
    failure(() => heap.allocate(2 ** 20));
    map.delete("key 0");
    map.set("key 0", "v".repeat(100));
    // Who goes on in a transaction that had no room cannot commit it.
    failure(() => heap.transaction(() => {
      map.set("key 1", "short");
      try {
        for (let at = 0;; at++) map.set(`more ${at}`, "v".repeat(100));
      } catch { /* goes on */ }
    }));
    const value = map.get("key 1").length;
    await heap.close();
    const again = await PersistentHeap.open("full", { size: 2 ** 20 });
    const size = PersistentMap.open(again, "map", { value: "string" }).size;
    again.close();
    return { whole, numbers: numbers.length > 8 && numbers.every((one) => one === 1), failures, value, same: size === count };
  });
  assert.deepEqual(told, {
    whole: true, numbers: true, value: 100, same: true,
    failures: ["HeapFullError", "HeapFullError", "HeapFullError", "HeapFullError",
      "TransactionError"],
  });
});

// Guarantee: web/heap-damaged
test("damaged bytes of a heap end in answers or typed errors", async () => {
  const { run } = await heapTab();
  const told = await run(async (holdfast, kept, rounds) => {
    const { f64, KeptDocument, PAGE_SIZE, PageStore, PersistentArray, PersistentHeap, PersistentMap,
      ref, struct } = holdfast;
    const size = 4 * 2 ** 20;
    const Node = struct("Node", { value: f64, next: ref("Node"), pad: ref("Node") });
    const heap = await PersistentHeap.open("damaged", { size });
    let last = Node.create(heap, "nodes");
    for (let count = 0; count < 50; count++) last = last.next = Node.new(heap, { value: count });
    const map = PersistentMap.open(heap, "map"), list = PersistentArray.open(heap, "list", f64);
    for (let count = 0; count < 300; count++) map.set(`key ${count}`, { count });
    for (let count = 0; count < 300; count++) list.push(count);
    const items = "<li class=x>item <b id=y>b</b>".repeat(200);
    KeptDocument.open(heap, "page", { html: `<ul>${items}` });
    await heap.close();
    let store = await PageStore.open("damaged", { size });
    const sound = new Uint8Array(store.length);
    store.read(sound);
    store.close();
    const used = [];
    for (let at = 0; at < sound.length; at += 8) {
      if (sound.subarray(at, at + 8).some((byte) => byte !== 0)) used.push(at);
    }
    let seed = 99;
    const random = (below) => {
      seed = Math.imul(seed ^ seed >>> 15, 0x2c1b3c6d) + 0x9e3779b9 | 0;
      return (seed >>> 8) % below;
    };
    const untyped = [], kinds = {};
    const names = ["CorruptError", "HeapFullError", "LayoutMismatchError", "NotFoundError",
      "ExistsError", "StaleReferenceError", "UnsupportedError", "TransactionError", "LimitError",
      // Of a query without an answer, in what follows.
      "RangeError"];
    let slowest = 0;
    for (let round = 0; round < rounds; round++) {
      const bytes = sound.slice();
      for (let count = random(20) + 1; count > 0; count--) {
        // The head of the heap more often than the rest.
        const at = random(3) ? used[random(used.length)] + random(8) : random(8192);
        bytes[at] = random(2) ? random(256) : bytes[at] ^ 1 << random(8);
      }
      store = await PageStore.open("damaged", { size });
      const pages = Array.from({ length: bytes.length / PAGE_SIZE }, (_, page) => page);
      store.commit(bytes, pages, "relaxed");
      store.close();
      const from = performance.now();
      let broken;
      const attempt = (work) => {
        try {
          return work();
        } catch (error) {
          if (names.includes(error.name)) kinds[error.name] = (kinds[error.name] ?? 0) + 1;
          else untyped.push(`${round}: ${error.name} ${error.message} ${error.stack}`);
          return undefined;
        }
      };
      try {
        broken = await PersistentHeap.open("damaged", { size });
      } catch (error) {
        attempt(() => { throw error; });
        continue;
      }
      attempt(() => broken.names());
      attempt(() => {
        let at = Node.open(broken, "nodes");
        for (let steps = 0; at && steps < 100; at = at.next, steps++) at.value += 1;
      });
      const map = attempt(() => PersistentMap.open(broken, "map"));
      const list = attempt(() => PersistentArray.open(broken, "list", f64));
      const page = attempt(() => KeptDocument.open(broken, "page"));
      for (let count = 0; map && count < 300; count += 10) {
        attempt(() => map.get(`key ${count}`));
        attempt(() => map.set(`key ${count}`, "another value"));
        attempt(() => map.set(`new ${count}`, count));
        attempt(() => map.delete(`key ${count + 1}`));
      }
      if (map) attempt(() => [...map]);
      if (list) attempt(() => [...list]);
      if (list) attempt(() => { for (let count = 0; count < 100; count++) list.push(count); });
      const selector = "li.x > b#y, ul li:nth-child(3)";
      if (page) attempt(() => page.querySelectorAll(selector).map(({ outerHTML }) => outerHTML));
      if (page) attempt(() => page.outerHTML);
      attempt(() => broken.transaction(() => {
        Node.create(broken, "more", { value: 1 });
        map?.clear();
        page?.remove();
      }));
      attempt(() => broken.close());
      slowest = Math.max(slowest, performance.now() - from);
    }
    return { untyped: untyped.slice(0, 5), kinds, slowest };
  }, Number(process.env.HOLDFAST_WEB_DAMAGES ?? 100));
  assert.deepEqual(told.untyped, []);
  assert.ok(told.kinds.CorruptError > 10, JSON.stringify(told.kinds));
  assert.ok(told.slowest < 10_000, `${told.slowest} ms`);
});
