// The parts of the demo whose work is done by native applets: a video, and digests of a file.
import { NativeApplet } from "../dist/index.js";
import { $, caption, milliseconds, onPress, shape } from "./draw.mjs";

const applet = (name) => new URL(`applets/${name}`, import.meta.url);
const decoder = new TextDecoder();
const MIB = 2 ** 20;
/** Less than a call takes. */
const PART_BYTES = 8 * MIB;
/** As much as a call takes with its head. The decoder takes a video whole. */
const VIDEO_BYTES_MAX = 16 * MIB - 1024;

/** Runs work that no other press of its kind disturbs; what it returns is said of its canvas. */
function guarded(canvas, output, work) {
  let running = Promise.resolve();
  return (...rest) => {
    running = running.then(async () => {
      $(output).classList.remove("failed");
      caption($(canvas), $(output), await work(...rest));
    }).catch((error) => fail(canvas, output, error));
    return running;
  };
}

function fail(canvas, output, error) {
  caption($(canvas), $(output), error.message || error.name);
  $(output).classList.add("failed");
}

const play = guarded("screen", "video-figures", async (file) => {
  if (file.size > VIDEO_BYTES_MAX) {
    throw new Error(`The video has ${(file.size / MIB).toFixed(1)} MiB. The decoder takes a video in one call, and a \
call takes less than 16 MiB: choose a shorter one.`);
  }
  $("video-figures").textContent = "the decoder starts …";
  const bytes = new Uint8Array(await file.arrayBuffer());
  const video = await NativeApplet.open(applet("video"));
  try {
    const { width, height, frames, rate, codec } = JSON.parse(decoder.decode(await video.call("open", bytes)));
    const screen = $("screen");
    [screen.width, screen.height] = [width, height];
    const context = screen.getContext("2d");
    const started = performance.now();
    let shown = 0, late = 0;
    for await (const chunk of video.stream("play")) {
      const due = Number(new DataView(chunk.buffer, chunk.byteOffset).getBigUint64(0, true)) / 1000;
      const pixels = new Uint8ClampedArray(chunk.buffer, chunk.byteOffset + 8, width * height * 4);
      const early = due - (performance.now() - started);
      if (early > 1) await new Promise((done) => setTimeout(done, early));
      else if (early < -1000 / rate) late += 1;
      context.putImageData(new ImageData(pixels, width, height), 0, 0);
      shown += 1;
    }
    const perSecond = shown / (performance.now() - started) * 1000;
    return `${codec}, ${width} × ${height}: ${shown} of ${frames} frames, \
${perSecond.toFixed(1)} a second of ${rate.toFixed(1)}, ${late} late.`;
  } finally {
    await video.close();
  }
});

/** The three ways to a digest, as functions from bytes to hexadecimal text. */
function ways() {
  const worker = new Worker(new URL("digests.mjs", import.meta.url), { type: "module" });
  const broken = new Promise((_, failed) => {
    // A script that does not load has no message.
    worker.onerror = ({ message }) => failed(new Error(message || "the worker did not start"));
  });
  broken.catch(() => {});
  const inWorker = (way) => (bytes) => Promise.race([broken, new Promise((done, failed) => {
    worker.onmessage = ({ data }) => data.error ? failed(new Error(data.error)) : done(data);
    worker.postMessage({ way, bytes });
  })]);
  let opening;
  // A longer message goes in parts, whose state is in a heap.
  const nativeDigest = async (native, bytes) => {
    if (bytes.length <= PART_BYTES) return await native.call("digest", bytes);
    const calls = [];
    const begin = (...call) => {
      calls.push(native.call(...call));
      // It may fail while another one is waited for.
      calls.at(-1).catch(() => {});
    };
    begin("begin");
    for (let at = 0; at < bytes.length; at += PART_BYTES) {
      begin("update", bytes.subarray(at, at + PART_BYTES));
      // Calls that wait have copies of their parts.
      if (calls.length % 8 === 0) await calls.at(-1);
    }
    begin("finish");
    return (await Promise.all(calls)).at(-1);
  };
  return {
    list: {
      JavaScript: inWorker("javascript"),
      WebAssembly: inWorker("wasm"),
      native: async (bytes) => {
        opening ??= NativeApplet.open(applet("md5"), { heaps: ["digest"] });
        const native = await opening;
        const started = performance.now();
        const digest = await nativeDigest(native, bytes);
        return { ms: performance.now() - started, digest: hex(digest) };
      },
    },
    close: async () => {
      worker.terminate();
      await opening?.then((native) => native.close(), () => {});
    },
  };
}

const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** How each way is named in a sentence. */
const NAMES = { JavaScript: "in JavaScript", WebAssembly: "in WebAssembly", native: "natively" };

const digest = guarded("plot", "digest-figures", async (file) => {
  $("digest-figures").textContent = "the applets start …";
  const bytes = new Uint8Array(await file.arrayBuffer());
  const { list, close } = ways();
  try {
    const sizes = [];
    for (let size = 64; size < bytes.length; size *= 4) sizes.push(size);
    sizes.push(bytes.length);
    const curves = Object.fromEntries(Object.keys(list).map((name) => [name, []]));
    /** Why a way goes on no more; the others do. */
    const failures = {};
    let digests;
    for (const size of sizes) {
      // Of a part, all bytes would be copied to the worker.
      const part = size < bytes.length ? bytes.slice(0, size) : bytes;
      digests = new Set();
      for (const [name, way] of Object.entries(list)) {
        if (name in failures) continue;
        try {
          const times = [];
          for (let round = 0; round < (size < MIB ? 9 : 3); round++) {
            const { ms, digest: found } = await way(part);
            times.push(ms);
            digests.add(found);
          }
          curves[name].push({ size, ms: times.toSorted((a, b) => a - b)[times.length >> 1] });
        } catch (error) {
          failures[name] = reason(error);
        }
      }
      const reasons = Object.values(failures);
      if (reasons.length === Object.keys(list).length) throw new Error(reasons.join("; "));
      if (digests.size > 1) throw new Error(`the digests of ${size} bytes differ: ${[...digests].join(", ")}`);
      $("digest-figures").textContent = `${size.toLocaleString("en")} bytes …`;
      plot(curves);
    }
    return summary(curves, failures, [...digests][0]);
  } finally {
    await close();
  }
});

/** What the curves say, in sentences. */
function summary(curves, failures, digest) {
  const whole = Object.keys(curves).filter((name) => !(name in failures));
  const times = whole.map((name) => `${milliseconds(curves[name].at(-1).ms)} ${NAMES[name]}`);
  const sentences = [`MD5 ${digest}. The whole: ${times.join(", ")}.`];
  for (const [name, why] of Object.entries(failures)) sentences.push(`Not ${NAMES[name]}: ${why}.`);
  for (const other of whole.filter((name) => name !== "native" && whole.includes("native"))) {
    const from = curves.native.find(({ ms }, index) => ms < curves[other][index].ms)?.size;
    const pays = from === undefined ? "does not pay for this file" : `pays from ${from.toLocaleString("en")} bytes on`;
    sentences.push(`Against ${other} the native applet ${pays}.`);
  }
  return sentences.join(" ");
}

function reason(error) {
  if (error.failure === "no-server") return "that needs holdfast serve, which serves this page with ./demo web";
  return error.message || error.name;
}

/** Time by size, both in powers. */
function plot(curves) {
  const { context, width, height, colour } = shape($("plot"), 0.5);
  const points = Object.values(curves).flat();
  const log = (value) => Math.log10(Math.max(value, 0.01));
  const range = (values) => [Math.floor(Math.min(...values)), Math.max(Math.ceil(Math.max(...values)), Math.floor(Math.min(...values)) + 1)];
  const [left, right] = range(points.map(({ size }) => log(size)));
  const [low, high] = range(points.map(({ ms }) => log(ms)));
  const margin = { left: 52, right: 92, top: 8, bottom: 26 };
  const x = (size) => margin.left + (log(size) - left) / (right - left) * (width - margin.left - margin.right);
  const y = (ms) => height - margin.bottom - (log(ms) - low) / (high - low) * (height - margin.top - margin.bottom);
  context.font = "12px system-ui, sans-serif";
  context.lineWidth = 1;
  for (let power = left; power <= right; power++) {
    context.strokeStyle = colour("line");
    context.fillStyle = colour("soft");
    line(context, [[x(10 ** power), margin.top], [x(10 ** power), height - margin.bottom]]);
    const text = power < 3 ? `${10 ** power} B` : power < 6 ? `${10 ** (power - 3)} kB` : `${10 ** (power - 6)} MB`;
    context.fillText(text, x(10 ** power) - 14, height - 8);
  }
  for (let power = low; power <= high; power++) {
    context.strokeStyle = colour("line");
    context.fillStyle = colour("soft");
    line(context, [[margin.left, y(10 ** power)], [width - margin.right, y(10 ** power)]]);
    context.fillText(`${10 ** power} ms`, 2, y(10 ** power) + 4);
  }
  const colours = { JavaScript: "soft", WebAssembly: "changed", native: "accent" };
  let lastLabel = -Infinity;
  const ends = Object.entries(curves).filter(([, curve]) => curve.length > 0)
    .sort(([, one], [, other]) => other.at(-1).ms - one.at(-1).ms);
  for (const [name, curve] of ends) {
    context.strokeStyle = context.fillStyle = colour(colours[name]);
    context.lineWidth = 2;
    line(context, curve.map(({ size, ms }) => [x(size), y(ms)]));
    curve.forEach(({ size, ms }) => context.fillRect(x(size) - 2.5, y(ms) - 2.5, 5, 5));
    lastLabel = Math.max(lastLabel + 14, y(curve.at(-1).ms) + 4);
    context.fillText(name, x(curve.at(-1).size) + 8, lastLabel);
  }
}

function line(context, points) {
  context.beginPath();
  points.forEach(([x, y], index) => index === 0 ? context.moveTo(x, y) : context.lineTo(x, y));
  context.stroke();
}

onPress($("play"), async () => {
  const answer = await fetch(new URL("videos/sample.mpg", import.meta.url));
  if (!answer.ok) throw new Error("There is no sample here; choose a video of yours.");
  await play(await answer.blob());
}, (error) => fail("screen", "video-figures", error));
$("video-file").addEventListener("change", ({ target }) => {
  if (target.files[0]) play(target.files[0]);
});
onPress($("digest"), () => digest(new Blob([new Uint8Array(32 * MIB)])),
  (error) => fail("plot", "digest-figures", error));
$("digest-file").addEventListener("change", ({ target }) => {
  if (target.files[0]) digest(target.files[0]);
});
for (const event of ["dragover", "drop"]) {
  $("plot").closest("section").addEventListener(event, (dragged) => {
    dragged.preventDefault();
    const file = event === "drop" && dragged.dataTransfer.files[0];
    if (file) digest(file);
  });
}
