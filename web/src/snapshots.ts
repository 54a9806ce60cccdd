/**
 * Snapshots of heaps that are closed: whole copies with names, beside the heap. Heaps in IndexedDB have
 * none.
 *
 * Invariants: a snapshot has its sum in its head, which is written last, so one that was cut off is
 * none; a heap goes back to a snapshot by one commit, all or nothing.
 */
import { DatabaseStore } from "./database-store.js";
import { CorruptError, ExistsError, FilesRefusedError, NoSnapshotError, QuotaError, StorageFailedError,
  UnsupportedError,
} from "./errors.js";
import { NotFoundError } from "./heap-errors.js";
import { LIMIT_MAX } from "./layout.js";
import { openFile } from "./lock.js";
import { originFiles, PageStore } from "./page-store.js";
import { NO_ROOM, PAGE_SIZE, SNAPSHOT_PREFIX } from "./store.js";
import { summer } from "./xxh3.js";

/** Head: magic, length of the heap, Unix time in milliseconds, sum of head and heap; u64 each. */
const MAGIC = 0x3153_5748n; // "HWS1"
const HEAD_BYTES = 32;
const SUM_AT = 24;

/** A snapshot of a heap. */
export interface Snapshot {
  readonly name: string;
  readonly bytes: number;
  readonly taken: Date;
}

/**
 * Takes a snapshot of what was committed. Throws `ExistsError` for a name that is taken, `RangeError`
 * for one that is none or a heap that has nothing stored, `UnsupportedError` for a heap that is in
 * IndexedDB, as all of these functions do, `StorageFailedError` where the disk failed, and what
 * `PageStore.open` throws.
 */
export async function takeSnapshot(heap: string, name: string): Promise<Snapshot> {
  if (!/^[\w.-]{1,64}$/.test(name)) {
    throw new RangeError("a snapshot has a name of 1 to 64 letters, digits, dots, hyphens and underscores");
  }
  return await withHeap(heap, async (store, folder) => {
    if (store.length === 0) throw new RangeError("nothing is stored of the heap; run its applet first");
    if ((await found(folder)).some((other) => other.name === name)) {
      throw new ExistsError(`there is a snapshot ${name}; remove it, or choose another name`);
    }
    const taken = new Date();
    const heap = store.readWhole();
    const bytes = new Uint8Array(PAGE_SIZE + heap.length);
    bytes.set(heap, PAGE_SIZE);
    const head = new DataView(bytes.buffer);
    [MAGIC, BigInt(store.length), BigInt(taken.getTime())]
      .forEach((value, i) => head.setBigUint64(i * 8, value, true));
    head.setBigUint64(SUM_AT, (await summer())(bytes), true);
    try {
      await write(folder, name, bytes);
    } catch (error) {
      await folder.removeEntry(SNAPSHOT_PREFIX + name).catch(() => {});
      throw error;
    }
    return { name, bytes: store.length, taken };
  });
}

/** The snapshots of a heap, the oldest first. */
export async function snapshots(heap: string): Promise<Snapshot[]> {
  return await withHeap(heap, async (_, folder) => await found(folder));
}

/**
 * Has a heap be again what it was when the snapshot was taken, all or nothing. Throws
 * `NoSnapshotError`, `CorruptError` for a damaged snapshot, and what `commit` throws; the heap stays
 * as it is then.
 */
export async function rollBack(heap: string, name: string): Promise<void> {
  await withHeap(heap, async (store, folder) => {
    if (!(await found(folder)).some((other) => other.name === name)) {
      throw new NoSnapshotError(`the heap ${heap} has no snapshot ${name}`);
    }
    const bytes = await readWhole(folder, SNAPSHOT_PREFIX + name);
    const then = await checked(name, bytes);
    const now = new Uint8Array(store.length);
    store.read(now);
    // What the heap grew by is zero again, as in a heap that never grew.
    const back = then.length < now.length ? new Uint8Array(now.length) : then;
    if (back !== then) back.set(then);
    const pages = Array.from({ length: back.length / PAGE_SIZE }, (_, page) => page);
    store.commit(back, pages.filter((page) => differs(back, now, page)));
  });
}

/** Removes a snapshot, or throws a `NoSnapshotError`. */
export async function removeSnapshot(heap: string, name: string): Promise<void> {
  await withHeap(heap, async (_, folder) => {
    if (!(await found(folder)).some((other) => other.name === name)) {
      throw new NoSnapshotError(`the heap ${heap} has no snapshot ${name}`);
    }
    await folder.removeEntry(SNAPSHOT_PREFIX + name);
  });
}

/** Works with a heap that nobody else has meanwhile, and the folder of its files. */
async function withHeap<Result>(
  name: string, work: (store: PageStore, folder: FileSystemDirectoryHandle) => Promise<Result>,
): Promise<Result> {
  const store = await PageStore.open(name, { size: LIMIT_MAX, create: false })
    .catch(async (error) => { throw await whyNotOpened(name, error); });
  try {
    return await work(store, await (await originFiles()).getDirectoryHandle(name));
  } finally {
    store.close();
  }
}

/** What is thrown for a heap that was not opened: of one in IndexedDB that says that it has no files. */
async function whyNotOpened(name: string, error: unknown): Promise<unknown> {
  const hasNoFiles = error instanceof FilesRefusedError || error instanceof NotFoundError;
  if (!hasNoFiles || !(await DatabaseStore.names().catch((): string[] => [])).includes(name)) return error;
  return new UnsupportedError(`the heap ${name} is in IndexedDB, where heaps have no snapshots; keep an export \
of it instead (exportHeap), and take it back by importHeap with replace, both with fallback: "indexeddb"`,
  { cause: error });
}

/** All but the head, then the head: one that was cut off has bytes, but no head. */
async function write(
  folder: FileSystemDirectoryHandle, name: string, bytes: Uint8Array,
): Promise<void> {
  let file: FileSystemSyncAccessHandle | undefined;
  try {
    file = await openFile(folder, SNAPSHOT_PREFIX + name, "readwrite");
    file.truncate(0);
    for (const [from, end] of [[PAGE_SIZE, bytes.length], [0, PAGE_SIZE]] as const) {
      const written = file.write(bytes.subarray(from, end), { at: from });
      if (written !== end - from) throw new DOMException("", "QuotaExceededError");
      flush(file);
    }
  } catch (error) {
    if ((error as DOMException).name !== "QuotaExceededError") throw error;
    throw new QuotaError(NO_ROOM);
  } finally {
    file?.close();
  }
}

function flush(file: FileSystemSyncAccessHandle): void {
  try {
    file.flush();
  } catch (cause) {
    if ((cause as DOMException).name === "QuotaExceededError") throw cause;
    throw new StorageFailedError("the browser could not bring the snapshot to the disk, so there is none; the \
heap is as it was", { cause });
  }
}

async function found(folder: FileSystemDirectoryHandle): Promise<Snapshot[]> {
  const all: Snapshot[] = [];
  for await (const entry of folder.keys()) {
    if (!entry.startsWith(SNAPSHOT_PREFIX)) continue;
    const file = await openFile(folder, entry, "read-only");
    const head = new DataView(new ArrayBuffer(HEAD_BYTES));
    const read = file.read(new Uint8Array(head.buffer), { at: 0 });
    file.close();
    if (read < HEAD_BYTES || head.getBigUint64(0, true) !== MAGIC) continue;
    all.push({
      name: entry.slice(SNAPSHOT_PREFIX.length),
      bytes: Number(head.getBigUint64(8, true)),
      taken: new Date(Number(head.getBigUint64(16, true))),
    });
  }
  return all.sort((one, other) => Number(one.taken) - Number(other.taken));
}

async function readWhole(folder: FileSystemDirectoryHandle, name: string): Promise<Uint8Array> {
  const file = await openFile(folder, name, "read-only");
  try {
    const bytes = new Uint8Array(file.getSize());
    return bytes.subarray(0, file.read(bytes, { at: 0 }));
  } finally {
    file.close();
  }
}

/** The heap of a snapshot that matches its sum. */
async function checked(name: string, bytes: Uint8Array): Promise<Uint8Array> {
  const damaged = () =>
    new CorruptError(`the snapshot ${name} is damaged; remove it, and go back to another one`);
  if (bytes.length < PAGE_SIZE) throw damaged();
  const head = new DataView(bytes.buffer, 0, PAGE_SIZE);
  const sum = head.getBigUint64(SUM_AT, true);
  head.setBigUint64(SUM_AT, 0n, true);
  const heap = bytes.subarray(PAGE_SIZE);
  if (heap.length !== Number(head.getBigUint64(8, true)) || (await summer())(bytes) !== sum) {
    throw damaged();
  }
  return heap;
}

function differs(one: Uint8Array, other: Uint8Array, page: number): boolean {
  if (other.length < (page + 1) * PAGE_SIZE) return true;
  const words = (bytes: Uint8Array) =>
    new Int32Array(bytes.buffer, bytes.byteOffset + page * PAGE_SIZE, PAGE_SIZE / 4);
  const others = words(other);
  return words(one).some((word, i) => word !== others[i]);
}
