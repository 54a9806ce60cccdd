// The sums by which changed pages are found, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { PageSums } from "../dist/page-sums.js";

const PAGE = 4096;
const BASE = 16 * PAGE;

function heap(pages) {
  const memory = new WebAssembly.Memory({ initial: 1 + pages / 16 + 1 });
  const bytes = new Uint8Array(memory.buffer, BASE, pages * PAGE);
  return { bytes, sums: new PageSums(memory, BASE), words: new BigUint64Array(memory.buffer, BASE, pages * PAGE / 8) };
}

// Guarantee: web/changed-pages
test("a change of any one bit of a page is found, and of no other page", () => {
  const { bytes, sums } = heap(32);
  assert.deepEqual(sums.changedPages(bytes.length), [], "what was never stored is zero");
  for (let at = 0; at < bytes.length; at += 5) bytes[at] = at * 31;
  const all = sums.changedPages(bytes.length);
  assert.equal(all.length, 32);
  sums.store(all);
  assert.deepEqual(sums.changedPages(bytes.length), []);
  for (let bit = 0; bit < PAGE * 8; bit++) {
    const at = 7 * PAGE + (bit >> 3);
    bytes[at] ^= 1 << (bit & 7);
    assert.deepEqual(sums.changedPages(8 * PAGE).concat(bit % 997 ? [] : sums.changedPages(bytes.length)),
      bit % 997 ? [7] : [7, 7], `bit ${bit}`);
    bytes[at] ^= 1 << (bit & 7);
  }
});

// Guarantee: web/changed-pages
test("words that move within a page, or are added to one another, are found", () => {
  const { words, sums } = heap(16);
  let state = 88172645463325252n;
  const random = () => {
    state ^= state << 13n & 0xffff_ffff_ffff_ffffn;
    state ^= state >> 7n;
    state ^= state << 17n & 0xffff_ffff_ffff_ffffn;
    return state & 0xffff_ffff_ffff_ffffn;
  };
  for (let at = 0; at < 512; at++) words[at] = at % 3 ? random() : BigInt(at);
  sums.store([0]);
  const isFound = () => sums.changedPages(PAGE).length === 1;
  for (let round = 0; round < 20_000; round++) {
    const [one, other, third] = [random(), random(), random()].map((value) => Number(value % 512n));
    const before = [words[one], words[other], words[third]];
    if (one === other || other === third || one === third || before[0] === before[1]) continue;
    [words[one], words[other]] = [words[other], words[one]];
    assert.ok(isFound(), `${one} and ${other} were exchanged`);
    [words[one], words[other], words[third]] = before;
    const by = round % 2 ? 1n : random() | 1n;
    [words[one], words[other], words[third]] = [words[one] + by, words[other] - 2n * by, words[third] + by];
    assert.ok(isFound(), `${one}, ${other} and ${third} keep their sum`);
    [words[one], words[other], words[third]] = before;
    assert.ok(!isFound());
  }
});
