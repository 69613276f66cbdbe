// A case's details, drawn when it is opened for the first time.

const SIGNS = { pass: "✓", fail: "✗", inconclusive: "?", error: "!", skip: "–" };

function drawDetails(item) {
  const body = item.querySelector(".body");
  if (body.firstChild) return;
  const data = JSON.parse(item.querySelector('script[type="application/json"]').textContent);
  body.append(
    el("dl", { class: "facts" }, ...data.facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    ...(data.message ? [el("p", { class: "message" }, ...withCodes(data.message))] : []),
    ...output(data.output),
    ...data.checks.map(checkOf),
    ...(data.explored ? [explorationOf(data.explored)] : []),
    ...reproduction(data.reproduce)
  );
}

function output(text) {
  return text ? [el("pre", { class: "output", tabindex: "0" }, text)] : [];
}

function checkOf(check) {
  const badge = el("span", { class: `badge ${check.verdict}` }, `${SIGNS[check.verdict]} ${check.name}: ${check.verdict}`);
  return el("section", { class: "check" },
    el("h3", {}, badge, check.answer ? el("span", { class: "answer" }, ...withCodes(check.answer)) : null),
    ...output(check.rest),
    check.cost ? el("p", { class: "aside" }, check.cost) : null,
    check.torch ? el("p", { class: check.torch_differs ? "differs" : "aside" }, check.torch) : null,
    check.second_opinion ? el("p", { class: "aside" }, check.second_opinion) : null,
    ...check.findings.map((finding) => findingOf(check.name, finding))
  );
}

function findingOf(check, finding) {
  return el("article", { class: `finding ${finding.verdict}` },
    el("h4", {}, explained(finding.code, "code", `${check} ${finding.code}`), " ", ...withCodes(finding.says)),
    ...output(finding.rest),
    finding.cause ? el("p", {}, "cause ", explained(finding.cause, "cause", `${check}: ${finding.cause}`), finding.why ? ` ${finding.why}` : "") : null,
    finding.rows.length ? elementTable(finding) : null,
    finding.more ? el("p", { class: "aside" }, finding.more) : null,
    finding.picture ? pictureOf(finding) : null
  );
}

function reproduction(command) {
  if (!command) return [];
  const code = el("code", { tabindex: "0" }, command);
  const button = el("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copied(code)) ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return [el("div", { class: "reproduce" }, el("span", { class: "label" }, "reproduce"), code, button)];
}

// Puts a command on the clipboard; where the browser forbids that, it is selected for the keyboard to copy.
async function copied(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(code);
    return false;
  }
}
