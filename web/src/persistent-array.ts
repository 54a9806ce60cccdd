/**
 * An array that lies in a heap and grows: of numbers of a kind, references, or values of a portable
 * type, which lie in it one behind the other. `docs/format.md` has its layout.
 *
 * Invariants: elements are read and written in linear memory; the module only makes room. The
 * header is read at each access and checked against what the heap has.
 */
import { CorruptError, LayoutMismatchError } from "./errors.js";
import { CORE, type Anchor, type HeapCore } from "./heap-core.js";
import { NotFoundError, StaleReferenceError } from "./heap-errors.js";
import { putName } from "./heap-module.js";
import { NumberKind, REF_UNIT, type Kind } from "./kinds.js";
import type { PersistentHeap } from "./persistent-heap.js";
import { kindOf, type FieldInput, type FieldKind, type FieldValue } from "./struct.js";

/** Places in the header: the elements, how many count, and how many there is room for. */
const ELEMENTS = 0;
const LENGTH = 4;
const ROOM = 8;
const LENGTH_MAX = 0xffff_ffff;

export class PersistentArray<Value, Input = Value> implements Iterable<Value> {
  readonly #core: HeapCore;
  readonly #name: string;
  readonly #kind: Kind<Value>;
  readonly #size: number;
  readonly #layout: bigint;
  #at: number;
  #epoch: number;

  private constructor(
    core: HeapCore, name: string, kind: Kind<Value>, layout: bigint, at: number,
  ) {
    [this.#core, this.#name, this.#kind, this.#size] = [core, name, kind, kind.size];
    [this.#layout, this.#at, this.#epoch] = [layout, at, core.epoch];
  }

  /**
   * The array of this name, made if there is none. Throws a `LayoutMismatchError` for something
   * else, or an array of other elements; `HeapFullError`; a `NotFoundError` where the heap is only
   * read.
   */
  static open<K extends FieldKind>(
    heap: PersistentHeap, name: string, of: K,
  ): PersistentArray<FieldValue<K>, FieldInput<K>> {
    const core = heap[CORE], kind = kindOf(of), layout = kind.layout();
    core.check();
    const { module } = core;
    if (module.call("array_open", putName(module, name), kind.size, layout) === 0) {
      if (core.isReadOnly) throw new NotFoundError(`the heap has no array ${name}`);
      module.call("array_create", putName(module, name), kind.size, layout);
    }
    return new PersistentArray<FieldValue<K>, FieldInput<K>>(
      core, name, kind, layout, module.result(0));
  }

  get length(): number {
    return this.#look().length;
  }

  /** Fewer elements, or more, which are zero. */
  set length(length: number) {
    if (!(Number.isInteger(length) && length >= 0 && length <= LENGTH_MAX)) {
      throw new RangeError(`a length is an integer from 0 on, and not ${length}`);
    }
    const core = this.#core;
    core.checkWritable();
    const { length: had } = this.#look();
    if (length > had) {
      this.#reserve(length);
      const { elements } = this.#look();
      const [from, bytes] = [elements + had * this.#size, (length - had) * this.#size];
      core.touch(from, bytes);
      core.bytes.fill(0, from, from + bytes);
    }
    this.#setLength(length);
    if (length < had) core.epoch += 1;
  }

  /** The element at an index; `undefined` behind the last one, as an array has it. */
  get(index: number): Value | undefined {
    const { elements, length } = this.#look();
    if (!(index >= 0 && index < length) || !Number.isInteger(index)) return undefined;
    return this.#kind.get(this.#core, elements + index * this.#size, () => this.#anchor(index));
  }

  /** The same, counted from the end for a negative index. */
  at(index: number): Value | undefined {
    return this.get(index < 0 ? this.length + index : index);
  }

  /** Stores an element. Throws a `RangeError` for an index that there is not. */
  set(index: number, value: Input): void {
    const core = this.#core, kind = this.#kind, isNumber = kind instanceof NumberKind;
    const prepared = isNumber ? undefined : kind.prepare(core, value);
    const { elements, length } = this.#look();
    if (!(index >= 0 && index < length) || !Number.isInteger(index)) {
      throw new RangeError(`the array has ${length} elements, and no ${index}; push adds one`);
    }
    const at = elements + index * this.#size;
    if (prepared === undefined) kind.set(core, at, value);
    else prepared()(at);
  }

  /** Adds elements; the new length. What is wrong, or has no room, leaves the array as it was. */
  push(...values: Input[]): number {
    const core = this.#core, kind = this.#kind;
    core.checkWritable();
    const isNumber = kind instanceof NumberKind;
    const prepared = isNumber ? undefined : values.map((value) => kind.prepare(core, value));
    const { length } = this.#look();
    this.#reserve(length + values.length);
    const { elements } = this.#look();
    const stores = prepared?.map((ready) => ready());
    let at = elements + length * this.#size;
    // What was there before an element was taken out is not what a field begins with.
    if (stores !== undefined) {
      const bytes = values.length * this.#size;
      core.touch(at, bytes);
      core.bytes.fill(0, at, at + bytes);
    }
    for (let index = 0; index < values.length; index++) {
      if (stores === undefined) kind.set(core, at, values[index]);
      else stores[index]!(at);
      at += this.#size;
    }
    this.#setLength(length + values.length);
    return length + values.length;
  }

  /** Takes the last number or reference out; of a portable type, use `at(-1)` and `length`. */
  pop(): Value | undefined {
    const { length } = this.#look();
    if (length === 0) return undefined;
    this.#core.checkWritable();
    const value = this.get(length - 1);
    this.#setLength(length - 1);
    if (!(this.#kind instanceof NumberKind)) this.#core.epoch += 1;
    return value;
  }

  /** Makes room for so many elements, so that adding them moves none. */
  reserve(room: number): void {
    this.#core.checkWritable();
    this.#reserve(room);
  }

  /**
   * Numbers in place, as a typed array: a view that ends when the memory or the array grows. In a
   * transaction, take it there: what it had is logged then.
   */
  view(): Value extends bigint ? BigInt64Array | BigUint64Array : Float64Array | Float32Array
    | Uint8Array | Int8Array | Uint16Array | Int16Array | Uint32Array | Int32Array {
    const kind = this.#kind as unknown;
    if (!(kind instanceof NumberKind)) {
      throw new TypeError("only an array of numbers is a typed array; use get()");
    }
    const core = this.#core;
    const { elements, length } = this.#look();
    if (core.depth > 0 && length > 0) core.touch(elements, length * this.#size);
    const { buffer } = core.module.exports.memory;
    return new kind.elements(buffer, core.base + elements, length) as never;
  }

  /** Removes the array: its name is free, and each use of it is a `StaleReferenceError`. */
  remove(): void {
    const core = this.#core;
    core.checkWritable();
    const { elements, room } = this.#look();
    const { module } = core;
    module.call("root_remove", putName(module, this.#name));
    core.epoch += 1;
    if (room > 0) module.call("object_free", elements);
  }

  * [Symbol.iterator](): Generator<Value, undefined> {
    for (let index = 0; index < this.length; index++) yield this.get(index)!;
  }

  #anchor(index: number): Anchor {
    return {
      place: () => {
        const { elements, length } = this.#look();
        if (index >= length) {
          throw new StaleReferenceError(`the array ${this.#name} has no element ${index} any more`);
        }
        return elements + index * this.#size;
      },
    };
  }

  /** Its header, which the heap has room for. */
  #look(): { elements: number; length: number; room: number } {
    const core = this.#core;
    if (this.#epoch !== core.epoch) this.#renew();
    const { view } = core, at = this.#at;
    const elements = view.getUint32(at + ELEMENTS, true) * REF_UNIT;
    const length = view.getUint32(at + LENGTH, true), room = view.getUint32(at + ROOM, true);
    if (length > room || room > 0 && (elements === 0
        || elements + room * this.#size > core.backed)) {
      throw new CorruptError(`the array ${this.#name} is damaged; restore the heap from an export`);
    }
    return { elements, length, room };
  }

  #renew(): void {
    const core = this.#core;
    core.check();
    if (!this.#isThere()) {
      throw new StaleReferenceError(`the array ${this.#name} is not there any more; open it again`);
    }
    this.#epoch = core.epoch;
  }

  /** Whether its name leads to an array of its kind, where it was: something else may be there now. */
  #isThere(): boolean {
    const { module } = this.#core;
    try {
      return module.call("array_open", putName(module, this.#name), this.#size, this.#layout) === 1
        && module.result(0) === this.#at;
    } catch (error) {
      if (error instanceof LayoutMismatchError) return false;
      throw error;
    }
  }

  #reserve(room: number): void {
    if (!(Number.isInteger(room) && room >= 0 && room <= LENGTH_MAX)) {
      throw new RangeError(`an array has at most ${LENGTH_MAX} elements`);
    }
    if (room <= this.#look().room) return;
    this.#core.module.call("array_reserve", this.#at, room);
    // Values in it have another place now.
    this.#core.epoch += 1;
    this.#epoch = this.#core.epoch;
  }

  #setLength(length: number): void {
    const core = this.#core;
    core.touch(this.#at + LENGTH, 4);
    core.view.setUint32(this.#at + LENGTH, length, true);
  }
}
