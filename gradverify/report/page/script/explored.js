// Tries with other inputs: failures in full, the others as short lists.

function explorationOf(explored) {
  const badge = el("span", { class: `badge ${explored.verdict}` }, `${SIGNS[explored.verdict]} explore`);
  return el("section", { class: "explored" },
    el("h3", {}, badge, el("span", { class: "answer" }, explored.summary)),
    ...explored.failures.map(failureOf),
    ...explored.lists.map(shortList)
  );
}

function failureOf(failure) {
  return el("section", { class: "failure" },
    el("h4", {}, failure.title),
    el("pre", { class: "output", tabindex: "0" }, failure.inputs),
    failure.message ? el("p", { class: "message" }, ...withCodes(failure.message)) : null,
    failure.saved ? el("p", { class: "aside" }, "as a spec: ", el("code", {}, failure.saved)) : null,
    failure.also ? el("p", { class: "aside" }, failure.also) : null,
    ...failure.checks.map(checkOf)
  );
}

function shortList(list) {
  return el("section", { class: "short" },
    el("h4", {}, list.title, el("span", { class: "answer" }, list.meaning)),
    el("ul", {}, ...list.lines.map((line) => el("li", {}, line)))
  );
}
