// Given and expected classes: every cell is a filter. Of many classes the commonest confusions, as a list.
import { el, whole } from "./elements.js";
import { change, held, replaced } from "./state.js";

const FEW = 40;

export function matrix(place, columns, classes) {
  if (!columns) {
    place.hidden = true;
    return { draw() {} };
  }
  const [first, second] = columns;
  const toggle = (a, b) => {
    const now = held("pair", columns) ?? [];
    const others = now.filter(([one, other]) => one !== a || other !== b);
    change({ filters: replaced("pair", columns, others.length < now.length ? others : [...now, [a, b]]) });
  };
  const cell = (a, b, count, most, text) => {
    const pressed = (held("pair", columns) ?? []).some(([one, other]) => one === a && other === b);
    const made = el(
      "button", {
        type: "button", "aria-pressed": String(pressed), "data-cell": `${a},${b}`, class: a === b ? "right" : "wrong",
        "aria-label": `${first} ${classes[a]}, ${second} ${classes[b]}: ${whole(count)}`,
        title: `${first} ${classes[a]}, ${second} ${classes[b]}`, onclick: () => toggle(a, b),
      }, text,
    );
    made.style.setProperty("--share", `${10 + (70 * Math.log1p(count)) / Math.log1p(most)}%`);
    return made;
  };
  const draw = (parts) => {
    const found = parts.matrix;
    if (!found) return;
    const focused = place.contains(document.activeElement) ? document.activeElement.dataset.cell : null;
    const pairs = [];
    for (let at = 0; at < found.length; at += 3) pairs.push([found[at], found[at + 1], found[at + 2]]);
    const most = Math.max(1, ...pairs.filter(([a, b]) => a !== b).map(([, , count]) => count));
    const title = el("h2", {}, `${first} (rows) and ${second}`);
    if (classes.length > FEW) {
      const items = pairs.map(([a, b, count]) => cell(a, b, count, most, `${classes[a]} → ${classes[b]}  ${whole(count)}`));
      place.replaceChildren(title, el("div", { class: "pairs" }, ...items));
    } else {
      const by = new Map(pairs.map(([a, b, count]) => [`${a},${b}`, count]));
      const heads = classes.map((name) => el("th", { scope: "col", title: name }, el("span", {}, name)));
      const rows = classes.map((name, a) =>
        el(
          "tr", {}, el("th", { scope: "row", title: name }, name),
          ...classes.map((_, b) => {
            const count = by.get(`${a},${b}`);
            return el("td", {}, count ? cell(a, b, count, a === b ? count : most, short(count)) : null);
          }),
        ),
      );
      const table = el("table", {}, el("thead", {}, el("tr", {}, el("td", {}), ...heads)), el("tbody", {}, ...rows));
      place.replaceChildren(title, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${first} and ${second}` }, table));
    }
    if (focused) place.querySelector(`[data-cell="${focused}"]`)?.focus();
  };
  return { draw };
}

const short = (count) => (count < 1000 ? String(count) : count < 1e6 ? `${Math.round(count / 1e3)}k` : `${Math.round(count / 1e6)}m`);
