// A form from a JSON Schema. A field is {node, read(), write(value)}; what it reads is undefined if it is not sent.

import { el, put, short, tell } from "./dom.js";

const DEEPEST = 12;
const MOST_CHOICES = 500;
const INPUTS = { email: "email", uri: "url", date: "date", time: "text", "date-time": "text" };
const HINTS = { time: "12:00:00Z", "date-time": "2026-01-31T12:00:00Z", uuid: "00000000-0000-0000-0000-000000000000" };
let count = 0;

export class Fault extends Error {}

// The form of the members of an object: {node, read(), write(value)}. `read` throws a Fault for what does not fit.
export function form(schema) {
  const root = isObject(schema) ? schema : {};
  return new Form(root);
}

class Form {
  constructor(root) {
    const whole = settled(root, root);
    this.field = whole.properties || whole.additionalProperties === false ? members(whole, root, 0) : anything(root, "arguments");
    this.text = el("textarea", { rows: "8", spellcheck: "false", id: `text-${++count}` });
    this.asText = el("div", { hidden: true }, el("label", { for: this.text.id }, "The arguments as JSON"), this.text);
    this.toggle = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.#switch() }, "JSON");
    this.node = el("div", { class: "form" }, el("div", { class: "bar end" }, this.toggle), this.field.node, this.asText);
  }

  read() {
    return this.asText.hidden ? this.field.read() : parsed(this.text.value, "The arguments");
  }

  write(value) {
    if (this.asText.hidden) this.field.write(value);
    else this.text.value = JSON.stringify(value, null, 2);
  }

  #switch() {
    const wasForm = this.asText.hidden;
    let value = {};
    try {
      value = this.read() ?? {};
    } catch (fault) {
      if (!wasForm) return tell(fault.message);
    }
    this.asText.hidden = !wasForm;
    this.field.node.hidden = wasForm;
    this.toggle.setAttribute("aria-pressed", `${wasForm}`);
    this.write(value);
  }
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function parsed(text, what) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Fault(`${what}: not JSON: ${error.message}`);
  }
}

// Returns a schema with its reference followed, and its allOf joined.
function settled(schema, root, depth = 0) {
  if (!isObject(schema)) return {};
  if (depth > DEEPEST) return {};
  if (typeof schema.$ref === "string") {
    const { $ref, ...own } = schema;
    return { ...settled(target($ref, root), root, depth + 1), ...own };
  }
  if (!Array.isArray(schema.allOf)) return schema;
  const { allOf, ...own } = schema;
  return [own, ...allOf].map((part) => settled(part, root, depth + 1)).reduce((sum, part) => ({
    ...sum, ...part,
    properties: { ...sum.properties, ...part.properties },
    required: [...(sum.required ?? []), ...(part.required ?? [])],
  }));
}

function target(ref, root) {
  if (!ref.startsWith("#")) return {};
  return ref.slice(1).split("/").filter(Boolean)
    .map((step) => decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~"))
    .reduce((value, step) => (value && Object.hasOwn(value, step) ? value[step] : undefined), root);
}

function typesOf(schema) {
  const given = Array.isArray(schema.type) ? schema.type : schema.type === undefined ? [] : [schema.type];
  return given.filter((type) => typeof type === "string");
}

const variantsOf = (schema) => [schema.oneOf, schema.anyOf].find((each) => Array.isArray(each) && each.length);

// Returns the values of a schema with few of them, with their names: an enum, or alternatives that are constants.
function choicesOf(schema, root) {
  if (Array.isArray(schema.enum)) {
    return schema.enum.slice(0, MOST_CHOICES).map((value, at) => [value, `${schema.enumNames?.[at] ?? said(value)}`]);
  }
  const variants = variantsOf(schema)?.map((each) => settled(each, root));
  return variants?.every((each) => "const" in each)
    ? variants.slice(0, MOST_CHOICES).map((each) => [each.const, `${each.title ?? said(each.const)}`]) : null;
}

const said = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function field(given, root, name, depth) {
  const schema = settled(given, root);
  if ("const" in schema) return constant(schema, name);
  const choices = choicesOf(schema, root);
  if (choices) return choice(schema, choices, name);
  const types = typesOf(schema);
  const variants = variantsOf(schema);
  if (variants) return alternatives(schema, variants, root, name, depth);
  if (types.length > 1) {
    return alternatives({ ...schema, type: undefined }, types.map((type) => ({ ...schema, type, default: undefined })), root, name, depth);
  }
  switch (types[0] ?? (schema.properties ? "object" : undefined)) {
    case "string": return string(schema, name);
    case "integer": case "number": return number(schema, types[0], name);
    case "boolean": return boolean(schema, name);
    case "null": return { node: el("span", { class: "quiet" }, "null"), read: () => null, write: () => {}, isSmall: true };
    case "array": return list(schema, root, name, depth);
    case "object": if (schema.properties) return members(schema, root, depth + 1, name);
  }
  return anything(schema, name);
}

function control(node, read, write, schema, isSmall = true) {
  node.id ||= `field-${++count}`;
  return { node, control: node, read, write, isSmall, start: schema.default };
}

function constant(schema, name) {
  return { ...control(el("output", {}, said(schema.const)), () => schema.const, () => {}, schema), name };
}

function choice(schema, choices, name) {
  const select = el("select", {}, choices.map(([, label], at) => el("option", { value: `${at}` }, short(label))));
  const found = (value) => choices.findIndex(([each]) => JSON.stringify(each) === JSON.stringify(value));
  return control(select, () => choices[select.selectedIndex]?.[0],
    (value) => { select.selectedIndex = Math.max(0, found(value)); }, schema);
}

function string(schema, name) {
  const kind = INPUTS[schema.format];
  const hint = HINTS[schema.format] ?? "";
  const input = kind || schema.format
    ? el("input", { type: kind ?? "text", placeholder: hint }) : el("textarea", { rows: "1" });
  const read = () => {
    const text = input.value;
    const length = [...text].length;
    if (length < (schema.minLength ?? 0)) throw new Fault(`${name}: at least ${schema.minLength} characters`);
    if (length > (schema.maxLength ?? Infinity)) throw new Fault(`${name}: at most ${schema.maxLength} characters`);
    if (input.validity.typeMismatch || input.validity.badInput) throw new Fault(`${name}: ${input.validationMessage}`);
    return text;
  };
  return control(input, read, (value) => { input.value = typeof value === "string" ? value : said(value ?? ""); }, schema);
}

function number(schema, type, name) {
  const input = el("input", { type: "text", inputmode: type === "integer" ? "numeric" : "decimal" });
  const read = () => {
    const value = Number(input.value.trim() || NaN);
    if (!Number.isFinite(value) || (type === "integer" && !Number.isInteger(value))) {
      throw new Fault(`${name}: ${type === "integer" ? "a whole number" : "a number"} is needed`);
    }
    if (value < schema.minimum) throw new Fault(`${name}: at least ${schema.minimum}`);
    if (value > schema.maximum) throw new Fault(`${name}: at most ${schema.maximum}`);
    return value;
  };
  return control(input, read, (value) => { input.value = `${value ?? ""}`; }, schema);
}

function boolean(schema, name) {
  const box = el("input", { type: "checkbox" });
  return control(box, () => box.checked, (value) => { box.checked = value === true; }, schema);
}

function anything(schema, name) {
  const text = el("textarea", { rows: "3", spellcheck: "false", placeholder: "JSON" });
  const made = control(text, () => parsed(text.value, name), (value) => { text.value = JSON.stringify(value, null, 2); }, schema, false);
  made.hint = "JSON";
  if (name === "arguments") {
    text.value = "{}";
    const label = el("label", { for: text.id }, "Arguments, as JSON");
    made.node = el("div", {}, label, text);
  }
  return made;
}

function alternatives(schema, variants, root, name, depth) {
  const { oneOf, anyOf, ...common } = schema;
  const shown = variants.slice(0, MOST_CHOICES).map((each) => settled({ ...common, ...settled(each, root), description: undefined }, root));
  const names = shown.map((each, at) => each.title && each.title !== common.title ? each.title : `${typesOf(each).join(" or ") || (each.const !== undefined ? said(each.const) : `form ${at + 1}`)}`);
  const select = el("select", { "aria-label": `Form of ${name}` }, names.map((label, at) => el("option", { value: `${at}` }, short(`${label}`))));
  const place = el("div", {});
  let made = null;
  const pick = (at) => {
    select.selectedIndex = at;
    made = field(shown[at], root, name, depth + 1);
    if (made.start !== undefined) made.write(made.start);
    if (made.control) made.control.setAttribute("aria-label", name);
    put(place, made.node);
  };
  select.addEventListener("change", () => pick(select.selectedIndex));
  pick(0);
  return {
    node: el("div", { class: "alternatives" }, select, place), control: select, start: schema.default,
    read: () => made.read(),
    write: (value) => {
      pick(Math.max(0, shown.findIndex((each) => fits(value, each, root))));
      made.write(value);
    },
  };
}

function fits(value, schema, root) {
  const types = typesOf(schema);
  if ("const" in schema) return JSON.stringify(schema.const) === JSON.stringify(value);
  if (Array.isArray(schema.enum)) return schema.enum.includes(value);
  if (isObject(value) && schema.properties) {
    const has = (schema.required ?? []).every((name) => Object.hasOwn(value, name));
    const known = Object.entries(schema.properties).every(([name, each]) =>
      !Object.hasOwn(value, name) || !isObject(each) || !("const" in each) || each.const === value[name]);
    return has && known;
  }
  const type = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  return types.some((each) => each === type || (type === "number" && (each === "number" || (each === "integer" && Number.isInteger(value)))));
}

function list(schema, root, name, depth) {
  const of = settled(schema.items, root);
  const choices = choicesOf(of, root);
  if (choices) return several(schema, choices, name);
  const items = [];
  const rows = el("ol", { class: "items" });
  const draw = () => put(rows, items.map((item, at) => el("li", {}, item.node,
    el("button", { type: "button", "aria-label": `Remove ${name} ${at + 1}`, onclick: () => { items.splice(at, 1); draw(); } }, "−"))));
  const add = (value) => {
    const item = field(schema.items ?? {}, root, `${name} ${items.length + 1}`, depth + 1);
    const start = value === undefined ? item.start : value;
    if (start !== undefined) item.write(start);
    (item.control ?? item.node).setAttribute("aria-label", `${name} ${items.length + 1}`);
    items.push(item);
    draw();
  };
  const more = el("button", { type: "button", onclick: () => add() }, `Add ${short(name, 40)}`);
  for (let at = 0; at < Math.min(schema.minItems ?? 0, 20); at++) add();
  return {
    node: el("div", { class: "list-field" }, rows, more), control: more, start: schema.default,
    read: () => items.map((item) => item.read()),
    write: (value) => {
      items.length = 0;
      for (const each of Array.isArray(value) ? value : []) add(each);
      draw();
    },
  };
}

function several(schema, choices, name) {
  const boxes = choices.map(([, label]) => [el("input", { type: "checkbox" }), label]);
  const node = el("div", { class: "several", role: "group", "aria-label": name },
    boxes.map(([box, label]) => el("label", {}, box, short(label))));
  return {
    node, start: schema.default,
    read: () => choices.filter((_, at) => boxes[at][0].checked).map(([value]) => value),
    write: (value) => boxes.forEach(([box], at) => { box.checked = Array.isArray(value) && value.includes(choices[at][0]); }),
  };
}

function members(schema, root, depth, name = "") {
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const rows = Object.entries(schema.properties ?? {}).map(([key, each]) => member(key, each, root, required.has(key), depth));
  const more = isObject(schema.additionalProperties) || schema.additionalProperties === true ? extra(depth) : null;
  const fields = el("div", { class: "members" }, rows.map((row) => row.node), more?.node);
  const read = () => {
    const value = more ? { ...more.read() } : {};
    for (const row of rows) {
      const each = row.read();
      if (each !== undefined) value[row.key] = each;
    }
    return value;
  };
  const write = (value) => {
    const given = isObject(value) ? value : {};
    for (const row of rows) row.write(Object.hasOwn(given, row.key) ? given[row.key] : undefined);
    more?.write(Object.fromEntries(Object.entries(given).filter(([key]) => !rows.some((row) => row.key === key))));
  };
  return { node: depth && name ? el("fieldset", {}, el("legend", {}, short(name)), fields) : fields, read, write, start: schema.default };
}

function extra(depth) {
  const text = el("textarea", { rows: "1", spellcheck: "false", placeholder: "{}", id: `field-${++count}` });
  return {
    node: el("div", { class: "member" }, el("label", { for: text.id }, "further members, as JSON"), text),
    read: () => (text.value.trim() ? parsed(text.value, "further members") : {}),
    write: (value) => { text.value = Object.keys(value).length ? JSON.stringify(value) : ""; },
  };
}

// One member: required ones are always sent, others once they are touched, or their box is ticked.
function member(key, given, root, isRequired, depth) {
  const schema = settled(given, root);
  const place = el("div", { class: "value" });
  const box = isRequired ? null : el("input", { type: "checkbox", id: `sent-${++count}` });
  const label = el("label", { class: "key" }, short(`${schema.title ?? key}`, 80), isRequired && el("abbr", { title: "required" }, "*"));
  let made = null;
  const make = () => {
    made = field(given, root, key, depth);
    if (made.start !== undefined) made.write(made.start);
    if (made.control) label.setAttribute("for", made.control.id ||= `field-${++count}`);
    put(place, made.node);
    return made;
  };
  const isSent = () => isRequired || box.checked;
  // What is large, or may contain itself, is made when it is wanted.
  const probe = isRequired || depth < 2 ? make() : null;
  const isLazy = !isRequired && !(probe?.isSmall);
  if (isLazy) {
    made = null;
    put(place);
  }
  const update = () => {
    if (box.checked && !made) make();
    if (isLazy && !box.checked) {
      made = null;
      put(place);
    }
    node.classList.toggle("unsent", !box.checked);
  };
  const start = schema.default === undefined ? "" : ` (the server takes ${short(said(schema.default) ?? "", 40)})`;
  const node = el("div", { class: `member${isRequired ? "" : " unsent"}` },
    el("div", { class: "names" }, label, box && el("span", { class: "sent" }, box,
      el("label", { for: box.id }, "send", el("span", { class: "hidden" }, ` ${short(key, 80)}`)), el("span", { class: "if-not quiet" }, `not sent${start}`))),
    schema.description && el("p", { class: "quiet" }, short(`${schema.description}`, 2000)),
    place);
  if (box) {
    box.addEventListener("change", update);
    place.addEventListener("input", () => { box.checked = true; update(); });
  }
  return {
    key, node,
    read: () => (isSent() ? (made ?? make()).read() : undefined),
    write: (value) => {
      if (box) {
        box.checked = value !== undefined;
        update();
      }
      if (value !== undefined) (made ?? make()).write(value);
    },
  };
}
