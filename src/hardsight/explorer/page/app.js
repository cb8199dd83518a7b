// Puts the parts together: one selection, asked of the server, drawn by all of them.
import { Decisions } from "./decide.js";
import { Detail } from "./detail.js";
import { el, whole } from "./elements.js";
import { Gallery } from "./gallery.js";
import { histograms } from "./histograms.js";
import { lists } from "./lists.js";
import { Atlas } from "./map.js";
import { matrix } from "./matrix.js";
import { counts, newest, told } from "./server.js";
import { canUndo, change, forget, held, onChange, replaced, state, undo } from "./state.js";

const byId = (id) => document.getElementById(id);

function fail(problem) {
  byId("problem").hidden = !problem;
  byId("problem").textContent = problem?.message ?? "";
}

function words(one, table) {
  const column = (name) => table.columns.find((each) => each.name === name);
  const [first] = one.columns;
  if (one.kind === "search") return `holds “${one.values[0]}”`;
  if (one.kind === "lasso") return `inside the lasso over ${one.columns.join(" and ")}`;
  if (one.kind === "brush") {
    const { title, low, high } = column(first);
    const value = (bin) => Number((low + (bin / 255) * (high - low)).toPrecision(3));
    return `${title} ${value(one.values[0])} to ${value(one.values[1] + 1)}`;
  }
  if (one.kind === "pair") return one.values.map(([a, b]) => `${table.classes[a]} → ${table.classes[b]}`).join(" or ");
  const names = one.values.map((code) => column(first)?.values[code] ?? "none");
  return `${column(first)?.title}: ${names.slice(0, 4).join(" or ")}${names.length > 4 ? " …" : ""}`;
}

// Whether an address, which may be another table's, names only what is there.
function fits({ filters, sort, axes, colour, tokens, view, open }, table) {
  const known = new Set(table.columns.map((one) => one.name));
  const all = (names, count) => Array.isArray(names) && names.every((name) => known.has(name)) && (count ?? names.length) === names.length;
  return (
    Array.isArray(filters) && filters.every((one) => one && all(one.columns) && Array.isArray(one.values)) &&
    (axes === null || all(axes, 2)) && (colour === "" || known.has(colour)) && (sort === null || sort.by === "" || known.has(sort.by)) &&
    (tokens === null || tokens === "" || table.tokens.some((one) => one.name === tokens)) &&
    (view === null || (Array.isArray(view) && view.length === 4 && view.every(Number.isFinite))) && (open === null || Number.isInteger(open))
  );
}

async function start() {
  const table = await told("table");
  document.title = `${table.name} – hardsight`;
  const strange = !fits(state, table);
  if (strange) forget();
  byId("name").textContent = table.name;
  const role = (...roles) => table.columns.filter((one) => roles.includes(one.role) && (one.role !== "list" || one.values.length));
  const numbers = histograms(byId("histograms"), role("number").filter((one) => one.kind !== "place" && (one.name !== "rank" || one.kind === "score")));
  const values = lists(byId("lists"), role("list", "several"));
  const pairs = matrix(byId("matrix"), table.matrix, table.classes);
  const marked = (changed) => {
    gallery.marked(changed);
    detail.marked(changed);
    recount(false);
  };
  const decisions = new Decisions(table, fail, marked, () => gallery.review());
  const open = (row) => detail.open(row);
  const gallery = new Gallery(table, decisions, open, fail);
  const detail = new Detail(table, gallery, decisions, fail);
  const atlas = new Atlas(table, open);
  const parts = [numbers, values, pairs, atlas];

  const recount = newest(async (sampled) => {
    performance.mark("asked");
    const found = await counts({
      filters: state.filters, histograms: numbers.names, lists: values.names, matrix: !sampled, map: atlas.asked(), sampled,
    });
    parts.forEach((one) => one.draw(found.parts));
    byId("count").textContent = `${found.exact ? "" : "about "}${whole(found.count)} of ${whole(table.rows)} samples`;
    performance.mark("painted");
  }, fail);

  const steps = () => {
    byId("steps").replaceChildren(
      ...state.filters.map((one) =>
        el("button", { type: "button", class: "step", title: "Remove this", onclick: () => change({ filters: state.filters.filter((other) => other !== one) }) }, words(one, table), " ×"),
      ),
    );
    byId("undo-step").disabled = !canUndo();
    byId("words").value = held("search", [])?.[0] ?? byId("words").value;
    if (!held("search", []) && document.activeElement !== byId("words")) byId("words").value = "";
  };

  onChange((what) => {
    const dragged = what.includes("dragged");
    const has = (...names) => what.some((one) => names.includes(one));
    // The samples before the counts: a brush has shown these while it moved.
    const listed = has("filters", "sort", "tokens") ? gallery.show() : Promise.resolve();
    if (has("filters", "axes", "view", "colour", "dragged")) listed.then(() => recount(dragged));
    if (what.includes("open")) detail.show();
    if (!dragged) steps();
  });
  byId("undo-step").addEventListener("click", undo);
  byId("narrow").addEventListener("click", () => {
    const shown = document.body.toggleAttribute("data-narrow");
    byId("narrow").setAttribute("aria-expanded", String(shown));
    if (shown) again();
  });
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const typed = byId("words").value.trim();
    change({ filters: replaced("search", [], typed ? [typed] : null) });
  });
  byId("words").addEventListener("search", () => byId("words").value || change({ filters: replaced("search", [], null) }));
  const again = () => parts.forEach((one) => one.draw({}));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  addEventListener("resize", again);

  steps();
  await Promise.all([recount(false), gallery.show()]);
  if (state.open !== null) await detail.show();
  if (strange) fail(new Error("The address does not fit this table: all samples are shown."));
  document.body.dataset.ready = "true";
}

start().catch(fail);
