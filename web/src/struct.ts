/**
 * Portable types for JavaScript: values that lie in a heap as those of Rust, C, C++ and Python do.
 *
 *     const Point = struct("Point", { x: f64, y: f64, next: ref("Point"), bytes: array(u8, 16) });
 *     const first = Point.open(heap, "first") ?? Point.create(heap, "first");
 *     first.next = Point.new(heap, { x: 1, y: 2 });
 *
 * Values are views: each access reads or writes linear memory, and nothing is copied. A root
 * carries the number of its type's layout, and opens as nothing else.
 *
 * Invariants: bytes without a name, and kinds without an explicit width, have no place in such a
 * type. A value whose object may have gone looks again before it is used.
 */
import { LayoutMismatchError } from "./errors.js";
import { CORE, ObjectAnchor, type Anchor, type HeapCore } from "./heap-core.js";
import { StaleReferenceError } from "./heap-errors.js";
import { putName } from "./heap-module.js";
import {
  ArrayKind, DEPTH, Elements, fieldHash, Kind, NumberKind, RefKind, shown, startHash, storeOf, wordHash,
  type Numbers, type Prepared, type Target,
} from "./kinds.js";
import type { PersistentHeap } from "./persistent-heap.js";

/** What a field may be declared as: a kind, or another portable type, which lies inside. */
export type FieldKind = Kind<any> | StructType<any>;
/** The fields of a portable type, in their order. */
export type Fields = Readonly<Record<string, FieldKind>>;

/** What a field gives. */
export type FieldValue<K> =
  K extends Kind<infer Value> ? Value : K extends StructType<infer F> ? StructOf<F> : never;
/** What a field takes. */
export type FieldInput<K> =
  K extends ArrayKind<any> ? FieldValue<K> | Iterable<any>
    : K extends StructType<infer F> ? StructOf<F> | Init<F> : FieldValue<K>;

/** A value of a portable type: its fields, in place. */
export type StructOf<F extends Fields> =
  StructValue & { -readonly [K in keyof F]: FieldValue<F[K]> };
/** Values of fields to begin with; the others are zero. A value of the same type and heap is copied. */
export type Init<F extends Fields> = { readonly [K in keyof F]?: FieldInput<F[K]> };

/** A portable type; `struct` makes one. */
export interface StructType<F extends Fields> extends Target {
  readonly typeName: string;
  readonly fields: F;
  /** Bytes of a value. */
  readonly size: number;
  /** The number that stands for this type in roots, the same in every language. */
  layout(): bigint;
  /** Makes an object without a name. Throws `HeapFullError`, `ReadOnlyError`. */
  "new"(heap: PersistentHeap, init?: Init<F>): StructOf<F>;
  /** Makes a root. Throws `ExistsError`, `HeapFullError`, `ReadOnlyError`. */
  create(heap: PersistentHeap, name: string, init?: Init<F>): StructOf<F>;
  /** The root of this name, if there is one. Throws a `LayoutMismatchError` for another type. */
  open(heap: PersistentHeap, name: string): StructOf<F> | undefined;
  /** The value at an offset. Throws a `StaleReferenceError` where no object begins. */
  at(heap: PersistentHeap, offset: number): StructOf<F>;
  /** Whether something is a value of this type. */
  [Symbol.hasInstance](value: unknown): boolean;
}

const ROOM: unique symbol = Symbol("room");

/** What all values of portable types have; a field with the same name hides it. */
export class StructValue {
  /** The core, the anchor, the type, the place, and the epoch in which that was looked up. */
  readonly [ROOM]: { core: HeapCore; anchor: Anchor; type: Target; at: number; epoch: number };

  constructor(type: Target, core: HeapCore, anchor: Anchor) {
    this[ROOM] = { core, anchor, type, at: anchor.place(), epoch: core.epoch };
  }

  /** Where it lies, from the heap's first byte. */
  get offset(): number {
    return placeOf(this);
  }

  /** Frees its object; in a transaction, when that commits. See `PersistentHeap.free`. */
  free(): void {
    freeValue(this);
  }
}

/** Where a value lies. Throws a `StaleReferenceError` where it is no more. */
export function placeOf(value: StructValue): number {
  const room = value[ROOM];
  const { core } = room;
  if (room.epoch !== core.epoch) {
    core.check();
    room.at = room.anchor.place();
    room.epoch = core.epoch;
  }
  return room.at;
}

/** Where an object of its own lies. Throws a `RangeError` for a part of another value. */
export function objectPlaceOf(value: StructValue): number {
  const at = placeOf(value);
  if (!(value[ROOM].anchor instanceof ObjectAnchor)) {
    throw new RangeError("the value is a part of another one; refer to an object of its own (Type.new)");
  }
  return at;
}

/** Whether the object of a value is still there. */
function isThere(value: StructValue): boolean {
  try {
    placeOf(value);
    return true;
  } catch (error) {
    if (error instanceof StaleReferenceError) return false;
    throw error;
  }
}

/** The heap and the type of a value. */
export function roomOf(value: StructValue): { core: HeapCore; type: Target } {
  return value[ROOM];
}

/** Frees the object of a value. */
export function freeValue(value: StructValue): void {
  const { core, anchor } = value[ROOM];
  const at = placeOf(value);
  if (!(anchor instanceof ObjectAnchor)) {
    throw new RangeError("the value is a part of another one; free that");
  }
  core.checkWritable();
  core.module.call("object_free", at);
  core.epoch += 1;
}

/** A portable type in another one, or in an array. */
class InnerKind<F extends Fields> extends Kind<StructOf<F>> {
  readonly size: number;
  readonly align: number;

  constructor(readonly of: StructType<F>) {
    super();
    [this.size, this.align] = [of.size, of.align];
  }

  shape(depth: number): bigint {
    return this.of.shape(depth);
  }

  get(core: HeapCore, _at: number, anchor: () => Anchor): StructOf<F> {
    return this.of.valueAt(core, anchor()) as StructOf<F>;
  }

  prepare(core: HeapCore, value: unknown): Prepared {
    return this.of.prepare(core, value);
  }

  toString(): string {
    return this.of.typeName;
  }
}

/** The kind of a field or of an element, as it may be written. Throws a `TypeError` for another. */
export function kindOf<K extends FieldKind>(of: K): Kind<FieldValue<K>> {
  if (of instanceof Kind) return of as Kind<FieldValue<K>>;
  const type = of as StructType<any> | undefined;
  if (typeof type?.valueAt === "function") return new InnerKind(type) as Kind<any>;
  throw new TypeError(`${shown(of)} is no portable kind; use u8 to u64, i8 to i64, f32, f64, ref, \
array, or a type that struct() made`);
}

/**
 * A reference to a value of another type: `ref("Name")` to the type itself, `ref(Other)`, or
 * `ref(() => Other)` to one that is declared later. It leads to an object of its own; an element of an array and
 * a struct inside of another value are none, and a `RangeError`.
 */
export function ref<F extends Fields>(to: StructType<F> | (() => StructType<F>)):
  RefKind<StructOf<F>>;
export function ref(to: string): RefKind<any>;
export function ref(to: string | Target | (() => Target)): RefKind<any> {
  return new RefKind(to);
}

/** So many values in a row: of numbers a typed array in place, of anything else `Elements`. */
export function array<A extends Numbers>(of: NumberKind<any, A>, length: number): ArrayKind<A>;
export function array<K extends FieldKind>(of: K, length: number):
  ArrayKind<Elements<FieldValue<K>>>;
export function array(of: unknown, length: number): ArrayKind<any> {
  return new ArrayKind(kindOf(of as FieldKind), length);
}

/**
 * Declares a portable type. `version` is raised when the meaning changes and the fields do not. One
 * with bytes that have no name is a `TypeError` that says where they would be.
 */
export function struct<const F extends Fields>(
  typeName: string, fields: F, { version = 0 }: { readonly version?: number } = {},
): StructType<F> {
  class Value extends StructValue {}
  Object.defineProperty(Value, "name", { value: typeName });
  let size = 0, align = 1;
  const kinds = new Map<string, { offset: number; kind: Kind }>();
  const shapes: bigint[] = [];

  const type: StructType<F> = {
    typeName, fields,
    get size() { return size; },
    get align() { return align; },
    shape(depth) {
      return shapes[depth] ??= [...kinds].reduce(
        (hash, [name, { offset, kind }]) => fieldHash(hash, name, offset, kind.shape(depth)),
        wordHash(startHash("portable", size, align), version));
    },
    layout: () => type.shape(DEPTH),
    valueAt: (core, anchor) => new Value(type, core, anchor),
    prepare(core, init) {
      if (init instanceof StructValue) {
        // Its fields are no properties of its own: as a plain object it would have none.
        type.offsetOf(core, init);
        return () => {
          // It may have moved, with the array that it is in.
          const from = type.offsetOf(core, init);
          // A copy: it may lie where another part of the same value is stored before it.
          return storeOf(core, core.bytes.slice(from, from + size));
        };
      }
      if (init === null || typeof init !== "object") {
        throw new TypeError(`a ${typeName} is set from an object, and not from ${shown(init)}`);
      }
      const prepared = Object.entries(init).map(([name, field]): [number, Prepared] => {
        const found = kinds.get(name);
        if (found === undefined) throw new TypeError(`${typeName} has no field ${name}`);
        return [found.offset, found.kind.prepare(core, field)];
      });
      return () => {
        const stores = prepared.map(([offset, ready]) => ({ offset, store: ready() }));
        return (at) => stores.forEach(({ offset, store }) => store(at + offset));
      };
    },
    offsetOf(core, value) {
      if (!(value instanceof Value)) {
        throw new TypeError(`it must be a ${typeName} of the heap, and not ${shown(value)}`);
      }
      if (value[ROOM].core !== core) {
        throw new RangeError("a reference leads to an object of its own heap; make one there");
      }
      return placeOf(value);
    },
    objectOf(core, value) {
      type.offsetOf(core, value);
      return objectPlaceOf(value as StructValue);
    },
    "new"(heap, init) {
      const core = heap[CORE];
      core.checkWritable();
      core.module.call("object_allocate", size);
      const at = core.module.result(0);
      return begin(core, at, init, () => { core.module.call("object_free", at); });
    },
    create(heap, name, init) {
      const core = heap[CORE];
      core.checkWritable();
      const { module } = core;
      const layout = type.layout();
      module.call("root_create", putName(module, name), size, layout);
      return begin(core, module.result(0), init, () => {
        module.call("root_remove", putName(module, name));
      });
    },
    open(heap, name) {
      const core = heap[CORE];
      const found = heap.root(name);
      if (found === undefined) return undefined;
      if (found.layout !== type.layout() || found.version !== 0) {
        const stored = found.layout === undefined ? "no layout" : `the layout ${hex(found.layout)}`;
        throw new LayoutMismatchError(`the root ${name} has ${stored}, and the type ${typeName} of \
the program has ${hex(type.layout())}; declare it as the program did that made it`);
      }
      return value(core, found.offset);
    },
    at: (heap, offset) => value(heap[CORE], offset),
    [Symbol.hasInstance]: (value) => value instanceof Value,
  };
  const value = (core: HeapCore, at: number) =>
    new Value(type, core, new ObjectAnchor(core, at, size)) as unknown as StructOf<F>;
  /** A new value with its first fields; it goes again where these are wrong. */
  const begin = (core: HeapCore, at: number, init: unknown, undo: () => void) => {
    const made = value(core, at);
    if (init === undefined) return made;
    try {
      const prepared = type.prepare(core, init);
      // Looking at the fields may have called what removes the object.
      prepared()(placeOf(made));
    } catch (error) {
      if (isThere(made)) undo();
      core.epoch += 1;
      throw error;
    }
    return made;
  };

  for (const [name, of] of Object.entries(fields)) {
    if (!/^[A-Za-z][A-Za-z0-9_]*$/.test(name) || name === "constructor") {
      throw new TypeError(`${typeName}: a field cannot be called ${name}; use another name \
everywhere`);
    }
    const kind = kindOf(of).bind(type);
    const gap = (kind.align - size % kind.align) % kind.align;
    if (gap > 0) {
      throw new TypeError(`${typeName}: ${gap} bytes before ${name} have no name; give them one, \
such as array(u8, ${gap})`);
    }
    const offset = size;
    kinds.set(name, { offset, kind });
    Object.defineProperty(Value.prototype, name, accessors(kind, offset));
    size += kind.size;
    align = Math.max(align, kind.align);
  }
  if (kinds.size === 0) throw new TypeError(`${typeName} has no fields; name them`);
  const gap = (align - size % align) % align;
  if (gap > 0) {
    throw new TypeError(`${typeName}: ${gap} bytes at the end have no name; give them one, such as \
array(u8, ${gap})`);
  }
  return type;
}

/** How a field is read and written. */
function accessors(kind: Kind, offset: number): PropertyDescriptor & ThisType<StructValue> {
  const shared = { enumerable: true, configurable: false };
  if (kind instanceof NumberKind) {
    const { read } = kind;
    return {
      ...shared,
      get() {
        const at = placeOf(this) + offset;
        return read(this[ROOM].core.view, at);
      },
      set(value) {
        kind.set(this[ROOM].core, placeOf(this) + offset, value);
      },
    };
  }
  return {
    ...shared,
    get() {
      const place = () => ({ place: () => placeOf(this) + offset });
      return kind.get(this[ROOM].core, placeOf(this) + offset, place);
    },
    set(value) {
      const prepared = kind.prepare(this[ROOM].core, value);
      prepared()(placeOf(this) + offset);
    },
  };
}

export function hex(layout: bigint): string {
  return `0x${layout.toString(16).padStart(16, "0")}`;
}
