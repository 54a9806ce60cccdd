/**
 * Runs an applet in WebAssembly, as `holdfast run` does: the same module, with its heap at the same
 * offset of linear memory, so the same pointers.
 *
 * Invariants: the applet is not trusted, and every argument of an import is checked. The heap
 * appears when the applet asks for it, above the volatile memory that it has then. What is stored
 * changes only by a commit, which is all or nothing.
 *
 * Only for a dedicated worker, as the store is.
 */
import { LayoutMismatchError, UnsupportedError } from "./errors.js";
import {
  HEAP_BASE, HEAPS_END, LIMIT_DEFAULT, LIMIT_MAX, placeOf, WASM_PAGE_SIZE,
} from "./layout.js";
import { PAGE_SIZE, PageStore, type Phase } from "./page-store.js";

const MODULE = "holdfast";
const RECORD_SIZE = 32;
const FLAG_CREATED = 1n;

/** What an import answers; those of `RequestStatus` in Holdfast. */
const Status = {
  ok: 0, notGranted: 1, limitReached: 2, unsupported: 4, memoryShape: 7, badRange: 12,
} as const;

/** WASI for the applet: an object of class `WASI` of `@bjorn3/browser_wasi_shim`, or one like it. */
export interface Wasi {
  readonly wasiImport: Record<string, unknown>;
  /** Calls `_start` and returns the exit code. */
  start(instance: never): number;
}

/** How an applet is run. */
export interface RunOptions {
  /** Name of the heap in this origin, and in the applet. */
  readonly heap: string;
  /** Bytes that the heap may have at most: whole pages of WebAssembly, up to `LIMIT_MAX`. */
  readonly limit?: number;
  readonly wasi: Wasi;
  /** See `OpenOptions` of `PageStore`. */
  readonly onPhase?: (phase: Phase) => void;
}

/** What a run came to. */
export interface Run {
  readonly exitCode: number;
  /** Pages that the commits of the run wrote. */
  readonly committedPages: number;
}

/**
 * Runs a module until it returns, and commits its heap, also where it trapped: the heap is what the
 * applet left, and the applet rolls an open transaction back when it opens the heap again.
 *
 * Throws what `PageStore.open` throws, `UnsupportedError` for a module that a page cannot run, and
 * the trap of one that trapped.
 */
export async function run(module: WebAssembly.Module, options: RunOptions): Promise<Run> {
  const limit = options.limit ?? LIMIT_DEFAULT;
  if (!(limit > 0 && limit <= LIMIT_MAX) || limit % WASM_PAGE_SIZE !== 0) {
    throw new RangeError(`limit must be a multiple of ${WASM_PAGE_SIZE}, ${LIMIT_MAX} at most`);
  }
  const store = await PageStore.open(options.heap, { size: limit, onPhase: options.onPhase });
  try {
    const base = place(store, limit);
    const link = new HeapLink(store, options.heap, { base, limit });
    const imports: WebAssembly.Imports = {
      [MODULE]: link.imports,
      wasi_snapshot_preview1: options.wasi.wasiImport as WebAssembly.ModuleImports,
    };
    for (const { module: from, name } of WebAssembly.Module.imports(module)) {
      // Only what is offered, not what every object of JavaScript has besides.
      if (!Object.hasOwn(imports, from) || !Object.hasOwn(imports[from]!, name)) {
        throw new UnsupportedError(`the applet needs ${from}.${name}, which a page does not offer`);
      }
    }
    const instance = await WebAssembly.instantiate(module, imports);
    if (!(instance.exports.memory instanceof WebAssembly.Memory)) {
      throw new UnsupportedError("the applet exports no memory");
    }
    link.memory = instance.exports.memory;
    let exitCode: number;
    try {
      exitCode = options.wasi.start(instance as never);
    } finally {
      link.commit();
    }
    return { exitCode, committedPages: link.committedPages };
  } finally {
    store.close();
  }
}

/** Where the heap is to lie: where its pointers lead, or at `HEAP_BASE` if it has none. */
function place(store: PageStore, limit: number): number {
  const head = new Uint8Array(PAGE_SIZE);
  store.readHead(head);
  const base = placeOf(head) ?? HEAP_BASE;
  if (base < HEAP_BASE || base % WASM_PAGE_SIZE !== 0 || base + limit > HEAPS_END) {
    throw new LayoutMismatchError(`the heap lies at ${base}, where a page has room for \
${Math.max(0, HEAPS_END - base)} bytes; choose no larger limit`);
  }
  return base;
}

/** The heap of a running applet, and the imports with which the applet reaches it. */
class HeapLink {
  memory: WebAssembly.Memory | undefined;
  committedPages = 0;
  readonly #store: PageStore;
  readonly #name: string;
  readonly #base: number;
  readonly #limit: number;
  /** Bytes of the heap that may be used now; 0 until the applet has asked for it. */
  #backed = 0;
  /** The heap as it is stored. */
  #stored = new Uint8Array();

  constructor(store: PageStore, name: string, range: { base: number; limit: number }) {
    this.#store = store;
    this.#name = name;
    this.#base = range.base;
    this.#limit = range.limit;
  }

  readonly imports: WebAssembly.ModuleImports = {
    heap_open: (name: number, bytes: number, out: number) => {
      if (bytes !== 0 && this.#text(name >>> 0, bytes >>> 0) !== this.#name) {
        return -Status.notGranted;
      }
      return -this.#open(out >>> 0);
    },
    attach: (out: number) => this.#open(out >>> 0),
    heap_grow: (heap: number, bytes: bigint) => this.#grow(heap, bytes),
    grow: (bytes: bigint) => this.#grow(0, bytes),
    heap_commit: (heap: number, level: number) => this.#commitFor(heap, level),
    commit: (level: number) => this.#commitFor(0, level),
    heap_rollback: (heap: number) => this.#rollback(heap),
    rollback: () => this.#rollback(0),
  };

  /** Makes durable what differs from what is stored. */
  commit(): void {
    const heap = this.#heap();
    const pages = changedPages(heap, this.#stored);
    this.#store.commit(heap, pages);
    for (const page of pages) {
      const from = page * PAGE_SIZE;
      this.#stored.set(heap.subarray(from, from + PAGE_SIZE), from);
    }
    this.committedPages += pages.length;
  }

  /** A view on the heap, until linear memory grows. */
  #heap(): Uint8Array {
    if (this.#backed === 0) return new Uint8Array();
    return new Uint8Array(this.memory!.buffer, this.#base, this.#backed);
  }

  /** What the applet has at a place, where it has that place. */
  #text(at: number, bytes: number): string | undefined {
    const buffer = this.memory!.buffer;
    if (at + bytes > buffer.byteLength) return undefined;
    return new TextDecoder().decode(new Uint8Array(buffer, at, bytes));
  }

  #open(out: number): number {
    if (out + RECORD_SIZE > this.memory!.buffer.byteLength) return Status.badRange;
    const isCreated = this.#store.length === 0;
    if (this.#backed === 0) {
      const missing = this.#base + this.#limit - this.memory!.buffer.byteLength;
      if (this.memory!.buffer.byteLength > HEAP_BASE) return Status.memoryShape;
      try {
        this.memory!.grow(missing / WASM_PAGE_SIZE);
      } catch {
        return Status.memoryShape;
      }
      this.#backed = Math.max(WASM_PAGE_SIZE, wholePages(this.#store.length));
      this.#store.read(this.#heap());
      this.#stored = this.#heap().slice();
    }
    const record = new DataView(this.memory!.buffer, out, RECORD_SIZE);
    record.setBigUint64(0, BigInt(this.#base), true);
    record.setBigUint64(8, BigInt(this.#backed), true);
    record.setBigUint64(16, BigInt(this.#limit), true);
    record.setBigUint64(24, isCreated ? FLAG_CREATED : 0n, true);
    return Status.ok;
  }

  #grow(heap: number, atLeast: bigint): bigint {
    if (heap !== 0 || this.#backed === 0) return BigInt(-Status.notGranted);
    if (atLeast < 0n || atLeast > BigInt(this.#limit)) return BigInt(-Status.limitReached);
    const bytes = wholePages(Number(atLeast));
    if (bytes > this.#backed) {
      const stored = new Uint8Array(bytes);
      stored.set(this.#stored);
      [this.#backed, this.#stored] = [bytes, stored];
    }
    return BigInt(this.#backed);
  }

  #commitFor(heap: number, level: number): number {
    if (heap !== 0 || this.#backed === 0) return Status.notGranted;
    if (level < 0 || level > 2) return Status.unsupported;
    this.commit();
    return Status.ok;
  }

  /** Nothing: a heap takes its open transaction back itself, and other stores count as made. */
  #rollback(heap: number): number {
    return heap !== 0 || this.#backed === 0 ? Status.notGranted : Status.ok;
  }
}

function wholePages(bytes: number): number {
  return Math.ceil(bytes / WASM_PAGE_SIZE) * WASM_PAGE_SIZE;
}

/** The numbers of the pages in which two heaps of one length differ. */
function changedPages(heap: Uint8Array, stored: Uint8Array): number[] {
  const words = (bytes: Uint8Array) =>
    new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const [ours, theirs] = [words(heap), words(stored)];
  const pageWords = PAGE_SIZE / 4;
  const pages = [];
  for (let page = 0; page * pageWords < ours.length; page++) {
    const end = (page + 1) * pageWords;
    for (let i = page * pageWords; i < end; i++) {
      if (ours[i] !== theirs[i]) {
        pages.push(page);
        break;
      }
    }
  }
  return pages;
}
