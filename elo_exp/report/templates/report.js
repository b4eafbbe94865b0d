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

// A link to a fold opens it.
function openTarget() {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (target && target.matches("details")) target.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();

// Print shows what is folded away.
addEventListener("beforeprint", () => all("main details").forEach((details) => (details.open = true)));

// The verdict viewer. Its data are gzip + base64 in an inert element, unpacked when it is first opened.
// Texts of others enter the page as text nodes only.
const OUTCOMES = ["a", "b", "tie", "flipped", "invalid"];
const say = (outcome) => (outcome === "flipped" ? "order changes the verdict" : outcome);
const FILTERS = ["dimension", "pair", "stratum", "outcome"];
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
  const name = (entrants, number) => (number < 2 ? `${entrants[number]} wins` : OUTCOMES[number]);
  const answer = (entrant, draw) => (draw ? `${entrant}\n${draw}` : entrant);
  return packed.rows.map(([id, dimension, a, b, outcome, orders, ...draws]) => {
    const prompt = Object.assign({ id }, packed.prompts[id]);
    const entrants = [a, b];
    const winner = OUTCOMES.indexOf(outcome);
    return {
      prompt,
      entrants,
      dimension,
      stratum: prompt.stratum,
      pair: entrants.toSorted().join("~"),
      answers: entrants.map((entrant, side) => prompt.answers[answer(entrant, draws[side])]),
      draw: packed.draws ? [`sample ${Math.max(...draws) + 1} of ${packed.draws}`] : [],
      winner,
      outcome: name(entrants, winner),
      orders: orders.map(([swapped, outcome, reason]) => {
        const winner = OUTCOMES.indexOf(outcome);
        return { first: entrants[swapped], winner, outcome: name(entrants, winner), reason };
      }),
    };
  });
}

// The comparisons that the filters, a prompt and a search leave.
function matching(wanted) {
  const filters = FILTERS.filter((filter) => wanted.get(filter));
  const prompt = wanted.get("prompt");
  const search = new RegExp((wanted.get("search") ?? "").replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
  const texts = (comparison) =>
    [comparison.prompt.id, comparison.prompt.text, comparison.prompt.reference, ...comparison.answers]
      .concat(comparison.orders.map((order) => order.reason));
  return data.filter(
    (comparison) =>
      filters.every((filter) => comparison[filter] === wanted.get(filter)) &&
      (!prompt || comparison.prompt.id === prompt) &&
      (!wanted.get("search") || texts(comparison).some((text) => text && search.test(text))),
  );
}

// A text as the judge saw it; of a conversation the turns have headings. No text can open or close a turn.
const TURN = /^<turn role="(\w+)"(?: of="([^"]*)")?>\n([^]*?)^<\/turn>$/gm;
function inTurns(text, paragraph) {
  const nodes = [];
  let end = 0;
  const between = (start) => text.slice(end, start).trim();
  for (const turn of text.matchAll(TURN)) {
    if (between(turn.index)) nodes.push(paragraph(between(turn.index)));
    const [whole, role, of, words] = turn;
    nodes.push(element("h5", { textContent: of ? `${role}: ${of}` : role }), paragraph(words.trimEnd()));
    end = turn.index + whole.length;
  }
  if (between()) nodes.push(paragraph(between()));
  return nodes;
}

// Markdown as elements. Every text enters as a text node, so HTML, images and links stay as they are written.
const FORMAT = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*/g;
function formatted(line) {
  const nodes = [];
  let end = 0;
  for (const mark of line.matchAll(FORMAT)) {
    const [whole, code, bold, italic] = mark;
    nodes.push(line.slice(end, mark.index));
    nodes.push(element(code ? "code" : bold ? "b" : "i", { textContent: code ?? bold ?? italic }));
    end = mark.index + whole.length;
  }
  return [...nodes, line.slice(end)];
}
const FENCE = /^\s*(```|~~~)/;
const HEADING = /^#{1,6}\s+(.*)/;
const ITEM = /^\s*(?:[-*+]|(\d{1,9})[.)])\s+(.*)/;
const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|");
function rendered(text) {
  const root = element("div", { className: "rendered" });
  const lines = text.split("\n");
  let open = null; // the list or the paragraph that the next line may belong to
  const start = (node) => root.appendChild((open = node));
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at];
    const fence = line.match(FENCE)?.[1];
    const item = line.match(ITEM);
    if (fence) {
      const begin = ++at;
      while (at < lines.length && !lines[at].trimStart().startsWith(fence)) at++;
      start(element("pre", {}, element("code", { textContent: lines.slice(begin, at).join("\n") })));
      open = null;
    } else if (!line.trim()) {
      open = open?.tagName === "P" ? null : open;
    } else if (HEADING.test(line)) {
      start(element("h5", {}, ...formatted(line.match(HEADING)[1])));
      open = null;
    } else if (item) {
      const kind = item[1] ? "OL" : "UL";
      if (open?.tagName !== kind) start(element(kind, item[1] ? { start: Number(item[1]) } : {}));
      open.append(element("li", {}, ...formatted(item[2])));
    } else if (line.trimStart().startsWith("|") && /^[\s|:-]*-[\s|:-]*$/.test(lines[at + 1] ?? "")) {
      const table = start(element("table", {}, element("tr", {}, ...cells(line).map((cell) => element("th", {}, ...formatted(cell))))));
      for (at += 2; lines[at]?.trimStart().startsWith("|"); at++)
        table.append(element("tr", {}, ...cells(lines[at]).map((cell) => element("td", {}, ...formatted(cell)))));
      at--;
      open = null;
    } else if (open?.tagName === "P") {
      open.append(element("br"), ...formatted(line));
    } else if (/^\s/.test(line) && open?.lastElementChild) {
      open.lastElementChild.append(element("br"), ...formatted(line.trim()));
    } else {
      start(element("p", {}, ...formatted(line)));
    }
  }
  return root;
}

// How often each outcome came in each stratum, for two entrants.
function tally(comparisons) {
  const strata = Map.groupBy(comparisons, (comparison) => comparison.stratum);
  return [...strata].flatMap(([stratum, some]) => {
    const counts = [...Map.groupBy(some, (comparison) => comparison.outcome)].toSorted();
    const words = counts.map(([outcome, these]) => `${these.length} ${say(outcome)}`).join(", ");
    const bars = counts.map(([, these]) => {
      const bar = element("i", { className: `outcome${these[0].winner}` });
      bar.style.flexGrow = these.length;
      return bar;
    });
    return [element("p", { className: "small" }, `${stratum}: ${words}`), element("div", { className: "shares" }, ...bars)];
  });
}

function list(wanted) {
  listed = matching(wanted);
  document.querySelector("#count").textContent = `${listed.length} of ${data.length} comparisons`;
  document.querySelector("#tally").replaceChildren(...(wanted.get("pair") ? tally(listed) : []));
  const items = listed.slice(0, MOST_LISTED).map((comparison, index) =>
    element("li", {}, element("button", { onclick: () => show(index) },
      element("b", { title: comparison.prompt.id, textContent: comparison.prompt.text ?? comparison.prompt.id }),
      element("small", { textContent: [comparison.dimension, comparison.entrants.join(" against "), ...comparison.draw].join(" · ") }),
      element("em", { className: `outcome${comparison.winner}`, textContent: say(comparison.outcome) }),
    )),
  );
  const more = listed.length - items.length;
  if (more > 0) items.push(element("li", { className: "small", textContent: `${more} more: use a filter, or press j` }));
  document.querySelector("#list").replaceChildren(...items);
  if (listed.length) show(0);
  else document.querySelector("#one").replaceChildren("No comparison matches these filters.");
}

function show(index) {
  position = Math.min(Math.max(index, 0), listed.length - 1);
  const { prompt, entrants, dimension, stratum, pair, winner, outcome, answers, draw, orders } = listed[position];
  all("#list button").forEach((button, at) => button.setAttribute("aria-current", at === position));
  document.querySelector("#list button[aria-current=true]")?.scrollIntoView({ block: "nearest" });
  const absent = "This text is not in the page. See the folders next to it.";
  const isTalk = (text) => prompt.in_turns && text?.startsWith("<turn ");
  const paragraph = (text) => element("p", { className: "text", textContent: text ?? absent });
  document.querySelector("#one").replaceChildren(
    element("p", { className: "small", textContent: [prompt.id, stratum, dimension, ...draw].join(" · ") }),
    ...(isTalk(prompt.text) ? inTurns(prompt.text, paragraph) : [element("h3", { className: "text", textContent: prompt.text ?? absent })]),
    ...(prompt.reference ? [element("p", { className: "notice text", textContent: `Reference: ${prompt.reference}` })] : []),
    element("h4", { textContent: `Verdict: ${say(outcome)}` }),
    element("ol", {}, ...orders.map((order) =>
      element("li", {},
        element("b", { textContent: order.first ? `${order.first} first (answer A) → ` : "" }),
        element("em", { className: `outcome${order.winner}`, textContent: order.outcome }),
        paragraph(order.reason === "" ? "No reason given." : order.reason),
      ),
    )),
    element("div", { className: "two" }, ...entrants.map((entrant, side) =>
      element("article", { className: winner === side ? "answer won" : "answer" },
        element("h4", { textContent: entrant + (winner === side ? " wins" : "") }),
        ...(isTalk(answers[side]) ? inTurns(answers[side], rendered) : [answers[side] ? rendered(answers[side]) : paragraph(answers[side])]),
      ),
    )),
  );
  document.querySelector("#one").scrollTop = 0;
  history.replaceState(null, "", `#${[prompt.id, pair, dimension].map(encodeURIComponent).join("/")}`);
}

// The address names a comparison, #prompt/pair/dimension, or filters, #?dimension=d&pair=a~b
function wantedByAddress() {
  if (location.hash.startsWith("#?")) return new URLSearchParams(location.hash.slice(2));
  const parts = location.hash.slice(1).split("/");
  if (parts.length !== 3) return null;
  const [prompt, pair, dimension] = parts.map(decodeURIComponent);
  return new URLSearchParams({ prompt, pair, dimension });
}

async function route() {
  const wanted = wantedByAddress();
  if (!wanted) return;
  const form = document.querySelector("#filters");
  if (!data) {
    data = await unpack();
    for (const filter of FILTERS)
      for (const value of [...new Set(data.map((comparison) => comparison[filter]))].sort())
        form.elements[filter].append(element("option", { value, textContent: say(value.replace("~", " against ")) }));
  }
  const pair = wanted.get("pair");
  const known = data.find(({ entrants: [a, b] }) => [`${a}~${b}`, `${b}~${a}`].includes(pair));
  if (known) wanted.set("pair", known.pair);
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
