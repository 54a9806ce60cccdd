/** Memory in which pages are put together and summed on their way to a file and back. */
import { sumsIn, type SumModule } from "./page-sums.js";
import { PAGE_SIZE } from "./store.js";

/** Bytes of it: a multiple of a page. */
export const SCRATCH_BYTES = 1 << 20;

export class Scratch {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  readonly #sums: SumModule;

  /** Throws an `UnsupportedError` where the browser has no vectors in WebAssembly. */
  constructor() {
    const memory = new WebAssembly.Memory({ initial: SCRATCH_BYTES / 65_536 });
    this.bytes = new Uint8Array(memory.buffer);
    this.view = new DataView(memory.buffer);
    this.#sums = sumsIn(memory);
    // The first call compiles the function.
    this.sum(0n, PAGE_SIZE);
  }

  /** The sum of the first `length` bytes, whole pages, behind bytes that have `sum`. */
  sum(sum: bigint, length: number): bigint {
    return BigInt.asUintN(64, this.#sums.chain(sum, 0, length));
  }

  /** Whether its first pages have these sums of `page-sums.ts`. */
  matches(sums: Float64Array): boolean {
    return sums.every((sum, page) => this.#sums.sum(page * PAGE_SIZE) === sum);
  }

  /** The sum of bytes from elsewhere, whole pages, which pass through. */
  sumOf(sum: bigint, from: Uint8Array): bigint {
    for (let at = 0; at < from.length; at += SCRATCH_BYTES) {
      const part = from.subarray(at, at + SCRATCH_BYTES);
      this.bytes.set(part);
      sum = this.sum(sum, part.length);
    }
    return sum;
  }
}
