// The state of the server, and requests to it.

export const ENVELOPE = "application/vnd.operad.envelope+json";

export const server = { document: null, operations: [], state: {}, token: "" };

// Parses JSON. A number that JavaScript cannot hold, such as 2^53 + 1, keeps its text, which JSON.stringify writes.
export function exact(text) {
  return JSON.parse(text, (_, value, context) => (typeof value === "number" && context && JSON.rawJSON && context.source !== String(value) ? JSON.rawJSON(context.source) : value));
}

export function pretty(value, indent = 2) {
  return JSON.stringify(value, null, indent);
}

function headers(more) {
  const all = { ...more };
  // The token stays in the memory of this page. It is never stored, and never part of an address.
  if (server.token) all.Authorization = `Bearer ${server.token}`;
  return all;
}

export async function ask(path, { method = "GET", headers: more = {}, body, signal } = {}) {
  return fetch(path, { method, headers: headers(more), body, signal, credentials: "omit", cache: "no-store" });
}

// The server refuses this request unless the page has a valid token.
export class TokenRequired extends Error {}

async function json(path, options) {
  const response = await ask(path, options);
  const value = await response.json();
  if (response.status === 401) throw new TokenRequired(value.detail);
  if (!response.ok) throw new Error(value.detail || response.statusText);
  return value;
}

// Returns the document as a file. A link cannot send the token.
export async function documentFile() {
  const text = JSON.stringify(await json("openapi.json"), null, 2);
  return new Blob([text], { type: "application/json" });
}

export async function load() {
  const [document, state] = await Promise.all([json("openapi.json"), json("explorer/state")]);
  server.document = document;
  server.state = state;
  server.operations = Object.entries(document.paths).flatMap(([path, item]) => {
    const post = item.post;
    const mark = post && post["x-operad"];
    if (!mark) return [];
    const access = mark.accessControl || {};
    const dot = mark.id.indexOf(".");
    return [{
      id: mark.id, namespace: mark.id.slice(0, dot), name: mark.id.slice(dot + 1), type: mark.type,
      title: post.summary || "", description: post.description || "", deprecated: post.deprecated === true,
      tags: mark.tags || [], scopes: (access.requiredScopes || []).join(" and ") || (access.requiredScopesAny || []).join(" or "),
      schema: post.requestBody.content["application/json"].schema, path: path.slice(1),
      output: outputOf(post.responses["200"].content || {}), errors: mark.errors || [],
    }];
  });
  return server;
}

// Returns the schema of the result, or of one item of a stream, which is the content of an event.
function outputOf(content) {
  if (content["application/json"]) return content["application/json"].schema;
  const stream = content["text/event-stream"];
  return stream && stream.schema.anyOf ? stream.schema.anyOf[0].properties.data.contentSchema : {};
}

export async function reload(name) {
  server.state = await json(`explorer/reload/${encodeURIComponent(name)}`, { method: "POST", headers: { "Operad-Explorer": "1" } });
}

// Returns the operation that explains rules, if the caller may use it. operad-rules registers it if there are rules.
export function explainer() {
  return server.operations.find((operation) => operation.id === "operad.rules.explain");
}

// Returns the rules that apply to an operation, from the outside in.
export async function rulesOf(id) {
  return json(explainer().path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ operation: id }) });
}

export async function trace(requestId) {
  const response = await ask(`explorer/trace/${encodeURIComponent(requestId)}`);
  return response.ok ? response.json() : null;
}

// Returns the target of a reference into the document, or the schema itself if it is not a reference.
export function resolved(schema, depth = 16) {
  let node = schema;
  while (node && typeof node === "object" && typeof node.$ref === "string" && depth-- > 0) {
    const { $ref, ...own } = node;
    const token = decodeURIComponent($ref.slice("#/components/schemas/".length)).replaceAll("~1", "/").replaceAll("~0", "~");
    const target = server.document.components.schemas[token];
    node = target && typeof target === "object" ? { ...target, ...own } : target;
  }
  return node;
}

// Returns the operations that contain all words, first those with the words in their id.
export function found(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return server.operations;
  const ranked = [];
  for (const operation of server.operations) {
    const id = operation.id.toLowerCase();
    const rest = `${operation.title} ${operation.description} ${operation.tags.join(" ")}`.toLowerCase();
    if (!words.every((word) => id.includes(word) || rest.includes(word))) continue;
    ranked.push([words.filter((word) => id.includes(word)).length, operation]);
  }
  return ranked.sort((a, b) => b[0] - a[0]).map(([, operation]) => operation);
}
