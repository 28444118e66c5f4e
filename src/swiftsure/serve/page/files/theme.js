// Before the first paint, so that nothing flashes. A choice is kept; without one the system decides.
"use strict";
(() => {
  const NAMES = { auto: "◐ auto", light: "☀ light", dark: "☾ dark" };
  const LABELS = { auto: "as the system has them", light: "light", dark: "dark" };
  const root = document.documentElement;
  let kept = null;
  try { kept = localStorage.getItem("theme"); } catch { /* a browser that keeps nothing */ }
  let theme = kept in NAMES ? kept : "auto";
  const apply = () => { if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme; };
  apply();
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => {
      button.textContent = NAMES[theme];
      button.setAttribute("aria-label", `Colours: ${LABELS[theme]}`);
    };
    show();
    button.addEventListener("click", () => {
      const names = Object.keys(NAMES);
      theme = names[(names.indexOf(theme) + 1) % names.length];
      try { localStorage.setItem("theme", theme); } catch { /* as above */ }
      apply();
      show();
      document.dispatchEvent(new Event("themechange"));
    });
  });
})();
