// Submit forms without leaving the page. A draft is kept until the server has received it.

import { all, announce, explain, find, notify, post, send } from "./dom.js";
import * as pictures from "./pictures.js";

const draftKey = (id) => `draft ${id}`;

// Drafts are in the browser's storage, so they survive a reload and a lost connection.

export function restoreDraft(session) {
  const text = find("#text", session);
  if (!text) return;
  pictures.show();
  const { id } = session.dataset;
  if (text.value) return saveDraft(id, text.value); // typed before this script was loaded
  text.value = readDraft(id);
}

// The first message of a session that does not exist yet.
export function restoreFirstMessage() {
  const field = find("#first-message");
  if (!field) return;
  field.value ||= readDraft("new");
  field.focus();
}

function readDraft(id) {
  try {
    return localStorage.getItem(draftKey(id)) ?? "";
  } catch {
    return ""; // The browser has no storage for this site.
  }
}

function saveDraft(id, text) {
  try {
    if (text) localStorage.setItem(draftKey(id), text);
    else localStorage.removeItem(draftKey(id));
  } catch {
    // The browser has no storage for this site.
  }
}

async function sendPrompt(form) {
  const field = find("#text", form);
  const text = field.value;
  const attached = pictures.attached();
  if (!text.trim() && !attached.length) return;
  const { id } = find("#main .session").dataset;
  const errorLine = find("#send-error");
  const button = find(".send", form);
  button.disabled = true;
  const turnIsRunning = find("#composer .stop");
  try {
    const fields = [["text", text], ...attached.map((dataUrl) => ["picture", dataUrl])];
    const { event } = await post(form.getAttribute("action"), fields);
    if (turnIsRunning && find(`#main .session[data-id="${id}"]`)) {
      find("#writing").dispatchEvent(new CustomEvent("segue:queued", { bubbles: true, detail: { message: event, text } }));
      announce("Queued until this turn ends");
    }
    pictures.remove(attached);
    // Since then, the user may have typed more or opened another session.
    const currentField = find(`#main .session[data-id="${id}"] #text`);
    if (currentField?.value === text) currentField.value = "";
    saveDraft(id, currentField?.value ?? "");
    errorLine.hidden = true;
  } catch (error) {
    errorLine.textContent = explain(error);
    errorLine.hidden = false;
    if (!errorLine.isConnected) notify(`A message was not sent. ${explain(error)}`);
  } finally {
    button.disabled = false;
    if (button.isConnected) find("#text")?.focus();
  }
}

// Put cancelled messages that were still queued back into the composer, before its draft.
function restoreQueued(id, texts) {
  const field = find(`#main .session[data-id="${id}"] #text`);
  const draft = [...texts, field ? field.value : readDraft(id)].filter(Boolean).join("\n\n");
  if (field) field.value = draft;
  saveDraft(id, draft);
}

async function submit(form, submitter, go) {
  const fields = new FormData(form, submitter);
  const action = form.getAttribute("action");
  const session = action.match(/^\/s\/([^/]+)\//)?.[1] ?? find("#main .session")?.dataset.id;
  const verb = form.dataset.verb;
  const queuedTexts = all("#writing [data-text]").map((item) => item.dataset.text);
  // `disabled` would remove the focus from the button.
  if (submitter?.ariaDisabled) return;
  if (submitter) submitter.ariaDisabled = "true";
  try {
    const next = await send(action, fields);
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (menu.contains(document.activeElement)) find("summary", menu).focus();
      menu.open = false;
    }
    if (verb === "cancel") restoreQueued(session, queuedTexts);
    else if (verb === "delete") {
      await go("/");
      notify("Moved to the trash.", {
        label: "Undo",
        action: async () => {
          try {
            go(await send(`/s/${session}/restore`, {}));
          } catch (error) {
            notify(explain(error));
          }
        },
      });
    } else if (verb === "archive") {
      notify("Archived.", { label: "Undo", action: () => send(`/s/${session}/unarchive`, {}).catch((error) => notify(explain(error))) });
    } else if (verb === "pin" || verb === "unpin") {
      document.dispatchEvent(new CustomEvent("segue:pin", { detail: { session, pinned: verb === "pin" } }));
      const button = find(`#state-actions form[data-verb="${verb}"] button`);
      if (button && find("#main .session").dataset.id === session) {
        const next = verb === "pin" ? "unpin" : "pin";
        button.form.dataset.verb = next;
        button.form.setAttribute("action", `/s/${session}/${next}`);
        button.textContent = next === "pin" ? "Pin" : "Unpin";
      }
      notify(verb === "pin" ? "Pinned." : "Unpinned.");
    } else if (verb === "rename") notify("Renamed.");
    else if (verb === "tag") notify("Tagged.");
    else if (verb === "answer" && find("#main .inbox")) {
      form.closest(".waiting-card")?.remove(); // a further request of the session brings it back
      find("#main").focus({ preventScroll: true }); // the inbox is not replaced while it has the focus
      document.dispatchEvent(new Event("segue:row"));
    }
    else if (next && new URL(next, location.href).pathname !== location.pathname) {
      if (action === "/new") saveDraft("new", "");
      await go(next);
      if (action === "/new") find("#text")?.focus();
    }
    else if (["/bulk", "/model"].includes(action)) await go(next);
    else if (next?.endsWith("/share") || verb === "continue") await go(next, { addToHistory: false });
  } catch (error) {
    notify(explain(error));
    if (submitter) submitter.ariaDisabled = null;
  }
  if (submitter?.isConnected && verb !== "answer") submitter.ariaDisabled = null;
}

export function start(go) {
  pictures.start();
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post" || form.closest("dialog")) return;
    event.preventDefault();
    if (form.id === "prompt") sendPrompt(form);
    else submit(form, event.submitter, go);
  });
  document.addEventListener("input", (event) => {
    if (event.target.id === "text") saveDraft(find("#main .session").dataset.id, event.target.value);
    else if (event.target.id === "first-message") saveDraft("new", event.target.value);
  });
  document.addEventListener("keydown", (event) => {
    const isSendKey = event.key === "Enter" && (event.ctrlKey || event.metaKey);
    if (["text", "first-message"].includes(event.target.id) && isSendKey) event.target.form.requestSubmit();
  });
}
