// Classes, splits, domains, kinds, decisions: lists of values with counts; a value pressed is selected.
import { el, whole } from "./elements.js";
import { change, held, replaced } from "./state.js";

const FEW = 12;

export function lists(place, columns) {
  const all = columns.map((column) => new List(column));
  place.replaceChildren(el("h2", {}, "Lists"), ...all.map((one) => one.box));
  return { names: columns.map((one) => one.name), draw: (parts) => all.forEach((one) => one.draw(parts)) };
}

class List {
  constructor(column) {
    this.column = column;
    this.whole = false;
    this.made = {};
    this.rows = el("div", { class: "values" });
    this.box = el(
      "details", { open: true, "data-column": column.name, class: "list" },
      el("summary", {}, column.title), this.rows,
    );
  }

  toggle(code) {
    const now = held("list", [this.column.name]) ?? [];
    const next = now.includes(code) ? now.filter((one) => one !== code) : [...now, code];
    change({ filters: replaced("list", [this.column.name], next) });
  }

  draw(parts) {
    this.counts = parts[`list ${this.column.name}`] ?? this.counts;
    if (!this.counts) return;
    const pressed = held("list", [this.column.name]) ?? [];
    const { values } = this.column;
    const codes = [...this.counts.keys()].filter((code) => code < values.length || this.counts[code] > 0);
    const many = codes.length > FEW;
    // Of many the commonest come first, and those that are selected stay in sight.
    const order = (code) => (pressed.includes(code) ? Infinity : this.counts[code]);
    if (many) codes.sort((one, other) => order(other) - order(one) || one - other);
    const shown = this.whole ? codes : codes.slice(0, FEW);
    const most = Math.max(1, ...this.counts);
    const wanted = shown.map((code) => this.button(code, pressed.includes(code), most));
    if (many) wanted.push(this.more(codes.length));
    // What is in its place stays there: a press that has begun must end on the same button.
    const there = this.rows.children;
    if (wanted.length === there.length && wanted.every((one, at) => one === there[at])) return;
    const focused = this.rows.contains(document.activeElement) ? document.activeElement : null;
    this.rows.replaceChildren(...wanted);
    focused?.focus();
  }

  more(count) {
    const pressed = () => {
      this.whole = !this.whole;
      this.draw({});
    };
    this.made.more ??= el("button", { type: "button", class: "small", "data-code": "more", onclick: pressed });
    this.made.more.textContent = this.whole ? "fewer" : `all ${whole(count)}`;
    return this.made.more;
  }

  button(code, pressed, most) {
    const name = this.column.values[code] ?? "none";
    this.made[code] ??= el(
      "button", { type: "button", class: "value", "data-code": String(code), title: name, onclick: () => this.toggle(code) },
      el("span", { class: "name" }, name), el("span", { class: "n" }),
    );
    const made = this.made[code];
    made.setAttribute("aria-pressed", String(pressed));
    made.lastChild.textContent = whole(this.counts[code]);
    made.style.setProperty("--share", `${(100 * this.counts[code]) / most}%`);
    return made;
  }
}
