// The stream of what happens elsewhere. One a page, and none while nobody looks at it.

import { restoreDraft } from "./actions.js";
import { all, announce, endsSoon, find, nodes, signedOut } from "./dom.js";
import * as list from "./list.js";

let source = null;
let session = null;
let transcript = null;
let lost = null;
let show = null;

// `go` shows another page in the main part.
export function connect(element, shown, go) {
  session = element;
  transcript = shown;
  show = go;
  open();
}

function open() {
  source?.close();
  source = null;
  if (document.hidden) return;
  const params = new URLSearchParams(list.address());
  params.set("as-of", find("#list").dataset.now);
  if (session) {
    params.set("session", session.dataset.id);
    params.set("after", transcript.lastSeq);
    params.set("kept-by", session.dataset.source);
  }
  source = new EventSource(`/live?${params}`);
  const mine = source;
  const shown = transcript;
  const on = (name, act) => source.addEventListener(name, (event) => {
    if (mine === source) act(JSON.parse(event.data));
  });
  let greeted = false;
  on("hello", () => {
    clearTimeout(lost);
    lost = null;
    find("#offline").hidden = true;
    const trouble = find("#trouble");
    if (trouble) trouble.hidden = true; // the server can be reached
    if (greeted) list.refresh(); // whatever may have changed while nobody told us
    greeted = true;
  });
  on("item", (data) => shown.add(data));
  on("writing", (data) => shown.write(data));
  on("head", head);
  on("gone", gone);
  on("moved", moved);
  on("soon", endsSoon);
  on("out", ({ words }) => {
    source.close();
    signedOut(words);
  });
  on("row", (data) => list.update(data));
  source.addEventListener("error", () => {
    if (mine !== source) return;
    // A moment's loss is nobody's business.
    lost ??= setTimeout(() => { find("#offline").hidden = false; }, 700);
    if (source.readyState === EventSource.CLOSED) setTimeout(refused, 1000, mine);
  });
}

// The browser gave up: because we are signed out, because the session is gone, or for no reason.
async function refused(which) {
  if (which !== source) return;
  try {
    const address = session ? `${session.dataset.base}/part?number=0` : "/rows";
    const answer = await fetch(address, { headers: { "x-segue": "1" } });
    if (answer.status === 401) {
      find("#offline").hidden = true;
      return signedOut(await answer.text());
    }
    if (answer.status === 404) {
      gone();
      session = null;
    }
  } catch {
    // Still no connection.
  }
  return open();
}

function head({ title, tag, meta, notices, shelf, composer, status, waiting }) {
  if (!session?.isConnected) return;
  find("h1", session).textContent = title;
  document.title = `${title} · segue`;
  const before = find("#head .status", session).textContent;
  find("#head .meta", session).replaceWith(nodes(meta));
  const now = find("#head .status", session).textContent;
  if (now !== before) announce(now === "idle" ? "The agent is done" : now); // for those who listen
  tell(notices);
  for (const [field, value] of [["#a-title", title === "Untitled" ? "" : title], ["#a-tag", tag]]) {
    const shown = find(field, session);
    if (shown && shown !== document.activeElement) shown.value = value;
  }
  const shelving = find("#shelving", session);
  if (!shelving?.contains(document.activeElement)) shelving?.replaceWith(nodes(shelf));
  keepTyping(composer);
  if (status !== "idle" || find("#composer .stop", session)) return; // it asks, and will go on
  for (const each of all("#writing > *", session)) if (!waiting.includes(each.dataset.message)) each.remove();
}

// Left alone while they are the same: somebody may be about to press what is in them.
function tell(html) {
  const place = find("#notices", session);
  const made = nodes(html);
  if (place.textContent.trim() === made.textContent.trim()) return;
  const focused = place.contains(document.activeElement);
  place.replaceChildren(made);
  if (focused) find("#main").focus({ preventScroll: true });
}

// The composer changes with the session's state; what is being typed in it must not.
function keepTyping(html) {
  const old = find("#composer", session);
  const made = nodes(html).firstElementChild;
  const text = find("#text", old);
  const fresh = find("#text", made);
  if (text && fresh) {
    text.placeholder = fresh.placeholder;
    const [there, stop] = [find(".stop", old), find(".stop", made)];
    if (stop && !there) old.append(stop);
    else if (there && !stop) {
      if (there.contains(document.activeElement)) text.focus();
      there.remove();
    }
  } else {
    old.replaceWith(made);
    restoreDraft(session);
  }
}

function gone() {
  if (!session?.isConnected) return;
  const notices = find("#notices", session);
  const words = document.createElement("p");
  words.className = "notice";
  words.setAttribute("role", "alert");
  words.textContent = "This session was deleted, here or elsewhere. What you see is what had been loaded.";
  notices.replaceChildren(words);
  const composer = find("#composer", session);
  const text = find("#text", composer);
  if (text) text.readOnly = true;
  for (const button of composer.querySelectorAll("button")) button.disabled = true;
}

// Another keeper numbers the same history in another way.
function moved() {
  if (!session?.isConnected) return;
  history.replaceState(null, "", session.dataset.base);
  show(session.dataset.base, { remember: false });
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    source?.close();
    source = null;
  } else if (!source) {
    open();
    list.refresh();
  }
});
document.addEventListener("segue:list", open);
