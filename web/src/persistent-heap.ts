/**
 * A portable heap, opened by JavaScript itself: the same one that applets, native programs and
 * Python open. Values of portable types, maps, arrays and documents lie in it, are found by the
 * names of roots, and are there after a reload as of the last commit.
 *
 * Invariants: what is stored changes only by a commit, all or nothing; none is made in an open
 * transaction, nor of a heap whose module trapped. The heap's bytes are not believed: damage is a
 * `CorruptError`.
 *
 * Only for a dedicated worker, as the store is.
 */
import { ExistsError } from "./errors.js";
import { CORE, HeapCore } from "./heap-core.js";
import { NotFoundError, StaleReferenceError, TransactionError } from "./heap-errors.js";
import { HeapModule, ownModule, putName } from "./heap-module.js";
import { type HeapCommit, Heaps } from "./heaps.js";
import { LIMIT_DEFAULT } from "./layout.js";
import type { Durability, Phase } from "./store.js";
import {
  freeValue, objectPlaceOf, placeOf, roomOf, StructValue, type StructOf, type StructType,
} from "./struct.js";

/** How a heap is opened. */
export interface PersistentHeapOptions {
  /**
   * Bytes that it may have at most: a multiple of 64 KiB, up to `LIMIT_MAX`; 256 MiB unless said.
   */
  readonly size?: number;
  /** See `access` of `OpenOptions`. */
  readonly access?: "read-write" | "read-only";
  /** What `commit` promises: `strict`, unless said, survives a power cut. */
  readonly durability?: Durability;
  /** Waits until the heap is free, rather than throw a `LockedError`; the signal ends the wait. */
  readonly wait?: AbortSignal | boolean;
  /** The compiled `heap.wasm`, where that is not beside the package's files. */
  readonly module?: WebAssembly.Module;
  /** As for applets: IndexedDB where the browser refuses files, with the promise of `weaker`. */
  readonly fallback?: "indexeddb";
  /** Called behind each commit that stored something. */
  readonly onCommit?: (commit: HeapCommit) => void;
  /** Called after each step of a commit, for tests of what a crash leaves. */
  readonly onPhase?: (phase: Phase) => void;
}

/** A root as it is stored. */
export interface RootInfo {
  /** Where its object lies, from the heap's first byte. */
  readonly offset: number;
  /** Bytes of its object. */
  readonly size: number;
  /** The number of its type, if it has one, and the version of that. */
  readonly layout: bigint | undefined;
  readonly version: number;
}

const CHECKPOINT_AFTER_MS = 200;

export class PersistentHeap {
  readonly [CORE]: HeapCore;
  readonly #heaps: Heaps;
  #checkpoint: ReturnType<typeof setTimeout> | undefined;
  #committedAt = 0;
  #closing: Promise<void> | undefined;

  private constructor(core: HeapCore, heaps: Heaps) {
    this[CORE] = core;
    this.#heaps = heaps;
  }

  /**
   * Opens the heap `name` of this origin, or makes it. Throws what `PageStore.open` throws;
   * `LayoutMismatchError` for a heap with pointers, `CorruptError` for a damaged one,
   * `NotFoundError` for one that was never written and is only to be read; `UnsupportedError`
   * where the browser gives no memory for `size`.
   */
  static async open(name: string, options: PersistentHeapOptions = {}): Promise<PersistentHeap> {
    const { durability = "strict", module: given, access, size: limit, ...rest } = options;
    // Fetched and compiled while the heap is opened.
    const asked = given ?? ownModule();
    const heaps = await Heaps.open({ heap: { heap: name, access, limit }, ...rest }, durability);
    try {
      heaps.place();
      const module = await HeapModule.attach(heaps, await asked);
      return new PersistentHeap(new HeapCore(name, module, heaps.all[0]!), heaps);
    } catch (error) {
      heaps.close();
      throw error;
    }
  }

  /** Its name in this origin. */
  get name(): string {
    return this[CORE].name;
  }

  get isReadOnly(): boolean {
    return this[CORE].isReadOnly;
  }

  /** Bytes that it has now. */
  get size(): number {
    return this[CORE].backed;
  }

  /** The names of its roots, sorted. */
  names(): string[] {
    return names(this[CORE].module, "root_names");
  }

  /**
   * What is stored of a root, or the root as a value of a type; `undefined` where there is none.
   */
  root(name: string): RootInfo | undefined;
  root<F extends Record<string, any>>(name: string, type: StructType<F>): StructOf<F> | undefined;
  root(name: string, type?: StructType<any>): unknown {
    if (type !== undefined) return type.open(this, name);
    const core = this[CORE];
    core.check();
    const { module } = core;
    if (module.call("root_find", putName(module, name)) === 0) return undefined;
    const [offset, size, typed, low, high, version] =
      [0, 1, 2, 3, 4, 5].map((index) => module.result(index)) as
        [number, number, number, number, number, number];
    const layout = typed === 1 ? BigInt(high) << 32n | BigInt(low) : undefined;
    return { offset, size, layout, version } satisfies RootInfo;
  }

  /**
   * Gives an object a name, by which it is found again. Throws an `ExistsError` where another
   * object has the name, or the object has another name; a `RangeError` for a part of another value.
   */
  setRoot(name: string, value: StructValue): void {
    const core = this[CORE];
    core.checkWritable();
    const { core: own, type } = roomOf(requireValue(value));
    if (own !== core) throw new RangeError("a root is an object of its own heap; make one there");
    const at = objectPlaceOf(value);
    const known = this.root(name);
    if (known?.offset === at) return;
    if (known !== undefined) {
      throw new ExistsError(`the heap has a root ${name} already; remove it first`);
    }
    core.module.call("root_set", putName(core.module, name), at, type.size, type.shape(3));
  }

  /** Removes a root and frees its object, but not what that refers to; whether it was there. */
  removeRoot(name: string): boolean {
    const core = this[CORE];
    core.checkWritable();
    try {
      core.module.call("root_remove", putName(core.module, name));
    } catch (error) {
      if (error instanceof NotFoundError) return false;
      throw error;
    }
    core.epoch += 1;
    return true;
  }

  /** Allocates an object of zeroes, aligned to 16; its offset. Throws a `HeapFullError`. */
  allocate(bytes: number): number {
    const core = this[CORE];
    core.checkWritable();
    if (!(Number.isInteger(bytes) && bytes > 0 && bytes <= 0xffff_ffff)) {
      throw new RangeError(`an object has at least one byte, and not ${bytes}`);
    }
    core.module.call("object_allocate", bytes);
    return core.module.result(0);
  }

  /** Frees an object without a name; in a transaction, when that commits. */
  free(object: StructValue | number): void {
    if (object instanceof StructValue) return freeValue(object);
    const core = this[CORE];
    core.checkWritable();
    // WebAssembly would take it for another one, of 32 bits.
    if (object >>> 0 !== object) throw new StaleReferenceError(`there is no object at ${object}`);
    core.module.call("object_free", object);
    core.epoch += 1;
  }

  /**
   * The bytes of an object, in place: a view that ends when the memory grows, as every call that
   * stores may have it do. In a transaction, take it there: what it had is logged then.
   */
  bytes(object: StructValue | number, length?: number): Uint8Array {
    const core = this[CORE];
    core.check();
    const at = object instanceof StructValue ? placeOf(object) : object;
    const has = object instanceof StructValue ? roomOf(object).type.size : core.objectBytes(at);
    const wanted = length ?? has;
    if (!(Number.isInteger(wanted) && wanted >= 0 && wanted <= has)) {
      throw new RangeError(`the object has ${has} bytes, and not ${wanted}`);
    }
    core.checkRange(at, wanted);
    if (core.depth > 0 && wanted > 0) core.touch(at, wanted);
    return core.slice(at, wanted);
  }

  /**
   * Runs `work`: all that it does with the heap counts when it returns, and none of it when it
   * throws. A transaction in another one counts with that. `work` is not asynchronous.
   */
  transaction<R>(work: () => R): R {
    const core = this[CORE];
    core.checkWritable();
    const { module } = core;
    if (core.depth === 0) {
      module.isDoomed = false;
      core.replaced.clear();
    }
    module.call("tx_begin");
    core.depth += 1;
    let result: R;
    try {
      result = work();
      if (typeof (result as { then?: unknown } | undefined)?.then === "function") {
        throw new TypeError("a transaction is not asynchronous; await before or after it");
      }
      if (module.isDoomed) {
        throw new TransactionError("the heap had no room for a part of the transaction, which was \
rolled back");
      }
    } catch (error) {
      this.#end("tx_abort");
      throw error;
    }
    this.#end("tx_commit");
    return result;
  }

  #end(how: "tx_commit" | "tx_abort"): void {
    const core = this[CORE];
    core.depth -= 1;
    if (core.depth === 0) core.epoch += 1;
    // With a module that trapped there is nothing to end: no commit is made of its heap.
    if (core.module.ended !== undefined) return;
    let hasCommitted = false;
    try {
      core.module.call(how);
      hasCommitted = how === "tx_commit";
    } finally {
      if (core.depth === 0 && !hasCommitted) {
        core.mapChanges += 1;
        for (const name of core.replaced) {
          core.editions.set(name, (core.editions.get(name) ?? 0) + 1);
        }
      }
    }
  }

  /**
   * Makes everything so far survive; how many pages were written. Throws a `QuotaError`, after
   * which the last commit stands and the next one tries again; and a `StorageFailedError`, after which
   * the heap is to be closed and opened again.
   */
  commit(durability?: Durability): number {
    const core = this[CORE];
    core.checkWritable();
    if (core.depth > 0) {
      throw new TransactionError("a commit is made behind the transaction, not in it");
    }
    const pages = this.#heaps.commit(durability);
    this.#committedAt = performance.now();
    this.#scheduleCheckpoint();
    return pages;
  }

  /**
   * The last commit as a stream, as `exportHeap` has it of a heap that nobody has open. Rejects with a
   * `RangeError` where nothing is stored, and with a `ReadOnlyError` for a heap that is open for reading and was
   * never exported or imported.
   */
  async exportHeap(): Promise<Blob> {
    const core = this[CORE];
    core.check();
    return await core.heap.export();
  }

  /** What it promises less than a heap in files: see `fallback`. */
  get weaker(): readonly string[] {
    return this.#heaps.weaker;
  }

  /**
   * Fulfilled when all commits so far are stored, which in files they are when they return. Rejects
   * with a `StorageLostError` if the browser cleared the storage of the site, or with the error of a
   * commit in IndexedDB, whose pages go with the next one.
   */
  async settled(): Promise<void> {
    await this.#heaps.settled();
    await this.#heaps.check();
  }

  /**
   * Commits, and releases the heap, behind the exports under way; with `commit: false` what was not
   * committed is lost. Values of it are of no use any more: each use is a `StaleReferenceError`. Closing
   * again only waits until the heap is released.
   */
  close({ commit = true }: { readonly commit?: boolean } = {}): Promise<void> {
    const core = this[CORE];
    if (core.depth > 0) {
      throw new TransactionError("the heap is closed behind the transaction, not in it");
    }
    // The first caller of `close` gets the error.
    if (this.#closing !== undefined) return this.#closing.catch(() => {});
    this.#closing = this.#close(commit);
    return this.#closing;
  }

  async #close(hasCommit: boolean): Promise<void> {
    const core = this[CORE];
    clearTimeout(this.#checkpoint);
    try {
      const mayCommit = !core.isReadOnly && core.module.ended === undefined;
      if (hasCommit && mayCommit) this.#heaps.commit();
      core.close();
      await this.settled();
    } finally {
      core.close();
      // They may give the heap its address, which then may be another tab's.
      await core.heap.exported();
      this.#heaps.close();
    }
  }

  /** Looks that commits are stored and the storage is there, and brings them home while nothing is done. */
  #scheduleCheckpoint(): void {
    this.#checkpoint ??= setTimeout(async () => {
      this.#checkpoint = undefined;
      try {
        await this.settled();
        if (this[CORE].isClosed) return;
        // Commits may follow one another without a pause.
        if (performance.now() - this.#committedAt < CHECKPOINT_AFTER_MS) return this.#scheduleCheckpoint();
        this[CORE].heap.checkpoint();
      } catch {
        // The commits stand in the journal; what failed fails again with the next commit.
      }
    }, CHECKPOINT_AFTER_MS);
  }
}

/** The names that a call gives, each with a byte 0 behind it. */
export function names(module: HeapModule, call: "root_names" | "document_names"): string[] {
  module.call(call);
  return module.text(module.result(0), module.result(1)).split("\0").slice(0, -1);
}

function requireValue(value: unknown): StructValue {
  if (value instanceof StructValue) return value;
  throw new TypeError("a root is a value of a type that struct() made");
}
