"use strict";
// The JavaScript side of measurements; driver.py says what it reads and answers.

const { createInterface } = require("node:readline");

function load(source) {
  const module = { exports: {} };
  new Function("module", source)(module);
  return module.exports;
}

let sources;

function md5({ bytes }) {
  const message = new Uint8Array(bytes);
  const view = new DataView(message.buffer);
  for (let at = 0; at + 4 <= bytes; at += 4) view.setUint32(at, (at / 4) % 256, true);
  if (bytes % 4) message[bytes - (bytes % 4)] = Math.floor(bytes / 4) % 256;
  return () => sources.md5.digest(message);
}

function eviction({ hot, pages }) {
  const policy = new sources.eviction.Eviction();
  policy.hot(Array.from({ length: hot }, (_, page) => page));
  const list = Uint32Array.from(pages);
  return () => policy.evict(list);
}

function workload(count, logicalBlocks) {
  const blocks = new Uint32Array(count);
  const next = (state) => (Math.imul(state, 1664525) + 1013904223) >>> 0;
  let state = 1;
  for (let i = 0; i < count; i++) {
    state = next(state);
    const among = (state >>> 16) % 5 ? Math.floor(logicalBlocks / 5) : logicalBlocks;
    state = next(state);
    blocks[i] = (state >>> 8) % among;
  }
  return blocks;
}

function cleaned_disk({ blocks, segment_blocks, logical_blocks, batch }) {
  const disk = new sources.logical_disk.LogicalDisk(blocks, segment_blocks, logical_blocks);
  disk.update(Array.from({ length: logical_blocks }, (_, block) => block));
  const writes = workload(16 * batch, logical_blocks);
  let at = 0;
  return () => {
    const steps = disk.update(writes.subarray(at, at + batch));
    at = (at + batch) % writes.length;
    return steps;
  };
}

const tasks = { md5, eviction, cleaned_disk };
const prepared = new Map();

function answer(order) {
  const key = JSON.stringify([order.task, order.arguments]);
  if (!prepared.has(key)) prepared.set(key, tasks[order.task](order.arguments));
  const task = prepared.get(key);
  let result;
  const started = process.hrtime.bigint();
  for (let i = 0; i < order.times; i++) result = task();
  const taken = process.hrtime.bigint() - started;
  return { us: Number(taken) / 1e3 / order.times, result };
}

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

createInterface({ input: process.stdin }).on("line", (line) => {
  const value = JSON.parse(line);
  if (sources) {
    say(answer(value));
    return;
  }
  sources = Object.fromEntries(Object.entries(value).map(([name, source]) => [name, load(source)]));
  say({ version: process.versions.node });
});
