// Sessions that wait for an answer: a number in the title, a dot on the icon, and notifications if
// the user has turned them on.

import { all, find } from "./dom.js";

const waiting = new Set((find('meta[name="waiting"]')?.content ?? "").split(" ").filter(Boolean));
let title = document.title;

const icon = find('link[rel="icon"]');
const plainIcon = icon?.href;
const WAITING_ICON = plainIcon?.replace("icon.svg", "icon-waiting.svg");

export function setTitle(newTitle) {
  title = newTitle;
  show();
}

function show() {
  document.title = waiting.size ? `(${waiting.size}) ${title}` : title;
  const href = waiting.size ? WAITING_ICON : plainIcon;
  if (icon && icon.href !== href) icon.href = href;
  for (const count of all("[data-waiting]")) {
    count.hidden = !waiting.size;
    count.textContent = waiting.size;
  }
}

// A session has changed.
export function update({ session, title: name, waiting: isWaiting }) {
  const wasWaiting = waiting.has(session);
  if (isWaiting) waiting.add(session);
  else waiting.delete(session);
  if (Boolean(isWaiting) === wasWaiting) return;
  show();
  document.dispatchEvent(new CustomEvent("segue:waiting"));
  if (isWaiting) announceWaiting(session, name);
}

const isOn = () => "Notification" in window && Notification.permission === "granted" && localStorage.getItem("notify") === "on";

function announceWaiting(session, name) {
  if (!isOn() || (document.hasFocus() && location.pathname === `/s/${session}`)) return;
  const notification = new Notification("An agent waits for you", { body: name, tag: session });
  notification.onclick = () => {
    window.focus();
    location.assign(`/s/${session}`);
  };
}

async function toggleNotifications(button) {
  if (isOn()) localStorage.removeItem("notify");
  else if ((await Notification.requestPermission()) === "granted") localStorage.setItem("notify", "on");
  showButton(button);
}

function showButton(button) {
  button.hidden = !("Notification" in window);
  button.setAttribute("aria-pressed", String(isOn()));
}

export function start() {
  show();
  const button = find("#notify");
  if (!button) return;
  showButton(button);
  button.addEventListener("click", () => toggleNotifications(button));
}
