/**
 * Pages of a heap in the origin private file system, committed all or nothing.
 *
 * Two files: `image` holds the pages at home, `journal` a commit that is on its way there.
 * A commit writes the pages to the journal and flushes, seals it with a header and flushes, writes
 * the pages home and flushes, and retires the header and flushes. Opening repeats a sealed commit.
 *
 * Invariants: `image` changes only while the journal is sealed. A sealed journal whose body does
 * not match is damage, not an unfinished commit, since the body was flushed before the seal.
 * After a failed write the store refuses to go on: what reached the disk is not known.
 *
 * Only for a dedicated worker: `FileSystemSyncAccessHandle` exists nowhere else.
 */
import { CorruptError, LockedError, QuotaError } from "./errors.js";

/** Bytes of a page. */
export const PAGE_SIZE = 4096;

/** The steps of a commit, in their order; each is named after what was just completed. */
export type Phase = "journalled" | "sealed" | "home" | "retired";

/** How a store is opened. */
export interface OpenOptions {
  /** Bytes of the heap: a multiple of `PAGE_SIZE`; what is stored may be shorter, not longer. */
  readonly size: number;
  /** Called after each step of a commit, for tests of what a crash leaves. */
  readonly onPhase?: (phase: Phase) => void;
}

const NO_ROOM = "the browser grants no more storage; free some and open the heap again";
const MAGIC = 0x4a574648; // "HFWJ"
const HEADER_SIZE = PAGE_SIZE;
/** Header: magic, count of pages, checksum of the body, checksum of these three; u32 each. */
const HEADER_BYTES = 16;

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0x82f63b78 : value >>> 1;
  return value;
});

/** CRC-32C. */
function checksum(bytes: Uint8Array): number {
  let sum = 0xffffffff;
  for (let i = 0; i < bytes.length; i++) sum = (sum >>> 8) ^ TABLE[(sum ^ bytes[i]!) & 0xff]!;
  return ~sum >>> 0;
}

async function openFile(folder: FileSystemDirectoryHandle, name: string) {
  const file = await folder.getFileHandle(name, { create: true });
  try {
    return await file.createSyncAccessHandle();
  } catch (error) {
    if ((error as DOMException).name !== "NoModificationAllowedError") throw error;
    throw new LockedError("the heap is open elsewhere; close the other tab or handle first");
  }
}

/** The pages of one heap. The heap itself is the caller's: an array, or a part of linear memory. */
export class PageStore {
  readonly #size: number;
  #image: FileSystemSyncAccessHandle;
  #journal: FileSystemSyncAccessHandle;
  #onPhase: (phase: Phase) => void;
  #failed = false;

  private constructor(
    image: FileSystemSyncAccessHandle,
    journal: FileSystemSyncAccessHandle,
    options: OpenOptions,
  ) {
    this.#size = options.size;
    this.#image = image;
    this.#journal = journal;
    this.#onPhase = options.onPhase ?? (() => {});
  }

  /**
   * Opens the heap `name` of this origin, or makes it, and finishes a commit that was interrupted.
   * Throws `LockedError`, `CorruptError`, `QuotaError`, or `RangeError` for a wrong size.
   */
  static async open(name: string, options: OpenOptions): Promise<PageStore> {
    if (!(options.size > 0) || options.size % PAGE_SIZE !== 0) {
      throw new RangeError(`heap size must be a positive multiple of ${PAGE_SIZE} bytes`);
    }
    const root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle(name, { create: true });
    const image = await openFile(folder, "image");
    let journal: FileSystemSyncAccessHandle | undefined;
    try {
      journal = await openFile(folder, "journal");
      const store = new PageStore(image, journal, options);
      store.#replay();
      if (image.getSize() > options.size) {
        throw new RangeError(`the heap has ${image.getSize()} bytes; open it with at least these`);
      }
      return store;
    } catch (error) {
      image.close();
      journal?.close();
      throw error;
    }
  }

  /** Bytes that are stored: 0 for a heap that was never committed. */
  get length(): number {
    return this.#image.getSize();
  }

  /** Reads what is stored to the beginning of `heap`, which has at least `length` bytes. */
  read(heap: Uint8Array): void {
    if (heap.length < this.length) throw new RangeError(`the heap has ${this.length} bytes`);
    this.#image.read(heap, { at: 0 });
  }

  /** Reads as much of the beginning as `head` takes; what is not stored stays as it was. */
  readHead(head: Uint8Array): void {
    this.#image.read(head, { at: 0 });
  }

  /**
   * Makes the pages with these numbers durable as they are in `heap`, all or none, and stores as
   * many bytes as `heap` has. Throws `QuotaError`, after which the store must be reopened.
   */
  commit(heap: Uint8Array, pages: readonly number[]): void {
    if (this.#failed) throw new Error("an earlier commit failed; close the heap and open it again");
    if (heap.length > this.#size || heap.length % PAGE_SIZE !== 0) {
      throw new RangeError(`the heap must have at most ${this.#size} bytes, in whole pages`);
    }
    const sorted = [...new Set(pages)].sort((a, b) => a - b);
    if (sorted.some((page) => !Number.isInteger(page) || page < 0
        || page * PAGE_SIZE >= heap.length)) {
      throw new RangeError(`page numbers must be below ${heap.length / PAGE_SIZE}`);
    }
    if (sorted.length === 0) return;
    const body = new Uint8Array(sorted.length * (4 + PAGE_SIZE));
    const numbers = new DataView(body.buffer);
    sorted.forEach((page, i) => {
      numbers.setUint32(i * 4, page, true);
      const from = page * PAGE_SIZE;
      body.set(heap.subarray(from, from + PAGE_SIZE), sorted.length * 4 + i * PAGE_SIZE);
    });
    this.#failed = true;
    this.#lengthen(heap.length);
    write(this.#journal, body, HEADER_SIZE);
    this.#journal.flush();
    this.#onPhase("journalled");
    const header = new DataView(new ArrayBuffer(HEADER_BYTES));
    header.setUint32(0, MAGIC, true);
    header.setUint32(4, sorted.length, true);
    header.setUint32(8, checksum(body), true);
    header.setUint32(12, checksum(new Uint8Array(header.buffer, 0, 12)), true);
    write(this.#journal, new Uint8Array(header.buffer), 0);
    this.#journal.flush();
    this.#onPhase("sealed");
    this.#goHome(body, sorted.length);
    this.#failed = false;
  }

  /** Releases the heap; what was not committed is lost. */
  close(): void {
    this.#failed = true;
    this.#image.close();
    this.#journal.close();
  }

  /** Adds zeros to the image, durably: growth alone changes nothing that a heap holds. */
  #lengthen(length: number): void {
    if (this.#image.getSize() >= length) return;
    try {
      this.#image.truncate(length);
    } catch (error) {
      if ((error as DOMException).name !== "QuotaExceededError") throw error;
      throw new QuotaError(NO_ROOM);
    }
    this.#image.flush();
  }

  /** Finishes a sealed commit; one that was not sealed never happened. */
  #replay(): void {
    const header = new DataView(new ArrayBuffer(HEADER_BYTES));
    const read = this.#journal.read(new Uint8Array(header.buffer), { at: 0 });
    if (read < HEADER_BYTES || header.getUint32(0, true) !== MAGIC) return;
    if (header.getUint32(12, true) !== checksum(new Uint8Array(header.buffer, 0, 12))) return;
    const count = header.getUint32(4, true);
    const length = count * (4 + PAGE_SIZE);
    const damaged = "the journal of the heap is damaged; restore the heap from an export";
    if (this.#journal.getSize() < HEADER_SIZE + length) throw new CorruptError(damaged);
    const body = new Uint8Array(length);
    this.#journal.read(body, { at: HEADER_SIZE });
    if (checksum(body) !== header.getUint32(8, true)) throw new CorruptError(damaged);
    this.#goHome(body, count);
  }

  /** Writes a sealed commit home, neighbours in one write, and retires it. */
  #goHome(body: Uint8Array, count: number): void {
    const numbers = new DataView(body.buffer);
    const page = (i: number) => numbers.getUint32(i * 4, true);
    for (let first = 0; first < count; ) {
      let end = first + 1;
      while (end < count && page(end) === page(first) + (end - first)) end++;
      const from = count * 4 + first * PAGE_SIZE;
      const run = body.subarray(from, from + (end - first) * PAGE_SIZE);
      write(this.#image, run, page(first) * PAGE_SIZE);
      first = end;
    }
    this.#image.flush();
    this.#onPhase("home");
    write(this.#journal, new Uint8Array(HEADER_BYTES), 0);
    this.#journal.flush();
    this.#onPhase("retired");
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
