// What a server returns: content blocks, contents of resources, results and errors.

import { block, bytes, copy, el, json, link, save, seconds, short } from "./dom.js";

const MOST_BLOCKS = 200;
const PICTURES = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47]], ["image/jpeg", [0xff, 0xd8, 0xff]], ["image/gif", [0x47, 0x49, 0x46, 0x38]],
  ["image/webp", [0x52, 0x49, 0x46, 0x46]], ["image/bmp", [0x42, 0x4d]],
];

// The type is that of the first bytes, whatever was said; SVG is a picture only, where nothing in it runs.
function pictureType(data, type) {
  let begin = "";
  try {
    begin = atob(data.slice(0, 400));
  } catch {
    return null;
  }
  const found = PICTURES.find(([, magic]) => magic.every((byte, at) => begin.charCodeAt(at) === byte))?.[0];
  return found ?? (type === "image/svg+xml" && /^\s*(<\?xml|<!--|<svg)/.test(begin) ? type : null);
}

const sizeOf = (data) => bytes(Math.floor((data.length * 3) / 4));

function picture(data, type, what) {
  const found = pictureType(data, type);
  if (!found) return el("p", { class: "quiet" }, `${short(`${type}`, 60)}, ${sizeOf(data)}: this is not a picture that can be shown.`);
  return el("figure", {}, el("img", { src: `data:${found};base64,${data}`, alt: what }),
    el("figcaption", { class: "quiet" }, `${found}, ${sizeOf(data)}`));
}

function binary(data, type, name) {
  const keep = () => {
    const text = atob(data);
    save(name, "application/octet-stream", Uint8Array.from(text, (each) => each.charCodeAt(0)));
  };
  return el("p", {}, `${short(`${type ?? "of unknown type"}`, 60)}, ${sizeOf(data)} `, el("button", { type: "button", onclick: keep }, "Save"));
}

export function contents(given) {
  if (typeof given.text === "string") return block(given.text);
  const data = `${given.blob ?? ""}`;
  const type = `${given.mimeType ?? ""}`;
  return type.startsWith("image/") ? picture(data, type, `Picture at ${short(`${given.uri}`, 80)}`) : binary(data, type || undefined, "resource");
}

export function content(given, onread) {
  switch (given?.type) {
    case "text": return block(`${given.text}`);
    case "image": return picture(`${given.data}`, given.mimeType, "Picture of the result");
    case "audio": return binary(`${given.data}`, given.mimeType, "audio");
    case "resource": return el("div", {}, el("p", { class: "quiet" }, short(`${given.resource?.uri}`)), contents(given.resource ?? {}));
    case "resource_link": return el("p", {}, link(`${given.uri}`, `${given.title ?? given.name ?? given.uri}`), " ",
      onread && el("button", { type: "button", onclick: () => onread(`${given.uri}`) }, "Read"));
  }
  return json(given);
}

export function messages(given) {
  return el("ol", { class: "messages" }, given.slice(0, MOST_BLOCKS).map((each) => el("li", {},
    el("strong", {}, `${each?.role}`), [each?.content].flat().map((part) => content(part)))));
}

// The answer of inspect/send: {result} or {error}, and how long it took.
export function outcome(answer, { onread, about = [] } = {}) {
  const { result, error, took } = answer;
  const facts = el("p", { class: "quiet" }, took === undefined ? "" : `took ${seconds(took)}`);
  if (error) {
    return el("div", { class: "outcome failed", role: "group", "aria-label": "Error" },
      el("h3", {}, error.kind === "timeout" ? "No answer in time" : `Error ${error.code ?? error.kind ?? ""}`), el("p", {}, `${error.message}`),
      error.data !== undefined && error.data !== null && json(error.data), facts, ...about);
  }
  const shown = [];
  if (Array.isArray(result?.content)) shown.push(...result.content.slice(0, MOST_BLOCKS).map((each) => content(each, onread)));
  if (Array.isArray(result?.contents)) shown.push(...result.contents.slice(0, MOST_BLOCKS).map(contents));
  if (Array.isArray(result?.messages)) shown.push(messages(result.messages));
  if (result?.structuredContent !== undefined) shown.push(el("h4", {}, "Structured content"), json(result.structuredContent));
  if (!shown.length) shown.push(json(result));
  const failed = result?.isError === true;
  return el("div", { class: `outcome${failed ? " failed" : ""}`, role: "group", "aria-label": "Result" },
    el("h3", {}, failed ? "The tool reports an error" : "Result"), shown, facts, ...about,
    el("details", {}, el("summary", {}, "The whole result"), json(result)),
    el("button", { type: "button", onclick: () => copy(JSON.stringify(result, null, 2)) }, "Copy the result"));
}
