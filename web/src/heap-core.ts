/**
 * An open heap as views, maps, arrays and documents see it: its bytes in linear memory, what is
 * open in it, and whether what they hold is still there.
 *
 * Invariants: no view of linear memory outlives its growth: a detached one is made anew. Whoever is
 * about to store says so, and in a transaction what was there is logged first.
 */
import { CorruptError } from "./errors.js";
import { ReadOnlyError, StaleReferenceError } from "./heap-errors.js";
import type { HeapModule } from "./heap-module.js";
import type { AppletHeap } from "./heaps.js";

/** The property of a `PersistentHeap` with its core, which is not of the package's interface. */
export const CORE: unique symbol = Symbol("core");

/** Something that lies in the heap, perhaps as a part of something else. */
export interface Anchor {
  /** Where it lies now. Throws a `StaleReferenceError` where it is no more. */
  place(): number;
}

/** The key that an iterator of a map gave last. */
export interface Cursor {
  /** Where the map lies. */
  readonly map: number;
  key: unknown;
  /** Whether that key was removed since, or may have been. */
  isGone: boolean;
  /** Whether it is told of removals. */
  isKept: boolean;
}

/** So many cursors are told of removals at most: an iterator may be given up without an end. */
const CURSORS_MAX = 32;

export class HeapCore {
  readonly isReadOnly: boolean;
  /** Changes when an object may have gone: who notes another number looks again. */
  epoch = 1;
  /** Levels of the open transaction. */
  depth = 0;
  /** Counts changes of maps, for their iterators. */
  mapChanges = 0;
  /** How often each document was replaced, and which ones in the open transaction. */
  readonly editions = new Map<string, number>();
  readonly replaced = new Set<string>();
  isClosed = false;
  /** Those that are told of removals, the oldest first. */
  readonly #cursors: Cursor[] = [];
  #bytes = new Uint8Array();
  #view = new DataView(new ArrayBuffer(0));

  constructor(readonly name: string, readonly module: HeapModule, readonly heap: AppletHeap) {
    this.isReadOnly = heap.isReadOnly;
  }

  /** Where the heap begins in linear memory. */
  get base(): number {
    return this.heap.base;
  }

  /** Bytes of it that may be used. */
  get backed(): number {
    return this.heap.backed;
  }

  /** All bytes from its first on, up to its limit. */
  get bytes(): Uint8Array {
    if (this.#bytes.length === 0) this.#look();
    return this.#bytes;
  }

  /** The same bytes. */
  get view(): DataView {
    if (this.#bytes.length === 0) this.#look();
    return this.#view;
  }

  #look(): void {
    this.check();
    const { buffer } = this.module.exports.memory;
    this.#bytes = new Uint8Array(buffer, this.heap.base, this.heap.limit);
    this.#view = new DataView(buffer, this.heap.base, this.heap.limit);
  }

  /** Throws where nothing can be asked of the heap any more. */
  check(): void {
    if (this.module.ended !== undefined) throw this.module.ended;
  }

  /** Throws where nothing can be stored. */
  checkWritable(): void {
    this.check();
    if (this.isReadOnly) {
      throw new ReadOnlyError(`the heap ${this.name} was opened for reading`);
    }
  }

  /** Says that a range is about to be stored to. */
  touch(at: number, bytes: number): void {
    if (this.isReadOnly || this.isClosed) this.checkWritable();
    if (this.depth > 0) this.module.call("tx_log", at, bytes);
  }

  /** Has a cursor told of removals. Where there are too many, the oldest one takes its key for removed. */
  keep(cursor: Cursor): void {
    if (this.#cursors.length === CURSORS_MAX) this.tellGone(this.#cursors[0]!);
    this.#cursors.push(cursor);
    cursor.isKept = true;
  }

  /** Tells a cursor that its key was removed, and nothing more until it is kept again. */
  tellGone(cursor: Cursor): void {
    cursor.isGone = true;
    this.drop(cursor);
  }

  /** Forgets a cursor, if it is kept. */
  drop(cursor: Cursor): void {
    const index = this.#cursors.indexOf(cursor);
    if (index >= 0) this.#cursors.splice(index, 1);
    cursor.isKept = false;
  }

  /** The cursors of the map at a place. */
  cursorsOf(map: number): Cursor[] {
    return this.#cursors.filter((cursor) => cursor.map === map);
  }

  /** Bytes that an object may use. Throws a `StaleReferenceError` where none begins. */
  objectBytes(at: number): number {
    this.check();
    let bytes = 0;
    try {
      // WebAssembly would take another number for one of 32 bits.
      if (at >>> 0 === at) bytes = this.module.exports.object_bytes(at) >>> 0;
    } catch (error) {
      throw this.module.trapped(error);
    }
    if (bytes === 0) {
      throw new StaleReferenceError(`there is no object at ${at}: it was freed, or never made`);
    }
    return bytes;
  }

  /** Throws a `CorruptError` for a range that does not lie in the heap. */
  checkRange(at: number, bytes: number): void {
    if (!(at >= 0 && at + bytes <= this.backed)) {
      throw new CorruptError(`${bytes} bytes at ${at} do not lie in the heap; restore it from an \
export`);
    }
  }

  /** A live view of bytes that were checked. */
  slice(at: number, bytes: number): Uint8Array {
    return new Uint8Array(this.module.exports.memory.buffer, this.base + at, bytes);
  }

  /** Closes it for all that refer to it. */
  close(): void {
    this.isClosed = true;
    this.module.ended ??=
      new StaleReferenceError(`the heap ${this.name} is closed; open it again`);
    this.epoch += 1;
    this.#bytes = new Uint8Array();
    this.#view = new DataView(new ArrayBuffer(0));
  }
}

/** An object of its own. */
export class ObjectAnchor implements Anchor {
  constructor(readonly core: HeapCore, readonly at: number, readonly bytes: number) {}

  place(): number {
    const { core, at, bytes } = this;
    if (core.objectBytes(at) < bytes) {
      throw new StaleReferenceError(`the object at ${at} has fewer than ${bytes} bytes: another \
one is there now, or it is of another type`);
    }
    core.checkRange(at, bytes);
    return at;
  }
}
