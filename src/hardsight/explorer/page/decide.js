// Decisions: shown as done once the server has them on disk; keys k, r, d, u, and z for undo.
import { el, number, whole } from "./elements.js";
import { told } from "./server.js";

export const KEYS = { k: "keep", r: "relabel", d: "drop", u: "unsure" };
const MOST = 10000;

export class Decisions {
  constructor(table, fail, marked, start) {
    this.table = table;
    this.fail = fail;
    this.marked = marked;
    this.done = [];
    this.since = null;
    this.place = document.getElementById("progress");
    this.asking = document.getElementById("ask");
    this.by = el("input", { class: "by", maxlength: "80", "aria-label": "Who decides", value: localStorage.getItem("by") ?? table.user });
    this.by.addEventListener("change", () => localStorage.setItem("by", this.by.value));
    this.line = el("p", { class: "line", role: "status" });
    this.bar = el("progress", { max: "1", value: "0", "aria-label": "Suspects decided" });
    this.start = el("button", { type: "button", class: "main", hidden: true, onclick: () => start() }, "Review the suspects");
    const keys = Object.entries(KEYS).map(([key, action]) => [el("kbd", {}, key), ` ${action} `]);
    this.place.replaceChildren(
      this.bar, this.line,
      el("div", { class: "tools" }, this.start, el("span", { class: "space" }), el("label", { class: "quiet" }, "decided by ", this.by)),
      el("p", { class: "quiet" }, "Keys: ", ...keys.flat(), el("kbd", {}, "z"), " undo"),
    );
    setInterval(() => this.news(), 2000);
    this.news();
  }

  // `what` is {rows} or {filters, count}; resolves to whether it is on disk.
  async decide(what, action, near = {}) {
    if (what.count > MOST) {
      this.fail(new Error(`At most ${whole(MOST)} samples can be decided at once; ${whole(what.count)} are selected.`));
      return false;
    }
    const count = what.rows?.length ?? what.count;
    const label = action === "relabel" ? await this.label(count, near) : null;
    if (action === "relabel" && label === null) return false;
    if (action !== "relabel" && !what.rows && !(await this.sure(action, count))) return false;
    return this.send({ ...what, action, label });
  }

  async send(body) {
    try {
      const found = await told("decide", { ...body, by: this.by.value, since: this.since });
      if (body.action !== "undo") this.done.push(found.rows);
      this.take(found);
      this.fail(null);
      return true;
    } catch (problem) {
      this.fail(problem);
      return false;
    }
  }

  undo(row) {
    const rows = this.done.pop() ?? (row === undefined ? null : [row]);
    return rows ? this.send({ rows, action: "undo" }) : false;
  }

  async news() {
    if (this.reading) return;
    this.reading = true;
    try {
      this.take(await told(this.since === null ? "news" : `news?since=${this.since}`));
    } catch (problem) {
      this.fail(problem);
    }
    this.reading = false;
  }

  take(found) {
    const changed = this.since === null ? [] : found.changed;
    if (this.since !== null && found.marks < this.since) return;
    this.since = found.marks;
    if (found.problem || this.warned) this.fail(found.problem ? new Error(found.problem) : null);
    this.warned = Boolean(found.problem);
    this.says(found.progress);
    if (changed.length) this.marked(changed);
  }

  says({ suspects, right, wrong, unsure, expected, low, high }) {
    const decided = right + wrong + unsure;
    this.bar.hidden = this.start.hidden = !suspects;
    this.bar.value = suspects ? decided / suspects : 0;
    if (!suspects) this.line.textContent = "No label here is estimated to be wrong; sort by a score to look all the same.";
    else if (expected === null) this.line.textContent = `${whole(suspects)} suspects, none decided yet.`;
    else {
      const rest = suspects - right - wrong;
      const more = rest
        ? `Of the other ${whole(rest)} about ${whole(expected)} are to be expected wrong (95 %: ${whole(low)} to ${whole(high)}).`
        : "All are decided.";
      const share = ((100 * wrong) / (right + wrong)).toFixed(0);
      this.line.textContent = `${whole(decided)} of ${whole(suspects)} suspects decided: ${whole(wrong)} wrong (${share} %), ${whole(right)} right, ${whole(unsure)} unsure. ${more}`;
      this.line.title = "Over the suspects only. Those not decided are taken to be wrong as often as the decided ones nearest above them in rank.";
    }
    const beside = document.getElementById("detail-progress");
    if (beside) beside.textContent = this.line.textContent;
  }

  sure(action, count) {
    return this.dialog(`${action} ${whole(count)} samples`, (close) => {
      const yes = el("button", { type: "button", class: "main", onclick: () => close(true) }, `${action} all ${whole(count)}`);
      return [el("p", {}, "Every selected sample gets this decision. It can be undone."), yes];
    }).then(Boolean);
  }

  // A class, by typing its beginning; the expected one comes first.
  label(count, near) {
    const classes = this.table.classes;
    return this.dialog(count === 1 ? "Relabel" : `Relabel ${whole(count)} samples`, (close) => {
      const list = el("div", { class: "choices", role: "group", "aria-label": "Classes" });
      let first = null;
      const typed = el("input", {
        "aria-label": "New label, its beginning", placeholder: "type the beginning of a class", autofocus: true,
        oninput: () => fill(),
        onkeydown: (event) => {
          if (event.key !== "Enter") return;
          event.preventDefault();
          if (first !== null) close(first);
        },
      });
      const fill = () => {
        const words = typed.value.trim().toLowerCase();
        const begins = classes.filter((name) => name.toLowerCase().startsWith(words));
        const holds = classes.filter((name) => !name.toLowerCase().startsWith(words) && name.toLowerCase().includes(words));
        const found = [...begins, ...holds];
        if (!words && near.expected && classes.includes(near.expected)) found.unshift(near.expected);
        const shown = [...new Set(found)].slice(0, 12);
        first = shown[0] ?? null;
        list.replaceChildren(...shown.map((name, at) => el("button", { type: "button", class: at ? "" : "main", onclick: () => close(name) }, name)));
        if (!shown.length) list.append("no class begins so");
      };
      fill();
      return [typed, list];
    });
  }

  dialog(title, content) {
    return new Promise((resolve) => {
      const { asking } = this;
      const close = (value) => {
        asking.onclose = null;
        asking.close();
        resolve(value);
      };
      asking.onclose = () => resolve(null);
      asking.setAttribute("aria-label", title);
      asking.replaceChildren(el("h2", {}, title), ...content(close), el("button", { type: "button", onclick: () => close(null) }, "cancel"));
      asking.showModal();
    });
  }
}

export const badge = (mark) =>
  mark ? el("span", { class: `badge ${mark.action}`, title: `${mark.by}, ${mark.at}` }, mark.action === "relabel" ? `→ ${mark.label}` : mark.action) : null;

export const valued = (column, value) => (typeof value === "number" ? number(value) : (value ?? "none"));
