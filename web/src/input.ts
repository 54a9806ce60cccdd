/** What a call takes: bytes in any form, or text. */
export type Input = ArrayBuffer | ArrayBufferView | string;

/** The bytes of an input, in place where they are bytes. Throws a `TypeError` for anything else. */
export function bytesOf(input: Input): Uint8Array {
  if (input instanceof Uint8Array) return input;
  if (typeof input === "string") return new TextEncoder().encode(input);
  if (input instanceof ArrayBuffer) return new Uint8Array(input);
  if (ArrayBuffer.isView(input)) return new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
  throw new TypeError(`a call takes bytes or text, and not ${describe(input)}`);
}

/** What a value is, for words. */
export function describe(value: unknown): string {
  if (value === null || typeof value !== "object") return String(value === null ? null : typeof value);
  return value.constructor?.name ?? "an object";
}
