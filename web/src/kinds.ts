/**
 * What a field of a portable type, or an element of an array, holds: integers and floats of
 * explicit width, references, and arrays. With the same layouts and numbers as `portable!` of Rust,
 * `NV_PORTABLE` of C and `holdfast.Portable` of Python.
 *
 * Invariants: a kind reads and writes linear memory in place. What it is given to store is looked
 * at before anything is stored.
 */
import { ObjectAnchor, type Anchor, type HeapCore } from "./heap-core.js";

const MASK = (1n << 64n) - 1n;
const TEXT = new TextEncoder();

function textHash(hash: bigint, bytes: Uint8Array): bigint {
  for (const byte of bytes) hash = ((hash ^ BigInt(byte)) * 0x100_0000_01b3n) & MASK;
  return hash;
}

export function wordHash(hash: bigint, word: number): bigint {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(word), true);
  return textHash(hash, bytes);
}

/** The start of a layout: a kind with its size and alignment. */
export function startHash(kind: string, size: number, align: number): bigint {
  const hash = textHash(0xcbf2_9ce4_8422_2325n, TEXT.encode(kind));
  return wordHash(wordHash(hash, size), align);
}

/** Continues a layout with a field: its name, place and own layout. */
export function fieldHash(hash: bigint, name: string, offset: number, layout: bigint): bigint {
  const text = TEXT.encode(name);
  hash = wordHash(wordHash(textHash(hash, text), text.length), offset);
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, layout, true);
  return textHash(hash, bytes);
}

/** So many references deep, what they lead to is part of a layout. */
export const DEPTH = 3;

/** Stores a value that was looked at, at a place of the heap. */
export type Store = (at: number) => void;
/**
 * A value that was looked at. Its references are looked up when it is called, which throws a
 * `StaleReferenceError` for one whose object is gone. Between that and the store nothing changes the heap, so
 * a value is stored whole or not at all.
 */
export type Prepared = () => Store;

/** A portable type as kinds see it; `struct` makes one. */
export interface Target {
  readonly typeName: string;
  readonly size: number;
  readonly align: number;
  shape(depth: number): bigint;
  valueAt(core: HeapCore, anchor: Anchor): unknown;
  /** What stores the fields of an object at a place. Throws a `TypeError` or `RangeError`. */
  prepare(core: HeapCore, init: unknown): Prepared;
  /** The offset of a value of this type in this heap. Throws a `TypeError` for anything else. */
  offsetOf(core: HeapCore, value: unknown): number;
  /** The same of an object of its own. Throws a `RangeError` for a part of another value. */
  objectOf(core: HeapCore, value: unknown): number;
}

/** What a field or an element holds. Sizes in bytes. */
export abstract class Kind<Value = unknown> {
  abstract readonly size: number;
  abstract readonly align: number;
  /** Only for the type: what reading it gives. */
  declare readonly value: Value;

  /** The layout, with what references lead to, so many of them deep. */
  abstract shape(depth: number): bigint;

  /** The value at a place of the heap; `anchor` says where that place is later. */
  abstract get(core: HeapCore, at: number, anchor: () => Anchor): Value;

  /**
   * What stores a value. Throws a `TypeError` or `RangeError` for one that is none, before any part of it
   * is stored. Looking at a value may call what changes the heap: ask for its place behind that.
   */
  abstract prepare(core: HeapCore, value: unknown): Prepared;

  /** Stores a value at a place; for values that call nothing. Throws as `prepare`. */
  set(core: HeapCore, at: number, value: unknown): void {
    this.prepare(core, value)()(at);
  }

  /** The same kind in a type, which a reference may name. */
  bind(_owner: Target): Kind<Value> {
    return this;
  }

  /** The number that a root of this kind carries. */
  layout(): bigint {
    return this.shape(DEPTH);
  }

  abstract toString(): string;
}

/** The typed arrays of numbers in a heap. */
export type Numbers = Uint8Array | Int8Array | Uint16Array | Int16Array | Uint32Array | Int32Array
  | Float32Array | Float64Array | BigUint64Array | BigInt64Array;
interface NumbersType<A extends Numbers> {
  new (buffer: ArrayBuffer, at: number, length: number): A;
}

type Read = (view: DataView, at: number) => number | bigint;
type Write = (view: DataView, at: number, value: never) => void;

/** An integer or a float. */
export class NumberKind<Value extends number | bigint, A extends Numbers> extends Kind<Value> {
  readonly align: number;

  constructor(
    readonly name: string, readonly size: number, readonly elements: NumbersType<A>,
    readonly read: Read, readonly write: Write,
    /** The range of an integer. */
    readonly least: number | bigint | undefined, readonly most: number | bigint,
  ) {
    super();
    this.align = size;
  }

  shape(_depth: number): bigint {
    return startHash(this.name, this.size, this.align);
  }

  get(core: HeapCore, at: number): Value {
    return this.read(core.view, at) as Value;
  }

  check(value: unknown): Value {
    const { name, least, most } = this;
    const wanted = typeof most;
    if (typeof value !== wanted) {
      throw new TypeError(`a value of kind ${name} is a ${wanted}, and not ${shown(value)}`);
    }
    if (least !== undefined) {
      const number = value as number | bigint;
      if (typeof number === "number" && !Number.isInteger(number)) {
        throw new RangeError(`a value of kind ${name} is an integer, and not ${number}`);
      }
      if (number < least || number > most) {
        throw new RangeError(`a value of kind ${name} must be between ${least} and ${most}, and is \
${number}`);
      }
    }
    return value as Value;
  }

  prepare(core: HeapCore, value: unknown): Prepared {
    const checked = this.check(value);
    return () => (at) => this.#store(core, at, checked);
  }

  override set(core: HeapCore, at: number, value: unknown): void {
    this.#store(core, at, this.check(value));
  }

  #store(core: HeapCore, at: number, checked: Value): void {
    core.touch(at, this.size);
    this.write(core.view, at, checked as never);
  }

  toString(): string {
    return this.name;
  }
}

export const u8 = new NumberKind<number, Uint8Array<ArrayBuffer>>("u8", 1, Uint8Array,
  (view, at) => view.getUint8(at), (view, at, value) => view.setUint8(at, value), 0, 255);
export const i8 = new NumberKind<number, Int8Array<ArrayBuffer>>("i8", 1, Int8Array,
  (view, at) => view.getInt8(at), (view, at, value) => view.setInt8(at, value), -128, 127);
export const u16 = new NumberKind<number, Uint16Array<ArrayBuffer>>("u16", 2, Uint16Array,
  (view, at) => view.getUint16(at, true), (view, at, value) => view.setUint16(at, value, true),
  0, 0xffff);
export const i16 = new NumberKind<number, Int16Array<ArrayBuffer>>("i16", 2, Int16Array,
  (view, at) => view.getInt16(at, true), (view, at, value) => view.setInt16(at, value, true),
  -0x8000, 0x7fff);
export const u32 = new NumberKind<number, Uint32Array<ArrayBuffer>>("u32", 4, Uint32Array,
  (view, at) => view.getUint32(at, true), (view, at, value) => view.setUint32(at, value, true),
  0, 0xffff_ffff);
export const i32 = new NumberKind<number, Int32Array<ArrayBuffer>>("i32", 4, Int32Array,
  (view, at) => view.getInt32(at, true), (view, at, value) => view.setInt32(at, value, true),
  -0x8000_0000, 0x7fff_ffff);
export const u64 = new NumberKind<bigint, BigUint64Array<ArrayBuffer>>("u64", 8, BigUint64Array,
  (view, at) => view.getBigUint64(at, true),
  (view, at, value) => view.setBigUint64(at, value, true), 0n, MASK);
export const i64 = new NumberKind<bigint, BigInt64Array<ArrayBuffer>>("i64", 8, BigInt64Array,
  (view, at) => view.getBigInt64(at, true),
  (view, at, value) => view.setBigInt64(at, value, true), -(1n << 63n), (1n << 63n) - 1n);
export const f32 = new NumberKind<number, Float32Array<ArrayBuffer>>("f32", 4, Float32Array,
  (view, at) => view.getFloat32(at, true), (view, at, value) => view.setFloat32(at, value, true),
  undefined, 0);
export const f64 = new NumberKind<number, Float64Array<ArrayBuffer>>("f64", 8, Float64Array,
  (view, at) => view.getFloat64(at, true), (view, at, value) => view.setFloat64(at, value, true),
  undefined, 0);

/** Bytes of the unit that references count. */
export const REF_UNIT = 8;

/** A reference of 4 bytes to a value of a portable type, or none. */
export class RefKind<Value> extends Kind<Value | null> {
  readonly size = 4;
  readonly align = 4;
  readonly #to: string | Target | (() => Target);
  readonly #owner: Target | undefined;

  constructor(to: string | Target | (() => Target), owner?: Target) {
    super();
    this.#to = to;
    this.#owner = owner;
  }

  override bind(owner: Target): RefKind<Value> {
    return typeof this.#to === "string" ? new RefKind(this.#to, owner) : this;
  }

  target(): Target {
    const to = this.#to;
    if (typeof to === "string") {
      if (this.#owner?.typeName === to) return this.#owner;
      throw new TypeError(`a name refers to the type itself, and ${to} is another one; write \
ref(() => ${to})`);
    }
    const found = "typeName" in to ? to : to();
    if (typeof found?.valueAt !== "function") {
      throw new TypeError("a reference leads to a type that struct() made");
    }
    return found;
  }

  shape(depth: number): bigint {
    const hash = startHash("ref", 4, 4);
    return depth === 0 ? hash : fieldHash(hash, "to", 0, this.target().shape(depth - 1));
  }

  get(core: HeapCore, at: number): Value | null {
    const units = core.view.getUint32(at, true);
    return units === 0 ? null : follow(core, units, this.target()) as Value;
  }

  prepare(core: HeapCore, value: unknown): Prepared {
    const target = this.target();
    unitsOf(core, value, target);
    return () => {
      // It may have been freed since.
      const units = unitsOf(core, value, target);
      return (at) => {
        core.touch(at, 4);
        core.view.setUint32(at, units, true);
      };
    };
  }

  toString(): string {
    return `ref(${typeof this.#to === "string" ? this.#to : this.target().typeName})`;
  }
}

/** The value that a reference leads to. Throws a `StaleReferenceError` where no object begins. */
export function follow(core: HeapCore, units: number, target: Target): unknown {
  return target.valueAt(core, new ObjectAnchor(core, units * REF_UNIT, target.size));
}

/**
 * The reference to a value, or 0 for `null`. Throws a `RangeError` for a part of another value: it may move, and
 * nothing tells when it is gone.
 */
export function unitsOf(core: HeapCore, value: unknown, target: Target): number {
  if (value === null) return 0;
  const at = target.objectOf(core, value);
  if (at % REF_UNIT !== 0) {
    throw new RangeError("a reference leads to a value that is aligned to 8 bytes");
  }
  return at / REF_UNIT;
}

/** Stores bytes of which nobody else has a view. */
export function storeOf(core: HeapCore, bytes: Uint8Array): Store {
  return (at) => {
    core.touch(at, bytes.length);
    core.bytes.set(bytes, at);
  };
}

/** So many values of a kind in a row: numbers as a typed array in place, others as `Elements`. */
export class ArrayKind<Value> extends Kind<Value> {
  readonly size: number;
  readonly align: number;

  constructor(readonly of: Kind, readonly length: number) {
    super();
    if (!Number.isInteger(length) || length < 1) {
      throw new RangeError("an array has at least one element");
    }
    [this.size, this.align] = [of.size * length, of.align];
  }

  override bind(owner: Target): ArrayKind<Value> {
    const of = this.of.bind(owner);
    return of === this.of ? this : new ArrayKind(of, this.length);
  }

  shape(depth: number): bigint {
    const start = startHash("array", this.size, this.align);
    return fieldHash(start, "", this.length, this.of.shape(depth));
  }

  get(core: HeapCore, at: number, anchor: () => Anchor): Value {
    const { of, length } = this;
    if (!(of instanceof NumberKind)) return new Elements(core, this, anchor()) as Value;
    // What is done with it is not seen here.
    if (core.depth > 0 && !core.isReadOnly) core.touch(at, this.size);
    core.check();
    const { buffer } = core.module.exports.memory;
    return new of.elements(buffer, core.base + at, length) as Value;
  }

  prepare(core: HeapCore, value: unknown): Prepared {
    const { of, length } = this;
    if (of === u8 && value instanceof Uint8Array) {
      if (value.length > length) {
        throw new RangeError(`${value.length} bytes do not fit into ${length}`);
      }
      // It may be a view of linear memory, which may grow.
      const bytes = new Uint8Array(length);
      bytes.set(value);
      return () => storeOf(core, bytes);
    }
    if (value === null || typeof (value as Iterable<unknown>)[Symbol.iterator] !== "function") {
      throw new TypeError(`an array of ${of} is set from an iterable, and not from \
${shown(value)}`);
    }
    const values = [...value as Iterable<unknown>];
    if (values.length !== length) {
      throw new RangeError(`the array has ${length} elements, and ${values.length} were given`);
    }
    if (of instanceof NumberKind) {
      const numbers = new of.elements(new ArrayBuffer(this.size), 0, length);
      for (let index = 0; index < length; index++) numbers[index] = of.check(values[index]);
      return () => storeOf(core, new Uint8Array(numbers.buffer));
    }
    const prepared = values.map((element) => of.prepare(core, element));
    return () => {
      const stores = prepared.map((ready) => ready());
      return (at) => stores.forEach((store, index) => store(at + index * of.size));
    };
  }

  toString(): string {
    return `array(${this.of}, ${this.length})`;
  }
}

/** The elements of an array in a value, in place. */
export class Elements<Value> implements Iterable<Value> {
  readonly #core: HeapCore;
  readonly #kind: ArrayKind<unknown>;
  readonly #anchor: Anchor;

  constructor(core: HeapCore, kind: ArrayKind<unknown>, anchor: Anchor) {
    [this.#core, this.#kind, this.#anchor] = [core, kind, anchor];
  }

  get length(): number {
    return this.#kind.length;
  }

  get(index: number): Value {
    const offset = this.#offset(index), anchor = this.#anchor;
    const place = () => ({ place: () => anchor.place() + offset });
    return this.#kind.of.get(this.#core, anchor.place() + offset, place) as Value;
  }

  set(index: number, value: Value): void {
    const offset = this.#offset(index), prepared = this.#kind.of.prepare(this.#core, value);
    prepared()(this.#anchor.place() + offset);
  }

  * [Symbol.iterator](): Iterator<Value> {
    for (let index = 0; index < this.length; index++) yield this.get(index);
  }

  #offset(index: number): number {
    const { length, of } = this.#kind;
    if (!(Number.isInteger(index) && index >= 0 && index < length)) {
      throw new RangeError(`the array has ${length} elements, and no ${index}`);
    }
    return index * of.size;
  }
}

/** A value in a message. */
export function shown(value: unknown): string {
  if (value === null) return "null";
  switch (typeof value) {
    case "string": return `the string ${JSON.stringify(value.slice(0, 40))}`;
    case "number": return `the number ${value}`;
    case "bigint": return `the bigint ${value}n`;
    case "object": return `a ${value.constructor?.name ?? "object"}`;
    default: return typeof value;
  }
}
