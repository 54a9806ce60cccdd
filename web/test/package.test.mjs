// What the package has for those who install it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { test } from "node:test";

const WEB = new URL("..", import.meta.url);

// Guarantee: web/package
test("the package has its licences, its types and its module", () => {
  const told = execFileSync("npm", ["pack", "--dry-run", "--json", "--silent"], { cwd: WEB, encoding: "utf8" });
  const paths = JSON.parse(told)[0].files.map(({ path }) => path);
  for (const path of ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "dist/index.js", "dist/index.d.ts",
    "dist/hash-wasm.js", "dist/page-sum-wasm.js", "dist/heap.wasm"]) {
    assert.ok(paths.includes(path), path);
  }
  // A bundler finds the module of a heap by its name.
  const { resolve } = createRequire(import.meta.url);
  assert.equal(resolve("@holdfast/web/heap.wasm"), new URL("dist/heap.wasm", WEB).pathname);
});
