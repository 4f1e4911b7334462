// Elements, always with text nodes: what a server says is never markup.

const LONGEST = 20_000;

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

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  return count < 1_000_000 ? `${(count / 1024).toFixed(1)} KB` : `${(count / 1024 / 1024).toFixed(1)} MB`;
}

export function seconds(value) {
  if (value < 1) return `${Math.max(0, Math.round(value * 1000))} ms`;
  return value < 100 ? `${value.toFixed(1)} s` : `${Math.round(value / 60)} min`;
}

// A link only for the web: other schemes run programs, or scripts.
export function link(address, text = address) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    // not an address
  }
  if (!url || !["http:", "https:"].includes(url.protocol)) return el("span", {}, short(text));
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

export function json(value) {
  return block(JSON.stringify(value, null, 2) ?? "null", "json");
}

export function pretty(text) {
  try {
    return json(JSON.parse(text));
  } catch {
    return block(text);
  }
}

export async function copy(text, said) {
  try {
    await navigator.clipboard.writeText(text);
    tell(said ?? "Copied.");
  } catch {
    tell("The browser refused to copy: select the text, and copy it by hand.");
  }
}

export function tell(text) {
  const live = document.getElementById("told");
  if (live) live.textContent = text;
}

export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
