// The map: how many samples lie where, on a 2-D canvas; points as soon as few are in view.
import { colour, el, number, select, sized, whole } from "./elements.js";
import { change, held, replaced, state } from "./state.js";

const SIDE = 256;
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const LISTED = [
  "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f3fbf",
  "#b5bd00", "#ad494a", "#3182bd", "#31a354", "#e7969c", "#636363", "#9e9ac8", "#c49c94",
].map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
const NONE = [140, 140, 140];

export class Atlas {
  constructor(table, open) {
    this.table = table;
    this.open = open;
    this.columns = new Map(table.columns.map((one) => [one.name, one]));
    this.canvas = document.getElementById("map-canvas");
    this.key = document.getElementById("map-key");
    this.grid = new OffscreenCanvas(SIDE, SIDE);
    this.lassoing = false;
    this.path = null;
    if (!this.shown) document.getElementById("map").hidden = true;
    else {
      this.tools();
      this.listen();
    }
  }

  // One number makes no map.
  get shown() {
    return this.table.axes.length === 2;
  }

  get axes() {
    return state.axes ?? this.table.axes;
  }

  get view() {
    if (state.view) return state.view;
    const [x, y] = this.axes.map((name) => this.columns.get(name));
    const pad = (one) => (one.high - one.low) * 0.04;
    return [x.low - pad(x), y.low - pad(y), x.high + pad(x), y.high + pad(y)];
  }

  // What is asked of the server; the ground, all samples, only when the view has moved.
  asked() {
    if (!this.shown) return null;
    const [x, y] = this.axes;
    const at = JSON.stringify([x, y, this.view]);
    this.asking = at;
    return { x, y, view: this.view, colour: state.colour || null, ground: at !== this.grounded };
  }

  tools() {
    const numbers = this.table.columns.filter((one) => one.role === "number").map((one) => [one.name, one.title]);
    const listed = this.table.columns.filter((one) => one.role === "list").map((one) => [one.name, one.title]);
    const axis = (at, label) =>
      select(label, numbers, this.axes[at], (value) => {
        const axes = [...this.axes];
        axes[at] = value;
        change({ axes, view: null });
      });
    const button = (text, label, run) => el("button", { type: "button", "aria-label": label, title: label, onclick: run }, text);
    this.across = axis(0, "Across");
    this.up = axis(1, "Up");
    this.tint = select("Colour", [["", "one colour"], ...numbers, ...listed], state.colour, (value) => change({ colour: value }));
    this.lasso = button("Lasso", "Draw around samples to select them", () => {
      this.lassoing = !this.lassoing;
      this.lasso.setAttribute("aria-pressed", String(this.lassoing));
    });
    this.lasso.setAttribute("aria-pressed", "false");
    document.getElementById("map-tools").replaceChildren(
      el("label", {}, "across ", this.across), el("label", {}, "up ", this.up), el("label", {}, "colour ", this.tint), this.lasso,
      button("In view", "Select what is in view", () => this.choose(this.corners())),
      button("+", "Zoom in", () => this.zoom(0.5)), button("−", "Zoom out", () => this.zoom(2)),
      button("All", "Show all of the map", () => this.show(null)),
    );
  }

  corners() {
    const [left, bottom, right, top] = this.view;
    return [[left, bottom], [right, bottom], [right, top], [left, top]];
  }

  choose(corners) {
    change({ filters: replaced("lasso", this.axes, corners) });
  }

  show(view) {
    change({ view }, { isStep: false });
  }

  zoom(by, x = 0.5, y = 0.5) {
    const [left, bottom, right, top] = this.view;
    const [cx, cy] = [left + x * (right - left), top - y * (top - bottom)];
    this.show([cx + (left - cx) * by, cy + (bottom - cy) * by, cx + (right - cx) * by, cy + (top - cy) * by]);
  }

  pan(across, down) {
    const [left, bottom, right, top] = this.view;
    const [dx, dy] = [across * (right - left), down * (top - bottom)];
    this.show([left - dx, bottom + dy, right - dx, top + dy]);
  }

  listen() {
    const { canvas } = this;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    const inData = ([x, y]) => {
      const [left, bottom, right, top] = this.view;
      return [left + x * (right - left), top - y * (top - bottom)];
    };
    let from = null;
    let moved = false;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY / 400), ...place(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      from = place(event);
      moved = false;
      if (this.lassoing || event.shiftKey) this.path = [inData(from)];
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) return;
      const now = place(event);
      if (Math.hypot((now[0] - from[0]) * canvas.clientWidth, (now[1] - from[1]) * canvas.clientHeight) < 3) return;
      moved = true;
      if (this.path) {
        this.path.push(inData(now));
        this.paint();
      } else this.pan(now[0] - from[0], now[1] - from[1]);
      from = now;
    });
    canvas.addEventListener("pointerup", (event) => {
      const path = this.path;
      from = this.path = null;
      if (path && path.length > 2) this.choose(thinned(path, 120));
      else if (!moved) this.pick(place(event));
    });
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [0.1, 0], ArrowRight: [-0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
      if (move) this.pan(...move);
      else if (event.key === "+" || event.key === "=") this.zoom(0.5);
      else if (event.key === "-") this.zoom(2);
      else return;
      event.preventDefault();
    });
  }

  pick([x, y]) {
    const points = this.parts?.["map points"];
    if (!points) return;
    const [left, bottom, right, top] = this.view;
    const far = (at) => Math.hypot(
      ((points[2 * at] - left) / (right - left) - x) * this.canvas.clientWidth,
      ((top - points[2 * at + 1]) / (top - bottom) - y) * this.canvas.clientHeight,
    );
    let best = -1;
    let least = 10;
    for (let at = 0; at < points.length / 2; at++) {
      const distance = far(at);
      if (distance < least) [best, least] = [at, distance];
    }
    if (best >= 0) this.open(this.parts["map rows"][best]);
  }

  draw(parts) {
    if (!this.shown) return;
    if ("ground density" in parts || "ground points" in parts) {
      this.ground = parts["ground density"] ?? this.counted(parts["ground points"]);
      this.grounded = this.asking;
    }
    if ("map density" in parts || "map points" in parts) this.parts = parts;
    [this.across.value, this.up.value] = this.axes;
    this.tint.value = state.colour;
    this.paint();
  }

  counted(points) {
    const found = new Uint8Array(SIDE * SIDE);
    const [left, bottom, right, top] = this.view;
    for (let at = 0; at < points.length; at += 2) {
      const x = Math.floor(((points[at] - left) / (right - left)) * SIDE);
      const y = Math.floor(((top - points[at + 1]) / (top - bottom)) * SIDE);
      if (x >= 0 && x < SIDE && y >= 0 && y < SIDE) found[y * SIDE + x] = 90;
    }
    return found;
  }

  rgb(tint) {
    if (tint === undefined || tint === 255) return NONE;
    if (this.columns.get(state.colour)?.role !== "number") return LISTED[tint] ?? NONE;
    const at = (tint / 254) * (RAMP.length - 1);
    const low = Math.min(RAMP.length - 2, Math.floor(at));
    return RAMP[low].map((one, part) => Math.round(one + (RAMP[low + 1][part] - one) * (at - low)));
  }

  paint() {
    const { pen, width, height } = sized(this.canvas);
    pen.imageSmoothingEnabled = false;
    const blue = channels(colour("blue"));
    const tints = this.parts?.["map tints"];
    const coloured = state.colour && tints?.length;
    const layer = (counts, rgb, least) => {
      const image = new ImageData(SIDE, SIDE);
      counts.forEach((count, at) => {
        if (!count) return;
        image.data.set(rgb(at), 4 * at);
        image.data[4 * at + 3] = least + ((255 - least) * count) / 255;
      });
      this.grid.getContext("2d").putImageData(image, 0, 0);
      pen.drawImage(this.grid, 0, 0, width, height);
    };
    const grey = channels(colour("quiet"));
    if (this.ground) {
      pen.globalAlpha = 0.35;
      layer(this.ground, () => grey, 60);
      pen.globalAlpha = 1;
    }
    const density = this.parts?.["map density"];
    if (density) layer(density, coloured ? (at) => this.rgb(tints[at]) : () => blue, 90);
    else if (this.parts) this.points(pen, width, height, coloured ? tints : null, blue);
    this.outline(pen, width, height);
    this.says(coloured);
  }

  points(pen, width, height, tints, blue) {
    const [left, bottom, right, top] = this.view;
    const points = this.parts["map points"];
    const count = points.length / 2;
    const size = count > 1000 ? 2 : count > 200 ? 3 : 4;
    for (let at = 0; at < count; at++) {
      pen.fillStyle = `rgb(${tints ? this.rgb(tints[at]) : blue})`;
      pen.beginPath();
      pen.arc(((points[2 * at] - left) / (right - left)) * width, ((top - points[2 * at + 1]) / (top - bottom)) * height, size, 0, 7);
      pen.fill();
    }
  }

  outline(pen, width, height) {
    const corners = this.path ?? held("lasso", this.axes);
    if (!corners) return;
    const [left, bottom, right, top] = this.view;
    pen.strokeStyle = colour("red");
    pen.lineWidth = 2;
    pen.beginPath();
    corners.forEach(([x, y]) => pen.lineTo(((x - left) / (right - left)) * width, ((top - y) / (top - bottom)) * height));
    if (!this.path) pen.closePath();
    pen.stroke();
  }

  says(coloured) {
    const [x, y] = this.axes.map((name) => this.columns.get(name));
    const [left, bottom, right, top] = this.view;
    const points = this.parts?.["map points"];
    const shown = points ? `${whole(points.length / 2)} points; click one to open it. ` : "Darker where more lie; zoom in for points. ";
    this.key.replaceChildren(
      `${shown}Across: ${x.title}, ${number(left)} to ${number(right)}. Up: ${y.title}, ${number(bottom)} to ${number(top)}. `,
    );
    const column = coloured ? this.columns.get(state.colour) : null;
    if (column?.role === "number") this.key.append(...this.swatch([0, 127, 254], [column.low, (column.low + column.high) / 2, column.high].map(number)));
    else if (column) this.key.append(...this.swatch(column.values.slice(0, LISTED.length).map((_, at) => at), column.values));
  }

  swatch(tints, names) {
    return tints.map((tint, at) => {
      const dot = el("span", { class: "dot" });
      dot.style.background = `rgb(${this.rgb(tint)})`;
      return el("span", { class: "swatch" }, dot, names[at]);
    });
  }
}

const thinned = (path, most) => {
  const every = Math.max(1, path.length / most);
  return Array.from({ length: Math.min(most, path.length) }, (_, at) => path[Math.floor(at * every)]);
};

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
