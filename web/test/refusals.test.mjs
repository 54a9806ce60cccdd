// What a heap does where the browser refuses something, or dies, in a real Chromium.
import assert from "node:assert/strict";
import { test } from "node:test";
import { tab } from "./browser.mjs";

// Guarantee: web/quota
test("a commit without storage is a QuotaError, the last one stands, and the next one may succeed", async () => {
  const { page, step, grant } = await tab();
  assert.equal(await step("open"), null);
  assert.equal(await step("commit", { value: 1 }), 64);
  await grant(300_000);
  let refused = 0;
  for (let value = 2; value < 30 && refused === 0; value++) {
    if (await step("commit", { value }) === "QuotaError") refused = value;
  }
  assert.notEqual(refused, 0, "the quota was never reached");
  await grant(1 << 30);
  assert.equal(await step("commit", { value: 100 }), 64);
  await page.close();
  const second = await tab();
  assert.equal(await second.step("open", { wait: true }), null);
  assert.deepEqual(await second.step("values"), [100]);
});

// Guarantee: web/no-files
test("a browser that gives a page no files is an UnsupportedError", async () => {
  const { step } = await tab();
  await step("refuseFiles");
  assert.equal(await step("open"), "UnsupportedError");
  assert.equal(await step("serve", { applet: "echo" }), "UnsupportedError");
});

// Guarantee: web/broken-disk
test("a store whose flush failed goes on no more, and what was committed before is there", async () => {
  const first = await tab();
  assert.equal(await first.step("open"), null);
  assert.equal(await first.step("commit", { value: 4 }), 64);
  await first.step("breakDisk");
  assert.equal(await first.step("commit", { value: 5 }), "StorageFailedError");
  assert.equal(await first.step("commit", { value: 6 }), "StorageFailedError", "and says so again");
  assert.equal(await first.step("commitFailure", { value: 7 }), "InvalidStateError", "what the browser said");
  await first.step("close");
  assert.equal(await first.step("commit", { value: 8 }), "Error", "it is just closed");
  await first.page.close();
  const second = await tab();
  assert.equal(await second.step("open", { wait: true }), null);
  const [value, ...others] = await second.step("values");
  assert.deepEqual(others, []);
  assert.ok(value === 4 || value === 5, `${value}`);
});

// Guarantee: web/broken-disk
test("a flush that fails in an applet's commit is no exit", async () => {
  const { step } = await tab();
  await step("serve", { applet: "ledgers", heaps: "one" });
  await step("call", { name: "add", input: "one" });
  await step("breakDisk");
  await step("fillHeap", { from: 1_000_000, value: 1 });
  assert.deepEqual(await step("callFailure", { name: "commit", input: "one" }),
    ["AppletEndedError", "the applet trapped", "StorageFailedError", "InvalidStateError"]);
});

// Guarantee: web/broken-disk
test("a checkpoint that failed at any write loses no commit, before it or after", async () => {
  const { step } = await tab();
  for (const nth of [1, 2, 3, 4]) {
    assert.equal(await step("open"), null);
    assert.equal(await step("commit", { value: nth }), 64);
    const failed = await step("failCheckpoint", { nth, value: 10 * nth });
    assert.equal(failed, nth === 4 ? null : "QuotaError", "a checkpoint has three writes");
    assert.equal(await step("open"), null);
    assert.deepEqual(await step("values"), [10 * nth]);
    await step("close");
  }
});

// Guarantee: web/cleared
test("storage that is cleared under an open heap is a StorageLostError, and no call hangs", async () => {
  for (const fallback of [undefined, "indexeddb"]) {
    const { page, step } = await tab();
    if (fallback) await step("refuseFiles");
    await step("serve", { applet: "echo", fallback });
    await step("call", { name: "count", input: "" });
    const session = await page.createCDPSession();
    const { origin } = new URL(page.url());
    await session.send("Storage.clearDataForOrigin", { origin, storageTypes: "all" });
    assert.equal(await step("commitNow"), "StorageLostError");
    const end = Date.now() + 10_000;
    let called;
    do called = await step("call", { name: "count", input: "" });
    while (called !== "StorageLostError" && Date.now() < end);
    assert.equal(called, "StorageLostError");
    assert.equal(await step("stop"), "StorageLostError");
    await page.close();
    const later = await tab();
    if (fallback) await later.step("refuseFiles");
    await later.step("serve", { applet: "echo", fallback, wait: true });
    const count = await later.step("call", { name: "count", input: "" });
    assert.equal(count.charCodeAt(0), 1, "what was cleared is gone");
    await later.page.close();
  }
});

// Guarantee: web/cleared
test("a start that fails says why, also where storage is lost", async () => {
  const { step } = await tab();
  assert.deepEqual(await step("failStart"), ["UnsupportedError", "not today"]);
});

// Guarantee: web/cleared
test("storage that could not be looked at is not lost", async () => {
  const { step } = await tab();
  await step("serve", { applet: "echo", commits: "idle" });
  await step("blind");
  assert.equal(await step("count"), 1);
  await new Promise((done) => setTimeout(done, 300));
  assert.equal(await step("count"), 2);
  assert.equal(await step("stop"), 0);
  await step("see");
  await step("serve", { applet: "echo" });
  assert.equal(await step("count"), 3);
});

// Guarantee: web/cleared
test("a commit stands where the look at the storage fails", async () => {
  const { step } = await tab();
  await step("serve", { applet: "echo" });
  assert.deepEqual(await step("commitBlind"), [null, null, null, null]);
});

// Guarantee: web/cleared
test("storage that is cleared while commits follow without a pause is noticed", async () => {
  const { page, step } = await tab();
  const steadily = step("commitSteadily", { ms: 10_000 });
  await new Promise((done) => setTimeout(done, 500));
  const session = await page.createCDPSession();
  const { origin } = new URL(page.url());
  const cleared = Date.now();
  await session.send("Storage.clearDataForOrigin", { origin, storageTypes: "all" });
  const [failure] = await steadily;
  assert.equal(failure, "StorageLostError");
  assert.ok(Date.now() - cleared < 5000, "the loop ended by it");
});

// Guarantee: web/quota
test("an applet that commits itself is told that there is no room, and goes on", async () => {
  const { step } = await tab();
  const call = (name) => step("call", { name, input: "one" });
  await step("serve", { applet: "ledgers", heaps: "one" });
  await call("add");
  await step("fillFirstFile");
  await step("fillHeap", { from: 1_000_000, value: 1 });
  // That of the applet, and the one behind the call.
  assert.equal(await call("commit"), "QuotaError");
  await step("emptyDisk");
  assert.equal(await call("commit"), "");
  assert.equal((await call("look")).charCodeAt(0), 1);
});

// Guarantee: web/tab-crash
test("a tab that crashes releases its heap, with all that its calls left", async () => {
  const first = await tab();
  await first.step("serve", { applet: "echo" });
  await first.step("call", { name: "count", input: "" });
  const crashed = new Promise((done) => first.page.once("error", done));
  first.page.goto("chrome://crash").catch(() => {});
  await crashed;
  const second = await tab();
  await second.step("serve", { applet: "echo", wait: true });
  assert.equal((await second.step("call", { name: "count", input: "" })).charCodeAt(0), 2);
});

// Guarantee: web/old-browsers
test("a browser without stack switching runs applets, and one without vectors says so", async () => {
  const first = await tab();
  await first.step("without", { what: "JSPI" });
  assert.equal(await first.step("serve", { applet: "echo" }), "UnsupportedError");
  const call = ({ step }, ...args) => step("run", { applet: "guestbook", args, limit: 16 * 2 ** 20 });
  assert.equal((await call(first, "add", "Ada")).exitCode, 0);
  await first.page.close();
  const second = await tab();
  await second.step("without", { what: "SIMD" });
  assert.equal(await call(second, "list"), "UnsupportedError");
  await second.page.close();
  const third = await tab();
  assert.match((await call(third, "list")).lines.join(), /Ada/);
});

// Guarantee: web/no-files
test("a page without Web Locks gets an UnsupportedError", async () => {
  const { step } = await tab();
  await step("without", { what: "locks" });
  for (const name of ["open", "serve", "share"]) {
    assert.equal(await step(name, { applet: "echo" }), "UnsupportedError", name);
  }
});
