// A text field with a list below it, which shows the options of its <datalist> that match while the
// user types. Without this script the browser's own list is used.

import { all } from "./dom.js";

const MAX_OPTIONS = 12;
const isPath = (text) => /^[/~]|^[a-z]:[\\/]/i.test(text);

// Turn a field with a datalist into a combobox. `data-empty` names its empty value. With
// `data-unknown`, text that is neither an option nor a path is not valid, for that reason.
export function attach(field) {
  const source = field?.list;
  if (!source) return;
  const options = all("option", source).map((option) => ({ value: option.value, path: option.textContent }));
  field.removeAttribute("list");
  const list = document.createElement("ul");
  list.id = `${field.id}-options`;
  list.className = "options";
  list.hidden = true;
  list.role = "listbox";
  list.ariaLabel = field.labels[0].textContent;
  field.after(list);
  field.role = "combobox";
  field.ariaAutoComplete = "list";
  field.ariaExpanded = "false";
  field.setAttribute("aria-controls", list.id);

  // Return the options that contain a text: first those whose name begins with it.
  function matching(text) {
    const wanted = text.trim().toLowerCase();
    const rank = ({ value, path }) => {
      const position = value.toLowerCase().indexOf(wanted);
      if (position >= 0) return position ? 1 : 0;
      return path.toLowerCase().includes(wanted) ? 2 : 3;
    };
    return options.map((option) => [rank(option), option]).filter(([order]) => order < 3).sort(([a], [b]) => a - b).map(([, option]) => option);
  }

  const isKnown = (text) => !text || isPath(text) || options.some(({ value }) => value.toLowerCase() === text.toLowerCase());
  const validate = () => field.setCustomValidity(isKnown(field.value.trim()) ? "" : field.dataset.unknown ?? "");

  function element({ value, path }, index) {
    const item = document.createElement("li");
    item.id = `${list.id}-${index}`;
    item.role = "option";
    item.ariaSelected = "false";
    item.dataset.value = value;
    const name = document.createElement("span");
    name.textContent = value || field.dataset.empty;
    item.append(name);
    if (path) {
      const note = document.createElement("span");
      note.className = "quiet small";
      note.textContent = path;
      item.append(note);
    }
    return item;
  }

  function show(text) {
    const shown = matching(text).slice(0, MAX_OPTIONS);
    if (!text) shown.unshift({ value: "", path: "" });
    list.replaceChildren(...shown.map(element));
    if (!shown.length) {
      const note = document.createElement("li");
      note.className = "quiet small";
      note.role = "option";
      note.ariaDisabled = "true";
      note.textContent = isPath(text) ? "This directory will be used." : field.dataset.unknown ?? "No recent project has this name.";
      list.append(note);
    }
    list.hidden = false;
    field.ariaExpanded = "true";
    mark(text && shown.length ? 0 : -1);
  }

  function hide() {
    list.hidden = true;
    field.ariaExpanded = "false";
    field.removeAttribute("aria-activedescendant");
  }

  const items = () => all("[data-value]", list);
  const marked = () => items().findIndex((item) => item.ariaSelected === "true");

  function mark(index) {
    for (const [position, item] of items().entries()) item.ariaSelected = String(position === index);
    const item = items()[index];
    if (item) field.setAttribute("aria-activedescendant", item.id);
    else field.removeAttribute("aria-activedescendant");
    item?.scrollIntoView({ block: "nearest" });
  }

  function choose(item) {
    field.value = item.dataset.value;
    validate();
    hide();
  }

  field.addEventListener("input", () => {
    validate();
    show(field.value.trim());
  });
  field.addEventListener("click", () => (list.hidden ? show("") : hide()));
  field.addEventListener("blur", () => {
    const matches = matching(field.value);
    if (!isKnown(field.value.trim()) && matches.length === 1) field.value = matches[0].value;
    validate();
    hide();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) show("");
      const count = items().length;
      if (count) mark((marked() + (event.key === "ArrowDown" ? 1 : -1) + count + (marked() < 0 && event.key === "ArrowUp" ? 1 : 0)) % count);
    } else if (event.key === "Enter" && !list.hidden && marked() >= 0) {
      event.preventDefault();
      choose(items()[marked()]);
    } else if (event.key === "Escape" && !list.hidden) {
      event.stopPropagation();
      hide();
    }
  });
  list.addEventListener("pointerdown", (event) => {
    event.preventDefault(); // the field keeps the focus
  });
  list.addEventListener("click", (event) => {
    const item = event.target.closest("[data-value]");
    if (item) choose(item);
  });
  validate();
  // The user may have typed before this script was loaded.
  if (field === document.activeElement && field.value.trim()) show(field.value.trim());
}
