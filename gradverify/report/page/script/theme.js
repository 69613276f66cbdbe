// Light or dark as the system says, until the button asks for the other one; that is remembered where it can be.

const THEME_KEY = "gradverify-theme";
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

function savedTheme() {
  try {
    return localStorage.getItem(THEME_KEY);
  } catch {
    return null;
  }
}

function saveTheme(theme) {
  try {
    if (theme) localStorage.setItem(THEME_KEY, theme);
    else localStorage.removeItem(THEME_KEY);
  } catch {
    // a page opened from a file may have no storage: the choice holds until it is closed
  }
}

function startTheme() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemIsDark.matches);

  function choose(theme) {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
    button.textContent = isDark() ? "☀ Light" : "☾ Dark"; // what a press gives
  }

  choose(savedTheme());
  button.hidden = false;
  systemIsDark.addEventListener("change", () => choose(root.dataset.theme));
  button.addEventListener("click", () => {
    const wanted = isDark() ? "light" : "dark";
    const asSystem = (wanted === "dark") === systemIsDark.matches;
    saveTheme(asSystem ? null : wanted);
    choose(asSystem ? null : wanted);
  });
}
