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
    const focused = this.rows.contains(document.activeElement) ? document.activeElement.dataset.code : null;
    this.rows.replaceChildren(...shown.map((code) => this.button(code, pressed.includes(code), most)));
    if (many) {
      const text = this.whole ? "fewer" : `all ${whole(codes.length)}`;
      const more = el("button", { type: "button", class: "small", "data-code": "more" }, text);
      more.addEventListener("click", () => {
        this.whole = !this.whole;
        this.draw({});
      });
      this.rows.append(more);
    }
    if (focused !== null) this.rows.querySelector(`[data-code="${CSS.escape(focused)}"]`)?.focus();
  }

  button(code, pressed, most) {
    const name = this.column.values[code] ?? "none";
    const made = el(
      "button", { type: "button", class: "value", "aria-pressed": String(pressed), "data-code": String(code), title: name },
      el("span", { class: "name" }, name), el("span", { class: "n" }, whole(this.counts[code])),
    );
    made.style.setProperty("--share", `${(100 * this.counts[code]) / most}%`);
    made.addEventListener("click", () => this.toggle(code));
    return made;
  }
}
