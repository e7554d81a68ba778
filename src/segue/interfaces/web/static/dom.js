// What all modules use: asking the server, making elements of its HTML, telling the user.

export const find = (selector, within = document) => within.querySelector(selector);
export const all = (selector, within = document) => [...within.querySelectorAll(selector)];

const csrf = find('meta[name="csrf"]')?.content ?? "";

// The server made this HTML, and cleaned whatever a model or a tool wrote in it.
export function nodes(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return local(template.content);
}

const hour = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const moment = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" });

// How long ago, as the server writes it, which made the page by its own clock.
const behind = Number(find("#list")?.dataset.now ?? Date.now() * 1000) / 1000 - Date.now();
const LONG = [[86_400 * 365, "y"], [86_400 * 30, "mo"], [86_400, "d"], [3600, "h"], [60, "m"]];

function ago(at) {
  const seconds = (Date.now() + behind - at) / 1000;
  const [size, unit] = LONG.find(([each]) => seconds >= each) ?? [];
  return size ? `${Math.floor(seconds / size)}${unit}` : "now";
}

// The server knows no time but UTC; who looks at the page has a clock of their own.
export function local(within) {
  for (const time of all("time[datetime]", within)) {
    const at = new Date(time.dateTime);
    time.title = time.title.replace(/\d.* UTC$/, () => moment.format(at));
    if (time.closest(".at")) time.textContent = hour.format(at);
    else if (time.textContent.endsWith("UTC")) time.textContent = moment.format(at);
    else if (/^(now|\d+(m|h|d|mo|y))$/.test(time.textContent)) time.textContent = ago(at);
  }
  return within;
}

export class Refusal extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

export async function ask(address, options = {}) {
  const answer = await fetch(address, { ...options, headers: { "x-segue": "1", ...options.headers } });
  if (!answer.ok) {
    const words = await answer.text();
    if (answer.status === 401) signedOut(words);
    throw new Refusal(answer.status, words);
  }
  return answer;
}

export async function text(address, options) {
  return (await ask(address, options)).text();
}

// Send a form's fields; the address of the page to show next, and the id of the event to come.
export async function post(address, fields) {
  const { headers } = await ask(address, {
    method: "POST",
    body: new URLSearchParams(fields),
    headers: { "x-csrf": csrf },
  });
  return { next: headers.get("x-location"), event: headers.get("x-event") };
}

export const send = async (address, fields) => (await post(address, fields)).next;

let leaving = false;

export function signedOut(why) {
  if (leaving) return;
  leaving = true;
  const words = why.replace(/[.]?$/, ".");
  signIn(`You have been signed out: ${words[0].toLowerCase()}${words.slice(1)} What you typed is kept.`);
}

let warned = false;

export function endsSoon({ minutes }) {
  if (warned) return;
  warned = true;
  signIn(`Your login ends in ${minutes === 1 ? "a minute" : `${minutes} minutes`}. What you type is kept.`);
}

function signIn(words) {
  notify(words, {
    label: "Sign in again",
    act: () => location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`),
    lasting: true,
  });
}

// A sentence, what stands between backticks in it as code.
function sentence(words) {
  return words.split("`").map((each, at) => {
    if (at % 2 === 0) return each;
    const code = document.createElement("code");
    code.textContent = each;
    return code;
  });
}

// A sentence at the foot of the page, with something to do about it if there is. It covers nothing
// that one types in: what passes stands above the composer, what lasts has a place of its own and
// is not pushed away by what passes.
export function notify(words, { label, act, lasting = false } = {}) {
  const toast = find(lasting ? "#lasting" : "#toast");
  if (!toast) return;
  const composer = find("#composer")?.getBoundingClientRect();
  if (!lasting) toast.style.bottom = composer?.height ? `${innerHeight - composer.top + 6}px` : "";
  const line = document.createElement("div");
  line.append(...sentence(words));
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

export async function copy(text, message = "Copied.") {
  try {
    await navigator.clipboard.writeText(text);
    notify(message);
  } catch {
    notify("The browser does not allow this page to copy. Copy the text by hand.");
  }
}

// A failure, in words for people.
export function explain(error) {
  if (error instanceof Refusal) return error.message;
  return "The server cannot be reached. Nothing was lost; try again in a moment.";
}
