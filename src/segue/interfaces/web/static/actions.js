// Forms: sent without leaving the page. What was typed stays until the server has it.

import { all, announce, explain, find, notify, post, send } from "./dom.js";
import * as pictures from "./pictures.js";

const draftOf = (id) => `draft ${id}`;

// Drafts outlive the page: a reload or a lost connection takes nothing away.

export function restoreDraft(session) {
  const text = find("#text", session);
  if (!text) return;
  pictures.show();
  const { id } = session.dataset;
  if (text.value) return keepDraft(id, text.value); // typed before this script was there
  text.value = draft(id);
}

function draft(id) {
  try {
    return localStorage.getItem(draftOf(id)) ?? "";
  } catch {
    return ""; // A browser that keeps nothing.
  }
}

function keepDraft(id, words) {
  try {
    if (words) localStorage.setItem(draftOf(id), words);
    else localStorage.removeItem(draftOf(id));
  } catch {
    // A browser that keeps nothing.
  }
}

async function say(form) {
  const field = find("#text", form);
  const words = field.value;
  const attached = pictures.attached();
  if (!words.trim() && !attached.length) return;
  const { id } = find("#main .session").dataset;
  const trouble = find("#trouble");
  const button = find(".send", form);
  button.disabled = true;
  const running = find("#composer .stop");
  try {
    const fields = [["text", words], ...attached.map((each) => ["picture", each])];
    const { event } = await post(form.getAttribute("action"), fields);
    if (running && find(`#main .session[data-id="${id}"]`)) {
      find("#writing").dispatchEvent(new CustomEvent("segue:queued", { bubbles: true, detail: { message: event, words } }));
      announce("Queued until this turn is done");
    }
    pictures.forget(attached);
    // Meanwhile more may have been typed, the composer replaced, or another session opened.
    const now = find(`#main .session[data-id="${id}"] #text`);
    if (now?.value === words) now.value = "";
    keepDraft(id, now?.value ?? "");
    trouble.hidden = true;
  } catch (error) {
    trouble.textContent = explain(error);
    trouble.hidden = false;
    if (!trouble.isConnected) notify(`A message was not sent. ${explain(error)}`);
  } finally {
    button.disabled = false;
    if (button.isConnected) find("#text")?.focus();
  }
}

// What is stopped before it began is there to be sent again, before what was typed since.
function giveBack(id, words) {
  const field = find(`#main .session[data-id="${id}"] #text`);
  const given = [...words, field ? field.value : draft(id)].filter(Boolean).join("\n\n");
  if (field) field.value = given;
  keepDraft(id, given);
}

async function submit(form, submitter, go) {
  const fields = new FormData(form, submitter);
  const address = form.getAttribute("action");
  const session = find("#main .session")?.dataset.id;
  const verb = form.dataset.verb;
  const queued = all("#writing [data-words]").map((each) => each.dataset.words);
  // Not `disabled`, which would take the focus away.
  if (submitter?.ariaDisabled) return;
  if (submitter) submitter.ariaDisabled = "true";
  try {
    const next = await send(address, fields);
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (menu.contains(document.activeElement)) find("summary", menu).focus();
      menu.open = false;
    }
    if (verb === "cancel") giveBack(session, queued);
    else if (verb === "delete") {
      await go("/");
      notify("Moved to the trash.", {
        label: "Undo",
        act: async () => {
          try {
            go(await send(`/s/${session}/restore`, {}));
          } catch (error) {
            notify(explain(error));
          }
        },
      });
    } else if (verb === "archive") {
      notify("Archived.", { label: "Undo", act: () => send(`/s/${session}/unarchive`, {}).catch((error) => notify(explain(error))) });
    } else if (verb === "rename") notify("Renamed.");
    else if (verb === "tag") notify("Tagged.");
    else if (next && new URL(next, location.href).pathname !== location.pathname) {
      await go(next);
      if (address === "/new") find("#text")?.focus();
    }
    else if (next?.endsWith("/share") || verb === "continue") await go(next, { remember: false });
  } catch (error) {
    notify(explain(error));
    if (submitter) submitter.ariaDisabled = null;
  }
  if (submitter?.isConnected && form.id !== "answer") submitter.ariaDisabled = null;
}

export function start(go) {
  pictures.start();
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post" || form.closest("dialog")) return;
    event.preventDefault();
    if (form.id === "say") say(form);
    else submit(form, event.submitter, go);
  });
  document.addEventListener("input", (event) => {
    if (event.target.id === "text") keepDraft(find("#main .session").dataset.id, event.target.value);
  });
  document.addEventListener("keydown", (event) => {
    const sends = event.key === "Enter" && (event.ctrlKey || event.metaKey);
    if (event.target.id === "text" && sends) event.target.form.requestSubmit();
  });
}
