// A shared session: the same transcript, to read.

import { all, find } from "./dom.js";
import { Transcript } from "./transcript.js";

const transcript = new Transcript(find(".session"), document.scrollingElement);
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.at");
  if (!link || !all("#parts").length) return;
  event.preventDefault();
  history.replaceState(null, "", link.href);
  transcript.reveal(Number(link.hash.slice(2)));
});
