// A shared session: the same transcript, to read.

import { all, find } from "./dom.js";
import * as jump from "./jump.js";
import { Transcript } from "./transcript.js";

const transcript = new Transcript(find(".session"), document.scrollingElement);
jump.attend(transcript);
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
