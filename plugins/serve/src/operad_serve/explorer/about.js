// What an operation takes and returns, an example of its input, and how to call it from elsewhere.

import { explainer, pretty, rulesOf } from "./app.js";
import { element, simple, typeWord } from "./forms.js";

const DEEPEST = 8;

// Returns a value that fits a schema: its example, default or first choice, else something of its type.
export function example(schema, depth = 0) {
  const node = simple(schema);
  for (const keyword of ["examples", "enum"]) if (Array.isArray(node[keyword]) && node[keyword].length) return node[keyword][0];
  for (const keyword of ["example", "const", "default"]) if (node[keyword] !== undefined) return node[keyword];
  const members = node.anyOf || node.oneOf;
  if (members && depth < DEEPEST) return example(members[0], depth + 1);
  if (node.properties || node.type === "object") {
    if (depth === DEEPEST) return {};
    const properties = node.properties || {};
    const wanted = depth === 0 ? Object.keys(properties).filter((name) => simple(properties[name]).default !== null) : node.required || [];
    return Object.fromEntries(wanted.map((name) => [name, example(properties[name], depth + 1)]));
  }
  if (node.type === "array") return node.items && depth < DEEPEST ? [example(node.items, depth + 1)] : [];
  const formats = { date: "2026-01-31", "date-time": "2026-01-31T12:00:00Z", time: "12:00:00Z", email: "a@example.com", uuid: "00000000-0000-4000-8000-000000000000", uri: "https://example.com" };
  return { string: formats[node.format] || "", integer: node.minimum || 0, number: node.minimum || 0, boolean: true }[node.type] ?? null;
}

// Returns the parts of a schema as a list. Parts of parts are drawn when they are opened: schemas may be recursive.
function outline(schema) {
  const node = simple(schema);
  const wanted = new Set(node.required || []);
  const rows = Object.entries(node.properties || {}).map(([name, part]) => row(name, part, wanted.has(name)));
  if (node.type === "array" && node.items) rows.push(row("each item", node.items, false));
  for (const [number, part] of (node.anyOf || node.oneOf || []).entries()) rows.push(row(`alternative ${number + 1}`, part, false));
  if (node.additionalProperties && typeof node.additionalProperties === "object") rows.push(row("any other name", node.additionalProperties, false));
  return element("ul", { class: "outline" }, ...rows);
}

function hasParts(node) {
  return Boolean(node.properties || node.anyOf || node.oneOf || (node.type === "array" && node.items && hasParts(simple(node.items))));
}

function row(name, schema, required) {
  const node = simple(schema);
  const line = [element("b", {}, name), " ", element("span", {}, `${typeWord(node)}${required ? ", required" : ""}`),
    node.enum ? element("span", {}, ` ${node.enum.map((value) => JSON.stringify(value)).join(", ")}`) : null,
    node.description ? element("span", {}, ` ${node.description}`) : null];
  return element("li", {}, ...(hasParts(node) ? [lazily(line, () => outline(node))] : line));
}

function lazily(head, draw, attributes = {}) {
  const made = element("details", { ...attributes, ontoggle: () => { if (made.open && made.children.length === 1) made.append(draw()); } },
    element("summary", {}, ...head));
  return made;
}

// Returns what an operation returns and the errors that it declares, each closed.
export function returns(operation) {
  const node = simple(operation.output);
  const parts = [];
  if (Object.keys(node).length) {
    const word = operation.type === "subscription" ? "Each item" : "Returns";
    parts.push(hasParts(node) ? lazily([`${word}: ${typeWord(node)}`], () => outline(node)) : element("p", {}, `${word}: ${typeWord(node)}`));
  }
  if (operation.errors.length) {
    parts.push(lazily([`Errors: ${[...new Set(operation.errors.map((each) => each.code))].join(", ")}`], () => element("ul", { class: "outline" },
      ...operation.errors.map((each) => element("li", {}, element("b", {}, each.code), each.httpStatus ? ` ${each.httpStatus}` : "", ` ${each.description || ""}`,
        each.schema ? outline(each.schema) : null)))));
  }
  return parts.length ? element("section", { class: "card about-output", "aria-label": "Result and errors" }, ...parts) : null;
}

// Returns the rules of an operation, closed. They are requested when they are opened: rules may apply to this request
// too, and reading a page must not use up a rate, write an audit or ask a person for approval.
export function rules(operation) {
  if (!explainer()) return null;
  return element("section", { class: "card rules", "aria-label": "Rules" },
    lazily([element("h2", {}, "Rules")], () => {
      const holder = element("div", { "aria-live": "polite" }, element("p", { class: "empty" }, "Loading …"));
      rulesOf(operation.id).then((found) => holder.replaceChildren(ruleList(found)))
        .catch((error) => holder.replaceChildren(element("p", { class: "empty" }, `The rules cannot be shown: ${error.message}`)));
      return holder;
    }));
}

function ruleList(found) {
  if (!found.length) return element("p", { class: "empty" }, "No rule applies.");
  return element("ol", {}, ...found.flatMap(({ rule, match, keys }) => Object.entries(keys).map(([key, value]) =>
    element("li", {}, element("b", {}, key), ` ${pretty(value, 0)} `, element("span", {}, `rule ${rule}: ${match.join(", ")}`)))));
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function python(value, depth = 0) {
  if (value === null || typeof value === "boolean") return { null: "None", true: "True", false: "False" }[String(value)];
  if (Array.isArray(value)) return `[${value.map((part) => python(part)).join(", ")}]`;
  if (typeof value === "object" && !(JSON.isRawJSON && JSON.isRawJSON(value))) {
    return `{${Object.entries(value).map(([name, part]) => `${JSON.stringify(name)}: ${python(part)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}

// Returns commands and code that make a call, by the name of the tool.
export function snippets(operation, input, guarded) {
  const url = new URL(operation.path, document.baseURI).href;
  const json = pretty(input, 0);
  const token = guarded ? " \\\n  -H \"Authorization: Bearer $TOKEN\"" : "";
  const headers = guarded ? ", headers={\"Authorization\": f\"Bearer {os.environ['TOKEN']}\"}" : "";
  return {
    curl: `curl ${quoted(url)} \\\n  -H 'Content-Type: application/json'${token} \\\n  -d ${quoted(json)}`,
    Python: `${guarded ? "import os\n\n" : ""}import httpx\n\nresponse = httpx.post(\n    ${JSON.stringify(url)},\n    json=${python(input)}${headers},\n)\nprint(response.raise_for_status().json())`,
    "operad call": `operad call ${quoted(operation.id)} --json ${quoted(json)}`,
  };
}
