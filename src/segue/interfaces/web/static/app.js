// The session browser: moving between sessions, keys, menus. Everything also works as plain pages.

import * as actions from "./actions.js";
import { all, announce, copy, explain, find, local, nodes, notify, text } from "./dom.js";
import * as jump from "./jump.js";
import * as list from "./list.js";
import * as live from "./live.js";
import { Transcript } from "./transcript.js";

let transcript = null;
let wanted = 0;

// Another page in the main part; the list stays as it is. Of two that are asked for, the later counts.
export async function go(address, { remember = true } = {}) {
  const url = new URL(address, location.href);
  const turn = ++wanted;
  try {
    const made = nodes(await text(url.pathname + url.search));
    if (turn !== wanted) return;
    if (remember) history.pushState(null, "", url);
    find("#main").replaceChildren(made);
  } catch (error) {
    if (turn === wanted) notify(explain(error));
    return;
  }
  arrive();
  if (document.body.classList.contains("reading")) find("#main").focus({ preventScroll: true });
}

function arrive() {
  transcript?.stop();
  transcript = null;
  const session = find("#main .session");
  document.body.classList.toggle("reading", location.pathname !== "/");
  const heading = find("#main h1")?.textContent ?? "segue";
  document.title = location.pathname === "/" ? "segue" : `${heading} · segue`;
  announce(heading);
  if (session) {
    transcript = new Transcript(session, find("#main"));
    jump.attend(transcript);
    actions.restoreDraft(session);
  } else if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  list.spell();
  list.mark();
  live.connect(session, transcript, go);
}

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const copied = event.target.closest("[data-copy]");
  if (copied) {
    event.preventDefault();
    copy(new URL(copied.dataset.copy, location.href).href);
    return;
  }
  const from = event.target.closest("[data-copy-from]");
  if (from) {
    copy(find(`#${from.dataset.copyFrom}`).value, from.dataset.copied);
    return;
  }
  for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  const link = event.target.closest("a[href]");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  const ours = link.pathname === "/" || link.pathname === "/dashboard" || link.pathname.startsWith("/s/");
  if (!ours || link.closest(".chips") || link.matches(".skip, .more, .rest")) return;
  const place = link.hash && link.pathname + link.search === location.pathname + location.search;
  if (place && !transcript) return; // of a page that has it
  event.preventDefault();
  const here = find("#main .session")?.dataset.base;
  if (here && link.pathname === here && link.hash) {
    history.pushState(null, "", link.href);
    list.spell();
    transcript.session.dataset.at = link.hash.slice(2);
    transcript.reveal(Number(link.hash.slice(2)));
    jump.highlight();
    return;
  }
  if (link.pathname === "/" && link.closest("#head")) document.body.classList.remove("reading");
  if (link.matches(".brand")) list.clear();
  go(link.href);
});

addEventListener("popstate", () => go(location.href, { remember: false }));

// Keys. Letters do nothing while something is being typed.

const keys = {
  j: () => list.step(1),
  k: () => list.step(-1),
  "/": () => {
    document.body.classList.remove("reading");
    find("#search input[name=q]").select();
  },
  "?": () => find("#help").showModal(),
  f: () => open("#filter"),
  n: () => open("#begin"),
  r: () => find(".permission.open button, #text, #composer button")?.focus(),
  s: () => jump.open(),
  e: () => find('#actions form[data-verb="archive"]')?.requestSubmit(),
  u: () => find("#toast button")?.click(),
  g: () => transcript?.reveal(1),
  G: () => transcript?.toEnd(),
  "[": () => transcript?.turn(-1),
  "]": () => transcript?.turn(1),
};

function open(menu) {
  document.body.classList.remove("reading"); // on a phone, the menu is behind what is read
  find(menu).open = true;
  find(`${menu} input:not([type=hidden]), ${menu} button`)?.focus();
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, #composer");
  if (event.key === "Escape") {
    const menu = find("details.menu[open]");
    if (menu) {
      menu.open = false;
      find("summary", menu).focus();
    } else if (typing) event.target.blur();
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || find("dialog[open]")) return;
  if (keys[event.key]) {
    event.preventDefault();
    keys[event.key]();
  }
});

find("#keys").addEventListener("click", keys["?"]);
find("#theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch {
    // Then it lasts as long as the page.
  }
});

local(document);
setInterval(() => {
  local(document); // what was a minute ago is two by now
  if (!find("#list").scrollTop) list.regroup();
}, 30_000);
actions.start(go);
list.start();
arrive();
