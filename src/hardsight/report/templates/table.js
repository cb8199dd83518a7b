"use strict";
// Search and sorting for the table; without this script the table stands as it is written.
(() => {
  const table = document.getElementById("samples-table");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const found = document.getElementById("samples-found");
  const search = document.getElementById("samples-search");
  document.getElementById("samples-tools").hidden = false;
  const paper = document.getElementById("samples-paper");
  const tell = (count) => {
    found.textContent = `${count} of ${rows.length} rows`;
    if (!paper) return;
    const left = count - Number(paper.dataset.rows);
    paper.hidden = left <= 0;
    paper.firstElementChild.textContent = left;
  };
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      count += !row.hidden;
    }
    tell(count);
  });
  const key = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const number = Number(text);
    return text !== "" && !Number.isNaN(number) ? number : text;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b, undefined, { numeric: true });
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falling < 0 ? "descending" : "ascending");
      const keyed = rows.map((row) => [key(row, column), row]);
      // What has no value stays below, whichever way the rest is sorted.
      keyed.sort((a, b) => (a[0] === "") - (b[0] === "") || falling * compare(a[0], b[0]));
      body.append(...keyed.map((pair) => pair[1]));
    });
  });
  tell(rows.length);
})();
