// Jump within a session: to one of its turns, or to a message that matches a search. The server
// searches the whole history, of which the page contains only some chunks.

import { explain, find, nodes, notify, text } from "./dom.js";

let transcript = null;
let lastQuery = "";
let searchTimer;
let lastRequest = 0;

export function attach(openTranscript) {
  transcript = openTranscript;
  lastQuery = transcript.session.dataset.at ? (new URLSearchParams(location.search).get("q") ?? "") : "";
  find("#jump-open").hidden = false;
  if (find("#jump")) find("#jump input").value = "";
  highlight();
  transcript.session.addEventListener("segue:chunks", highlight);
}

// Highlight the words of the last search. The page's elements stay as they are.
export function highlight() {
  if (!("highlights" in CSS)) return;
  CSS.highlights.delete("match");
  const words = lastQuery.toLowerCase().match(/[\p{L}\p{N}]+/gu);
  if (!words) return;
  const ranges = [];
  const walker = document.createTreeWalker(find("#chunks", transcript.session), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && ranges.length < 500; node = walker.nextNode()) {
    const lower = node.data.toLowerCase();
    for (const word of words) {
      for (let at = lower.indexOf(word); at >= 0; at = lower.indexOf(word, at + word.length)) {
        if (/[\p{L}\p{N}]/u.test(lower[at - 1] ?? "")) continue;
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + word.length);
        ranges.push(range);
      }
    }
  }
  CSS.highlights.set("match", new Highlight(...ranges));
}

// Return the dialog, which is created when it is first dialog.
function getDialog() {
  const existing = find("#jump");
  if (existing) return existing;
  document.body.append(nodes(`<dialog id="jump" aria-label="Jump within this session">
    <form method="dialog"><input type="search" placeholder="Find in this session" aria-label="Find in this session" autocomplete="off" spellcheck="false"><button class="ghost">Close</button></form>
    <div class="results" aria-live="polite"></div></dialog>`));
  const dialog = find("#jump");
  const field = find("input", dialog);
  field.addEventListener("input", () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(showResults, 150);
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault(); // the browser would clear the field instead
      dialog.close();
      return;
    }
    const links = [...dialog.querySelectorAll(".turns a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "Enter" && event.target === field) {
      event.preventDefault();
      clearTimeout(searchTimer);
      showResults().then(() => field.value && find(".turns a", dialog)?.click());
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      (links[at + (event.key === "ArrowDown" ? 1 : -1)] ?? field).focus();
    }
  });
  dialog.addEventListener("click", async (event) => {
    if (event.target === dialog) dialog.close();
    const link = event.target.closest("a");
    if (!link) return;
    if (link.closest(".agent-matches")) return dialog.close(); // a link to another page
    event.preventDefault();
    if (link.dataset.jump) return jumpTo(link);
    link.replaceWith(nodes(await text(link.href)));
  });
  return dialog;
}

function jumpTo(link) {
  find("#jump").close();
  lastQuery = find("#jump input").value;
  history.replaceState(null, "", link.href);
  transcript.session.dataset.at = link.dataset.jump;
  return transcript.reveal(Number(link.dataset.jump)).then(highlight);
}

async function showResults() {
  const request = ++lastRequest;
  const query = find("#jump input").value;
  const results = nodes(await text(`${transcript.base}/turns?${new URLSearchParams(query ? { q: query } : {})}`));
  if (request !== lastRequest) return;
  find("#jump .results").replaceChildren(results);
  // The events of the session's agents are not indexed, so searching them takes longer.
  if (query) text(`${transcript.base}/agents?${new URLSearchParams({ q: query })}`).then((html) => request === lastRequest && find("#jump .results").append(nodes(html)), () => {});
}

export async function open() {
  if (!transcript?.session.isConnected) return;
  const dialog = getDialog();
  try {
    await showResults();
    dialog.showModal();
    find("input", dialog).select();
  } catch (error) {
    notify(explain(error));
  }
}

document.addEventListener("click", (event) => {
  if (event.target.closest("#jump-open")) open();
});
