// The programs of the first paper in a page (`applets/programs`): over a heap, over files of OPFS, and
// over records of IndexedDB. A time is that of the whole: from fetching the program on until what it
// wrote is on the disk, and everything is closed.
import { run } from "/dist/index.js";
import { folderOf, inDatabase, shim } from "/demo/race.mjs";
import { File, PreopenDirectory, SyncOPFSFile,
} from "/node_modules/@bjorn3/browser_wasi_shim/dist/index.js";

const MIB = 2 ** 20;
const LIMIT = 1536 * MIB;
/** Names that one command line takes; and files that are fetched at once. */
const NAMES = 1000, AT_ONCE = 50;
/** What WASI's program finds its files below. */
const FOLDER = "/files";
const program = () => WebAssembly.compileStreaming(fetch("/applets/programs.wasm"));

/** Runs the program once; the lines that it printed. */
async function ran(args, { contents, ...heap }) {
  const lines = [];
  const folders = contents ? [new PreopenDirectory(FOLDER, contents)] : [];
  const { exitCode } = await run(program(), { ...heap, limit: LIMIT,
    wasi: shim("programs", lines, contents ? [...args, "--dir", FOLDER] : args, folders) });
  if (exitCode !== 0) throw new Error(`programs ${args[0]} ended with ${exitCode}: ${lines.join(" ")}`);
  return lines;
}

/** Files of the set `set`, beside its heap, all opened at once, as their opening is asynchronous. */
async function opened(set, names) {
  // A heap has no name that a folder of the page has.
  const folder = await folderOf(`${set}-files`);
  return new Map(await Promise.all(names.map(async (file) =>
    [file, await (await folder.getFileHandle(file, { create: true })).createSyncAccessHandle()])));
}

const putAll = (records) => inDatabase("readwrite", (store) => {
  let last;
  for (const [name, bytes] of records) last = store.put(bytes, name);
  return last;
});

async function getAll(names) {
  const found = new Map();
  await inDatabase("readonly", (store) => {
    let last;
    for (const name of names) {
      last = store.get(name);
      last.onsuccess = ({ target }) => found.set(name, target.result);
    }
    return last;
  });
  return found;
}

/** Each runs a program over objects of the set `set`, and returns what it printed. */
const ways = {
  heap: ({ set, args }) => ran([...args, "--storage", "heap"], { heap: set }),

  async opfs({ set, args, inputs, outputs, buffer }) {
    const files = await opened(set, [...inputs, ...outputs]);
    const contents = new Map([...files].map(([name, file]) => [name, new SyncOPFSFile(file)]));
    const lines = await ran([...args, "--buffer", String(buffer)], { contents });
    outputs.forEach((name) => files.get(name).flush());
    files.forEach((file) => file.close());
    return lines;
  },

  async indexeddb({ set, args, inputs, outputs, buffer }) {
    const key = (name) => `${set}/${name}`;
    const records = inputs.length > 0 ? await getAll(inputs.map(key)) : new Map();
    const contents = new Map(inputs.map((name) => [name, new File(records.get(key(name)))]));
    const lines = await ran([...args, "--buffer", String(buffer)], { contents });
    if (outputs.length > 0) {
      await putAll(outputs.map((name) => [key(name), contents.get(name).data]));
    }
    return lines;
  },
};

export const programSteps = {
  /** Puts files of the server into the set `set`, in all ways. */
  async putFiles({ set, names, from }) {
    for (let at = 0; at < names.length; at += NAMES) {
      const part = names.slice(at, at + NAMES);
      const contents = new Map();
      for (let first = 0; first < part.length; first += AT_ONCE) {
        await Promise.all(part.slice(first, first + AT_ONCE).map(async (name) => contents.set(name,
          new Uint8Array(await (await fetch(`${from}/${name}`)).arrayBuffer()))));
      }
      const files = await opened(set, part);
      files.forEach((file, name) => {
        file.truncate(0);
        file.write(contents.get(name), { at: 0 });
        file.flush();
        file.close();
      });
      await putAll([...contents].map(([name, bytes]) => [`${set}/${name}`, bytes]));
      await ran(["import", ...part, "--storage", "heap"], { heap: set,
        contents: new Map([...contents].map(([name, bytes]) => [name, new File(bytes)])) });
    }
    return {};
  },

  /** Runs a program in one of the ways; what is printed of its time and its calls is left out. */
  async program({ way, ...job }) {
    const started = performance.now();
    const lines = await ways[way](job);
    const ms = performance.now() - started;
    const result = lines.filter((line) => !/^(ns|reading_ns|encoding_ns|crossings) /.test(line)).join("\n");
    return { ms, result };
  },
};
