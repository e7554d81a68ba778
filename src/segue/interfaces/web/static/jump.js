// Jumping within a session: to one of its turns, or to where some words are. The whole history is
// searched, of which the page has a part only.

import { explain, find, nodes, notify, text } from "./dom.js";

let transcript = null;
let sought = ""; // the words that were looked for last
let typing;
let wanted = 0;

export function attend(shown) {
  transcript = shown;
  sought = transcript.session.dataset.at ? (new URLSearchParams(location.search).get("q") ?? "") : "";
  find("#jump-open").hidden = false;
  if (find("#jump")) find("#jump input").value = "";
  highlight();
  transcript.session.addEventListener("segue:parts", highlight);
}

// The words, shown without changing the page.
export function highlight() {
  if (!("highlights" in CSS)) return;
  CSS.highlights.delete("found");
  const words = sought.toLowerCase().match(/[\p{L}\p{N}]+/gu);
  if (!words) return;
  const ranges = [];
  const walker = document.createTreeWalker(find("#parts", transcript.session), NodeFilter.SHOW_TEXT);
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
  CSS.highlights.set("found", new Highlight(...ranges));
}

function dialog() {
  const made = find("#jump");
  if (made) return made;
  document.body.append(nodes(`<dialog id="jump" aria-label="Jump within this session">
    <form method="dialog"><input type="search" placeholder="Find in this session" aria-label="Find in this session" autocomplete="off" spellcheck="false"><button class="ghost">Close</button></form>
    <div class="results" aria-live="polite"></div></dialog>`));
  const opened = find("#jump");
  const field = find("input", opened);
  field.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(list, 150);
  });
  opened.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault(); // or the field would be emptied first
      opened.close();
      return;
    }
    const links = [...opened.querySelectorAll(".turns a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "Enter" && event.target === field) {
      event.preventDefault();
      clearTimeout(typing);
      list().then(() => field.value && find(".turns a", opened)?.click());
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      (links[at + (event.key === "ArrowDown" ? 1 : -1)] ?? field).focus();
    }
  });
  opened.addEventListener("click", async (event) => {
    if (event.target === opened) opened.close();
    const link = event.target.closest("a");
    if (!link) return;
    if (link.closest(".elsewhere")) return opened.close(); // another page
    event.preventDefault();
    if (link.dataset.jump) return leap(link);
    link.replaceWith(nodes(await text(link.href)));
  });
  return opened;
}

function leap(link) {
  find("#jump").close();
  sought = find("#jump input").value;
  history.replaceState(null, "", link.href);
  transcript.session.dataset.at = link.dataset.jump;
  return transcript.reveal(Number(link.dataset.jump)).then(highlight);
}

async function list() {
  const turn = ++wanted;
  const words = find("#jump input").value;
  const made = nodes(await text(`${transcript.base}/turns?${new URLSearchParams(words ? { q: words } : {})}`));
  if (turn !== wanted) return;
  find("#jump .results").replaceChildren(made);
  // What its agents did is in no index, and takes longer to look through.
  if (words) text(`${transcript.base}/agents?${new URLSearchParams({ q: words })}`).then((more) => turn === wanted && find("#jump .results").append(nodes(more)), () => {});
}

export async function open() {
  if (!transcript?.session.isConnected) return;
  const opened = dialog();
  try {
    await list();
    opened.showModal();
    find("input", opened).select();
  } catch (error) {
    notify(explain(error));
  }
}

document.addEventListener("click", (event) => {
  if (event.target.closest("#jump-open")) open();
});
