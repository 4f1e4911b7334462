// The search puts guides, and what has a name of its own, before the members of classes, before the names that no program
// imports, and before the pages that are looked up rather than read. Sphinx asks this of each result.
var Scorer = {
  score: ([docname, title, anchor, description, score]) => {
    if (/Python (attribute|method|property)/.test(description ?? "")) return score - 100;
    if (docname === "reference/signatures") return score - 50;
    return !description && /^(changes|conformance|decisions|reference)\b/.test(docname) ? score - 11 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
