// The page comes to life.

function startCases() {
  for (const item of document.querySelectorAll(".case")) {
    const details = item.querySelector("details");
    details.addEventListener("toggle", () => {
      if (details.open) drawDetails(item);
      rememberOpen(item);
    });
  }
}

// `/` goes to the search; up and down go from case to case.
function startKeys() {
  const search = document.getElementById("q");
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && !typing && search) {
      event.preventDefault();
      search.focus();
    } else if (event.target.matches("summary") && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const all = [...document.querySelectorAll("summary")].filter((one) => one.checkVisibility());
      const next = all[all.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
      if (!next) return;
      event.preventDefault();
      next.focus();
    }
  });
}

// On paper nothing can be opened, so what is not as expected and listed is open, and so is what the codes mean.
function startPrinting() {
  addEventListener("beforeprint", () => {
    for (const item of document.querySelectorAll(".group.bad .case:not([hidden])")) {
      drawDetails(item);
      item.querySelector("details").open = true;
    }
    for (const group of document.querySelectorAll(".group.explanations")) group.open = true;
  });
}

startTheme();
startExplaining();
startCases();
startFilter();
startKeys();
startPrinting();
