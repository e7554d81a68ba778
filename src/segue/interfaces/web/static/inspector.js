// The inspector: an outline of the session, the files it changed, and what is known about it.

import { all, explain, find, nodes, notify, text } from "./dom.js";

const WIDE = matchMedia("(min-width: 1280px)");

let transcript = null;
let pane = "outline";
let lastRequest = 0;
let missingPrompt = null; // that the outline was loaded for
const root = document.documentElement;

export const isOpen = () => (WIDE.matches ? root.dataset.inspector !== "closed" : root.dataset.drawer === "open");

function setOpen(open) {
  if (WIDE.matches) {
    root.dataset.inspector = open ? "open" : "closed";
    try {
      localStorage.setItem("inspector", root.dataset.inspector);
    } catch {
      // The browser has no storage for this site; the choice lasts until the page is closed.
    }
  } else root.dataset.drawer = open ? "open" : "closed";
  if (open) load();
}

export function toggle() {
  if (!find("#inspector")) return;
  setOpen(!isOpen());
  if (isOpen() && !WIDE.matches) find(`#inspector [data-pane="${pane}"]`).focus();
}

export function close() {
  if (!find("#inspector") || WIDE.matches || !isOpen()) return false;
  setOpen(false);
  find("#inspector-toggle")?.focus();
  return true;
}

export function attach(openTranscript) {
  transcript = openTranscript;
  root.dataset.drawer = "closed";
  if (find("#inspector") && isOpen()) load();
}

// Load the chosen pane. It is loaded again when the session has changed.
export async function load() {
  const container = find("#pane");
  if (!container || !transcript?.session.isConnected) return;
  for (const tab of all("#inspector [data-pane]")) {
    const isCurrent = tab.dataset.pane === pane;
    tab.setAttribute("aria-selected", String(isCurrent));
    tab.tabIndex = isCurrent ? 0 : -1;
  }
  container.setAttribute("aria-labelledby", `tab-${pane}`);
  const request = ++lastRequest;
  try {
    const at = pane === "outline" && transcript.currentPrompt ? `?at=${transcript.currentPrompt}` : "";
    const content = nodes(await text(`${transcript.base}/${pane}${at}`, { headers: { "x-segue": "pane" } }));
    if (request !== lastRequest) return;
    const isSame = container.dataset.name === pane;
    const { scrollTop } = container;
    const opened = isSame ? all("details[open] .path", container).map((path) => path.title) : [];
    container.replaceChildren(content);
    container.dataset.name = pane;
    for (const path of all("details .path", container)) if (opened.includes(path.title)) path.closest("details").open = true;
    container.scrollTop = isSame ? scrollTop : 0;
    markCurrent();
  } catch (error) {
    if (request === lastRequest) container.textContent = explain(error);
  }
}

let refreshTimer = null;

// Load the pane again soon: several events may arrive together.
export function refresh() {
  if (!find("#inspector") || !isOpen()) return;
  clearTimeout(refreshTimer);
  refreshTimer = setTimeout(load, 500);
}

// Mark the prompt of the turn in view.
export function markCurrent(seq = transcript?.currentPrompt) {
  const links = all("#pane .outline a");
  // The outline of a long session has only the prompts near the view.
  if (seq && links.length && find("#pane .more") && !links.some((link) => Number(link.dataset.jump) === seq)) {
    if (missingPrompt !== seq) refresh();
    missingPrompt = seq;
  }
  for (const link of links) {
    if (Number(link.dataset.jump) === seq) {
      if (link.hasAttribute("aria-current")) continue;
      link.setAttribute("aria-current", "true");
      link.scrollIntoView({ block: "nearest" });
    } else link.removeAttribute("aria-current");
  }
}

async function loadMore(link) {
  try {
    link.replaceWith(nodes(await text(link.href, { headers: { "x-segue": "pane" } })));
  } catch (error) {
    notify(explain(error));
  }
}

document.addEventListener("click", (event) => {
  if (event.target.closest("#inspector-toggle")) {
    event.preventDefault();
    toggle();
    return;
  }
  if (event.target.closest("#inspector-close")) setOpen(false);
  else if (event.target.closest("#inspector-scrim")) close();
  const tab = event.target.closest("#inspector [data-pane]");
  if (tab) {
    pane = tab.dataset.pane;
    load();
  }
  const more = event.target.closest("#pane .more");
  if (more) {
    event.preventDefault();
    loadMore(more);
    return;
  }
  const jump = event.target.closest("#pane a[data-jump], #errors a[data-jump]");
  if (!jump || !transcript) return;
  event.preventDefault();
  transcript.setView("all");
  transcript.reveal(Number(jump.dataset.jump));
  if (!WIDE.matches && jump.closest("#pane")) setOpen(false);
});

document.addEventListener("keydown", (event) => {
  const tab = event.target.closest?.("#inspector [role=tab]");
  if (!tab || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  const tabs = all("#inspector [role=tab]");
  const next = tabs[(tabs.indexOf(tab) + (event.key === "ArrowRight" ? 1 : tabs.length - 1)) % tabs.length];
  next.focus();
  next.click();
});
