// Which square is meant, by the mouse or by the keyboard: all three panels show it, and its numbers are read out.

const WAYS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

function pointAt(figure, finding, readout) {
  const picture = finding.picture;
  const found = new Map(picture.cells.map((cell, number) => [`${cell.row} ${cell.column}`, number]));
  const tip = el("div", { class: "tip", role: "tooltip", hidden: "" });
  figure.append(tip);
  let current = null;

  function show(drawing, row, column) {
    const number = found.get(`${row} ${column}`);
    const lines = number === undefined
      ? [picture.is_jacobian ? `d ${picture.rows[row]} / d ${picture.columns[column]}` : picture.rows[row] + picture.columns[column], "not among the elements listed"]
      : elementText(finding, finding.rows[picture.cells[number].element]);
    current = { row, column };
    moveCursors(figure, row, column);
    readout.textContent = lines.join(" · ");
    tip.replaceChildren(...lines.map((line) => el("div", {}, line)));
    tip.hidden = false;
    placeTip(tip, figure, drawing, row, column);
    markRow(figure, number === undefined ? -1 : picture.cells[number].element);
  }

  function hide() {
    tip.hidden = true;
    moveCursors(figure, null, null);
    markRow(figure, -1);
  }

  for (const drawing of figure.querySelectorAll("svg")) {
    const under = (event) => {
      const place = cellUnder(drawing, event, picture);
      if (place) show(drawing, ...place);
      else hide();
    };
    drawing.addEventListener("pointermove", under);
    drawing.addEventListener("pointerdown", under);
    drawing.addEventListener("pointerleave", hide);
    drawing.addEventListener("blur", hide);
    drawing.addEventListener("focus", () => {
      if (!drawing.matches(":focus-visible")) return;
      const start = current || picture.cells[0];
      show(drawing, start.row, start.column);
    });
    drawing.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      const next = event.key === "Home" ? picture.cells[0] : nextCell(picture.cells, current || picture.cells[0], WAYS[event.key]);
      if (!next) return;
      event.preventDefault();
      show(drawing, next.row, next.column);
    });
  }
}

function cellUnder(drawing, event, picture) {
  const size = Number(drawing.dataset.size);
  const area = drawing.getBoundingClientRect();
  const scale = drawing.viewBox.baseVal.width / area.width; // narrow screens shrink a panel
  const column = Math.floor(((event.clientX - area.left) * scale - Number(drawing.dataset.left)) / size);
  const row = Math.floor(((event.clientY - area.top) * scale - ABOVE) / size);
  const inside = row >= 0 && column >= 0 && row < picture.rows.length && column < picture.columns.length;
  return inside ? [row, column] : null;
}

// The nearest listed element in a direction: pictures are mostly empty, so one step at a time would take long.
function nextCell(cells, from, way) {
  if (!way) return null;
  const along = (cell) => (cell.row - from.row) * way[0] + (cell.column - from.column) * way[1];
  const aside = (cell) => Math.abs((cell.row - from.row) * way[1]) + Math.abs((cell.column - from.column) * way[0]);
  const far = (cell) => along(cell) + 2 * aside(cell);
  return cells.filter((cell) => along(cell) > 0).reduce((best, cell) => (!best || far(cell) < far(best) ? cell : best), null);
}

function moveCursors(figure, row, column) {
  for (const drawing of figure.querySelectorAll("svg")) {
    const cursor = drawing.querySelector(".cursor");
    const size = Number(drawing.dataset.size);
    cursor.setAttribute("visibility", row === null ? "hidden" : "visible");
    if (row === null) continue;
    cursor.setAttribute("x", column * size);
    cursor.setAttribute("y", row * size);
  }
}

function placeTip(tip, figure, drawing, row, column) {
  const size = Number(drawing.dataset.size);
  const [outer, area] = [figure.getBoundingClientRect(), drawing.getBoundingClientRect()];
  const scale = area.width / drawing.viewBox.baseVal.width;
  const x = area.left - outer.left + (Number(drawing.dataset.left) + (column + 1) * size) * scale + 8;
  const y = area.top - outer.top + (ABOVE + (row + 1) * size) * scale + 8;
  tip.style.setProperty("left", `${Math.max(0, Math.min(x, outer.width - tip.offsetWidth))}px`);
  tip.style.setProperty("top", `${y}px`);
}

function markRow(figure, element) {
  for (const row of figure.parentElement.querySelectorAll("tr[data-element]")) {
    row.classList.toggle("marked", Number(row.dataset.element) === element);
  }
}
