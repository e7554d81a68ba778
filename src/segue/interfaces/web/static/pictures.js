// Pictures for the next message: chosen, pasted or dropped. They are kept for their session until
// they are sent or the page is closed.

import { all, find, notify } from "./dom.js";

const MEDIA_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_PICTURE_BYTES = 5 * 2 ** 20; // models accept no more
const MAX_TOTAL_BYTES = 20 * 2 ** 20;

const picturesBySession = new Map(); // data URLs

const openSessionId = () => find("#main .session")?.dataset.id;
export const attached = () => picturesBySession.get(openSessionId()) ?? [];

export function remove(dataUrls) {
  picturesBySession.set(openSessionId(), attached().filter((dataUrl) => !dataUrls.includes(dataUrl)));
  show();
}

export function show() {
  const container = find("#pictures");
  if (!container) return;
  find("#attach").hidden = false;
  container.replaceChildren(...attached().map(thumbnail));
  container.hidden = !attached().length;
  find("#text").required = !attached().length;
}

function thumbnail(dataUrl, index) {
  const button = document.createElement("button");
  button.type = "button";
  button.title = "Remove this picture";
  const image = document.createElement("img");
  image.src = dataUrl;
  image.alt = `Picture ${index + 1}, to be sent`;
  const hint = document.createElement("span");
  hint.className = "hidden";
  hint.textContent = ": remove";
  button.append(image, hint);
  button.addEventListener("click", () => {
    remove([dataUrl]);
    find("#text").focus();
  });
  return button;
}

async function add(files) {
  for (const file of files) {
    if (!MEDIA_TYPES.includes(file.type)) notify(`${file.name} cannot be sent. Attach a PNG, JPEG, GIF or WebP picture.`);
    else if (file.size > MAX_PICTURE_BYTES) notify(`${file.name} is larger than 5 MB.`);
    else if (attached().reduce((total, dataUrl) => total + dataUrl.length, 0) + file.size > MAX_TOTAL_BYTES) notify("One message can have at most 20 MB of pictures.");
    else picturesBySession.set(openSessionId(), [...attached(), await read(file)]);
  }
  show();
}

function read(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

// Files may be dropped anywhere in the main part, if it has a composer.
const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
const canDrop = (event) => event.target.closest?.("#main") && find("#text");

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
      if (!hasFiles(event)) return;
      event.preventDefault(); // the browser would open the file
      document.body.classList.toggle("dropping", Boolean(canDrop(event)));
      event.dataTransfer.dropEffect = canDrop(event) ? "copy" : "none";
    });
  }
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    document.body.classList.remove("dropping");
    if (canDrop(event)) add([...event.dataTransfer.files]);
  });
}
