// The table of a finding's elements.

function elementTable(finding) {
  // that every one is a mismatch need not be said in every row
  const verdict = finding.columns.length - 1;
  const last = finding.rows.every((row) => row[verdict] === "mismatch") ? verdict : verdict + 1;
  const names = finding.columns.slice(0, last);
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

const SAID_APART = ["output", "input", "input value", "difference", "allowed", "ratio", "ulps", "verdict"];

// One element in a sentence, for a picture.
function elementText(finding, row) {
  const found = Object.fromEntries(finding.columns.map((name, place) => [name, row[place].trim()]));
  const [first, second] = finding.columns.filter((name) => !SAID_APART.includes(name));
  const ulps = "ulps" in found ? [`${found.ulps} ulps`] : [];
  const value = "input value" in found ? [`input value ${found["input value"]}`] : [];
  const verdict = found.verdict === "mismatch" ? [] : [found.verdict];
  return [
    "output" in found && "input" in found ? `d ${found.output} / d ${found.input}` : found.output || found.input,
    `${first} ${found[first]}`,
    `${second.replace(/ .*/, "")} ${found[second]}`,
    `difference ${found.difference}, allowed ${found.allowed} (ratio ${found.ratio})`,
    [...ulps, ...value, ...verdict].join(", "),
  ];
}
