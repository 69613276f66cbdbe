// Codes and causes open their explanation where they stand.

function explanationOf(name) {
  return document.getElementById(`explain-${name}`);
}

// A code or a cause, shown as `text`: a button where there is something to explain.
function explained(name, look, text = name) {
  if (!explanationOf(name)) return el("span", { class: look }, text);
  return el("button", { type: "button", class: look, "data-explain": name, title: "what this means" }, text);
}

// Text in which every code is a button.
function withCodes(text) {
  return text.split(/\b(GV\d{3})\b/).map((part, place) => (place % 2 ? explained(part, "code") : part));
}

function startExplaining() {
  const dialog = document.getElementById("explained");
  const inside = dialog.querySelector("div");
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-explain]");
    if (button) {
      const copy = explanationOf(button.dataset.explain).cloneNode(true);
      copy.removeAttribute("id");
      inside.replaceChildren(copy);
      dialog.showModal();
      inside.scrollTop = 0;
    } else if (event.target === dialog) {
      dialog.close(); // beside the text
    }
  });
}
