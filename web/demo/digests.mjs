// MD5 of bytes in JavaScript, by a kept library, and in WebAssembly, by the applet `md5`.
import { Applet } from "../dist/index.js";
import "../node_modules/js-md5/build/md5.min.js";
import { shim } from "./race.mjs";

let applet;
const ways = {
  javascript: (bytes) => self.md5(bytes),
  async wasm(bytes) {
    const digest = await applet.call("digest", bytes);
    return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  },
};

onmessage = async ({ data: { way, bytes } }) => {
  try {
    if (way === "wasm") {
      applet ??= await Applet.open(await WebAssembly.compileStreaming(
        fetch(new URL("applets/md5.wasm", import.meta.url))), { wasi: shim("md5", []) });
    }
    const started = performance.now();
    const digest = await ways[way](bytes);
    postMessage({ ms: performance.now() - started, digest });
  } catch (error) {
    postMessage({ error: `${error.name}: ${error.message}` });
  }
};
