// The list of sessions: endless, searched while one types, moved through by keyboard, kept true.

import { all, announce, find, nodes, text } from "./dom.js";

const KEEP = 3; // screens above and below of which the rows stay in the page

let busy = false;

const list = () => find("#list");
export const address = () => list()?.dataset.address ?? "";

// Endless scroll. A page of rows that is far away gives up its rows and keeps its height; it asks
// for them again, by the address it came from, when it is near.

const near = new IntersectionObserver(seen, { root: find("#list"), rootMargin: `${KEEP * 100}% 0px` });

function watch() {
  near.disconnect();
  for (const each of all(".page, .more", list())) near.observe(each);
}

async function seen(entries) {
  for (const { target, isIntersecting, boundingClientRect } of entries) {
    if (target.classList.contains("more")) {
      if (isIntersecting) await further(target);
    } else if (!isIntersecting && target.dataset.from && !target.contains(document.activeElement)) {
      target.style.height = `${boundingClientRect.height}px`;
      target.replaceChildren();
      target.dataset.empty = "";
    } else if (isIntersecting && "empty" in target.dataset) {
      delete target.dataset.empty;
      try {
        const made = nodes(await text(target.dataset.from));
        target.replaceChildren(...find(".page", made).childNodes);
        target.style.height = "";
        mark();
      } catch {
        target.dataset.empty = "";
      }
    }
  }
}

async function further(link) {
  if (busy) return;
  busy = true;
  const from = `/rows${new URL(link.href).search}`;
  try {
    const made = nodes(await text(from));
    const page = find(".page", made);
    page.dataset.from = from;
    link.replaceWith(made);
    join(page);
    mark();
    near.observe(page);
    const next = find(".more", list());
    if (next) near.observe(next);
  } catch {
    link.textContent = "More sessions (could not be loaded; click to try again)";
    link.addEventListener("click", (event) => { event.preventDefault(); further(link); }, { once: true });
  } finally {
    busy = false;
  }
}

// A group that goes on from the page before needs no second heading.
function join(page) {
  const first = find(".group", page);
  const before = all(".group", page.previousElementSibling ?? document.createElement("div")).at(-1);
  const same = first && before && first.dataset.key === before.dataset.key;
  if (same) find("h2", first).classList.add("hidden");
}

// The rows that are in the page, as they are now.
export async function refresh() {
  for (const page of all(".page:not([data-empty])", list())) {
    try {
      const made = find(".page", nodes(await text(page.dataset.from ?? `/rows${address()}`)));
      if (!page.contains(document.activeElement)) page.replaceChildren(...made.childNodes);
    } catch {
      return; // not now, then
    }
  }
  mark();
}

// The row of the session that is open.

export function mark() {
  const here = location.pathname;
  for (const link of all(".row > a", list())) {
    if (new URL(link.href).pathname === here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// By keyboard.

export function step(by) {
  const links = all(".row > a", list());
  let at = links.indexOf(document.activeElement);
  if (at < 0) {
    at = links.findIndex((link) => link.hasAttribute("aria-current"));
    if (at < 0) at = by > 0 ? -1 : links.length;
  }
  const next = links[Math.max(0, Math.min(links.length - 1, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

// Search and filters: the whole sidebar below the search field is asked for anew.

let wanted = 0;

export async function show(query, { remember = true } = {}) {
  const turn = ++wanted;
  const page = nodes(await text(`/${query}`, { headers: { "x-segue": "list" } }));
  if (turn !== wanted) return; // something else was asked for since
  for (const name of ["#list", ".chips"]) {
    const made = find(name, page);
    find(`#sidebar ${name}`).replaceChildren(...made.childNodes);
    if (name === "#list") Object.assign(list().dataset, made.dataset);
  }
  const hidden = all("#search input[type=hidden]", page);
  for (const old of all("#search input[type=hidden]")) old.remove();
  find("#search").prepend(...hidden);
  if (remember) history.replaceState(history.state, "", `${location.pathname}${query}${location.hash}`);
  list().scrollTop = 0;
  watch();
  mark();
  const count = all(".row", list()).length;
  announce(count ? `${count} sessions` : "Nothing found");
  document.dispatchEvent(new Event("segue:list"));
}

let typing;

function search() {
  const fields = new FormData(find("#search"));
  const query = new URLSearchParams([...fields].filter(([, value]) => value));
  return show(query.size ? `?${query}` : "").catch(() => announce("The search failed"));
}

// Rows that change: the newest first, those that no longer belong here away.

export function update({ session, html, group, label }) {
  const old = find(`.row[data-id="${session}"]`, list());
  if (!html) {
    const searching = new URLSearchParams(address()).has("q");
    if (old && !searching) old.remove();
    return;
  }
  const row = nodes(html).firstElementChild;
  if (old?.contains(document.activeElement) || isInPlace(old, row)) {
    old.replaceWith(row);
    if (document.activeElement === document.body && old.dataset.focus) find("a", row).focus();
  } else {
    old?.remove();
    const place = groupFor(group, label);
    place.prepend(row);
  }
  for (const empty of all("#list .group")) if (!find(".row", empty)) empty.remove();
  find("#list .empty")?.remove();
  mark();
}

function isInPlace(old, row) {
  return old && Number(old.dataset.at) === Number(row.dataset.at);
}

function groupFor(key, label) {
  const found = all(".group", list()).find((each) => each.dataset.key === key);
  if (found) {
    if (new URLSearchParams(address()).get("group") === "project") list().firstElementChild.prepend(found);
    return find("ul", found);
  }
  const made = document.createElement("section");
  made.className = "group";
  made.dataset.key = key;
  const heading = document.createElement("h2");
  heading.textContent = label;
  heading.title = key;
  const rows = document.createElement("ul");
  made.append(heading, rows);
  let page = find(".page", list());
  if (!page) {
    page = document.createElement("div");
    page.className = "page";
    list().prepend(page);
  }
  page.prepend(made);
  return rows;
}

export function start() {
  if (!list()) return;
  watch();
  mark();
  find("#search").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typing); // or it would be asked for twice
    search().then(() => find(".row > a", list())?.focus());
  });
  find("#search input[name=q]").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(search, 150);
  });
  document.addEventListener("click", (event) => {
    const chip = event.target.closest("#sidebar .chips a, #list .empty a, #main .meta a[href^='/?']");
    if (!chip || event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    show(new URL(chip.href).search).catch(() => location.assign(chip.href));
    find("#search input[name=q]").value = new URL(chip.href).searchParams.get("q") ?? "";
    if (!chip.closest("#sidebar")) document.body.classList.remove("reading");
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.closest("#filter")) return;
    event.preventDefault();
    const query = new URLSearchParams([...new FormData(event.target)].filter(([, value]) => value));
    show(query.size ? `?${query}` : "").catch(() => event.target.submit());
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
