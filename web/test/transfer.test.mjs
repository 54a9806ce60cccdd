// Moves a heap between `holdfast` and a page of a real Chromium, and back.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { APPLETS, HOLDFAST, tab } from "./browser.mjs";

const LIMIT = 16 * 2 ** 20;
let folder, environment;

before(() => {
  folder = mkdtempSync(join(tmpdir(), "holdfast-transfer-"));
  environment = {
    ...process.env, HOLDFAST_HOME: join(folder, "home"), HOLDFAST_POOL: join(folder, "pool"),
  };
});
after(() => rmSync(folder, { recursive: true, force: true }));

const holdfast = (...args) =>
  execFileSync(HOLDFAST, args, { env: environment, encoding: "utf8", timeout: 30_000 });
const guestbook = (heap, ...args) =>
  holdfast("run", "--heap", `guestbook=${heap}`, "--heap-size", "16MiB",
    join(APPLETS, "guestbook.wasm"), "--", ...args);
const file = (name) => join(folder, name);

/** The applet in a page. */
const inPage = ({ step }, ...args) =>
  step("run", { applet: "guestbook", args, limit: LIMIT });

/** A stream from `holdfast`, with an entry by Ada. */
function streamOf(heap) {
  guestbook(heap, "add", "Ada");
  holdfast("heap", "export", heap, file(heap));
  return readFileSync(file(heap));
}

// Guarantee: web/transfer
test("a heap moves into the page, is changed, and moves back", async () => {
  const stream = streamOf("out");
  const page = await tab();
  const base64 = stream.toString("base64");
  assert.equal(await page.step("importHeap", { name: "guestbook", base64 }), null);
  assert.match((await inPage(page, "list")).lines.join(), /Ada/);
  assert.equal((await inPage(page, "add", "Grace")).exitCode, 0);
  const back = await page.step("exportHeap", { name: "guestbook", limit: LIMIT });
  writeFileSync(file("back.holdfast"), Buffer.from(back, "base64"));
  holdfast("heap", "import", file("back.holdfast"), "back");
  assert.match(guestbook("back", "list"), /Ada[^]*Grace/);
  holdfast("heap", "check", "back");
});

// Guarantee: web/transfer
test("a heap that moves back again replaces its older state, and no other heap", async () => {
  const page = await tab();
  const stream = streamOf("again").toString("base64");
  const other = streamOf("other").toString("base64");
  const importing = (base64, replace) => page.step("importHeap", { name: "guestbook", base64, replace });
  assert.equal(await importing(stream), null);
  assert.equal((await inPage(page, "add", "Grace")).exitCode, 0);
  assert.equal(await importing(stream), "ExistsError");
  assert.equal(await importing(other, true), "ExistsError");
  guestbook("again", "add", "Barbara");
  rmSync(file("again"));
  holdfast("heap", "export", "again", file("again"));
  assert.equal(await importing(readFileSync(file("again")).toString("base64"), true), null);
  const listed = (await inPage(page, "list")).lines.join();
  assert.ok(/Ada.*Barbara/.test(listed) && !/Grace/.test(listed), listed);
});

// Guarantee: web/names
test("heaps are listed and removed, but for one that is open", async () => {
  const page = await tab();
  await page.step("open", {});
  await inPage(page, "add", "Ada");
  assert.deepEqual(await page.step("heapNames", {}), ["guestbook", "heap"]);
  assert.equal(await page.step("removeHeap", { name: "heap" }), "LockedError");
  assert.equal(await page.step("removeHeap", { name: "guestbook" }), null);
  assert.equal(await page.step("removeHeap", { name: "guestbook" }), "NotFoundError");
  assert.deepEqual(await page.step("heapNames", {}), ["heap"]);
  assert.equal((await inPage(page, "list")).lines.join("").includes("Ada"), false);
});

// Guarantee: web/names
test("a heap that a dead tab still has is removed, or locked", async () => {
  const { step } = await tab();
  await step("open", {});
  await step("close");
  assert.equal(await step("removeInUse", { name: "heap", times: 1000 }), "LockedError");
  assert.equal(await step("removeInUse", { name: "heap", times: 3 }), null);
});

// Guarantee: web/transfer
test("a heap that was born in a page is one of `holdfast run`", async () => {
  const page = await tab();
  assert.equal((await inPage(page, "add", "Edsger")).exitCode, 0);
  const stream = await page.step("exportHeap", { name: "guestbook", limit: LIMIT });
  writeFileSync(file("born.holdfast"), Buffer.from(stream, "base64"));
  holdfast("heap", "import", file("born.holdfast"), "born");
  assert.match(guestbook("born", "list"), /Edsger/);
  assert.match(guestbook("born", "add", "Barbara"), /entry 2/);
  holdfast("heap", "check", "born");
});

// Guarantee: web/transfer
test("a heap moves into IndexedDB and back, where there are no files", async () => {
  const stream = streamOf("database");
  const first = await tab();
  await first.step("refuseFiles");
  const job = { name: "guestbook", base64: stream.toString("base64") };
  assert.equal(await first.step("importHeap", job), "UnsupportedError");
  const fallback = "indexeddb";
  assert.equal(await first.step("importHeap", { ...job, fallback }), null);
  const run = ({ step }, ...args) =>
    step("run", { applet: "guestbook", args, limit: LIMIT, fallback });
  assert.equal((await run(first, "add", "Grace")).exitCode, 0);
  await first.page.close();
  const second = await tab();
  await second.step("refuseFiles");
  assert.match((await run(second, "list")).lines.join(), /Ada.*Grace/);
  assert.equal(await second.step("exportHeap", { name: "guestbook", limit: LIMIT }), "UnsupportedError");
  const back = await second.step("exportHeap", { name: "guestbook", limit: LIMIT, fallback });
  writeFileSync(file("database-back"), Buffer.from(back, "base64"));
  // The heap keeps the address that it had.
  assert.deepEqual(Buffer.from(back, "base64").subarray(16, 40), stream.subarray(16, 40));
  holdfast("heap", "import", file("database-back"), "database-back");
  assert.match(guestbook("database-back", "list"), /Ada[^]*Grace/);
  holdfast("heap", "check", "database-back");
});

// Guarantee: web/transfer-portable
test("a portable heap goes from a native applet to the page, and to one in WebAssembly, and back", async () => {
  const call = (applet, heap, name, input) =>
    holdfast("call", "--app", "mail", "--heap", heap, "--heap-size", "16MiB",
      join(APPLETS, applet), name, ...(input === undefined ? [] : [input]));
  const spam = "Save up to 70 % on life insurance, call now";
  const ham = "The meeting about the compiler is on Tuesday";
  call("mail", "mails", "learn", `spam\n${spam}`);
  holdfast("heap", "export", "mails", file("mails"));
  const { step } = await tab();
  const base64 = readFileSync(file("mails")).toString("base64");
  assert.equal(await step("importHeap", { name: "mail", base64 }), null);
  await step("serve", { applet: "mail" });
  assert.match(await step("call", { name: "count", input: "" }), /^spam\t1\n/);
  assert.equal(await step("call", { name: "learn", input: `work\n${ham}` }), "");
  assert.match(await step("call", { name: "classify", input: "life insurance" }), /^spam/);
  const there = await step("call", { name: "classify", input: "compiler meeting" });
  assert.match(there, /^work/);
  await step("stop");
  const back = await step("exportHeap", { name: "mail", limit: LIMIT });
  writeFileSync(file("mails-back"), Buffer.from(back, "base64"));
  holdfast("heap", "import", file("mails-back"), "mails-back");
  // `--app` names the applet's owner; a heap that was imported is handed over first.
  holdfast("heap", "adopt", "mails-back", "--by", join(APPLETS, "mail"), "--app", "mail");
  for (const applet of ["mail", "mail.wasm"]) {
    assert.equal(call(applet, "mails-back", "classify", "compiler meeting"), there);
  }
  holdfast("heap", "check", "mails-back");
});

// Guarantee: web/transfer
test("a heap that is open is exported as of its last commit, in files and in IndexedDB", async () => {
  const byte = 900_000;
  for (const fallback of [undefined, "indexeddb"]) {
    const { page, step } = await tab();
    if (fallback) await step("refuseFiles");
    await step("serve", { applet: "echo", fallback });
    assert.equal(await step("count", {}), 1);
    await step("fillHeap", { from: byte, value: 7 });
    const { stream, isSame } = await step("exportOpen");
    assert.ok(isSame, "two at once give the heap one address");
    assert.equal(await step("exportHeap", { name: "echo", fallback }), "LockedError");
    assert.equal(await step("count", {}), 2, "the applet goes on");
    await step("stop");
    const closed = await step("exportHeap", { name: "echo", fallback });
    const addressOf = (base64) => Buffer.from(base64, "base64").subarray(16, 40);
    assert.deepEqual(addressOf(closed), addressOf(stream));
    assert.equal(await step("importHeap", { name: "copy", base64: stream, fallback }), null);
    await step("serve", { applet: "echo", heaps: "copy", fallback });
    assert.equal(await step("count", {}), 2);
    assert.equal(await step("heapByte", { at: byte }), 0, "what was not committed is not in it");
    await step("stop");
    await step("serve", { applet: "echo", heaps: "other", fallback });
    await step("count", {});
    await step("stop");
    await step("serve", { applet: "echo", heaps: { heap: "other", access: "read-only" }, fallback });
    assert.equal(await step("exportOpen"), "ReadOnlyError");
    await page.close();
  }
});

// Guarantee: web/transfer
test("a heap is closed behind an export under way", async () => {
  const { step } = await tab();
  await step("serve", { applet: "echo" });
  assert.equal(await step("count", {}), 1);
  assert.deepEqual(await step("closeInExport"), ["exported", "closed", "exported", "closed"]);
});

// Guarantee: web/transfer
test("an import that fails or is killed leaves nothing, and costs no other heap", async () => {
  const { step } = await tab();
  const base64 = streamOf("vain").toString("base64");
  assert.deepEqual(await step("importInVain", { name: "vain", base64 }), ["QuotaError", true]);
  assert.equal(await step("originOfNothing"), false);
});

// Guarantee: web/transfer
test("a heap of any number of pages goes out and in again", async () => {
  const { step } = await tab();
  assert.deepEqual(await step("moveOddPages"), [65536, 7 * 10 * 4096]);
});

// Guarantee: web/transfer-damaged
test("a damaged header of a heap is not exported", async () => {
  const page = await tab();
  const base64 = streamOf("kept").toString("base64");
  const exported = (name) => page.step("exportHeap", { name, limit: LIMIT });
  assert.equal(await page.step("importHeap", { name: "imported", base64 }), null);
  await inPage(page, "add", "Ada");
  for (const heap of ["imported", "guestbook"]) {
    const whole = await exported(heap);
    for (const at of [0, 8, 33, 41, 200, 250]) {
      const damage = { heap, file: "origin", at };
      await page.step("damage", damage);
      assert.equal(await exported(heap), "CorruptError", `byte ${at} of ${heap}`);
      await page.step("damage", damage);
    }
    assert.equal(await exported(heap), whole);
    await page.step("cut", { heap, file: "origin", bytes: 100 });
    assert.equal(await exported(heap), "CorruptError");
  }
});

// Guarantee: web/transfer-damaged
test("a stream that differs in any part is refused, and nothing is stored", async () => {
  const stream = streamOf("damaged");
  const page = await tab();
  const load = (bytes) =>
    page.step("importHeap", { name: "guestbook", base64: bytes.toString("base64") });
  const step = Math.floor(stream.length / 60);
  for (let at = 0; at < stream.length; at += step) {
    const bytes = Buffer.from(stream);
    bytes[at] ^= 0x40;
    const expected = at >= 8 && at < 12 ? /Corrupt|Unsupported/ : /^CorruptError$/;
    assert.match(await load(bytes), expected, `byte ${at}`);
  }
  for (const length of [0, 7, 100, 256, 300, stream.length - 1]) {
    assert.equal(await load(stream.subarray(0, length)), "CorruptError", `${length} bytes`);
  }
  assert.equal(await load(Buffer.concat([stream, Buffer.from([0])])), "CorruptError");
  assert.equal(await load(stream), null, "nothing was stored before");
  assert.equal(await load(stream), "ExistsError");
});
