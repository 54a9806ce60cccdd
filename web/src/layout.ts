/** Where a heap lies in the linear memory of an applet: as in `holdfast run`. */

/** Where a new one begins, and no other one below. */
export const HEAP_BASE = 2 ** 31;
/** Where all of them end. */
export const HEAPS_END = HEAP_BASE + 7 * 2 ** 28;
/** The largest limit of a heap, in bytes: what lies above it stays for volatile memory. */
export const LIMIT_MAX = HEAPS_END - HEAP_BASE;
/** The limit of a heap where none is chosen. */
export const LIMIT_DEFAULT = 256 * 2 ** 20;
/** Bytes of a page of WebAssembly, in which memory and heaps grow. */
export const WASM_PAGE_SIZE = 65_536;

const MAGIC = new TextEncoder().encode("HFSTHEAP");
/** Bytes of a pointer in WebAssembly. */
const POINTER_SIZE = 4;

/**
 * Where a heap that begins with these bytes must begin, because its pointers say so; `undefined`
 * for bytes that are no heap, and for one without pointers of WebAssembly. The bytes are untrusted.
 */
export function placeOf(head: Uint8Array): number | undefined {
  if (head.length < 88 || !MAGIC.every((byte, i) => head[64 + i] === byte)) return undefined;
  const view = new DataView(head.buffer, head.byteOffset, head.length);
  if (view.getUint32(76, true) !== POINTER_SIZE) return undefined;
  return Number(view.getBigUint64(80, true));
}

/** The limit in the header of an exported heap (`docs/format.md`), in bytes. */
export function limitOf(header: Uint8Array): number {
  if (header.length < 48) return 0;
  return Number(new DataView(header.buffer, header.byteOffset).getBigUint64(40, true));
}
