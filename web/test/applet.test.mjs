// Runs applets in a real Chromium, the same files that `holdfast run` takes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { KILLS, kill, tab } from "./browser.mjs";
import { PHASES } from "./page-store.test.mjs";

const MIB = 2 ** 20;

/** A guest book in a new tab: `call("add", "Ada")` runs the applet once. */
async function guestbook() {
  const { page, step } = await tab();
  const call = (...args) => step("run", { applet: "guestbook", args, limit: 16 * MIB });
  return { page, step, call };
}

/** The entries, without the times of writing. */
const texts = ({ lines }) => lines.map((line) => line.split("  ").at(-1));

// Guarantee: web/applet
test("an applet finds its heap again after a reload", async () => {
  const first = await guestbook();
  for (const name of ["Ada", "Grace"]) assert.equal((await first.call("add", name)).exitCode, 0);
  await first.page.close();
  const second = await guestbook();
  const listed = await second.call("list");
  assert.equal(listed.committedPages, 0, "a run that only reads writes nothing");
  assert.match(listed.lines.join("\n"), /Ada[^]*Grace/);
});

// Guarantee: web/applet
test("an applet that allocates above its heaps reads folders and files of its host", async () => {
  const { step } = await tab();
  const job = { applet: "spellcheck", limit: 16 * MIB };
  const folders = {
    dict: { words: "it\nrained\nand\nthe\nsoup\nwas\ngood\n" },
    text: { letter: "It rained, and the soop was good.\n" },
  };
  const built = await step("run", { ...job, folders, args: ["--dict", "/dict", "/text/letter"] });
  assert.match(built.lines.join("\n"), /soop -> soup/);
  const warm = await step("run", { ...job, folders: { text: folders.text }, args: ["/text/letter"] });
  assert.deepEqual([warm.exitCode, warm.lines[0]], [1, built.lines[0]]);
});

// Guarantee: web/applet-trap
test("what a crashed applet had open is rolled back at its next run", async () => {
  const { step, call } = await guestbook();
  await call("add", "Ada");
  const before = await call("list");
  assert.match(before.lines.join(), /Ada/);
  const exported = () => step("exportHeap", { name: "guestbook", limit: 16 * MIB });
  const stored = await exported();
  assert.equal(await exported(), stored, "an export changes nothing");
  const crashed = await call("crash");
  assert.ok(crashed === "RuntimeError" || crashed.exitCode !== 0, JSON.stringify(crashed));
  assert.notEqual(await exported(), stored, "what the applet left is stored");
  assert.deepEqual((await call("list")).lines, before.lines);
});

// Guarantee: web/applet-trap
test("what an applet that serves left is committed when it ends", async () => {
  for (const [value, name] of ["store_and_crash", "store_and_exit"].entries()) {
    const first = await tab();
    await first.step("serve", { applet: "trial" });
    const input = String.fromCharCode(value + 1);
    assert.equal(await first.step("call", { name, input }), "AppletEndedError");
    assert.equal(await first.step("changedPages"), 0);
    // Nobody has closed it.
    await kill();
    const second = await tab();
    await second.step("serve", { applet: "trial" });
    assert.equal((await second.step("call", { name: "look", input: "" })).charCodeAt(0), value + 1);
    await kill();
  }
});

// Guarantee: web/applet-kill
test("a browser killed in a commit of an applet leaves each entry or nothing of it", async () => {
  const names = [];
  for (let round = 0; round < KILLS; round++) {
    const phase = PHASES[round % PHASES.length];
    const { step } = await guestbook();
    const args = ["add", `guest${round}`];
    const found = await step("run", { applet: "guestbook", args, limit: 16 * MIB, phase });
    assert.equal(found, "stalled");
    await kill();
    if (phase !== "written") names.push(args[1]);
  }
  const listed = (await (await guestbook()).call("list")).lines.join("\n");
  assert.deepEqual(listed.match(/guest\d+/g), names);
});

// Guarantee: web/calls
test("an applet that serves answers calls, one after the other, and keeps its heap", async () => {
  const first = await tab();
  const names = ["echo", "reverse", "upper", "count", "numbers"];
  assert.deepEqual(await first.step("serve", { applet: "echo" }), names);
  assert.equal(await first.step("call", { name: "echo", input: "hello" }), "hello");
  const inputs = Array.from({ length: 20 }, (_, i) => `number ${i}`);
  const reversed = inputs.map((input) => [...input].reverse().join(""));
  assert.deepEqual(await first.step("callAtOnce", { name: "reverse", inputs }), reversed);
  for (const count of [1, 2, 3]) {
    const output = await first.step("call", { name: "count", input: "" });
    assert.equal(output.charCodeAt(0), count);
  }
  assert.equal(await first.step("call", { name: "upper", input: "" }), "CallError");
  assert.equal(await first.step("call", { name: "lower", input: "" }), "UnsupportedError");
  // The call returned, so its commit is there: the tab ends without a word.
  await first.page.close();
  const second = await tab();
  await second.step("serve", { applet: "echo", wait: true });
  assert.equal((await second.step("call", { name: "count", input: "" })).charCodeAt(0), 4);
  assert.equal(await second.step("stop"), 0);
  assert.equal(await second.step("call", { name: "count", input: "" }), "AppletEndedError");
});

// Guarantee: web/streams
test("a streaming result comes in parts, and can be ended", async () => {
  const { step } = await tab();
  await step("serve", { applet: "echo" });
  const all = await step("stream", { name: "numbers", input: "100", most: 1000 });
  assert.deepEqual(all, { chunks: 100, last: "100", ended: "ended" });
  const some = await step("stream", { name: "numbers", input: "100000000", most: 5 });
  assert.deepEqual(some, { chunks: 5, last: "5", ended: "AbortError" });
  assert.equal(await step("call", { name: "echo", input: "still there" }), "still there");
});

// Guarantee: web/streams
test("a caller that gives up or fails ends its own call, and not the applet", async () => {
  const { step } = await tab();
  await step("serve", { applet: "echo" });
  assert.equal(await step("abortAtOnce", { name: "count" }), "AbortError");
  for (const isLater of [false, true]) {
    assert.equal(await step("streamIntoNothing", { name: "numbers", input: "100000000", isLater }), "RangeError");
  }
  assert.equal(await step("call", { name: "echo", input: "still there" }), "still there");
});

// Guarantee: web/streams
test("a call that is given up at any moment ends no other", async () => {
  const { step } = await tab();
  await step("serve", { applet: "echo" });
  const { ends, answers } = await step("abortInMoments", { name: "count", moments: 5 });
  assert.deepEqual(ends.slice(0, 2), ["AbortError", "AbortError"]);
  assert.deepEqual(answers, Array(5).fill("on"));
});

// Guarantee: web/streams
test("a call made while a part is taken is refused", async () => {
  const { step } = await tab();
  await step("serve", { applet: "echo" });
  assert.match(await step("callInChunk", { name: "numbers", input: "100" }), /onChunk called the applet/);
  assert.equal(await step("call", { name: "echo", input: "still there" }), "still there");
});

// Guarantee: web/host-functions
test("an applet calls the functions of its host, which may take their time, and no others", async () => {
  const { step } = await tab();
  await step("serve", { applet: "plugin", heaps: [], functionTimeout: 200 });
  assert.match(await step("call", { name: "count_vowels", input: "a house" }), /4/);
  assert.match(await step("call", { name: "count_vowels", input: "oh" }), /5/);
  assert.equal((await step("logged")).length > 0, true);
  // A function that hangs is given up; the applet goes on.
  assert.equal(await step("call", { name: "title", input: "http://127.0.0.1/" }), "CallError");
  assert.match(await step("call", { name: "count_vowels", input: "oh" }), /6/);
});

// Guarantee: web/calls
test("a call takes bytes in every form, and what is none is a TypeError", async () => {
  const { step } = await tab();
  await step("serve", { applet: "echo" });
  assert.deepEqual(await step("callWithAll", { name: "echo" }),
    ["abcd", "abcd", "abcd", "abcd", "abcd", "TypeError", "TypeError"]);
  await step("stop");
  // So it is with what a function of the host returns.
  await step("returnFromHost", { value: 7 });
  await step("serve", { applet: "plugin", heaps: [] });
  for (let i = 0; i < 2; i++) {
    assert.equal(await step("call", { name: "count_vowels", input: "a" }), "CallError");
  }
});

// Guarantee: web/calls
test("the applet's own memory is an input, also when it grows", async () => {
  const { step } = await tab();
  await step("serve", { applet: "echo" });
  assert.deepEqual(await step("callWithHeap"), [0, true]);
});

// Guarantee: web/unsupported
test("an applet that is no program for a page is an UnsupportedError", async () => {
  const { step } = await tab();
  assert.equal(await step("serve", { applet: "guestbook" }), "UnsupportedError");
  assert.equal((await step("run", { applet: "echo", args: [] })).exitCode, 0, "it is told to end");
});

// Guarantee: web/layout
test("a heap whose pointers lead where a page has no room is a LayoutMismatchError", async () => {
  const { step, call } = await guestbook();
  assert.equal((await call("add", "Ada")).exitCode, 0);
  const bases = [0, 4096, 2 ** 31 + 4096, 2 ** 31 - 65536, 2 ** 32 - 65536, 2 ** 52, 2 ** 63];
  for (const base of bases) {
    assert.equal(await step("setBase", { name: "guestbook", base }), null);
    assert.equal(await call("list"), "LayoutMismatchError", `${base}`);
  }
  assert.equal(await step("setBase", { name: "guestbook", base: 2 ** 31 }), null);
  assert.match((await call("list")).lines.join(), /Ada/);
});

// Guarantee: web/outside-stores
test("what a page stores to the heap of an applet itself is counted, committed, and there again", async () => {
  const first = await tab();
  await first.step("serve", { applet: "echo" });
  await first.step("call", { name: "count", input: "" });
  assert.equal(await first.step("heapBase"), 2 ** 31);
  const at = 1_000_003;
  assert.deepEqual(await first.step("storeOutside", { at, value: 5 }), [1, 1, 0]);
  assert.equal(await first.step("changedPages"), 0);
  await first.page.close();
  const second = await tab();
  await second.step("serve", { applet: "echo", wait: true });
  assert.equal((await second.step("call", { name: "count", input: "" })).charCodeAt(0), 2);
  assert.equal(await second.step("heapByte", { at }), 5);
});

// Guarantee: web/uncommitted-calls
test("a call that is not to be committed is none, and goes with the next commit", async () => {
  const count = ({ step }, rest) => step("count", rest);
  const first = await tab();
  await first.step("serve", { applet: "echo" });
  assert.equal(await count(first), 1);
  assert.equal(await count(first, { commit: false }), 2);
  assert.ok(await first.step("changedPages") > 0);
  await kill();
  const second = await tab();
  await second.step("serve", { applet: "echo" });
  assert.equal(await count(second, { commit: false }), 2, "it was lost with the browser");
  assert.equal(await count(second), 3);
  await kill();
  const third = await tab();
  await third.step("serve", { applet: "echo", commits: "idle" });
  assert.equal(await count(third), 4);
  assert.ok(await third.step("changedPages") > 0);
  await new Promise((done) => setTimeout(done, 500));
  assert.equal(await third.step("changedPages"), 0, "it was committed when nothing was called");
  const end = Date.now() + 3000;
  let calls = 4, isCommitted = false;
  while (!isCommitted && Date.now() < end) {
    assert.equal(await count(third), ++calls);
    isCommitted = await third.step("changedPages") === 0;
  }
  assert.ok(isCommitted, "calls without a pause are committed, too");
  await kill();
  const fourth = await tab();
  await fourth.step("serve", { applet: "echo" });
  assert.equal(await count(fourth), calls + 1);
});

// Guarantee: web/storage-state
test("a page asks for lasting storage and learns what is used; a worker may only look", async () => {
  const { page, step } = await tab();
  await step("open");
  await step("commit", { value: 1 });
  const { usedBytes, quotaBytes, isPersistent } = await step("storageState");
  assert.ok(usedBytes > 64 * 4096 && quotaBytes > usedBytes && !isPersistent);
  assert.equal(await step("keepStorage"), "UnsupportedError");
  const session = await page.createCDPSession();
  const granted = () => page.evaluate(async () => await (await import("/dist/index.js")).keepStorage());
  assert.equal(await granted(), false);
  const permission = { permission: { name: "persistent-storage" }, setting: "granted" };
  await session.send("Browser.setPermission", { ...permission, origin: new URL(page.url()).origin });
  assert.equal(await granted(), true);
  assert.equal((await step("storageState")).isPersistent, true);
});
