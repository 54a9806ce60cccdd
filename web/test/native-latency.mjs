// What a call of a native applet costs, seen from the page: for tests and measurements.

/**
 * Milliseconds of each of so many calls of `echo` with 16 bytes, sorted. `page` is one that
 * `holdfast serve` serves, with the package below `/dist` and the applet at `/echo`.
 */
export const nativeCallsMs = (page, rounds = 1000) => page.evaluate(async (rounds) => {
  const { NativeApplet } = await import("/dist/index.js");
  const applet = await NativeApplet.open("/echo");
  const input = new Uint8Array(16);
  const times = [];
  for (let round = -100; round < rounds; round++) {
    const start = performance.now();
    await applet.call("echo", input);
    if (round >= 0) times.push(performance.now() - start);
  }
  await applet.close();
  return times.sort((one, other) => one - other);
}, rounds);
