// Puts the demo together: `node demo/assemble.mjs FOLDER APPLETS [VIDEO]`, with all that it loads, in a
// folder that `holdfast serve --web` or any server of files serves.
import { cpSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const [, , folder, applets, video] = process.argv;
const web = new URL("..", import.meta.url).pathname;
const packages = ["node_modules/@bjorn3/browser_wasi_shim/dist", "node_modules/js-md5/build"];
const words = ["index.noun", "index.verb", "index.adj", "index.adv", "noun.exc", "verb.exc", "adj.exc", "adv.exc"];

rmSync(folder, { recursive: true, force: true });
const copy = (from, to) => {
  mkdirSync(dirname(join(folder, to)), { recursive: true });
  cpSync(from, join(folder, to), { recursive: true, dereference: true });
};
for (const part of ["dist", "demo", ...packages]) copy(join(web, part), part);
for (const name of ["mail.wasm", "md5.wasm", "spellcheck.wasm", "md5", "video"]) {
  // The decoder is not built where the system lacks its libraries.
  if (existsSync(join(applets, name))) copy(join(applets, name), `demo/applets/${name}`);
}
for (const name of words) copy(join("/usr/share/wordnet", name), `demo/dict/${name}`);
copy("/usr/share/dict/american-english-huge", "demo/dict/american-english-huge");
if (video && existsSync(video)) copy(video, "demo/videos/sample.mpg");
writeFileSync(join(folder, "index.html"),
  '<!doctype html><meta http-equiv="refresh" content="0; url=demo/index.html"><a href="demo/index.html">Demo</a>\n');
