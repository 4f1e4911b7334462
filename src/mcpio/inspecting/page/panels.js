// The panels that only an engine can fill: what is waited for, the eras, bytes and limits, drift.

import { bytes, el, pretty, put, seconds, short } from "./dom.js";

const FULL = 0.8;

export class Waiting {
  constructor(app) {
    this.app = app;
    this.place = el("div", {});
    this.node = el("div", {}, el("h2", { tabindex: "-1" }, "What is it waiting for?"), this.place);
  }

  update(now) {
    const heard = now.heard?.server;
    const open = now.open ?? [];
    const given = (now.given_up ?? []).slice(-5).reverse();
    put(this.place,
      el("p", {}, open.length ? `${open.length} open.` : "Nothing is open.",
        heard !== undefined ? ` The server was last heard ${seconds(now.now - heard)} ago.` : " The server has said nothing yet.",
        now.phase ? ` The phase is ${now.phase}.` : ""),
      open.slice(0, 100).map((each) => this.#row(each, now.now)),
      given.length > 0 && el("h3", {}, "Given up last"),
      given.map((each) => this.#row(each, each.until, true)));
  }

  #row(each, now, isOver = false) {
    const age = now - each.at;
    const due = each.due === undefined ? null : each.due - each.at;
    const who = each.method === "subscriptions/listen" ? "It stays open: the server tells of changes on it"
      : each.from === "client" ? "The server owes an answer" : "The server waits for us";
    const { progress, total, message } = each.progress ?? {};
    return el("section", { class: "wait" },
      el("h3", {}, `${each.method} ${each.name ?? ""}`),
      el("dl", { class: "facts" }, [
        ["who", who], [isOver ? "waited" : "age", seconds(age)],
        ["deadline", due === null ? "none" : isOver ? `after ${seconds(due)}` : `in ${seconds(Math.max(0, each.due - now))}`],
        ["progress", each.heard > each.at ? `${seconds(now - each.heard)} before: ${progress ?? ""}${total ? ` of ${total}` : ""} ${short(`${message ?? ""}`, 80)}` : "none"],
        ["stream", each.via], ["id", each.id],
      ].filter(([, value]) => value !== undefined).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, `${value}`)))),
      due !== null && meter(`Time of ${each.method}`, age, due),
      el("button", { type: "button", onclick: () => this.app.ladder.choose(each.n) }, "Show the request"));
  }
}

function meter(label, value, most) {
  const share = most ? Math.min(1, value / most) : 0;
  const node = el("div", { class: `meter${share >= FULL ? " full" : ""}`, role: "meter", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": `${most}`, "aria-valuenow": `${Math.min(value, most)}` }, el("span", {}));
  node.firstChild.style.width = `${share * 100}%`;
  return node;
}

const KINDS = {
  input: "input not acted on yet", requests: "parameters of its requests that run", output: "messages that wait to be written",
  unwritten: "output that the transport has not written", own: "our requests that wait to be sent", bodies: "bodies that are collected",
  replay: "events kept for resumption", subscriptions: "its subscriptions", all: "all of it",
};

export class Held {
  constructor() {
    this.place = el("div", {});
    this.node = el("div", {}, el("h2", { tabindex: "-1" }, "Bytes and limits"), this.place);
  }

  update(now) {
    const rows = Object.entries(now.held ?? {}).map(([kind, each]) => [KINDS[kind] ?? kind, each.bytes, each.limit, bytes]);
    if (now.longest) rows.push(["the longest message so far", now.longest.bytes, now.longest.limit, bytes]);
    for (const [name, each] of Object.entries(now.counts ?? {})) rows.push([name, each.count, each.limit, (count) => `${count}`]);
    put(this.place, rows.length ? null : el("p", {}, "There is no connection."), el("dl", { class: "bytes" }, rows.map(([name, value, limit, say]) => el("div", {},
      el("dt", {}, name), el("dd", {}, meter(name, value, limit), el("span", {}, `${say(value)} of ${say(limit)}`))))),
    now.stats && el("p", { class: "quiet" }, `Received ${bytes(now.stats.received_bytes)}, sent ${bytes(now.stats.sent_bytes)}, ${now.stats.dropped_logs} log messages dropped.`),
    el("p", { class: "quiet" }, `The ladder keeps ${now.ladder.entries} entries with ${bytes(now.ladder.bytes)}; ${now.ladder.dropped} were dropped.`));
  }
}

const ASKS = {
  handshake: "Questions of the server are requests of its own, while the call runs.",
  stateless: "Questions come as the answer, an InputRequiredResult; the call is sent again with the answers.",
};

export async function lens(app, method, params) {
  const place = el("div", {}, el("h2", { tabindex: "-1" }, `${method} in both eras`), el("p", {}, `${app.state.why ?? ""}`));
  const { eras } = await app.backend.ask("lens", { method, params });
  const column = (each) => el("section", {},
    el("h3", {}, each.revision, each.revision === app.state.revision ? " (spoken here)" : ""),
    el("p", {}, each.opening.length ? "First, once:" : "There is no opening: each request says who asks, and what it can do."),
    each.opening.map((text) => pretty(text)),
    el("p", {}, "Then:"), each.request ? pretty(each.request) : el("p", { class: "fault" }, `${each.why}`),
    el("p", { class: "quiet" }, ASKS[each.era]));
  place.append(el("div", { class: "columns" }, eras.map(column)));
  return place;
}

export function drift(app) {
  const place = el("div", { role: "status" });
  const node = el("div", {}, el("h2", { tabindex: "-1" }, "Drift"), place);
  node.load = async () => {
    if (!app.state.locked) {
      put(place, el("p", {}, "Nothing is locked. Run mcpio lock with this server, and start mcpio inspect with --locked FILE, or where the file mcpio.lock is."));
      return;
    }
    put(place, el("p", {}, "Comparing…"));
    try {
      const { changed } = await app.backend.ask("drift");
      put(place, el("p", {}, changed.length ? `${changed.length} definition${changed.length === 1 ? " differs" : "s differ"} from what was locked.` : "Every definition is as it was locked."),
        changed.slice(0, 200).map((each) => el("section", { class: "drift" }, el("h3", {}, short(`${each.name}`), each.old === null ? ": it is new" : each.new === null ? ": it is gone" : ""),
          el("div", { class: "columns" }, side("Locked", each.old, each.new), side("Found", each.new, each.old)))));
    } catch (error) {
      put(place, el("p", { class: "fault" }, error.message));
    }
  };
  return node;
}

function side(name, text, other) {
  const known = new Set((other ?? "").split("\n"));
  const lines = (text ?? "").split("\n").slice(0, 1000);
  return el("div", {}, el("h4", {}, name), text === null ? el("p", { class: "quiet" }, "nothing")
    : el("pre", { tabindex: "0" }, lines.map((line) => el(known.has(line) ? "span" : "mark", {}, `${line}\n`))));
}
