// The session list: infinite scrolling, search, filters, keyboard navigation and live updates.

import { all, announce, attachCombobox, find, nodes, text } from "./dom.js";

const KEPT_SCREENS = 3; // above and below the visible rows

let isLoading = false;

const list = () => find("#list");
export const query = () => list()?.dataset.query ?? "";
const param = (name) => new URLSearchParams(query()).get(name) ?? "";
const firstPage = () => `/rows${query()}`;

// Infinite scrolling. The rows of a new page are added to existing groups, so each heading occurs
// once. Rows far from the view are removed, except those of the first page; an empty element keeps
// their height. They are loaded again from their URL (`data-from`) when they come near the view.

const observer = new IntersectionObserver(onVisibilityChange, { root: find("#list"), rootMargin: `${KEPT_SCREENS * 100}% 0px` });

const groups = () => all(".group", list());
const groupOf = (key) => groups().find((group) => group.dataset.key === key);

// Add the groups of a page to the list, before an element.
function addGroups(page, from, before) {
  for (const section of all(".group", page)) {
    const rows = find("ul", section);
    rows.dataset.from = from;
    // A session that became active meanwhile may be on two pages.
    for (const row of all(".row", rows)) if (find(`.row[data-id="${row.dataset.id}"]`, list())) row.remove();
    const group = groupOf(section.dataset.key);
    if (!group) list().insertBefore(section, before);
    else if (!param("group") || param("q")) group.append(rows);
    else continue; // a project shows only its newest sessions
    observer.observe(rows);
  }
}

function observeRows() {
  observer.disconnect();
  for (const rows of all("ul", list())) rows.dataset.from ??= firstPage();
  for (const element of all("ul, .more", list())) observer.observe(element);
}

async function onVisibilityChange(entries) {
  for (const { target, isIntersecting, boundingClientRect } of entries) {
    if (target.classList.contains("more")) {
      if (isIntersecting) await loadMore(target);
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
    const page = nodes(await text(rows.dataset.from));
    const section = all(".group", page).find((group) => group.dataset.key === key);
    rows.replaceChildren(...(section ? find("ul", section).childNodes : []));
    rows.style.height = "";
    markCurrent();
  } catch {
    rows.dataset.empty = "";
  }
}

async function loadMore(link) {
  if (isLoading) return;
  isLoading = true;
  const from = `/rows${new URL(link.href).search}`;
  try {
    const page = nodes(await text(from));
    if (!link.isConnected) return; // another list is shown now
    addGroups(page, from, link);
    const next = find(".more", page);
    if (next) {
      link.replaceWith(next);
      observer.observe(next);
    } else link.remove();
    markCurrent();
  } catch {
    link.textContent = "More sessions could not be loaded. Click to try again.";
    link.addEventListener("click", (event) => { event.preventDefault(); loadMore(link); }, { once: true });
  } finally {
    isLoading = false;
  }
}

// Load the rows in the page again.
export async function refresh() {
  if (hasOtherDays()) return regroup();
  const pages = new Set(all("ul:not([data-empty])", list()).map((rows) => rows.dataset.from));
  for (const from of pages) {
    try {
      const page = nodes(await text(from));
      const oldRows = all("ul", list()).filter((rows) => rows.dataset.from === from);
      if (oldRows.some((rows) => rows.contains(document.activeElement))) continue;
      const keys = all(".group", page).map((section) => section.dataset.key);
      for (const rows of oldRows) if (!keys.includes(rows.parentElement.dataset.key)) rows.remove();
      for (const section of all(".group", page)) {
        const rows = find("ul", section);
        rows.dataset.from = from;
        const replaced = oldRows.find((old) => old.parentElement.dataset.key === section.dataset.key);
        if (replaced) replaced.replaceWith(rows);
        else if (from === firstPage()) prependGroup(section);
        else continue;
        observer.observe(rows);
      }
    } catch {
      return; // the next refresh tries again
    }
  }
  removeEmptyGroups();
  markCurrent();
}

// Whether the list is grouped by other days than the browser's: on the first visit, in another time
// zone and after midnight. A page that has a cursor in its URL is not regrouped.
const utcOffset = () => String(-new Date().getTimezoneOffset());
const today = () => new Date().toDateString();
let groupedDay = today();
const hasOtherDays = () => (list().dataset.utcOffset !== utcOffset() || groupedDay !== today()) && !new URLSearchParams(location.search).has("cursor");

// Load the first page again if its days are not the browser's.
export async function regroup() {
  if (!hasOtherDays()) return;
  const from = firstPage();
  document.cookie = `segue-utc-offset=${utcOffset()}; path=/; max-age=31536000; samesite=lax`; // as in early.js
  try {
    const page = nodes(await text(from));
    if (from !== firstPage() || list().contains(document.activeElement)) return;
    list().replaceChildren(...page.childNodes);
    list().dataset.utcOffset = utcOffset();
    groupedDay = today();
    observeRows();
    markCurrent();
    document.dispatchEvent(new Event("segue:list"));
  } catch {
    // The list keeps its old groups until the next try.
  }
}

// Add a group at the top of the list, or its rows at the top of the existing group.
function prependGroup(section) {
  const group = groupOf(section.dataset.key);
  if (group) find("h2", group).after(find("ul", section));
  else list().prepend(section);
}

function removeEmptyGroups() {
  for (const group of groups()) if (!find(".row, [data-empty]", group)) group.remove();
  if (find(".row", list())) find(".empty", list())?.remove();
}

// Mark the row of the open session.
export function markCurrent() {
  for (const link of all(".row > a", list())) {
    if (new URL(link.href).pathname === location.pathname) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// Keyboard navigation. When the row of the open session is removed, for example after it was
// archived, navigation continues at the row that followed it.

let nextAfterRemoved = null;

function remove(row) {
  const links = all(".row > a", list());
  const index = links.findIndex((link) => row.contains(link));
  if (links[index].hasAttribute("aria-current") || row.contains(document.activeElement)) nextAfterRemoved = links[index + 1];
  row.remove();
}

export function step(by) {
  const links = all(".row > a", list());
  let index = links.indexOf(document.activeElement);
  if (index < 0) index = links.findIndex((link) => link.hasAttribute("aria-current"));
  if (index < 0 && links.includes(nextAfterRemoved)) index = links.indexOf(nextAfterRemoved) - (by > 0 ? 1 : 0);
  else if (index < 0) index = by > 0 ? -1 : links.length;
  const next = links[Math.max(0, Math.min(links.length - 1, index + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

// Search and filters. They are in the page's URL and in the query of the list.

let lastRequest = 0;

const searchField = () => find("#search input[name=q]");
const queryString = (params) => (params.size ? `?${params}` : "");
const FILTERS = ["q", "group", ...all("#filter [name]").map((input) => input.name)];

// Put the list's filters into the page's URL.
export function updateUrl() {
  const params = new URLSearchParams(query());
  for (const [name, value] of new URLSearchParams(location.search)) if (!FILTERS.includes(name)) params.set(name, value);
  history.replaceState(history.state, "", `${location.pathname}${queryString(params)}${location.hash}`);
}

// Show all sessions.
export function clear() {
  searchField().value = "";
  if (query()) show("").catch(() => location.assign("/"));
}

// Show the list of a query, and with `chips` the chips of its filters. Return false if a newer
// request has replaced this one.
async function show(newQuery, { chips = true } = {}) {
  const request = ++lastRequest;
  const path = chips ? "/" : "/rows";
  const page = nodes(await text(`${path}${newQuery}`, { headers: { "x-segue": "list" } }));
  if (request !== lastRequest) return false;
  if (chips) {
    find("#sidebar .chips").replaceWith(find(".chips", page));
    list().dataset.now = find("#list", page).dataset.now;
  }
  list().replaceChildren(...(chips ? find("#list", page) : page).childNodes);
  list().dataset.query = newQuery;
  updateUrl();
  list().scrollTop = 0;
  observeRows();
  markCurrent();
  const count = all(".row", list()).length;
  announce(count ? `${count} sessions` : "No results");
  document.dispatchEvent(new Event("segue:list"));
  return true;
}

let searchTimer;

// Search the sessions that match the filters.
function search() {
  const params = new URLSearchParams(query());
  if (searchField().value) params.set("q", searchField().value);
  else params.delete("q");
  return show(queryString(params), { chips: false }).catch(() => announce("The search failed"));
}

// Apply filters. The search text is the one in the search field: a chip's link may have an older one.
function filter(params) {
  if (searchField().value) params.set("q", searchField().value);
  return show(queryString(params));
}

// Live updates. A changed row becomes the first of its group; a row that the filters exclude is
// removed. A search result keeps its position and its snippet.

export function update({ session, html, group, label }) {
  const oldRow = find(`.row[data-id="${session}"]`, list());
  if (!html) {
    if (oldRow) remove(oldRow);
    removeEmptyGroups();
    return;
  }
  const row = nodes(html).firstElementChild;
  if (param("q")) {
    for (const part of oldRow ? [".title", ".meta"] : []) find(part, oldRow).replaceWith(find(part, row));
  } else if (oldRow && (oldRow.contains(document.activeElement) || oldRow.dataset.at === row.dataset.at)) {
    const hadFocus = oldRow.contains(document.activeElement);
    oldRow.replaceWith(row);
    if (hadFocus) find("a", row).focus();
  } else {
    oldRow?.remove();
    rowsOf(group, label).prepend(row);
  }
  removeEmptyGroups();
  markCurrent();
}

// Return the rows of a group, which is created if it does not exist. A changed project moves to the top.
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

// What can be done with the row that is pointed at or has the focus: pin, archive, its menu.

function showRowActions(event) {
  const row = event.target.closest(".row");
  if (!row || event.pointerType === "touch" || find(".row-actions", row) || param("state") === "trash") return;
  const actions = find("#row-actions").content.firstElementChild.cloneNode(true);
  const verbs = { pin: find(".pinned", row) ? "unpin" : "pin", archive: find(".archived", row) ? "unarchive" : "archive" };
  for (const form of all("form", actions)) setVerb(form, verbs[form.dataset.verb], row.dataset.id);
  find("a", actions).href = `/s/${row.dataset.id}${query()}#actions`;
  for (const other of all(".row-actions", list())) if (!other.contains(document.activeElement)) other.remove();
  row.append(actions);
}

const ROW_LABELS = { pin: "Pin", unpin: "Unpin", archive: "Archive", unarchive: "Unarchive" };

function setVerb(form, verb, session) {
  form.dataset.verb = verb;
  form.setAttribute("action", `/s/${session}/${verb}`);
  const button = find("button", form);
  button.title = ROW_LABELS[verb];
  find(".hidden", button).textContent = ROW_LABELS[verb];
}

function markPinned({ session, pinned }) {
  const row = find(`.row[data-id="${session}"]`, list());
  if (!row) return;
  find(".badge.pinned", row)?.remove();
  if (pinned) find(".meta", row).append(nodes(' <span class="badge pinned">pinned</span>'));
  const form = find('.row-actions form[data-verb$="pin"]', row);
  if (form) setVerb(form, pinned ? "unpin" : "pin", session);
  if (!pinned && param("pinned")) remove(row);
  removeEmptyGroups();
}

export function start() {
  if (!list()) return;
  observeRows();
  markCurrent();
  regroup();
  find("#search").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(searchTimer); // one request is enough
    const results = param("q") === searchField().value ? Promise.resolve(true) : search();
    results.then((isShown) => isShown && searchField().value && find(".row > a", list())?.click());
  });
  for (const type of ["pointerover", "focusin"]) list().addEventListener(type, showRowActions);
  document.addEventListener("segue:pin", ({ detail }) => markPinned(detail));
  // A phone without an open page shows the list alone.
  const phone = matchMedia("(max-width: 760px)");
  const setRole = () => find("#sidebar").setAttribute("role", phone.matches && !document.body.classList.contains("reading") ? "main" : "navigation");
  new MutationObserver(setRole).observe(document.body, { attributeFilter: ["class"] });
  phone.addEventListener("change", setRole);
  setRole();
  searchField().addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    find(".row > a", list())?.focus();
  });
  searchField().addEventListener("input", () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(search, 150);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("#sidebar .chips a, #list .empty a, #list .rest, #main .meta a[href^='/?']");
    if (!link || event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    if (!link.closest(".chips")) searchField().value = "";
    filter(new URL(link.href).searchParams).catch(() => location.assign(link.href));
    if (!link.closest("#sidebar")) document.body.classList.remove("reading");
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.closest("#filter")) return;
    event.preventDefault();
    const form = event.target;
    const params = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    params.delete("q");
    filter(params).then(() => find("#filter > summary").focus(), () => form.submit());
  });
  document.addEventListener("toggle", async (event) => {
    if (event.target.id !== "filter" || !event.target.open) return;
    try {
      if (!find("#facet-cwd")) document.body.append(nodes(await text("/facets")));
      attachCombobox(find("#f-cwd"));
    } catch {
      // The fields can be filled in without suggestions.
    }
  }, true);
}
