// What operations on a heap cost that JavaScript opens itself, beside `Map` and IndexedDB.
import { array, f64, KeptDocument, PersistentArray, PersistentHeap, PersistentMap, ref, struct, u8,
} from "/dist/index.js";

const COUNT = 200_000;
/** Operations of IndexedDB, which takes longer. */
const ASKED = 20_000;
const NODES = 20_000;
const keys = Array.from({ length: COUNT }, (_, index) => `key${index * 7919 % 1000003}`);

/** Nanoseconds of each operation, by its name; those of documents are of one. */
export async function measureViews() {
  const figures = {};
  let sum = 0;
  const measure = (name, work, count = COUNT) => {
    const from = performance.now();
    work();
    figures[name] = (performance.now() - from) / count * 1e6;
  };
  const each = (work) => { for (let index = 0; index < COUNT; index++) work(index); };
  const fill = (map) => each((index) => map.set(keys[index], index));
  const read = (map) => each((index) => { sum += map.get(keys[index]); });
  const walk = (map) => { for (const [, value] of map) sum += value; };
  const name = `views ${Math.random()}`;
  const heap = await PersistentHeap.open(name);
  const map = PersistentMap.open(heap, "numbers", { value: "number" }), own = new Map();
  measure("map_set_new", () => fill(map));
  measure("js_map_set_new", () => fill(own));
  measure("map_set", () => fill(map));
  measure("map_set_in_transaction", () => heap.transaction(() => fill(map)));
  measure("map_get", () => read(map));
  measure("js_map_get", () => read(own));
  measure("map_iterate", () => walk(map));
  measure("js_map_iterate", () => walk(own));
  const json = PersistentMap.open(heap, "json");
  measure("map_set_object", () => each((index) => json.set(keys[index], { id: index, name: "Ada" })));
  measure("map_get_object", () => each((index) => { sum += json.get(keys[index]).id; }));
  const list = PersistentArray.open(heap, "list", f64);
  measure("array_push", () => each((index) => list.push(index)));
  measure("array_get", () => each((index) => { sum += list.get(index); }));
  const Point = struct("Point", { x: f64, next: ref("Point"), bytes: array(u8, 4) });
  const point = Point.create(heap, "point");
  point.next = point;
  measure("field_read", () => each(() => { sum += point.x; }));
  measure("field_write", () => each((index) => { point.x = index; }));
  let at = point;
  measure("reference_follow", () => each(() => { at = at.next; }));
  const html = `<ul>${"<li class=x><b>item</b> text".repeat(NODES)}`;
  measure("document_parse", () => KeptDocument.parse(heap, "page", html), 1);
  measure("document_open", () => { for (let i = 0; i < 100; i++) KeptDocument.open(heap, "page"); }, 100);
  const page = KeptDocument.open(heap, "page");
  let found = 0;
  measure("document_query", () => { found = page.querySelectorAll("li.x > b").length; }, 1);
  if (found !== NODES) throw new Error(`${found} elements were found`);
  await heap.close();

  const database = await new Promise((done, failed) => {
    const request = indexedDB.open(name);
    request.onupgradeneeded = () => request.result.createObjectStore("numbers");
    request.onsuccess = () => done(request.result);
    request.onerror = failed;
  });
  /** All in one transaction. */
  const all = async (figure, mode, ask) => {
    const from = performance.now();
    const transaction = database.transaction("numbers", mode);
    const store = transaction.objectStore("numbers");
    for (let index = 0; index < ASKED; index++) ask(store, index);
    await new Promise((done) => { transaction.oncomplete = done; });
    figures[figure] = (performance.now() - from) / ASKED * 1e6;
  };
  await all("indexeddb_put", "readwrite", (store, index) => { store.put(index, keys[index]); });
  await all("indexeddb_get", "readonly", (store, index) => {
    store.get(keys[index]).onsuccess = ({ target }) => { sum += target.result; };
  });
  database.close();
  const numbers = COUNT * (COUNT - 1) / 2;
  if (!(sum > numbers * 6)) throw new Error("something was lost");
  return figures;
}
