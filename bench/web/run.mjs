// What the suite `web` measures: `node run.mjs SECTION RUNS` prints one line of JSON, the values of
// each series by its name. The two sides of a comparison take turns, each first every other time.
import { spawn, spawnSync } from "node:child_process";
import { once as event } from "node:events";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Browser, APPLETS, HOLDFAST, serve, stepper } from "../../web/test/browsers.mjs";

const MIB = 2 ** 20;
/** As `web/demo/race.mjs` has them. */
const BYTES_PER_WORD = 88;
const WAYS = ["heap", "opfsFile", "indexedDb", "indexedDbMap"];
const FOLDERS = {
  bench: new URL(".", import.meta.url).pathname,
  text: "/usr/share/common-licenses",
  ...named(process.env),
};
const SECTIONS = { restore, reload, large_pages, commit, mail, spellcheck, programs, run, native, views };
/** Where the programs of the first paper have their objects, and bytes of the buffer of files. */
const PROGRAM_WAYS = {
  heap: ["heap"], opfs: ["opfs", 64 << 10], opfs_records: ["opfs"], indexeddb: ["indexeddb", 64 << 10] };
/**
 * What is run on a set of files, by the first part of its name; the second one is its size. `record` is
 * the buffer of files where the program reads and writes without one: none, or glibc's for what has no
 * records. The shim copies a file in memory whole for each write behind its end: no peer for `fasta`.
 */
const JOBS = {
  compress: (names) => ({ args: ["compress", "--count", String(names.length)], inputs: names,
    outputs: names.map((name) => name.replace("file-", "snappy-")), record: 4096 }),
  mail: (names) => ({ args: ["mail-parsed"], heap: ["mail-kept"], prepare: ["mail-learn"], inputs: names,
    outputs: [], record: 0 }),
  fasta: (_names, size) => ({ args: ["fasta", "output", "--n", size], inputs: [], outputs: ["output"],
    record: 0, without: ["indexeddb"] }),
};

const chromium = new Browser();
const server = await serve(FOLDERS);
const series = {};
const [, , section, runs] = process.argv;
try {
  await SECTIONS[section](Number(runs));
  console.log(JSON.stringify(series));
} finally {
  await chromium.remove();
  server.close();
}

/** Folders that the suite was given for its pages. */
function named({ HOLDFAST_WORD_LISTS: dict, HOLDFAST_MAILS: mails, HOLDFAST_VIDEOS: videos,
  HOLDFAST_PROGRAM_FILES: inputs }) {
  return { ...(dict && { dict }), ...(mails && { mails }), ...(videos && { videos }),
    ...(inputs && { inputs }) };
}

function add(name, value) {
  (series[name] ??= []).push(value);
}

/** A worker in a new page, as after a reload. */
async function fresh() {
  const page = await chromium.page();
  await page.goto(`${server.origin}/`);
  const step = await stepper(page, "/bench/worker.mjs");
  return {
    async step(name, rest) {
      const result = await step(name, rest);
      if (typeof result === "string") throw new Error(`${name}: ${result}`);
      return result;
    },
    close: () => page.close(),
  };
}

/** One step in a page of its own. */
async function once(name, rest) {
  const page = await fresh();
  try {
    return await page.step(name, rest);
  } finally {
    await page.close();
  }
}

/** Runs the sides of a comparison in turns; each has a name and gives its values by name. */
async function inTurns(count, sides) {
  const order = Object.entries(sides);
  for (let round = 0; round < count; round++) {
    for (const [, side] of round % 2 ? order.toReversed() : order) await side(round);
  }
}

/** A heap of some size back in linear memory, after a reload. */
async function restore(count) {
  for (const size of [1, 16, 64, 256]) {
    await once("fillStore", { name: `restore-${size}`, size: size * MIB });
    for (let round = 0; round < count; round++) {
      const job = { name: `restore-${size}`, size: size * MIB };
      const { ms, readMs, againMs, touchMs } = await once("restoreStore", job);
      add(`restore_ms_${size}mib`, ms);
      add(`plain_read_ms_${size}mib`, readMs);
      add(`plain_read_again_ms_${size}mib`, againMs);
      add(`first_touch_us_per_4kib_${size}mib`, touchMs * 1000 / (size * 256));
    }
  }
}

/** The state of a program back after a reload: a heap, against files and IndexedDB with a parser. */
async function reload(count) {
  for (const size of [1, 16, 64]) {
    const [name, words] = [`state-${size}`, Math.floor(size * MIB / BYTES_PER_WORD)];
    const { heapBytes, jsonBytes } = await once("makeState", { name, words });
    add(`state_heap_mib_${size}`, heapBytes / MIB);
    add(`state_json_mib_${size}`, jsonBytes / MIB);
    await inTurns(count, Object.fromEntries(WAYS.map((way) => [way, async () =>
      add(`${way}_ms_${size}`, (await once("state", { name, words, way })).ms)])));
  }
}

/** Both, on a system that was told to give large pages to all programs. */
async function large_pages(count) {
  await restore(count);
  await reload(count);
}

/** A hundred changed pages of a heap, found and stored. */
async function commit(count) {
  for (const size of [1, 16, 64, 256]) {
    const page = await fresh();
    const { ours, found, known, plain } = await page.step("commits", { size: size * MIB, count });
    ours.forEach((ms) => add(`commit_ms_${size}`, ms));
    found.forEach((ms) => add(`find_ms_${size}`, ms));
    known.forEach((ms) => add(`known_ms_${size}`, ms));
    plain.forEach((ms) => add(`plain_ms_${size}`, ms));
    await page.close();
  }
}

/** A classifier of mail that has learnt: its heap, against its counts as text. */
async function mail(count) {
  const entries = await readdir(FOLDERS.mails, { withFileTypes: true });
  const mails = [];
  for (const { name: folder } of entries.filter((entry) => entry.isDirectory())) {
    const names = (await readdir(join(FOLDERS.mails, folder))).filter((name) => name.endsWith(".txt"));
    names.forEach((name, index) => mails.push({ folder, name, isTest: index % 10 === 0 }));
  }
  const learn = mails.filter(({ isTest }) => !isTest), test = mails.filter(({ isTest }) => isTest);
  const trainer = await fresh();
  const { words, textBytes, ms, share } = await trainer.step("learn", { learn, test });
  await trainer.close();
  add("mail_learnt", learn.length);
  add("mail_words", words);
  add("mail_text_mib", textBytes / MIB);
  add("mail_learn_ms", ms);
  add("mail_right_share", share);
  const job = { mails: test.slice(0, 10) };
  const sides = Object.fromEntries(["start", "heap", "opfs", "indexeddb"].map((way) =>
    [way, async () => add(`mail_${way}_ms`, (await once("classify", { ...job, way })).ms)]));
  await inTurns(count, sides);
}

/**
 * The spell check of a text: its tables in a heap, against dictionaries that are parsed, all of them and
 * WordNet's alone.
 */
async function spellcheck(count) {
  const all = (await readdir(FOLDERS.dict)).sort();
  await once("keepDictionaries", { lists: all });
  const ofWordNet = all.filter((name) => /^index\.|\.exc$/.test(name));
  for (const [set, lists] of [["spell", all], ["spell_wordnet", ofWordNet]]) {
    let isBuilt = false;
    let unknownWords;
    const sides = Object.fromEntries(["heap", "opfs", "indexeddb"].map((way) => [way, async () => {
      const { ms, unknown } = await once("spell", { way, heap: set, lists, isBuilt });
      if (isBuilt) add(`${set}_${way}_ms`, ms);
      unknownWords ??= unknown;
      if (unknown !== unknownWords) throw new Error("the ways find different words");
    }]));
    await sides.heap();
    isBuilt = true;
    await inTurns(count, sides);
  }
}

/** The same applet's programs over a heap, files of OPFS, and IndexedDB; they must agree. */
async function programs(count) {
  for (const set of (await readdir(FOLDERS.inputs)).sort()) {
    const names = (await readdir(join(FOLDERS.inputs, set))).sort();
    const [kind, size] = set.split("-");
    const { without = [], ...job } = JOBS[kind](names, size);
    if (names.length > 0) await once("putFiles", { set, names, from: `/inputs/${set}` });
    if (job.prepare) await once("program", { way: "heap", set, args: job.prepare });
    const results = new Set();
    const side = ([name, [way, buffer]]) => [name, async () => {
      const args = way === "heap" ? job.heap ?? job.args : job.args;
      const { ms, result } = await once("program", { ...job, way, set, args, buffer: buffer ?? job.record });
      add(`${set}_${name}_ms`, ms);
      results.add(result);
    }];
    const sides = Object.entries(PROGRAM_WAYS).filter(([name]) => !without.includes(name)).map(side);
    await inTurns(count, Object.fromEntries(sides));
    if (results.size > 1) throw new Error(`${set}: the ways do not agree: ${[...results].join(" / ")}`);
  }
}

/** The same applets in the page and in `holdfast`, whole. */
async function run(count) {
  const home = await mkdtemp(join(tmpdir(), "holdfast-bench-web-"));
  const rounds = Buffer.alloc(8);
  rounds.writeBigUInt64LE(30_000_000n);
  const jobs = [
    { applet: "table", name: "work", input: rounds, heap: true },
    { applet: "md5", name: "digest", input: Buffer.alloc(48 * MIB, "holdfast"), heap: false },
  ];
  try {
    for (const { applet, name, input, heap } of jobs) {
      const file = join(home, `${applet}.input`);
      await writeFile(file, input);
      const words = ["call", join(APPLETS, `${applet}.wasm`), name, "--input", file, "--timeout", "10m"];
      if (heap) words.push("--heap", applet, "--app", "bench");
      const command = () => {
        const started = performance.now();
        const { status, stdout, stderr } = spawnSync(HOLDFAST, words, {
          env: { ...process.env, HOLDFAST_HOME: join(home, "home"), HOLDFAST_POOL: join(home, "pool") } });
        if (status !== 0) throw new Error(`holdfast ended with ${status}: ${stderr}`);
        return { ms: performance.now() - started, output: stdout.toString("base64") };
      };
      const page = await fresh();
      const inPage = () => page.step("callWhole", {
        applet, name, heap: heap && `run-${applet}`, path: `/inputs/${applet}.input` });
      server.add("inputs", home);
      command();
      await inPage();
      const outputs = { command: [], page: [] };
      await inTurns(count, {
        command: async () => {
          const { ms, output } = command();
          outputs.command.push(output);
          add(`${applet}_holdfast_ms`, ms);
        },
        page: async () => {
          const { ms, output } = await inPage();
          outputs.page.push(output);
          add(`${applet}_page_ms`, ms);
        },
      });
      const different = outputs.page.filter((output, round) => output !== outputs.command[round]);
      if (different.length > 0) throw new Error(`${applet} gives another result in the page`);
      await page.close();
    }
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

/** Maps, arrays, values and documents of JavaScript in a heap, each round in a heap of its own. */
async function views(count) {
  for (let round = 0; round < count; round++) {
    Object.entries(await once("views")).forEach(([name, ns]) => add(`${name}_ns`, ns));
  }
}

/** Native applets behind a page, which another server brought: calls, and the frames of a video. */
async function native(count) {
  const home = await mkdtemp(join(tmpdir(), "holdfast-bench-web-"));
  const words = ["serve", "--web", home, "--allow", server.origin, "--listen", "127.0.0.1:0"];
  const child = spawn(HOLDFAST, words, {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, HOLDFAST_HOME: join(home, "home"), HOLDFAST_POOL: join(home, "pool") } });
  try {
    const [line] = await event(child.stdout, "data");
    const address = String(line).trim();
    for (let round = 0; round < count; round++) {
      for (const ms of (await once("nativeCalls", { address, count: 1000 })).times) {
        add("native_call_ms", ms);
      }
      if (!FOLDERS.videos) continue;
      const { perSecond, rate } = await once("nativeVideo", { address });
      add("video_per_s", perSecond);
      add("video_rate", rate);
    }
  } finally {
    child.kill();
    await rm(home, { recursive: true, force: true });
  }
}
