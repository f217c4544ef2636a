// A form for an input schema, and its value as JSON.
//
// A widget is { element, read(partly), fill(value) }: `read` returns a value, undefined for an empty one, and throws
// for a wrong one unless `partly`; `fill` returns false if the widget cannot show the value.

import { exact, pretty, resolved } from "./app.js";

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

const DEEPEST = 4;
let nextId = 0;

// Returns a schema without references, without an alternative null, and with the members of allOf.
export function simple(schema) {
  let node = resolved(schema);
  if (!node || typeof node !== "object") return {};
  if (Array.isArray(node.allOf)) {
    for (const part of node.allOf.map(simple)) {
      node = { ...part, ...node, properties: { ...part.properties, ...node.properties }, required: [...(part.required || []), ...(node.required || [])] };
    }
    if (!Object.keys(node.properties).length) delete node.properties;
  }
  for (const keyword of ["anyOf", "oneOf"]) {
    const rest = (node[keyword] || []).filter((member) => (resolved(member) || {}).type !== "null");
    if (rest.length === 1) return { ...simple(rest[0]), ...node, [keyword]: undefined };
  }
  if (Array.isArray(node.type)) {
    const types = node.type.filter((type) => type !== "null");
    return { ...node, type: types.length === 1 ? types[0] : undefined };
  }
  return node;
}

const isFile = (node) => node.contentEncoding === "base64" || node.format === "byte";
const isUpload = (node) => Boolean(node.properties && node.properties.base64 && node.properties.filename);
const variants = (node) => node.anyOf || node.oneOf;

function kindOf(node, depth) {
  if (Array.isArray(node.enum) && node.enum.every((value) => typeof value !== "object")) return "choice";
  if (isFile(node) || isUpload(node) || (variants(node) || []).some((each) => isUpload(simple(each)))) return "file";
  if (["string", "integer", "number", "boolean"].includes(node.type)) return node.type;
  if (variants(node) && depth < DEEPEST) return "variants";
  if (node.properties && depth < DEEPEST && !node.if && !node.not) return "object";
  if (node.type === "array" && node.items) {
    const item = simple(node.items);
    if (["string", "integer", "number"].includes(item.type) && !item.enum && !isFile(item)) return "lines";
    if (depth < DEEPEST) return "list";
  }
  return "json";
}

// Returns the name of a type in a word or two.
export function typeWord(schema) {
  const node = simple(schema);
  if ("const" in node) return JSON.stringify(node.const);
  if (node.enum) return "one of";
  if (isFile(node)) return "file";
  if (node.type === "array") return node.items ? `list of ${typeWord(node.items)}` : "list";
  if (variants(node)) return "alternatives";
  const name = node.title || node.type || "any value";
  return node.format && node.type === "string" ? node.format : name;
}

// Returns the widget of a whole input, or null if only JSON can express it.
export function inputForm(schema) {
  const node = simple(schema);
  return node.type && node.type !== "object" || variants(node) || node.if || node.not ? null : group(node, "", 0, true);
}

function widget(schema, { name, path, required, depth, removed }) {
  const node = simple(schema);
  const kind = kindOf(node, depth);
  const id = `field-${nextId++}`;
  const nested = { object: group, list, variants: choose }[kind];
  const head = [name, " ", element("span", {}, `${typeWord(node)}${required ? ", required" : ""}`)];
  const about = [node.description, { lines: "One item a line.", json: "JSON." }[kind], limits(node)].filter(Boolean).join(" ");
  const hint = element("p", { class: "hint", id: `${id}-hint`, hidden: !about }, about);
  if (nested) {
    const inner = nested(node, path, depth + 1, required);
    return { ...inner, element: element("fieldset", { class: "nested" }, element("legend", {}, ...head), hint, inner.element, removed) };
  }
  const wrong = element("p", { class: "wrong", id: `${id}-wrong`, role: "alert", hidden: true });
  const common = { id, name: path, "aria-describedby": `${id}-hint ${id}-wrong`, "aria-required": required ? "true" : undefined };
  const made = leaf(kind, node, common, required);
  const read = (partly) => {
    wrong.hidden = true;
    made.input.removeAttribute("aria-invalid");
    try {
      const value = made.read();
      if (value === undefined && required) {
        if (kind === "string") return "";
        if (kind === "lines") return [];
        throw new Error("A value is required.");
      }
      return value;
    } catch (error) {
      if (partly) return undefined;
      wrong.textContent = error.message;
      wrong.hidden = false;
      made.input.setAttribute("aria-invalid", "true");
      throw error;
    }
  };
  const label = element("label", { for: id }, ...head);
  return { read, fill: made.fill, element: element("div", { class: "field" }, label, hint, made.input, made.more || null, wrong, removed) };
}

// --- nested values --------------------------------------------------------------------------------

function group(node, path, depth, required) {
  const wanted = new Set(node.required || []);
  const fields = Object.entries(node.properties || {}).map(([name, schema]) =>
    [name, widget(schema, { name, path: path ? `${path}.${name}` : name, required: required && wanted.has(name), depth })]);
  const holder = element("div", { class: "fields" }, ...fields.map(([, field]) => field.element));
  if (!fields.length && depth === 0) holder.append(element("p", { class: "empty" }, "This operation takes no input."));
  return {
    element: holder,
    read(partly) {
      let failure = null;
      const value = {};
      for (const [name, field] of fields) {
        try {
          const part = field.read(partly);
          if (part !== undefined) value[name] = part;
        } catch (error) { failure = failure || error; }
      }
      if (failure) throw failure;
      return required || Object.keys(value).length ? value : undefined;
    },
    fill(value) {
      if (value === undefined) value = {};
      if (value === null || typeof value !== "object" || Array.isArray(value)) return false;
      const known = new Set(fields.map(([name]) => name));
      return Object.keys(value).every((name) => known.has(name)) && fields.every(([name, field]) => field.fill(value[name]));
    },
  };
}

function list(node, path, depth) {
  let items = [];
  const holder = element("div", { class: "fields" });
  function add() {
    const remove = element("button", { type: "button", class: "small", onclick: () => {
      items = items.filter((each) => each !== item);
      item.element.remove();
      more.focus();
    } }, "Remove");
    const item = widget(node.items, { name: `Item ${items.length + 1}`, path: `${path}[${items.length}]`, required: true, depth, removed: remove });
    items.push(item);
    holder.append(item.element);
    return item;
  }
  const more = element("button", { type: "button", class: "small", "aria-label": `Add an item to ${path}`, onclick: () => {
    const input = add().element.querySelector("input, select, textarea");
    if (input) input.focus();
  } }, "Add an item");
  return {
    element: element("div", {}, holder, more),
    read: (partly) => (items.length ? items.map((item) => item.read(partly)) : undefined),
    fill(value) {
      items = [];
      holder.replaceChildren();
      return value === undefined || (Array.isArray(value) && value.every((part) => add().fill(part)));
    },
  };
}

function choose(node, path, depth, required) {
  const choices = variants(node);
  let chosen = null;
  const holder = element("div", {});
  const select = element("select", { "aria-label": `Kind of ${path}`, name: `${path}?`, onchange: () => show(select.value) },
    element("option", { value: "" }, required ? "choose" : "not set"),
    ...choices.map((each, number) => element("option", { value: String(number) }, typeWord(each))));
  function show(number) {
    select.value = number;
    chosen = number === "" ? null : widget(choices[number], { name: "Value", path, required: true, depth });
    holder.replaceChildren(...(chosen ? [chosen.element] : []));
  }
  return {
    element: element("div", {}, select, holder),
    read(partly) {
      if (!chosen && required && !partly) { select.focus(); throw new Error("A value is required."); }
      return chosen ? chosen.read(partly) : undefined;
    },
    fill(value) {
      if (value === undefined) { show(""); return true; }
      return choices.some((_, number) => { show(String(number)); return chosen.fill(value); }) || (show(""), false);
    },
  };
}

// --- single values --------------------------------------------------------------------------------

function leaf(kind, node, common, required) {
  const preset = node.default === undefined || node.default === null ? "" : typeof node.default === "string" ? node.default : JSON.stringify(node.default);
  const placeholder = preset ? `default: ${preset}` : undefined;
  if (kind === "file") return fileLeaf(node, common);
  if (kind === "choice" || kind === "boolean") {
    const values = kind === "boolean" ? [true, false] : node.enum;
    const input = element("select", common, element("option", { value: "" }, required ? "choose" : placeholder || "not set"),
      ...values.map((value) => element("option", { value: JSON.stringify(value) }, String(value))));
    return textLeaf(input, (text) => JSON.parse(text), (value) => {
      input.value = JSON.stringify(value);
      return input.value !== "";
    });
  }
  if (kind === "lines") {
    const { type } = simple(node.items);
    const item = (line) => (type === "string" ? line : number(line.trim(), type === "integer"));
    const input = element("textarea", { ...common, rows: 3, spellcheck: "false", placeholder });
    return textLeaf(input, (text) => text.split("\n").filter(Boolean).map(item), (value) => {
      input.value = Array.isArray(value) ? value.map((part) => (typeof part === "string" ? part : pretty(part))).join("\n") : "";
      return Array.isArray(value);
    });
  }
  if (kind === "json") {
    const input = element("textarea", { ...common, rows: 3, spellcheck: "false", placeholder });
    return textLeaf(input, (text) => {
      try { return exact(text); } catch { throw new Error("Expected JSON."); }
    }, (value) => { input.value = pretty(value); return true; });
  }
  const type = kind === "string" && node.format === "date" ? "date" : "text";
  const numeric = { integer: "numeric", number: "decimal" }[kind];
  const input = element("input", { ...common, type, inputmode: numeric, placeholder, autocomplete: "off", spellcheck: "false" });
  const parse = kind === "string" ? (text) => text : (text) => number(text.trim(), kind === "integer");
  return textLeaf(input, parse, (value) => {
    const isText = typeof value === "string";
    input.value = isText ? value : pretty(value);
    return isText === (kind === "string");
  });
}

function textLeaf(input, parse, fill) {
  return {
    input,
    read: () => (input.value === "" ? undefined : parse(input.value)),
    fill: (value) => (value === undefined ? ((input.value = ""), true) : fill(value)),
  };
}

// A chosen file as base64, or as an object with its name and type if the schema is that of an upload.
function fileLeaf(node, common) {
  let value;
  let reading = false;
  const more = element("p", { class: "hint", role: "status" });
  const tell = (words) => { more.textContent = words; };
  const input = element("input", { ...common, type: "file", onchange: async () => {
    const file = input.files[0];
    value = undefined;
    tell("");
    if (!file) return;
    reading = true;
    const url = await new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(file);
    });
    const base64 = url.slice(url.indexOf(",") + 1);
    value = isFile(node) ? base64 : { base64, filename: file.name, ...(file.type ? { contentType: file.type } : {}) };
    reading = false;
    tell(`${file.name}, ${file.size} bytes`);
  } });
  return {
    input, more,
    read() { if (reading) throw new Error("The file is still being read."); return value; },
    fill(given) {
      value = given;
      input.value = "";
      tell(given === undefined ? "" : "Content from JSON.");
      return true;
    },
  };
}

function limits(node) {
  const parts = [];
  if (node.format && node.type !== "string") parts.push(`Format ${node.format}.`);
  if (node.pattern) parts.push(`Pattern ${node.pattern}.`);
  if (node.minimum !== undefined) parts.push(`At least ${node.minimum}.`);
  if (node.maximum !== undefined) parts.push(`At most ${node.maximum}.`);
  if (Array.isArray(node.examples) && node.examples.length) parts.push(`Example: ${JSON.stringify(node.examples[0])}.`);
  return parts.join(" ");
}

// Integers and numbers keep the text in which they were written: 2^53 + 1 has no value in JavaScript.
function number(text, whole) {
  const form = whole ? /^-?(0|[1-9]\d*)$/ : /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
  if (!form.test(text)) throw new Error(`Expected ${whole ? "an integer" : "a number"}.`);
  return exact(text);
}
