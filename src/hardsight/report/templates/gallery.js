"use strict";
// The samples a page holds: seen page by page, filtered, shown large, and decided on. Without this script all cards are
// seen at once. Whatever a record says is put into the page as text.
(() => {
  const choices = document.getElementById("choices");
  const boxes = [...document.querySelectorAll(".cards")];
  if (!boxes.length) return;
  const KEYS = { k: "keep", r: "relabel", d: "drop", u: "unsure" };
  const names = [...choices.children].map((one) => one.textContent);
  const cells = [...choices.children].map((one) => one.dataset.cell);
  const header = choices.dataset.header && JSON.parse(choices.dataset.header);
  const table = document.getElementById("samples-table");
  const rows = table ? [...table.tBodies[0].rows] : [];
  const heads = table ? [...table.tHead.rows[0].cells].map((one) => one.textContent) : [];

  const make = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const button = (text, click, properties = {}) => {
    const made = make("button", { type: "button", ...properties }, text);
    made.addEventListener("click", click);
    return made;
  };

  // Decisions by the sample's cell in the list: [action, number of the new class]. Two windows of one page share them.
  const storage = `hardsight ${choices.dataset.key}`;
  let lasting = true;
  const stored = () => {
    try {
      return new Map(Object.entries(JSON.parse(localStorage.getItem(storage)) ?? {}));
    } catch {
      lasting = false;
      return null;
    }
  };
  let decisions = stored() ?? new Map();
  const decide = (id, decision) => {
    decisions = stored() ?? decisions;
    if (decision) decisions.set(id, decision);
    else decisions.delete(id);
    try {
      localStorage.setItem(storage, JSON.stringify(Object.fromEntries(decisions)));
    } catch {
      lasting = false;
    }
    showDecisions();
  };

  const samples = boxes.flatMap((box) =>
    [...box.children].map((card) => {
      const line = JSON.parse(card.dataset.line);
      const [given, expected, predicted] = card.dataset.classes.split(" ").map(Number);
      const row = rows[card.dataset.place];
      const kinds = [...card.querySelectorAll(".kind")].map((one) => one.textContent);
      const text = `${card.textContent} ${row ? row.textContent : ""} ${kinds.join(" ")}`.toLowerCase();
      return { box, card, line, id: line[0], given, expected, predicted, row, kinds, text };
    }),
  );
  // A sample's own label is kept by keeping it; an expected class that is the label says nothing.
  const proposed = (sample) => (sample.expected >= 0 && sample.expected !== sample.given ? sample.expected : -1);

  const act = (sample, action, chosen) => {
    const [before, label] = decisions.get(sample.id) ?? [];
    const wanted = action === "relabel" ? chosen ?? proposed(sample) : null;
    if (wanted === -1) {
      large.open(sample).choose();
      return false;
    }
    const again = before === action && (action !== "relabel" || label === wanted);
    decide(sample.id, again ? null : action === "relabel" ? [action, wanted] : [action]);
    return !again;
  };

  const actionButtons = (sample) =>
    Object.entries(KEYS).map(([key, action]) => {
      const made = button(action, () => act(sample(), action, large.chosen(sample())), { title: `key ${key}` });
      made.dataset.action = action;
      return made;
    });
  const press = (box, id) => {
    const [action] = decisions.get(id) ?? [];
    for (const one of box.querySelectorAll("[data-action]")) {
      one.setAttribute("aria-pressed", String(one.dataset.action === action));
    }
  };

  // The bar at the bottom: how far one is, and the list.
  const status = make("span", { role: "status" });
  const bar = make("div", { className: "decisions", hidden: true }, status, " ");
  const showDecisions = () => {
    if (!header) return;
    for (const { card, id } of samples) {
      const [action, label] = decisions.get(id) ?? [];
      card.dataset.decided = action ?? "";
      card.querySelector(".decided").textContent = action === "relabel" ? `relabel: ${names[label]}` : action ?? "";
      press(card, id);
    }
    large.refresh();
    const known = new Map(samples.map((one) => [one.id, one]));
    const taken = [...decisions].filter(([id]) => known.has(id));
    const counts = Object.values(KEYS).map((action) => [action, taken.filter(([, one]) => one[0] === action).length]);
    const counted = samples.filter((one) => "counted" in one.card.dataset);
    const done = counted.filter((one) => decisions.has(one.id)).length;
    const progress = counted.length ? `${done} of ${counted.length} suspects decided` : `${taken.length} decided`;
    const parts = counts.filter(([, count]) => count).map(([action, count]) => `${count} ${action}`);
    status.textContent =
      [progress, parts.join(", ")].filter(Boolean).join(": ") + (lasting ? "" : "; kept only while this page is open");
    bar.hidden = !taken.length;
  };

  const csv = (line) => line.map((cell) => (/[",\n\r]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell)).join(",");
  const list = () => {
    const wanted = new Map();
    for (const { card, id, line } of samples) {
      const [action, label] = decisions.get(id) ?? [];
      if (!action && !("counted" in card.dataset)) continue;
      // Where one is unsure nothing changes.
      const written = action === "relabel" || action === "drop" ? action : "keep";
      wanted.set(id, [...line.slice(0, 3), written, written === "relabel" ? cells[label] : line[4], ...line.slice(5)]);
    }
    return [header, ...wanted.values()].map(csv).join("\n") + "\n";
  };
  const download = () => {
    const address = URL.createObjectURL(new Blob([list()], { type: "text/csv" }));
    const link = make("a", { href: address, download: "actions.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };

  // One sample, as large as there is room, with all its scores.
  const large = (() => {
    let gallery, at;
    const shown = () => gallery.found[at];
    const picture = make("div", { className: "picture" });
    const words = make("div", { className: "words" });
    const place = make("p", { className: "quiet", id: "large-place" });
    const chooser = make("select", { ariaLabel: "New class" }, make("option", { value: -1 }, "choose a class"));
    chooser.append(...names.map((name, value) => make("option", { value }, name)));
    const buttons = header ? actionButtons(shown) : [];
    const tools = make("div", { className: "actions" }, ...buttons, ...(header ? [chooser] : []));
    const move = (by) => {
      if (gallery.found[at + by]) show(at + by);
    };
    const moves = make(
      "div",
      { className: "moves" },
      button("Previous", () => move(-1)),
      button("Next", () => move(1)),
      button("Close", () => dialog.close()),
    );
    const dialog = make("dialog", { className: "large", tabIndex: -1 }, picture, make("div", {}, place, words, tools, moves));
    dialog.setAttribute("aria-labelledby", "large-place");
    const show = (place_) => {
      at = place_;
      const { card, row, given } = shown();
      const image = card.querySelector("img");
      picture.replaceChildren(...(image ? [image.cloneNode()] : []));
      if (image && image.naturalWidth > 64) picture.firstChild.classList.add("smooth");
      const copy = card.querySelector("figcaption").cloneNode(true);
      copy.querySelector(".actions")?.remove();
      for (const one of copy.querySelectorAll("[title]")) one.textContent = one.title;
      const scores = make("dl");
      const reasons = make("p", { className: "quiet" });
      for (const [column, head] of heads.entries()) {
        const cell = row?.cells[column];
        if (!cell?.textContent) continue;
        if (cell.className === "n") scores.append(make("div", {}, make("dt", {}, head), make("dd", {}, cell.textContent)));
        if (cell.className === "reasons") reasons.textContent = cell.textContent;
      }
      words.replaceChildren(make("div", {}, ...copy.childNodes), reasons, scores);
      place.textContent = `${at + 1} of ${gallery.found.length}`;
      const [, label] = decisions.get(shown().id) ?? [];
      chooser.value = label ?? proposed(shown());
      for (const option of chooser.options) option.disabled = Number(option.value) === given;
      moves.children[0].disabled = !gallery.found[at - 1];
      moves.children[1].disabled = !gallery.found[at + 1];
      press(dialog, shown().id);
    };
    chooser.addEventListener("change", () => {
      const wanted = Number(chooser.value);
      if (wanted >= 0) decide(shown().id, ["relabel", wanted]);
    });
    dialog.addEventListener("keydown", (event) => {
      if (event.target === chooser || event.ctrlKey || event.metaKey || event.altKey) return;
      const action = header && KEYS[event.key];
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (action && act(shown(), action, large.chosen(shown()))) move(1);
      if (by) move(by);
      if (action || by) event.preventDefault();
    });
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.addEventListener("close", () => gallery.reveal(shown()));
    document.body.append(dialog);
    return {
      open(sample) {
        gallery = galleries.find((one) => one.box === sample.box);
        show(gallery.found.indexOf(sample));
        if (!dialog.open) dialog.showModal();
        dialog.focus();
        return this;
      },
      choose: () => chooser.focus(),
      chosen: (sample) => (dialog.open && shown() === sample ? Number(chooser.value) : undefined),
      refresh() {
        if (!dialog.open) return;
        const [, label] = decisions.get(shown().id) ?? [];
        if (label !== undefined) chooser.value = label;
        press(dialog, shown().id);
      },
    };
  })();

  const galleries = boxes.map((box) => {
    const mine = samples.filter((one) => one.box === box);
    const size = Number(box.dataset.page);
    const gallery = { box, found: mine };
    let start = 0;
    let cell = null;

    const select = (title, values, matches) => {
      const counts = new Map();
      for (const one of mine) for (const value of values(one)) counts.set(value, (counts.get(value) ?? 0) + 1);
      const options = [...counts].sort(([a], [b]) => (a > b ? 1 : -1));
      const made = make("select", {}, make("option", { value: "" }, "all"));
      for (const [value, count] of options) made.append(make("option", { value }, `${names[value] ?? value} (${count})`));
      made.addEventListener("change", filter);
      const shown = options.length > 1;
      return { shown, made, label: make("label", {}, `${title} `, made), test: (one) => !made.value || matches(one, made.value) };
    };
    const known = (code) => (code >= 0 ? [code] : []);
    const filters = [
      select("given", (one) => known(one.given), (one, value) => one.given === Number(value)),
      select("expected", (one) => known(one.expected), (one, value) => one.expected === Number(value)),
      select("finding", (one) => one.kinds, (one, value) => one.kinds.includes(value)),
    ].filter((one) => one.shown);
    if (header) {
      const made = make("select", {}, ...["all", "undecided", ...Object.values(KEYS)].map((one) => make("option", {}, one)));
      made.addEventListener("change", () => filter());
      const test = (one) => {
        const action = decisions.get(one.id)?.[0] ?? "undecided";
        return made.value === "all" || made.value === action;
      };
      filters.push({ made, label: make("label", {}, "decision ", made), test });
    }
    const search = make("input", { type: "search", placeholder: "Search these samples", ariaLabel: "Search these samples" });
    search.addEventListener("input", () => filter());
    const chip = button("", () => gallery.only(null), { className: "chip", hidden: true });
    const found = make("span", { role: "status" });
    const turn = (by) => {
      start += by * size;
      draw();
    };
    const previous = button("Previous", () => turn(-1));
    const next = button("Next", () => turn(1));
    const tools = make("div", { className: "filters" }, ...filters.map((one) => one.label), search, chip);
    const pager = make("div", { className: "pager" }, previous, next, found);

    function draw(active) {
      const seen = gallery.found.slice(start, start + size);
      for (const one of mine) one.card.hidden = true;
      for (const one of seen) one.card.hidden = false;
      previous.disabled = start === 0;
      next.disabled = start + size >= gallery.found.length;
      const of = gallery.found.length === mine.length ? "" : ` (of ${mine.length})`;
      found.textContent = seen.length ? `${start + 1} to ${start + seen.length} of ${gallery.found.length}${of}` : `none${of}`;
      rove(active ?? seen[0]);
    }
    // One card of the gallery is in the tab order; arrows move on.
    function rove(active) {
      for (const one of mine) {
        const here = one === active ? 0 : -1;
        one.card.tabIndex = here;
        for (const inner of one.card.querySelectorAll("button")) inner.tabIndex = here;
      }
    }
    function filter() {
      const wordsOf = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      gallery.found = mine.filter(
        (one) =>
          filters.every((test) => test.test(one)) &&
          wordsOf.every((word) => one.text.includes(word)) &&
          (!cell || (one.given === cell[0] && one.predicted === cell[1])),
      );
      start = 0;
      draw();
    }
    gallery.only = (wanted) => {
      cell = wanted;
      chip.hidden = !cell;
      chip.textContent = cell ? `given ${names[cell[0]]}, predicted ${names[cell[1]]} ×` : "";
      chip.ariaLabel = `Show all again, not only ${chip.textContent.slice(0, -2)}`;
      filter();
    };
    gallery.reveal = (sample) => {
      const at = gallery.found.indexOf(sample);
      start = Math.floor(at / size) * size;
      draw(sample);
      sample.card.focus();
    };
    const step = (sample, by) => {
      const other = gallery.found[gallery.found.indexOf(sample) + by];
      if (other) gallery.reveal(other);
    };
    const across = () => getComputedStyle(box).gridTemplateColumns.split(" ").length;
    for (const sample of mine) {
      const { card } = sample;
      const caption = card.querySelector("figcaption");
      if (header) {
        caption.append(make("span", { className: "decided" }), make("span", { className: "actions" }, ...actionButtons(() => sample)));
      }
      card.addEventListener("click", (event) => event.target.closest("button") || large.open(sample));
      card.addEventListener("focusin", () => rove(sample));
      card.addEventListener("keydown", (event) => {
        if (event.target !== card || event.ctrlKey || event.metaKey || event.altKey) return;
        const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across(), ArrowDown: across() }[event.key];
        const action = header && KEYS[event.key];
        if (event.key === "Enter") large.open(sample);
        if (action && act(sample, action)) step(sample, 1);
        if (by) step(sample, by);
        if (by || action || event.key === "Enter") event.preventDefault();
      });
    }
    box.before(tools, pager);
    box.classList.add("paged");
    draw();
    return gallery;
  });

  // A cell of the confusion matrix, or a row of its table, shows its samples.
  const show = (cell, from) => {
    const chosen = cell.split("-").map(Number);
    const target = galleries.find((one) => (one.only(chosen), one.found.length)) ?? galleries[0];
    for (const one of galleries) if (one !== target) one.only(null);
    target.only(chosen);
    target.box.closest("section").scrollIntoView();
    target.box.parentElement.querySelector(".chip").focus();
  };
  for (const row of document.querySelectorAll("tr[data-cell]")) {
    const first = row.cells[0];
    const made = button("", () => show(row.dataset.cell));
    made.append(...first.childNodes);
    first.append(made);
  }
  const matrix = document.querySelector("#confusion svg");
  const squares = matrix ? [...matrix.querySelectorAll("[data-cell]")] : [];
  if (squares.length) matrix.setAttribute("role", "group");
  for (const [at, square] of squares.entries()) {
    const [given, predicted] = square.dataset.cell.split("-").map(Number);
    const here = samples.filter((one) => one.given === given && one.predicted === predicted);
    const held = new Set(here.map((one) => one.id)).size;
    const words = `given ${names[given]}, predicted ${names[predicted]}: ${held} on this page`;
    square.setAttribute("role", "button");
    square.setAttribute("tabindex", at ? -1 : 0);
    square.setAttribute("aria-label", words);
    const title = document.createElementNS(square.namespaceURI, "title");
    title.textContent = words;
    square.prepend(title);
    square.addEventListener("click", () => show(square.dataset.cell));
    square.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") show(square.dataset.cell);
      const by = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      // Enter would go on to what is focused next.
      if (by || event.key === "Enter" || event.key === " ") event.preventDefault();
      if (by) nearest(square, ...by)?.focus();
    });
  }
  // The next square in a direction; where there is none in line, the nearest beyond.
  const nearest = (square, down, right) => {
    const [row, column] = square.dataset.cell.split("-").map(Number);
    const distance = (one) => {
      const [r, c] = one.dataset.cell.split("-").map(Number);
      const along = (r - row) * down + (c - column) * right;
      const aside = Math.abs((r - row) * right) + Math.abs((c - column) * down);
      return along > 0 ? along + 100 * aside : Infinity;
    };
    return squares.filter((one) => distance(one) < Infinity).sort((a, b) => distance(a) - distance(b))[0];
  };

  if (header) {
    bar.append(button("Download actions.csv", download), " ", button("Forget all", () => forget()));
    document.querySelector("main").append(bar);
    window.addEventListener("storage", (event) => {
      if (event.key !== storage) return;
      decisions = stored() ?? decisions;
      showDecisions();
    });
  }
  const forget = () => {
    if (!confirm("Forget all decisions on this page?")) return;
    for (const id of [...decisions.keys()]) decide(id, null);
  };
  showDecisions();
})();
