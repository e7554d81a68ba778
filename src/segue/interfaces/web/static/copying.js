// Copy code blocks, messages and turns.

import { all, copy, explain, find, notify, text } from "./dom.js";

const ICON = '<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round"><path d="M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3"/></svg>';

// Add a copy button to each code block.
export function addButtons(within) {
  for (const block of all(".code", within)) {
    if (find(":scope > .copy", block)) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "ghost copy";
    button.title = "Copy";
    button.innerHTML = `${ICON}<span class="hidden">Copy</span>`;
    block.append(button);
  }
}

// Return the text of a code block. Removed lines of a diff are not part of the new text.
function blockText(block) {
  const lines = all("pre > .line", block);
  if (!lines.length) return find("pre", block).textContent;
  return lines.filter((line) => !line.matches(".removed, .gap")).map((line) => line.textContent.slice(1)).join("");
}

export async function copyFrom(url) {
  try {
    await copy(await text(url), "Copied as Markdown.");
  } catch (error) {
    notify(explain(error));
  }
}

document.addEventListener("segue:nodes", ({ detail }) => addButtons(detail));
addButtons(document);
document.addEventListener("click", (event) => {
  const button = event.target.closest(".code > .copy, [data-copy-url]");
  if (!button) return;
  event.preventDefault();
  if (button.dataset.copyUrl) copyFrom(button.dataset.copyUrl);
  else copy(blockText(button.parentElement));
});
