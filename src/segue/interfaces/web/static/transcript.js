// The transcript of a session. The page contains only the chunks of the history near the view.
//
// Chunks are numbered from 0, and each spans the same number of seqs. Two empty elements stand for
// the chunks above and below. They have the estimated height of these chunks, so that the scroll bar
// shows the position in the whole history. Scrolling into one of them loads the chunks there.

import { all, explain, find, nodes, notify, text } from "./dom.js";
import * as steps from "./steps.js";

const PRELOAD_PIXELS = 1200; // above and below the view
const KEPT_PIXELS = 4000; // above and below the view; chunks farther away are removed
const CHUNKS_PER_REQUEST = 4;
const MAX_SPACE_PIXELS = 8_000_000; // browsers limit the height of a page
const DEFAULT_CHUNK_PIXELS = 2000;

// Load the events of an agent when its fold is opened.
async function unfold(fold) {
  const { from } = fold.dataset;
  if (!from || !fold.open) return;
  delete fold.dataset.from;
  try {
    const events = nodes(await text(from, { headers: { "x-segue": "aside" } }));
    find("p", fold).replaceWith(events);
  } catch {
    fold.dataset.from = from; // opening the fold again tries again
  }
}

// Focus an element that replaces the focused one.
function focus(element) {
  if (element.tabIndex < 0) element.tabIndex = -1;
  element.focus({ preventScroll: true });
}

export class Transcript {
  constructor(session, scroller) {
    this.session = session;
    this.scroller = scroller;
    this.base = session.dataset.base;
    this.chunkSize = Number(session.dataset.chunkSize);
    this.lastSeq = Number(session.dataset.lastSeq);
    this.first = Number(session.dataset.firstChunk);
    this.last = Number(session.dataset.lastChunk);
    this.chunks = find("#chunks", session);
    this.above = find("#above", session);
    this.below = find("#below", session);
    this.writing = find("#writing", session);
    this.latest = find("#latest", session);
    this.top = find("#top", session);
    this.loading = false;
    this.heights = new Map();
    for (const link of all(".nav", session)) link.remove();
    this.followsEnd = false;
    this.onScroll = () => this.handleScroll();
    const target = scroller === document.scrollingElement ? document : scroller;
    target.addEventListener("scroll", this.onScroll, { passive: true });
    // Stay at the end when pictures load, folds open or the composer grows.
    const resizeObserver = new ResizeObserver(() => {
      this.updateHeadHeight();
      if (this.followsEnd) this.scrollToBottom();
    });
    resizeObserver.observe(session);
    resizeObserver.observe(this.top);
    if (scroller !== document.scrollingElement) resizeObserver.observe(scroller);
    this.stop = () => {
      target.removeEventListener("scroll", this.onScroll);
      resizeObserver.disconnect();
    };
    this.receivedIds = new Set(); // of the latest events
    session.addEventListener("segue:queued", ({ detail }) => this.queue(detail));
    session.addEventListener("toggle", (event) => {
      unfold(event.target);
      if (event.target.matches(".fold")) steps.update(this.chunks);
    }, true);
    this.turnLine = find("#turn-line", session);
    this.turnLine?.addEventListener("click", (event) => {
      event.preventDefault();
      this.reveal(this.currentPrompt);
    });
    for (const control of all("#bar [data-view]", session)) {
      control.addEventListener("click", (event) => {
        event.preventDefault();
        this.setView(control.dataset.view);
      });
    }
    steps.update(this.chunks);
    this.latest.addEventListener("click", () => this.toEnd());
    this.measure();
    this.updateHeadHeight();
    const at = session.dataset.at ?? location.hash.match(/^#e(\d+)$/)?.[1];
    if (at) this.reveal(Number(at));
    else this.scrollToBottom();
    this.fill();
  }

  // Targets of scrolling appear below the head, which has a variable height.
  updateHeadHeight() {
    this.session.style.setProperty("--top", `${this.top.offsetHeight}px`);
  }

  // The number of the session's last chunk.
  get end() {
    return Math.max(0, Math.floor((this.lastSeq - 1) / this.chunkSize));
  }

  get atEnd() {
    return this.last >= this.end;
  }

  get nearEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    return this.atEnd && scrollHeight - scrollTop - clientHeight < 120;
  }

  chunk(number) {
    return find(`.chunk[data-chunk="${number}"]`, this.chunks);
  }

  // Measure the chunks in the page, and estimate the heights of the empty spaces.
  measure() {
    for (const chunk of this.chunks.children) {
      const height = chunk.getBoundingClientRect().height;
      if (height) this.heights.set(Number(chunk.dataset.chunk), height);
    }
    const heights = [...this.heights.values()];
    const average = heights.length ? heights.reduce((a, b) => a + b) / heights.length : DEFAULT_CHUNK_PIXELS;
    const totalHeight = (from, to) => {
      let total = 0;
      for (let number = from; number < to; number += 1) total += this.heights.get(number) ?? average;
      return total;
    };
    this.setSpace(this.above, totalHeight(0, this.first));
    this.setSpace(this.below, totalHeight(this.last + 1, this.end + 1));
  }

  setSpace(element, estimatedHeight) {
    const height = Math.min(estimatedHeight, MAX_SPACE_PIXELS);
    element.hidden = height === 0;
    element.style.height = `${height}px`;
  }

  // Change the page without moving the visible items.
  changeInPlace(change) {
    const view = this.scroller === document.scrollingElement ? 0 : this.scroller.getBoundingClientRect().top;
    const anchor = all(".item, .fold", this.chunks).find((item) => item.getBoundingClientRect().bottom > view + 60);
    const before = anchor?.getBoundingClientRect().top;
    change();
    steps.update(this.chunks);
    this.measure();
    if (anchor?.isConnected) this.scroller.scrollTop += anchor.getBoundingClientRect().top - before;
  }

  handleScroll() {
    this.followsEnd = this.nearEnd;
    this.fill();
    this.updateTurnLine();
    this.latest.hidden = this.atEnd && this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < 400;
  }

  // Return the chunks at the top (`side` -1) or at the bottom (1) that are far from the view. Their
  // number does not matter: folded tool calls take no space, so many chunks may be near the view.
  farChunks(side) {
    const view = this.scroller === document.scrollingElement ? { top: 0, bottom: innerHeight } : this.scroller.getBoundingClientRect();
    const isNear = (chunk) => {
      const { top, bottom } = chunk.getBoundingClientRect();
      return side < 0 ? bottom >= view.top - KEPT_PIXELS : top <= view.bottom + KEPT_PIXELS;
    };
    const chunks = [...this.chunks.children];
    if (side > 0) chunks.reverse();
    const firstKept = chunks.findIndex(isNear);
    return firstKept < 0 ? chunks : chunks.slice(0, firstKept);
  }

  // Show the prompt of the turn in view at the top, once it has been scrolled away.
  updateTurnLine() {
    if (!this.turnLine) return;
    const view = this.viewTop;
    const prompts = all(".chunk > .item:is(.user, .command, .shell)", this.chunks);
    const prompt = prompts.findLast((item) => item.getBoundingClientRect().top < view + 8);
    const seq = prompt ? Number(prompt.dataset.seq) : null;
    const isAway = prompt && prompt.getBoundingClientRect().bottom < view;
    this.turnLine.hidden = !isAway;
    if (seq === this.currentPrompt) return;
    this.currentPrompt = seq;
    if (prompt) {
      this.turnLine.textContent = (find(".prose, .peek", prompt)?.textContent ?? "").trim().slice(0, 200);
      this.turnLine.href = `${this.base}?at=${seq}#e${seq}`;
    }
    this.session.dispatchEvent(new CustomEvent("segue:prompt", { bubbles: true, detail: seq }));
  }

  // The top of the visible part of the transcript, below the head.
  get viewTop() {
    return (this.scroller === document.scrollingElement ? 0 : this.scroller.getBoundingClientRect().top) + this.top.offsetHeight;
  }

  // Show all items, only prompts, answers and edits, or only what failed.
  async setView(view) {
    const errors = find("#errors", this.session);
    if (view === "errors") {
      try {
        errors.replaceChildren(nodes(await text(`${this.base}/errors`, { headers: { "x-segue": "pane" } })));
      } catch (error) {
        return notify(explain(error));
      }
    }
    this.session.dataset.view = view;
    errors.hidden = view !== "errors";
    for (const control of all("#bar [data-view]", this.session)) control.setAttribute("aria-pressed", String(control.dataset.view === view));
    if (view === "errors") return undefined;
    this.heights.clear();
    this.measure();
    if (this.followsEnd) this.scrollToBottom();
    return this.fill();
  }

  // Load chunks until the view and its surroundings are filled.
  async fill() {
    if (this.loading) return;
    this.loading = true;
    try {
      for (let rounds = 0; rounds < 40; rounds += 1) {
        const view = this.scroller === document.scrollingElement
          ? { top: 0, bottom: innerHeight }
          : this.scroller.getBoundingClientRect();
        const box = this.chunks.getBoundingClientRect();
        if (box.bottom < view.top - PRELOAD_PIXELS || box.top > view.bottom + PRELOAD_PIXELS) await this.jumpTo(this.estimateChunk(view));
        else if (box.top > view.top - PRELOAD_PIXELS && this.first > 0) await this.load(-1);
        else if (box.bottom < view.bottom + PRELOAD_PIXELS && !this.atEnd) await this.load(1);
        else return;
      }
    } catch {
      // The page shows that the connection is lost; the next scroll tries again.
    } finally {
      this.loading = false;
    }
  }

  // Return the number of the chunk at the visible position of an empty space.
  estimateChunk(view) {
    const above = this.above.getBoundingClientRect();
    if (!this.above.hidden && above.bottom > view.top) {
      const share = (view.top - above.top) / above.height;
      return Math.max(0, Math.min(this.first - 1, Math.floor(share * this.first)));
    }
    const below = this.below.getBoundingClientRect();
    const share = (view.top - below.top) / Math.max(1, below.height);
    const count = this.end - this.last;
    return Math.max(0, Math.min(this.end, this.last + 1 + Math.floor(share * count)));
  }

  async fetchChunks(first, last) {
    return all(".chunk", nodes(await text(`${this.base}/chunks?first=${first}&last=${last}`)));
  }

  // Load the chunks before those in the page (`direction` -1) or after them (1).
  async load(direction) {
    const first = direction < 0 ? Math.max(0, this.first - CHUNKS_PER_REQUEST) : this.last + 1;
    const last = direction < 0 ? this.first - 1 : Math.min(this.end, this.last + CHUNKS_PER_REQUEST);
    const chunks = await this.fetchChunks(first, last);
    const farChunks = this.farChunks(-direction);
    this.changeInPlace(() => {
      if (direction < 0) this.chunks.prepend(...chunks);
      else this.chunks.append(...chunks);
      for (const chunk of farChunks) chunk.remove();
      this.first = direction < 0 ? first : this.first + farChunks.length;
      this.last = direction < 0 ? this.last - farChunks.length : last;
    });
    this.session.dispatchEvent(new Event("segue:chunks"));
  }

  // Replace the chunks in the page by another one.
  async jumpTo(number, { keepScroll = true } = {}) {
    const chunks = await this.fetchChunks(number, number);
    const top = this.scroller.scrollTop;
    this.chunks.replaceChildren(...chunks);
    this.first = this.last = number;
    steps.update(this.chunks);
    this.measure();
    if (keepScroll) {
      // The estimated height of the space above may have changed.
      const view = this.scroller === document.scrollingElement ? 0 : this.scroller.getBoundingClientRect().top;
      const box = this.chunks.getBoundingClientRect();
      this.scroller.scrollTop = top;
      if (box.bottom < view || box.top > view + this.scroller.clientHeight) this.chunks.scrollIntoView({ block: "start" });
    }
    this.session.dispatchEvent(new Event("segue:chunks"));
  }

  // Scroll to an event; load its chunk first if necessary.
  async reveal(seq) {
    const number = Math.min(this.end, Math.floor((Math.max(1, seq) - 1) / this.chunkSize));
    if (!this.chunk(number)) {
      this.loading = true;
      try {
        await this.jumpTo(number, { keepScroll: false });
      } finally {
        this.loading = false;
      }
    }
    const target = find(`#e${seq}`, this.chunks) ?? all(".item", this.chunks).find((item) => Number(item.dataset.seq) >= seq);
    if (!target) return;
    if (this.session.dataset.view === "focused" && getComputedStyle(target.closest(".item")).display === "none") await this.setView("all");
    steps.reveal(target.closest(".item"), this.chunks);
    for (let outer = target; outer; outer = outer.parentElement.closest("details")) if (outer.tagName === "DETAILS") outer.open = true;
    target.closest("details")?.setAttribute("open", "");
    const item = target.closest(".item");
    item.scrollIntoView({ block: "start" });
    this.current = item;
    this.currentSeq = Number(item.dataset.seq);
    item.classList.remove("found");
    requestAnimationFrame(() => item.classList.add("found"));
    this.fill();
  }

  async toEnd() {
    if (!this.atEnd) await this.jumpTo(this.end, { keepScroll: false });
    this.scrollToBottom();
    await this.fill();
    this.scrollToBottom();
  }

  scrollToBottom() {
    this.followsEnd = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.latest.hidden = true;
  }

  // Go to the previous (`direction` -1) or next (1) prompt, tool, error or message.
  async step(kind, direction) {
    const from = this.positionFor(direction);
    const params = new URLSearchParams(direction > 0 ? { kind, after: from } : { kind, before: Math.max(1, from) });
    try {
      const { seq } = JSON.parse(await text(`${this.base}/next?${params}`));
      if (seq === null) return notify(direction > 0 ? `No later ${kind}.` : `No earlier ${kind}.`);
      await this.reveal(seq);
      this.currentSeq = seq; // an error is at the end of its tool call
      const focused = find("summary", this.current) ?? this.current;
      if (focused === this.current) this.current.tabIndex = -1;
      return focused.focus({ preventScroll: true });
    } catch (error) {
      return notify(explain(error));
    }
  }

  // The seq from which a step starts: the item that was gone to last, if it is in view, or the
  // first item in view.
  positionFor(direction) {
    const top = this.viewTop;
    if (this.current?.isConnected) {
      const box = this.current.getBoundingClientRect();
      if (box.bottom > top && box.top < innerHeight) return this.currentSeq;
    }
    const items = all(".item", this.chunks).filter((item) => item.getBoundingClientRect().height);
    const first = items.find((item) => item.getBoundingClientRect().bottom > top + 8) ?? items.at(-1);
    if (!first) return 0;
    return Number(first.dataset.seq) - (direction > 0 && first.getBoundingClientRect().top >= top ? 1 : 0);
  }

  // Live update: add an event, or replace the item of the event (`of`) that it completes.
  add({ seq, message, html, of }) {
    const follows = this.nearEnd;
    const wasAtEnd = this.atEnd;
    if (this.receivedIds.size > 100) this.receivedIds.clear();
    this.receivedIds.add(message);
    this.lastSeq = Math.max(this.lastSeq, seq);
    find(`#writing [data-message="${CSS.escape(message)}"]`, this.session)?.remove();
    if (of) {
      const oldItem = find(`#e${of}`, this.chunks);
      if (oldItem && html) {
        const item = nodes(html).firstElementChild;
        if (oldItem.open) item.open = true;
        const hadFocus = oldItem.contains(document.activeElement);
        oldItem.replaceWith(item);
        steps.settle(item);
        if (hadFocus) focus(find("summary, button", item) ?? item);
      }
    } else if (wasAtEnd && !find(`#e${seq}`, this.chunks)) {
      const number = this.end;
      let chunk = this.chunk(number);
      if (!chunk) {
        chunk = document.createElement("section");
        chunk.className = "chunk";
        chunk.dataset.chunk = number;
        const farChunks = follows ? this.farChunks(-1) : [];
        this.chunks.append(chunk);
        this.last = number;
        if (farChunks.length) {
          for (const farChunk of farChunks) farChunk.remove();
          this.first = Number(this.chunks.firstElementChild.dataset.chunk);
          this.measure();
        }
      }
      if (html) for (const element of [...nodes(html).children]) if (!element.id || !find(`#${element.id}`, this.chunks)) steps.append(chunk, element);
    }
    steps.update(this.chunks);
    if (!wasAtEnd) this.measure();
    if (follows) this.scrollToBottom();
    else if (html && !of) this.latest.hidden = false;
  }

  // Show a message that waits for the end of the current turn.
  queue({ message, text: messageText }) {
    if (this.receivedIds.has(message)) return;
    const item = nodes('<div class="item user waiting"><header><h2 class="who">You</h2> <span class="badge">queued until this turn ends</span></header><div class="prose"></div></div>').firstElementChild;
    item.dataset.message = message;
    if (messageText) item.dataset.text = messageText;
    item.lastElementChild.textContent = messageText || "(pictures)";
    const follows = this.nearEnd;
    this.writing.append(item);
    if (follows) this.scrollToBottom();
  }

  // Live update: show an unfinished message.
  write({ message, kind, html }) {
    const follows = this.nearEnd;
    let item = find(`[data-message="${CSS.escape(message)}"]`, this.writing);
    if (!item) {
      item = document.createElement("div");
      item.className = `item writing ${kind === "thought" ? "thought" : "agent"}`;
      item.dataset.message = message;
      const header = kind === "thought" ? "" : '<header><h2 class="who">Agent</h2></header>';
      item.append(nodes(`${header}<div class="prose"></div>`));
      this.writing.append(item);
    }
    item.lastElementChild.replaceChildren(nodes(html));
    if (follows) this.scrollToBottom();
  }
}
