// A histogram for every number, with a brush: drag over it, or move its two ends with the keyboard.
import { colour, el, number, sized } from "./elements.js";
import { change, drag, held, replaced } from "./state.js";

const BINS = 255;
const BARS = 51;

export function histograms(place, columns) {
  const all = columns.map((column) => new Histogram(column));
  place.replaceChildren(el("h2", {}, "Scores"), ...all.map((one) => one.box));
  return { names: columns.map((one) => one.name), draw: (parts) => all.forEach((one) => one.draw(parts)) };
}

class Histogram {
  constructor(column) {
    this.column = column;
    this.canvas = el("canvas", { class: "bars" });
    this.clear = el("button", { type: "button", class: "small", hidden: true, onclick: () => this.brush(null) }, "all");
    this.ends = ["from", "to"].map((end, at) =>
      el("input", {
        type: "range", min: "0", max: String(BINS - 1), "aria-label": `${column.title}, ${end}`,
        value: String(at ? BINS - 1 : 0),
        oninput: () => this.brush(this.typed(), true),
        onchange: () => this.brush(this.typed()),
      }),
    );
    this.range = el("span", { class: "quiet" });
    const toward = column.direction ? `, ${column.direction}` : "";
    this.box = el(
      "figure", { class: "histogram", "data-column": column.name },
      el("figcaption", { title: column.name + toward }, el("b", {}, column.title), " ", this.range, this.clear),
      this.canvas, el("div", { class: "ends" }, ...this.ends),
    );
    this.listen();
  }

  typed() {
    const [one, other] = this.ends.map((end) => Number(end.value));
    return [Math.min(one, other), Math.max(one, other)];
  }

  listen() {
    const { canvas } = this;
    let start = null;
    let last = null;
    const bin = (event) => {
      const box = canvas.getBoundingClientRect();
      return Math.max(0, Math.min(BINS - 1, Math.floor(((event.clientX - box.left) / box.width) * BINS)));
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      start = bin(event);
      last = null;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (start === null) return;
      const now = bin(event);
      last = [Math.min(start, now), Math.max(start, now)];
      this.brush(last, true);
    });
    canvas.addEventListener("pointerup", () => {
      if (start === null) return;
      start = null;
      this.brush(last && last[1] > last[0] ? last : null);
    });
  }

  // From the first bin to the last nothing is left out but what has no value.
  brush(values, dragged = false) {
    const filters = replaced("brush", [this.column.name], values);
    if (dragged) drag(filters);
    else change({ filters });
  }

  value(bin) {
    return this.column.low + (bin / BINS) * (this.column.high - this.column.low);
  }

  draw(parts) {
    const counts = parts[`histogram ${this.column.name}`];
    const brush = held("brush", [this.column.name]);
    const [low, high] = brush ?? [0, BINS - 1];
    this.clear.hidden = brush === null;
    this.ends[0].value = String(low);
    this.ends[1].value = String(high);
    this.range.textContent = `${number(this.value(low))} to ${number(this.value(high + 1))}`;
    this.ends.forEach((end, at) => end.setAttribute("aria-valuetext", number(this.value(at ? high + 1 : low))));
    if (counts) this.counts = counts;
    if (!this.counts) return;
    this.total ??= bars(this.counts);
    const shown = bars(this.counts);
    const { pen, width, height } = sized(this.canvas);
    const most = Math.sqrt(Math.max(1, ...this.total, ...shown));
    const step = width / BARS;
    const paint = (values, fill) => {
      pen.fillStyle = fill;
      values.forEach((count, at) => {
        const tall = count ? Math.max(1, (Math.sqrt(count) / most) * height) : 0;
        pen.fillRect(at * step, height - tall, Math.max(1, step - 1), tall);
      });
    };
    paint(this.total, colour("faint"));
    paint(shown, colour("blue"));
    if (brush) {
      pen.fillStyle = colour("veil");
      pen.fillRect(0, 0, (low / BINS) * width, height);
      pen.fillRect(((high + 1) / BINS) * width, 0, width, height);
    }
  }
}

const bars = (counts) => {
  const found = new Array(BARS).fill(0);
  for (let bin = 0; bin < BINS; bin++) found[Math.floor((bin * BARS) / BINS)] += counts[bin];
  return found;
};
