/**
 * The stream of `holdfast heap export`, version 1, as `docs/format.md` draws it: a heap moves
 * between `holdfast` and the pages of an origin with all its pointers.
 *
 * Invariants: no byte of a stream is believed before its checksum, and nothing is stored before the
 * last one. The address that a heap has for native programs stays with it, in a file of its own.
 */
import { CorruptError, ExistsError, UnsupportedError } from "./errors.js";
import { ReadOnlyError } from "./heap-errors.js";
import { LIMIT_DEFAULT, LIMIT_MAX, WASM_PAGE_SIZE } from "./layout.js";
import { type FallbackOptions, openStore } from "./open-store.js";
import { type HeapStore, PAGE_SIZE } from "./store.js";
import { type Sum, summer } from "./xxh3.js";

const MAGIC = "HOLDFSTX";
const VERSION = 1;
const HEADER_SIZE = 256;
const HEADER_SUM_AT = 248;
const BLOCK_HEAD_SIZE = 24;
const BLOCK_SIZE_MAX = 1 << 20;
const NAME_SIZE_MAX = 128;
const LIMIT_MIN = 1 << 20;
/** Kinds of blocks. */
const PAGES = 1;
const END = 2;
/** Native addresses: a heap that was born in a page gets one of these, by chance. */
const ADDRESS_UNIT = 1n << 30n;
const WINDOW_START = 0x1000_0000_0000n;
const WINDOW_END = 0x5000_0000_0000n;

/** How a heap is imported. */
export interface ImportOptions extends FallbackOptions {
  /** Over an older state of the same heap, all or nothing; no other heap is replaced. */
  readonly replace?: boolean;
}

/**
 * The heap, which nobody has open, as a stream; one that is open `exportHeap` of `Applet` and of
 * `PersistentHeap` exports. One that was never imported gets an address at its first export, and
 * `limit`, which is a multiple of 64 KiB. Throws what `PageStore.open` throws, `NotFoundError` where
 * there is no heap, and `RangeError` for another limit or a heap that has nothing stored.
 */
export async function exportHeap(
  name: string, limit = LIMIT_DEFAULT, { fallback }: FallbackOptions = {},
): Promise<Blob> {
  if (!(limit > 0 && limit <= LIMIT_MAX) || limit % WASM_PAGE_SIZE !== 0) {
    throw new RangeError(`limit must be a multiple of ${WASM_PAGE_SIZE}, ${LIMIT_MAX} at most`);
  }
  const store = await openStore(name, { size: LIMIT_MAX, create: false }, fallback);
  try {
    return await streamOf(name, store, limit, false);
  } finally {
    store.close();
  }
}

/**
 * What was committed of a heap that the caller has open, as a stream. Call it again only when it has
 * ended: a heap without an address would get two.
 */
export async function streamOf(
  name: string, store: HeapStore, limit: number, isReadOnly: boolean,
): Promise<Blob> {
  const settled = store.settled();
  if (settled !== undefined) await settled;
  if (store.length === 0) throw new RangeError("nothing is stored of the heap; run its applet first");
  // Before what follows is waited for: it may be committed again or closed meanwhile.
  const heap = wholePages(store.readWhole());
  const backed = heap.length;
  const sum = await summer();
  let header = await kept(store, sum);
  if (header === undefined) {
    // Several tabs may read it, and each would give it another address.
    if (isReadOnly) {
      throw new ReadOnlyError(`the heap ${name} was never exported or imported, so it has no address yet, and \
it is open for reading only; export it once where it is open for writing, or closed`);
    }
    header = newHeader(name, limit);
    header.setBigUint64(HEADER_SUM_AT, sumOfHeader(sum, bytesOf(header)), true);
    await store.keepOrigin(bytesOf(header));
  }
  // A page may have let it grow beyond the limit that it had elsewhere.
  if (header.getBigUint64(40, true) < BigInt(backed)) {
    header.setBigUint64(40, BigInt(backed), true);
  }
  header.setBigUint64(48, BigInt(backed), true);
  header.setBigUint64(HEADER_SUM_AT, sumOfHeader(sum, bytesOf(header)), true);
  const parts: Uint8Array[] = [bytesOf(header)];
  for (const { from, end } of runs(heap)) {
    const pages = heap.subarray(from, end);
    parts.push(blockHead(sum, PAGES, BigInt(from), pages), pages);
  }
  parts.push(blockHead(sum, END, sum(heap), new Uint8Array()));
  return new Blob(parts as BlobPart[]);
}

/**
 * Stores the heap of a stream under a name that has nothing stored, or that has the same heap with
 * `replace`. Throws `CorruptError` where the stream is damaged or cut off, `UnsupportedError` for a
 * newer version or a heap that is too large for a page, `ExistsError`, and what `PageStore.open` and
 * `commit` throw; nothing is stored then.
 */
export async function importHeap(
  name: string, stream: Blob, { fallback, replace = false }: ImportOptions = {},
): Promise<void> {
  const sum = await summer();
  const bytes = new Uint8Array(await stream.arrayBuffer());
  const { header, heap } = parse(bytes, sum);
  const store = await openStore(name, { size: LIMIT_MAX }, fallback);
  const isNew = store.length === 0;
  try {
    if (isNew) await store.keepOrigin(bytesOf(header));
    else await checkReplaced(name, store, header, replace, sum);
    // What the heap had grown by is zero again.
    const whole = heap.length < store.length ? new Uint8Array(store.length) : heap;
    if (whole !== heap) whole.set(heap);
    const had = Math.ceil(store.length / PAGE_SIZE);
    store.commit(whole, Array.from({ length: whole.length / PAGE_SIZE }, (_, page) => page)
      .filter((page) => page === 0 || page < had || !isZero(whole, page)));
    await store.settled();
  } catch (error) {
    // By the lock that it has: a tab that waits for it may store a heap of its own.
    if (isNew) await store.remove().catch(() => {});
    else store.close();
    throw error;
  }
  store.close();
}

/** Throws an `ExistsError` where a stream may not replace what is stored. */
async function checkReplaced(
  name: string, store: HeapStore, header: DataView, mayReplace: boolean, sum: Sum,
): Promise<void> {
  if (!mayReplace) {
    throw new ExistsError(`there is a heap ${name}; choose another name, or replace it`);
  }
  const known = await kept(store, sum);
  const address = (of: DataView) => of.getBigUint64(32, true);
  if (known === undefined || address(known) !== address(header)) {
    throw new ExistsError(`the heap ${name} is another one than that of the stream; remove it first`);
  }
}

/** With zeroes up to a page of WebAssembly: streams have no other heaps, and a store takes any length. */
function wholePages(heap: Uint8Array): Uint8Array {
  const length = Math.ceil(heap.length / WASM_PAGE_SIZE) * WASM_PAGE_SIZE;
  if (length === heap.length) return heap;
  const padded = new Uint8Array(length);
  padded.set(heap);
  return padded;
}

function bytesOf(view: DataView): Uint8Array {
  return new Uint8Array(view.buffer as ArrayBuffer, view.byteOffset, view.byteLength);
}

function newHeader(name: string, limit: number): DataView {
  const header = new DataView(new ArrayBuffer(HEADER_SIZE));
  const bytes = bytesOf(header);
  bytes.set(new TextEncoder().encode(MAGIC));
  header.setUint32(8, VERSION, true);
  header.setUint32(12, HEADER_SIZE, true);
  crypto.getRandomValues(bytes.subarray(16, 32));
  const [chance] = crypto.getRandomValues(new Uint32Array(1));
  // Room for the largest heap of a page below the end.
  const units = (WINDOW_END - WINDOW_START) / ADDRESS_UNIT - 2n;
  header.setBigUint64(32, WINDOW_START + BigInt(chance!) % units * ADDRESS_UNIT, true);
  header.setBigUint64(40, BigInt(Math.max(LIMIT_MIN, limit)), true);
  header.setBigUint64(56, BigInt(Math.floor(Date.now() / 1000)), true);
  // Whole characters only.
  const { written } = new TextEncoder().encodeInto(name, bytes.subarray(66, 66 + NAME_SIZE_MAX));
  header.setUint16(64, written, true);
  return header;
}

function blockHead(sum: Sum, kind: number, value: bigint, payload: Uint8Array): Uint8Array {
  const head = new DataView(new ArrayBuffer(BLOCK_HEAD_SIZE));
  head.setUint32(0, kind, true);
  head.setUint32(4, payload.length, true);
  head.setBigUint64(8, value, true);
  head.setBigUint64(16, sum(bytesOf(head).subarray(0, 16), payload), true);
  return bytesOf(head);
}

function isZero(heap: Uint8Array, page: number): boolean {
  const words = new Int32Array(heap.buffer, heap.byteOffset + page * PAGE_SIZE, PAGE_SIZE / 4);
  return words.every((word) => word === 0);
}

/** Neighbouring pages that are not all zero, at most so many as a block has. */
function* runs(heap: Uint8Array): Generator<{ from: number; end: number }> {
  const pages = heap.length / PAGE_SIZE;
  for (let page = 0; page < pages; page++) {
    if (isZero(heap, page)) continue;
    const first = page;
    while (page + 1 < pages && (page + 2 - first) * PAGE_SIZE <= BLOCK_SIZE_MAX
        && !isZero(heap, page + 1)) page++;
    yield { from: first * PAGE_SIZE, end: (page + 1) * PAGE_SIZE };
  }
}

/** Checks a stream as a whole. */
function parse(bytes: Uint8Array, sum: Sum): { header: DataView; heap: Uint8Array } {
  const damaged = (what: string) =>
    new CorruptError(`the stream is damaged (${what}); export the heap again`);
  if (!beginsAsStream(bytes)) throw damaged("it does not begin as one");
  if (bytes.length < HEADER_SIZE) throw damaged("it ends in its header");
  const header = new DataView(bytes.slice(0, HEADER_SIZE).buffer);
  if (header.getUint32(8, true) > VERSION) {
    throw new UnsupportedError("the stream is of a newer version; update this package");
  }
  if (header.getBigUint64(HEADER_SUM_AT, true) !== sumOfHeader(sum, bytes)) throw damaged("its header");
  const [limit, backed] = [header.getBigUint64(40, true), header.getBigUint64(48, true)];
  if (backed === 0n || backed > limit || backed % BigInt(WASM_PAGE_SIZE) !== 0n
      || header.getUint32(12, true) !== HEADER_SIZE) throw damaged("impossible sizes");
  if (backed > BigInt(LIMIT_MAX)) {
    throw new UnsupportedError(`the heap has ${backed} bytes; a page takes ${LIMIT_MAX} at most`);
  }
  const heap = new Uint8Array(Number(backed));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = HEADER_SIZE, next = 0; ; ) {
    if (at + BLOCK_HEAD_SIZE > bytes.length) throw damaged("it is cut off");
    const [kind, length] = [view.getUint32(at, true), view.getUint32(at + 4, true)];
    const [value, found] = [view.getBigUint64(at + 8, true), view.getBigUint64(at + 16, true)];
    const from = at + BLOCK_HEAD_SIZE;
    if (length > bytes.length - from) throw damaged("it is cut off");
    const payload = bytes.subarray(from, from + length);
    if (sum(bytes.subarray(at, at + 16), payload) !== found) throw damaged("a block");
    at = from + length;
    if (kind === END && length === 0) {
      if (at !== bytes.length) throw damaged("bytes follow its end");
      if (sum(heap) !== value) throw damaged("its sum");
      return { header, heap };
    }
    if (kind !== PAGES || length === 0 || length % PAGE_SIZE !== 0 || length > BLOCK_SIZE_MAX
        || value % BigInt(PAGE_SIZE) !== 0n || value < BigInt(next)
        || value + BigInt(length) > backed) throw damaged("a block is out of place");
    heap.set(payload, Number(value));
    next = Number(value) + length;
  }
}

function sumOfHeader(sum: Sum, header: Uint8Array): bigint {
  return sum(header.subarray(0, HEADER_SUM_AT));
}

/**
 * The header of the stream that the heap came from or went to first, if there was one. Throws a
 * `CorruptError` for a damaged one: a stream that begins with it is of no use elsewhere.
 */
async function kept(store: HeapStore, sum: Sum): Promise<DataView | undefined> {
  const bytes = await store.origin();
  // A power cut may leave nothing of what was about to be kept.
  if (bytes === undefined || bytes.every((byte) => byte === 0)) return undefined;
  const isWhole = bytes.length === HEADER_SIZE && beginsAsStream(bytes);
  const header = new DataView(bytes.slice().buffer);
  // Heaps that were born in a page kept theirs without a sum.
  const found = isWhole ? header.getBigUint64(HEADER_SUM_AT, true) : undefined;
  if (found === undefined || (found !== 0n && found !== sumOfHeader(sum, bytes))) {
    throw new CorruptError("the header that other places know the heap by is damaged; remove the heap and \
import an export");
  }
  return header;
}

function beginsAsStream(bytes: Uint8Array): boolean {
  return new TextDecoder().decode(bytes.subarray(0, MAGIC.length)) === MAGIC;
}
