// Builds the module of WebAssembly that knows heaps, which is in Rust, and copies it into `dist`.
import { execFileSync } from "node:child_process";
import { copyFileSync } from "node:fs";

const TARGET = "wasm32-wasip1";

export function buildHeapModule() {
  const args = ["build", "-p", "holdfast-web-heap", "--lib", "--target", TARGET,
    "--profile", "applet", "--message-format", "json-render-diagnostics"];
  let told;
  try {
    told = execFileSync("cargo", args, {
      cwd: new URL("../..", import.meta.url), encoding: "utf8", maxBuffer: 1 << 28,
      stdio: ["ignore", "pipe", "inherit"] });
  } catch (error) {
    console.error(error.code === "ENOENT"
      ? "cargo is missing, which builds dist/heap.wasm: install Rust from https://rustup.rs"
      : `dist/heap.wasm was not built (see above); rustup target add ${TARGET} adds its target`);
    process.exit(1);
  }
  const files = told.split("\n").filter((line) => line.startsWith("{"))
    .flatMap((line) => JSON.parse(line).filenames ?? []);
  const [module] = files.filter((file) => file.endsWith("holdfast_web_heap.wasm"));
  copyFileSync(module, "dist/heap.wasm");
}
