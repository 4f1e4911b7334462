import { Backend } from "./backend.js";
import { Ladder } from "./ladder.js";

const secret = location.hash.slice(1);
history.replaceState(null, "", location.pathname);
const backend = await Backend.open(secret);
const ladder = new Ladder({
  text: (n) => backend.ask("text", { n }),
  find: async (text) => (await backend.ask("find", { text })).found,
});
document.getElementById("side").append(ladder.node);
for (let after = 0, state = 0; ; ) {
  const found = await backend.ask("watch", { after, state });
  ladder.add(found.entries, found.dropped);
  after = found.entries.at(-1)?.n ?? after;
  state = found.number ?? state;
}
