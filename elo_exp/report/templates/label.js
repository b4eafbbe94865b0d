"use strict";
// Shows the comparisons one after the other, keeps what is said of them in the browser, and exports it. Texts of others
// enter the page as text nodes only.
const { page, annotator, items } = JSON.parse(document.querySelector("#data").textContent);
const CHOICES = { 1: "1", 2: "2", 0: "tie", x: "both bad", s: "skip" };
const place = ["elo_exp labels", page, annotator ?? 1].join(" ");
const at = (query) => document.querySelector(query);
let keeps = true;
let seconds = 0; // for which the comparison was looked at before `since`
let since = performance.now();

function restored() {
  try {
    const found = JSON.parse(localStorage.getItem(place));
    if (found && Array.isArray(found.labels)) return found;
  } catch {
    keeps = false;
  }
  const drawn = crypto.getRandomValues(new Uint8Array(8));
  return { browser: [...drawn].map((byte) => byte.toString(16).padStart(2, "0")).join(""), labels: [] };
}
const state = restored();

function keep() {
  try {
    localStorage.setItem(place, JSON.stringify(state));
  } catch {
    keeps = false;
  }
  at("#notice").textContent = "This browser does not keep your labels: export them before you close the page.";
  at("#notice").hidden = keeps;
}

function current() {
  const labelled = new Set(state.labels.map((label) => label.id));
  return items.find((item) => !labelled.has(item.id));
}

function fill(query, text) {
  at(query).hidden = text === null;
  at(`${query} .text`).textContent = text;
}

function show() {
  const item = current();
  const known = new Set(items.map((one) => one.id));
  const n = state.labels.filter((label) => known.has(label.id)).length;
  const skipped = state.labels.filter((label) => label.choice === "skip").length;
  at("#count").textContent = `${n} of ${items.length}`;
  at("#progress").value = n;
  at("#comparison").hidden = !item;
  at("#done").hidden = Boolean(item);
  at("#skipped").textContent = skipped ? `You skipped ${skipped} of them.` : "";
  at("#undo").disabled = at("#export").disabled = !state.labels.length;
  for (const button of document.querySelectorAll("[data-choice]")) button.disabled = !item;
  if (item) {
    at("#prompt").textContent = item.prompt;
    at("#prompt").classList.toggle("long", item.prompt.length > 240);
    fill("#reference", item.reference);
    fill("#expected", item.expected);
    at("#answer1").textContent = item.answers[0];
    at("#answer2").textContent = item.answers[1];
    at("#same").hidden = item.answers[0] !== item.answers[1];
  }
  scrollTo(0, 0);
  seconds = 0;
  since = performance.now();
}

function label(choice) {
  const item = current();
  if (!item) return;
  const looked = seconds + (performance.now() - since) / 1000;
  state.labels.push({ page, browser: state.browser, id: item.id, choice, seconds: Math.round(looked * 10) / 10 });
  keep();
  if (at("#rubric")) at("#rubric").open = false;
  show();
  at("#main").focus({ preventScroll: true });
}

function undo() {
  if (!state.labels.length) return;
  state.labels.pop();
  keep();
  show();
}

// Time counts while the page is seen.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) seconds += (performance.now() - since) / 1000;
  since = performance.now();
});

document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.toLowerCase();
  if (key === "u") undo();
  else if (Object.hasOwn(CHOICES, key)) label(CHOICES[key]);
});
for (const button of document.querySelectorAll("[data-choice]"))
  button.addEventListener("click", () => label(button.dataset.choice));
at("#undo").addEventListener("click", undo);

at("#export").addEventListener("click", () => {
  const text = state.labels.map((row) => `${JSON.stringify(row)}\n`).join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/jsonl" }));
  link.download = annotator === null ? "labels.jsonl" : `labels_${annotator}.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
});

keep();
show();
