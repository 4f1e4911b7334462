// The search puts pages and what has a name of its own before the members of classes. Sphinx asks this of each result.
var Scorer = {
  score: ([docname, title, anchor, description, score]) =>
    /Python (attribute|method|property)/.test(description ?? "") ? score - 100 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
