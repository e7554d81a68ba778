// The transcript: of a long history only the parts near the view are in the page.
//
// Parts are numbered from 0 and hold a fixed number of events each. Two empty spaces stand for the
// parts above and below, as high as those are guessed to be, so that the scroll bar tells the truth
// about where one is; a jump into one of them loads the parts that belong there.

import { all, find, nodes, text } from "./dom.js";

const NEAR = 1200; // pixels beyond the view that are kept filled
const MOST = 32; // parts in the page
const TOGETHER = 4; // parts that are asked for at once

// What an agent did comes when somebody looks.
async function unfold(fold) {
  const { from } = fold.dataset;
  if (!from || !fold.open) return;
  delete fold.dataset.from;
  try {
    const made = nodes(await text(from, { headers: { "x-segue": "aside" } }));
    find("p", fold).replaceWith(made);
  } catch {
    fold.dataset.from = from; // the link is still there
  }
}

// Whoever was at something that changed is at what it became.
function focus(element) {
  if (element.tabIndex < 0) element.tabIndex = -1;
  element.focus({ preventScroll: true });
}

export class Transcript {
  constructor(session, scroller) {
    this.session = session;
    this.scroller = scroller;
    this.base = session.dataset.base;
    this.size = Number(session.dataset.partSize);
    this.lastSeq = Number(session.dataset.lastSeq);
    this.first = Number(session.dataset.first);
    this.upto = Number(session.dataset.upto);
    this.parts = find("#parts", session);
    this.above = find("#above", session);
    this.below = find("#below", session);
    this.writing = find("#writing", session);
    this.latest = find("#latest", session);
    this.top = find("#top", session);
    this.loading = false;
    this.heights = new Map();
    for (const link of all(".nav", session)) link.remove();
    this.stuck = false;
    this.onScroll = () => this.scrolled();
    const target = scroller === document.scrollingElement ? document : scroller;
    target.addEventListener("scroll", this.onScroll, { passive: true });
    // Pictures load, folds open, the composer grows: whoever was at the end stays there.
    const growing = new ResizeObserver(() => {
      this.keepClear();
      if (this.stuck) this.bottom();
    });
    growing.observe(session);
    growing.observe(this.top);
    if (scroller !== document.scrollingElement) growing.observe(scroller);
    this.stop = () => {
      target.removeEventListener("scroll", this.onScroll);
      growing.disconnect();
    };
    this.arrived = new Set(); // what came last, by the ids of the events
    session.addEventListener("segue:queued", ({ detail }) => this.queue(detail));
    session.addEventListener("toggle", (event) => unfold(event.target), true);
    this.latest.addEventListener("click", () => this.toEnd());
    this.measure();
    this.keepClear();
    const at = session.dataset.at ?? location.hash.match(/^#e(\d+)$/)?.[1];
    if (at) this.reveal(Number(at));
    else this.bottom();
    this.fill();
  }

  // What is scrolled to comes to stand below the head, however high that is.
  keepClear() {
    this.session.style.setProperty("--top", `${this.top.offsetHeight}px`);
  }

  get last() {
    return Math.max(0, Math.floor((this.lastSeq - 1) / this.size));
  }

  get atEnd() {
    return this.upto >= this.last;
  }

  get nearEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    return this.atEnd && scrollHeight - scrollTop - clientHeight < 120;
  }

  part(number) {
    return find(`.part[data-part="${number}"]`, this.parts);
  }

  measure() {
    for (const part of this.parts.children) {
      const height = part.getBoundingClientRect().height;
      if (height) this.heights.set(Number(part.dataset.part), height);
    }
    const known = [...this.heights.values()];
    const usual = known.length ? known.reduce((a, b) => a + b) / known.length : 2000;
    const sum = (from, to) => {
      let all = 0;
      for (let number = from; number < to; number += 1) all += this.heights.get(number) ?? usual;
      return all;
    };
    this.usual = usual;
    this.space(this.above, sum(0, this.first));
    this.space(this.below, sum(this.upto + 1, this.last + 1));
  }

  space(element, height) {
    // Browsers lay out no more than some tens of millions of pixels.
    const shown = Math.min(height, 8_000_000);
    element.hidden = shown === 0;
    element.style.height = `${shown}px`;
  }

  // Change the page without moving what is looked at.
  steadily(change) {
    const view = this.scroller === document.scrollingElement ? 0 : this.scroller.getBoundingClientRect().top;
    const anchor = all(".item", this.parts).find((item) => item.getBoundingClientRect().bottom > view + 60);
    const before = anchor?.getBoundingClientRect().top;
    change();
    this.measure();
    if (anchor?.isConnected) this.scroller.scrollTop += anchor.getBoundingClientRect().top - before;
  }

  scrolled() {
    this.stuck = this.nearEnd;
    this.fill();
    this.latest.hidden = this.atEnd && this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < 400;
  }

  async fill() {
    if (this.loading) return;
    this.loading = true;
    try {
      for (let rounds = 0; rounds < 40; rounds += 1) {
        const view = this.scroller === document.scrollingElement
          ? { top: 0, bottom: innerHeight }
          : this.scroller.getBoundingClientRect();
        const box = this.parts.getBoundingClientRect();
        if (box.bottom < view.top - NEAR || box.top > view.bottom + NEAR) await this.jumpTo(this.guess(view));
        else if (box.top > view.top - NEAR && this.first > 0) await this.load(-1);
        else if (box.bottom < view.bottom + NEAR && !this.atEnd) await this.load(1);
        else return;
      }
    } catch {
      // The connection's trouble is told elsewhere; the next scroll tries again.
    } finally {
      this.loading = false;
    }
  }

  // The part that stands where an empty space is looked at.
  guess(view) {
    const above = this.above.getBoundingClientRect();
    if (!this.above.hidden && above.bottom > view.top) {
      const share = (view.top - above.top) / above.height;
      return Math.max(0, Math.min(this.first - 1, Math.floor(share * this.first)));
    }
    const below = this.below.getBoundingClientRect();
    const share = (view.top - below.top) / Math.max(1, below.height);
    const count = this.last - this.upto;
    return Math.max(0, Math.min(this.last, this.upto + 1 + Math.floor(share * count)));
  }

  async fetch(first, upto) {
    return all(".part", nodes(await text(`${this.base}/part?number=${first}&upto=${upto}`)));
  }

  // The parts before those in the page, or behind them.
  async load(by) {
    const first = by < 0 ? Math.max(0, this.first - TOGETHER) : this.upto + 1;
    const upto = by < 0 ? this.first - 1 : Math.min(this.last, this.upto + TOGETHER);
    const made = await this.fetch(first, upto);
    this.steadily(() => {
      if (by < 0) {
        this.parts.prepend(...made);
        this.first = first;
        while (this.parts.children.length > MOST) {
          this.parts.lastElementChild.remove();
          this.upto -= 1;
        }
      } else {
        this.parts.append(...made);
        this.upto = upto;
        while (this.parts.children.length > MOST) {
          this.parts.firstElementChild.remove();
          this.first += 1;
        }
      }
    });
    this.session.dispatchEvent(new Event("segue:parts"));
  }

  // Show a part far from those in the page.
  async jumpTo(number, { keepScroll = true } = {}) {
    const made = await this.fetch(number, number);
    const top = this.scroller.scrollTop;
    this.parts.replaceChildren(...made);
    this.first = this.upto = number;
    this.measure();
    if (keepScroll) {
      // Where the space ends now need not be where it was looked at.
      const view = this.scroller === document.scrollingElement ? 0 : this.scroller.getBoundingClientRect().top;
      const box = this.parts.getBoundingClientRect();
      this.scroller.scrollTop = top;
      if (box.bottom < view || box.top > view + this.scroller.clientHeight) this.parts.scrollIntoView({ block: "start" });
    }
    this.session.dispatchEvent(new Event("segue:parts"));
  }

  // Bring one event into view, wherever it is.
  async reveal(seq) {
    const number = Math.min(this.last, Math.floor((Math.max(1, seq) - 1) / this.size));
    if (!this.part(number)) {
      this.loading = true;
      try {
        await this.jumpTo(number, { keepScroll: false });
      } finally {
        this.loading = false;
      }
    }
    const target = find(`#e${seq}`, this.parts) ?? all(".item", this.parts).find((item) => Number(item.dataset.seq) >= seq);
    if (!target) return;
    for (let outer = target; outer; outer = outer.parentElement.closest("details")) if (outer.tagName === "DETAILS") outer.open = true;
    target.closest("details")?.setAttribute("open", "");
    target.scrollIntoView({ block: "start" });
    const item = target.closest(".item");
    item.classList.remove("found");
    requestAnimationFrame(() => item.classList.add("found"));
    this.fill();
  }

  async toEnd() {
    if (!this.atEnd) await this.jumpTo(this.last, { keepScroll: false });
    this.bottom();
    await this.fill();
    this.bottom();
  }

  bottom() {
    this.stuck = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.latest.hidden = true;
  }

  // The prompt before or after what is looked at.
  async turn(by) {
    const view = (this.scroller === document.scrollingElement ? 0 : this.scroller.getBoundingClientRect().top) + this.top.offsetHeight + 18;
    for (let tries = 0; tries < 8; tries += 1) {
      const turns = all(".item:is(.user, .command, .shell)", this.parts);
      const tops = turns.map((each) => each.getBoundingClientRect().top);
      const next = by > 0 ? turns.find((_, at) => tops[at] > view + 8) : turns.findLast((_, at) => tops[at] < view - 8);
      if (next) return next.scrollIntoView({ block: "start" });
      if (by > 0 ? this.atEnd : this.first === 0) return undefined;
      await this.load(by);
    }
    return undefined;
  }

  // Live: something was added to the history, or completed something in it.
  add({ seq, message, html, of }) {
    const follows = this.nearEnd;
    const wasAtEnd = this.atEnd;
    if (this.arrived.size > 100) this.arrived.clear();
    this.arrived.add(message);
    this.lastSeq = Math.max(this.lastSeq, seq);
    find(`#writing [data-message="${CSS.escape(message)}"]`, this.session)?.remove();
    if (of) {
      const old = find(`#e${of}`, this.parts);
      if (old && html) {
        const made = nodes(html).firstElementChild;
        if (old.open) made.open = true;
        const focused = old.contains(document.activeElement);
        old.replaceWith(made);
        if (focused) focus(find("summary, button", made) ?? made);
      }
    } else if (wasAtEnd && !find(`#e${seq}`, this.parts)) {
      const number = this.last;
      let part = this.part(number);
      if (!part) {
        part = document.createElement("section");
        part.className = "part";
        part.dataset.part = number;
        this.parts.append(part);
        this.upto = number;
        if (follows && this.parts.children.length > MOST) {
          this.parts.firstElementChild.remove();
          this.first = Number(this.parts.firstElementChild.dataset.part);
          this.measure();
        }
      }
      if (html) part.append(nodes(html));
    }
    if (!wasAtEnd) this.measure();
    if (follows) this.bottom();
    else if (html && !of) this.latest.hidden = false;
  }

  // A message that was sent, and begins when the turn that is running is done.
  queue({ message, words }) {
    if (this.arrived.has(message)) return;
    const made = nodes('<div class="item user waiting"><header><h2 class="who">You</h2> <span class="badge">waits until this turn is done</span></header><div class="prose"></div></div>').firstElementChild;
    made.dataset.message = message;
    if (words) made.dataset.words = words;
    made.lastElementChild.textContent = words || "(pictures)";
    const follows = this.nearEnd;
    this.writing.append(made);
    if (follows) this.bottom();
  }

  // Live: a message that is still being written.
  write({ message, kind, html }) {
    const follows = this.nearEnd;
    let place = find(`[data-message="${CSS.escape(message)}"]`, this.writing);
    if (!place) {
      place = document.createElement("div");
      place.className = `item writing ${kind === "thought" ? "thought" : "agent"}`;
      place.dataset.message = message;
      const who = kind === "thought" ? "" : '<header><h2 class="who">Agent</h2></header>';
      place.append(nodes(`${who}<div class="prose"></div>`));
      this.writing.append(place);
    }
    place.lastElementChild.replaceChildren(nodes(html));
    if (follows) this.bottom();
  }
}
