// What the parts of the demo draw and write with.

export const number = (value) => Math.round(value).toLocaleString("en");
export const milliseconds = (ms) => `${ms < 10 ? ms.toFixed(ms < 1 ? 2 : 1) : number(ms)} ms`;

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
