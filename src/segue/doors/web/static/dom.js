// What all modules use: asking the server, making elements of its HTML, telling the user.

export const find = (selector, within = document) => within.querySelector(selector);
export const all = (selector, within = document) => [...within.querySelectorAll(selector)];

const csrf = find('meta[name="csrf"]')?.content ?? "";

// The server made this HTML, and cleaned whatever a model or a tool wrote in it.
export function nodes(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

export class Refusal extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

export async function ask(address, options = {}) {
  const answer = await fetch(address, { ...options, headers: { "x-segue": "1", ...options.headers } });
  if (answer.status === 401) signedOut();
  if (!answer.ok) throw new Refusal(answer.status, await answer.text());
  return answer;
}

export async function text(address, options) {
  return (await ask(address, options)).text();
}

// Send a form's fields; the address of the page to show next.
export async function send(address, fields) {
  const answer = await ask(address, {
    method: "POST",
    body: new URLSearchParams(fields),
    headers: { "x-csrf": csrf },
  });
  return answer.headers.get("x-location");
}

let leaving = false;

export function signedOut() {
  if (leaving) return;
  leaving = true;
  notify("You have been signed out.", {
    label: "Sign in again",
    act: () => location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`),
    lasting: true,
  });
}

// A sentence at the foot of the page, with something to do about it if there is.
export function notify(words, { label, act, lasting = false } = {}) {
  const toast = find("#toast");
  if (!toast) return;
  const line = document.createElement("div");
  line.append(words);
  if (label) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => {
      line.remove();
      act();
    });
    line.append(button);
  }
  toast.replaceChildren(line);
  if (!lasting) setTimeout(() => line.remove(), label ? 12000 : 4000);
}

// For those who listen to the page.
export function announce(words) {
  const place = find("#said");
  if (place) place.textContent = words;
}

export async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
    notify("Copied.");
  } catch {
    notify("The browser does not let pages copy here.");
  }
}

// A failure, in words for people.
export function explain(error) {
  if (error instanceof Refusal) return error.message;
  return "The server cannot be reached. Nothing was lost; try again in a moment.";
}
