// Elements from plain values: whatever a table holds is set as text, never as markup.
export function el(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name in made && typeof value !== "string") made[name] = value;
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((one) => one !== null && one !== undefined));
  return made;
}

export const whole = (count) => Math.round(count).toLocaleString("en");

export function number(value) {
  if (value === null || value === undefined) return "none";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return String(value);
  return size >= 1e-3 && size < 1e6 ? String(Number(value.toPrecision(4))) : value.toExponential(2);
}

// A text, its tokens coloured by tenths: [first character, behind the last, tenth, score]. Characters are code points.
export function coloured(text, spans) {
  if (!spans?.length) return [text];
  const letters = [...text];
  const made = [];
  let at = 0;
  for (const [start, end, tenth, value] of spans) {
    if (start < at || end <= start || end > letters.length) continue;
    if (start > at) made.push(letters.slice(at, start).join(""));
    made.push(el("span", { class: `token tenth${tenth}`, title: number(value) }, letters.slice(start, end).join("")));
    at = end;
  }
  return [...made, letters.slice(at).join("")];
}

// A drop-down; `choices` are pairs of value and text.
export function select(label, choices, value, change) {
  const box = el("select", { "aria-label": label, onchange: () => change(box.value) });
  box.append(...choices.map(([one, text]) => el("option", { value: one }, text)));
  box.value = value;
  return box;
}

// A colour of the page's theme, for a canvas.
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// A canvas as large as it is shown, in the pixels of the screen.
export function sized(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}
