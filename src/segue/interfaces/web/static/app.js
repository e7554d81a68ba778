// The session browser: navigation, keyboard shortcuts and menus. All pages also work without scripts.

import * as actions from "./actions.js";
import { all, announce, attachCombobox, copy, explain, find, localizeTimes, nodes, notify, text } from "./dom.js";
import * as attention from "./attention.js";
import * as copying from "./copying.js";
import * as inspector from "./inspector.js";
import * as jump from "./jump.js";
import * as list from "./list.js";
import * as live from "./live.js";
import * as search from "./search.js";
import { Transcript } from "./transcript.js";

let transcript = null;
let lastRequest = 0;
const APP_PAGES = ["/", "/activity", "/dashboard", "/new", "/model", "/search", "/compare"];

// Show another page in the main part and keep the list. A newer request replaces an unfinished one.
export async function go(target, { addToHistory = true } = {}) {
  const url = new URL(target, location.href);
  const request = ++lastRequest;
  try {
    const content = nodes(await text(url.pathname + url.search));
    if (request !== lastRequest) return;
    if (addToHistory) history.pushState(null, "", url);
    find("#main").replaceChildren(content);
  } catch (error) {
    if (request === lastRequest) notify(explain(error));
    return;
  }
  showPage();
  const main = find("#main");
  if (document.body.classList.contains("reading") && !main.contains(document.activeElement)) main.focus({ preventScroll: true });
}

// Start the scripts of the page that is now in the main part.
function showPage() {
  transcript?.stop();
  transcript = null;
  const session = find("#main .session");
  document.body.classList.toggle("reading", location.pathname !== "/");
  updateTabs(session);
  const heading = find("#main h1")?.textContent ?? "segue";
  attention.setTitle(location.pathname === "/" ? "segue" : `${heading} · segue`);
  announce(heading);
  if (session) {
    transcript = new Transcript(session, find("#main"));
    jump.attach(transcript);
    inspector.attach(transcript);
    if (location.hash === "#actions") find("#actions").open = true;
    actions.restoreDraft(session);
  } else if (find("#first-message")) {
    actions.restoreFirstMessage();
    attachCombobox(find("#n-project"));
  }
  else if (find("#search-text")) search.attachPage();
  else if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  list.updateUrl();
  list.markCurrent();
  live.connect(session, transcript, go);
}

// The tabs of a phone. The second one leads to the session that was open last.
function updateTabs(session) {
  const current = session ? "session" : location.pathname === "/activity" ? "activity" : location.pathname === "/" ? "list" : "";
  for (const tab of all("#tabs a")) {
    if (tab.dataset.tab === current) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  if (session) find('#tabs [data-tab="session"]').href = session.dataset.base;
}

// Load the parts of the home page that show what happens now.
let refreshTimer = null;
document.addEventListener("segue:row", () => {
  clearTimeout(refreshTimer);
  if (find("#main .inbox")) refreshTimer = setTimeout(refreshInbox, 300);
});
document.addEventListener("segue:waiting", () => {
  clearTimeout(refreshTimer);
  refreshInbox(); // at once, because a person waits for it
});

async function refreshInbox() {
  if (find("#main .first-run input:focus")) return undefined; // the user chooses a model
  if (find("#main .first-run")) return go(location.href, { addToHistory: false }); // the first session
  const now = find("#now");
  if (!now || now.contains(document.activeElement)) return undefined;
  try {
    const newNow = nodes(await text("/activity", { headers: { "x-segue": "now" } })).firstElementChild;
    if (newNow && now.isConnected && !now.contains(document.activeElement)) now.replaceWith(newNow);
  } catch {
    // The next change tries again.
  }
  return undefined;
}

// The table of sessions: Shift selects all rows from the one that was selected before.
let lastBox = null;
let isRange = false;
document.addEventListener("click", (event) => {
  isRange = event.shiftKey;
}, true);
document.addEventListener("change", (event) => {
  const form = event.target.closest(".recent-form");
  if (!form) return;
  const boxes = all("tbody input[type=checkbox]", form);
  const [from, to] = [boxes.indexOf(lastBox), boxes.indexOf(event.target)];
  if (isRange && from >= 0 && to >= 0) for (const box of boxes.slice(Math.min(from, to), Math.max(from, to) + 1)) box.checked = event.target.checked;
  lastBox = event.target;
  if (event.target.id === "all") for (const box of boxes) box.checked = event.target.checked;
  const count = boxes.filter((box) => box.checked).length;
  find("[data-selected]", form).textContent = `${count} selected`;
  form.dataset.count = count;
});

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const copyLink = event.target.closest("[data-copy]");
  if (copyLink) {
    event.preventDefault();
    copy(new URL(copyLink.dataset.copy, location.href).href);
    return;
  }
  const copyButton = event.target.closest("[data-copy-from]");
  if (copyButton) {
    copy(find(`#${copyButton.dataset.copyFrom}`).value, copyButton.dataset.copied);
    return;
  }
  for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  const link = event.target.closest("a[href]");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  const isAppPage = APP_PAGES.includes(link.pathname) || link.pathname.startsWith("/s/");
  if (!isAppPage || link.closest(".chips") || link.matches(".skip, .more, .rest")) return;
  const isAnchor = link.hash && link.pathname + link.search === location.pathname + location.search;
  if (isAnchor && !transcript) return; // the browser scrolls to it
  event.preventDefault();
  const openBase = find("#main .session")?.dataset.base;
  if (openBase && link.pathname === openBase && link.hash) {
    history.pushState(null, "", link.href);
    list.updateUrl();
    transcript.session.dataset.at = link.hash.slice(2);
    transcript.reveal(Number(link.hash.slice(2)));
    jump.highlight();
    return;
  }
  if (link.pathname === "/" && link.closest("#head")) document.body.classList.remove("reading");
  if (link.matches(".brand")) list.clear();
  go(link.href);
});

document.addEventListener("segue:prompt", ({ detail }) => inspector.markCurrent(detail));

addEventListener("popstate", () => go(location.href, { addToHistory: false }));

// Keyboard shortcuts. They are off while the user types into a field.

const keys = {
  j: () => (transcript ? transcript.step("message", 1) : list.step(1)),
  k: () => (transcript ? transcript.step("message", -1) : list.step(-1)),
  J: () => list.step(1),
  K: () => list.step(-1),
  t: () => transcript?.step("tool", 1),
  T: () => transcript?.step("tool", -1),
  x: () => transcript?.step("error", 1),
  X: () => transcript?.step("error", -1),
  i: () => inspector.toggle(),
  y: () => {
    const seq = transcript?.current?.isConnected ? transcript.current.dataset.seq : find("#chunks .item:is(.agent, .user):last-of-type")?.dataset.seq;
    if (seq) copying.copyFrom(`${transcript.base}/markdown/${seq}`);
  },
  "/": () => {
    document.body.classList.remove("reading");
    find("#search input[name=q]").select();
  },
  "?": () => find("#help").showModal(),
  f: () => openMenu("#filter"),
  n: () => go("/new"),
  r: () => find("#composer .dock .buttons :is(summary, button), #text, #composer > form button, #composer.closed button")?.focus(),
  1: () => answer(1),
  2: () => answer(2),
  3: () => answer(3),
  s: () => jump.open(),
  e: () => submitAction("archive"),
  p: () => submitAction("pin"),
  u: () => find("#toast button")?.click(),
  g: () => transcript?.reveal(1),
  G: () => transcript?.toEnd(),
  "[": () => transcript?.step("prompt", -1),
  "]": () => transcript?.step("prompt", 1),
};

// Archive or pin the session whose row has the focus, or else the open one.
function submitAction(verb) {
  const row = document.activeElement.closest("#list .row");
  const forms = row ? find(".row-actions", row) : find("#state-actions");
  (forms && find(`form[data-verb="${verb}"], form[data-verb="un${verb}"]`, forms))?.requestSubmit();
}

// Answer the open permission request: 1 rejects, with a reason, 2 always allows, 3 allows.
function answer(number) {
  const control = find(`#main .dock [data-key="${number}"]`);
  control?.click();
  if (control?.matches("summary")) find("input[name=note]", control.parentElement)?.focus();
}

const toggleTheme = () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch {
    // The browser has no storage for this site; the choice lasts until the page is closed.
  }
};

// The commands of the palette; those of the open session come first.
function paletteCommands() {
  const ofSession = [
    { name: "Fork this session", run: () => find('#actions form[data-verb="fork"]')?.requestSubmit() },
    { name: "Archive this session", key: "e", run: keys.e },
    { name: "Pin or unpin this session", key: "p", run: keys.p },
    { name: "Share this session", run: () => go(`${transcript.base}/share`) },
    { name: "Compare this session", run: () => go(`/compare?a=${transcript.session.dataset.id}`) },
    { name: "Continue in another tool", run: () => go(`${transcript.base}/continue-in`) },
    { name: "Find in this session", key: "s", run: keys.s },
    { name: "Outline, changes and info", key: "i", run: keys.i },
  ];
  return [
    ...(find("#main .session") ? ofSession : []),
    { name: "New session", key: "n", run: keys.n },
    { name: "Choose a model", run: () => go("/model") },
    { name: "Activity", run: () => go("/activity") },
    { name: "Dashboard: cost and activity", run: () => go("/dashboard") },
    { name: "All sessions", run: () => { list.clear(); go("/"); } },
    { name: "Trash", run: () => location.assign("/?state=trash") },
    { name: "Archive", run: () => location.assign("/?state=only") },
    { name: "Switch between light and dark", run: toggleTheme },
    { name: "Keyboard shortcuts", key: "?", run: keys["?"] },
  ];
}

function openMenu(menu) {
  document.body.classList.remove("reading"); // on a phone, the open session covers the menu
  find(menu).open = true;
  find(`${menu} input:not([type=hidden]), ${menu} button`)?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
    event.preventDefault();
    search.openPalette(go, paletteCommands());
    return;
  }
  const isTyping = event.target.closest("input, textarea, select, #prompt");
  if (event.key === "Escape") {
    const menu = find("details.menu[open]");
    if (menu) {
      menu.open = false;
      find("summary", menu).focus();
    } else if (isTyping) event.target.blur();
    else inspector.close();
    return;
  }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || find("dialog[open]")) return;
  if (keys[event.key]) {
    event.preventDefault();
    keys[event.key]();
  }
});

find("#help-open").addEventListener("click", keys["?"]);
find("#theme")?.addEventListener("click", toggleTheme);
find("#palette-open")?.addEventListener("click", () => search.openPalette(go, paletteCommands()));

localizeTimes(document);
setInterval(() => {
  localizeTimes(document); // "1m" becomes "2m"
  if (!find("#list").scrollTop) list.regroup();
}, 30_000);
actions.start(go);
attention.start();
list.start();
showPage();
