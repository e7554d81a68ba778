// The list of sessions: endless, searched while one types, moved through by keyboard, kept true.

import { all, announce, find, nodes, text } from "./dom.js";

const KEEP = 3; // screens above and below of which the rows stay in the page

let busy = false;

const list = () => find("#list");
export const address = () => list()?.dataset.address ?? "";
const param = (name) => new URLSearchParams(address()).get(name) ?? "";
const firstPage = () => `/rows${address()}`;

// Endless scroll. A page's rows join the groups that they belong to: a heading stands once. Rows
// that are far away are given up, but for the first page's, and leave their height; they are asked
// for again, by the address that they came from, when they are near.

const near = new IntersectionObserver(seen, { root: find("#list"), rootMargin: `${KEEP * 100}% 0px` });

const groups = () => all(".group", list());
const groupOf = (key) => groups().find((each) => each.dataset.key === key);

// Sections of a page into the list, before whatever stands there.
function place(made, from, before) {
  for (const section of all(".group", made)) {
    const rows = find("ul", section);
    rows.dataset.from = from;
    // What moved while one scrolled may come again.
    for (const row of all(".row", rows)) if (find(`.row[data-id="${row.dataset.id}"]`, list())) row.remove();
    const group = groupOf(section.dataset.key);
    if (!group) list().insertBefore(section, before);
    else if (!param("group") || param("q")) group.append(rows);
    else continue; // of a project the newest are shown
    near.observe(rows);
  }
}

function watch() {
  near.disconnect();
  for (const rows of all("ul", list())) rows.dataset.from ??= firstPage();
  for (const each of all("ul, .more", list())) near.observe(each);
}

async function seen(entries) {
  for (const { target, isIntersecting, boundingClientRect } of entries) {
    if (target.classList.contains("more")) {
      if (isIntersecting) await further(target);
    } else if (isIntersecting) {
      if ("empty" in target.dataset) await restore(target);
    } else if (target.dataset.from !== firstPage() && !target.contains(document.activeElement)) {
      target.style.height = `${boundingClientRect.height}px`;
      target.replaceChildren();
      target.dataset.empty = "";
    }
  }
}

async function restore(rows) {
  delete rows.dataset.empty;
  const { key } = rows.parentElement.dataset;
  try {
    const made = nodes(await text(rows.dataset.from));
    const section = all(".group", made).find((each) => each.dataset.key === key);
    rows.replaceChildren(...(section ? find("ul", section).childNodes : []));
    rows.style.height = "";
    mark();
  } catch {
    rows.dataset.empty = "";
  }
}

async function further(link) {
  if (busy) return;
  busy = true;
  const from = `/rows${new URL(link.href).search}`;
  try {
    const made = nodes(await text(from));
    if (!link.isConnected) return; // another list was asked for meanwhile
    place(made, from, link);
    const next = find(".more", made);
    if (next) {
      link.replaceWith(next);
      near.observe(next);
    } else link.remove();
    mark();
  } catch {
    link.textContent = "More sessions (could not be loaded; click to try again)";
    link.addEventListener("click", (event) => { event.preventDefault(); further(link); }, { once: true });
  } finally {
    busy = false;
  }
}

// The rows that are in the page, as they are now.
export async function refresh() {
  if (dated()) return regroup();
  const pages = new Set(all("ul:not([data-empty])", list()).map((rows) => rows.dataset.from));
  for (const from of pages) {
    try {
      const made = nodes(await text(from));
      const old = all("ul", list()).filter((rows) => rows.dataset.from === from);
      if (old.some((rows) => rows.contains(document.activeElement))) continue;
      const keys = all(".group", made).map((section) => section.dataset.key);
      for (const rows of old) if (!keys.includes(rows.parentElement.dataset.key)) rows.remove();
      for (const section of all(".group", made)) {
        const rows = find("ul", section);
        rows.dataset.from = from;
        const same = old.find((each) => each.parentElement.dataset.key === section.dataset.key);
        if (same) same.replaceWith(rows);
        else if (from === firstPage()) lead(section);
        else continue;
        near.observe(rows);
      }
    } catch {
      return; // not now, then
    }
  }
  tidy();
  mark();
}

// Whether the list is grouped by other days than the reader's: in a browser that is new here or that
// travelled, and after midnight. A page that was asked for by its cursor stays as it is.
const ahead = () => String(-new Date().getTimezoneOffset());
const today = () => new Date().toDateString();
let day = today();
const dated = () => (list().dataset.ahead !== ahead() || day !== today()) && !new URLSearchParams(location.search).has("cursor");

// The first page again, if the days are others.
export async function regroup() {
  if (!dated()) return;
  const from = firstPage();
  document.cookie = `segue-ahead=${ahead()}; path=/; max-age=31536000; samesite=lax`; // as when it was loaded
  try {
    const made = nodes(await text(from));
    if (from !== firstPage() || list().contains(document.activeElement)) return;
    list().replaceChildren(...made.childNodes);
    list().dataset.ahead = ahead();
    day = today();
    watch();
    mark();
    document.dispatchEvent(new Event("segue:list"));
  } catch {
    // Then days are UTC's for now.
  }
}

// A group that begins the list, or rows that begin a group.
function lead(section) {
  const group = groupOf(section.dataset.key);
  if (group) find("h2", group).after(find("ul", section));
  else list().prepend(section);
}

function tidy() {
  for (const group of groups()) if (!find(".row, [data-empty]", group)) group.remove();
  if (find(".row", list())) find(".empty", list())?.remove();
}

// The row of the session that is open.

export function mark() {
  const here = location.pathname;
  for (const link of all(".row > a", list())) {
    if (new URL(link.href).pathname === here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// By keyboard. Where the open session's row went away, as when it is archived, one goes on from there.

let following = null;

function remove(row) {
  const links = all(".row > a", list());
  const at = links.findIndex((link) => row.contains(link));
  if (links[at].hasAttribute("aria-current") || links[at] === document.activeElement) following = links[at + 1];
  row.remove();
}

export function step(by) {
  const links = all(".row > a", list());
  let at = links.indexOf(document.activeElement);
  if (at < 0) at = links.findIndex((link) => link.hasAttribute("aria-current"));
  if (at < 0 && links.includes(following)) at = links.indexOf(following) - (by > 0 ? 1 : 0);
  else if (at < 0) at = by > 0 ? -1 : links.length;
  const next = links[Math.max(0, Math.min(links.length - 1, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

// Search and filters. The address has all of them, and so has the list.

let wanted = 0;

const field = () => find("#search input[name=q]");
const spelt = (query) => (query.size ? `?${query}` : "");
const FILTERS = ["q", "group", ...all("#filter [name]").map((each) => each.name)];

// The page's address with the list's filters, wherever one came from.
export function spell() {
  const query = new URLSearchParams(address());
  for (const [name, value] of new URLSearchParams(location.search)) if (!FILTERS.includes(name)) query.set(name, value);
  history.replaceState(history.state, "", `${location.pathname}${spelt(query)}${location.hash}`);
}

// All sessions.
export function clear() {
  field().value = "";
  if (address()) show("").catch(() => location.assign("/"));
}

// The list that a query describes; `chips` if its filters are others, too. Whether it came to be shown.
async function show(query, { chips = true } = {}) {
  const turn = ++wanted;
  const place = chips ? "/" : "/rows";
  const made = nodes(await text(`${place}${query}`, { headers: { "x-segue": "list" } }));
  if (turn !== wanted) return false; // something else was asked for since
  if (chips) {
    find("#sidebar .chips").replaceWith(find(".chips", made));
    list().dataset.now = find("#list", made).dataset.now;
  }
  list().replaceChildren(...(chips ? find("#list", made) : made).childNodes);
  list().dataset.address = query;
  spell();
  list().scrollTop = 0;
  watch();
  mark();
  const count = all(".row", list()).length;
  announce(count ? `${count} sessions` : "Nothing found");
  document.dispatchEvent(new Event("segue:list"));
  return true;
}

let typing;

// What is typed, among the sessions that the filters leave.
function search() {
  const query = new URLSearchParams(address());
  if (field().value) query.set("q", field().value);
  else query.delete("q");
  return show(spelt(query), { chips: false }).catch(() => announce("The search failed"));
}

// Filters are as the server made them, but the words may have changed since.
function filter(query) {
  if (field().value) query.set("q", field().value);
  return show(spelt(query));
}

// Rows that change: the newest first, those that no longer belong here away. What a search found
// stays where it is, with its words.

export function update({ session, html, group, label }) {
  const old = find(`.row[data-id="${session}"]`, list());
  if (!html) {
    if (old) remove(old);
    tidy();
    return;
  }
  const row = nodes(html).firstElementChild;
  if (param("q")) {
    for (const part of old ? [".title", ".meta"] : []) find(part, old).replaceWith(find(part, row));
  } else if (old && (old.contains(document.activeElement) || old.dataset.at === row.dataset.at)) {
    const focused = old.contains(document.activeElement);
    old.replaceWith(row);
    if (focused) find("a", row).focus();
  } else {
    old?.remove();
    rowsOf(group, label).prepend(row);
  }
  tidy();
  mark();
}

// The rows of a group, which is made if it is not there; a project with news comes first.
function rowsOf(key, label) {
  let group = groupOf(key);
  if (!group) {
    group = document.createElement("section");
    group.className = "group";
    group.dataset.key = key;
    const heading = document.createElement("h2");
    heading.textContent = label;
    heading.title = key;
    const rows = document.createElement("ul");
    rows.dataset.from = firstPage();
    group.append(heading, rows);
    list().prepend(group);
  } else if (param("group")) list().prepend(group);
  return find("ul", group);
}

export function start() {
  if (!list()) return;
  watch();
  mark();
  regroup();
  find("#search").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typing); // or it would be asked for twice
    const there = param("q") === field().value ? Promise.resolve(true) : search();
    there.then((shown) => shown && field().value && find(".row > a", list())?.click());
  });
  field().addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    find(".row > a", list())?.focus();
  });
  field().addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(search, 150);
  });
  document.addEventListener("click", (event) => {
    const chip = event.target.closest("#sidebar .chips a, #list .empty a, #list .rest, #main .meta a[href^='/?']");
    if (!chip || event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    if (!chip.closest(".chips")) field().value = "";
    filter(new URL(chip.href).searchParams).catch(() => location.assign(chip.href));
    if (!chip.closest("#sidebar")) document.body.classList.remove("reading");
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.closest("#filter")) return;
    event.preventDefault();
    const query = new URLSearchParams([...new FormData(event.target)].filter(([, value]) => value));
    query.delete("q");
    const form = event.target;
    filter(query).then(() => find("#filter > summary").focus(), () => form.submit());
  });
  document.addEventListener("toggle", async (event) => {
    if (event.target.id !== "filter" || !event.target.open || find("#facet-cwd")) return;
    try {
      document.body.append(nodes(await text("/facets")));
    } catch {
      // The fields can be filled in without suggestions.
    }
  }, true);
}
