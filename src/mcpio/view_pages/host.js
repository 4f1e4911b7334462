// The host's page: a frame with the sandbox, which is of another origin, and the way of its messages to the program.
"use strict";

const HERE = location.pathname;
const PREFIX = "ui/notifications/sandbox-";
const MOST_WAITING = 1000;
const MOST_PIXELS = 4000;

let frame = null;
let waiting = 0;
let sending = Promise.resolve();

function end(text) {
  if (frame) frame.remove();
  frame = null;
  document.querySelector("main").textContent = text;
}

function tellProgram(message) {
  if (++waiting > MOST_WAITING) return end("The view was closed: it sends more than can be handled.");
  const body = JSON.stringify(message);
  sending = sending
    .then(() => fetch(`${HERE}/messages`, { method: "POST", body }))
    .then(() => { waiting -= 1; })
    .catch(() => end("The program has ended."));
}

function resize({ width, height } = {}) {
  if (Number.isFinite(width)) frame.style.width = `min(${Math.max(0, width)}px, 100%)`;
  if (Number.isFinite(height)) frame.style.height = `${Math.min(Math.max(0, height), MOST_PIXELS)}px`;
}

function show(view) {
  const origin = new URL(view.sandbox).origin;
  let isLoaded = false;
  document.title = view.title;
  frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
  frame.allow = view.allow;
  frame.className = view.border ? "bordered" : "";
  addEventListener("message", ({ source, origin: from, data }) => {
    if (!frame || source !== frame.contentWindow || from !== origin) return;
    const method = data && data.method;
    if (method === `${PREFIX}proxy-ready` && !isLoaded) {
      isLoaded = true;
      const params = { html: view.html, allow: view.allow };
      source.postMessage({ jsonrpc: "2.0", method: `${PREFIX}resource-ready`, params }, origin);
    } else if (typeof method !== "string" || !method.startsWith(PREFIX)) {
      if (method === "ui/notifications/size-changed") resize(data.params);
      tellProgram(data);
    }
  });
  frame.src = view.sandbox;
  document.querySelector("main").append(frame);
  return origin;
}

async function main() {
  const found = await fetch(`${HERE}/view`);
  if (!found.ok) return end("This view was shown already: call the tool again.");
  const origin = show(await found.json());
  while (frame) {
    const response = await fetch(`${HERE}/messages`);
    if (!response.ok) return end("The view was closed.");
    for (const text of await response.json()) {
      if (frame) frame.contentWindow.postMessage(JSON.parse(text), origin);
    }
  }
}

addEventListener("pagehide", () => navigator.sendBeacon(`${HERE}/gone`));
main().catch(() => end("The program has ended."));
