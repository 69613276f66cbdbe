// Light, dark, or what the system says; remembered where the browser lets a page remember.

const THEMES = ["auto", "light", "dark"];
const THEME_KEY = "gradverify-theme";

function savedTheme() {
  try {
    const saved = localStorage.getItem(THEME_KEY);
    return THEMES.includes(saved) ? saved : "auto";
  } catch {
    return "auto";
  }
}

function saveTheme(theme) {
  try {
    localStorage.setItem(THEME_KEY, theme);
  } catch {
    // a page opened from a file may have no storage: the choice holds until it is closed
  }
}

function showTheme(theme, button) {
  document.documentElement.dataset.theme = theme;
  button.textContent = { auto: "◐ System theme", light: "☀ Light theme", dark: "☾ Dark theme" }[theme];
  button.setAttribute("aria-label", `${button.textContent.slice(2)}; press to change`);
}

function startTheme() {
  const button = document.getElementById("theme");
  let theme = savedTheme();
  showTheme(theme, button);
  button.hidden = false;
  button.addEventListener("click", () => {
    // the first press always changes what is seen
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const order = dark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    theme = order[(order.indexOf(theme) + 1) % order.length];
    saveTheme(theme);
    showTheme(theme, button);
  });
}
