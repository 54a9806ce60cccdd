export * from "./applet.js";
export * from "./errors.js";
export { LIMIT_MAX } from "./layout.js";
export * from "./page-store.js";
export * from "./transfer.js";
