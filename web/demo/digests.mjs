// MD5 of bytes in JavaScript, by a kept library, and in WebAssembly, by the applet `md5`.
import { Applet } from "../dist/index.js";
import "../node_modules/js-md5/build/md5.min.js";
import { shim } from "./race.mjs";

const MIB = 2 ** 20;
/** What one call takes. A longer message goes in parts, whose state is in a heap. */
const CALL_BYTES = 64 * MIB, PART_BYTES = 8 * MIB;
const HEAP = { heap: "digest", limit: 16 * MIB, durability: "relaxed" };
/** A worker that was just ended may have that heap for a moment. */
const WAIT_MS = 5000;

let module, whole, parts;
async function open(options) {
  module ??= WebAssembly.compileStreaming(fetch(new URL("applets/md5.wasm", import.meta.url)));
  return await Applet.open(await module, { wasi: shim("md5", []), ...options });
}

const ways = {
  javascript: (bytes) => self.md5(bytes),
  async wasm(bytes) {
    if (bytes.length <= CALL_BYTES) return hex(await whole.call("digest", bytes));
    await parts.call("begin");
    for (let at = 0; at < bytes.length; at += PART_BYTES) {
      await parts.call("update", bytes.subarray(at, at + PART_BYTES));
    }
    return hex(await parts.call("finish"));
  },
};

const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

onmessage = async ({ data: { way, bytes } }) => {
  try {
    if (way === "wasm" && bytes.length <= CALL_BYTES) whole ??= await open({});
    else if (way === "wasm") parts ??= await open({ ...HEAP, wait: AbortSignal.timeout(WAIT_MS) });
    const started = performance.now();
    const digest = await ways[way](bytes);
    postMessage({ ms: performance.now() - started, digest });
  } catch (error) {
    // The wait for another tab ended; the browser's words do not say so.
    const words = error.name === "TimeoutError" ? "another tab still digests a file; try again when that is done"
      : `${error.name}: ${error.message}`;
    postMessage({ error: words });
  }
};
