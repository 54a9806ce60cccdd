// Several heaps for one applet, and several tabs for one applet, in a real Chromium.
import assert from "node:assert/strict";
import { test } from "node:test";
import { kill, tab } from "./browser.mjs";

const number = (latin1) =>
  [...latin1].reduceRight((sum, character) => sum * 256 + character.charCodeAt(0), 0);

// Guarantee: web/several-heaps
test("an applet has several heaps, each at a place of its own that stays", async () => {
  const first = await tab();
  await first.step("serve", { applet: "ledgers", heaps: ["one", { heap: "two", name: "other" }] });
  const call = (step, name, input) => step("call", { name, input });
  for (let i = 0; i < 3; i++) await call(first.step, "add", "one other");
  await call(first.step, "add", "other");
  assert.equal(number(await call(first.step, "look", "one")), 3);
  assert.equal(number(await call(first.step, "look", "other")), 4);
  assert.equal(await call(first.step, "look", "two"), "CallError", "its name in the applet is other");
  const places = [await call(first.step, "where", "one"), await call(first.step, "where", "other")];
  assert.notEqual(places[0], places[1]);
  await first.page.close();
  // In the other order, and one of them without the other.
  const second = await tab();
  await second.step("serve", { applet: "ledgers", heaps: ["two", "one"], wait: true });
  assert.deepEqual([await call(second.step, "where", "one"), await call(second.step, "where", "two")], places);
  assert.equal(number(await call(second.step, "look", "two")), 4);
  await second.step("stop");
  await second.step("serve", { applet: "ledgers", heaps: "two" });
  await call(second.step, "add", "two");
  assert.equal(number(await call(second.step, "look", "two")), 5);
});

// Guarantee: web/quota
test("a heap without room is a QuotaError, and costs the heaps beside it nothing", async () => {
  const heaps = ["one", "two"];
  const first = await tab();
  await first.step("serve", { applet: "ledgers", heaps });
  await first.step("call", { name: "add", input: "one two" });
  await first.step("fillFirstFile");
  assert.equal(await first.step("call", { name: "add", input: "one two" }), "QuotaError");
  await kill();
  const second = await tab();
  await second.step("serve", { applet: "ledgers", heaps, wait: true });
  const counts = [];
  for (const input of heaps) counts.push(number(await second.step("call", { name: "look", input })));
  assert.deepEqual(counts, [1, 2]);
});

// Guarantee: web/readers
test("several tabs call applets on one heap for reading", async () => {
  const first = await tab();
  await first.step("serve", { applet: "ledgers", heaps: "one" });
  await first.step("call", { name: "add", input: "one" });
  await first.step("stop");
  const readers = [await tab(), await tab()];
  for (const { step } of readers) {
    await step("serve", { applet: "ledgers", heaps: { heap: "one", access: "read-only" } });
    assert.equal(number(await step("call", { name: "look", input: "one" })), 1);
    assert.equal(await step("call", { name: "add", input: "one" }), "CallError");
  }
  assert.equal(await first.step("serve", { applet: "ledgers", heaps: "one" }), "LockedError");
});

// Guarantee: web/layout
test("heaps that were made for one place are a LayoutMismatchError together", async () => {
  const { step } = await tab();
  for (const heaps of ["one", "two"]) {
    await step("serve", { applet: "ledgers", heaps });
    await step("call", { name: "add", input: heaps });
    await step("stop");
  }
  assert.equal(await step("serve", { applet: "ledgers", heaps: ["one", "two"] }), "LayoutMismatchError");
});

// Guarantee: web/shared
test("three tabs share an applet, and it moves on when the tab that runs it closes or dies", async () => {
  const tabs = [await tab(), await tab(), await tab()];
  const owners = [];
  for (const { step } of tabs) owners.push(await step("share", { applet: "echo" }));
  assert.deepEqual(owners, [true, false, false]);
  const count = async ({ step }) => number(await step("sharedCall", { name: "count", input: "" }));
  const counts = [];
  for (let round = 0; round < 3; round++) for (const one of tabs) counts.push(await count(one));
  assert.deepEqual(counts, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.equal(await tabs[1].step("sharedCall", { name: "upper", input: "" }), "CallError");
  // In order: the next tab starts it, with all that was counted.
  await tabs[0].step("unshare");
  assert.equal(await count(tabs[1]), 10);
  assert.equal(await count(tabs[2]), 11);
  assert.equal(await tabs[1].step("isOwner"), true);
  // Without a word.
  await tabs[1].page.close();
  for (let i = 0; !(await tabs[2].step("isOwner")) && i < 100; i++) {
    await new Promise((done) => setTimeout(done, 50));
  }
  assert.equal(await count(tabs[2]), 12);
  await kill();
});

// Guarantee: web/shared
test("a call to a tab that dies is an OwnerLostError, and is not made again", async () => {
  const [first, second] = [await tab(), await tab()];
  await first.step("share", { applet: "plugin" });
  await second.step("share", { applet: "plugin" });
  // Its host function never answers.
  const lost = second.step("sharedCall", { name: "title", input: "http://127.0.0.1/" });
  await new Promise((done) => setTimeout(done, 300));
  await first.page.close();
  assert.equal(await lost, "OwnerLostError");
  assert.match(await second.step("sharedCall", { name: "count_vowels", input: "a" }), /1/);
});

// Guarantee: web/shared
test("a tab whose start failed once starts the applet at its next call", async () => {
  const [first, second] = [await tab(), await tab()];
  const count = async ({ step }) => step("sharedCall", { name: "count", input: "" });
  await first.step("share", { applet: "echo" });
  await second.step("share", { applet: "echo", failures: 1 });
  assert.equal(number(await count(first)), 1);
  await first.step("unshare");
  // The first call after it may come before the failure, and have it.
  const next = await count(second);
  assert.equal(next === "RangeError" ? number(await count(second)) : number(next), 2);
  assert.equal(await second.step("isOwner"), true);
});

// Guarantee: web/shared
test("an applet that trapped is started anew for all tabs, and its error is of its class", async () => {
  const tabs = [await tab(), await tab()];
  for (const { step } of tabs) await step("share", { applet: "trial" });
  for (const { step } of [...tabs, ...tabs]) {
    assert.deepEqual(await step("sharedFailure", { name: "crash" }), ["AppletEndedError", true]);
    for (const other of tabs) assert.equal(await other.step("sharedCall", { name: "echo", input: "a" }), "a");
  }
});

// Guarantee: web/shared
test("an applet whose disk failed moves on to the next tab", async () => {
  const [first, second] = [await tab(), await tab()];
  for (const { step } of [first, second]) await step("share", { applet: "echo" });
  const count = async () => second.step("sharedCall", { name: "count", input: "" });
  assert.equal(number(await count()), 1);
  await first.step("breakDisk");
  assert.equal(await count(), "StorageFailedError");
  for (let i = 0; !(await second.step("isOwner")) && i < 100; i++) {
    await new Promise((done) => setTimeout(done, 50));
  }
  assert.equal(await second.step("isOwner"), true);
  // Whether the commit that failed is stored is not known.
  assert.ok([2, 3].includes(number(await count())));
});

// Guarantee: web/shared
test("a call right behind a trap is answered, and one that a failed start follows is lost", async () => {
  const alone = await tab();
  await alone.step("share", { applet: "trial" });
  assert.equal(await alone.step("sharedRetry", { name: "echo", input: "again" }), "again");
  const [first, second] = [await tab(), await tab()];
  await first.step("share", { applet: "plugin" });
  await second.step("share", { applet: "plugin", failures: 1 });
  // Its host function never answers.
  const lost = second.step("sharedCall", { name: "title", input: "http://127.0.0.1/" });
  await new Promise((done) => setTimeout(done, 300));
  await first.page.close();
  assert.equal(await lost, "OwnerLostError");
  assert.match(await second.step("sharedCall", { name: "count_vowels", input: "a" }), /1/);
});

// Guarantee: web/shared
test("a call in the moment in which an applet ends is answered", async () => {
  const { step } = await tab();
  assert.deepEqual(await step("sharedAtEnd", { moments: 8 }), Array(8).fill("answered"));
});

// Guarantee: web/shared
test("a tab that leaves is not told as the one to call", async () => {
  const { step } = await tab();
  assert.deepEqual(await step("sharedLateWords"), { before: "owner", answer: "answered", after: "nobody" });
});

// Guarantee: web/streams
test("a shared call made while a part is taken is refused", async () => {
  const tabs = [await tab(), await tab()];
  for (const { step } of tabs) await step("share", { applet: "echo" });
  for (const { step } of tabs) {
    const ended = await step("callInChunk", { name: "numbers", input: "100", isShared: true });
    assert.match(ended, /onChunk called the applet/);
    assert.equal(await step("sharedCall", { name: "echo", input: "on" }), "on");
  }
});

// Guarantee: web/shared
test("who closes an applet again waits until it is closed", async () => {
  const { step } = await tab();
  const order = ["first", "second"];
  await step("serve", { applet: "echo" });
  assert.deepEqual(await step("closeTwice", { what: "applet" }), order);
  await step("share", { applet: "echo" });
  assert.deepEqual(await step("closeTwice", { what: "shared" }), order);
});

// Guarantee: web/shared
test("a call that waits for an applet is ended by its signal", async () => {
  const { step } = await tab();
  await step("share", { applet: "trial", starts: 1 });
  await step("sharedFailure", { name: "crash" });
  assert.equal(await step("sharedInTime", { name: "echo", ms: 200 }), "TimeoutError");
});

// Guarantee: web/shared
test("an error of another tab is of its class when minified", async () => {
  const [first, second] = [await tab(), await tab()];
  for (const { step } of [first, second]) await step("share", { applet: "trial" });
  await second.step("minify");
  assert.deepEqual(await second.step("sharedFailure", { name: "crash" }), ["AppletEndedError", true]);
});

// Guarantee: web/shared
test("a tab that leaves while it takes a part leaves no error", async () => {
  const [first, second] = [await tab(), await tab()];
  for (const { step } of [first, second]) await step("share", { applet: "echo" });
  assert.deepEqual(await second.step("leaveInStream", { name: "numbers", input: "100" }),
    ["AppletEndedError", []]);
  assert.equal(await first.step("sharedCall", { name: "echo", input: "on" }), "on");
});

// Guarantee: web/shared
test("a call for another tab streams, and is ended there", async () => {
  const [first, second] = [await tab(), await tab()];
  for (const { step } of [first, second]) await step("share", { applet: "echo" });
  const all = await second.step("sharedStream", { name: "numbers", input: "100" });
  assert.deepEqual([all.chunks > 10, all.ended], [true, "ended"]);
  const part = await second.step("sharedStream", { name: "numbers", input: "100000000", most: 3 });
  assert.equal(part.ended, "AbortError");
  assert.equal(await first.step("sharedCall", { name: "echo", input: "on" }), "on", "it is over there, too");
  // A tab that dies while it takes the parts.
  second.step("sharedStream", { name: "numbers", input: "100000000" }).catch(() => {});
  await new Promise((done) => setTimeout(done, 300));
  await second.page.close();
  assert.equal(await first.step("sharedCall", { name: "echo", input: "on" }), "on");
});

// Guarantee: web/several-heaps
test("tabs that wait for the same heaps in another order do not wait for one another", async () => {
  const tabs = [await tab(), await tab()];
  const orders = [["one", "two"], ["two", "one"]];
  const had = await Promise.all(tabs.map(({ step }, i) => step("openBoth", { heaps: orders[i], rounds: 20 })));
  assert.deepEqual(had, [20, 20]);
  const twice = [{ heap: "one", name: "a" }, { heap: "one", name: "b" }];
  assert.equal(await tabs[0].step("openBoth", { heaps: twice, rounds: 1 }), "RangeError");
});

// Guarantee: web/layout
test("a heap that is larger than the limit of new ones is opened without one, and keeps its own", async () => {
  const { step } = await tab();
  const bytes = 264 * 2 ** 20;
  assert.equal(await step("limitOf", { bytes: 2 ** 20 }), 256 * 2 ** 20);
  assert.equal(await step("limitOf", { bytes }), bytes);
  assert.equal(await step("limitOf", { bytes, limit: 300 * 2 ** 20 }), 300 * 2 ** 20);
});
