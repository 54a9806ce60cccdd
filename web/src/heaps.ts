/**
 * The heaps of a running applet, and the imports with which the applet reaches them: as in
 * `holdfast run`, at the same offsets of linear memory, so with the same pointers.
 *
 * Invariants: the applet is not trusted, and every argument of an import is checked. All heaps
 * appear when the applet asks for the first one, above the volatile memory that it has then. What is
 * stored of a heap changes only by a commit, which is all or nothing.
 */
import { LayoutMismatchError, QuotaError } from "./errors.js";
import {
  HEAP_BASE, HEAPS_END, LIMIT_DEFAULT, LIMIT_MAX, limitOf, placeOf, WASM_PAGE_SIZE,
} from "./layout.js";
import { openStore } from "./open-store.js";
import { PageSums } from "./page-sums.js";
import { type Durability, type HeapStore, PAGE_SIZE, type Phase } from "./store.js";
import { streamOf } from "./transfer.js";

const RECORD_SIZE = 32;
const FLAG_CREATED = 1n;
const FLAG_READ_ONLY = 2n;

/** What an import answers, as `docs/format.md` lists it. */
export const Status = {
  ok: 0, notGranted: 1, limitReached: 2, noRoom: 3, unsupported: 4, failed: 5, memoryShape: 7,
  readOnly: 8, tooLarge: 9, badRange: 6, cancelled: 31,
} as const;

/** A heap that an applet is granted. */
export interface HeapGrant {
  /** Its name in this origin. */
  readonly heap: string;
  /** Its name in the applet; the same, unless said. */
  readonly name?: string;
  /** See `access` of `OpenOptions`; what an applet stores to a heap that is only read is not kept. */
  readonly access?: "read-write" | "read-only";
  /** Bytes that it may have at most: whole pages of WebAssembly, up to `LIMIT_MAX`. */
  readonly limit?: number;
}

/** How heaps are opened. */
export interface HeapOptions {
  /** One heap by its name, or several; the first one is that of calls that name none. */
  readonly heap?: string | HeapGrant | readonly (string | HeapGrant)[];
  /**
   * Bytes that a heap may have at most, where its grant does not say so; without either 256 MiB, or
   * what a larger heap had where it came from.
   */
  readonly limit?: number;
  /** See `OpenOptions` of `PageStore`. */
  readonly wait?: AbortSignal | boolean;
  readonly onPhase?: (phase: Phase) => void;
  /** Called behind each commit that stored something. */
  readonly onCommit?: (commit: HeapCommit) => void;
  /**
   * Where heaps are kept if the browser gives the page no files: in IndexedDB, with the weaker
   * promise that `weaker` of the applet names. Without it there are no heaps then.
   */
  readonly fallback?: "indexeddb";
}

/** A commit of one heap. */
export interface HeapCommit {
  /** Its name in the applet. */
  readonly heap: string;
  /** The numbers of the pages that were stored. */
  readonly pages: readonly number[];
  /** What finding them took, and storing them. */
  readonly findMs: number;
  readonly storeMs: number;
}

/** A heap of a running applet. */
export class AppletHeap {
  /** Its name in the applet. */
  readonly name: string;
  /** Its name in this origin. */
  readonly storedName: string;
  readonly limit: number;
  readonly isReadOnly: boolean;
  /** Where it begins in linear memory. */
  base: number;
  /** Bytes of it that may be used now; 0 until the applet has asked for it. */
  backed = 0;
  readonly store: HeapStore;
  /** `undefined` for one that is only read, or has not appeared. */
  #sums: PageSums | undefined;
  readonly #onCommit: ((commit: HeapCommit) => void) | undefined;
  /** Fulfilled when the last export has ended. */
  #exported: Promise<unknown> = Promise.resolve();

  constructor(
    grant: HeapGrant, store: HeapStore, limit: number, onCommit?: (commit: HeapCommit) => void,
  ) {
    this.name = grant.name ?? grant.heap;
    this.storedName = grant.heap;
    this.isReadOnly = grant.access === "read-only";
    this.limit = limit;
    this.store = store;
    this.#onCommit = onCommit;
    const head = new Uint8Array(PAGE_SIZE);
    store.readHead(head);
    this.base = placeOf(head) ?? Number.NaN;
  }

  /** The heap's bytes, until linear memory grows. */
  bytes(memory: WebAssembly.Memory): Uint8Array {
    if (this.backed === 0) return new Uint8Array();
    return new Uint8Array(memory.buffer, this.base, this.backed);
  }

  /** Fills its place, which is zero. */
  appear(memory: WebAssembly.Memory): void {
    this.backed = Math.max(WASM_PAGE_SIZE, wholePages(this.store.length));
    const kept = this.store.keptSums();
    if (this.isReadOnly) return this.store.read(this.bytes(memory), undefined, kept);
    const sums = new PageSums(memory, this.base, kept);
    this.#sums = sums;
    this.store.read(this.bytes(memory), (from, end) => sums.store(numbers(from, end)), kept);
  }

  /** Brings commits home, and keeps the sums, by which the next opening reads less. */
  checkpoint(): void {
    if (this.isReadOnly) return;
    this.store.checkpoint();
    if (this.#sums !== undefined) this.store.keepSums(this.#sums.stored);
  }

  /** What was committed last, as the stream of `exportHeap`; one export after the other. */
  export(): Promise<Blob> {
    const stream = this.#exported.then(() =>
      streamOf(this.storedName, this.store, this.limit, this.isReadOnly));
    this.#exported = stream.catch(() => {});
    return stream;
  }

  /** Fulfilled when no export is under way, also behind one that failed. */
  exported(): Promise<unknown> {
    return this.#exported;
  }

  /** Releases it; what was not committed is lost. */
  close(): void {
    try {
      this.checkpoint();
    } finally {
      this.store.close();
    }
  }

  /** The pages that differ from what is stored. */
  changedPages(): number[] {
    return this.#sums?.changedPages(this.backed) ?? [];
  }

  /** Stores what differs from what is stored; returns how many pages these are. */
  commit(memory: WebAssembly.Memory, durability: Durability): number {
    const started = performance.now();
    const pages = this.changedPages();
    if (pages.length === 0) {
      // What relaxed commits stored before is to survive as this one does.
      if (durability === "strict" && !this.isReadOnly) this.store.commit(this.bytes(memory), [], durability);
      return 0;
    }
    const found = performance.now();
    this.store.commit(this.bytes(memory), pages, durability);
    this.#sums!.store(pages);
    const [findMs, storeMs] = [found - started, performance.now() - found];
    this.#onCommit?.({ heap: this.name, pages, findMs, storeMs });
    return pages.length;
  }
}

/** All heaps of an applet. */
export class Heaps {
  memory: WebAssembly.Memory | undefined;
  committedPages = 0;
  /** Whether the applet can be suspended while it commits. */
  mayWait = false;
  /** Whether the browser gave no memory for them. */
  isMemoryRefused = false;
  readonly all: readonly AppletHeap[];
  readonly #durability: Durability;
  #isAttached = false;

  private constructor(all: readonly AppletHeap[], durability: Durability) {
    this.all = all;
    this.#durability = durability;
  }

  /**
   * Opens the heaps of some options. Throws what `PageStore.open` throws. Locks are taken in the order
   * of names, so that tabs that wait for several heaps do not wait for one another.
   */
  static async open(options: HeapOptions, durability: Durability): Promise<Heaps> {
    const asked = options.heap === undefined ? [] : [options.heap].flat() as (string | HeapGrant)[];
    const grants = asked.map((one) => (typeof one === "string" ? { heap: one } : one));
    const names = grants.map((grant) => grant.name ?? grant.heap);
    if (new Set(names).size !== names.length) {
      throw new RangeError("two heaps have one name in the applet; give one another name");
    }
    if (new Set(grants.map(({ heap }) => heap)).size !== grants.length) {
      throw new RangeError("one heap was granted twice; grant it once");
    }
    const stores: HeapStore[] = [];
    const opened = new Map<HeapGrant, AppletHeap>();
    try {
      for (const grant of [...grants].sort((one, other) => one.heap < other.heap ? -1 : 1)) {
        const given = grant.limit ?? options.limit;
        if (given !== undefined && (!(given > 0 && given <= LIMIT_MAX) || given % WASM_PAGE_SIZE !== 0)) {
          throw new RangeError(`limit must be a multiple of ${WASM_PAGE_SIZE}, ${LIMIT_MAX} at most`);
        }
        const { wait, onPhase } = options;
        const asked = { size: given ?? LIMIT_MAX, access: grant.access, wait, onPhase };
        const store = await openStore(grant.heap, asked, options.fallback);
        stores.push(store);
        const limit = given ?? (store.length > LIMIT_DEFAULT ? await keptLimit(store) : LIMIT_DEFAULT);
        opened.set(grant, new AppletHeap(grant, store, limit, options.onCommit));
      }
      return new Heaps(grants.map((grant) => opened.get(grant)!), durability);
    } catch (error) {
      for (const store of stores) {
        try {
          store.close();
        } catch {
          // What was wrong first is what is told.
        }
      }
      throw error;
    }
  }

  /**
   * Gives each heap its place in linear memory; an applet with the oldest imports may rely on where
   * the first one is. Throws a `LayoutMismatchError` where there is no place.
   */
  place(hasOldImports = false): void {
    place(this.all, hasOldImports);
  }

  readonly imports: WebAssembly.ModuleImports = {
    heap_open: (name: number, bytes: number, out: number) => {
      const index = this.#find(name >>> 0, bytes >>> 0);
      if (index === undefined) return -Status.notGranted;
      const status = this.#open(index, out >>> 0);
      return status === Status.ok ? index : -status;
    },
    attach: (out: number) => this.#open(0, out >>> 0),
    heap_grow: (heap: number, bytes: bigint) => this.#grow(heap, bytes),
    grow: (bytes: bigint) => this.#grow(0, bytes),
    heap_commit: (heap: number, level: number) => this.#commitFor(heap, level),
    commit: (level: number) => this.#commitFor(0, level),
    // A heap takes its open transaction back itself, and other stores count as made.
    heap_rollback: (heap: number) => this.#attached(heap) ? Status.ok : Status.notGranted,
    rollback: () => this.#attached(0) ? Status.ok : Status.notGranted,
  };

  /** The heap of this name in the applet; without one, the first. */
  find(name?: string): AppletHeap | undefined {
    return name === undefined ? this.all[0] : this.all.find((heap) => heap.name === name);
  }

  /** Stores what differs from what is stored, of each heap all or nothing. */
  commit(durability = this.#durability): number {
    if (this.memory === undefined) return 0;
    const memory = this.memory;
    let pages = 0;
    // One heap for which there is no room costs the others nothing.
    forEachOrThrow(this.all, (heap) => { pages += heap.commit(memory, durability); });
    this.committedPages += pages;
    return pages;
  }

  /** What is weaker than with files, a sentence for each heap. */
  get weaker(): string[] {
    return this.all.flatMap(({ name, store }) =>
      store.weaker === undefined ? [] : [`the heap ${name} is ${store.weaker}`]);
  }

  /** Waits for commits that are not stored yet; `undefined` where there are none. */
  settled(): Promise<unknown> | undefined {
    const waits = this.all.flatMap(({ store }) => store.settled() ?? []);
    return waits.length === 0 ? undefined : Promise.all(waits);
  }

  /** Rejects with a `StorageLostError` when a heap was removed from the storage. */
  async check(): Promise<void> {
    await Promise.all(this.all.map(({ store }) => store.check()));
  }

  close(): void {
    forEachOrThrow(this.all, (heap) => heap.close());
  }

  /** What the applet has at a place, where it has that place. */
  text(at: number, bytes: number): string | undefined {
    const buffer = this.memory!.buffer;
    if (at + bytes > buffer.byteLength) return undefined;
    return new TextDecoder().decode(new Uint8Array(buffer, at, bytes));
  }

  #find(name: number, bytes: number): number | undefined {
    if (bytes === 0) return this.all.length > 0 ? 0 : undefined;
    const wanted = this.text(name, bytes);
    const index = this.all.findIndex((heap) => heap.name === wanted);
    return index < 0 ? undefined : index;
  }

  #attached(index: number): AppletHeap | undefined {
    return this.#isAttached ? this.all[index] : undefined;
  }

  /** Has all heaps appear, in one growth of the memory. */
  #attach(): boolean {
    if (this.#isAttached) return true;
    const memory = this.memory!;
    const end = Math.max(...this.all.map((heap) => heap.base + heap.limit));
    const first = Math.min(...this.all.map((heap) => heap.base));
    if (memory.buffer.byteLength > first) return false;
    try {
      memory.grow((end - memory.buffer.byteLength) / WASM_PAGE_SIZE);
    } catch {
      this.isMemoryRefused = true;
      return false;
    }
    this.all.forEach((heap) => heap.appear(memory));
    this.#isAttached = true;
    return true;
  }

  #open(index: number, out: number): number {
    const heap = this.all[index];
    if (heap === undefined) return Status.notGranted;
    if (out + RECORD_SIZE > this.memory!.buffer.byteLength) return Status.badRange;
    const isCreated = heap.store.length === 0;
    if (!this.#attach()) return Status.memoryShape;
    const record = new DataView(this.memory!.buffer, out, RECORD_SIZE);
    record.setBigUint64(0, BigInt(heap.base), true);
    record.setBigUint64(8, BigInt(heap.backed), true);
    record.setBigUint64(16, BigInt(heap.limit), true);
    const flags = (isCreated ? FLAG_CREATED : 0n) | (heap.isReadOnly ? FLAG_READ_ONLY : 0n);
    record.setBigUint64(24, flags, true);
    return Status.ok;
  }

  #grow(index: number, atLeast: bigint): bigint {
    const heap = this.#attached(index);
    if (heap === undefined) return BigInt(-Status.notGranted);
    if (heap.isReadOnly) return BigInt(-Status.readOnly);
    if (atLeast < 0n || atLeast > BigInt(heap.limit)) return BigInt(-Status.limitReached);
    heap.backed = Math.max(heap.backed, wholePages(Number(atLeast)));
    return BigInt(heap.backed);
  }

  #commitFor(index: number, level: number): number | Promise<number> {
    const heap = this.#attached(index);
    if (heap === undefined) return Status.notGranted;
    if (heap.isReadOnly) return Status.readOnly;
    if (level < 0 || level > 2) return Status.unsupported;
    // Level `power` is what the applet says that it needs.
    const durability = level === 2 ? "strict" : this.#durability;
    try {
      this.committedPages += heap.commit(this.memory!, durability);
      const settled = this.mayWait ? heap.store.settled() : undefined;
      return settled === undefined ? Status.ok : settled.then(() => Status.ok, statusOf);
    } catch (error) {
      return statusOf(error);
    }
  }
}

/** What the applet is told of a commit that failed; other errors than for want of room end it. */
function statusOf(error: unknown): number {
  if (error instanceof QuotaError) return Status.noRoom;
  throw error;
}

/** The limit that a heap had where it came from, or its length. */
async function keptLimit(store: HeapStore): Promise<number> {
  const header = await store.origin();
  const limit = header === undefined ? 0 : limitOf(header);
  const whole = Math.ceil(Math.max(limit, store.length) / WASM_PAGE_SIZE) * WASM_PAGE_SIZE;
  return Math.min(whole, LIMIT_MAX);
}

/** Gives those heaps a place that have none by their pointers, below the others or between them. */
function place(heaps: readonly AppletHeap[], hasOldImports: boolean): void {
  const placed: AppletHeap[] = [];
  const overlaps = (base: number, limit: number) =>
    placed.find((other) => base < other.base + other.limit && other.base < base + limit);
  for (const heap of heaps) {
    if (Number.isNaN(heap.base)) continue;
    const { base, limit, name } = heap;
    if (base < HEAP_BASE || base % WASM_PAGE_SIZE !== 0 || base + limit > HEAPS_END) {
      throw new LayoutMismatchError(`the heap ${name} lies at ${base}, where a page has room for \
${Math.max(0, HEAPS_END - base)} bytes; choose no larger limit`);
    }
    const other = overlaps(base, limit);
    if (other !== undefined) {
      throw new LayoutMismatchError(`the heaps ${other.name} and ${name} were made for one place; \
give them smaller limits, or make one anew beside the other`);
    }
    placed.push(heap);
  }
  for (const [index, heap] of heaps.entries()) {
    if (!Number.isNaN(heap.base)) continue;
    const starts = [HEAP_BASE, ...placed.map((other) => other.base + other.limit)]
      .sort((a, b) => a - b);
    // An old program may rely on where its first heap is.
    const mayStart = hasOldImports && index === 0 ? [HEAP_BASE] : starts;
    const base = mayStart.find((start) =>
      start + heap.limit <= HEAPS_END && overlaps(start, heap.limit) === undefined);
    if (base === undefined) {
      throw new LayoutMismatchError(`there is no room for the heap ${heap.name} beside the others; \
give them smaller limits`);
    }
    heap.base = base;
    placed.push(heap);
  }
}

/** Does something with each, also behind one that fails, and throws the first error at the end. */
function forEachOrThrow<Item>(items: readonly Item[], work: (item: Item) => void): void {
  const failures: unknown[] = [];
  for (const item of items) {
    try {
      work(item);
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
}

function* numbers(from: number, end: number): Generator<number> {
  for (let number = from; number < end; number++) yield number;
}

function wholePages(bytes: number): number {
  return Math.ceil(bytes / WASM_PAGE_SIZE) * WASM_PAGE_SIZE;
}
