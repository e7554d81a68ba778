// What must be so before anything is painted. Every page has this twice: in its head for the theme,
// and behind a transcript, which then shows its end from the first frame on, before any module is there.

try {
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen; // without a choice the system's holds
} catch {
  // A browser that keeps nothing: the system's theme is as good.
}

// The server groups sessions by the reader's days.
document.cookie = `segue-ahead=${-new Date().getTimezoneOffset()}; path=/; max-age=31536000; samesite=lax`;

if (document.querySelector(".session:not([data-at])") && !location.hash) {
  const place = document.body.classList.contains("shared") ? document.scrollingElement : document.querySelector("#main");
  place.scrollTop = place.scrollHeight;
}
