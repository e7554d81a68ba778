// Helpers of all modules: requests to the server, elements from its HTML, messages to the user.

export const find = (selector, within = document) => within.querySelector(selector);
export const all = (selector, within = document) => [...within.querySelectorAll(selector)];

const csrf = find('meta[name="csrf"]')?.content ?? "";

// Return the elements of HTML from the server, which has sanitized all text of models and tools.
export function nodes(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  document.dispatchEvent(new CustomEvent("segue:nodes", { detail: template.content }));
  return localizeTimes(template.content);
}

const timeFormat = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const dateTimeFormat = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" });

// The difference between the clocks of the server and the browser, in milliseconds.
const clockDifference = Number(find("#list")?.dataset.now ?? Date.now() * 1000) / 1000 - Date.now();
const UNIT_SECONDS = [[86_400 * 365, "y"], [86_400 * 30, "mo"], [86_400, "d"], [3600, "h"], [60, "m"]];

// Return how long ago a time was, in the server's format.
function ago(at) {
  const seconds = (Date.now() + clockDifference - at) / 1000;
  const [size, unit] = UNIT_SECONDS.find(([length]) => seconds >= length) ?? [];
  return size ? `${Math.floor(seconds / size)}${unit}` : "now";
}

// Show times, which the server sends in UTC, in the browser's time zone.
export function localizeTimes(within) {
  for (const time of all("time[datetime]", within)) {
    const at = new Date(time.dateTime);
    time.title = time.title.replace(/\d.* UTC$/, () => dateTimeFormat.format(at));
    if (time.closest(".at")) time.textContent = timeFormat.format(at);
    else if (time.textContent.endsWith("UTC")) time.textContent = dateTimeFormat.format(at);
    else if (/^(now|\d+(m|h|d|mo|y))$/.test(time.textContent)) time.textContent = ago(at);
  }
  return within;
}

// An error response of the server.
export class ResponseError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Return the server's response. Throws ResponseError if it is an error.
async function request(url, options = {}) {
  const response = await fetch(url, { ...options, headers: { "x-segue": "1", ...options.headers } });
  if (!response.ok) {
    const message = await response.text();
    if (response.status === 401) signedOut(message);
    throw new ResponseError(response.status, message);
  }
  return response;
}

export async function text(url, options) {
  return (await request(url, options)).text();
}

// Send a form's fields. Return the URL of the next page, and the id of the event that follows.
export async function post(url, fields) {
  const { headers } = await request(url, {
    method: "POST",
    body: new URLSearchParams(fields),
    headers: { "x-csrf": csrf },
  });
  return { next: headers.get("x-location"), event: headers.get("x-event") };
}

export const send = async (url, fields) => (await post(url, fields)).next;

const MAX_SILENCE_MS = 40_000; // until a server has said for how long it is silent at most

// Notices a connection that a network has lost without an error: calls `reconnect` once nothing
// has arrived for too long.
export function silenceTimer(reconnect) {
  let timer = null;
  let limit = MAX_SILENCE_MS;
  return {
    restart(milliseconds = limit) {
      limit = milliseconds;
      clearTimeout(timer);
      timer = setTimeout(reconnect, limit);
    },
    stop() {
      clearTimeout(timer);
    },
  };
}

let isSignedOut = false;

export function signedOut(reason) {
  if (isSignedOut) return;
  isSignedOut = true;
  const sentence = reason.replace(/[.]?$/, ".");
  offerSignIn(`You have been signed out: ${sentence[0].toLowerCase()}${sentence.slice(1)} Your draft is kept.`);
}

let warnedOfExpiry = false;

export function loginExpiresSoon({ minutes }) {
  if (warnedOfExpiry) return;
  warnedOfExpiry = true;
  offerSignIn(`Your login ends in ${minutes === 1 ? "a minute" : `${minutes} minutes`}. Your draft is kept.`);
}

function offerSignIn(message) {
  notify(message, {
    label: "Sign in again",
    action: () => location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`),
    permanent: true,
  });
}

// Return a message as nodes; text between backticks becomes code.
function formatBackticks(message) {
  return message.split("`").map((part, index) => {
    if (index % 2 === 0) return part;
    const code = document.createElement("code");
    code.textContent = part;
    return code;
  });
}

// Show a message at the bottom of the page, with a button that runs `action` if there is a label.
// It never covers the composer: a temporary message appears above it, a permanent one in a banner.
export function notify(message, { label, action, permanent = false } = {}) {
  const toast = find(permanent ? "#banner" : "#toast");
  if (!toast) return;
  const composer = find("#composer")?.getBoundingClientRect();
  if (!permanent) toast.style.bottom = composer?.height ? `${innerHeight - composer.top + 6}px` : "";
  const line = document.createElement("div");
  const text = document.createElement("span"); // one column; the button is another
  text.append(...formatBackticks(message));
  line.append(text);
  if (label) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => {
      line.remove();
      action();
    });
    line.append(button);
  }
  toast.replaceChildren(line);
  if (!permanent) setTimeout(() => line.remove(), label ? 12000 : 4000);
}

// Let a field show the options of its <datalist> that match. Few pages need the script.
export async function attachCombobox(field) {
  try {
    (await import("./combobox.js")).attach(field);
  } catch {
    // The browser's own list is used.
  }
}

// Announce a message to users of screen readers.
export function announce(message) {
  const region = find("#announcement");
  if (region) region.textContent = message;
}

export async function copy(text, message = "Copied.") {
  try {
    await navigator.clipboard.writeText(text);
    notify(message);
  } catch {
    notify("The browser does not allow this page to copy. Copy the text by hand.");
  }
}

// Return a message for people about an error.
export function explain(error) {
  if (error instanceof ResponseError) return error.message;
  return "The server cannot be reached. Your draft is kept; try again in a moment.";
}
