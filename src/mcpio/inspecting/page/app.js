// The page: a menu, what is chosen in it, and the ladder.

import { Questions, about, roots } from "./asked.js";
import { Backend } from "./backend.js";
import { el, put, save, short, tell } from "./dom.js";
import { Ladder } from "./ladder.js";
import { Held, Waiting, drift, lens } from "./panels.js";
import { other, prompts, resources, skills, tasks, tools } from "./target.js";

const OWN = [["about", "Server"], ["tools", "Tools"], ["resources", "Resources"], ["prompts", "Prompts"], ["tasks", "Tasks"], ["skills", "Skills"],
  ["other", "Any request"], ["questions", "Server asks"], ["roots", "Roots"]];
const SHARED = [["waiting", "Waiting for"], ["bytes", "Bytes and limits"]];
const LADDERS = [["calls", "Calls"], ["logs", "Logs"], ["stderr", "Standard error"], ["faults", "Faults"]];
const ERAS = [["auto", "Either era"], ["handshake", "With a session"], ["stateless", "Stateless"]];
const AT_ONCE = 1000;

class App {
  state = {};
  views = {};
  fresh = new Set();
  started = [];
  chosen = null;

  constructor(backend, described) {
    this.backend = backend;
    this.about = described;
    this.isOwn = described.mode === "inspect";
    this.ladder = new Ladder({
      text: (n) => backend.ask("text", { n }),
      find: async (text) => (await backend.ask("find", { text })).found,
    }, { onchoose: (entry, text) => this.#actions(entry, text) });
    this.waiting = new Waiting(this);
    this.held = new Held();
    this.questions = new Questions(this);
    Object.assign(this.views, { waiting: this.waiting.node, bytes: this.held.node });
    if (this.isOwn) {
      Object.assign(this.views, { about: about(this), tools: tools(this), resources: resources(this), prompts: prompts(this), tasks: tasks(this),
        skills: skills(this), other: other(this), questions: this.questions.node, roots: roots(this), drift: drift(this), lens: el("div", {}) });
    }
    this.#build();
  }

  #build() {
    const item = ([name, label]) => {
      const button = el("button", { type: "button", onclick: () => this.show(name) }, label, el("span", { class: "badge", hidden: true }));
      this.items[name] = button;
      return el("li", {}, button);
    };
    this.items = {};
    const menu = [...(this.isOwn ? OWN : []), ...SHARED, ...(this.isOwn ? [["drift", "Drift"]] : [])];
    put(document.getElementById("menu"), el("ul", {}, menu.map(item)),
      el("ul", { "aria-label": "Parts of the ladder" }, LADDERS.map(([name, label]) => el("li", {}, el("button", { type: "button", onclick: () => this.#part(name) }, label)))));
    this.status = el("span", { class: "status" });
    this.era = el("select", { "aria-label": "Era of the next connection", onchange: () => this.#restart() },
      ERAS.map(([value, label]) => el("option", { value }, label)));
    put(document.getElementById("top"), el("h1", {}, `mcpio ${this.about.mode}`), el("span", { class: "target" }, short(`${this.about.target}`, 80)), this.status,
      el("span", { class: "spring" }),
      this.isOwn && this.era, this.isOwn && el("button", { type: "button", onclick: () => this.#restart() }, "Restart"),
      this.about.saves && el("button", { type: "button", onclick: () => this.#save() }, "Save the recording"));
    document.getElementById("side").replaceChildren(this.ladder.node);
    document.title = `${short(`${this.about.target}`, 40)}: mcpio ${this.about.mode}`;
    this.show(this.isOwn ? "tools" : "waiting");
  }

  show(name) {
    if (!this.views[name]) return;
    this.chosen = name;
    for (const [each, button] of Object.entries(this.items)) {
      if (each === name) button.setAttribute("aria-current", "page");
      else button.removeAttribute("aria-current");
    }
    put(document.getElementById("main"), this.views[name]);
    if (this.state.connected) this.#load(name);
    if (["waiting", "bytes"].includes(name)) this.look();
    this.views[name].querySelector("h2")?.focus();
  }

  #restart() {
    this.backend.ask("restart", { era: this.era.value });
  }

  // A list is read when it is first shown, and again after the server said that it changed, which it never says of tasks.
  #load(name) {
    if (this.fresh.has(name) && name !== "tasks") return;
    this.fresh.add(name);
    this.views[name]?.load?.();
  }

  async lens(method, params) {
    this.views.lens = await lens(this, method, params);
    this.show("lens");
  }

  read(uri) {
    this.show("resources");
    this.views.resources.read(uri);
  }

  #part(name) {
    this.ladder.show(this.ladder.filter === name ? "all" : name);
    document.getElementById("side").scrollIntoView({ block: "nearest" });
  }

  #actions(entry, text) {
    if (!this.isOwn || entry.kind !== "request" || entry.from !== "client" || entry.cut) return [];
    let params;
    try {
      params = JSON.parse(text).params ?? {};
    } catch {
      return [];
    }
    const { _meta, ...own } = params;
    return [
      entry.method === "tools/call" && el("button", { type: "button", onclick: () => { this.show("tools"); if (!this.views.tools.pick(own.name, own.arguments ?? {})) tell("The server has no such tool."); } }, "Call again"),
      el("button", { type: "button", onclick: () => this.lens(entry.method, own) }, "In both eras"),
    ];
  }

  async #save() {
    tell("Saving…");
    try {
      const { text } = await this.backend.ask("save");
      save("recording.jsonl", "application/jsonl", text);
      tell("Saved. mcpio trace makes a page of it, mcpio replay plays it.");
    } catch (error) {
      tell(`Not saved: ${error.message}`);
    }
  }

  #update(state) {
    const before = this.state;
    this.state = state;
    if (!this.isOwn) return;
    const asked = state.questions ?? [];
    this.questions.update(asked);
    const badge = this.items.questions.querySelector(".badge");
    badge.hidden = !asked.length;
    badge.textContent = `${asked.length}`;
    put(this.status, state.connected
      ? `${state.server?.name ? `${short(`${state.server.name}`, 40)} ${short(`${state.server.version ?? ""}`, 20)}, ` : ""}${state.revision}`
      : `${state.ended ? `not connected: ${short(state.ended, 120)}` : "connecting"}`);
    this.status.classList.toggle("fault", Boolean(state.ended));
    if (asked.length > (before.questions ?? []).length) {
      tell("The server asks something.");
      this.show("questions");
    }
    if (state.connected !== before.connected) this.started = [];
    if (state.connected !== before.connected || state.ended !== before.ended || before.lists !== state.lists) {
      this.fresh.clear();
      if (state.connected) {
        this.#load("tools"); // for the ladder's "Call again"
        this.#load(this.chosen);
      } else {
        this.views.about.load();
        if (state.ended) this.show("about");
      }
    }
  }

  async look() {
    const now = await this.backend.ask("now");
    if (this.chosen === "waiting") this.waiting.update(now);
    if (this.chosen === "bytes") this.held.update(now);
  }

  async run() {
    setInterval(() => ["waiting", "bytes"].includes(this.chosen) && this.look().catch(() => {}), AT_ONCE);
    for (let after = 0, known = 0; ;) {
      const found = await this.backend.ask("watch", { after, state: known });
      this.ladder.add(found.entries, found.dropped);
      after = found.entries.at(-1)?.n ?? after;
      if (found.state) {
        known = found.number;
        this.#update(found.state);
      }
      // Once a frame, after what came was drawn: a page that is slow, or is not shown, asks less often.
      await new Promise((drawn) => requestAnimationFrame(drawn));
    }
  }
}

// Out of the address at once, so that it is in no history, and on no screen; and kept nowhere.
const secret = location.hash.slice(1);
history.replaceState(null, "", location.pathname);
try {
  const backend = await Backend.open(secret);
  backend.onclose = () => tell("The inspector ended.", true);
  const app = new App(backend, await backend.ask("about"));
  window.dispatchEvent(new Event("ready"));
  await app.run();
} catch (error) {
  put(document.getElementById("main"), el("p", { class: "fault" }, error.message),
    el("p", {}, "Open the whole address that the command printed: its last part is the secret that lets you in."));
}
