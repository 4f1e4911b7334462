// The ladder: a list of entries of which only the visible rows exist, and the whole of the chosen one.

import { bytes, el, pretty, put, seconds, short } from "./dom.js";

const ROW = 24;
const MOST = 50_000;
const EXTRA = 4;
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
    this.made = new Map();
    this.rows = el("div", { class: "rows", role: "presentation" });
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
      this.#draw();
    }).observe(this.list);
  }

  add(entries, dropped = 0) {
    if (entries.length) {
      for (const entry of entries) {
        this.entries.push(entry);
        if (this.#passes(entry)) this.shown.push(entry);
      }
      if (this.entries.length > MOST) {
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
    if (at >= 0) {
      const top = at * ROW;
      if (top < this.list.scrollTop || top + ROW > this.list.scrollTop + this.list.clientHeight) {
        this.follows = false;
        this.list.scrollTop = Math.max(0, top - this.list.clientHeight / 2);
      }
    }
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
    this.follows = this.list.scrollTop + this.list.clientHeight >= this.list.scrollHeight - ROW;
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
    const { shown, list, rows, made } = this;
    const end = shown.length * ROW;
    // The place is read before anything is changed, and set after it: one layout for each drawing.
    const top = this.follows ? end - this.height : list.scrollTop;
    const first = Math.max(0, Math.floor(top / ROW) - EXTRA);
    const visible = shown.slice(first, first + Math.ceil(this.height / ROW) + 2 * EXTRA);
    this.space.style.height = `${end}px`;
    rows.style.transform = `translateY(${first * ROW}px)`;
    // A row that stays keeps its node.
    const wanted = new Set(visible.map((entry) => entry.n));
    for (const [n, node] of made) {
      if (!wanted.has(n)) {
        node.remove();
        made.delete(n);
      }
    }
    let at = rows.firstChild;
    for (const entry of visible) {
      const node = made.get(entry.n) ?? this.#row(entry);
      made.set(entry.n, node);
      const state = `${entry.n === this.chosen}`;
      if (node.getAttribute("aria-selected") !== state) node.setAttribute("aria-selected", state);
      if (node === at) at = at.nextSibling;
      else rows.insertBefore(node, at);
    }
    if (made.has(this.chosen)) list.setAttribute("aria-activedescendant", `entry-${this.chosen}`);
    else list.removeAttribute("aria-activedescendant");
    if (this.follows) list.scrollTop = end;
    const left = this.gone + this.entries.length - shown.length;
    const lines = shown.length === 1 ? "1 line" : `${shown.length.toLocaleString("en")} lines`; // some are not messages
    this.count.textContent = `${lines}${left ? `, ${left.toLocaleString("en")} not shown` : ""}`;
  }

  #row(entry) {
    const took = entry.took === undefined ? "" : seconds(entry.took);
    const method = entry.method?.replace(/^notifications\//, "");
    const what = method ? `${entry.kind === "result" || entry.kind === "error" ? `${entry.kind} ` : ""}${method}` : entry.kind;
    return el("div", {
      class: `row ${entry.from} ${entry.kind}${entry.failed ? " failed" : ""}`, role: "option", id: `entry-${entry.n}`,
      onclick: () => this.choose(entry.n),
    },
    el("span", { class: "at" }, entry.at.toFixed(3)),
    el("span", { class: "arrow", role: "img", "aria-label": SIDES[entry.from] }, ARROWS[entry.from]),
    el("span", { class: "what" }, short(what, 60)),
    el("span", { class: "name" }, entry.name ? short(`${entry.name}`, 40) : ""),
    el("span", { class: "head" }, short(entry.head ?? "", 160)),
    el("span", { class: "took" }, took),
    el("span", { class: "size" }, bytes(entry.bytes)));
  }
}
