// What the server asks a person: forms, addresses to visit, messages of a model; and the roots that it is told.

import { messages } from "./content.js";
import { block, el, json, link, put, short, tell } from "./dom.js";
import { Fault, form } from "./form.js";

export class Questions {
  constructor(app) {
    this.app = app;
    this.known = new Map();
    this.none = el("p", { class: "quiet" }, "The server asks nothing.");
    this.node = el("div", {}, el("h2", { tabindex: "-1" }, "The server asks"), this.none);
  }

  // A question stays as it is while a person fills it in.
  update(questions) {
    const ids = new Set(questions.map((each) => each.id));
    for (const [id, node] of this.known) {
      if (!ids.has(id)) {
        node.remove();
        this.known.delete(id);
      }
    }
    for (const question of questions) {
      if (this.known.has(question.id)) continue;
      const node = this.#question(question);
      this.known.set(question.id, node);
      this.node.append(node);
    }
    this.none.hidden = this.known.size > 0;
  }

  #question(question) {
    const { method, params } = question;
    const fault = el("p", { class: "fault", role: "alert" });
    const answer = async (result) => {
      fault.textContent = "";
      try {
        const value = typeof result === "function" ? result() : result;
        await this.app.backend.ask("answer", value === null ? { id: question.id } : { id: question.id, result: value });
        tell("Answered.");
      } catch (error) {
        fault.textContent = error.message;
        if (!(error instanceof Fault || error.code)) throw error;
      }
    };
    const button = (label, result, main) => el("button", { type: "button", class: main ? "main" : null, onclick: () => answer(result) }, label);
    const body = method === "sampling/createMessage" ? this.#sampling(params, button) : this.#elicitation(params, button);
    return el("section", { class: "question", "aria-label": `Question ${question.id}` }, body, fault,
      el("details", {}, el("summary", {}, "The whole question"), json(params)));
  }

  #elicitation(params, button) {
    const said = el("p", { class: "description" }, short(`${params.message ?? ""}`, 20_000));
    const rest = [button("Decline", { action: "decline" }), button("Dismiss", { action: "cancel" })];
    if (params.mode === "url") {
      return [said, el("p", {}, "It wants you to visit ", link(`${params.url}`), "."),
        el("div", { class: "bar" }, button("I did, or I will", { action: "accept" }, true), rest)];
    }
    const asked = form(params.requestedSchema);
    return [said, asked.node, el("div", { class: "bar" }, button("Accept", () => ({ action: "accept", content: asked.read() }), true), rest)];
  }

  #sampling(params, button) {
    const text = el("textarea", { rows: "4", id: `sample-${Math.random().toString(36).slice(2)}` });
    const reply = () => ({ role: "assistant", model: "human", stopReason: "endTurn", content: { type: "text", text: text.value } });
    return [el("p", {}, "It wants a message of a model."), params.systemPrompt && el("p", {}, `System: ${short(`${params.systemPrompt}`, 5000)}`),
      Array.isArray(params.messages) && messages(params.messages), el("label", { for: text.id }, "Your message, as the assistant"), text,
      el("div", { class: "bar" }, button("Send", reply, true), button("Refuse", null))];
  }
}

export function roots(app) {
  const text = el("textarea", { rows: "5", id: "roots", spellcheck: "false" });
  const fault = el("p", { class: "fault", role: "alert" });
  const keep = async () => {
    const lines = text.value.split("\n").map((line) => line.trim()).filter(Boolean);
    fault.textContent = "";
    await app.backend.ask("roots", { roots: lines.map((uri) => ({ uri: uri.startsWith("/") ? `file://${encodeURI(uri)}` : uri })) })
      .then(() => tell("The server is told."), (error) => { fault.textContent = error.message; });
  };
  const node = el("div", {}, el("h2", { tabindex: "-1" }, "Roots"),
    el("p", {}, "The folders that the server is told to work in, one on each line: paths, or URIs that begin with file://."),
    el("label", { for: "roots" }, "Roots"), text, fault, el("button", { type: "button", class: "main", onclick: keep }, "Tell the server"));
  node.load = () => { text.value = (app.state.roots ?? []).map((root) => root.uri).join("\n"); };
  return node;
}

export function about(app) {
  const node = el("div", {});
  node.load = () => {
    const { state } = app;
    const icon = (state.server?.icons ?? []).length;
    put(node, el("h2", { tabindex: "-1" }, short(`${state.server?.title ?? state.server?.name ?? app.about.target}`)),
      !state.connected && (state.ended ? el("div", {}, el("p", { class: "fault" }, "There is no connection. Restart opens it anew."), block(state.ended)) : el("p", {}, "Connecting…")),
      state.why && el("p", {}, `It speaks ${state.revision} (the ${state.era} era). ${state.why}`),
      state.instructions && el("div", {}, el("h3", {}, "Instructions"), el("p", { class: "description" }, short(`${state.instructions}`, 20_000))),
      state.server?.websiteUrl && el("p", {}, link(`${state.server.websiteUrl}`)),
      state.server && el("details", {}, el("summary", {}, `Its name and version${icon ? ", with icons" : ""}`), json(state.server)),
      state.capabilities && el("details", {}, el("summary", {}, "Its capabilities"), json(state.capabilities)));
  };
  return node;
}
