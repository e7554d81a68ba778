// A shared session: a transcript to read, with live updates until the link is revoked.

import { all, find, localizeTimes, nodes, silenceTimer, text } from "./dom.js";
import * as copying from "./copying.js";
import * as jump from "./jump.js";
import { Transcript } from "./transcript.js";

localizeTimes(document);
const session = find(".session");
const transcript = new Transcript(session, document.scrollingElement);
jump.attach(transcript);

let source = null;
let hasEnded = false;
const silence = silenceTimer(follow);

function close() {
  source?.close();
  source = null;
  silence.stop();
}

function follow() {
  close();
  if (document.hidden || hasEnded) return;
  const params = new URLSearchParams({ after: transcript.lastSeq, "page-owner": session.dataset.owner });
  source = new EventSource(`${transcript.base}/live?${params}`);
  const thisSource = source;
  silence.restart();
  const on = (name, handle) => source.addEventListener(name, (event) => {
    if (thisSource !== source) return;
    silence.restart();
    handle(JSON.parse(event.data));
  });
  on("hello", ({ max_silence_ms: milliseconds }) => silence.restart(milliseconds));
  on("heartbeat", () => {});
  on("item", (data) => transcript.add(data));
  on("writing", (data) => transcript.write(data));
  on("head", updateHead);
  on("moved", () => location.reload());
  on("gone", end);
  on("signed_out", end);
  source.addEventListener("error", () => {
    if (thisSource === source && source.readyState === EventSource.CLOSED) setTimeout(reopen, 2000, thisSource);
  });
}

function updateHead({ title, meta }) {
  find("h1").textContent = title;
  document.title = `${title} · segue`;
  find("#head .meta").replaceWith(nodes(meta));
}

// The browser does not reconnect any more. Open a new stream, unless the link was revoked.
async function reopen(closedSource) {
  if (closedSource !== source) return;
  try {
    await text(`${transcript.base}/chunks?first=0`);
  } catch (error) {
    if (error.status === 404) return end();
  }
  follow();
}

function end() {
  hasEnded = true;
  close();
  const notice = document.createElement("p");
  notice.className = "notice";
  notice.setAttribute("role", "alert");
  notice.textContent = "This link was revoked, or its session was deleted. This page shows the messages that it had loaded.";
  find("#notices").replaceChildren(notice);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) close();
  else if (!source) follow();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.at");
  if (!link || !all("#chunks").length) return;
  event.preventDefault();
  history.replaceState(null, "", link.href);
  transcript.reveal(Number(link.hash.slice(2)));
});
document.addEventListener("keydown", (event) => {
  const isShortcut = !event.target.closest("input") && !event.ctrlKey && !event.metaKey && !event.altKey && !find("dialog[open]");
  const step = { j: ["message", 1], k: ["message", -1], t: ["tool", 1], T: ["tool", -1], x: ["error", 1], X: ["error", -1], "]": ["prompt", 1], "[": ["prompt", -1] }[event.key];
  if (!isShortcut || !(step || ["s", "y"].includes(event.key))) return;
  event.preventDefault();
  if (step) transcript.step(...step);
  else if (event.key === "s") jump.open();
  else if (transcript.current) copying.copyFrom(`${transcript.base}/markdown/${transcript.current.dataset.seq}`);
});
follow();
