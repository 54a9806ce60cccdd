/** Finds the pages in which a heap differs from what is stored of it. */
import { CHANGED } from "./changed-wasm.js";
import { PAGE_SIZE } from "./page-store.js";

type Changed = (ours: number, theirs: number, end: number) => number;

/** Where a heap is in an applet's memory, in bytes. */
export interface Range {
  readonly base: number;
  readonly length: number;
}

/** A copy of a heap as it is stored, in a memory of its own. */
export class StoredCopy {
  readonly #memory = new WebAssembly.Memory({ initial: 0 });
  #changed: { memory: WebAssembly.Memory; find: Changed | undefined } | undefined;

  /** The copy, `length` bytes of it; what was not copied yet is zero. */
  bytes(length: number): Uint8Array {
    const missing = length - this.#memory.buffer.byteLength;
    if (missing > 0) this.#memory.grow(Math.ceil(missing / 65_536));
    return new Uint8Array(this.#memory.buffer, 0, length);
  }

  /** The numbers of the pages of a heap that differ from the copy. */
  changedPages(applet: WebAssembly.Memory, { base, length }: Range): number[] {
    const stored = this.bytes(length);
    const pages = [];
    if (this.#changed?.memory !== applet) {
      this.#changed = { memory: applet, find: compiled(applet, this.#memory) };
    }
    const find = this.#changed.find ?? interpreted(applet, stored);
    for (let page = 0; page * PAGE_SIZE < length; page++) {
      const from = page * PAGE_SIZE;
      page = ((find(base + from, from, base + length) >>> 0) - base) / PAGE_SIZE;
      if (page * PAGE_SIZE < length) pages.push(page);
    }
    return pages;
  }
}

/** `undefined` where the browser has no modules with two memories. */
function compiled(applet: WebAssembly.Memory, stored: WebAssembly.Memory): Changed | undefined {
  try {
    const module = new WebAssembly.Module(CHANGED);
    const imports = { applet: { memory: applet }, stored: { memory: stored } };
    return new WebAssembly.Instance(module, imports).exports.changed as Changed;
  } catch (error) {
    if (error instanceof WebAssembly.CompileError) return undefined;
    throw error;
  }
}

/** The same in JavaScript, some ten times slower. */
export function interpreted(applet: WebAssembly.Memory, stored: Uint8Array): Changed {
  const ours = new Int32Array(applet.buffer);
  const theirs = new Int32Array(stored.buffer, stored.byteOffset, stored.length / 4);
  return (from, theirFrom, end) => {
    for (let page = from; page < end; page += PAGE_SIZE) {
      const [at, theirAt] = [page / 4, (theirFrom + page - from) / 4];
      for (let word = 0; word < PAGE_SIZE / 4; word++) {
        if (ours[at + word] !== theirs[theirAt + word]) return page;
      }
    }
    return end;
  };
}
