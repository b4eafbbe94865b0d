"use strict";
const all = (query, root = document) => [...root.querySelectorAll(query)];

// A click on a heading sorts the leaderboard within each dimension.
function sortBy(heading) {
  const descending = heading.getAttribute("aria-sort") === "ascending";
  all("th", heading.parentNode).forEach((other) => other.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const value = (row) => {
    const text = row.children[heading.cellIndex].dataset.value;
    return isNaN(text) ? text : Number(text);
  };
  const compare = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0);
  for (const body of all("tbody", heading.closest("table"))) {
    const rows = all("tr[data-name]", body).sort(compare);
    body.append(...(descending ? rows.reverse() : rows));
  }
}
all("table.sortable thead button").forEach((button) =>
  button.addEventListener("click", () => sortBy(button.closest("th"))),
);

// The box above a long leaderboard filters it by name.
document.querySelector("#names")?.addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const row of all("tr[data-name]")) row.hidden = !row.dataset.name.toLowerCase().includes(wanted);
});

// The contents mark the section that is being read.
const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries.filter((some) => some.isIntersecting))
      for (const link of all("nav a"))
        if (link.hash === "#" + entry.target.id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
  },
  { rootMargin: "-10% 0px -80%" },
);
all("main section").forEach((section) => observer.observe(section));

// Print shows what is folded away.
addEventListener("beforeprint", () => all("main details").forEach((details) => (details.open = true)));
