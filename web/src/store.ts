/** What keeps the pages of a heap: files (`PageStore`), or a database where there are none. */

/** Bytes of a page. */
export const PAGE_SIZE = 4096;
/** What the names of files with snapshots begin with, beside those of their heap. */
export const SNAPSHOT_PREFIX = "snapshot-";

/**
 * The steps of commits and checkpoints, each named after what was just done: `written` (of a commit of
 * more than 1 MiB the pages without their head, wherever they go; of others nothing), `committed`,
 * `sealed`, `home`, `reset`. A checkpoint of pages that are home already has no `home`.
 */
export type Phase = "written" | "committed" | "sealed" | "home" | "reset";

/** What a commit survives: `strict` also a power cut, `relaxed` the end of tab or browser. */
export type Durability = "strict" | "relaxed";

/** Is told pages, from one on and up to another. */
export type PageRange = (from: number, end: number) => void;

/** How a store is opened. One that is only read is not made where it is not there. */
export interface OpenOptions {
  /** Bytes of the heap: a multiple of `PAGE_SIZE`; what is stored may be shorter, not longer. */
  readonly size: number;
  /**
   * `read-only`: any number of tabs read, while none writes; nothing is committed. Where the browser's
   * file handles have no such mode, one tab reads, and another gets a `LockedError`.
   */
  readonly access?: "read-write" | "read-only" | undefined;
  /** `false`: a heap that is not there is a `NotFoundError`, and not made. */
  readonly create?: boolean | undefined;
  /** Waits until the heap is free, rather than throw a `LockedError`; the signal ends the wait. */
  readonly wait?: AbortSignal | boolean | undefined;
  /** Called after each step of a commit, for tests of what a crash leaves. */
  readonly onPhase?: ((phase: Phase) => void) | undefined;
}

/** The pages of one heap. The heap itself is the caller's: an array, or a part of linear memory. */
export interface HeapStore {
  /** What it promises less than files do; `undefined` where it is these. */
  readonly weaker: string | undefined;
  /** Bytes that are stored: 0 for a heap that was never committed. */
  readonly length: number;
  /**
   * Reads what is stored into `heap`, which is zero, and tells which pages it has just read. With
   * the sums of `keptSums`, whose pages it does not tell, it reads no page of zeroes.
   */
  read(heap: Uint8Array, onPages?: PageRange, kept?: Float64Array): void;
  /** All that is stored. Throws a `CorruptError` where it does not match the sums that were kept. */
  readWhole(): Uint8Array;
  /**
   * The sums that `keepSums` kept of the pages at home, if they are the same pages; those of later
   * commits are among what `read` tells. Who has taken them gets a `CorruptError` from the first
   * commit if one of these pages does not match.
   */
  keptSums(): Float64Array | undefined;
  /** Keeps the sums of what is stored, for the next opening; pages behind them are zero. */
  keepSums(sums: Float64Array): void;
  /** Reads as much of the beginning as `head` takes, a page at most; what is not stored is zero. */
  readHead(head: Uint8Array): void;
  /**
   * Stores these pages of `heap`, all or none; returns how many they are. A strict one has earlier
   * commits survive as it does, also where it has no pages.
   */
  commit(heap: Uint8Array, pages: readonly number[], durability?: Durability): number;
  /**
   * Fulfilled when the commits so far are stored, rejected with the error of one that could not be;
   * `undefined` where a commit is stored when it returns.
   */
  settled(): Promise<void> | undefined;
  /** Rejects with a `StorageLostError` if what is stored was removed; nothing is committed then. */
  check(): Promise<void>;
  /** Bytes kept beside the heap, which say where it came from; `undefined` where none were kept. */
  origin(): Promise<Uint8Array | undefined>;
  keepOrigin(bytes: Uint8Array): Promise<void>;
  /** Brings home what commits left beside the heap. */
  checkpoint(): void;
  /** Releases the heap. Call `check` before where the storage may have been cleared. */
  close(): void;
  /** Removes the heap with its snapshots, and releases it. */
  remove(): Promise<void>;
}

/** Throws a `RangeError` for what is no name of a heap: it is that of a folder. */
export function checkedName(name: string): void {
  if (typeof name !== "string" || /^\.{0,2}$|[/\\\u0000-\u001f\u007f]/u.test(name)) {
    throw new RangeError(`${JSON.stringify(name)} is no name of a heap; use one without slashes and \
control characters, best of letters, digits, dots, hyphens and underscores, as \`holdfast\` does`);
  }
}

/** Throws a `RangeError` for a size that no heap has. */
export function checkedSize(size: number): void {
  if (!(size > 0) || size % PAGE_SIZE !== 0 || size >= 2 ** 32) {
    throw new RangeError(`heap size must be a positive multiple of ${PAGE_SIZE} bytes, below 4 GiB`);
  }
}

/** Throws a `RangeError` where a heap has more bytes than it was opened with. */
export function checkedLimit(name: string, length: number, size: number): void {
  if (length <= size) return;
  throw new RangeError(`the heap ${name} has ${length} bytes, more than ${size}; open it with a larger \
limit (of PersistentHeap and PageStore: size), or without one`);
}

export const NO_ROOM = "the browser grants no more storage; free some and try again";
export const IMAGE_DAMAGED = "the stored bytes of the heap are damaged; go back to a snapshot, or \
remove the heap and import an export";
export const STORAGE_LOST = "the browser cleared the storage of this site, with the heap; what is in \
memory is the last of it";

export const STORAGE_FAILED = "the browser could not bring the heap to the disk, so whether the last commit is \
stored is not known; close the heap and open it again, which finds all commits before it";

/** The numbers of pages to be committed, each once and in order, or a `RangeError`. */
export function checkedPages(heap: Uint8Array, pages: readonly number[], size: number): number[] {
  if (heap.length > size || heap.length % PAGE_SIZE !== 0) {
    throw new RangeError(`the heap must have at most ${size} bytes, in whole pages`);
  }
  const sorted = [...new Set(pages)].sort((a, b) => a - b);
  const isPage = (page: number) =>
    Number.isInteger(page) && page >= 0 && page * PAGE_SIZE < heap.length;
  if (!sorted.every(isPage)) {
    throw new RangeError(`page numbers must be below ${heap.length / PAGE_SIZE}`);
  }
  return sorted;
}
