// What the compiler must take of typed access, and what it must refuse; never run.
import {
  type Applet, array, f64, i16, KeptDocument, NativeApplet, PersistentArray, PersistentHeap, PersistentMap, ref,
  StorageFailedError, struct, u64, u8, type StructOf,
} from "../dist/index.js";

const Point = struct("Point", { x: f64, next: ref("Point"), bytes: array(u8, 16), big: u64 });
const Line = struct("Line", {
  from: Point, to: ref(Point), list: array(ref(Point), 3), later: ref(() => Point),
});

export async function taken(): Promise<unknown[]> {
  const heap = await PersistentHeap.open("types");
  const point: StructOf<typeof Point.fields> =
    Point.open(heap, "first") ?? Point.create(heap, "first", { x: 1, bytes: [1] });
  const [bytes, big]: [Uint8Array, bigint] = [point.bytes, point.big];
  point.next = Point.new(heap, { x: point.x + 1 });
  point.big = big;
  // @ts-expect-error A float is no text.
  point.x = "1";
  // @ts-expect-error There is no such field.
  Point.new(heap, { y: 1 });
  const line = Line.new(heap, { from: { x: 1 } });
  const fields: (number | undefined)[] =
    [line.from.x, line.to?.x, line.list.get(0)?.x, line.later?.x];
  const numbers = PersistentMap.open(heap, "numbers", { value: "number" }).set("a", 1);
  const number: number | undefined = numbers.get("a");
  // @ts-expect-error Values are numbers.
  numbers.set("b", "text");
  for (const [key, value] of numbers) key.repeat(value);
  const points = PersistentMap.open(heap, "points", { key: "bytes", value: Point });
  const x: number | undefined = points.get(bytes)?.x;
  PersistentArray.open(heap, "list", i16).push(1, 2);
  PersistentArray.open(heap, "structs", Point).push({ x: 1 }, point);
  const root: number | undefined = heap.root("first", Point)?.x;
  const five: 5 = heap.transaction(() => 5 as const);
  const name = KeptDocument.open(heap, "page").querySelector("a")?.parent?.tagName;
  return [fields, number, x, root, five, name, heap.root("first")?.layout];
}

/** Openings, exports and failures. */
export async function opened(applet: Applet, heap: PersistentHeap, signal: AbortSignal): Promise<unknown[]> {
  const native: NativeApplet =
    await NativeApplet.open("/a", { sha256: "0".repeat(64), signal, openTimeoutMs: 1000, heaps: ["a"] });
  // @ts-expect-error The hash is a text.
  await NativeApplet.open("/a", { sha256: new Uint8Array(32) });
  const streams: Blob[] = [await applet.exportHeap("a"), await applet.exportHeap(), await heap.exportHeap()];
  const cause: unknown = new StorageFailedError("failed", { cause: streams }).cause;
  return [native, cause];
}
