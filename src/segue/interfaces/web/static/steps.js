// Groups of tool calls. The server groups the calls of a chunk; this joins groups of neighbouring
// chunks, and groups calls that arrive live.

import { all, find, nodes } from "./dom.js";

const SUMMARY = '<details class="fold"><summary><svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round"><path d="M6 4l4 4-4 4"/></svg><span></span></summary></details>';

const isStep = (element) => element?.matches?.(".item.tool, .item.permission.done");

// Return what some tool calls did, such as "7 steps · 3 reads · 2 edits · 1 failed".
function summarize(tools) {
  const counts = new Map();
  for (const tool of tools) counts.set(tool.dataset.step, (counts.get(tool.dataset.step) ?? 0) + 1);
  const failed = tools.filter((tool) => tool.classList.contains("failed")).length;
  const parts = [...counts].map(([words, count]) => `${count} ${words.split("|")[count === 1 ? 0 : 1]}`);
  return [`${tools.length} ${tools.length === 1 ? "step" : "steps"}`, ...parts, ...(failed ? [`${failed} failed`] : [])].join(" · ");
}

// Add an item at the end of a chunk: a tool call to the group there, which is created if necessary.
export function append(chunk, item) {
  if (!isStep(item)) return chunk.append(item);
  let group = chunk.lastElementChild;
  if (!group?.matches(".steps")) {
    group = document.createElement("div");
    group.className = "steps";
    chunk.append(group);
  }
  group.append(item);
}

// Group an open permission request that was answered with the tool calls before it.
export function settle(item) {
  if (!isStep(item) || item.closest(".steps")) return;
  const before = item.previousElementSibling;
  const after = item.nextElementSibling;
  if (before?.matches(".steps")) before.append(item);
  else if (after?.matches(".steps")) after.prepend(item);
  if (before?.matches(".steps") && after?.matches(".steps")) {
    before.append(...all(":scope > .item", after));
    after.remove();
  }
}

// Update the folds of all groups. A group that continues the one before has no fold of its own.
export function update(chunks) {
  let first = null;
  let run = [];
  let opened = false;
  const finish = () => {
    if (first) fold(first, run, opened);
    first = null;
    run = [];
  };
  for (const element of all(":scope > .chunk > *", chunks)) {
    if (!element.matches(".steps")) {
      finish();
      continue;
    }
    if (first) element.classList.add("joined");
    else {
      first = element;
      // The chunk in which the group began may have been removed from the page while it was open.
      opened = element.matches(".joined:not(.closed)");
      element.classList.remove("joined", "closed");
    }
    run.push(element);
  }
  finish();
}

function fold(first, run, opened) {
  const tools = run.flatMap((group) => all(":scope > .tool", group));
  const quiet = tools.filter((tool) => !tool.matches(".loud"));
  let details = find(":scope > .fold", first);
  if (quiet.length > 1 && !details) {
    first.prepend(nodes(SUMMARY));
    details = find(":scope > .fold", first);
    details.open = opened;
  } else if (quiet.length < 2) {
    details?.remove();
    details = null;
  }
  if (details) {
    const text = find("summary > span", details);
    const summary = summarize(tools);
    if (text.textContent !== summary) text.textContent = summary;
  }
  for (const group of run.slice(1)) {
    const joined = find(":scope > .fold", group);
    if (details && joined?.open) details.open = true; // it was opened before the groups were joined
    joined?.remove();
  }
  for (const group of run.slice(1)) group.classList.toggle("closed", Boolean(details && !details.open));
}

// Open the fold that hides an item.
export function reveal(item, chunks) {
  let group = item.closest(".steps");
  if (!group) return;
  while (group.classList.contains("joined")) {
    const groups = all(":scope > .chunk > .steps", chunks);
    group = groups[groups.indexOf(group) - 1] ?? group;
    if (group === groups[0]) break;
  }
  const details = find(":scope > .fold", group);
  if (details && !details.open && getComputedStyle(item).display === "none") details.open = true;
  update(chunks);
}
