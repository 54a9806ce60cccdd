// What an opening is spared by the sums that the last one kept, and when it believes them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { kill, tab } from "./browser.mjs";

/** The pages of a heap of 512, in all distances up to 7, and some in a row. */
const PAGES = [];
for (let page = 3, step = 1; page < 512; page += step, step = step % 7 + 1) PAGES.push(page);
PAGES.push(0, 1, 2, 511);

// Guarantee: web/kept-sums
test("a heap is read without its pages of zeroes, and no other page is left out", async () => {
  const { step } = await tab();
  await step("commitWithSums", { pages: [9, 200, 201, 207], value: 5 });
  const { isKept, isSame, pages, told } = await step("readBySums");
  // Pages 202 to 206 are a gap of five, which is not read.
  assert.deepEqual([isKept, isSame, pages, told], [true, true, 4, []]);
  await step("commitWithSums", { pages: PAGES, value: 7 });
  const all = await step("readBySums");
  assert.deepEqual([all.isKept, all.isSame], [true, true]);
  assert.ok(all.pages < 512, `${all.pages} pages were read`);
  await kill();
  assert.deepEqual(await (await tab()).step("readBySums"), all, "after the browser was killed");
});

// Guarantee: web/kept-sums
test("kept sums count for the image that they were made of, and commits come on top", async () => {
  const { step } = await tab();
  await step("commitWithSums", { pages: PAGES, value: 7 });
  await step("commitWithoutSums", { page: 300, value: 9, isHome: false });
  const journalled = await step("readBySums");
  assert.deepEqual([journalled.isKept, journalled.isSame], [true, true]);
  assert.deepEqual(journalled.told, [[300, 301]]);
  // Page 302 is zero in the sums, and no more in the image.
  await step("commitWithoutSums", { page: 302, value: 9, isHome: true });
  const stale = await step("readBySums");
  assert.deepEqual([stale.isKept, stale.isSame], [false, true]);
  assert.deepEqual(stale.told, [[0, 64], [64, 128], [128, 192], [192, 256], [256, 320], [320, 384],
    [384, 448], [448, 512]]);
});

// Guarantee: web/kept-sums
test("a checkpoint that broke off is no damage to who reads", async () => {
  const { step } = await tab();
  await step("commitWithSums", { pages: PAGES, value: 7 });
  assert.deepEqual(await step("readBegunCheckpoint", { page: PAGES[3], value: 9 }), [true, true]);
});

// Guarantee: web/kept-sums
test("damaged sums are none", async () => {
  const { step } = await tab();
  for (const at of [0, 5, 9, 18, 64, 64 + 511 * 8, 5000]) {
    await step("commitWithSums", { pages: PAGES, value: 7 });
    assert.equal((await step("readBySums")).isKept, true);
    await step("damage", { file: "sums", at, heap: "sparse" });
    const { isKept, isSame } = await step("readBySums");
    assert.deepEqual([isKept, isSame], [false, true], `byte ${at}`);
  }
});

// Guarantee: web/kept-sums
test("an applet's heap is read by its sums after it was closed or idle, also in a killed tab", async () => {
  const first = await tab();
  assert.equal((await first.step("readOfApplet", { applet: "echo" })).count, 1);
  // While nothing is called, the commit is brought home, and the sums are kept.
  await new Promise((done) => setTimeout(done, 1500));
  await kill();
  for (const count of [2, 3]) {
    const { page, step } = await tab();
    const found = await step("readOfApplet", { applet: "echo" });
    assert.deepEqual([found.count, found.changed], [count, 0]);
    assert.ok(found.readBytes < found.heapBytes / 2, `${found.readBytes} of ${found.heapBytes} read`);
    await step("stop");
    await page.close();
  }
});

// Guarantee: web/damage
test("nothing is committed on a stored page with one other bit, and none is exported", async () => {
  const { step } = await tab();
  assert.deepEqual(await step("numbers", { name: "book", count: 100_000, write: true }), [100_000, true]);
  assert.deepEqual(await step("numbers", { name: "book" }), [100_000, true]);
  await step("takeSnapshot", { heap: "book", name: "good" });
  await step("damageNumber", { heap: "book", value: 77_777 });
  assert.equal(await step("numbers", { name: "book", count: 100_001, write: true }), "CorruptError");
  assert.equal(await step("exportHeap", { name: "book", limit: 16 * 2 ** 20 }), "CorruptError");
  assert.equal(await step("takeSnapshot", { heap: "book", name: "bad" }), "CorruptError");
  await step("rollBack", { heap: "book", name: "good" });
  assert.deepEqual(await step("numbers", { name: "book" }), [100_000, true]);
});

// Guarantee: web/damage
test("a heap that lacks a file or a part of one is a CorruptError, and none that is empty", async () => {
  const { step } = await tab();
  for (const cut of [{ file: "image" }, { file: "image", bytes: 65_536 }, { file: "image", bytes: 65_537 },
    { file: "journal" }, { file: "journal", bytes: 11 }]) {
    await step("numbers", { name: "book", count: 100_000, write: true });
    await step("cut", { heap: "book", ...cut });
    assert.equal(await step("numbers", { name: "book", write: true }), "CorruptError", JSON.stringify(cut));
    assert.equal(await step("removeHeap", { name: "book" }), null);
  }
});

// Guarantee: web/applet
test("a module that never comes releases the heaps that were opened meanwhile", async () => {
  const { step } = await tab();
  assert.equal(await step("serveNothing", { heap: "echo" }), "TypeError");
  await step("serve", { applet: "echo" });
  assert.equal(await step("count", {}), 1);
});
