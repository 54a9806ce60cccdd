// Puts the demo together: `node demo/assemble.mjs FOLDER APPLETS`, with what it loads, in a folder that
// any server of files can serve.
import { cpSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const [, , folder, applets] = process.argv;
const web = new URL("..", import.meta.url).pathname;
const shim = "node_modules/@bjorn3/browser_wasi_shim/dist";
const words = ["index.noun", "index.verb", "index.adj", "index.adv", "noun.exc", "verb.exc", "adj.exc", "adv.exc"];

rmSync(folder, { recursive: true, force: true });
const copy = (from, to) => {
  mkdirSync(dirname(join(folder, to)), { recursive: true });
  cpSync(from, join(folder, to), { recursive: true, dereference: true });
};
for (const part of ["dist", "demo", shim]) copy(join(web, part), part);
for (const name of ["mail.wasm", "spellcheck.wasm"]) copy(join(applets, name), `demo/applets/${name}`);
for (const name of words) copy(join("/usr/share/wordnet", name), `demo/dict/${name}`);
copy("/usr/share/dict/american-english-huge", "demo/dict/american-english-huge");
writeFileSync(join(folder, "index.html"),
  '<!doctype html><meta http-equiv="refresh" content="0; url=demo/index.html"><a href="demo/index.html">Demo</a>\n');
