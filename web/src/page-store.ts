/**
 * Pages of a heap in the origin private file system, committed all or nothing.
 *
 * Three files: `image` holds the pages at home, `journal` the commits that are on their way there, and
 * `sums` what the next opening is spared, which counts for one state of the image or not at all. A
 * commit appends one entry to the journal, which its sum tells from an unfinished one, with one flush. A
 * checkpoint, for which a commit waits only behind 16 MiB of journal, seals the entries, writes their
 * pages home, and begins the journal again, with a flush after each. Opening finds the entries again.
 * Pages that make the heap longer, if they are many, go home at once, before the entry that has their
 * numbers and their sum: they are written once instead of twice, with one flush more. A checkpoint that
 * finds no others leaves the image as it is.
 *
 * Invariants: what the image holds of the heap changes only while the journal is sealed; behind it
 * there are zeroes, or pages of a commit under way, which the next opening cuts off. A sealed entry
 * that does not match its sum is damage; the first one behind the seal that does not match was never
 * committed. An entry counts with all of its pages or not at all. An image that lacks its journal, or
 * bytes that the journal's header counts, is damage, and so is a page that has another sum than was kept
 * of it: nothing is stored on top of that. No buffer grows with a commit but for the numbers of its
 * pages.
 *
 * Only for a dedicated worker: `FileSystemSyncAccessHandle` exists nowhere else.
 */
import { CorruptError, ExistsError, FilesRefusedError, LockedError, QuotaError, StorageFailedError,
  StorageLostError,
} from "./errors.js";
import { NotFoundError } from "./heap-errors.js";
import { type Access, HeapLock, openFile, openHandle } from "./lock.js";
import { sumOfZeroes } from "./page-sums.js";
import { Scratch, SCRATCH_BYTES } from "./scratch.js";
import { checkedLimit, checkedName, checkedPages, checkedSize, type Durability, type HeapStore,
  IMAGE_DAMAGED, NO_ROOM, type OpenOptions, PAGE_SIZE, type PageRange, type Phase, SNAPSHOT_PREFIX,
  STORAGE_FAILED, STORAGE_LOST,
} from "./store.js";

const DAMAGED = "the journal of the heap is damaged; restore the heap from an export";
const CUT_OFF = "stored bytes of the heap are missing or damaged; remove the heap and import an export";
const MAGIC = 0x334a_5748; // "HWJ3"
const ENTRY_MAGIC = 0x334e_5748; // "HWN3"
/** Header: magic, generation, sealed entries, bytes at home; u32 each; and the sum of these, u64. */
const HEADER_BYTES = 24;
const HEADER_SUM_AT = 16;
/** Where the first entry begins. */
const FIRST = PAGE_SIZE;
/** Head: magic, generation, number, count of pages; u32 each; length of the heap, sum; u64 each. */
const HEAD_BYTES = 32;
const SUM_AT = 24;
/**
 * Head of an entry with pages that went home at once: as above; their count, 1 if they were flushed
 * before it; u32 each; their sum, u64. The numbers of all pages follow, theirs behind the others.
 */
const PLACED_MAGIC = 0x344e_5748; // "HWN4"
const PLACED_HEAD_BYTES = 48;
const PLACED_COUNT_AT = 32;
const PLACED_FLUSHED_AT = 36;
const PLACED_SUM_AT = 40;
/** The files of a heap, in its folder. */
const PARTS = ["image", "journal", "sums"];
/** Those that every heap has; sums may be missing. */
const NEEDED_PARTS = ["image", "journal"];
/** Where the header of the heap's first stream is kept, beside them. */
const ORIGIN_FILE = "origin";
const SCRATCH_PAGES = SCRATCH_BYTES / PAGE_SIZE;
/** Fewer new pages pass through the journal: a flush more would cost more than writing them twice. */
const PLACED_MIN = SCRATCH_PAGES;
/** Fewer of them in a row, on average, take more writes than in the journal. */
const PLACED_RUN_MIN = 16;
/**
 * So much of their bytes the journal gets as room for what comes: it would have had all of them, and
 * its flushes are twice as slow while its file grows.
 */
const PLACED_JOURNAL_SHARE = 1 / 4;
/**
 * Head of the kept sums: magic, generation of the journal, count; u32 each, 4 bytes of zero, and the
 * sum of all whole pages, u64. The sums, f64 each, follow at 64.
 */
const SUMS_MAGIC = 0x314d_5748; // "HWM1"
const SUMS_HEAD_BYTES = 64;
const SUMS_SUM_AT = 16;
/** So many pages of zeroes between others are read with them: that is faster than another read. */
const ZEROES_READ = 4;
/** Read at a time for who looks at the pages: they are still in the processor's caches then. */
const READ_BYTES = 256 << 10;
/** Read at a time otherwise: few calls, of which a system may cut one off at 2 GiB. */
const READ_BYTES_MAX = 64 << 20;
/**
 * A longer journal is brought home before the next commit. Its file keeps this size while the heap is
 * open: a flush of bytes that were there before need not store where the file's new bytes are.
 */
const JOURNAL_BYTES_MAX = 16 << 20;
/** As much of the file stays when the heap is closed. */
const JOURNAL_BYTES_KEPT = 4 << 20;

interface Entry {
  /** The numbers of its pages in the journal, in their order. */
  readonly pages: readonly number[];
  /** Where they begin in the journal. */
  readonly at: number;
}

/** Pages that went home before their entry. */
interface Placed {
  readonly pages: readonly number[];
  readonly sum: bigint;
  readonly isFlushed: boolean;
}

/** The files of this origin. Throws a `FilesRefusedError` where the browser refuses them. */
export async function originFiles(): Promise<FileSystemDirectoryHandle> {
  try {
    return await navigator.storage.getDirectory();
  } catch (error) {
    const { message } = error as Error;
    throw new FilesRefusedError(`the browser gives this page no files (${message}); leave the private \
mode, or allow the site to store data`);
  }
}

/** The folder of a heap, and its files in the order of `PARTS`. */
type Parts<File> = [folder: FileSystemDirectoryHandle, files: readonly File[]];

/** Whether a folder has something that no heap has. */
async function hasOthers(folder: FileSystemDirectoryHandle): Promise<boolean> {
  for await (const entry of folder.keys()) {
    if (!isOfHeap(entry)) return true;
  }
  return false;
}

function isOfHeap(entry: string): boolean {
  return PARTS.includes(entry) || entry === ORIGIN_FILE || entry.startsWith(SNAPSHOT_PREFIX);
}

/** Whether a folder is one of the page's own: it lacks a file of a heap, and has something else. */
async function isOfPage(folder: FileSystemDirectoryHandle): Promise<boolean> {
  const there = await Promise.allSettled(NEEDED_PARTS.map((part) => folder.getFileHandle(part)));
  // One that could not be looked at may be there.
  const isMissing = (one: PromiseSettledResult<unknown>) => one.status === "rejected"
    && ["NotFoundError", "TypeMismatchError"].includes((one.reason as DOMException).name);
  return there.some(isMissing) && await hasOthers(folder);
}

/** Removes the files of a heap, and its folder unless the page keeps something of its own there. */
export async function removeFiles(root: FileSystemDirectoryHandle, name: string): Promise<void> {
  const folder = await root.getDirectoryHandle(name);
  if (!(await hasOthers(folder))) return await root.removeEntry(name, { recursive: true });
  const own: string[] = [];
  for await (const entry of folder.keys()) {
    if (isOfHeap(entry)) own.push(entry);
  }
  // Those last without which the rest would be no heap, and not be removed any more.
  const rank = (entry: string) => NEEDED_PARTS.indexOf(entry);
  for (const entry of own.sort((one, other) => rank(one) - rank(other))) {
    await folder.removeEntry(entry);
  }
}

/**
 * Looks for the files of a heap; if said, makes its folder where there is none (`create`), and in one
 * that is there its files. Throws an `ExistsError` where it would make them in a folder of the page's own.
 */
async function findParts(
  root: FileSystemDirectoryHandle, name: string, making?: { readonly create: boolean },
): Promise<Parts<FileSystemFileHandle>> {
  const folder = await root.getDirectoryHandle(name, making ?? {});
  const create = making !== undefined;
  // A folder of the page's own is no heap, and gets no files.
  if (making !== undefined && await isOfPage(folder)) {
    throw making.create ? nameTaken(name) : new NotFoundError(`there is no heap ${name}`);
  }
  if (making?.create === false) {
    const there = await Promise.allSettled(PARTS.map((part) => folder.getFileHandle(part)));
    const missing = there.flatMap((one) => one.status === "rejected" ? [one.reason] : []);
    if (missing.length === PARTS.length) throw missing[0];
  }
  // None is made any more when this has failed.
  const found = await Promise.allSettled(PARTS.map((part) => folder.getFileHandle(part, { create })));
  return [folder, found.map((one) => {
    if (one.status === "rejected") throw one.reason;
    return one.value;
  })];
}

/** Opens all of them, or none. */
async function openParts(
  finding: PromiseLike<Parts<FileSystemFileHandle>>, access: Access,
): Promise<Parts<FileSystemSyncAccessHandle>> {
  const [folder, found] = await finding;
  const opened = await Promise.allSettled(found.map((file) => openHandle(file, access)));
  const files = opened.flatMap((one) => one.status === "fulfilled" ? [one.value] : []);
  for (const one of opened) {
    if (one.status === "fulfilled") continue;
    files.forEach((file) => file.close());
    throw one.reason;
  }
  return [folder, files];
}

/** The pages of one heap. The heap itself is the caller's: an array, or a part of linear memory. */
export class PageStore implements HeapStore {
  weaker: string | undefined;
  readonly #size: number;
  readonly #scratch: Scratch;
  readonly #name: string;
  readonly #lock: HeapLock;
  readonly #folder: FileSystemDirectoryHandle;
  readonly #image: FileSystemSyncAccessHandle;
  readonly #journal: FileSystemSyncAccessHandle;
  readonly #sums: FileSystemSyncAccessHandle;
  readonly #isReadOnly: boolean;
  readonly #onPhase: (phase: Phase) => void;
  #generation = 1;
  #entries: Entry[] = [];
  /** Where the next entry begins. */
  #tail = FIRST;
  #length = 0;
  /** Bytes of the heap that are at home; the image may have more, as room for what comes. */
  #homeLength = 0;
  /** Bytes of the image behind which nothing counts: the longest that the heap was since it was home. */
  #reach = 0;
  #hasHeader = false;
  /** Whether a checkpoint was begun and is not done: the image may have some of its pages. */
  #isSealed = false;
  #imageBytes = 0;
  /** Of the last entry; 0 before the first one. */
  #lastSum = 0n;
  /** Whether entries may not be on the disk yet. */
  #isUnflushed = false;
  /** Whether pages that went home before their entries may not be there yet. */
  #isImageUnflushed = false;
  /** A flush failed, or the store is closed. */
  #ended: string | undefined;
  /** What the browser said when a flush failed. */
  #failure: unknown;
  #isLost = false;
  /** Sums of the image that were taken, and not compared with it yet. */
  #unchecked: Float64Array | undefined;
  /** The generation of the sums that are kept, if they are of one. */
  #sumsGeneration: number | undefined;

  private constructor(
    name: string, lock: HeapLock, folder: FileSystemDirectoryHandle,
    [image, journal, sums]: readonly FileSystemSyncAccessHandle[], scratch: Scratch,
    options: OpenOptions,
  ) {
    this.#size = options.size;
    this.#scratch = scratch;
    this.#name = name;
    this.#lock = lock;
    this.#folder = folder;
    this.#image = image!;
    this.#journal = journal!;
    this.#sums = sums!;
    this.#isReadOnly = options.access === "read-only";
    this.#onPhase = options.onPhase ?? (() => {});
  }

  /**
   * Opens the heap `name` of this origin, or makes it, with all that was committed. Throws
   * `LockedError`, `CorruptError`, `QuotaError`, `UnsupportedError`, `NotFoundError` where it is not
   * to be made, `ExistsError` where the page has a file or folder of its own under that name, or
   * `RangeError` for a wrong name or size.
   */
  static async open(name: string, options: OpenOptions): Promise<PageStore> {
    checkedName(name);
    checkedSize(options.size);
    const mode = options.access === "read-only" ? "shared" : "exclusive";
    const create = options.create ?? mode === "exclusive";
    // What is there is looked for while the lock is taken; only who has it makes files, and opens them.
    const root = originFiles();
    const finding = root.then((root) => findParts(root, name));
    finding.catch(() => {});
    const locking = HeapLock.take(name, mode, options.wait).catch(async (error) => {
      if (!(error instanceof LockedError)) throw error;
      // Who has it may be about to give it up: it is asked for once more when the files are found.
      await finding.catch(() => {});
      return await HeapLock.take(name, mode);
    });
    let lock: HeapLock;
    let scratch: Scratch;
    try {
      // It is compiled while the browser looks for the files.
      scratch = new Scratch();
      lock = (await Promise.all([locking, root]))[0];
    } catch (error) {
      locking.then((late) => late.release(), () => {});
      throw error;
    }
    let files: readonly FileSystemSyncAccessHandle[] = [];
    try {
      const access = mode === "shared" ? "read-only" : "readwrite";
      let folder: FileSystemDirectoryHandle;
      [folder, files] = await openParts(finding, access).catch(async (error) => {
        if (error instanceof LockedError) throw error;
        // The files were never made, or the tab that had the lock before removed them.
        return await openParts(findParts(await originFiles(), name, { create }), access);
      });
      const store = new PageStore(name, lock, folder, files, scratch, options);
      store.#find();
      checkedLimit(name, store.length, options.size);
      if (store.length === 0 && mode === "exclusive") await store.#dropOrigin();
      return store;
    } catch (error) {
      files.forEach((file) => file.close());
      lock.release();
      throw typedError(name, error);
    }
  }

  /** The names of the heaps of this origin that are kept in files, in no order. */
  static async names(): Promise<string[]> {
    const names = [];
    for await (const [name, folder] of (await originFiles()).entries()) {
      if (folder.kind !== "directory") continue;
      // A page may have folders of its own beside them.
      const own = folder as FileSystemDirectoryHandle;
      const hasJournal = await own.getFileHandle("journal").then(() => true, () => false);
      if (hasJournal && !(await isOfPage(own))) names.push(name);
    }
    return names;
  }

  /** Bytes that are stored: 0 for a heap that was never committed. */
  get length(): number {
    return this.#length;
  }

  /** Bytes of the journal: what a checkpoint would bring home. */
  get journalBytes(): number {
    return this.#tail - FIRST;
  }

  /**
   * Reads what is stored to the beginning of `heap`, which has at least `length` bytes. `onPages` is
   * told which pages were just read, while they are in the processor's caches. With the sums of
   * `keptSums`, those pages at home are not told, and `heap` has zeroes where they are zero.
   */
  read(heap: Uint8Array, onPages?: PageRange, kept?: Float64Array): void {
    if (heap.length < this.#length) throw new RangeError(`the heap has ${this.#length} bytes`);
    const readPart = (from: number, end: number, step: number, told?: PageRange) => {
      for (let at = from; at < end; at += step) {
        const part = heap.subarray(at, Math.min(at + step, end));
        part.fill(0, this.#image.read(part, { at }));
        told?.(at / PAGE_SIZE, (at + part.length) / PAGE_SIZE);
      }
    };
    for (const [from, end] of kept === undefined ? [] : filled(kept)) {
      readPart(from * PAGE_SIZE, end * PAGE_SIZE, READ_BYTES_MAX);
    }
    const step = onPages === undefined ? READ_BYTES_MAX : READ_BYTES;
    readPart((kept?.length ?? 0) * PAGE_SIZE, this.#length, step, onPages);
    for (const { page, bytes } of this.#journalled()) {
      heap.set(bytes, page * PAGE_SIZE);
      onPages?.(page, page + 1);
    }
  }

  readWhole(): Uint8Array {
    const heap = new Uint8Array(this.#length);
    const kept = this.keptSums();
    this.#checkImage();
    this.read(heap, undefined, kept);
    return heap;
  }

  keptSums(): Float64Array | undefined {
    // They are of the image before the checkpoint; who only reads does not end that.
    if (this.#isSealed) return undefined;
    const length = this.#sums.getSize();
    if (length === 0 || length % PAGE_SIZE !== 0) return undefined;
    const bytes = new Uint8Array(length);
    const head = new DataView(bytes.buffer);
    if (this.#sums.read(bytes, { at: 0 }) !== length) return undefined;
    const [generation, count] = [head.getUint32(4, true), head.getUint32(8, true)];
    const sum = head.getBigUint64(SUMS_SUM_AT, true);
    head.setBigUint64(SUMS_SUM_AT, 0n, true);
    if (head.getUint32(0, true) !== SUMS_MAGIC || generation !== this.#generation
        || count * PAGE_SIZE > this.#homeLength || SUMS_HEAD_BYTES + count * 8 > length
        || this.#scratch.sumOf(0n, bytes) !== sum) return undefined;
    this.#sumsGeneration = generation;
    const sums = new Float64Array(bytes.buffer, SUMS_HEAD_BYTES, count);
    // The caller's change with its pages.
    this.#unchecked = sums.slice();
    return sums;
  }

  /** Does nothing where the journal has entries: these sums are not those of the pages at home. */
  keepSums(sums: Float64Array): void {
    const isHome = this.#entries.length === 0 && this.#homeLength > 0;
    if (!isHome || this.#sumsGeneration === this.#generation || this.#ended !== undefined
        || this.#isReadOnly) return;
    const count = this.#homeLength / PAGE_SIZE;
    const whole = Math.ceil((SUMS_HEAD_BYTES + count * 8) / PAGE_SIZE) * PAGE_SIZE;
    const bytes = new Uint8Array(whole);
    const head = new DataView(bytes.buffer);
    [SUMS_MAGIC, this.#generation, count].forEach((value, i) => head.setUint32(i * 4, value, true));
    const all = new Float64Array(bytes.buffer, SUMS_HEAD_BYTES, count).fill(sumOfZeroes());
    all.set(sums.subarray(0, count));
    head.setBigUint64(SUMS_SUM_AT, this.#scratch.sumOf(0n, bytes), true);
    try {
      if (this.#sums.getSize() !== whole) this.#sums.truncate(whole);
      this.#sums.write(bytes, { at: 0 });
      this.#sumsGeneration = this.#generation;
    } catch (error) {
      // Without room for them the next opening makes them anew.
      if ((error as DOMException).name !== "QuotaExceededError") throw error;
    }
  }

  /** Reads as much of the beginning as `head` takes, a page at most; what is not stored is zero. */
  readHead(head: Uint8Array): void {
    const first = new Uint8Array(PAGE_SIZE);
    // What an unfinished commit left is none of it.
    if (this.#length > 0) this.#image.read(first, { at: 0 });
    for (const { pages, at } of this.#entries) {
      const index = pages.indexOf(0);
      if (index >= 0) this.#journal.read(first, { at: at + index * PAGE_SIZE });
    }
    head.set(first.subarray(0, head.length));
  }

  /**
   * Stores the pages with these numbers as they are in `heap`, all or none, and as many bytes as
   * `heap` has; returns how many pages these are. A strict commit has those before it on the disk,
   * too, also where it has no pages. Throws `QuotaError`, after which what was committed before
   * stands, and another commit may be tried; and `StorageFailedError`, after which this store takes no
   * more.
   */
  commit(
    heap: Uint8Array, pages: readonly number[], durability: Durability = "strict",
  ): number {
    this.#check();
    const sorted = checkedPages(heap, pages, this.#size);
    const isStrict = durability === "strict";
    if (sorted.length === 0) {
      // Relaxed commits before it may not be on the disk.
      if (isStrict) this.#flushAll();
      return 0;
    }
    this.#checkImage();
    // Of an entry that was not flushed its pages may be missing: none that was may stand behind it.
    if (this.#tail > JOURNAL_BYTES_MAX || (isStrict && this.#isImageUnflushed)
        || this.#hasOtherEnd(heap.length)) this.checkpoint();
    const [inJournal, atHome] = this.#parted(sorted);
    let [headBytes, sum] = [0, 0n];
    try {
      // Room at home is taken now, while the commit may still fail.
      this.#reserve(heap.length);
      const placed = atHome.length > 0 ? this.#place(heap, atHome, isStrict) : undefined;
      [headBytes, sum] = this.#writeEntry(heap, inJournal, placed);
    } catch (error) {
      if (atHome.length > 0) this.#cutOff();
      throw error;
    }
    this.#isUnflushed = true;
    if (isStrict) this.#flushAll();
    this.#lastSum = sum;
    this.#entries.push({ pages: inJournal, at: this.#tail + headBytes });
    this.#tail += headBytes + inJournal.length * PAGE_SIZE;
    this.#length = heap.length;
    this.#reach = Math.max(this.#reach, heap.length);
    this.#onPhase("committed");
    return sorted.length;
  }

  /**
   * Whether a heap of this length is shorter than the stored one, or longer than one that became shorter:
   * pages behind its end, in the journal or at home, are none of it, and do not come back.
   */
  #hasOtherEnd(length: number): boolean {
    return length < this.#length || (length > this.#length && this.#reach > this.#length);
  }

  /** The pages that pass through the journal, and those that go home at once. */
  #parted(pages: readonly number[]): [inJournal: readonly number[], atHome: readonly number[]] {
    let first = pages.length;
    while (first > 0 && pages[first - 1]! * PAGE_SIZE >= this.#reach) first--;
    const atHome = pages.slice(first);
    const isFew = atHome.length < Math.max(PLACED_MIN, [...runs(atHome)].length * PLACED_RUN_MIN);
    return isFew ? [pages, []] : [pages.slice(0, first), atHome];
  }

  /** Writes pages home that the heap did not have yet. */
  #place(heap: Uint8Array, pages: readonly number[], isFlushed: boolean): Placed {
    // An image with bytes, and no header, has lost its journal.
    if (!this.#hasHeader) this.#writeHeader(this.#generation, 0);
    this.#isImageUnflushed = true;
    let sum = 0n;
    for (const part of parts(pages)) {
      sum = this.#gather(sum, heap, part);
      for (const [from, end] of runs(part)) {
        const run = this.#scratch.bytes.subarray(from * PAGE_SIZE, end * PAGE_SIZE);
        write(this.#image, run, part[from]! * PAGE_SIZE);
      }
    }
    if (isFlushed) this.#flush(this.#image);
    this.#lengthenJournal(pages.length * PAGE_SIZE * PLACED_JOURNAL_SHARE);
    return { pages, sum, isFlushed };
  }

  /** Has the journal be so long, at most as long as it stays. Costs speed only where there is no room. */
  #lengthenJournal(wanted: number): void {
    const end = Math.min(wanted, JOURNAL_BYTES_MAX);
    const zeroes = this.#scratch.bytes.fill(0);
    try {
      for (let at = this.#journal.getSize(); at < end; at += SCRATCH_BYTES) {
        write(this.#journal, zeroes.subarray(0, Math.min(SCRATCH_BYTES, end - at)), at);
      }
    } catch (error) {
      if (!(error instanceof QuotaError)) throw error;
    }
  }

  /** Whether pages that went home before their entry are there. */
  #isPlaced(pages: readonly number[], expected: bigint): boolean {
    let sum = 0n;
    for (const part of parts(pages)) {
      const bytes = this.#scratch.bytes.subarray(0, part.length * PAGE_SIZE);
      for (const [from, end] of runs(part)) {
        const run = bytes.subarray(from * PAGE_SIZE, end * PAGE_SIZE);
        run.fill(0, this.#image.read(run, { at: part[from]! * PAGE_SIZE }));
      }
      sum = this.#scratch.sum(sum, bytes.length);
    }
    return sum === expected;
  }

  /** Puts pages, as many as it takes, into the scratch memory; their sum behind bytes with another. */
  #gather(sum: bigint, heap: Uint8Array, pages: readonly number[], to = 0): bigint {
    pages.forEach((page, i) => {
      const at = page * PAGE_SIZE;
      this.#scratch.bytes.set(heap.subarray(at, at + PAGE_SIZE), to + i * PAGE_SIZE);
    });
    return this.#scratch.sum(sum, to + pages.length * PAGE_SIZE);
  }

  /** Ends the image where nothing counts any more: zeroes follow when it is longer again. */
  #cutOff(): void {
    if (this.#imageBytes <= this.#reach) return;
    try {
      this.#image.truncate(this.#reach);
      this.#imageBytes = this.#reach;
      // Before an entry says that it is longer: what was there must not come back.
      this.#image.flush();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Throws a `CorruptError` where the image does not match the sums that were taken of it. */
  #checkImage(): void {
    const sums = this.#unchecked;
    if (sums === undefined) return;
    const { bytes } = this.#scratch;
    for (const [from, end] of filled(sums)) {
      for (let first = from; first < end; first += SCRATCH_PAGES) {
        const part = sums.subarray(first, Math.min(first + SCRATCH_PAGES, end));
        const pages = bytes.subarray(0, part.length * PAGE_SIZE);
        pages.fill(0, this.#image.read(pages, { at: first * PAGE_SIZE }));
        if (!this.#scratch.matches(part)) throw new CorruptError(IMAGE_DAMAGED);
      }
    }
    this.#unchecked = undefined;
  }

  /** Has the image be so long. */
  #reserve(length: number): void {
    if (length <= this.#imageBytes) return;
    truncate(this.#image, length);
    this.#imageBytes = length;
  }

  /** Writes an entry: in one piece where it fits, else its pages before its head; its sum. */
  #writeEntry(
    heap: Uint8Array, pages: readonly number[], placed: Placed | undefined,
  ): [headBytes: number, sum: bigint] {
    const { bytes, view } = this.#scratch;
    const headBytes = headBytesOf(pages.length, placed?.pages.length);
    const head = new DataView(new ArrayBuffer(headBytes));
    const magic = placed ? PLACED_MAGIC : ENTRY_MAGIC;
    [magic, this.#generation, this.#entries.length, pages.length, heap.length]
      .forEach((value, i) => head.setUint32(i * 4, value, true));
    if (placed) {
      head.setUint32(PLACED_COUNT_AT, placed.pages.length, true);
      head.setUint32(PLACED_FLUSHED_AT, Number(placed.isFlushed), true);
      head.setBigUint64(PLACED_SUM_AT, placed.sum, true);
    }
    const numbersAt = placed ? PLACED_HEAD_BYTES : HEAD_BYTES;
    [...pages, ...placed?.pages ?? []]
      .forEach((page, i) => head.setUint32(numbersAt + i * 4, page, true));
    const size = headBytes + pages.length * PAGE_SIZE;
    if (size <= SCRATCH_BYTES) {
      bytes.set(new Uint8Array(head.buffer));
      const sum = this.#gather(this.#lastSum, heap, pages, headBytes);
      view.setBigUint64(SUM_AT, sum, true);
      this.#onPhase("written");
      write(this.#journal, bytes.subarray(0, size), this.#tail);
      return [headBytes, sum];
    }
    let sum = this.#scratch.sumOf(this.#lastSum, new Uint8Array(head.buffer));
    let at = this.#tail + headBytes;
    for (const part of parts(pages)) {
      sum = this.#gather(sum, heap, part);
      write(this.#journal, bytes.subarray(0, part.length * PAGE_SIZE), at);
      at += part.length * PAGE_SIZE;
    }
    head.setBigUint64(SUM_AT, sum, true);
    this.#onPhase("written");
    write(this.#journal, new Uint8Array(head.buffer), this.#tail);
    return [headBytes, sum];
  }

  /** Brings home what the journal has; commits are as durable before. */
  checkpoint(): void {
    this.#check();
    if (this.#entries.length === 0) return;
    this.#checkImage();
    if (this.#length > this.#imageBytes) {
      // A sealed entry whose pages reach behind the image's end would be damage.
      this.#reserve(this.#length);
      this.#isImageUnflushed = true;
    }
    // A seal that reached the disk before its entries would make damage of them.
    this.#flushAll();
    // Also where the image stays as it is: entries that are overwritten while the next header is not on
    // the disk are damage then, not commits that were never finished.
    this.#writeHeader(this.#generation, this.#entries.length);
    this.#isSealed = true;
    this.#onPhase("sealed");
    if (this.#entries.some(({ pages }) => pages.length > 0)) this.#goHome();
    this.#beginAgain();
  }

  async origin(): Promise<Uint8Array | undefined> {
    try {
      await this.#folder.getFileHandle(ORIGIN_FILE);
    } catch (error) {
      if ((error as DOMException).name !== "NotFoundError") throw error;
      return undefined;
    }
    const file = await openFile(this.#folder, ORIGIN_FILE, "read-only");
    try {
      const bytes = new Uint8Array(file.getSize());
      file.read(bytes, { at: 0 });
      return bytes;
    } finally {
      file.close();
    }
  }

  async keepOrigin(bytes: Uint8Array): Promise<void> {
    const file = await openFile(this.#folder, ORIGIN_FILE, "readwrite");
    try {
      write(file, bytes, 0);
      flush(file);
    } finally {
      file.close();
    }
  }

  /** An import that was killed left it: what comes into the heap now is another one. */
  async #dropOrigin(): Promise<void> {
    try {
      await this.#folder.removeEntry(ORIGIN_FILE);
    } catch (error) {
      if ((error as DOMException).name !== "NotFoundError") throw error;
    }
  }

  /** Commits are stored when they return. */
  settled(): undefined {
    return undefined;
  }

  /** A file that was removed takes writes all the same: only the folder tells. */
  async check(): Promise<void> {
    if (this.#isLost) throw new StorageLostError(STORAGE_LOST);
    if (this.#ended !== undefined) return;
    try {
      await this.#folder.getFileHandle("image");
    } catch (error) {
      // What could not be looked at may be there: a commit tells by itself.
      if ((error as DOMException).name !== "NotFoundError") return;
      this.#isLost = true;
      this.#ended ??= STORAGE_LOST;
      throw new StorageLostError(STORAGE_LOST);
    }
  }

  /** Releases the heap; what was not committed is lost. */
  close(): void {
    try {
      if (this.#ended === undefined && !this.#isReadOnly) {
        this.checkpoint();
        this.#shorten(JOURNAL_BYTES_KEPT);
      }
    } finally {
      this.abandon();
    }
  }

  /** Releases the heap as it is; the next one to open it finds all commits. */
  abandon(): void {
    this.#ended = "the heap is closed";
    // Chromium does not come back from closing a file that it has removed.
    if (!this.#isLost) [this.#image, this.#journal, this.#sums].forEach((file) => file.close());
    this.#lock.release();
  }

  async remove(): Promise<void> {
    this.#ended = "the heap was removed";
    try {
      if (!this.#isLost) [this.#image, this.#journal, this.#sums].forEach((file) => file.close());
      await removeFiles(await originFiles(), this.#name);
    } finally {
      this.#lock.release();
    }
  }

  #check(): void {
    if (this.#isLost) throw new StorageLostError(STORAGE_LOST);
    if (this.#ended === STORAGE_FAILED) throw new StorageFailedError(STORAGE_FAILED, { cause: this.#failure });
    if (this.#ended !== undefined) throw new Error(this.#ended);
    if (this.#isReadOnly) throw new Error("the heap was opened for reading");
  }

  /** What failed to reach the disk is not known to be there: the store goes on no more. */
  #flush(file: FileSystemSyncAccessHandle): void {
    try {
      file.flush();
      if (file === this.#journal) this.#isUnflushed = false;
      if (file === this.#image) this.#isImageUnflushed = false;
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(cause: unknown): never {
    this.#ended = STORAGE_FAILED;
    this.#failure = cause;
    throw new StorageFailedError(STORAGE_FAILED, { cause });
  }

  /** Has all commits so far on the disk: what went home before its entry first. */
  #flushAll(): void {
    if (this.#isImageUnflushed) this.#flush(this.#image);
    if (this.#isUnflushed) this.#flush(this.#journal);
  }

  /**
   * The pages of the journal, an older version of one before a newer one. Their bytes are there until
   * the next one is asked for.
   */
  * #journalled(): Generator<{ page: number; bytes: Uint8Array }> {
    const { bytes } = this.#scratch;
    for (const { pages, at } of this.#entries) {
      let from = at;
      for (const part of parts(pages)) {
        this.#journal.read(bytes.subarray(0, part.length * PAGE_SIZE), { at: from });
        from += part.length * PAGE_SIZE;
        for (const [i, page] of part.entries()) {
          yield { page, bytes: bytes.subarray(i * PAGE_SIZE, (i + 1) * PAGE_SIZE) };
        }
      }
    }
  }

  /** Looks what the journal has, and ends a checkpoint that was begun. */
  #find(): void {
    this.#imageBytes = this.#image.getSize();
    const { bytes, view } = this.#scratch;
    bytes.fill(0, 0, PAGE_SIZE);
    const found = this.#journal.read(bytes.subarray(0, HEADER_BYTES), { at: 0 });
    let sealed = 0;
    const hasHeader = found === HEADER_BYTES
      && bytes.subarray(0, HEADER_BYTES).some((byte) => byte !== 0);
    // Without one, nothing was ever brought home.
    if (!hasHeader && !this.#isImageEmpty()) throw new CorruptError(CUT_OFF);
    if (hasHeader) {
      const sum = view.getBigUint64(HEADER_SUM_AT, true);
      view.setBigUint64(HEADER_SUM_AT, 0n, true);
      if (view.getUint32(0, true) !== MAGIC || this.#scratch.sum(0n, PAGE_SIZE) !== sum) {
        throw new CorruptError(DAMAGED);
      }
      this.#hasHeader = true;
      [this.#generation, sealed] = [view.getUint32(4, true), view.getUint32(8, true)];
      this.#homeLength = this.#length = this.#reach = view.getUint32(12, true);
      if (this.#imageBytes < this.#homeLength) throw new CorruptError(CUT_OFF);
    }
    while (this.#findEntry(sealed)) { /* the next one */ }
    // A tab that died may have left them to the system's caches.
    this.#isUnflushed = this.#entries.length > sealed;
    if (this.#entries.length < sealed) throw new CorruptError(DAMAGED);
    this.#isSealed = sealed > 0;
    if (!this.#isReadOnly) this.#cutOff();
    // A tab that died may have left what it wrote home to the system's caches, the image's length too.
    this.#isImageUnflushed ||= sealed > 0;
    // Entries that came after a checkpoint that failed are sealed with the others.
    if (sealed > 0 && !this.#isReadOnly) this.checkpoint();
  }

  /** Whether the image has room only: bytes, of which none was written. */
  #isImageEmpty(): boolean {
    const { bytes } = this.#scratch;
    const words = new Uint32Array(bytes.buffer);
    for (let at = 0; at < this.#imageBytes; at += SCRATCH_BYTES) {
      bytes.fill(0, this.#image.read(bytes, { at }));
      if (!words.every((word) => word === 0)) return false;
    }
    return true;
  }

  /** Whether there is one more entry, with so many of them sealed. */
  #findEntry(sealed: number): boolean {
    const left = this.#journal.getSize() - this.#tail;
    const head = new DataView(new ArrayBuffer(PLACED_HEAD_BYTES));
    if (left < PAGE_SIZE) return false;
    this.#journal.read(new Uint8Array(head.buffer), { at: this.#tail });
    const word = (at: number) => head.getUint32(at, true);
    const [magic, generation, number, count, length] = [word(0), word(4), word(8), word(12), word(16)];
    const placedCount = magic === PLACED_MAGIC ? word(PLACED_COUNT_AT) : undefined;
    const headBytes = headBytesOf(count, placedCount);
    const size = headBytes + count * PAGE_SIZE;
    if ((magic !== ENTRY_MAGIC && placedCount === undefined) || generation !== this.#generation
        || number !== this.#entries.length || size > left) return false;
    const whole = new DataView(new ArrayBuffer(headBytes));
    const headers = new Uint8Array(whole.buffer);
    this.#journal.read(headers, { at: this.#tail });
    const sum = whole.getBigUint64(SUM_AT, true);
    whole.setBigUint64(SUM_AT, 0n, true);
    let found = this.#scratch.sumOf(this.#lastSum, headers);
    for (let at = headBytes; at < size; at += SCRATCH_BYTES) {
      const part = this.#scratch.bytes.subarray(0, Math.min(SCRATCH_BYTES, size - at));
      part.fill(0, this.#journal.read(part, { at: this.#tail + at }));
      found = this.#scratch.sum(found, part.length);
    }
    if (found !== sum) return false;
    const numbersAt = placedCount === undefined ? HEAD_BYTES : PLACED_HEAD_BYTES;
    const pages = Array.from({ length: count + (placedCount ?? 0) },
      (_, i) => whole.getUint32(numbersAt + i * 4, true));
    const inJournal = pages.splice(0, count);
    const home = ((pages.at(-1) ?? -1) + 1) * PAGE_SIZE;
    if (number < sealed && home > this.#imageBytes) throw new CorruptError(CUT_OFF);
    if (placedCount !== undefined && number >= sealed) {
      if (!this.#isPlaced(pages, head.getBigUint64(PLACED_SUM_AT, true))) {
        // Only what was not flushed before its entry may be missing.
        if (word(PLACED_FLUSHED_AT) === 1) throw new CorruptError(CUT_OFF);
        return false;
      }
      this.#isImageUnflushed = true;
    }
    this.#lastSum = sum;
    this.#entries.push({ pages: inJournal, at: this.#tail + headBytes });
    this.#tail += size;
    this.#length = length;
    this.#reach = Math.max(this.#reach, length);
    return true;
  }

  #shorten(bytes: number): void {
    if (this.#journal.getSize() > bytes) this.#journal.truncate(bytes);
  }

  #writeHeader(generation: number, sealed: number, homeLength = this.#homeLength): void {
    const { bytes, view } = this.#scratch;
    bytes.fill(0, 0, PAGE_SIZE);
    [MAGIC, generation, sealed, homeLength]
      .forEach((value, i) => view.setUint32(i * 4, value, true));
    view.setBigUint64(HEADER_SUM_AT, this.#scratch.sum(0n, PAGE_SIZE), true);
    write(this.#journal, bytes.subarray(0, HEADER_BYTES), 0);
    this.#flush(this.#journal);
    this.#hasHeader = true;
  }

  /** Writes the pages of a sealed journal home, neighbours in one write. */
  #goHome(): void {
    const newest = new Map<number, number>();
    for (const { pages, at } of this.#entries) {
      pages.forEach((page, i) => newest.set(page, at + i * PAGE_SIZE));
    }
    const pages = [...newest.keys()].sort((a, b) => a - b);
    const { bytes } = this.#scratch;
    for (let first = 0; first < pages.length; ) {
      let end = first + 1;
      while (end < pages.length && end - first < SCRATCH_PAGES
          && pages[end] === pages[first]! + (end - first)) end++;
      const run = bytes.subarray(0, (end - first) * PAGE_SIZE);
      for (let i = first; i < end; ) {
        // Neighbours here are mostly neighbours in the journal.
        const at = newest.get(pages[i]!)!;
        let next = i + 1;
        while (next < end && newest.get(pages[next]!) === at + (next - i) * PAGE_SIZE) next++;
        this.#journal.read(run.subarray((i - first) * PAGE_SIZE, (next - first) * PAGE_SIZE), { at });
        i = next;
      }
      write(this.#image, run, pages[first]! * PAGE_SIZE);
      first = end;
    }
    this.#flush(this.#image);
    this.#onPhase("home");
  }

  /** Begins the journal, whose pages are all at home, again. */
  #beginAgain(): void {
    this.#writeHeader(this.#generation + 1, 0, this.#length);
    this.#isSealed = false;
    this.#homeLength = this.#length;
    this.#generation += 1;
    this.#reach = this.#length;
    this.#cutOff();
    [this.#entries, this.#tail, this.#lastSum] = [[], FIRST, 0n];
    this.#shorten(JOURNAL_BYTES_MAX);
    this.#onPhase("reset");
  }
}

/** Pages from one on and up to another that are not all zero, with few between them that are. */
function* filled(sums: Float64Array): Generator<[from: number, end: number]> {
  const zero = sumOfZeroes();
  for (let page = 0; page < sums.length; ) {
    const from = page++;
    if (sums[from] === zero) continue;
    let end = page;
    for (; page < sums.length && page < end + ZEROES_READ; page++) {
      if (sums[page] !== zero) end = page + 1;
    }
    yield [from, end];
  }
}

function nameTaken(name: string): ExistsError {
  return new ExistsError(`the page keeps a file or folder of its own under the name ${name}; use another name \
for the heap`);
}

/** What the browser says, as an error of this package. */
function typedError(name: string, error: unknown): unknown {
  switch ((error as DOMException).name) {
    case "QuotaExceededError": return new QuotaError(NO_ROOM);
    case "NotFoundError":
      return error instanceof NotFoundError ? error : new NotFoundError(`there is no heap ${name}`);
    // A file is where a folder would be, or a folder where a file would be.
    case "TypeMismatchError": return nameTaken(name);
    default: return error;
  }
}

/** Of an entry with so many pages in the journal, and so many that went home, if it is for any. */
function headBytesOf(count: number, placedCount?: number): number {
  const bytes = placedCount === undefined
    ? HEAD_BYTES + count * 4
    : PLACED_HEAD_BYTES + (count + placedCount) * 4;
  return Math.ceil(bytes / PAGE_SIZE) * PAGE_SIZE;
}

/** The pages, as many at once as the scratch memory takes. */
function* parts(pages: readonly number[]): Generator<readonly number[]> {
  for (let at = 0; at < pages.length; at += SCRATCH_PAGES) yield pages.slice(at, at + SCRATCH_PAGES);
}

/** From which index on and up to which pages are neighbours. */
function* runs(pages: readonly number[]): Generator<[from: number, end: number]> {
  for (let from = 0; from < pages.length; ) {
    let end = from + 1;
    while (end < pages.length && pages[end] === pages[end - 1]! + 1) end++;
    yield [from, end];
    from = end;
  }
}

/** Has a file that is no part of a commit on the disk. */
function flush(file: FileSystemSyncAccessHandle): void {
  try {
    file.flush();
  } catch (cause) {
    throw new StorageFailedError(STORAGE_FAILED, { cause });
  }
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
