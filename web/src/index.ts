export { Applet, run, type Run, type RunOptions, type Wasi } from "./applet.js";
export * from "./errors.js";
export { type HeapGrant, type HeapOptions } from "./heaps.js";
export { HostFailure, type HostFunction, type Output } from "./host-functions.js";
export { LIMIT_MAX } from "./layout.js";
export { type CallOptions } from "./mailbox.js";
export { PAGE_SIZE, PageStore, type Durability, type OpenOptions, type Phase } from "./page-store.js";
export { SharedApplet } from "./shared-applet.js";
export * from "./transfer.js";
