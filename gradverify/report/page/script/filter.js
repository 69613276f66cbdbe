// Which cases are listed. The state is in the address, after the #, so that a view can be sent to someone.

function startFilter() {
  const form = document.getElementById("filter");
  if (!form) return;
  const items = [...document.querySelectorAll(".case")];
  const texts = new Map(items.map((item) => [item, textOf(item)]));
  const groups = [...document.querySelectorAll(".group")].filter((group) => group.querySelector(".case"));
  const folded = new Map(groups.map((group) => [group, group.open]));
  let filtering = false;
  form.hidden = false;

  function apply() {
    const wanted = wantedBy(form);
    let shown = 0;
    for (const item of items) {
      item.hidden = !matches(item, texts.get(item), wanted);
      shown += !item.hidden;
    }
    const now = isNarrow(wanted);
    for (const group of groups) {
      const left = group.querySelectorAll(".case:not([hidden])").length;
      group.hidden = left === 0;
      group.querySelector(".number").textContent = left;
      if (now && !filtering) folded.set(group, group.open);
      if (now !== filtering) group.open = now || folded.get(group); // what was looked for is not to be folded away
    }
    filtering = now;
    document.getElementById("count").textContent = now ? `${shown} of ${items.length} cases` : "";
  }

  form.addEventListener("input", () => { apply(); writeHash(form); });
  form.addEventListener("reset", () => setTimeout(() => { apply(); writeHash(form); }));
  form.addEventListener("submit", (event) => event.preventDefault());
  const read = () => { readHash(form); apply(); openNamed(items); };
  addEventListener("hashchange", read);
  read();
}

function textOf(item) {
  return `${item.querySelector("summary").textContent} ${item.dataset.words}`.toLowerCase();
}

function wantedBy(form) {
  return {
    words: form.querySelector("#q").value.toLowerCase().split(/\s+/).filter(Boolean),
    verdicts: [...form.querySelectorAll("[name=verdict]:checked")].map((box) => box.value),
    device: form.querySelector("#device").value,
    dtype: form.querySelector("#dtype").value,
  };
}

function isNarrow(wanted) {
  return Boolean(wanted.words.length || wanted.verdicts.length || wanted.device || wanted.dtype);
}

function matches(item, text, wanted) {
  const { verdict, device, dtype } = item.dataset;
  return (!wanted.verdicts.length || wanted.verdicts.includes(verdict))
    && (!wanted.device || wanted.device === device)
    && (!wanted.dtype || wanted.dtype === dtype)
    && wanted.words.every((word) => text.includes(word));
}

function stateInHash() {
  return new URLSearchParams(location.hash.slice(1));
}

function replaceHash(state) {
  const text = state.toString();
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

function writeHash(form) {
  const wanted = wantedBy(form);
  const state = new URLSearchParams();
  const open = stateInHash().get("case");
  if (wanted.verdicts.length) state.set("verdict", wanted.verdicts.join(","));
  for (const name of ["device", "dtype"]) if (wanted[name]) state.set(name, wanted[name]);
  if (wanted.words.length) state.set("q", wanted.words.join(" "));
  if (open) state.set("case", open);
  replaceHash(state);
}

function readHash(form) {
  const state = stateInHash();
  const verdicts = (state.get("verdict") || "").split(",");
  for (const box of form.querySelectorAll("[name=verdict]")) box.checked = verdicts.includes(box.value);
  for (const name of ["device", "dtype"]) {
    const choice = form.querySelector(`#${name}`);
    choice.value = state.get(name) || "";
    if (choice.selectedIndex < 0) choice.value = "";
  }
  form.querySelector("#q").value = state.get("q") || "";
}

// The case that was opened last is part of the state too.
function rememberOpen(item) {
  const state = stateInHash();
  const id = item.querySelector(".id").textContent;
  if (item.querySelector("details").open) state.set("case", id);
  else if (state.get("case") === id) state.delete("case");
  else return;
  replaceHash(state);
}

function openNamed(items) {
  const id = stateInHash().get("case");
  const item = id && items.find((one) => one.querySelector(".id").textContent === id);
  if (!item || item.querySelector("details").open) return;
  item.closest(".group").open = true;
  item.querySelector("details").open = true;
  item.scrollIntoView({ block: "start" });
}
