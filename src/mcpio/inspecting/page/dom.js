// Elements, always with text nodes: what a server says is never markup.

const LONGEST = 20_000;
const TOLD_FOR = 10_000;

let standing = "";
let passing;

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function put(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const short = (text, most = 200) => (text.length > most ? `${text.slice(0, most)}…` : text);

export const bytes = (count) =>
  count < 1000 ? `${count} B` : count < 1_000_000 ? `${(count / 1024).toFixed(1)} KB` : `${(count / 1024 / 1024).toFixed(1)} MB`;

export function seconds(value) {
  if (value < 1) return `${Math.max(0, Math.round(value * 1000))} ms`;
  return value < 100 ? `${value.toFixed(1)} s` : `${Math.round(value / 60)} min`;
}

// A link only for the web: other schemes run programs, or scripts.
export function link(address, text = address) {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (!["http:", "https:"].includes(url?.protocol)) return el("span", {}, short(text));
  return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer" }, short(text));
}

export function block(text, language = "") {
  const shown = text.length > LONGEST ? text.slice(0, LONGEST) : text;
  const pre = el("pre", { tabindex: "0", class: language }, shown);
  if (shown === text) return pre;
  const more = el("button", { type: "button", onclick: () => put(box, el("pre", { tabindex: "0" }, text)) },
    `Show all ${text.length.toLocaleString("en")} characters`);
  const box = el("div", {}, pre, more);
  return box;
}

export const json = (value) => block(JSON.stringify(value, null, 2) ?? "null", "json");

export function pretty(text) {
  try {
    return json(JSON.parse(text));
  } catch {
    return block(text);
  }
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    tell("Copied.");
  } catch {
    tell("The browser refused to copy: select the text, and copy it by hand.");
  }
}

// Shows a text for a while, and then the last one that stays.
export function tell(text, stays = false) {
  const live = document.getElementById("told");
  if (stays) standing = text;
  clearTimeout(passing);
  live.textContent = text;
  passing = setTimeout(() => { live.textContent = standing; }, TOLD_FOR);
}

export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
