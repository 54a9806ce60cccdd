/**
 * Pages of a heap in the origin private file system, committed all or nothing.
 *
 * Two files: `image` holds the pages at home, `journal` the commits that are on their way there. A
 * commit appends one entry to the journal: one write of pages, one of their head, and one flush. A
 * checkpoint, which no commit waits for, seals the entries, writes their pages home, and begins the
 * journal again, with a flush after each. Opening finds the entries again.
 *
 * Invariants: `image` changes only while the journal is sealed. A sealed entry that does not match
 * its sum is damage; the first one behind the seal that does not match was never committed. An entry
 * counts with all of its pages or not at all.
 *
 * Only for a dedicated worker: `FileSystemSyncAccessHandle` exists nowhere else.
 */
import { CorruptError, QuotaError, UnsupportedError } from "./errors.js";
import { createXXHash3 } from "./hash-wasm.js";
import { HeapLock } from "./lock.js";

/** Bytes of a page. */
export const PAGE_SIZE = 4096;

/**
 * The steps of commits and checkpoints, each named after what was just done: `written` (the pages of
 * a commit without their head, which do not count), `committed`, `sealed`, `home`, `reset`.
 */
export type Phase = "written" | "committed" | "sealed" | "home" | "reset";

/** What a commit survives: `strict` also a power cut, `relaxed` the end of tab or browser. */
export type Durability = "strict" | "relaxed";

/** How a store is opened. */
export interface OpenOptions {
  /** Bytes of the heap: a multiple of `PAGE_SIZE`; what is stored may be shorter, not longer. */
  readonly size: number;
  /** `read-only`: any number of tabs read, while none writes; nothing is committed. */
  readonly access?: "read-write" | "read-only";
  /** Waits until the heap is free, rather than throw a `LockedError`; the signal ends the wait. */
  readonly wait?: AbortSignal | boolean;
  /** Called after each step of a commit, for tests of what a crash leaves. */
  readonly onPhase?: (phase: Phase) => void;
}

const NO_ROOM = "the browser grants no more storage; free some and commit again";
const DAMAGED = "the journal of the heap is damaged; restore the heap from an export";
const MAGIC = 0x324a_5748; // "HWJ2"
const ENTRY_MAGIC = 0x324e_5748; // "HWN2"
/** Header: magic, generation, sealed entries, 0; u32 each; and the sum of these, u64. */
const HEADER_BYTES = 24;
/** Where the first entry begins. */
const FIRST = PAGE_SIZE;
/** Head: magic, generation, number, count of pages; u32 each; length of the heap, sum; u64 each. */
const HEAD_BYTES = 32;
const SUM_AT = 24;
/** A longer journal is brought home before the next commit. */
const JOURNAL_BYTES_MAX = 32 << 20;
/** As much of the journal's file is used again. */
const JOURNAL_BYTES_KEPT = 4 << 20;

interface Entry {
  /** The numbers of its pages, in their order. */
  readonly pages: readonly number[];
  /** Where they begin in the journal. */
  readonly at: number;
}

type Sum = (bytes: Uint8Array) => bigint;

/** XXH3-64. */
async function summer(): Promise<Sum> {
  const hasher = await createXXHash3();
  return (bytes) => {
    hasher.init();
    hasher.update(bytes);
    const digest = hasher.digest("binary");
    return new DataView(digest.buffer, digest.byteOffset).getBigUint64(0);
  };
}

/** The files of this origin. Throws `UnsupportedError` where the browser refuses them. */
export async function originFiles(): Promise<FileSystemDirectoryHandle> {
  try {
    return await navigator.storage.getDirectory();
  } catch (error) {
    const { message } = error as Error;
    throw new UnsupportedError(`the browser gives this page no files (${message}); leave the private \
mode, or allow the site to store data`);
  }
}

/** The pages of one heap. The heap itself is the caller's: an array, or a part of linear memory. */
export class PageStore {
  readonly #size: number;
  readonly #sum: Sum;
  readonly #lock: HeapLock;
  readonly #image: FileSystemSyncAccessHandle;
  readonly #journal: FileSystemSyncAccessHandle;
  readonly #isReadOnly: boolean;
  readonly #onPhase: (phase: Phase) => void;
  #generation = 1;
  #entries: Entry[] = [];
  /** Where the next entry begins. */
  #tail = FIRST;
  #length = 0;
  /** A flush failed, or the store is closed. */
  #ended: string | undefined;

  private constructor(
    files: {
      lock: HeapLock; image: FileSystemSyncAccessHandle; journal: FileSystemSyncAccessHandle;
    },
    sum: Sum,
    options: OpenOptions,
  ) {
    this.#size = options.size;
    this.#sum = sum;
    this.#lock = files.lock;
    this.#image = files.image;
    this.#journal = files.journal;
    this.#isReadOnly = options.access === "read-only";
    this.#onPhase = options.onPhase ?? (() => {});
  }

  /**
   * Opens the heap `name` of this origin, or makes it, with all that was committed. Throws
   * `LockedError`, `CorruptError`, `QuotaError`, `UnsupportedError`, or `RangeError` for a wrong
   * size.
   */
  static async open(name: string, options: OpenOptions): Promise<PageStore> {
    if (!(options.size > 0) || options.size % PAGE_SIZE !== 0) {
      throw new RangeError(`heap size must be a positive multiple of ${PAGE_SIZE} bytes`);
    }
    const [root, sum] = await Promise.all([originFiles(), summer()]);
    const mode = options.access === "read-only" ? "shared" : "exclusive";
    const lock = await HeapLock.take(name, mode, options.wait);
    const files: FileSystemSyncAccessHandle[] = [];
    try {
      const folder = await root.getDirectoryHandle(name, { create: true });
      const access = mode === "shared" ? "read-only" : "readwrite";
      for (const part of ["image", "journal"]) files.push(await lock.open(folder, part, access));
      const [image, journal] = files as [FileSystemSyncAccessHandle, FileSystemSyncAccessHandle];
      const store = new PageStore({ lock, image, journal }, sum, options);
      store.#find();
      if (store.length > options.size) {
        throw new RangeError(`the heap has ${store.length} bytes; open it with at least these`);
      }
      return store;
    } catch (error) {
      files.forEach((file) => file.close());
      lock.release();
      throw error;
    }
  }

  /** Bytes that are stored: 0 for a heap that was never committed. */
  get length(): number {
    return this.#length;
  }

  /** Bytes of the journal: what a checkpoint would bring home. */
  get journalBytes(): number {
    return this.#tail - FIRST;
  }

  /** Reads what is stored to the beginning of `heap`, which has at least `length` bytes. */
  read(heap: Uint8Array): void {
    if (heap.length < this.#length) throw new RangeError(`the heap has ${this.#length} bytes`);
    const found = this.#image.read(heap.subarray(0, this.#length), { at: 0 });
    heap.fill(0, found, this.#length);
    for (const { page, bytes } of this.#journalled()) heap.set(bytes, page * PAGE_SIZE);
  }

  /** Reads as much of the beginning as `head` takes, a page at most; what is not stored is zero. */
  readHead(head: Uint8Array): void {
    const first = new Uint8Array(PAGE_SIZE);
    this.#image.read(first, { at: 0 });
    for (const { pages, at } of this.#entries) {
      const index = pages.indexOf(0);
      if (index >= 0) this.#journal.read(first, { at: at + index * PAGE_SIZE });
    }
    head.set(first.subarray(0, head.length));
  }

  /**
   * Stores the pages with these numbers as they are in `heap`, all or none, and as many bytes as
   * `heap` has; returns how many pages these are. Throws `QuotaError`, after which what was
   * committed before stands, and another commit may be tried.
   */
  commit(
    heap: Uint8Array, pages: readonly number[], durability: Durability = "strict",
  ): number {
    this.#check();
    if (heap.length > this.#size || heap.length % PAGE_SIZE !== 0) {
      throw new RangeError(`the heap must have at most ${this.#size} bytes, in whole pages`);
    }
    const sorted = [...new Set(pages)].sort((a, b) => a - b);
    if (sorted.some((page) => !Number.isInteger(page) || page < 0
        || page * PAGE_SIZE >= heap.length)) {
      throw new RangeError(`page numbers must be below ${heap.length / PAGE_SIZE}`);
    }
    if (sorted.length === 0) return 0;
    if (this.#tail > JOURNAL_BYTES_MAX) this.checkpoint();
    // Room at home is taken now, while the commit may still fail.
    if (heap.length > this.#image.getSize()) truncate(this.#image, heap.length);
    const headBytes = headBytesOf(sorted.length);
    const entry = new Uint8Array(headBytes + sorted.length * PAGE_SIZE);
    const head = new DataView(entry.buffer, 0, headBytes);
    [ENTRY_MAGIC, this.#generation, this.#entries.length, sorted.length, heap.length]
      .forEach((value, i) => head.setUint32(i * 4, value, true));
    sorted.forEach((page, i) => {
      head.setUint32(HEAD_BYTES + i * 4, page, true);
      const from = page * PAGE_SIZE;
      entry.set(heap.subarray(from, from + PAGE_SIZE), headBytes + i * PAGE_SIZE);
    });
    head.setBigUint64(SUM_AT, this.#sum(entry), true);
    write(this.#journal, entry.subarray(headBytes), this.#tail + headBytes);
    this.#onPhase("written");
    write(this.#journal, entry.subarray(0, headBytes), this.#tail);
    if (durability === "strict") this.#flush(this.#journal);
    this.#entries.push({ pages: sorted, at: this.#tail + headBytes });
    this.#tail += entry.length;
    this.#length = heap.length;
    this.#onPhase("committed");
    return sorted.length;
  }

  /** Brings home what the journal has; commits are as durable before. */
  checkpoint(): void {
    this.#check();
    if (this.#entries.length === 0) return;
    this.#writeHeader(this.#generation, this.#entries.length);
    this.#onPhase("sealed");
    this.#goHome();
  }

  /** Releases the heap; what was not committed is lost. */
  close(): void {
    try {
      if (this.#ended === undefined && !this.#isReadOnly) this.checkpoint();
    } finally {
      this.abandon();
    }
  }

  /** Releases the heap as it is; the next one to open it finds all commits. */
  abandon(): void {
    this.#ended = "the heap is closed";
    this.#image.close();
    this.#journal.close();
    this.#lock.release();
  }

  #check(): void {
    if (this.#ended !== undefined) throw new Error(this.#ended);
    if (this.#isReadOnly) throw new Error("the heap was opened for reading");
  }

  /** What failed to reach the disk is not known to be there: the store goes on no more. */
  #flush(file: FileSystemSyncAccessHandle): void {
    try {
      file.flush();
    } catch (error) {
      this.#ended = "a commit failed; close the heap and open it again";
      throw error;
    }
  }

  /** The pages of the journal, an older version of one before a newer one. */
  * #journalled(): Generator<{ page: number; bytes: Uint8Array }> {
    for (const { pages, at } of this.#entries) {
      const bytes = new Uint8Array(pages.length * PAGE_SIZE);
      this.#journal.read(bytes, { at });
      for (const [i, page] of pages.entries()) {
        yield { page, bytes: bytes.subarray(i * PAGE_SIZE, (i + 1) * PAGE_SIZE) };
      }
    }
  }

  /** Looks what the journal has, and ends a checkpoint that was begun. */
  #find(): void {
    this.#length = this.#image.getSize();
    const header = new DataView(new ArrayBuffer(HEADER_BYTES));
    const bytes = new Uint8Array(header.buffer);
    const found = this.#journal.read(bytes, { at: 0 });
    let sealed = 0;
    // Without one, nothing was ever brought home.
    if (found === HEADER_BYTES && bytes.some((byte) => byte !== 0)) {
      if (header.getUint32(0, true) !== MAGIC
          || header.getBigUint64(16, true) !== this.#sum(bytes.subarray(0, 16))) {
        throw new CorruptError(DAMAGED);
      }
      [this.#generation, sealed] = [header.getUint32(4, true), header.getUint32(8, true)];
    }
    while (this.#findEntry()) { /* the next one */ }
    if (this.#entries.length < sealed) throw new CorruptError(DAMAGED);
    // Entries that came after a checkpoint that failed are sealed with the others.
    if (sealed > 0 && !this.#isReadOnly) this.checkpoint();
  }

  /** Whether there is one more entry. */
  #findEntry(): boolean {
    const left = this.#journal.getSize() - this.#tail;
    const head = new DataView(new ArrayBuffer(HEAD_BYTES));
    if (left < PAGE_SIZE) return false;
    this.#journal.read(new Uint8Array(head.buffer), { at: this.#tail });
    const word = (at: number) => head.getUint32(at, true);
    const [magic, generation, number, count, length] = [word(0), word(4), word(8), word(12), word(16)];
    const headBytes = headBytesOf(count);
    const size = headBytes + count * PAGE_SIZE;
    if (magic !== ENTRY_MAGIC || generation !== this.#generation || number !== this.#entries.length
        || size > left) return false;
    const entry = new Uint8Array(size);
    this.#journal.read(entry, { at: this.#tail });
    const view = new DataView(entry.buffer);
    const sum = view.getBigUint64(SUM_AT, true);
    view.setBigUint64(SUM_AT, 0n, true);
    if (this.#sum(entry) !== sum) return false;
    const pages = Array.from({ length: count }, (_, i) => view.getUint32(HEAD_BYTES + i * 4, true));
    this.#entries.push({ pages, at: this.#tail + headBytes });
    this.#tail += size;
    this.#length = length;
    return true;
  }

  #writeHeader(generation: number, sealed: number): void {
    const header = new DataView(new ArrayBuffer(HEADER_BYTES));
    [MAGIC, generation, sealed].forEach((value, i) => header.setUint32(i * 4, value, true));
    const bytes = new Uint8Array(header.buffer);
    header.setBigUint64(16, this.#sum(bytes.subarray(0, 16)), true);
    write(this.#journal, bytes, 0);
    this.#flush(this.#journal);
  }

  /** Writes the pages of a sealed journal home, neighbours in one write, and begins it again. */
  #goHome(): void {
    const newest = new Map<number, number>();
    for (const { pages, at } of this.#entries) {
      pages.forEach((page, i) => newest.set(page, at + i * PAGE_SIZE));
    }
    if (this.#length > this.#image.getSize()) truncate(this.#image, this.#length);
    const pages = [...newest.keys()].sort((a, b) => a - b);
    for (let first = 0; first < pages.length; ) {
      let end = first + 1;
      while (end < pages.length && pages[end] === pages[first]! + (end - first)) end++;
      const run = new Uint8Array((end - first) * PAGE_SIZE);
      for (let i = first; i < end; ) {
        // Neighbours here are mostly neighbours in the journal.
        const at = newest.get(pages[i]!)!;
        let next = i + 1;
        while (next < end && newest.get(pages[next]!) === at + (next - i) * PAGE_SIZE) next++;
        const part = run.subarray((i - first) * PAGE_SIZE, (next - first) * PAGE_SIZE);
        this.#journal.read(part, { at });
        i = next;
      }
      write(this.#image, run, pages[first]! * PAGE_SIZE);
      first = end;
    }
    this.#flush(this.#image);
    this.#onPhase("home");
    this.#writeHeader(this.#generation + 1, 0);
    this.#generation += 1;
    [this.#entries, this.#tail] = [[], FIRST];
    if (this.#journal.getSize() > JOURNAL_BYTES_KEPT) this.#journal.truncate(JOURNAL_BYTES_KEPT);
    this.#onPhase("reset");
  }
}

function headBytesOf(count: number): number {
  return Math.ceil((HEAD_BYTES + count * 4) / PAGE_SIZE) * PAGE_SIZE;
}

function truncate(file: FileSystemSyncAccessHandle, length: number): void {
  try {
    file.truncate(length);
  } catch (error) {
    if ((error as DOMException).name !== "QuotaExceededError") throw error;
    throw new QuotaError(NO_ROOM);
  }
}

function write(file: FileSystemSyncAccessHandle, bytes: Uint8Array, at: number): void {
  let written = 0;
  try {
    written = file.write(bytes, { at });
  } catch (error) {
    if ((error as DOMException).name !== "QuotaExceededError") throw error;
  }
  if (written !== bytes.length) {
    throw new QuotaError(NO_ROOM);
  }
}
