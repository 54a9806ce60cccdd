/**
 * Finds the pages of a heap that differ from what is stored, by a sum of each stored page. Two
 * different pages have one sum by a chance of one in 2^53.
 */
import { UnsupportedError } from "./errors.js";
import { PAGE_SUM } from "./page-sum-wasm.js";
import { PAGE_SIZE } from "./store.js";

/** The exports of `page-sum.wat`, which says what they are. */
export interface SumModule {
  sum(at: number): number;
  chain(sum: bigint, at: number, end: number): bigint;
}

type Sum = SumModule["sum"];

/** The sums of a heap in an applet's memory, as it is stored. */
export class PageSums {
  readonly #base: number;
  readonly #sum: Sum;
  readonly #zero: number;
  #stored = new Float64Array();

  /** For the heap that begins at `base`; nothing is stored of it yet. */
  constructor(memory: WebAssembly.Memory, base: number) {
    this.#base = base;
    this.#sum = sumsIn(memory).sum;
    this.#zero = sumsIn(new WebAssembly.Memory({ initial: 1 })).sum(0);
  }

  /** These pages are stored as they are now. */
  store(pages: Iterable<number>): void {
    for (const page of pages) {
      if (page >= this.#stored.length) this.#grow(page + 1);
      this.#stored[page] = this.#sum(this.#base + page * PAGE_SIZE);
    }
  }

  /** The numbers of the pages, of the first `length` bytes, that differ from what is stored. */
  changedPages(length: number): number[] {
    const count = length / PAGE_SIZE;
    if (count > this.#stored.length) this.#grow(count);
    const pages = [];
    for (let page = 0; page < count; page++) {
      if (this.#sum(this.#base + page * PAGE_SIZE) !== this.#stored[page]) pages.push(page);
    }
    return pages;
  }

  /** What was never stored is zero. */
  #grow(count: number): void {
    const grown = new Float64Array(Math.max(count, this.#stored.length * 2)).fill(this.#zero);
    grown.set(this.#stored);
    this.#stored = grown;
  }
}

/** The module over a memory. Throws an `UnsupportedError` where the browser has no vectors. */
export function sumsIn(memory: WebAssembly.Memory): SumModule {
  try {
    const module = new WebAssembly.Module(PAGE_SUM);
    const { exports } = new WebAssembly.Instance(module, { applet: { memory } });
    return exports as unknown as SumModule;
  } catch (error) {
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    throw new UnsupportedError("the browser has no vectors in WebAssembly (SIMD); update it");
  }
}
