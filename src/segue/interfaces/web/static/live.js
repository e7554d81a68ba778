// Live updates of the open session and of the list. A hidden page has no stream.

import { restoreDraft } from "./actions.js";
import { all, announce, find, loginExpiresSoon, nodes, signedOut, silenceTimer } from "./dom.js";
import * as attention from "./attention.js";
import * as inspector from "./inspector.js";
import * as list from "./list.js";

let source = null;
let session = null;
let transcript = null;
let offlineTimer = null;
let showPage = null;
const silence = silenceTimer(() => {
  find("#offline").hidden = false;
  open();
});

// `go` shows another page in the main part.
export function connect(openSession, openTranscript, go) {
  session = openSession;
  transcript = openTranscript;
  showPage = go;
  open();
}

function close() {
  source?.close();
  source = null;
  silence.stop();
}

function open() {
  close();
  if (document.hidden) return;
  const params = new URLSearchParams(list.query());
  params.set("as-of", find("#list").dataset.now);
  if (session) {
    params.set("session", session.dataset.id);
    params.set("after", transcript.lastSeq);
    params.set("page-owner", session.dataset.owner);
  }
  source = new EventSource(`/live?${params}`);
  const thisSource = source;
  const thisTranscript = transcript;
  silence.restart();
  const on = (name, handle) => source.addEventListener(name, (event) => {
    if (thisSource !== source) return;
    silence.restart();
    handle(JSON.parse(event.data));
  });
  let wasConnected = false;
  on("heartbeat", () => {});
  on("hello", ({ max_silence_ms: milliseconds }) => {
    silence.restart(milliseconds);
    clearTimeout(offlineTimer);
    offlineTimer = null;
    find("#offline").hidden = true;
    const errorLine = find("#send-error");
    if (errorLine) errorLine.hidden = true; // the server can be reached again
    if (wasConnected) list.refresh(); // changes during the interruption were not received
    wasConnected = true;
  });
  on("item", (data) => thisTranscript.add(data));
  on("writing", (data) => thisTranscript.write(data));
  on("head", (data) => {
    updateHead(data);
    inspector.refresh();
  });
  on("gone", showDeleted);
  on("moved", reloadSession);
  on("expires_soon", loginExpiresSoon);
  on("signed_out", ({ message }) => {
    close();
    signedOut(message);
  });
  on("row", (data) => {
    attention.update(data);
    document.dispatchEvent(new Event("segue:row"));
    list.update(data);
  });
  source.addEventListener("error", () => {
    if (thisSource !== source) return;
    // A short interruption is not shown.
    offlineTimer ??= setTimeout(() => { find("#offline").hidden = false; }, 700);
    if (source.readyState === EventSource.CLOSED) setTimeout(reopen, 1000, thisSource);
  });
}

// The browser does not reconnect any more. Find out whether the user was signed out or the session
// was deleted; otherwise open a new stream.
async function reopen(closedSource) {
  if (closedSource !== source) return;
  try {
    const url = session ? `${session.dataset.base}/chunks?first=0` : "/rows";
    const response = await fetch(url, { headers: { "x-segue": "1" } });
    if (response.status === 401) {
      find("#offline").hidden = true;
      close();
      return signedOut(await response.text());
    }
    if (response.status === 404) {
      showDeleted();
      session = null;
    }
  } catch {
    // The server still cannot be reached.
  }
  return open();
}

function updateHead({ title, tag, meta, notices, state_actions: stateActions, composer, status, queued }) {
  if (!session?.isConnected) return;
  find("h1", session).textContent = title;
  attention.setTitle(`${title} · segue`);
  const oldStatus = find("#head .status", session).textContent;
  find("#head .meta", session).replaceWith(nodes(meta));
  const newStatus = find("#head .status", session).textContent;
  if (newStatus !== oldStatus) announce(newStatus === "idle" ? "The agent is done" : newStatus);
  updateNotices(notices);
  for (const [selector, value] of [["#a-title", title === "Untitled" ? "" : title], ["#a-tag", tag]]) {
    const field = find(selector, session);
    if (field && field !== document.activeElement) field.value = value;
  }
  const oldActions = find("#state-actions", session);
  if (!oldActions?.contains(document.activeElement)) oldActions?.replaceWith(nodes(stateActions));
  updateComposer(composer);
  if (status !== "idle" || find("#composer .stop", session)) return; // the turn continues after an answer
  for (const item of all("#writing > *", session)) if (!queued.includes(item.dataset.message)) item.remove();
}

// Replace the notices only if their text changed, so that a button does not vanish during a click.
function updateNotices(html) {
  const notices = find("#notices", session);
  const newNotices = nodes(html);
  if (notices.textContent.trim() === newNotices.textContent.trim()) return;
  const hadFocus = notices.contains(document.activeElement);
  notices.replaceChildren(newNotices);
  if (hadFocus) find("#main").focus({ preventScroll: true });
}

// Update the composer to the session's state, and keep the draft in it.
function updateComposer(html) {
  const composer = find("#composer", session);
  const newComposer = nodes(html).firstElementChild;
  const text = find("#text", composer);
  const newText = find("#text", newComposer);
  if (text && newText) {
    text.placeholder = newText.placeholder;
    const [stop, newStop] = [find(".stop", composer), find(".stop", newComposer)];
    if (newStop && !stop) composer.append(newStop);
    else if (stop && !newStop) {
      if (stop.contains(document.activeElement)) text.focus();
      stop.remove();
    }
    const answers = find(".who-answers", composer);
    const newAnswers = find(".who-answers", newComposer);
    if (answers && newAnswers) answers.textContent = newAnswers.textContent;
  } else {
    const [dock, newDock] = [find(".dock", composer), find(".dock", newComposer)];
    if (dock && newDock && dock.dataset.asks === newDock.dataset.asks) return; // an answer may be being typed
    const hadFocus = composer.contains(document.activeElement);
    composer.replaceWith(newComposer);
    restoreDraft(session);
    if (hadFocus) find("#text, .dock .buttons :is(summary, button)", newComposer)?.focus({ preventScroll: true });
  }
}

function showDeleted() {
  if (!session?.isConnected) return;
  const notices = find("#notices", session);
  const notice = document.createElement("p");
  notice.className = "notice";
  notice.setAttribute("role", "alert");
  notice.textContent = "This session was deleted. This page shows the messages that it had loaded.";
  notices.replaceChildren(notice);
  const composer = find("#composer", session);
  const text = find("#text", composer);
  if (text) text.readOnly = true;
  for (const button of composer.querySelectorAll("button")) button.disabled = true;
}

// The session was imported, so its events have other seqs.
function reloadSession() {
  if (!session?.isConnected) return;
  history.replaceState(null, "", session.dataset.base);
  showPage(session.dataset.base, { addToHistory: false });
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    close();
  } else if (!source) {
    open();
    list.refresh();
  }
});
document.addEventListener("segue:list", open);
