/** The build puts the package's one file beside ours: a worker has no import map for its name. */
export { createXXHash3 } from "hash-wasm";
