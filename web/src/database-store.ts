/**
 * Pages of a heap in IndexedDB, for browsers that give a page no files: with a weaker promise.
 *
 * Invariants: a commit is one transaction, or a part of one with later commits, so it is all or
 * nothing; and it is stored when `settled` says so, not when it returns. Pages of a transaction that
 * failed go with the next commit.
 */
import { LockedError, QuotaError, StorageLostError, UnsupportedError } from "./errors.js";
import { NotFoundError } from "./heap-errors.js";
import { HeapLock } from "./lock.js";
import { checkedLimit, checkedName, checkedPages, checkedSize, type Durability, type HeapStore, NO_ROOM,
  type OpenOptions, PAGE_SIZE, type PageRange, STORAGE_LOST } from "./store.js";

const PREFIX = "holdfast:";
const PAGES = "pages";
const LENGTH = "length";
const ORIGIN = "origin";
/** A tab that has just died may keep the database for a moment. */
const OPEN_MS_MAX = 10_000;

/** Pages by their numbers, and bytes of the heap. */
interface Contents {
  readonly pages: Map<number, Uint8Array>;
  readonly length: number;
}

export class DatabaseStore implements HeapStore {
  readonly weaker = "kept in IndexedDB: a commit is stored only some time after it was made, which \
`settled` waits for, and what an applet commits while it runs may be lost with its tab";
  readonly #name: string;
  readonly #size: number;
  readonly #lock: HeapLock;
  readonly #database: IDBDatabase;
  readonly #isReadOnly: boolean;
  readonly #pages: Map<number, Uint8Array>;
  /** Pages of commits that are not stored yet. */
  #unstored = new Set<number>();
  /** What the next transaction promises. */
  #durability: Durability = "relaxed";
  /** Whether transactions were made that a power cut may take back. */
  #isUnflushed = false;
  #length: number;
  #writing: Promise<void> | undefined;
  #isClosed = false;
  #isLost = false;

  private constructor(
    name: string, lock: HeapLock, database: IDBDatabase, options: OpenOptions,
    { pages, length }: Contents,
  ) {
    this.#name = name;
    this.#size = options.size;
    this.#lock = lock;
    this.#database = database;
    this.#isReadOnly = options.access === "read-only";
    this.#pages = pages;
    this.#length = length;
    database.onclose = () => { this.#isLost = true; };
  }

  /** As `PageStore.open`. */
  static async open(name: string, options: OpenOptions): Promise<DatabaseStore> {
    checkedName(name);
    checkedSize(options.size);
    const mode = options.access === "read-only" ? "shared" : "exclusive";
    const lock = await HeapLock.take(name, mode, options.wait);
    let database: IDBDatabase | undefined;
    try {
      const mayCreate = options.create ?? mode === "exclusive";
      if (!mayCreate && !(await this.names()).includes(name)) {
        throw new NotFoundError(`there is no heap ${name}`);
      }
      database = await opened(PREFIX + name);
      const stored = await contents(database);
      checkedLimit(name, stored.length, options.size);
      // An import that was killed left it: what comes into the heap now is another one.
      if (stored.length === 0 && mode === "exclusive") {
        await asked(database.transaction(PAGES, "readwrite").objectStore(PAGES).delete(ORIGIN));
      }
      return new DatabaseStore(name, lock, database, options, stored);
    } catch (error) {
      database?.close();
      lock.release();
      throw error;
    }
  }

  /**
   * What is kept of a heap, or `undefined` where there is no database; for who has the heap's lock.
   */
  static async contentsOf(name: string): Promise<Contents & { origin?: Uint8Array } | undefined> {
    if (!(await this.names()).includes(name)) return undefined;
    const database = await opened(PREFIX + name);
    try {
      const found = await contents(database);
      const pages = database.transaction(PAGES, "readonly").objectStore(PAGES);
      const origin = await asked<Uint8Array | undefined>(pages.get(ORIGIN));
      return found.length === 0 ? undefined : { ...found, ...(origin && { origin }) };
    } finally {
      database.close();
    }
  }

  /** Removes the database of a heap, if there is one; for who has the heap's lock. */
  static async remove(name: string): Promise<void> {
    await asked(indexedDB.deleteDatabase(PREFIX + name));
  }

  /** The heaps of this origin that are kept so. Throws as `open` where the browser does not tell. */
  static async names(): Promise<string[]> {
    let all: IDBDatabaseInfo[];
    try {
      all = await (indexedDB.databases?.() ?? []);
    } catch (error) {
      throw refused(error as DOMException);
    }
    return all.flatMap(({ name }) => name?.startsWith(PREFIX) ? [name.slice(PREFIX.length)] : []);
  }

  get length(): number {
    return this.#length;
  }

  read(heap: Uint8Array, onPages: PageRange = () => {}): void {
    if (heap.length < this.#length) throw new RangeError(`the heap has ${this.#length} bytes`);
    heap.fill(0, 0, this.#length);
    this.#pages.forEach((bytes, page) => heap.set(bytes, page * PAGE_SIZE));
    onPages(0, this.#length / PAGE_SIZE);
  }

  readWhole(): Uint8Array {
    const heap = new Uint8Array(this.#length);
    this.read(heap);
    return heap;
  }

  /** All pages are in memory, and those of zeroes are not stored: there is nothing to spare. */
  keptSums(): undefined {}

  keepSums(): void {}

  readHead(head: Uint8Array): void {
    const first = this.#pages.get(0) ?? new Uint8Array(PAGE_SIZE);
    head.set(first.subarray(0, head.length));
  }

  commit(heap: Uint8Array, pages: readonly number[], durability: Durability = "strict"): number {
    if (this.#isLost) throw new StorageLostError(STORAGE_LOST);
    if (this.#isClosed) throw new Error("the heap is closed");
    if (this.#isReadOnly) throw new Error("the heap was opened for reading");
    const sorted = checkedPages(heap, pages, this.#size);
    if (sorted.length === 0) {
      if (durability === "strict" && (this.#isUnflushed || this.#unstored.size > 0)) {
        this.#durability = "strict";
      }
      return 0;
    }
    // All are copied before one counts: there may be no memory for the rest.
    const copies = sorted.map((page) => heap.slice(page * PAGE_SIZE, (page + 1) * PAGE_SIZE));
    sorted.forEach((page, index) => {
      this.#pages.set(page, copies[index]!);
      this.#unstored.add(page);
    });
    if (durability === "strict") this.#durability = "strict";
    this.#length = heap.length;
    return sorted.length;
  }

  async settled(): Promise<void> {
    const hasMore = () => this.#unstored.size > 0 || (this.#isUnflushed && this.#durability === "strict");
    while (this.#writing !== undefined || hasMore()) {
      this.#writing ??= this.#write().finally(() => { this.#writing = undefined; });
      await this.#writing;
    }
  }

  async check(): Promise<void> {
    if (this.#isLost) throw new StorageLostError(STORAGE_LOST);
  }

  async origin(): Promise<Uint8Array | undefined> {
    const store = this.#database.transaction(PAGES, "readonly").objectStore(PAGES);
    return await asked<Uint8Array | undefined>(store.get(ORIGIN));
  }

  async keepOrigin(bytes: Uint8Array): Promise<void> {
    const transaction = this.#database.transaction(PAGES, "readwrite", { durability: "strict" });
    try {
      await new Promise<void>((done, failed) => {
        transaction.objectStore(PAGES).put(bytes.slice(), ORIGIN);
        transaction.oncomplete = () => done();
        transaction.onabort = () => failed(transaction.error);
      });
    } catch (error) {
      if ((error as DOMException | null)?.name !== "QuotaExceededError") throw error;
      throw new QuotaError(NO_ROOM);
    }
  }

  checkpoint(): void {}

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const release = () => {
      this.#database.close();
      this.#lock.release();
    };
    this.settled().then(release, release);
  }

  async remove(): Promise<void> {
    this.#isClosed = true;
    try {
      // What it was about to store does not matter any more.
      await this.#writing?.catch(() => {});
      this.#database.close();
      await DatabaseStore.remove(this.#name);
    } finally {
      this.#lock.release();
    }
  }

  /** Stores what is not stored yet, in one transaction. */
  async #write(): Promise<void> {
    const pages = this.#unstored;
    const durability = this.#durability;
    [this.#unstored, this.#durability] = [new Set(), "relaxed"];
    if (durability === "relaxed") this.#isUnflushed = true;
    try {
      await new Promise<void>((done, failed) => {
        const transaction = this.#database.transaction(PAGES, "readwrite", { durability });
        const store = transaction.objectStore(PAGES);
        transaction.oncomplete = () => done();
        transaction.onabort = () => failed(transaction.error);
        try {
          pages.forEach((page) => store.put(this.#pages.get(page), page));
          store.put(this.#length, LENGTH);
        } catch (error) {
          failed(error);
          // What was put before would be stored without the rest.
          transaction.abort();
        }
      });
      if (durability === "strict") this.#isUnflushed = false;
    } catch (error) {
      pages.forEach((page) => this.#unstored.add(page));
      if (durability === "strict") this.#durability = durability;
      await this.check();
      if ((error as DOMException | null)?.name !== "QuotaExceededError") throw error;
      throw new QuotaError(NO_ROOM);
    }
  }
}

async function opened(name: string): Promise<IDBDatabase> {
  return await new Promise((done, failed) => {
    let request: IDBOpenDBRequest;
    try {
      request = indexedDB.open(name, 1);
    } catch (error) {
      failed(refused(error as DOMException));
      return;
    }
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      failed(new LockedError("another tab keeps the heap's database"));
    }, OPEN_MS_MAX);
    request.onupgradeneeded = () => request.result.createObjectStore(PAGES);
    request.onsuccess = () => {
      clearTimeout(timer);
      if (isLate) request.result.close();
      else done(request.result);
    };
    request.onerror = () => {
      clearTimeout(timer);
      failed(refused(request.error as DOMException));
    };
  });
}

/** Why there is no database, as an error of this package. */
function refused({ name, message }: DOMException): Error {
  switch (name) {
    case "QuotaExceededError": return new QuotaError(NO_ROOM);
    case "VersionError":
      return new UnsupportedError("the heap's database is of a newer version; update this package");
    default:
      return new UnsupportedError(`the browser gives this page no database (${message}); leave the \
private mode, or allow the site to store data`);
  }
}

function asked<Value>(request: IDBRequest<Value>): Promise<Value> {
  return new Promise((done, failed) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
}

async function contents(database: IDBDatabase): Promise<Contents> {
  const store = database.transaction(PAGES, "readonly").objectStore(PAGES);
  const numbers = IDBKeyRange.bound(0, Infinity);
  const [keys, values, length] = await Promise.all([
    asked(store.getAllKeys(numbers)), asked<Uint8Array[]>(store.getAll(numbers)),
    asked<number | undefined>(store.get(LENGTH))]);
  return {
    pages: new Map(keys.map((key, index) => [key as number, values[index]!])),
    length: length ?? 0,
  };
}
