// What must run before the browser paints. A page loads this script in its head, for the theme, and
// again after a transcript, so that the first frame shows the transcript's end.

try {
  if (localStorage.getItem("inspector") === "closed") document.documentElement.dataset.inspector = "closed";
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme; // otherwise the system's theme applies
} catch {
  // The browser has no storage for this site, so the system's theme applies.
}

// The server groups sessions by days in the browser's time zone.
document.cookie = `segue-utc-offset=${-new Date().getTimezoneOffset()}; path=/; max-age=31536000; samesite=lax`;

if (document.querySelector(".session:not([data-at])") && !location.hash) {
  const scroller = document.body.classList.contains("shared") ? document.scrollingElement : document.querySelector("#main");
  scroller.scrollTop = scroller.scrollHeight;
}
