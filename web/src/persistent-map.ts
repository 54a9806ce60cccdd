/**
 * A map that lies in a heap, as `Map` in the order in which keys came: from text or bytes to text,
 * bytes, numbers, JSON or values of a portable type. `docs/format.md` has its layout.
 *
 * Invariants: what the heap has is believed nowhere: lengths and places are checked, by the module
 * or here. What is given back is a copy, except for values of portable types, which lie in the
 * heap.
 */
import { CorruptError, LayoutMismatchError } from "./errors.js";
import { CORE, type Cursor, type HeapCore } from "./heap-core.js";
import { NotFoundError, ReadOnlyError, StaleReferenceError } from "./heap-errors.js";
import { putName, textOf } from "./heap-module.js";
import { DEPTH, follow, shown, unitsOf, type Target } from "./kinds.js";
import type { PersistentHeap } from "./persistent-heap.js";
import type { StructOf, StructType } from "./struct.js";

interface Keys { string: string; bytes: Uint8Array }
interface Values { string: string; bytes: Uint8Array; number: number; json: unknown }

/** What the keys of a map are. */
export type MapKey = keyof Keys;
/** What its values are: a name, or a portable type, to whose values the map refers. */
export type MapValue = keyof Values | StructType<any>;

export interface MapOptions<K extends MapKey = "string", V extends MapValue = "json"> {
  /** `string`, unless said. */
  readonly key?: K;
  /** `json`, unless said. */
  readonly value?: V;
}

type ValueIn<V> = V extends keyof Values ? Values[V] : V extends StructType<infer F> ? StructOf<F>
  : never;

/** The numbers of kinds in the format. */
const KINDS = { bytes: 1, string: 2, number: 3, json: 4, reference: 5 } as const;
/** Entries that are looked up at a time. */
const SCAN = 128;
/** Words of an entry that a scan gives. */
const WORDS = 5;

export class PersistentMap<Key, Value> implements Iterable<[Key, Value]> {
  readonly #core: HeapCore;
  readonly #name: string;
  readonly #key: MapKey;
  readonly #value: keyof Values | "reference";
  readonly #target: Target | undefined;
  readonly #kinds: number;
  readonly #layout: bigint;
  #at: number;
  #epoch: number;

  private constructor(
    core: HeapCore, name: string, key: MapKey, value: MapValue, kinds: number, layout: bigint, at: number,
  ) {
    [this.#core, this.#name, this.#key, this.#at] = [core, name, key, at];
    [this.#kinds, this.#layout] = [kinds, layout];
    [this.#value, this.#target] = typeof value === "string" ? [value, undefined]
      : ["reference", value];
    this.#epoch = core.epoch;
  }

  /**
   * The map of this name, made if there is none. Throws a `LayoutMismatchError` for something else,
   * or a map of other kinds; `HeapFullError`; a `NotFoundError` where the heap is only read.
   */
  static open<K extends MapKey = "string", V extends MapValue = "json">(
    heap: PersistentHeap, name: string, options: MapOptions<K, V> = {},
  ): PersistentMap<Keys[K], ValueIn<V>> {
    const core = heap[CORE];
    const { key = "string", value = "json" } = options as MapOptions<MapKey, MapValue>;
    if (key !== "string" && key !== "bytes") {
      throw new TypeError(`keys are string or bytes, and not ${shown(key)}`);
    }
    const [kind, layout] = valueKind(value);
    const kinds = KINDS[key] | kind << 16;
    core.check();
    const { module } = core;
    if (module.call("map_open", putName(module, name), kinds, layout) === 0) {
      if (core.isReadOnly) throw new NotFoundError(`the heap has no map ${name}`);
      const seed = crypto.getRandomValues(new BigUint64Array(1))[0]!;
      module.call("map_create", putName(module, name), kinds, layout, seed);
    }
    return new PersistentMap<Keys[K], ValueIn<V>>(
      core, name, key, value, kinds, layout, module.result(0));
  }

  /** How many entries it has. */
  get size(): number {
    this.#core.module.call("map_header", this.#place());
    return this.#core.module.result(0);
  }

  get(key: Key): Value | undefined {
    const { module } = this.#core;
    const at = this.#place(), length = this.#putKey(key);
    let status: number;
    try {
      status = module.exports.map_get(at, length);
    } catch (error) {
      throw module.trapped(error);
    }
    if (status === 0) return undefined;
    if (status < 0) module.fail(status);
    return this.#decode(module.result(0), module.result(1));
  }

  has(key: Key): boolean {
    return this.#core.module.call("map_get", this.#place(), this.#putKey(key)) === 1;
  }

  /** Sets the value of a key. Throws a `HeapFullError`, and then nothing was changed. */
  set(key: Key, value: Value): this {
    const core = this.#core, { module, module: { exports } } = core;
    const stored = this.#encode(value), at = this.#writable();
    const length = this.#putKey(key);
    let bytes = 0;
    if (typeof stored === "string") bytes = module.putText(stored, length);
    else if (typeof stored === "object") bytes = module.putBytes(stored, length);
    let status: number;
    try {
      if (typeof stored !== "number") status = exports.map_set(at, length, bytes);
      else if (this.#target === undefined) status = exports.map_set_number(at, length, stored);
      else status = exports.map_set_word(at, length, stored);
    } catch (error) {
      throw module.trapped(error);
    }
    if (status < 0) module.fail(status);
    core.mapChanges += 1;
    return this;
  }

  /** Removes a key; whether it was there. What a value refers to is not freed. */
  delete(key: Key): boolean {
    const core = this.#core;
    const at = this.#writable();
    // Before the call: it may detach a key that is a view of the heap.
    const cursors = core.cursorsOf(at).filter((cursor) => isSame(cursor.key, key));
    const wasThere = core.module.call("map_delete", at, this.#putKey(key)) === 1;
    if (!wasThere) return false;
    core.mapChanges += 1;
    for (const cursor of cursors) core.tellGone(cursor);
    return true;
  }

  /** Removes all entries. */
  clear(): void {
    const core = this.#core, at = this.#writable();
    core.module.call("map_clear", at);
    core.mapChanges += 1;
    for (const cursor of core.cursorsOf(at)) core.tellGone(cursor);
  }

  /** Removes the map itself: its name is free, and each use of it is a `StaleReferenceError`. */
  remove(): void {
    const { module } = this.#core;
    module.call("map_remove", this.#writable(), putName(module, this.#name));
    this.#core.mapChanges += 1;
    this.#core.epoch += 1;
  }

  /**
   * Entries in the order in which their keys came. The map may change meanwhile, as a `Map` may;
   * where the key that was given last is removed, even if it is set again, and so much added that the
   * map's table is made anew, the iteration cannot go on, and throws a `StaleReferenceError`.
   */
  * entries(): Generator<[Key, Value], undefined> {
    for (const [key, at, length] of this.#scan()) yield [key, this.#decode(at, length)];
  }

  * keys(): Generator<Key, undefined> {
    for (const [key] of this.#scan()) yield key;
  }

  * values(): Generator<Value, undefined> {
    for (const [, at, length] of this.#scan()) yield this.#decode(at, length);
  }

  [Symbol.iterator](): Generator<[Key, Value], undefined> {
    return this.entries();
  }

  forEach(call: (value: Value, key: Key, map: this) => void): void {
    for (const [key, value] of this) call(value, key, this);
  }

  /** Keys with the places of their values, which are good until something is done with the heap. */
  * #scan(): Generator<[Key, number, number], undefined> {
    const core = this.#core, { module } = core;
    let next = 0, moves = this.#moves();
    let last: Key | undefined;
    const cursor: Cursor = { map: this.#at, key: undefined, isGone: false, isKept: false };
    try {
      for (;;) {
        const at = this.#place();
        if (last !== undefined && this.#moves() !== moves) {
          if (this.size === 0) return;
          // The cells moved: behind the key that was given last it goes on. One that was removed and set
          // again is at another place, and the keys between would be left out.
          if (cursor.isGone || module.call("map_get", at, this.#putKey(last)) !== 1) {
            throw new StaleReferenceError("the map was made anew while it was iterated over, and the \
key that came last was removed; collect the keys first");
          }
          [next, moves] = [module.result(2) + 1, this.#moves()];
        }
        const count = module.call("map_scan", at, next, SCAN);
        if (count === 0) return;
        const words = module.words(module.result(0), count * WORDS);
        const changes = core.mapChanges, epoch = core.epoch;
        for (let index = 0; index < words.length; index += WORDS) {
          // What is behind was looked up before something changed.
          if (core.mapChanges !== changes || core.epoch !== epoch) break;
          next = words[index]! + 1;
          last = this.#decodeKey(words[index + 1]!, words[index + 2]!);
          // A copy: the caller may change what it was given.
          cursor.key = last instanceof Uint8Array ? last.slice() : last;
          cursor.isGone = false;
          if (!cursor.isKept) core.keep(cursor);
          yield [last, words[index + 3]!, words[index + 4]!];
        }
      }
    } finally {
      core.drop(cursor);
    }
  }

  #moves(): number {
    this.#core.module.call("map_header", this.#place());
    return this.#core.module.result(1);
  }

  /** Where its header is. */
  #place(): number {
    const core = this.#core;
    if (this.#epoch !== core.epoch) {
      core.check();
      if (!this.#isThere()) {
        throw new StaleReferenceError(`the map ${this.#name} is not there any more; open it again`);
      }
      this.#epoch = core.epoch;
    }
    if (core.module.ended !== undefined) throw core.module.ended;
    return this.#at;
  }

  /** Whether its name leads to a map of its kinds, where it was: something else may be there now. */
  #isThere(): boolean {
    const { module } = this.#core;
    try {
      return module.call("map_open", putName(module, this.#name), this.#kinds, this.#layout) === 1
        && module.result(0) === this.#at;
    } catch (error) {
      if (error instanceof LayoutMismatchError) return false;
      throw error;
    }
  }

  #writable(): number {
    if (this.#core.isReadOnly) {
      throw new ReadOnlyError(`the heap ${this.#core.name} was opened for reading`);
    }
    return this.#place();
  }

  #putKey(key: Key): number {
    const { module } = this.#core;
    if (this.#key === "string") {
      if (typeof key !== "string") throw wrong("string", key, "key");
      return module.putText(key);
    }
    if (!(key instanceof Uint8Array)) throw wrong("Uint8Array", key, "key");
    return module.putBytes(key);
  }

  /** A value as it is stored: bytes, text, a number, or a reference as a number. */
  #encode(value: unknown): Uint8Array | string | number {
    switch (this.#value) {
      case "number":
        if (typeof value !== "number") throw wrong("number", value);
        return value;
      case "string":
        if (typeof value !== "string") throw wrong("string", value);
        return value;
      case "bytes":
        if (!(value instanceof Uint8Array)) throw wrong("Uint8Array", value);
        // Putting the key into the input may have memory grow.
        return this.#core.module.lasting(value);
      case "reference":
        if (value === null) throw wrong(this.#target!.typeName, value);
        return unitsOf(this.#core, value, this.#target!);
      default: {
        // Before the key is in the input: it may call what uses that.
        const text: string | undefined = JSON.stringify(value);
        if (text === undefined) throw wrong("value of JSON", value);
        return text;
      }
    }
  }

  #decodeKey(at: number, length: number): Key {
    const { bytes } = this.#core;
    const key = this.#key === "string" ? textOf(bytes, at, length) : bytes.slice(at, at + length);
    return key as Key;
  }

  #decode(at: number, length: number): Value {
    const core = this.#core;
    let value: unknown;
    switch (this.#value) {
      case "number":
        if (length !== 8) throw damaged("number");
        value = core.view.getFloat64(at, true);
        break;
      case "reference": {
        const units = length === 4 ? core.view.getUint32(at, true) : 0;
        if (units === 0) throw damaged("reference");
        value = follow(core, units, this.#target!);
        break;
      }
      case "bytes":
        value = core.bytes.slice(at, at + length);
        break;
      case "string":
        value = textOf(core.bytes, at, length);
        break;
      default:
        try {
          value = JSON.parse(textOf(core.bytes, at, length));
        } catch (error) {
          if (error instanceof CorruptError) throw error;
          throw damaged("JSON");
        }
    }
    return value as Value;
  }
}

function valueKind(value: MapValue): [kind: number, layout: bigint] {
  if (typeof value === "string" && Object.hasOwn(KINDS, value)) return [KINDS[value], 0n];
  if (typeof (value as Target | undefined)?.valueAt === "function") {
    return [KINDS.reference, (value as Target).shape(DEPTH)];
  }
  throw new TypeError(`values are bytes, string, number, json or a type that struct() made, and \
not ${shown(value)}`);
}

/** Whether two keys are one. */
function isSame(one: unknown, other: unknown): boolean {
  return one === other || one instanceof Uint8Array && other instanceof Uint8Array
    && one.length === other.length && one.every((byte, index) => byte === other[index]);
}

function wrong(wanted: string, value: unknown, what = "value"): TypeError {
  return new TypeError(`a ${what} of the map is a ${wanted}, and not ${shown(value)}`);
}

function damaged(what: string): CorruptError {
  return new CorruptError(`a value of the map is no ${what}; restore the heap from an export`);
}
