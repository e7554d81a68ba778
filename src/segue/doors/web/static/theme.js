// The chosen theme, before anything is painted. Without a choice the system's holds.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing: the system's theme is as good.
}
