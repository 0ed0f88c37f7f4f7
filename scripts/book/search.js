// Finds sections that have every word, or a word that begins with it. Titles come first.
"use strict";

const up = document.body.dataset.up;
const found = document.getElementById("found");
const most = 12;

function score(section, words) {
  let sum = 0;
  for (const w of words) {
    if (section.Title.toLowerCase().includes(w)) sum += 2;
    else if ((" " + section.Words).includes(" " + w)) sum += 1;
    else return 0;
  }
  return sum;
}

document.getElementById("q").addEventListener("input", (e) => {
  const words = e.target.value.toLowerCase().split(/\s+/).filter((w) => w);
  const hits = words.length ? sections.map((s) => [score(s, words), s]).filter((h) => h[0]) : [];
  hits.sort((a, b) => b[0] - a[0]);
  found.replaceChildren(...hits.slice(0, most).map(([, s]) => {
    const a = document.createElement("a");
    a.href = up + s.Page + "#" + s.Anchor;
    a.textContent = s.Title;
    const li = document.createElement("li");
    li.append(a);
    return li;
  }));
  if (words.length && !hits.length) found.textContent = "Nothing has all of these words.";
});
document.querySelector("form").addEventListener("submit", (e) => e.preventDefault());
