// The parts of the demo whose work is done by native applets: a video, and digests of a file.
import { NativeApplet } from "../dist/index.js";
import { milliseconds, shape } from "./draw.mjs";

const $ = (id) => document.getElementById(id);
const applet = (name) => new URL(`applets/${name}`, import.meta.url);
const decoder = new TextDecoder();
/** Less than a call takes. */
const PART_BYTES = 8 << 20;

/** Runs work that no other press of its kind disturbs. */
function guarded(output, work) {
  let running = Promise.resolve();
  return (...rest) => {
    running = running.then(() => work(...rest)).catch((error) => {
      $(output).textContent = error.message;
      $(output).classList.add("failed");
    });
    return running;
  };
}

const play = guarded("video-figures", async (bytes) => {
  $("video-figures").classList.remove("failed");
  $("video-figures").textContent = "the decoder starts …";
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
    $("video-figures").textContent = `${codec}, ${width} × ${height}: ${shown} of ${frames} frames, \
${perSecond.toFixed(1)} a second of ${rate.toFixed(1)}, ${late} late.`;
  } finally {
    await video.close();
  }
});

/** The three ways to a digest, as functions from bytes to hexadecimal text. */
async function ways() {
  const worker = new Worker(new URL("digests.mjs", import.meta.url), { type: "module" });
  const inWorker = (way) => (bytes) => new Promise((done, failed) => {
    worker.onmessage = ({ data }) => data.error ? failed(new Error(data.error)) : done(data);
    worker.postMessage({ way, bytes });
  });
  // A longer message goes in parts, whose state is in a heap.
  const native = await NativeApplet.open(applet("md5"), { heaps: ["digest"] });
  const nativeDigest = async (bytes) => {
    if (bytes.length <= PART_BYTES) return await native.call("digest", bytes);
    const calls = [native.call("begin")];
    for (let at = 0; at < bytes.length; at += PART_BYTES) {
      calls.push(native.call("update", bytes.subarray(at, at + PART_BYTES)));
    }
    calls.push(native.call("finish"));
    return (await Promise.all(calls)).at(-1);
  };
  return {
    list: {
      JavaScript: inWorker("javascript"),
      WebAssembly: inWorker("wasm"),
      native: async (bytes) => {
        const started = performance.now();
        const digest = await nativeDigest(bytes);
        return { ms: performance.now() - started, digest: hex(digest) };
      },
    },
    close: async () => {
      worker.terminate();
      await native.close();
    },
  };
}

const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

const digest = guarded("digest-figures", async (bytes) => {
  $("digest-figures").classList.remove("failed");
  $("digest-figures").textContent = "the applets start …";
  const { list, close } = await ways();
  try {
    const sizes = [];
    for (let size = 64; size < bytes.length; size *= 4) sizes.push(size);
    sizes.push(bytes.length);
    const curves = Object.fromEntries(Object.keys(list).map((name) => [name, []]));
    for (const size of sizes) {
      const part = bytes.subarray(0, size);
      const digests = new Set();
      for (const [name, way] of Object.entries(list)) {
        const times = [];
        for (let round = 0; round < (size < 1 << 20 ? 9 : 3); round++) {
          const { ms, digest: found } = await way(part);
          times.push(ms);
          digests.add(found);
        }
        curves[name].push({ size, ms: times.toSorted((a, b) => a - b)[times.length >> 1] });
      }
      if (digests.size > 1) throw new Error(`the digests of ${size} bytes differ: ${[...digests].join(", ")}`);
      $("digest-figures").textContent = `${size.toLocaleString("en")} bytes …`;
      plot(curves);
    }
    const pays = (one, other) => curves[one].find(({ ms }, index) => ms < curves[other][index].ms)?.size;
    const from = (size) => size === undefined ? "not for this file" : `from ${size.toLocaleString("en")} bytes on`;
    const last = (name) => milliseconds(curves[name].at(-1).ms);
    $("digest-figures").textContent = `The whole: ${last("JavaScript")} in JavaScript, ${last("WebAssembly")} in \
WebAssembly, ${last("native")} natively. Against JavaScript the native applet pays ${from(pays("native", "JavaScript"))}, \
against WebAssembly ${from(pays("native", "WebAssembly"))}.`;
  } finally {
    await close();
  }
});

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

$("play").addEventListener("click", async () => {
  const answer = await fetch(new URL("videos/sample.mpg", import.meta.url));
  if (!answer.ok) $("video-figures").textContent = "There is no sample here; choose a video of yours.";
  else await play(new Uint8Array(await answer.arrayBuffer()));
});
$("video-file").addEventListener("change", async ({ target }) => {
  if (target.files[0]) await play(new Uint8Array(await target.files[0].arrayBuffer()));
});
$("digest").addEventListener("click", () => digest(new Uint8Array(32 << 20)));
$("digest-file").addEventListener("change", async ({ target }) => {
  if (target.files[0]) await digest(new Uint8Array(await target.files[0].arrayBuffer()));
});
for (const event of ["dragover", "drop"]) {
  $("plot").closest("section").addEventListener(event, async (dragged) => {
    dragged.preventDefault();
    const file = event === "drop" && dragged.dataTransfer.files[0];
    if (file) await digest(new Uint8Array(await file.arrayBuffer()));
  });
}
