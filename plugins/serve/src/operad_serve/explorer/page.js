// The page: the list, one operation, the system.

import { TokenRequired, documentFile, exact, found, load, pretty, reload, server } from "./app.js";
import { example, returns, rules, snippets } from "./about.js";
import { call } from "./calls.js";
import { element, inputForm } from "./forms.js";

const at = (id) => document.getElementById(id);
const main = at("main");
const MANY = 40;
let running = null;

// --- the list -----------------------------------------------------------------------------------

function drawList() {
  const query = at("search").value.trim();
  const operations = found(query);
  const groups = new Map();
  for (const operation of operations) {
    if (!groups.has(operation.namespace)) groups.set(operation.namespace, []);
    groups.get(operation.namespace).push(operation);
  }
  const open = query !== "" || server.operations.length <= MANY;
  at("list").replaceChildren(...[...groups].map(([namespace, members]) =>
    element("details", { open: open || members.some((member) => member.id === current()) },
      element("summary", {}, `${namespace} `, element("span", {}, String(members.length))),
      element("ul", {}, ...members.map((member) => element("li", {}, link(member)))))));
  at("found").textContent = query ? `${operations.length} of ${server.operations.length} operations` : `${operations.length} operations`;
}

function link(operation) {
  return element("a", { href: `#/operation/${encodeURIComponent(operation.id)}`, class: operation.deprecated ? "old" : "",
    "aria-current": operation.id === current() ? "page" : undefined, title: operation.title || undefined },
  element("span", { class: `kind ${operation.type}`, role: "img", "aria-label": operation.type }, operation.type[0].toUpperCase()),
  element("span", {}, operation.name));
}

function current() {
  const match = /^#\/operation\/(.+)$/.exec(location.hash);
  return match ? decodeURIComponent(match[1]) : null;
}

// --- one operation ------------------------------------------------------------------------------

function drawOperation(operation) {
  const facts = element("p", { class: "about" }, element("b", { class: operation.type }, operation.type),
    operation.title ? element("span", {}, operation.title) : null, operation.deprecated ? element("span", {}, "deprecated") : null,
    operation.scopes ? element("span", {}, `needs ${operation.scopes}`) : null);
  const result = element("section", { class: "card", "aria-label": "Result", hidden: true });
  const parts = [backLink(), element("h1", { tabindex: "-1" }, operation.id), facts];
  if (operation.description && operation.description !== operation.title) {
    parts.push(element("p", { class: "description", tabindex: "0", role: "region", "aria-label": "Description" }, operation.description));
  }
  main.replaceChildren(...parts, element("div", { class: "work" }, inputCard(operation, result), element("div", {}, result, returns(operation), rules(operation))));
}

function backLink() {
  return element("a", { class: "back", href: "#/" }, "← All operations");
}

function inputCard(operation, result) {
  const fields = inputForm(operation.schema);
  const whole = element("textarea", { class: "whole", id: "whole", spellcheck: "false", "aria-describedby": "whole-wrong" });
  const wrong = element("p", { class: "wrong", id: "whole-wrong", role: "alert", hidden: true });
  whole.value = fields ? "{}" : pretty(example(operation.schema));
  const panels = {
    form: element("div", { role: "tabpanel", id: "panel-form", "aria-labelledby": "tab-form" }, fields ? fields.element : ""),
    json: element("div", { role: "tabpanel", id: "panel-json", "aria-labelledby": "tab-json", class: "field" }, element("label", { for: "whole" }, "Input ", element("span", {}, "JSON")), whole, wrong),
  };
  let mode = fields ? "form" : "json";
  const readJSON = () => {
    wrong.hidden = true;
    whole.removeAttribute("aria-invalid");
    try { return { value: exact(whole.value) }; } catch (error) {
      wrong.textContent = `Not JSON: ${error.message}`;
      wrong.hidden = false;
      whole.setAttribute("aria-invalid", "true");
      whole.focus();
      return null;
    }
  };
  const read = () => {
    if (mode === "json") return readJSON();
    try { return { value: fields.read(false) }; } catch {
      const wrong = panels.form.querySelector("[aria-invalid]");
      if (wrong) wrong.focus();
      return null;
    }
  };
  const tabs = Object.keys(panels).filter((name) => name === "json" || fields).map((name) => element("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, onclick: () => choose(name), onkeydown: arrows,
  }, name === "form" ? "Form" : "JSON"));
  function choose(name) {
    if (name !== mode) {
      const got = mode === "json" ? readJSON() : { value: fields.read(true) };
      if (!got) return;
      if (name === "json") whole.value = pretty(got.value);
      else if (!fields.fill(got.value)) {
        wrong.textContent = "The form lacks fields for this input; edit it as JSON.";
        wrong.hidden = false;
        return;
      }
    }
    mode = name;
    for (const tab of tabs) {
      const selected = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", String(selected));
      tab.tabIndex = selected ? 0 : -1;
    }
    for (const [key, panel] of Object.entries(panels)) panel.hidden = key !== name;
  }
  function arrows(event) {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key) || tabs.length < 2) return;
    event.preventDefault();
    choose(mode === "form" ? "json" : "form");
    at(`tab-${mode}`).focus();
  }
  function fillExample() {
    const value = example(operation.schema);
    if (mode === "form" && fields.fill(value)) return;
    whole.value = pretty(value);
    mode = "json";
    choose("json");
  }
  const elsewhere = element("details", { class: "elsewhere", ontoggle: drawSnippets }, element("summary", {}, "Call it from elsewhere"), element("div", {}));
  function drawSnippets() {
    if (!elsewhere.open) return;
    let value;
    try { value = mode === "json" ? exact(whole.value) : fields.read(true); } catch { return; }
    elsewhere.lastChild.replaceChildren(...Object.entries(snippets(operation, value, server.state.guarded)).map(([name, text]) =>
      element("div", {}, element("div", { class: "actions" }, element("b", {}, name), copyButton(text, `Copy for ${name}`)),
        element("pre", { tabindex: "0", role: "region", "aria-label": name }, text))));
  }
  const stream = operation.type === "subscription";
  const go = element("button", { type: "submit", class: "primary" }, stream ? "Subscribe" : "Call");
  const stop = element("button", { type: "button", disabled: true, onclick: () => running && running.abort() }, "Stop");
  const form = element("form", { class: "card", "aria-label": "Input", novalidate: true, onsubmit: async (event) => {
    event.preventDefault();
    const got = read();
    if (got) await run(operation, got.value, result, go, stop);
  } }, element("div", { class: "tabs", role: "tablist", "aria-label": "Input as" }, ...tabs), panels.form, panels.json,
  element("div", { class: "actions" }, go, stop, element("button", { type: "button", onclick: fillExample }, "Example"),
    element("span", { class: "note" }, "Ctrl + Enter")), elsewhere);
  form.addEventListener("change", drawSnippets);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form.requestSubmit(); }
  });
  choose(mode);
  return form;
}

function copyButton(text, label) {
  const button = element("button", { type: "button", class: "small", "aria-label": label, onclick: async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Select the text to copy it"; }
  } }, "Copy");
  return button;
}

async function run(operation, input, result, go, stop) {
  if (running) running.abort();
  const mine = running = new AbortController();
  result.hidden = false;
  const holder = element("div", { "aria-live": "polite" }, element("p", { class: "empty" }, "Waiting …"));
  result.replaceChildren(element("h2", {}, "Result"), holder);
  go.disabled = true;
  stop.disabled = false;
  try {
    await call(operation, input, holder, mine.signal);
  } catch (error) {
    const words = mine.signal.aborted ? "Stopped." : `The server cannot be reached: ${error.message}`;
    holder.replaceChildren(element("p", { class: mine.signal.aborted ? "empty" : "wrong", role: "status" }, words));
  } finally {
    go.disabled = false;
    stop.disabled = true;
    if (running === mine) running = null;
  }
}

// --- the system ---------------------------------------------------------------------------------

function drawSystem() {
  const { state } = server;
  const parts = [backLink(), element("h1", { class: "plain", tabindex: "-1" }, "System")];
  if (!state.manages) {
    parts.push(element("p", { class: "empty" }, `You need a token with the scope ${state.adminScope} to see plugins and sources.`));
  } else {
    parts.push(element("h2", {}, "Sources"), table(["Name", "Type", "State", "Operations", ""], state.sources.map((source) => [
      source.name, source.type, stateOf(source), String(source.operations), reloadButton(source.name)]), "No source is loaded: the operations were registered by the application."));
    const held = state.sources.flatMap((source) => Object.entries(source.held));
    if (held.length) {
      parts.push(element("h2", {}, "Held operations"), element("p", {}, "Calls of these operations are refused until you accept what has changed."),
        table(["Operation", "Reason"], held.map(([id, reason]) => [id, element("span", { class: "why" }, reason)])));
    }
    parts.push(element("h2", {}, "Plugins"), table(["Name", "Distribution", "State", "Contributes"], state.plugins.map((plugin) => [
      plugin.name, [plugin.distribution, plugin.version].filter(Boolean).join(" "), stateOf(plugin),
      Object.entries(plugin.contributes).map(([kind, names]) => `${kind.replaceAll("_", " ")}: ${names.join(", ")}`).join("; ")]), "No plugin is loaded."));
  }
  main.replaceChildren(...parts);
}

function stateOf(thing) {
  return element("span", {}, element("span", { class: `state-${thing.status}` }, thing.status), thing.error ? element("span", { class: "why" }, thing.error) : null);
}

function table(heads, rows, none) {
  if (!rows.length) return element("p", { class: "empty" }, none);
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": { Type: "Sources", Reason: "Held operations" }[heads[1]] || "Plugins" },
    element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((head) => head ? element("th", { scope: "col" }, head) : element("td")))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell)))))));
}

function reloadButton(name) {
  const told = element("span", { class: "why", role: "status" });
  const button = element("button", { type: "button", "aria-label": `Reload ${name}`, onclick: async () => {
    button.disabled = true;
    told.textContent = "";
    try {
      await reload(name);
      await refresh();
      const again = document.querySelector(`[aria-label="Reload ${CSS.escape(name)}"]`);
      if (again) again.focus();
    } catch (error) {
      told.textContent = error.message;
      button.disabled = false;
    }
  } }, "Reload");
  return element("span", {}, button, told);
}

// --- the start ----------------------------------------------------------------------------------

function drawStart() {
  const count = (type) => String(server.operations.filter((operation) => operation.type === type).length);
  const words = [["query", "queries"], ["mutation", "mutations"], ["subscription", "subscriptions"]];
  main.replaceChildren(element("h1", { class: "plain", tabindex: "-1" }, server.state.title),
    element("p", { class: "empty" }, server.operations.length ? "Choose an operation, or search for one." : "There are no operations that you may call."),
    element("ul", { class: "words" }, ...words.map(([type, word]) => element("li", {}, element("b", {}, count(type)), word))));
}

function route({ focus = true } = {}) {
  if (running) running.abort();
  const id = current();
  const operation = server.operations.find((each) => each.id === id);
  document.body.dataset.view = location.hash === "#/system" || operation ? "detail" : "list";
  if (location.hash === "#/system") drawSystem();
  else if (operation) drawOperation(operation);
  else if (id) main.replaceChildren(backLink(), element("h1", { class: "plain", tabindex: "-1" }, "Not found"), element("p", { class: "empty" }, `There is no operation ${id} that you may call.`));
  else drawStart();
  at("to-system").toggleAttribute("aria-current", location.hash === "#/system");
  for (const each of at("list").querySelectorAll("a")) {
    if (each.hash === location.hash) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  document.title = `${operation ? `${operation.id} · ` : ""}${server.state.title}`;
  main.scrollTop = 0;
  const heading = main.querySelector("h1");
  if (focus && heading && document.body.dataset.view === "detail") heading.focus({ preventScroll: true });
}

async function refresh() {
  await load();
  at("title").textContent = server.state.title;
  at("sign-in").hidden = !server.state.guarded;
  at("identity").textContent = server.state.identity ? `signed in as ${server.state.identity}` : "";
  drawList();
  route({ focus: false });
}

at("search").addEventListener("input", drawList);
at("search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") { event.target.value = ""; drawList(); }
  if (event.key === "Enter") {
    const first = at("list").querySelector("a");
    if (first) location.hash = first.hash;
  }
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); at("search").focus(); }
});
at("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  server.token = at("token").value.trim();
  try { await refresh(); } catch (error) {
    server.token = "";
    at("identity").textContent = error.message;
  }
});
at("to-document").addEventListener("click", async (event) => {
  if (!server.token) return;
  event.preventDefault();
  const link = element("a", { href: URL.createObjectURL(await documentFile()), download: "openapi.json" });
  link.click();
  URL.revokeObjectURL(link.href);
});
addEventListener("hashchange", () => server.document && route());

function askForToken() {
  at("sign-in").hidden = false;
  main.replaceChildren(element("h1", { class: "plain", tabindex: "-1" }, "Sign in"),
    element("p", { class: "empty" }, "This server requires a token. Enter it at the top of the page."));
  at("token").focus();
}

refresh().catch((error) => {
  if (error instanceof TokenRequired) askForToken();
  else main.replaceChildren(element("p", { class: "wrong", role: "alert" }, `The server cannot be asked: ${error.message}`));
});
