// A recorded conversation, in a page that needs no server.

import { el, put, short } from "./dom.js";
import { Ladder } from "./ladder.js";

const { title, facts, entries, texts, dropped } = JSON.parse(document.getElementById("data").textContent);
const textOf = (number) => texts[number - dropped - 1] ?? "";
const recorded = new Ladder({
  text: async (number) => ({ text: textOf(number), entry: entries[number - dropped - 1] ?? {} }),
  find: async (words) => entries.map((entry) => entry.n).filter((number) => textOf(number).toLowerCase().includes(words.toLowerCase())),
});
recorded.follows = false;
document.title = `${short(title, 60)}: mcpio trace`;
put(document.getElementById("top"), el("h1", {}, "mcpio trace"), el("span", { class: "target" }, short(title)), el("span", { class: "status" }, short(facts)));
document.getElementById("side").append(recorded.node);
recorded.add(entries, dropped);
