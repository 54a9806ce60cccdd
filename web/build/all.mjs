// Builds the package into `dist`: TypeScript, the module that sums pages, the one that knows
// heaps, and the one file of `hash-wasm` (a worker has no import map, by which it could be found under
// its name).
import { execFileSync } from "node:child_process";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import wabt from "wabt";
import { buildHeapModule } from "./heap-module.mjs";

execFileSync("node_modules/.bin/tsc", { stdio: "inherit" });
copyFileSync("node_modules/hash-wasm/dist/index.esm.min.js", "dist/hash-wasm.js");
const name = "src/page-sum.wat";
const { parseWat } = await wabt();
const module = parseWat(name, readFileSync(name, "utf8"), { simd: true });
const bytes = Buffer.from(module.toBinary({}).buffer).toString("base64");
const decoded = `Uint8Array.from(atob("${bytes}"), (letter) => letter.charCodeAt(0))`;
writeFileSync("dist/page-sum-wasm.js", `export const PAGE_SUM = ${decoded};\n`);
buildHeapModule();
