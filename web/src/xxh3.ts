/** XXH3-64, the sum of streams and snapshots. */
import { createXXHash3 } from "./hash-wasm.js";

/** The sum of some bytes, one part after the other. */
export type Sum = (...parts: Uint8Array[]) => bigint;

export async function summer(): Promise<Sum> {
  const hasher = await createXXHash3();
  return (...parts) => {
    hasher.init();
    parts.forEach((part) => hasher.update(part));
    return BigInt(`0x${hasher.digest("hex")}`);
  };
}
