// One sample, large: what it is, its scores and its place among its class, its way, its neighbours, and the decision.
import { badge, KEYS, valued } from "./decide.js";
import { colour, coloured, el, number, sized } from "./elements.js";
import { pictured } from "./gallery.js";
import { told } from "./server.js";
import { change, state } from "./state.js";

const NOT_SHOWN = new Set(["row", "mark", "spans", "id", "label", "expected", "text", "scores", "neighbours", "history", "trajectory", "heat"]);

export class Detail {
  constructor(table, gallery, decisions, fail) {
    Object.assign(this, { table, gallery, decisions, fail });
    this.columns = new Map(table.columns.map((one) => [one.name, one]));
    this.box = document.getElementById("detail");
    this.box.addEventListener("close", () => {
      if (state.open !== null) change({ open: null }, { isStep: false });
      this.gallery.cards.get(this.row)?.focus();
    });
    this.box.addEventListener("keydown", (event) => this.key(event));
  }

  // What the address says is open.
  async show() {
    if (state.open === null) {
      if (this.box.open) this.box.close();
      return;
    }
    const row = state.open;
    try {
      const sample = await told(`sample?row=${row}&tokens=${encodeURIComponent(this.gallery.tokens)}`);
      if (state.open !== row) return;
      this.row = row;
      this.sample = sample;
      this.fill();
      if (!this.box.open) this.box.showModal();
    } catch (problem) {
      this.fail(problem);
    }
  }

  open(row) {
    change({ open: row }, { isStep: false });
  }

  step(by) {
    const next = this.gallery.at(this.row, by);
    if (next !== undefined) this.open(next);
    if (by > 0 && this.gallery.rows.indexOf(this.row) > this.gallery.rows.length - 20) this.gallery.next();
  }

  marked(changed) {
    const own = changed.find((one) => one.row === this.row);
    if (own && this.box.open) this.show();
  }

  async decide(action) {
    const row = this.row;
    const done = action === "undo" ? await this.decisions.undo(row) : await this.decisions.decide({ rows: [row] }, action, this.sample);
    if (done && action !== "undo" && state.open === row) this.step(1);
    this.box.focus();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
    const action = event.key === "z" ? "undo" : KEYS[event.key];
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (action) this.decide(action);
    else if (move) this.step(move);
    else return;
    event.preventDefault();
  }

  fill() {
    const one = this.sample;
    const button = (text, run, given = {}) => el("button", { type: "button", onclick: run, ...given }, text);
    const actions = Object.entries(KEYS).map(([key, action]) => button(`${action} (${key})`, () => this.decide(action), { "data-action": action }));
    const facts = Object.keys(one).filter((name) => !NOT_SHOWN.has(name) && this.columns.get(name)?.role !== "number" && one[name] !== null && one[name] !== "");
    const focused = this.box.contains(document.activeElement) ? document.activeElement.textContent : null;
    this.box.setAttribute("aria-label", `Sample ${one.id}`);
    this.box.tabIndex = -1;
    this.box.replaceChildren(
      el("div", { class: "tools" }, button("←", () => this.step(-1), { "aria-label": "Previous sample" }), button("→", () => this.step(1), { "aria-label": "Next sample" }),
        el("h2", {}, this.table.classes.length ? `labelled ${one.label ?? "nothing"}${one.expected && one.expected !== one.label ? ` → expected ${one.expected}` : ""}` : `sample ${one.id}`), badge(one.mark) ?? "",
        el("span", { class: "space" }), button("close", () => this.box.close())),
      el("div", { class: "tools" }, ...actions, button("undo (z)", () => this.decide("undo")), el("span", { class: "quiet", id: "detail-progress" }, this.decisions.line.textContent)),
      el("div", { class: "halves" },
        el("div", {},
          this.table.pictures ? el("div", { class: "large" }, pictured(this.row, 1024, `sample ${one.id}`), one.heat ? pictured(this.row, 1024, "Grad-CAM", true) : null) : "",
          one.text ? el("p", { class: "whole" }, ...coloured(one.text, one.spans)) : "",
          el("dl", {}, el("dt", {}, "id"), el("dd", {}, String(one.id)), ...facts.flatMap((name) => [el("dt", {}, this.columns.get(name).title), el("dd", {}, String(one[name]))])), this.decided()),
        el("div", {}, this.way(), this.near(), this.scores())),
    );
    this.drawWay();
    // The keys go on where they were.
    if (focused !== null) ([...this.box.querySelectorAll("button")].find((each) => each.textContent === focused) ?? this.box).focus();
  }

  scores() {
    const rows = this.sample.scores.map(({ name, value, below }) => {
      const bar = el("meter", { min: "0", max: "1", value: String(below ?? 0), "aria-label": `${this.columns.get(name).title}, share below` });
      return el("tr", {}, el("th", { scope: "row" }, this.columns.get(name).title), el("td", { class: "n" }, valued(null, value)), el("td", {}, below === null ? "" : bar), el("td", { class: "n" }, below === null ? "" : `${Math.round(100 * below)} %`));
    });
    const head = el("tr", {}, el("th", { scope: "col" }, "score"), el("th", { scope: "col" }, "value"), el("th", { scope: "col", colspan: "2" }, `share of ${this.columns.has("label") ? "its class" : "all"} below`));
    return el("table", { class: "scores" }, el("thead", {}, head), el("tbody", {}, ...rows));
  }

  // Who decided what, and when.
  decided() {
    if (!this.sample.history.length) return "";
    const rows = this.sample.history.map(({ action, label, by, at }) => el("li", {}, el("b", {}, label === null ? action : `${action} to ${label}`), ` by ${by}, `, el("time", { datetime: at }, new Date(at).toLocaleString())));
    return el("section", { "aria-label": "Decisions" }, el("h3", {}, "Decisions"), el("ul", {}, ...rows));
  }

  near() {
    if (!this.sample.neighbours.length) return "";
    const cards = this.sample.neighbours.map((one) =>
      el("button", { type: "button", class: "card", onclick: () => this.open(one.row) },
        this.table.pictures ? pictured(one.row, 160, `sample ${one.id}`) : "", one.text ? el("span", { class: "text" }, one.text) : "",
        this.table.classes.length ? el("span", { class: "change" }, one.label ?? "no label") : "", badge(one.mark) ?? ""));
    return el("section", { "aria-label": "Nearest by angle" }, el("h3", {}, "Nearest by angle"), el("div", { class: "near" }, ...cards));
  }

  way() {
    const measures = Object.keys(this.sample.trajectory).filter((name) => name !== "epoch");
    this.measure = measures.includes(this.measure) ? this.measure : measures[0];
    if (!this.measure) return "";
    const choices = measures.map((name) => el("button", { type: "button", class: "small", "aria-pressed": String(name === this.measure), onclick: () => { this.measure = name; this.fill(); } }, name));
    const values = this.sample.trajectory[this.measure];
    this.line = el("canvas", { class: "way", role: "img", "aria-label": `${this.measure} by epoch: ${values.map(number).join(", ")}` });
    return el("section", { "aria-label": "By epoch" }, el("h3", {}, "By epoch"), el("div", { class: "tools" }, ...choices), this.line,
      el("p", { class: "quiet" }, `epoch ${this.sample.trajectory.epoch[0]} to ${this.sample.trajectory.epoch.at(-1)}: ${number(values[0])} to ${number(values.at(-1))}`));
  }

  drawWay() {
    if (!this.measure || !this.line?.isConnected) return;
    const values = this.sample.trajectory[this.measure].filter((one) => one !== null);
    const { pen, width, height } = sized(this.line);
    const [low, high] = [Math.min(0, ...values), Math.max(...values, Math.min(0, ...values) + 1e-9)];
    pen.strokeStyle = colour("blue");
    pen.lineWidth = 2;
    pen.beginPath();
    values.forEach((value, at) => pen.lineTo(4 + (at / Math.max(1, values.length - 1)) * (width - 8), height - 4 - ((value - low) / (high - low)) * (height - 8)));
    pen.stroke();
  }
}
