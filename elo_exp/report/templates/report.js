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

// The verdict viewer. Its data are gzip + base64 in an inert element, unpacked when it is first opened.
// Texts of others enter the page as text nodes only.
const OUTCOMES = ["a", "b", "tie", "flipped", "invalid"];
const FILTERS = ["dimension", "a", "b", "stratum", "outcome"];
const MOST_LISTED = 300;
const island = document.querySelector("#verdict-data");
const viewer = document.querySelector("#viewer");
let data;
let listed = [];
let position = 0;

function element(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

async function unpack() {
  const bytes = Uint8Array.from(atob(island.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const packed = JSON.parse(await new Response(stream).text());
  const comparisons = packed.rows.map(([prompt, dimension, a, b, outcome, orders]) => ({
    prompt: packed.prompts[prompt],
    dimension: packed.dimensions[dimension],
    entrants: [packed.entrants[a], packed.entrants[b]],
    answers: [a, b].map((entrant) => packed.prompts[prompt].answers?.[entrant]),
    outcome,
    orders: orders.map(([swapped, winner, reason]) => ({ swapped, winner, reason: packed.reasons[reason] })),
  }));
  return { ...packed, comparisons };
}

const name = (comparison, outcome) =>
  outcome < 2 ? `${comparison.entrants[outcome]} wins` : OUTCOMES[outcome];

function matches(comparison, wanted) {
  const [a, b] = comparison.entrants;
  const text = wanted.get("search")?.toLowerCase();
  return (
    (!wanted.get("dimension") || comparison.dimension === wanted.get("dimension")) &&
    [wanted.get("a"), wanted.get("b")].every((entrant) => !entrant || entrant === a || entrant === b) &&
    (!wanted.get("stratum") || comparison.prompt.stratum === wanted.get("stratum")) &&
    (!wanted.get("prompt") || comparison.prompt.id === wanted.get("prompt")) &&
    (!wanted.get("outcome") || name(comparison, comparison.outcome) === wanted.get("outcome")) &&
    (!text || [comparison.prompt.id, comparison.prompt.text, comparison.prompt.reference, ...comparison.answers]
      .concat(comparison.orders.map((order) => order.reason))
      .some((some) => some?.toLowerCase().includes(text)))
  );
}

// How each stratum was decided, once two entrants are chosen.
function tally(comparisons) {
  const strata = new Map();
  for (const { prompt, outcome, entrants } of comparisons) {
    if (!strata.has(prompt.stratum)) strata.set(prompt.stratum, new Map());
    const counts = strata.get(prompt.stratum);
    const key = outcome < 2 ? `${entrants[outcome]} wins` : OUTCOMES[outcome];
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...strata].map(([stratum, counts]) =>
    element("p", { className: "small" }, `${stratum}: ${[...counts].map(([key, n]) => `${n} ${key}`).join(", ")}`),
  );
}

function list(wanted) {
  listed = data.comparisons.filter((comparison) => matches(comparison, wanted));
  document.querySelector("#count").textContent = `${listed.length} of ${data.comparisons.length} comparisons`;
  document.querySelector("#tally").replaceChildren(...(wanted.get("a") && wanted.get("b") ? tally(listed) : []));
  const items = listed.slice(0, MOST_LISTED).map((comparison, index) =>
    element("li", {}, element("button", { onclick: () => show(index) },
      element("b", { textContent: comparison.prompt.id }),
      element("small", { textContent: `${comparison.dimension} · ${comparison.entrants.join(" v ")}` }),
      element("em", { className: `outcome${comparison.outcome}`, textContent: name(comparison, comparison.outcome) }),
    )),
  );
  const more = listed.length - items.length;
  if (more > 0) items.push(element("li", { className: "small", textContent: `${more} more: filter, or step on with j` }));
  document.querySelector("#list").replaceChildren(...items);
  if (listed.length) show(0);
  else document.querySelector("#one").replaceChildren("No comparison matches these filters.");
}

function show(index) {
  position = Math.min(Math.max(index, 0), listed.length - 1);
  const comparison = listed[position];
  all("#list button").forEach((button, at) => button.setAttribute("aria-current", at === position));
  document.querySelector("#list button[aria-current=true]")?.scrollIntoView({ block: "nearest" });
  const absent = "This text is not in the page; see responses/ beside it.";
  const answers = comparison.entrants.map((entrant, side) =>
    element("article", { className: comparison.outcome === side ? "answer won" : "answer" },
      element("h4", { textContent: entrant + (comparison.outcome === side ? " wins" : "") }),
      element("p", { className: "text", textContent: comparison.answers[side] ?? absent }),
    ),
  );
  const orders = comparison.orders.map((order) =>
    element("li", {},
      element("b", { textContent: `${comparison.entrants[order.swapped]} shown first (A) → ` }),
      element("em", { className: `outcome${order.winner}`, textContent: name(comparison, order.winner) }),
      element("p", { className: "text", textContent: order.reason || "No reason given." }),
    ),
  );
  const { reference } = comparison.prompt;
  document.querySelector("#one").replaceChildren(
    element("p", { className: "small", textContent: [comparison.prompt.id, comparison.prompt.stratum, comparison.dimension].join(" · ") }),
    element("h3", { className: "text", textContent: comparison.prompt.text ?? comparison.prompt.id }),
    ...(reference ? [element("p", { className: "notice text", textContent: `Reference: ${reference}` })] : []),
    element("div", { className: "two" }, ...answers),
    element("h3", { textContent: `Judge: ${name(comparison, comparison.outcome)}` }),
    element("ol", {}, ...orders),
  );
  document.querySelector("#one").scrollTop = 0;
  const [a, b] = comparison.entrants;
  const link = new URLSearchParams({ prompt: comparison.prompt.id, dimension: comparison.dimension, a, b });
  history.replaceState(null, "", `#?${link}`);
}

// The address names the filters: #?dimension=d&a=one&b=other&prompt=id
async function route() {
  if (!island || !location.hash.startsWith("#?")) return;
  const form = document.querySelector("#filters");
  if (!data) {
    data = await unpack();
    const values = {
      dimension: data.dimensions,
      a: data.entrants,
      b: data.entrants,
      stratum: new Set(data.prompts.map((prompt) => prompt.stratum)),
      outcome: new Set(data.comparisons.map((comparison) => name(comparison, comparison.outcome))),
    };
    for (const filter of FILTERS)
      for (const value of [...values[filter]].sort())
        form.elements[filter].append(element("option", { value, textContent: value }));
  }
  const wanted = new URLSearchParams(location.hash.slice(2));
  for (const filter of [...FILTERS, "search"]) form.elements[filter].value = wanted.get(filter) ?? "";
  if (!viewer.open) viewer.showModal();
  list(wanted);
}

if (island) {
  all("[data-viewer]").forEach((links) => (links.hidden = false));
  const form = document.querySelector("#filters");
  form.addEventListener("input", () => list(new URLSearchParams(new FormData(form))));
  form.addEventListener("submit", (event) => event.preventDefault());
  document.querySelector("#close").addEventListener("click", () => viewer.close());
  viewer.addEventListener("close", () => history.replaceState(null, "", "#verdicts"));
  viewer.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select")) return;
    const step = { j: 1, ArrowDown: 1, ArrowRight: 1, k: -1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step) show(position + step);
    if (event.key === "/") form.elements.search.focus();
    if (step || event.key === "/") event.preventDefault();
  });
  addEventListener("hashchange", route);
  route();
}
