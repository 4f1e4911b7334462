// What the target offers: lists with a filter, and a form for each item.

import { outcome } from "./content.js";
import { copy, el, json, link, put, short, tell } from "./dom.js";
import { Fault, form } from "./form.js";

const SHOWN = 200;
const PAGES = 100;

// A list that is read page by page, of which the items that match are shown. `also` adds items that the server does not list.
function chooser(app, { what, key, label, note, open, empty, missing = () => "", also = () => [] }) {
  let items = [];
  const opened = new Map();
  const filter = el("input", { type: "search", "aria-label": `Filter ${what}`, placeholder: "filter", oninput: () => draw() });
  const count = el("p", { class: "quiet", role: "status" });
  const rows = el("ul", { class: "choices" });
  const detail = el("div", { class: "chosen" });
  let chosen = null;

  const draw = () => {
    const words = filter.value.toLowerCase();
    const found = items.filter((item) => `${label(item)}`.toLowerCase().includes(words));
    put(rows, found.slice(0, SHOWN).map((item) => el("li", {}, el("button", {
      type: "button", "aria-current": item === chosen ? "true" : null,
      onclick: () => { show(item); detail.querySelector("h2")?.focus(); },
    }, el("span", {}, short(`${label(item)}`, 80)), note && el("small", {}, short(`${note(item) ?? ""}`, 80))))));
    const hidden = found.length - Math.min(found.length, SHOWN);
    count.textContent = items.length ? `${found.length} of ${items.length}${hidden ? `, the first ${SHOWN} are shown: filter for more` : ""}` : "";
  };

  // What a person filled in, and what still runs, is there again when they come back to an item.
  const show = (item, start) => {
    const same = `${app.state.era} ${JSON.stringify(item)}`;
    if (start || !opened.has(same)) opened.set(same, open(item, start));
    chosen = item;
    if (detail.firstChild !== opened.get(same)) put(detail, opened.get(same));
    draw();
  };

  let loading = 0;
  const load = async () => {
    const own = ++loading;
    items = [];
    draw();
    if ((count.textContent = missing())) return;
    let cursor = null;
    let failure = "";
    for (let page = 0; page < PAGES; page++) {
      const answer = await app.backend.ask("list", { what, cursor });
      if (own !== loading) return; // the list was asked for again
      if (answer.error) {
        failure = answer.error.code === -32601 || answer.error.kind ? empty : `${answer.error.message}`;
        break;
      }
      items.push(...answer.items);
      if (answer.left_out) tell(`${answer.left_out} of a page were left out`);
      draw();
      if (!(cursor = answer.more)) break;
    }
    items.push(...also().filter((item) => !items.some((each) => key(each) === key(item))));
    draw();
    if (failure || !items.length) count.textContent = failure || empty;
    const again = chosen && items.find((item) => key(item) === key(chosen));
    if (again) show(again); // another form, if the era or the definition changed
    else if (items.length === 1) rows.querySelector("button").click();
  };
  const node = el("div", { class: "split" }, el("div", { class: "choose" }, filter, count, rows), detail);
  node.load = () => load().catch((error) => { count.textContent = error.message; });
  node.pick = (wanted, start) => {
    const item = items.find((each) => key(each) === wanted);
    if (item) show(item, start);
    return item;
  };
  return node;
}

// A form with a button that sends a request, and place for its outcome.
function caller(app, { verb, asked, request, extras = () => [] }) {
  const place = el("div", { "aria-live": "polite" });
  const fault = el("p", { class: "fault", role: "alert" });
  const timeout = el("input", { type: "number", min: "0", step: "any", size: "5", placeholder: "as set", id: "timeout" });
  const cancel = el("button", { type: "button", hidden: true }, "Cancel");
  const button = el("button", { type: "submit", class: "main" }, verb);
  const submit = async (event) => {
    event?.preventDefault();
    fault.textContent = "";
    let params;
    try {
      params = request(asked?.read());
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      fault.textContent = error.message;
      return;
    }
    await send(params);
  };
  const send = async ({ method, params }) => {
    put(place, el("p", { class: "quiet" }, "Waiting for the answer…"));
    const pending = app.backend.ask("send", { method, params, timeout: timeout.value === "" ? null : Number(timeout.value) });
    cancel.hidden = false;
    cancel.onclick = () => { pending.cancel(); done({ error: { kind: "cancelled", message: "You cancelled the call." } }); };
    let isOver = false;
    const done = (answer) => {
      if (isOver) return;
      isOver = true;
      cancel.hidden = true;
      if (answer.result?.task) app.started.push(answer.result.task); // not every server lists its tasks
      put(place, outcome(answer, { onread: app.isOwn ? (uri) => app.read(uri) : undefined, about: [el("div", { class: "bar" },
        answer.n && el("button", { type: "button", onclick: () => app.ladder.choose(answer.n) }, "Show in the ladder"),
        ...extras(params, answer.n))] }));
      if (answer.error?.kind === "timeout") app.show("waiting");
    };
    await pending.then(done, (error) => done({ error: { code: error.code, message: error.message } }));
  };
  const node = el("form", { onsubmit: submit, novalidate: true }, asked?.node, fault, el("div", { class: "bar" }, button, cancel,
    el("label", { class: "quiet", for: "timeout" }, "seconds"), timeout), place);
  node.send = send;
  return node;
}

export function tools(app) {
  return chooser(app, {
    what: "tools", key: (tool) => tool.name, label: (tool) => tool.title ?? tool.name,
    note: (tool) => (tool.title ? tool.name : tool.description), empty: "The server has no tools.",
    open: (tool, start) => toolForm(app, tool, start),
  });
}

function toolForm(app, tool, start) {
  const asked = form(tool.inputSchema);
  if (start) asked.write(start);
  const hints = Object.entries(tool.annotations ?? {}).filter(([, value]) => value === true).map(([name]) => name.replace(/Hint$/, ""));
  const asTask = el("input", { type: "checkbox" });
  const takesTask = ["optional", "required"].includes(tool.execution?.taskSupport) && app.state.era === "handshake";
  asTask.checked = tool.execution?.taskSupport === "required";
  const hasView = typeof (tool._meta?.ui?.resourceUri ?? tool._meta?.["ui/resourceUri"]) === "string";
  const request = (given) => ({ method: "tools/call", params: { name: tool.name, arguments: given, ...(takesTask && asTask.checked ? { task: {} } : {}) } });
  const copies = (params, number) => [["command", "Copy as a command"], ["test", "Copy as a test"], ["script", "Copy as a conversation"]]
    .map(([as, label]) => el("button", { type: "button", onclick: () => {
      app.backend.ask("copy", { as, name: tool.name, arguments: params.arguments, n: number ?? 0 }).then(({ text }) => copy(text), (error) => tell(`Not copied: ${error.message}`));
    } }, label));
  const place = el("p", { role: "status" });
  const view = async () => {
    try {
      const { url } = await app.backend.ask("view", { name: tool.name, arguments: asked.read() });
      put(place, "The view is ready: ", link(url, "open it in its sandbox"));
    } catch (error) {
      put(place, error.message);
    }
  };
  const node = caller(app, { verb: "Call", asked, request, extras: (params, number) => [
    ...copies(params, number), el("button", { type: "button", onclick: () => app.lens("tools/call", params) }, "In both eras")] });
  return el("div", {},
    el("h2", { tabindex: "-1" }, short(`${tool.title ?? tool.name}`)),
    (tool.title || hints.length > 0) && el("p", { class: "quiet" }, [tool.title && short(`${tool.name}`), hints.join(", ")].filter(Boolean).join(": ")),
    tool.description && el("p", { class: "description" }, short(`${tool.description}`, 20_000)),
    takesTask && el("label", {}, asTask, "as a task"),
    node, hasView && el("div", {}, el("button", { type: "button", onclick: view }, "Show the view"), place),
    el("details", {}, el("summary", {}, "The definition"), json(tool)));
}

export function resources(app) {
  const list = chooser(app, {
    what: "resources", key: (item) => item.uri, label: (item) => item.title ?? item.name ?? item.uri, note: (item) => item.uri,
    empty: "The server has no resources.", open: (item) => reader(app, item),
  });
  const templates = chooser(app, {
    what: "templates", key: (item) => item.uriTemplate, label: (item) => item.title ?? item.name, note: (item) => item.uriTemplate,
    empty: "The server has no templates.", open: (item) => reader(app, item),
  });
  const node = el("div", {}, el("h2", { class: "hidden" }, "Resources"), list, el("h2", {}, "Templates"), templates);
  node.load = () => { list.load(); templates.load(); };
  node.read = (uri) => put(list.querySelector(".chosen"), reader(app, { uri, name: uri }));
  return node;
}

function reader(app, item) {
  const uri = el("input", { type: "text", value: item.uri ?? item.uriTemplate, id: "uri", spellcheck: "false" });
  const read = () => {
    const left = item.uriTemplate && uri.value.match(/\{[^}]*\}/);
    if (left) throw new Fault(`Put a value in place of ${left[0]}.`);
    return uri.value;
  };
  const canSubscribe = app.state.era === "handshake" && app.state.capabilities?.resources?.subscribe;
  const node = caller(app, { verb: "Read",
    asked: { node: el("div", { class: "member" }, el("label", { for: "uri" }, item.uriTemplate ? "URI, with its {variables} filled in" : "URI"), uri), read },
    request: (value) => ({ method: "resources/read", params: { uri: value } }) });
  const also = (method) => el("button", { type: "button", onclick: () => node.send({ method, params: { uri: uri.value } }) }, method === "resources/subscribe" ? "Subscribe" : "Unsubscribe");
  return el("div", {}, el("h2", { tabindex: "-1" }, short(`${item.title ?? item.name ?? item.uri}`)),
    item.description && el("p", {}, short(`${item.description}`, 5000)), node,
    canSubscribe && el("div", { class: "bar" }, also("resources/subscribe"), also("resources/unsubscribe")),
    el("details", {}, el("summary", {}, "The definition"), json(item)));
}

export function prompts(app) {
  return chooser(app, {
    what: "prompts", key: (item) => item.name, label: (item) => item.title ?? item.name, note: (item) => item.description,
    empty: "The server has no prompts.",
    open: (item) => {
      const given = Array.isArray(item.arguments) ? item.arguments : [];
      const asked = form({
        type: "object", additionalProperties: false, required: given.filter((each) => each.required).map((each) => each.name),
        properties: Object.fromEntries(given.map((each) => [each.name, { type: "string", title: each.title, description: each.description }])),
      });
      return el("div", {}, el("h2", { tabindex: "-1" }, short(`${item.title ?? item.name}`)), item.description && el("p", {}, short(`${item.description}`, 5000)),
        caller(app, { verb: "Get", asked, request: (value) => ({ method: "prompts/get", params: { name: item.name, arguments: value } }) }),
        el("details", {}, el("summary", {}, "The definition"), json(item)));
    },
  });
}

export function tasks(app) {
  return chooser(app, {
    what: "tasks", key: (item) => item.taskId, label: (item) => item.taskId, note: (item) => item.status,
    empty: "The server lists no tasks.", also: () => app.started, missing: () => (app.state.era === "stateless" ? `${app.state.revision} has no list of tasks.` : ""),
    open: (item) => {
      const node = caller(app, { verb: "Get its state", request: () => ({ method: "tasks/get", params: { taskId: item.taskId } }) });
      const also = (method, label) => el("button", { type: "button", onclick: () => node.send({ method, params: { taskId: item.taskId } }) }, label);
      return el("div", {}, el("h2", { tabindex: "-1" }, short(`Task ${item.taskId}`)), node,
        el("div", { class: "bar" }, also("tasks/result", "Get its result"), also("tasks/cancel", "Cancel it")), json(item));
    },
  });
}

export function skills(app) {
  return chooser(app, {
    what: "skills", key: (item) => item.uri, label: (item) => item.frontmatter?.name ?? item.uri, note: (item) => item.frontmatter?.description,
    empty: "The server declares no skills.",
    open: (item) => el("div", {}, el("h2", { tabindex: "-1" }, short(`${item.frontmatter?.name ?? item.uri}`)), el("p", {}, short(`${item.frontmatter?.description ?? ""}`, 5000)),
      typeof item.uri === "string" && reader(app, { uri: item.uri, name: "Read it" }), json(item)),
  });
}

export function other(app) {
  const method = el("input", { type: "text", id: "method", value: "ping", spellcheck: "false" });
  const params = el("textarea", { rows: "4", id: "params", spellcheck: "false" }, "{}");
  const read = () => {
    try {
      return JSON.parse(params.value);
    } catch (error) {
      throw new Fault(`params: ${error.message}`);
    }
  };
  const node = el("div", {}, el("label", { for: "method" }, "Method"), method, el("label", { for: "params" }, "Params, as JSON"), params);
  return el("div", {}, el("h2", {}, "Any request"), caller(app, { verb: "Send", asked: { node, read },
    request: (value) => ({ method: method.value, params: value }),
    extras: (sent) => [el("button", { type: "button", onclick: () => app.lens(method.value, sent) }, "In both eras")] }));
}
