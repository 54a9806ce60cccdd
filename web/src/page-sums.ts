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
  readonly #zero: number;
  readonly #memory: WebAssembly.Memory;
  /** Made for the first sum: a heap whose sums were kept needs none before its first commit. */
  #sum: Sum | undefined;
  #stored: Float64Array;

  /**
   * For the heap that begins at `base`, of which nothing is stored yet, or pages with these sums.
   */
  constructor(memory: WebAssembly.Memory, base: number, stored: Float64Array = new Float64Array()) {
    this.#base = base;
    this.#memory = memory;
    this.#zero = sumOfZeroes();
    this.#stored = stored;
  }

  /** The sums of the pages as they are stored; those behind them are zero. */
  get stored(): Float64Array {
    return this.#stored;
  }

  /** These pages are stored as they are now. */
  store(pages: Iterable<number>): void {
    for (const page of pages) {
      if (page >= this.#stored.length) this.#grow(page + 1);
      this.#stored[page] = this.#sumOf(page);
    }
  }

  /** The numbers of the pages, of the first `length` bytes, that differ from what is stored. */
  changedPages(length: number): number[] {
    const count = length / PAGE_SIZE;
    if (count > this.#stored.length) this.#grow(count);
    const pages = [];
    for (let page = 0; page < count; page++) {
      if (this.#sumOf(page) !== this.#stored[page]) pages.push(page);
    }
    return pages;
  }

  #sumOf(page: number): number {
    this.#sum ??= sumsIn(this.#memory).sum;
    return this.#sum(this.#base + page * PAGE_SIZE);
  }

  /** What was never stored is zero. */
  #grow(count: number): void {
    const grown = new Float64Array(Math.max(count, this.#stored.length * 2)).fill(this.#zero);
    grown.set(this.#stored);
    this.#stored = grown;
  }
}

let compiled: WebAssembly.Module | undefined;
let zeroes: number | undefined;

/** The sum of a page of zeroes. */
export function sumOfZeroes(): number {
  zeroes ??= sumsIn(new WebAssembly.Memory({ initial: 1 })).sum(0);
  return zeroes;
}

/** The module over a memory. Throws an `UnsupportedError` where the browser has no vectors. */
export function sumsIn(memory: WebAssembly.Memory): SumModule {
  try {
    compiled ??= new WebAssembly.Module(PAGE_SUM);
    const { exports } = new WebAssembly.Instance(compiled, { applet: { memory } });
    return exports as unknown as SumModule;
  } catch (error) {
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    throw new UnsupportedError(mayCompile()
      ? "the browser has no vectors in WebAssembly (SIMD); update it"
      : "the page's Content-Security-Policy forbids WebAssembly; add 'wasm-unsafe-eval' to its script-src");
  }
}

/** Whether the page may compile anything: the smallest module that there is. */
function mayCompile(): boolean {
  try {
    new WebAssembly.Module(Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0));
    return true;
  } catch {
    return false;
  }
}
