// Heaps of JavaScript, readers and a full disk in Firefox, where Debian's package is installed.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { kill, tab, use } from "./browser.mjs";
import { Browser, FIREFOX } from "./browsers.mjs";
import { heapTab } from "./views-tab.mjs";

const skip = existsSync(FIREFOX) ? false : `there is no ${FIREFOX}; apt has the package firefox-esr`;
const OPTIONS = { skip, timeout: 120_000 };

// Guarantee: web/firefox
test("in Firefox a heap is read while none may write", OPTIONS, async () => {
  use(new Browser("firefox"));
  const first = await tab();
  assert.equal(await first.step("open"), null);
  assert.equal(await first.step("commit", { value: 9 }), 64);
  const [second, third] = [await tab(), await tab()];
  assert.equal(await second.step("open", { access: "read-only" }), "LockedError");
  // What is committed and not at home is read, too.
  await first.page.close();
  assert.equal(await second.step("open", { access: "read-only", wait: true }), null);
  assert.deepEqual(await second.step("values"), [9]);
  assert.equal(await second.step("commit", { value: 1 }), "Error");
  assert.equal(await third.step("open"), "LockedError");
  // A version whose file handles exclude one another also where all only read has one reader at a time.
  const another = await third.step("open", { access: "read-only" });
  assert.ok(another === null || another === "LockedError", `${another}`);
  if (another === null) assert.deepEqual(await third.step("values"), [9]);
  for (const { page } of [second, third]) await page.close();
  const last = await tab();
  assert.equal(await last.step("open", { wait: true }), null);
  assert.deepEqual(await last.step("values"), [9]);
});

// Guarantee: web/firefox
test("in Firefox typed values are there after a kill", OPTIONS, async () => {
  use(new Browser("firefox"));
  const first = await heapTab();
  const written = await first.run(async (holdfast) => {
    const { f64, KeptDocument, PersistentArray, PersistentHeap, PersistentMap, struct } = holdfast;
    const heap = await PersistentHeap.open("typed", { size: 4 * 2 ** 20 });
    const Point = struct("Point", { x: f64 });
    const point = Point.create(heap, "point", { x: 1 });
    const map = PersistentMap.open(heap, "map");
    const numbers = PersistentArray.open(heap, "numbers", f64);
    heap.transaction(() => {
      point.x = 2;
      map.set("ada", { born: 1815 });
      numbers.push(1, 2, 3);
    });
    KeptDocument.open(heap, "page", { html: "<p class=a>one<p>two" });
    let failure;
    try {
      heap.transaction(() => {
        point.x = 3;
        throw new RangeError("not this");
      });
    } catch (error) {
      failure = error.name;
    }
    return [heap.commit() > 0, failure, point.x];
  });
  assert.deepEqual(written, [true, "RangeError", 2]);
  await kill();
  const second = await heapTab();
  const read = await second.run(async (holdfast) => {
    const { f64, KeptDocument, PersistentArray, PersistentHeap, PersistentMap, struct } = holdfast;
    const options = { size: 4 * 2 ** 20, access: "read-only", wait: true };
    const heap = await PersistentHeap.open("typed", options);
    const point = struct("Point", { x: f64 }).open(heap, "point");
    const map = PersistentMap.open(heap, "map");
    let failure;
    try {
      map.set("ada", {});
    } catch (error) {
      failure = error.name;
    }
    const found = [heap.names().length > 0, point.x, map.get("ada"),
      [...PersistentArray.open(heap, "numbers", f64)],
      KeptDocument.open(heap, "page").querySelector("p.a").textContent, failure];
    await heap.close();
    return found;
  });
  assert.deepEqual(read, [true, 2, { born: 1815 }, [1, 2, 3], "one", "ReadOnlyError"]);
});

// Guarantee: web/firefox
test("in Firefox a full disk is a QuotaError, and loses nothing", OPTIONS, async () => {
  use(new Browser("firefox"));
  const first = await tab();
  await first.step("serve", { applet: "echo" });
  assert.equal(await first.step("count"), 1);
  await first.step("fillFirstFile");
  assert.equal(await first.step("count"), "QuotaError");
  await first.step("emptyDisk");
  assert.equal(await first.step("count"), 3, "what the call stored goes with the next commit");
  await kill();
  const second = await tab();
  await second.step("serve", { applet: "echo" });
  assert.equal(await second.step("count"), 4);
});
