// A finding's picture: three panels on the same axes. How strong a colour is was decided before; here it is painted.

const PANELS = [
  ["analytic", (picture) => picture.names[0], (cell) => cell.analytic],
  ["numeric", (picture) => picture.names[1], (cell) => cell.numeric],
  ["error", () => "log10 of the difference", (cell) => cell.error],
];
const WIDEST_PANEL = 250; // pixels of cells
const LARGEST_CELL = 26;
const SMALLEST_CELL = 5;
const LETTER = 6.4; // pixels of a letter on an axis
const ABOVE = 5; // pixels; the first row's name is higher than a small cell

function pictureOf(finding) {
  const picture = finding.picture;
  const size = Math.max(SMALLEST_CELL, Math.min(LARGEST_CELL, Math.floor(WIDEST_PANEL / Math.max(picture.columns.length, picture.rows.length))));
  const readout = el("p", { class: "readout", role: "status" }, "Point at a square, or focus a panel and use the arrow keys.");
  const panels = PANELS.map(([kind, title, strength]) =>
    el("div", { class: "panel" }, el("h5", {}, title(picture)), drawing(picture, size, kind, title(picture), strength), legend(picture, kind))
  );
  const note = [
    `rows ${span(picture.rows)}, columns ${span(picture.columns)}`,
    picture.covers,
    picture.by_decades ? "values by decades" : "",
    "blank: not among the elements listed",
  ];
  const caption = el("figcaption", {}, note.filter(Boolean).join("; "));
  const figure = el("figure", { class: "picture" }, el("div", { class: "panels" }, ...panels), readout, caption);
  pointAt(figure, finding, readout);
  return figure;
}

function span(names) {
  return names.length > 1 ? `${names[0]} to ${names[names.length - 1]}` : names[0];
}

function drawing(picture, size, kind, title, strength) {
  const wide = picture.columns.length * size;
  const high = picture.rows.length * size;
  const ticks = tickPlaces(picture.rows.length, Math.max(1, Math.floor(high / 13)));
  const left = Math.ceil(Math.max(...ticks.map((place) => picture.rows[place].length)) * LETTER) + 6;
  const cells = picture.cells.map((cell, number) => square(cell, number, size, strength(cell)));
  const rowNames = ticks.map((place) =>
    svg("text", { x: left - 5, y: ABOVE + (place + 0.5) * size, class: "tick row" }, picture.rows[place])
  );
  const box = svg("g", { transform: `translate(${left} ${ABOVE})`, class: "box" },
    svg("rect", { class: "ground", width: wide, height: high }), ...cells,
    svg("rect", { class: "cursor", width: size, height: size, visibility: "hidden" }));
  const names = columnNames(picture.columns, size, left);
  const room = Math.max(left + wide, names.reach) + 2;
  return svg("svg", {
    class: `drawing ${kind}`, role: "img", tabindex: "0", width: room, height: ABOVE + high + 18, viewBox: `0 0 ${room} ${ABOVE + high + 18}`,
    "aria-label": `${title}: ${picture.cells.length} squares, arrow keys read them`, "data-size": size, "data-left": left,
  }, ...rowNames, box, ...names.texts(ABOVE + high));
}

function columnNames(columns, size, left) {
  const last = columns.length - 1;
  const first = { x: left, name: columns[0] };
  const end = left + columns.length * size;
  const fits = last > 0 && (columns[0].length + columns[last].length + 1) * LETTER < columns.length * size;
  const shown = fits ? [first, { x: end, name: columns[last], anchor: "end" }] : [first];
  return {
    reach: left + columns[0].length * LETTER,
    texts: (high) => shown.map(({ x, name, anchor }) => svg("text", { x, y: high + 13, class: "tick", "text-anchor": anchor || "start" }, name)),
  };
}

function tickPlaces(count, most) {
  const step = Math.ceil(count / most);
  return Array.from({ length: Math.ceil(count / step) }, (_, number) => number * step);
}

function square(cell, number, size, strength) {
  const gap = size > 8 ? 1 : 0;
  const place = { x: cell.column * size + gap / 2, y: cell.row * size + gap / 2, width: size - gap, height: size - gap };
  const made = svg("rect", { ...place, class: `cell ${signOf(strength)}`, "data-cell": number });
  if (strength !== null) made.style.setProperty("--share", `${Math.abs(strength)}%`);
  return made;
}

function signOf(strength) {
  if (strength === null) return "odd";
  return strength < 0 ? "negative" : "positive";
}

function legend(picture, kind) {
  const [low, high] = kind === "error" ? picture.error_scale : [`−${picture.value_scale}`, picture.value_scale];
  const odd = picture.cells.some((cell) => cell[kind] === null);
  const parts = [el("span", {}, low), el("span", { class: `scale ${kind}` }), el("span", {}, high)];
  return el("p", { class: "legend" }, ...parts, odd ? el("span", { class: "odd-sign" }, "not finite") : null);
}
