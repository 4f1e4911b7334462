// The page of the search. The index has what each word weighs in each place and on each page; this adds up the weights.
const stemmer = new EnglishStemmer();
const stopwords = new Set(INDEX.stopwords);
const JOINED = 0.5; // what two words weigh as one
const stem = (word) => stemmer.stemWord(word);

// As words() and adjacent() of docs/_ext/search_index.py.
function wordsOf(text) {
  const found = [];
  for (const [compound] of text.replace(/['’]\w\b/g, "").matchAll(/\w+(?:[-./:@]\w+)*/g)) {
    const pieces = compound.split(/[\W_]+|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/).filter(Boolean).map((piece) => piece.toLowerCase());
    if (pieces.length > 1) found.push(stem(pieces.join("")));
    found.push(...pieces.filter((piece) => !stopwords.has(piece)).map(stem));
  }
  return found;
}

function adjacent(text) {
  const stems = (text.match(/\w+/g) ?? []).map((word) => stem(word.toLowerCase()));
  return stems.slice(1).map((word, i) => stem(stems[i] + word));
}

// The word, or for one that no page has, such as half a word, the first that begins so.
function known(word) {
  if (Object.hasOwn(INDEX.words, word) || word.length < 3) return word;
  return Object.keys(INDEX.words).find((longer) => longer.startsWith(word)) ?? word;
}

// Adds a word to the sums of the numbers that have it: its weight there, and its own as far as it covers the query.
function add(sums, listed, factor, covers) {
  for (let i = 0; i < listed.length; i += 2) {
    const [score, covered] = sums.get(listed[i]) ?? [0, 0];
    sums.set(listed[i], [score + factor * listed[i + 1], covered + covers]);
  }
}

// The pages that have words of a query, the best first, and on each the numbers of its places, the best first.
function search(query) {
  const words = new Set(wordsOf(query).map(known).filter((word) => Object.hasOwn(INDEX.words, word)));
  const joined = new Set(adjacent(query).filter((word) => Object.hasOwn(INDEX.words, word) && !words.has(word)));
  const inPlaces = new Map(), inPages = new Map(), places = new Map();
  let all = 0;
  for (const word of [...words, ...joined]) {
    const [weight, ofPlaces, ofPages] = INDEX.words[word];
    const [factor, covers] = words.has(word) ? [1, weight] : [JOINED, 0];
    all += covers;
    add(inPlaces, ofPlaces, factor, covers);
    add(inPages, ofPages, factor, covers);
  }
  const score = (sums, number) => {
    const [sum, covered] = sums.get(number) ?? [0, 0];
    return sum * Math.sqrt(all ? covered / all : 1);
  };
  for (const place of inPlaces.keys()) {
    const [page] = INDEX.places[place];
    places.set(page, [...(places.get(page) ?? []), place]);
  }
  const found = [];
  for (const page of inPages.keys()) {
    const best = (places.get(page) ?? []).sort((a, b) => score(inPlaces, b) - score(inPlaces, a) || a - b);
    found.push({ page, places: best, score: score(inPages, page) + score(inPlaces, best[0]) });
  }
  return found.sort((a, b) => b.score - a.score || a.page - b.page);
}

// The form and the results. Arrow keys move from the words to the results and between them; Enter opens the first.
const form = document.querySelector(".search-form"), input = form.q, list = document.getElementById("search-results");
const SHOWN = 20, OTHERS = 3;

function element(name, className, text) {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

function link(place, text, className) {
  const [page, anchor] = INDEX.places[place];
  const made = element("a", className, text);
  made.href = `${INDEX.pages[page][0]}.html${anchor && `#${anchor}`}`;
  return made;
}

// A result: the page with the place that answers best, the first sentence of the place, and further places of the page.
function result({ page, places: [best, ...others] }) {
  const made = document.createElement("li"), [name, pageTitle] = INDEX.pages[page];
  const [, anchor, title, lead] = INDEX.places[best];
  made.append(link(best, anchor ? `${pageTitle} › ${title}` : pageTitle, "search-result"));
  if (/^(reference|decisions|conformance)\//.test(name)) made.append(element("span", "search-kind", name.split("/")[0]));
  if (lead) made.append(element("p", "search-context", lead));
  const also = element("p", "search-others", "");
  for (const place of others.filter((place) => INDEX.places[place][1]).slice(0, OTHERS)) also.append(link(place, INDEX.places[place][2], ""));
  if (also.children.length) made.append(also);
  return made;
}

function show() {
  const words = input.value.trim(), found = words ? search(words) : [];
  const count = found.length > SHOWN ? `The first ${SHOWN} of ${found.length} pages` : `${found.length} page${found.length === 1 ? "" : "s"}`;
  document.querySelector(".search-count").textContent = words && count;
  list.replaceChildren(...found.slice(0, SHOWN).map(result));
  history.replaceState(null, "", words ? `?q=${encodeURIComponent(words)}` : location.pathname);
}

form.onsubmit = (event) => {
  event.preventDefault();
  list.querySelector("a")?.click();
};
input.oninput = show;
document.addEventListener("keydown", (event) => {
  const stops = [input, ...list.querySelectorAll("a.search-result")], here = stops.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || here < 0) return;
  event.preventDefault();
  stops[here + step]?.focus();
});
input.value = new URLSearchParams(location.search).get("q") ?? "";
show();
