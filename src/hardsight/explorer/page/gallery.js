// The samples in order, without an end: pictures, or texts, or the columns one asked to see.
import { badge, KEYS, valued } from "./decide.js";
import { coloured, el, select, whole } from "./elements.js";
import { picture, told } from "./server.js";
import { change, state } from "./state.js";

const PAGE = 60;
const IN_CARD = new Set(["row", "mark", "spans", "id", "label", "expected", "path", "text", "suspicion"]);

export class Gallery {
  constructor(table, decisions, open, fail) {
    Object.assign(this, { table, decisions, open, fail });
    this.columns = new Map(table.columns.map((one) => [one.name, one]));
    this.place = document.getElementById("gallery");
    this.more = document.getElementById("more");
    this.cards = new Map();
    this.rows = [];
    this.asked = 0;
    this.tools();
    this.place.addEventListener("keydown", (event) => this.key(event));
    new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && this.next(), { rootMargin: "800px" }).observe(this.more);
  }

  get sort() {
    return state.sort ?? this.table.sort;
  }

  // The score that colours the tokens of texts, where there are tokens.
  get tokens() {
    return state.tokens ?? this.table.tokens[0]?.name ?? "";
  }

  tools() {
    const numbers = this.table.columns.filter((one) => one.role === "number").map((one) => [one.name, one.title]);
    this.by = select("Sort by", [["", "as in the table"], ...numbers], this.sort.by, (by) => {
      const easier = this.columns.get(by)?.direction === "larger is easier";
      change({ sort: { by, descending: !easier } });
    });
    this.way = el("button", { type: "button", onclick: () => change({ sort: { by: this.sort.by, descending: !this.sort.descending } }) });
    this.byToken = select("Tokens by", [...this.table.tokens.map((one) => [one.name, one.title]), ["", "no colour"]], this.tokens, (tokens) => change({ tokens }));
    const all = Object.entries(KEYS).map(([, action]) =>
      el("button", { type: "button", "data-all": action, onclick: () => this.decideAll(action) }, `${action} all`),
    );
    document.getElementById("gallery-tools").replaceChildren(
      el("label", {}, "sort by ", this.by), this.way,
      this.table.tokens.length ? el("label", {}, "tokens by ", this.byToken) : "",
      el("span", { class: "space" }), ...all,
      el("button", { type: "button", onclick: () => this.decisions.undo() }, "undo decision (z)"),
    );
  }

  decideAll(action) {
    if (this.count) this.decisions.decide({ filters: state.filters, count: this.count }, action);
  }

  // From the beginning, for the present selection and order.
  show() {
    this.shown = this.begin();
    return this.shown;
  }

  async begin() {
    this.asked += 1;
    this.loading = false;
    this.by.value = this.sort.by;
    this.byToken.value = this.tokens;
    this.way.textContent = this.sort.descending ? "largest first" : "smallest first";
    const focused = this.place.contains(document.activeElement) ? document.activeElement.dataset.row : null;
    const found = await this.ask(0);
    if (!found) return;
    this.rows = [];
    this.cards.clear();
    this.place.replaceChildren();
    this.append(found);
    if (focused !== null) (this.cards.get(Number(focused)) ?? this.cards.get(this.rows[0]))?.focus();
  }

  async next() {
    if (this.loading || !this.rows.length || this.rows.length >= this.count) return;
    this.loading = true;
    const found = await this.ask(this.rows.length);
    if (found) this.append(found);
    this.loading = false;
  }

  async ask(start) {
    const turn = this.asked;
    try {
      const found = await told("rows", { filters: state.filters, ...this.sort, tokens: this.tokens, start, count: PAGE });
      return turn === this.asked ? found : null;
    } catch (problem) {
      this.fail(problem);
      return null;
    }
  }

  append({ rows, count }) {
    this.count = count;
    for (const one of rows) {
      if (this.cards.has(one.row)) continue;
      const card = this.card(one);
      this.rows.push(one.row);
      this.cards.set(one.row, card);
      this.place.append(el("div", { role: "listitem" }, card));
    }
    this.more.textContent = count ? `${whole(this.rows.length)} of ${whole(count)} samples` : "No sample is selected.";
    performance.mark("gallery");
  }

  card(one) {
    const made = el("button", { type: "button", class: "card", "data-row": String(one.row), onclick: () => this.open(one.row) });
    made.sample = one;
    this.fill(made);
    return made;
  }

  fill(card) {
    const one = card.sample;
    const { by } = this.sort;
    const shown = this.table.columns.filter((column) => column.name in one && (!IN_CARD.has(column.name) || column.name === by));
    const about = this.table.pictures ? pictured(one.row, 160, `sample ${one.id}`) : null;
    card.replaceChildren(
      ...[
        about,
        one.text ? el("span", { class: "text" }, ...coloured(one.text, one.spans)) : null,
        this.table.classes.length ? el("span", { class: "change" }, one.label ?? "no label", one.expected && one.expected !== one.label ? el("span", { class: "quiet" }, ` → ${one.expected}`) : null) : null,
        ...shown.map((column) => el("span", { class: column.role === "text" ? "fact text" : "fact" }, el("span", { class: "quiet" }, `${column.title} `), valued(column, one[column.name]))),
        el("span", { class: "quiet id" }, String(one.path ?? one.id)),
        badge(one.mark),
      ].filter(Boolean),
    );
  }

  // Decisions that are on disk, of this page or of others.
  marked(changed) {
    for (const { row, mark } of changed) {
      const card = this.cards.get(row);
      if (!card) continue;
      card.sample.mark = mark;
      this.fill(card);
    }
  }

  // The suspects in their order, from the first that nobody has decided.
  async review() {
    const { sort } = this.table;
    if (state.filters.length || this.sort.by !== sort.by || this.sort.descending !== sort.descending) {
      change({ filters: [], sort });
      await this.shown;
    }
    const undecided = () => this.rows.find((row) => !this.cards.get(row).sample.mark);
    for (let seen = 0; undecided() === undefined && seen < this.rows.length; ) {
      seen = this.rows.length;
      await this.next();
    }
    this.open(undecided() ?? this.rows[0]);
  }

  at(row, by) {
    return this.rows[this.rows.indexOf(row) + by];
  }

  async key(event) {
    const card = event.target.closest?.(".card");
    if (!card || event.ctrlKey || event.metaKey || event.altKey) return;
    const { row } = card.sample;
    const columns = getComputedStyle(this.place).gridTemplateColumns.split(" ").length;
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    const action = KEYS[event.key];
    if (move !== undefined) {
      event.preventDefault();
      const next = this.cards.get(this.at(row, move));
      next?.focus();
      next?.scrollIntoView({ block: "nearest" });
      if (this.rows.indexOf(row) + move > this.rows.length - PAGE / 2) this.next();
    } else if (action) {
      event.preventDefault();
      const done = await this.decisions.decide({ rows: [row] }, action, card.sample);
      const after = done ? this.cards.get(this.at(row, 1)) : card;
      (after ?? this.cards.get(row))?.focus();
    } else if (event.key === "z") {
      event.preventDefault();
      this.decisions.undo(row);
    }
  }
}

export function pictured(row, side, words, heat = false) {
  const image = el("img", { alt: words, loading: "lazy", src: picture(row, side, heat) });
  image.addEventListener("error", () => image.replaceWith(el("span", { class: "gone quiet" }, "no picture")));
  return image;
}
