// The search page, and the palette (Ctrl+K): sessions, their messages, and commands.

import { all, explain, find, nodes, notify, text } from "./dom.js";

const PREVIEW = matchMedia("(min-width: 1100px)");

let searchTimer;
let previewTimer;
let lastRequest = 0;
let lastPreview = "";
let go = null;
let commands = [];

// Load the results of a query into a view.
async function show(view, url) {
  const request = ++lastRequest;
  try {
    const page = nodes(await text(url, { headers: { "x-segue": "results" } }));
    if (request !== lastRequest) return;
    find(".results", view).replaceChildren(page);
    view.dataset.url = url;
    view.closest("dialog")?.dispatchEvent(new Event("segue:results"));
  } catch (error) {
    if (request === lastRequest) notify(explain(error));
  }
}

function urlFor(view, query) {
  const params = new URL(view.dataset.url ?? location.href, location.href).searchParams;
  if (query) params.set("q", query);
  else params.delete("q");
  return `/search?${params}`;
}

// Show the messages around a match next to the results.
function preview(link) {
  const container = find(".preview", link.closest(".search-view"));
  const { preview: url } = link.dataset;
  for (const hit of all(".hit.shown", link.closest(".search-view"))) hit.classList.remove("shown");
  link.classList.add("shown");
  if (!container || !PREVIEW.matches || !url || lastPreview === url) return;
  clearTimeout(previewTimer);
  previewTimer = setTimeout(async () => {
    lastPreview = url;
    try {
      const chunk = nodes(await text(url));
      if (lastPreview !== url || !container.isConnected) return;
      container.replaceChildren(chunk);
      for (const element of all("a, button, summary, [tabindex]", container)) element.tabIndex = -1;
      const item = find(`#p${new URL(url, location.href).searchParams.get("at")}`, container);
      container.scrollTop = item ? item.getBoundingClientRect().top - container.getBoundingClientRect().top : 0;
    } catch {
      lastPreview = ""; // the next focus tries again
    }
  }, 80);
}

// Move the focus among the results, and back to the field.
function step(view, field, by) {
  const links = all(".hit, .command", view).filter((link) => link.offsetParent);
  const index = links.indexOf(document.activeElement);
  (index + by < 0 ? field : links[Math.min(links.length - 1, index + by)])?.focus();
}

function attach(view, field) {
  field.addEventListener("input", () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(() => {
      show(view, urlFor(view, field.value));
      if (!view.closest("dialog")) history.replaceState(null, "", urlFor(view, field.value));
    }, 120);
  });
  const scope = view.closest("dialog") ?? find("#main .search-page");
  scope.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    step(view, field, event.key === "ArrowDown" ? 1 : -1);
  });
  view.addEventListener("click", (event) => {
    const option = event.target.closest(".search-options a");
    if (!option) return;
    event.preventDefault();
    event.stopPropagation();
    show(view, option.getAttribute("href"));
    if (!view.closest("dialog")) history.replaceState(null, "", option.href);
  });
  for (const name of ["focusin", "pointerover"]) {
    view.addEventListener(name, (event) => {
      const hit = event.target.closest(".hit");
      if (hit) preview(hit);
    });
  }
}

// Start the search page.
export function attachPage() {
  const view = find("#main .search-view");
  if (!view) return;
  lastPreview = "";
  const field = find("#search-text");
  attach(view, field);
  if (!field.value) field.focus();
  const first = find(".hit", view);
  if (first && field.value) preview(first);
}

function getPalette() {
  const existing = find("#palette");
  if (existing) return existing;
  document.body.append(nodes(`<dialog id="palette" aria-label="Search and commands">
    <form method="dialog"><input type="search" placeholder="Search sessions and messages, or type a command" aria-label="Search sessions and messages, or type a command" autocomplete="off" spellcheck="false"><button class="ghost">Close</button></form>
    <ul class="commands"></ul>
    <div class="search-view"><div class="results"></div><div class="preview" aria-hidden="true"></div></div></dialog>`));
  const dialog = find("#palette");
  const field = find("input", dialog);
  const view = find(".search-view", dialog);
  view.dataset.url = "/search?";
  attach(view, field);
  field.addEventListener("input", () => showCommands(dialog, field.value));
  dialog.addEventListener("close", () => {
    lastPreview = "";
    find(".preview", dialog).replaceChildren();
  });
  dialog.addEventListener("segue:results", () => {
    const first = find(".hit", view);
    if (first) preview(first);
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault(); // the browser would clear the field instead
      dialog.close();
    } else if (event.key === "Enter" && event.target === field) {
      event.preventDefault();
      clearTimeout(searchTimer);
      show(view, urlFor(view, field.value)).then(() => (find(".command", dialog) ?? find(".hit", view))?.click());
    }
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) return dialog.close();
    const command = event.target.closest(".command");
    if (command) {
      dialog.close();
      return commands[Number(command.dataset.number)].run();
    }
    const hit = event.target.closest(".hit");
    if (!hit || event.metaKey || event.ctrlKey || event.shiftKey) return undefined;
    event.preventDefault();
    event.stopPropagation();
    dialog.close();
    return go(hit.href);
  });
  return dialog;
}

// Show the commands that match what is typed; without a text, none but the search.
function showCommands(dialog, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const list = find(".commands", dialog);
  const matching = words.length ? commands.filter(({ name }) => words.every((word) => name.toLowerCase().includes(word))) : [];
  list.replaceChildren(...matching.slice(0, 4).map((command) => {
    const item = nodes('<li><button type="button" class="command ghost"><span></span><kbd></kbd></button></li>').firstElementChild;
    find("span", item).textContent = command.name;
    if (command.key) find("kbd", item).textContent = command.key;
    else find("kbd", item).remove();
    find("button", item).dataset.number = commands.indexOf(command);
    return item;
  }));
}

// Open the palette. `commandList` has the commands: a name, a key and a function.
export function openPalette(showPage, commandList) {
  go = showPage;
  commands = commandList;
  const dialog = getPalette();
  if (dialog.open) return dialog.close();
  const field = find("input", dialog);
  dialog.showModal();
  field.select();
  lastPreview = "";
  showCommands(dialog, field.value);
  return show(find(".search-view", dialog), urlFor(find(".search-view", dialog), field.value));
}
