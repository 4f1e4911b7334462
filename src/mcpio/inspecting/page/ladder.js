// The ladder: a list of entries of which only the visible rows exist, and the whole of the chosen one.

import { bytes, el, pretty, put, seconds, short } from "./dom.js";

const ROW = 24;
const MOST = 50_000;
const EXTRA = 4;
const LETTER = 6; // pixels that a letter of a row takes at least
const ARROWS = { client: "→", server: "←" };
const SIDES = { client: "from the client", server: "from the server" };

const FILTERS = {
  all: () => true,
  calls: (entry) => ["request", "result", "error"].includes(entry.kind),
  notifications: (entry) => entry.kind === "notification",
  faults: (entry) => entry.failed || ["malformed", "long", "note"].includes(entry.kind),
  logs: (entry) => entry.method === "notifications/message",
  stderr: (entry) => entry.kind === "stderr",
};

export class Ladder {
  // `source` has text(n), which gives {text}, and find(words), which gives numbers.
  constructor(source, { onchoose = () => [] } = {}) {
    this.source = source;
    this.entries = [];
    this.shown = [];
    this.gone = 0;
    this.chosen = null;
    this.onchoose = onchoose;
    this.found = null;
    this.filter = "all";
    this.follows = true;
    this.height = 0;
    this.room = this.offset = 0;
    this.made = [];
    const choose = ({ target }) => this.made.filter((row) => row.node.contains(target)).forEach((row) => this.choose(row.entry.n));
    this.rows = el("div", { class: "rows", role: "presentation", onclick: choose });
    this.space = el("div", { role: "presentation" }, this.rows);
    this.list = el("div", {
      class: "list", tabindex: "0", role: "listbox", "aria-label": "Messages, oldest first",
      onscroll: () => this.#scrolled(), onkeydown: (event) => this.#key(event),
    }, this.space);
    this.words = el("input", {
      type: "search", placeholder: "search in all messages", "aria-label": "Search in all messages",
      oninput: () => this.#search(),
    });
    this.kinds = el("select", { "aria-label": "Which messages", onchange: () => this.show(this.kinds.value) },
      Object.keys(FILTERS).map((name) => el("option", { value: name }, name)));
    this.count = el("span", { class: "quiet" });
    this.detail = el("section", { class: "detail", "aria-label": "The chosen message", hidden: true });
    this.node = el("div", { class: "ladder" },
      el("div", { class: "bar" }, this.kinds, this.words, this.count), this.list, this.detail);
    new ResizeObserver(() => {
      this.height = this.list.clientHeight;
      this.letters = Math.ceil(this.list.clientWidth / LETTER);
      for (const row of this.made.splice(0)) row.node.remove();
      this.room = null;
      this.#draw();
    }).observe(this.list);
  }

  add(entries, dropped = 0) {
    if (entries.length) {
      for (const entry of entries) {
        this.entries.push(entry);
        if (this.#passes(entry)) this.shown.push(entry);
      }
      if (this.entries.length > MOST * 1.1) {
        this.entries.splice(0, this.entries.length - MOST);
        this.shown = this.entries.filter((entry) => this.#passes(entry));
      }
    }
    this.gone = dropped;
    this.#later();
  }

  show(filter) {
    this.filter = this.kinds.value = filter;
    this.#sift();
  }

  choose(number) {
    this.chosen = number;
    this.#reveal(number);
    this.#draw();
    this.#open(number);
  }

  #reveal(number) {
    const at = this.shown.findIndex((entry) => entry.n === number);
    if (at < 0) return;
    const top = at * ROW + this.offset;
    if (top >= this.list.scrollTop && top + ROW <= this.list.scrollTop + this.list.clientHeight) return;
    this.follows = false;
    this.#draw();
    this.list.scrollTop = Math.max(0, at * ROW - this.list.clientHeight / 2);
  }

  async #open(number) {
    const { text, entry } = await this.source.text(number).catch((error) => ({ text: error.message, entry: {} }));
    if (this.chosen !== number) return;
    const facts = [
      ["time", seconds(entry.at ?? 0)], ["bytes", entry.bytes && bytes(entry.bytes)], ["phase", entry.phase],
      ["revision", entry.revision], ["stream", entry.via], ["id", entry.id],
      ["waits until", entry.due !== undefined && seconds(entry.due)],
      ["took", entry.took !== undefined && seconds(entry.took)],
    ].filter(([, value]) => value !== undefined && value !== false);
    const other = entry.of ?? this.entries.find((each) => each.of === number && each.kind !== "notification")?.n;
    put(this.detail,
      el("div", { class: "bar" },
        el("h2", {}, `${number} ${ARROWS[entry.from] ?? ""} ${entry.method ?? entry.kind ?? ""}`),
        other && el("button", { type: "button", onclick: () => this.choose(other) }, entry.of ? "its request" : "its answer"),
        ...this.onchoose(entry, text),
        el("button", { type: "button", "aria-label": "Close the message", onclick: () => this.#close() }, "×")),
      el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, `${value}`)))),
      entry.cut && el("p", { class: "quiet" }, "Only the begin of this message is kept."),
      pretty(text));
    this.detail.hidden = false;
    this.#reveal(number); // the list has less room now
    this.#draw();
  }

  #close() {
    this.chosen = null;
    this.detail.hidden = true;
    this.#draw();
    this.list.focus();
  }

  #passes(entry) {
    return FILTERS[this.filter](entry) && (!this.found || this.found.has(entry.n));
  }

  #sift() {
    this.shown = this.entries.filter((entry) => this.#passes(entry));
    this.#later();
  }

  #search() {
    clearTimeout(this.searching);
    this.searching = setTimeout(async () => {
      const words = this.words.value;
      this.found = words ? new Set(await this.source.find(words)) : null;
      this.#sift();
    }, 150);
  }

  #scrolled() {
    const { list, offset } = this;
    const follows = list.scrollTop + list.clientHeight >= list.scrollHeight - ROW;
    if (follows && this.follows) return;
    this.follows = follows;
    if (!follows && offset) list.scrollTop -= offset;
    this.#draw();
  }

  #key(event) {
    const at = this.shown.findIndex((entry) => entry.n === this.chosen);
    const steps = { ArrowDown: at + 1, ArrowUp: at < 0 ? this.shown.length - 1 : at - 1, Home: 0, End: this.shown.length - 1 };
    if (event.key === "Escape") return this.#close();
    const next = steps[event.key];
    if (next === undefined) return;
    event.preventDefault();
    if (this.shown[next]) this.choose(this.shown[next].n);
  }

  // One drawing for all that comes within a frame; a page that is not shown draws nothing.
  #later() {
    this.drawing ??= requestAnimationFrame(() => {
      this.drawing = null;
      this.#draw();
    });
  }

  #draw() {
    const { shown, list, rows, made, follows, height } = this;
    const end = shown.length * ROW;
    const first = Math.max(0, Math.floor((follows ? end - height : list.scrollTop) / ROW) - EXTRA);
    const visible = shown.slice(first, first + Math.ceil(height / ROW) + 2 * EXTRA);
    // While the end is followed, the list grows in steps of some percent, with the lines at its end: scrolling for each
    // line would take a layout and a frame more.
    const step = follows && end > height ? ROW * 2 ** Math.floor(Math.log2(shown.length / 8)) : ROW;
    const room = Math.ceil(end / step) * step;
    this.offset = room - end;
    // Rows that left at the top are written anew at the bottom.
    const passed = Math.max(0, made.findIndex((row) => row.entry.n >= visible[0]?.n));
    rows.append(...made.slice(0, passed).map((row) => row.node));
    made.push(...made.splice(0, passed));
    for (const [at, entry] of visible.entries()) {
      if (!made[at]) rows.append((made[at] = new Row()).node);
      made[at].show(entry, this.letters);
      made[at].mark(entry.n === this.chosen);
    }
    for (const row of made.splice(visible.length)) row.node.remove();
    rows.style.transform = `translateY(${first * ROW + this.offset}px)`;
    if (visible.some((entry) => entry.n === this.chosen)) list.setAttribute("aria-activedescendant", `entry-${this.chosen}`);
    else list.removeAttribute("aria-activedescendant");
    const left = this.gone + this.entries.length - shown.length;
    const lines = shown.length === 1 ? "1 line" : `${shown.length.toLocaleString("en")} lines`; // some are not messages
    const count = `${lines}${left ? `, ${left.toLocaleString("en")} not shown` : ""}`;
    if (count !== this.count.textContent) this.count.textContent = count;
    if (room === this.room) return;
    this.room = room;
    this.space.style.height = `${room}px`;
    if (follows) list.scrollTop = room;
  }
}

// A row of the list, which shows one entry after the other: only what differs is written.
class Row {
  constructor() {
    const [at, arrow, what, name, head, took, size] = (this.texts = Array.from({ length: 7 }, () => new Text()));
    this.arrow = el("span", { role: "img" }, arrow);
    this.node = el("div", { role: "option" },
      el("span", { class: "begin" }, at, this.arrow, el("span", { class: "what" }, what), el("span", { class: "name" }, name), head),
      el("span", { class: "end" }, el("span", { class: "took" }, took), size));
  }

  mark(isChosen) {
    if (isChosen !== this.isChosen) this.node.setAttribute("aria-selected", `${isChosen}`);
    this.isChosen = isChosen;
  }

  show(entry, letters) {
    if (entry === this.entry) return;
    const { at, from, kind, method, name, head, took, failed, bytes: size } = entry;
    const of = method?.replace(/^notifications\//, "");
    const what = of ? `${kind === "result" || kind === "error" ? `${kind} ` : ""}${of}` : kind;
    const texts = [`${at.toFixed(3)} `.padEnd(9), ARROWS[from], ` ${short(what, 60).padEnd(13)} `, name ? `${short(`${name}`, 40)} ` : "",
      "", (took === undefined ? "" : seconds(took)).padStart(9), bytes(size).padStart(9)];
    // Text beyond the edge of the list is left out: a browser shapes all of it, seen or not.
    texts[4] = short(head ?? "", Math.max(0, letters - texts.join("").length));
    texts.forEach((text, at) => {
      if (this.texts[at].data !== text) this.texts[at].data = text;
    });
    const kinds = `row ${from} ${kind}${failed ? " failed" : ""}`;
    if (this.node.className !== kinds) this.node.className = kinds;
    if (from !== this.entry?.from) this.arrow.setAttribute("aria-label", SIDES[from]);
    this.node.id = `entry-${entry.n}`;
    this.entry = entry;
  }
}
