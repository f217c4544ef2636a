// A form for an input schema, and its value as JSON.

import { resolved } from "./app.js";

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Returns the schema of a nullable value without the null.
function withoutNull(schema) {
  const node = resolved(schema);
  if (!node || typeof node !== "object") return {};
  for (const keyword of ["anyOf", "oneOf"]) {
    const rest = (node[keyword] || []).filter((member) => (resolved(member) || {}).type !== "null");
    if (rest.length === 1) return { ...node, [keyword]: undefined, ...resolved(rest[0]) };
  }
  if (Array.isArray(node.type)) {
    const types = node.type.filter((type) => type !== "null");
    return { ...node, type: types.length === 1 ? types[0] : undefined };
  }
  return node;
}

function kindOf(node) {
  if (Array.isArray(node.enum) && node.enum.every((value) => ["string", "number", "boolean"].includes(typeof value))) return "choice";
  if (["string", "integer", "number", "boolean"].includes(node.type)) return node.type;
  if (node.type === "array" && ["string", "integer", "number"].includes(withoutNull(node.items || {}).type)) return "lines";
  return "json";
}

// Returns the fields of an object schema, or null if only JSON can express the input.
export function fieldsOf(schema) {
  const node = resolved(schema);
  if (!node || typeof node !== "object" || (node.type && node.type !== "object")) return null;
  if (node.anyOf || node.oneOf || node.allOf || node.if || node.not) return null;
  const required = new Set(node.required || []);
  return Object.entries(node.properties || {}).map(([name, raw]) => {
    const part = withoutNull(raw);
    return { name, node: part, kind: kindOf(part), required: required.has(name), description: part.description || "" };
  });
}

const HINTS = { lines: "One item a line.", json: "JSON." };

export function buildForm(fields) {
  const holder = element("div", { class: "fields" });
  for (const [index, field] of fields.entries()) {
    const id = `field-${index}`;
    const about = [field.description, HINTS[field.kind], limits(field.node)].filter(Boolean).join(" ");
    const common = { id, name: field.name, "aria-describedby": `${id}-hint ${id}-wrong`, "aria-required": field.required ? "true" : undefined };
    field.input = control(field, common);
    field.wrong = element("p", { class: "wrong", id: `${id}-wrong`, role: "alert", hidden: true });
    const word = field.kind === "lines" ? `${withoutNull(field.node.items).type}s` : field.kind === "choice" ? "one of" : field.kind;
    holder.append(element("div", { class: "field" },
      element("label", { for: id }, field.name, " ", element("span", {}, `${word}${field.required ? ", required" : ""}`)),
      element("p", { class: "hint", id: `${id}-hint`, hidden: !about }, about), field.input, field.wrong));
  }
  if (!fields.length) holder.append(element("p", { class: "empty" }, "This operation takes no input."));
  return holder;
}

function control(field, common) {
  const { node, kind } = field;
  const preset = node.default === undefined ? "" : typeof node.default === "string" ? node.default : JSON.stringify(node.default);
  if (kind === "choice" || kind === "boolean") {
    const values = kind === "boolean" ? [true, false] : node.enum;
    return element("select", common,
      element("option", { value: "" }, field.required ? "choose" : preset ? `default: ${preset}` : "not set"),
      ...values.map((value) => element("option", { value: JSON.stringify(value) }, String(value))));
  }
  const placeholder = preset ? `default: ${preset}` : undefined;
  if (kind === "lines" || kind === "json") return element("textarea", { ...common, rows: 3, spellcheck: "false", placeholder });
  const numeric = kind === "integer" ? "numeric" : kind === "number" ? "decimal" : undefined;
  return element("input", { ...common, type: "text", inputmode: numeric, placeholder, autocomplete: "off", spellcheck: "false" });
}

function limits(node) {
  const parts = [];
  if (node.format) parts.push(`Format ${node.format}.`);
  if (node.pattern) parts.push(`Pattern ${node.pattern}.`);
  if (node.minimum !== undefined) parts.push(`At least ${node.minimum}.`);
  if (node.maximum !== undefined) parts.push(`At most ${node.maximum}.`);
  return parts.join(" ");
}

function number(text, whole) {
  if (!/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(text)) throw new Error(`Expected ${whole ? "an integer" : "a number"}.`);
  return Number(text);
}

function valueOf({ kind, node, input }) {
  const text = input.value;
  if (kind === "choice" || kind === "boolean") return JSON.parse(text);
  if (kind === "integer" || kind === "number") return number(text.trim(), kind === "integer");
  if (kind === "lines") {
    const type = withoutNull(node.items).type;
    return text.split("\n").filter((line) => line !== "").map((line) => (type === "string" ? line : number(line.trim(), type === "integer")));
  }
  if (kind === "json") {
    try { return JSON.parse(text); } catch (error) { throw new Error(`Not JSON: ${error.message}`); }
  }
  return text;
}

// Returns the value of the form; null if a field is wrong, after marking it. With `partly`, leaves wrong fields out.
export function readForm(fields, { partly = false } = {}) {
  const value = Object.create(null); // in which __proto__ is an ordinary field
  let first = null;
  for (const field of fields) {
    field.wrong.hidden = true;
    field.input.removeAttribute("aria-invalid");
    const empty = field.input.value === "";
    try {
      if (empty && field.required && field.kind === "string") value[field.name] = "";
      else if (empty && field.required && field.kind === "lines") value[field.name] = [];
      else if (empty && field.required) throw new Error("A value is required.");
      else if (!empty) value[field.name] = valueOf(field);
    } catch (error) {
      if (partly) continue;
      field.wrong.textContent = error.message;
      field.wrong.hidden = false;
      field.input.setAttribute("aria-invalid", "true");
      first = first || field.input;
    }
  }
  if (first) first.focus();
  return first ? null : value;
}

// Fills the form with an object. Returns false if the form lacks a field for a part of it.
export function fillForm(fields, value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return false;
  const known = new Set(fields.map((field) => field.name));
  if (Object.keys(value).some((name) => !known.has(name))) return false;
  for (const field of fields) {
    const part = value[field.name];
    if (part === undefined) field.input.value = "";
    else if (field.kind === "string") field.input.value = typeof part === "string" ? part : JSON.stringify(part);
    else if (field.kind === "lines" && Array.isArray(part)) field.input.value = part.join("\n");
    else field.input.value = JSON.stringify(part);
  }
  return true;
}
