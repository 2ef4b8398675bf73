"use strict";
for (const head of document.querySelectorAll("th[data-sortable]")) {
  const sort = () => {
    const table = head.closest("table"), column = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "descending";
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "ascending" : "descending");
    const value = (row) => row.cells[column].textContent.trim();
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [parseFloat(value(a)), parseFloat(value(b))];
      const order = Number.isNaN(x) || Number.isNaN(y) ? value(a).localeCompare(value(b)) : x - y;
      return down ? order : -order;
    });
    table.tBodies[0].append(...rows);
  };
  head.tabIndex = 0;
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
}
