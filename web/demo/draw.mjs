// What the parts of the demo draw, write and are pressed with.

export const $ = (id) => document.getElementById(id);
export const number = (value) => Math.round(value).toLocaleString("en");
export const milliseconds = (ms) => `${ms < 10 ? ms.toFixed(ms < 1 ? 2 : 1) : number(ms)} ms`;

/**
 * Has a button do something, which cannot be pressed meanwhile. It is not `disabled`, which would take the
 * focus from who pressed it by keyboard.
 */
export function onPress(button, work, failed) {
  button.addEventListener("click", async () => {
    if (button.getAttribute("aria-disabled") === "true") return;
    button.setAttribute("aria-disabled", "true");
    try {
      await work();
    } catch (error) {
      failed(error);
    } finally {
      button.removeAttribute("aria-disabled");
    }
  });
}

/** Writes what a canvas shows below it, and as its text for who does not see it. */
export function caption(canvas, figures, text) {
  canvas.dataset.name ??= canvas.getAttribute("aria-label");
  canvas.setAttribute("aria-label", `${canvas.dataset.name}. ${text}`);
  figures.textContent = text;
}

/** A canvas of the page's width, `tall` times as high, with as many dots as the screen has. */
export function shape(canvas, tall) {
  const ratio = devicePixelRatio || 1;
  const { width } = canvas.getBoundingClientRect();
  const height = width * tall;
  [canvas.width, canvas.height] = [width * ratio, height * ratio];
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  return { context, width, height, colour: (name) => style.getPropertyValue(`--${name}`) };
}
