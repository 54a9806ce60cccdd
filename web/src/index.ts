export * from "./applet.js";
export * from "./errors.js";
export * from "./page-store.js";
