// What an applet is told of a function of its host, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { HostFailure, HostFunctions } from "../dist/host-functions.js";

const [INPUT, OUTPUT, RECORD, ROOM] = [0, 1024, 4096, 1024];

/** Calls the first of these functions as an applet does: its status, and what it gives. */
async function call(functions, mayWait, timeout) {
  const memory = new WebAssembly.Memory({ initial: 1 });
  const host = new HostFunctions(functions, () => memory, timeout);
  host.mayWait = mayWait;
  const view = new DataView(memory.buffer);
  view.setUint32(RECORD + 4, 12_345, true);
  const answer = host.imports.host_call(0, INPUT, 0, OUTPUT, ROOM, RECORD);
  const status = mayWait ? await answer : answer;
  const bytes = new Uint8Array(memory.buffer, OUTPUT, view.getUint32(RECORD + 4, true));
  return [status, new TextDecoder().decode(bytes)];
}

// Guarantee: web/host-functions
test("an asynchronous function fails where nothing can wait", async () => {
  const functions = { slow: async () => "later" };
  assert.deepEqual(await call(functions, true), [0, "later"]);
  const [status, words] = await call(functions, false);
  assert.equal(status, 5);
  assert.match(words, /asynchronous.*JSPI/);
  // Nobody is told of a promise that is not waited for.
  const [failed] = await call({ fails: async () => { throw new Error("late"); } }, false);
  assert.equal(failed, 5);
  await new Promise((done) => setTimeout(done));
});

// Guarantee: web/host-functions
test("a function may take for ever, where its host says so", async () => {
  const functions = { slow: () => new Promise((done) => setTimeout(done, 100, "later")) };
  assert.match((await call(functions, true, 10))[1], /longer than 10 ms/);
  for (const timeout of [Infinity, 2 ** 31]) assert.deepEqual(await call(functions, true, timeout), [0, "later"]);
});

// Guarantee: web/host-functions
test("what a function throws is words for the applet", async () => {
  const numbered = Object.assign(new Error(), { message: 7 });
  for (const [thrown, expected] of [
    ["text", "text"], [undefined, "undefined"], [numbered, "7"], [new HostFailure(0, "none"), "none"],
    [new HostFailure(Symbol(), "no number"), "no number"],
    [Object.create(null), "the function of the host threw what has no words"]]) {
    assert.deepEqual(await call({ fails: () => { throw thrown; } }, false), [5, expected]);
    assert.deepEqual(await call({ fails: async () => { throw thrown; } }, true), [5, expected]);
  }
  const [status, words] = await call({ fails: () => { throw new HostFailure(404, "not there"); } }, false);
  assert.deepEqual([status, words], [0, "not there"]);
});
