// Pictures for the message that is being written: chosen, pasted or dropped. They stay with their
// session until they are sent, for as long as the page is open.

import { all, find, notify } from "./dom.js";

const KINDS = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MOST = 5 * 2 ** 20; // bytes of one; models take no more
const TOGETHER = 20 * 2 ** 20;

const kept = new Map();

const here = () => find("#main .session")?.dataset.id;
export const attached = () => kept.get(here()) ?? [];

export function forget(gone) {
  kept.set(here(), attached().filter((each) => !gone.includes(each)));
  show();
}

export function show() {
  const place = find("#pictures");
  if (!place) return;
  find("#attach").hidden = false;
  place.replaceChildren(...attached().map(thumbnail));
  place.hidden = !attached().length;
  find("#text").required = !attached().length;
}

function thumbnail(address, index) {
  const button = document.createElement("button");
  button.type = "button";
  button.title = "Remove this picture";
  const image = document.createElement("img");
  image.src = address;
  image.alt = `Picture ${index + 1}, to be sent`;
  const words = document.createElement("span");
  words.className = "hidden";
  words.textContent = ": remove";
  button.append(image, words);
  button.addEventListener("click", () => {
    forget([address]);
    find("#text").focus();
  });
  return button;
}

async function add(files) {
  for (const file of files) {
    if (!KINDS.includes(file.type)) notify(`${file.name} is no picture that can be sent.`);
    else if (file.size > MOST) notify(`${file.name} is larger than 5 MB.`);
    else if (attached().reduce((size, each) => size + each.length, 0) + file.size > TOGETHER) notify("That is more than can be sent at once.");
    else kept.set(here(), [...attached(), await read(file)]);
  }
  show();
}

function read(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}

// Files that are dragged over the page: the composer takes them, from anywhere beside it.
const dragged = (event) => event.dataTransfer?.types.includes("Files");
const wanted = (event) => event.target.closest?.("#main") && find("#text");

export function start() {
  document.addEventListener("click", (event) => {
    if (event.target.closest("#attach")) find("#files").click();
  });
  document.addEventListener("change", (event) => {
    if (event.target.id !== "files") return;
    add([...event.target.files]);
    event.target.value = "";
  });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (event.target.id !== "text" || !files.length) return;
    event.preventDefault();
    add(files);
  });
  for (const name of ["dragenter", "dragover"]) {
    document.addEventListener(name, (event) => {
      if (!dragged(event)) return;
      event.preventDefault(); // or the browser leaves for the file
      document.body.classList.toggle("dropping", Boolean(wanted(event)));
      event.dataTransfer.dropEffect = wanted(event) ? "copy" : "none";
    });
  }
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    if (!dragged(event)) return;
    event.preventDefault();
    document.body.classList.remove("dropping");
    if (wanted(event)) add([...event.dataTransfer.files]);
  });
}
