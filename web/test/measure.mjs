// Prints what operations on a heap cost, in nanoseconds each, beside `Map` and IndexedDB in the
// same run: the best of five passes.
import { test } from "node:test";
import { heapTab } from "./views-tab.mjs";

test("figures", async () => {
  const { run } = await heapTab();
  const figures = await run(async (holdfast) => {
    const { array, f64, KeptDocument, PersistentArray, PersistentHeap, PersistentMap, ref, struct,
      u8 } = holdfast;
    const figures = {}, COUNT = 200_000, PASSES = 5;
    const heap = await PersistentHeap.open("measured");
    const keys = Array.from({ length: COUNT }, (_, index) => `key${index * 7919 % 1000003}`);
    let sum = 0;
    const measure = (name, work, count = COUNT) => {
      let best = Infinity;
      for (let pass = 0; pass < PASSES; pass++) {
        const from = performance.now();
        work(pass);
        best = Math.min(best, performance.now() - from);
      }
      figures[name] = Math.round(best / count * 1e6);
    };
    const each = (work) => { for (let index = 0; index < COUNT; index++) work(index); };
    const fill = (map) => each((index) => map.set(keys[index], index));
    const read = (map) => each((index) => { sum += map.get(keys[index]); });
    const walk = (map) => { for (const [, value] of map) sum += value; };
    const maps = [];
    const numbers = (pass) => PersistentMap.open(heap, `numbers ${pass}`, { value: "number" });
    measure("map: set a new number", (pass) => { maps.push(numbers(pass)); fill(maps.at(-1)); });
    maps.slice(1).forEach((map) => map.remove());
    const [map] = maps, own = new Map();
    measure("map: set another number", () => fill(map));
    measure("map: the same in a transaction", () => heap.transaction(() => fill(map)));
    measure("map: get a number", () => read(map));
    measure("map: iterate over numbers", () => walk(map));
    measure("Map: set a new number", () => fill(new Map()));
    fill(own);
    measure("Map: get a number", () => read(own));
    measure("Map: iterate over numbers", () => walk(own));
    const json = PersistentMap.open(heap, "json");
    measure("map: set an object", () => {
      each((index) => json.set(keys[index], { id: index, name: "Ada" }));
    });
    measure("map: get an object", () => {
      each((index) => { sum += json.get(keys[index]).id; });
    });
    const list = PersistentArray.open(heap, "list", f64);
    measure("array: push", () => each((index) => list.push(index)));
    measure("array: get", () => each((index) => { sum += list.get(index); }));
    const Point = struct("Point", { x: f64, next: ref("Point"), bytes: array(u8, 4) });
    const point = Point.create(heap, "point");
    point.next = point;
    measure("value: read a field", () => each(() => { sum += point.x; }));
    measure("value: write a field", () => each((index) => { point.x = index; }));
    let at = point;
    measure("value: follow a reference", () => each(() => { at = at.next; }));
    const html = `<ul>${"<li class=x><b>item</b> text".repeat(20_000)}`;
    measure("document: parse 80,000 nodes", () => KeptDocument.parse(heap, "page", html), 1);
    measure("document: open it", () => KeptDocument.open(heap, "page"), 1);
    const page = KeptDocument.open(heap, "page");
    measure("document: a query for 20,000 elements", () => page.querySelectorAll("li.x > b"), 1);
    await heap.close();

    const SOME = 20_000;
    const database = await new Promise((done, failed) => {
      const request = indexedDB.open("measured");
      request.onupgradeneeded = () => request.result.createObjectStore("numbers");
      request.onsuccess = () => done(request.result);
      request.onerror = failed;
    });
    const all = async (name, mode, ask) => {
      const from = performance.now();
      const transaction = database.transaction("numbers", mode);
      const store = transaction.objectStore("numbers");
      for (let index = 0; index < SOME; index++) ask(store, index);
      await new Promise((done) => { transaction.oncomplete = done; });
      figures[name] = Math.round((performance.now() - from) / SOME * 1e6);
    };
    await all("IndexedDB: put a number, all in one transaction", "readwrite",
      (store, index) => { store.put(index, keys[index]); });
    await all("IndexedDB: get a number, all in one transaction", "readonly",
      (store, index) => {
        store.get(keys[index]).onsuccess = ({ target }) => { sum += target.result; };
      });
    return figures;
  });
  for (const [name, ns] of Object.entries(figures)) console.log(`${name}: ${ns} ns`);
});
