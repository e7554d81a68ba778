// A shared session: the same transcript, to read. It grows as the session does, until the link is revoked.

import { all, find, local, nodes, text } from "./dom.js";
import * as jump from "./jump.js";
import { Transcript } from "./transcript.js";

local(document);
const session = find(".session");
const transcript = new Transcript(session, document.scrollingElement);
jump.attend(transcript);

let source = null;
let over = false;

function follow() {
  source?.close();
  source = null;
  if (document.hidden || over) return;
  const params = new URLSearchParams({ after: transcript.lastSeq, "kept-by": session.dataset.source });
  source = new EventSource(`${transcript.base}/live?${params}`);
  const mine = source;
  const on = (name, act) => source.addEventListener(name, (event) => mine === source && act(JSON.parse(event.data)));
  on("item", (data) => transcript.add(data));
  on("writing", (data) => transcript.write(data));
  on("head", head);
  on("moved", () => location.reload());
  on("gone", end);
  on("out", end);
  source.addEventListener("error", () => {
    if (mine === source && source.readyState === EventSource.CLOSED) setTimeout(again, 2000, mine);
  });
}

function head({ title, meta }) {
  find("h1").textContent = title;
  document.title = `${title} · segue`;
  find("#head .meta").replaceWith(nodes(meta));
}

// The browser gave up: because the link was revoked, or for no reason.
async function again(which) {
  if (which !== source) return;
  try {
    await text(`${transcript.base}/part?number=0`);
  } catch (error) {
    if (error.status === 404) return end();
  }
  follow();
}

function end() {
  over = true;
  source?.close();
  const words = document.createElement("p");
  words.className = "notice";
  words.setAttribute("role", "alert");
  words.textContent = "This link was revoked, or its session deleted. What you see is what had been loaded.";
  find("#notices").replaceChildren(words);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    source?.close();
    source = null;
  } else if (!source) follow();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.at");
  if (!link || !all("#parts").length) return;
  event.preventDefault();
  history.replaceState(null, "", link.href);
  transcript.reveal(Number(link.hash.slice(2)));
});
document.addEventListener("keydown", (event) => {
  const free = !event.target.closest("input") && !event.ctrlKey && !event.metaKey && !event.altKey && !find("dialog[open]");
  if (!free || !["s", "t"].includes(event.key)) return;
  event.preventDefault();
  jump.open();
});
follow();
