"use strict";
const at = (id) => document.getElementById(id);
// What a column is filled in with, and how that is read; an empty field is left out of the row.
const ROLES = {
  text: { tag: "textarea", read: (text) => text },
  category: { read: (text) => text },
  number: { hint: "a number", mode: "decimal", read: number },
  date: { hint: "a date: 2024-01-31, or 2024-01-31 12:30", read: (text) => text.trim() },
  names: { tag: "textarea", hint: "one a line", read: lines },
  pairs: { tag: "textarea", hint: "one a line, name: number",
    read: (text) => Object.fromEntries(lines(text).map((line) => {
      const at = line.lastIndexOf(":");
      return at < 0 ? [line, 1] : [line.slice(0, at).trim(), number(line.slice(at + 1))];
    })) },
  vector: { tag: "textarea", hint: "numbers, with blanks between",
    read: (text) => text.split(/[\s,;[\]]+/).filter((x) => x).map(number) },
};
// One field for all of a row: of a model without columns, or of more columns than a form shows.
const WHOLE = {
  fields: ["Row", "a JSON object with a value for each column; some may be left out"],
  features: ["Features", "names with blanks between; or JSON: values by name, a list of names, "
    + "or a list of numbers for a model of a matrix"],
};
const MOST_FIELDS = 40, REASONS = 3;
let models = [], inputs = [];

function made(tag, text, kind) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  return element;
}

function chosen() { return models.find((one) => one.name === at("model").value); }

function number(text) {
  return text.trim() && Number.isFinite(Number(text)) ? Number(text) : text.trim();
}

function lines(text) { return text.split("\n").map((one) => one.trim()).filter((one) => one); }

function field(name, hint, tag, mode) {
  const label = made("label", `${name} `), input = made(tag || "input");
  label.htmlFor = input.id = `field-${at("fields").children.length}`;
  if (hint) label.append(made("small", hint));
  if (!tag) input.type = "text";
  if (mode) input.inputMode = mode;
  input.spellcheck = false;
  input.autocomplete = input.autocapitalize = "off";
  at("fields").append(label, input);
  return input;
}

function whole(model) {
  return model.rows === "features" || model.columns.length > MOST_FIELDS;
}

function choose() {
  const model = chosen();
  at("about").textContent = `${model.classes.toLocaleString("en")} classes, `
    + `${model.features.toLocaleString("en")} features, version ${model.version}`;
  at("fields").replaceChildren();
  at("fields").className = whole(model) ? "json" : "";
  if (whole(model)) inputs = [[null, field(...WHOLE[model.rows], "textarea")]];
  else inputs = model.columns.map((column) => {
    const { hint, tag, mode } = ROLES[column.role];
    return [column, field(column.name, hint, tag, mode)];
  });
  at("answer").replaceChildren();
}

function row(model) {
  const text = inputs[0][1].value;
  if (whole(model)) {
    const json = /^\s*[[{]/.test(text);
    if (model.rows === "fields") return JSON.parse(text);
    return { features: json ? JSON.parse(text) : text.split(/\s+/).filter((name) => name) };
  }
  if (model.rows === "text") return text;
  return Object.fromEntries(inputs.filter(([, input]) => input.value.trim())
    .map(([column, input]) => [column.name, ROLES[column.role].read(input.value)]));
}

function wrong(text) { at("answer").replaceChildren(made("div", text, "wrong")); }

function percent(share) {
  return share < 1e-6 ? "< 0.0001 %" : `${Number((100 * share).toPrecision(3))} %`;
}

function signed(x) { return `${x < 0 ? "\u2212" : "+"}${Math.abs(x).toPrecision(3)}`; }

function coloured(text, space, why) {
  const letters = Array.from(text), own = letters.map(() => 0), line = made("p", undefined, "text");
  line.tabIndex = letters.length > 1000 ? 0 : -1;
  for (const part of why.contributions) {
    const here = [`${space}^`, `${space}:chars^`].some((s) => String(part.feature).startsWith(s));
    for (const [from, to] of here && part.places || [])
      for (let i = from; i < to; i++) own[i] += part.contribution / part.places.length;
  }
  const most = Math.max(...own.map(Math.abs), 1e-9);
  for (let i = 0, j; i < letters.length; i = j) {
    for (j = i + 1; j < letters.length && own[j] === own[i];) j++;
    const piece = letters.slice(i, j).join("");
    if (own[i]) {
      const mark = made("mark", piece, own[i] < 0 ? "down" : "");
      mark.style.setProperty("--share", `${8 + 52 * Math.abs(own[i]) / most}%`);
      mark.title = signed(own[i]);
      line.append(mark);
    } else line.append(piece);
  }
  return line;
}

// The texts of a row, each once, coloured by what they do for a label.
function texts(model, given, why) {
  const found = [];
  for (const column of model.columns) {
    const text = typeof given === "string" ? given : given[column.name];
    if (column.role === "text" && typeof text === "string")
      found.push(coloured(text, column.name.replaceAll("^", "_"), why));
  }
  return found;
}

function reason(model, why) {
  const box = made("div", undefined, "why");
  for (const part of why.contributions) {
    const text = `${part.feature} ${signed(part.contribution)}`;
    box.append(made("span", text, part.contribution < 0 ? "part down" : "part"));
  }
  const rest = Object.entries(why.lines).filter(([, x]) => x).map(([n, x]) => `${n} ${signed(x)}`);
  box.append(made("div", `${[...rest, `in all ${signed(why.score)}`].join(", ")} (${model.scores})`,
    "note"));
  return box;
}

function shown(model, body, found, seconds) {
  const best = found.predictions[0], probable = body.probabilities;
  const table = made("table"), head = table.createTHead().insertRow(), rows = table.createTBody();
  for (const [text, kind] of [["", "rank"], ["label", ""],
    [probable ? "probability" : "score", "score"]]) head.append(made("th", text, kind));
  const why = best.explanations, read = made("div");
  const choices = [];
  function read_for(i) {
    read.replaceChildren(...texts(model, body.rows[0], why[i]));
    choices.forEach((one, j) => one.setAttribute("aria-pressed", i === j));
  }
  const [most, least] = [Math.max(...best.scores), Math.min(...best.scores)];
  best.labels.forEach((label, i) => {
    const score = best.scores[i], line = rows.insertRow(), cell = made("td");
    line.className = why ? "head" : "";
    const bar = made("div", undefined, "bar");
    const share = probable ? score : most > least ? .05 + .95 * (score - least) / (most - least) : 1;
    bar.style.width = `${100 * share}%`;
    const title = best.titles && best.titles[i];
    const name = made(why ? "button" : "div", title || String(label));
    if (why) {
      name.type = "button";
      name.title = "colour the text by what it does for this label";
      name.addEventListener("click", () => read_for(i));
      choices.push(name);
    }
    cell.append(name);
    if (title) cell.append(made("div", String(label), "name"));
    cell.append(bar);
    const plain = Math.abs(score) >= 1e-3 && Math.abs(score) < 1e6 || score === 0;
    const text = probable ? percent(score) : plain ? score.toPrecision(5) : score.toExponential(2);
    line.append(made("td", String(i + 1), "rank"), cell, made("td", text, "score"));
    if (why) {
      const wide = rows.insertRow().insertCell();
      wide.colSpan = 3;
      wide.append(reason(model, why[i]));
    }
  });
  const unknown = best.unknown === 0 ? "all features are known" : best.unknown === 1
    ? "1 feature is not known to the model"
    : `${best.unknown.toLocaleString("en")} features are not known to the model`;
  const details = made("details"), path = `${location.origin}/models/${model.name}/predict`;
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  details.append(made("summary", "The same with curl"), made("pre", `curl ${path} -d '${quoted}'`));
  const note = made("p", `${unknown}; ${(1000 * seconds).toFixed(0)} ms`, "note");
  if (why && why.length) read_for(0);
  at("answer").replaceChildren(read, table, note, details);
  if (at("answer").getBoundingClientRect().bottom > innerHeight) at("answer").scrollIntoView();
}

async function ask(event) {
  event.preventDefault();
  const model = chosen();
  let body;
  try {
    body = { rows: [row(model)], k: Number(at("k").value),
      probabilities: at("probable").checked };
    if (at("why").checked) body.explain = REASONS;
  } catch (error) {
    wrong(`The row is no JSON: ${error.message}`);
    return;
  }
  at("ask").disabled = true;
  try {
    const begun = performance.now();
    const answer = await fetch(`models/${model.name}/predict`, { method: "POST",
      headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    const found = await answer.json();
    if (answer.ok) shown(model, body, found, (performance.now() - begun) / 1000);
    else wrong(found.error);
  } catch (error) {
    wrong(`There is no answer: ${error.message}`);
  } finally {
    at("ask").disabled = false;
  }
}

at("form").addEventListener("submit", ask);
at("fields").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
});
at("model").addEventListener("change", choose);
fetch("models").then((answer) => answer.json()).then((found) => {
  models = found.models;
  at("model").replaceChildren(...models.map((one) => made("option", one.name)));
  choose();
}).catch((error) => wrong(`The models cannot be listed: ${error.message}`));
