// Calls an operation and shows the result or the stream, and the tree of calls behind it.

import { ENVELOPE, ask, exact, pretty, trace } from "./app.js";
import { element, simple } from "./forms.js";

const MOST_ITEMS = 500;

function shown(value, { bad = false, label = "Answer" } = {}) {
  return element("pre", { class: bad ? "bad" : "", tabindex: "0", role: "region", "aria-label": label }, typeof value === "string" ? value : pretty(value));
}

export async function call(operation, input, holder, signal) {
  const started = performance.now();
  const stream = operation.type === "subscription";
  const response = await ask(operation.path, {
    method: "POST", signal, body: pretty(input, 0),
    headers: { "Content-Type": "application/json", Accept: stream ? `text/event-stream, ${ENVELOPE}` : ENVELOPE, "Operad-Trace": "1" },
  });
  const requestId = response.headers.get("Operad-Request-Id");
  if (stream && response.ok) await follow(response, holder, started, signal);
  else await once(response, holder, started, operation);
  if (requestId) await drawTrace(requestId, holder);
}

function statusLine(ok, words, started, more = "") {
  const time = performance.now() - started;
  return element("p", { class: "status" }, element("b", { class: ok ? "ok" : "bad" }, words),
    element("span", {}, `${time < 10 ? time.toFixed(1) : Math.round(time)} ms`), more ? element("span", {}, more) : null);
}

async function once(response, holder, started, operation) {
  const type = (response.headers.get("Content-Type") || "").split(";")[0];
  const text = await response.text();
  let value = text;
  if (type.endsWith("json")) { try { value = exact(text); } catch { /* shown as it is */ } }
  if (!response.ok) {
    const code = value && value.code ? value.code : response.statusText;
    holder.replaceChildren(statusLine(false, `${response.status} ${code}`, started), shown(value, { bad: true, label: "Problem" }));
    return;
  }
  const failed = value.meta && value.meta.isError === true;
  const line = statusLine(!failed, failed ? "The operation returned an error" : "Succeeded", started, `source ${value.meta.source}`);
  holder.replaceChildren(line, ...bytesOf(value, operation), ...halves(value));
}

const MAGIC = { iVBORw0KGgo: "image/png", "/9j/": "image/jpeg", R0lGOD: "image/gif", UklGR: "image/webp" };

// Shows images of a result as images, and offers other bytes as a file.
function bytesOf({ data, meta }, operation) {
  const found = [];
  const add = (base64, type) => {
    const guessed = type || MAGIC[Object.keys(MAGIC).find((start) => base64.startsWith(start))] || "application/octet-stream";
    found.push([`data:${guessed.split(";")[0]};base64,${base64}`, guessed.startsWith("image/") && !guessed.includes("svg")]);
  };
  if (typeof data === "string" && (meta.encoding === "base64" || simple(operation.output).contentEncoding === "base64")) add(data, meta.contentType);
  for (const block of Array.isArray(meta.content) ? meta.content : []) {
    if (block && block.type === "image" && typeof block.data === "string") add(block.data, block.mimeType);
  }
  return found.map(([href, isImage], index) => element("p", {}, isImage ? element("img", { src: href, class: "picture", alt: `Image ${index + 1} of the result` }) : null,
    element("a", { href, download: operation.name.replaceAll("/", "-") }, "Save the file")));
}

// Shows the data first. A button shows the whole envelope.
function halves(envelope) {
  const data = shown(envelope.data, { label: "Data" });
  const whole = shown(envelope, { label: "Envelope" });
  whole.hidden = true;
  const toggle = element("button", { type: "button", "aria-pressed": "false", onclick: () => {
    whole.hidden = !whole.hidden;
    data.hidden = !whole.hidden;
    toggle.setAttribute("aria-pressed", String(!whole.hidden));
  } }, "Envelope");
  return [data, whole, element("div", { class: "actions" }, toggle,
    element("button", { type: "button", onclick: () => navigator.clipboard && navigator.clipboard.writeText(pretty(whole.hidden ? envelope.data : envelope)) }, "Copy"))];
}

async function follow(response, holder, started, signal) {
  const list = element("ol", { class: "items", tabindex: "0", "aria-label": "Items of the stream" });
  const line = element("div", { role: "status" }, statusLine(true, "Streaming", started, "no item yet"));
  holder.replaceChildren(line, list);
  let count = 0;
  const tell = (ok, words) => line.replaceChildren(statusLine(ok, words, started, `${count} item${count === 1 ? "" : "s"}`));
  try {
    for await (const event of events(response.body)) {
      const value = exact(event.data);
      if (event.type === "operad.end") { tell(true, "Ended"); return; }
      if (event.type === "operad.error") {
        tell(false, `Ended by ${value.code || "an error"}`);
        list.append(element("li", {}, shown(value, { bad: true, label: "Problem" })));
        return;
      }
      count += 1;
      list.append(element("li", {}, element("pre", {}, pretty(value.data))));
      if (list.children.length > MOST_ITEMS) list.firstChild.remove();
      list.scrollTop = list.scrollHeight;
      tell(true, "Streaming");
    }
    tell(false, "The stream was interrupted");
  } catch (error) {
    if (!signal.aborted) throw error;
    tell(true, "Stopped");
  }
}

// Parses server-sent events (WHATWG HTML, 9.2.6), in the form in which this server writes them.
async function* events(body) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of chunks(body)) {
    rest += decoder.decode(chunk, { stream: true });
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = { type: "message", data: "" };
      for (const text of block.split("\n")) {
        if (text.startsWith("data: ")) event.data += text.slice(6);
        else if (text.startsWith("event: ")) event.type = text.slice(7);
      }
      if (event.data) yield event;
    }
  }
}

async function* chunks(body) {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Shows the reports of a call: progress and logs.
function inWords(report) {
  const amount = (number) => (report.unit === "By" ? `${(number / 1048576).toFixed(1)} MiB` : `${number}`);
  const far = report.progress === null ? "" : amount(report.progress) + (report.total === null ? "" : ` of ${amount(report.total)}`);
  return `${Math.round(report.atMs)} ms: ${[report.kind, far, report.message].filter(Boolean).join(" ")}`;
}

async function drawTrace(requestId, holder) {
  const tree = await trace(requestId).catch(() => null);
  if (!tree || !(tree.call.children.length || tree.call.reports.length)) return;
  const total = Math.max(tree.call.durationMs || 0, 0.001);
  const branch = (node) => {
    const failed = node.error !== null;
    const bar = element("i");
    bar.style.left = `${Math.min(99, (100 * node.startMs) / total)}%`;
    bar.style.width = `${Math.min(100, (100 * (node.durationMs || 0)) / total)}%`;
    const time = node.durationMs === null ? "running" : node.durationMs < 0.1 ? "< 0.1 ms" : `${node.durationMs.toFixed(1)} ms`;
    return element("li", { class: failed ? "failed" : "" },
      element("div", { class: "row" }, element("span", { class: "name" }, node.operationId || "(not yours to see)"),
        element("span", { class: "time" }, failed ? node.error : time), element("span", { class: "lane", "aria-hidden": "true" }, bar)),
      node.reports.length ? element("ul", { class: "told" }, ...node.reports.map((one) => element("li", {}, inWords(one)))) : null,
      node.children.length ? element("ul", {}, ...node.children.map(branch)) : null);
  };
  holder.append(element("h2", {}, "Calls"), element("ul", { class: "tree", "aria-label": "Tree of calls" }, branch(tree.call)));
}
