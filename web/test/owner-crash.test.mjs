// A tab that crashes while it runs the applet of two others, in a real Chromium.
import assert from "node:assert/strict";
import { test } from "node:test";
import { tab } from "./browser.mjs";

const number = (latin1) =>
  [...latin1].reduceRight((sum, character) => sum * 256 + character.charCodeAt(0), 0);

// Guarantee: web/shared
test("a crashed owner's calls are lost, and others take over", { timeout: 60_000 }, async () => {
  const tabs = [await tab(), await tab(), await tab()];
  const owners = [];
  for (const { step } of tabs) owners.push(await step("share", { applet: "echo" }));
  assert.deepEqual(owners, [true, false, false]);
  const [owner, second, third] = tabs;
  const count = async ({ step }) => number(await step("sharedCall", { name: "count", input: "" }));
  assert.deepEqual([await count(owner), await count(second), await count(third)], [1, 2, 3]);
  // One that never ends, and one that waits behind it, and is not made.
  const streaming = second.step("sharedStream", { name: "numbers", input: "100000000" });
  await new Promise((done) => setTimeout(done, 1000));
  const waiting = third.step("sharedCall", { name: "count", input: "" });
  await new Promise((done) => setTimeout(done, 1000));
  const crashed = new Promise((done) => owner.page.once("error", done));
  owner.page.goto("chrome://crash").catch(() => {});
  await crashed;
  assert.equal((await streaming).ended, "OwnerLostError");
  assert.equal(await waiting, "OwnerLostError");
  assert.deepEqual([await count(second), await count(third)], [4, 5]);
  assert.deepEqual([await second.step("isOwner"), await third.step("isOwner")], [true, false]);
});
