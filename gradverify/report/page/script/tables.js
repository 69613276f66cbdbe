// The table of a finding's elements.

const COLUMNS = ["output", "input", "input value", "analytic", "numeric ± bar", "difference", "allowed", "ratio", "verdict"];
const VERDICT = COLUMNS.length - 1;

function elementTable(finding) {
  // that every one is a mismatch need not be said in every row
  const last = finding.rows.every((row) => row[VERDICT] === "mismatch") ? VERDICT : VERDICT + 1;
  const names = COLUMNS.slice(0, last);
  const head = el("tr", {}, ...names.map((name) => el("th", { scope: "col", class: columnLook(name) }, name)));
  const body = finding.rows.map((row, number) =>
    el("tr", { "data-element": number }, ...names.map((name, place) => el("td", { class: columnLook(name) }, row[place])))
  );
  const table = el("table", {}, el("thead", {}, head), el("tbody", {}, ...body));
  // the frame scrolls, so the keyboard has to reach it
  return el("div", { class: "frame", tabindex: "0", role: "region", "aria-label": "elements, worst first" }, table);
}

function columnLook(name) {
  return `col-${name.replace(/ .*/, "")}`;
}

// One element in a sentence, for a picture.
function elementText(row) {
  const [output, input, value, analytic, numeric, error, allowed, ratio, verdict] = row.map((text) => text.trim());
  return [
    `d ${output} / d ${input}`,
    `analytic ${analytic}`,
    `numeric ${numeric}`,
    `difference ${error}, allowed ${allowed} (ratio ${ratio})`,
    `input value ${value}${verdict === "mismatch" ? "" : `, ${verdict}`}`,
  ];
}
