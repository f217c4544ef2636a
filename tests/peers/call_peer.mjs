// A peer of the call protocol, made from docs/protocol.md alone: calls and serves, on a WebSocket hub and on NATS.
// It needs Node (20.10 with --experimental-websocket, or 22) and no library; nothing of operad is installed here.
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { connect } from "node:net";

export class CallError extends Error {
  constructor(code, message, details) {
    super(message);
    Object.assign(this, { code, details });
  }
}

// A link moves events: request(event, operationId), follow(handlerInbox, event), answer(callerInbox, event),
// register(topics); `inbox` is its own address on a broker, and nothing on a hub. What it gives to `onevent` may have
// been delivered before; the promise that it gets back ends with the work of a request.
export class Peer {
  calls = new Map(); // requests of ours, by request id
  left = new Map(); // those of which the handler may not know that they were left
  runs = new Map(); // requests that we serve, by the caller's inbox and request id
  served = new Map();
  repeatable = new Set();

  constructor(link) {
    this.link = link;
    this.mine = link.inbox ? { replyTo: link.inbox } : {};
    link.onevent = (event, address, redelivered) => this.receive(event, address, redelivered);
  }

  receive({ type, payload }, address, redelivered) {
    if (type === "call.requested") return this.run(payload, address, redelivered);
    else if (this.calls.has(payload?.requestId)) this.calls.get(payload.requestId)(type, payload);
    else if (type === "call.credit" && this.left.has(payload.requestId)) this.tellAgain(payload);
    else this.runs.get(this.key(payload ?? {}))?.(type, payload);
  }

  // On a hub the ids that a handler sees are unique, and follow-ups have no replyTo.
  key = ({ replyTo, requestId }) => (this.link.inbox ? `${replyTo} ${requestId}` : requestId);

  // A handler says that it has what was left: the abort came before the request, or could not be sent until now.
  tellAgain({ requestId, replyTo }) {
    const call = this.left.get(requestId);
    this.left.delete(requestId);
    call.handler = replyTo;
    call.tell("call.aborted");
  }

  // --- calling: everything is a stream of [output, sentBytes]; `ended` says how it ended

  request(operationId, input, extra, onchange) {
    const requestId = randomUUID();
    const call = { queue: [], granted: extra.creditBytes, readBytes: 0, seq: 0, total: extra.credit ?? 1, noticed: 0 };
    call.tell = (type, more) =>
      this.link.follow(call.handler, { type, id: "", payload: { requestId, ...this.mine, ...more } });
    call.grant = () => call.tell("call.credit", { total: call.total, totalBytes: call.granted });
    call.end = (error) => {
      if (!this.calls.delete(requestId)) return;
      call.ended = { error };
      onchange(call);
    };
    call.leave = () => {
      if (!this.calls.delete(requestId)) return;
      this.left.set(requestId, call);
      if (this.left.size > 1000) this.left.delete(this.left.keys().next().value);
      call.tell("call.aborted");
    };
    this.calls.set(requestId, (type, payload) => {
      if (payload.replyTo) call.handler = payload.replyTo; // on a broker: where follow-ups go
      if (type === "call.error") call.end(new CallError(payload.code, payload.message, payload.details));
      else if (type === "call.aborted") call.end(new CallError("ABORTED", "the other side ended it"));
      else if (type === "call.completed") call.end();
      else if (type === "call.credit") {
        call.noticed += 1;
        call.wants = payload.wantsBytes;
        onchange(call);
      } else if (type === "call.responded") {
        if (extra.credit && payload.seq !== call.seq++) return call.end(new CallError("DATA_LOSS", "an item is missing"));
        call.queue.push([payload.output, payload.sentBytes ?? 0]);
        onchange(call);
      }
    });
    const payload = { requestId, operationId, input, ...this.mine, ...extra };
    this.link.request({ type: "call.requested", id: "", payload }, operationId);
    return call;
  }

  call(operationId, input, { timeoutMs = 5000, signal } = {}) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => give("TIMEOUT"), timeoutMs);
      const call = this.request(operationId, input, { timeoutMs, creditBytes: 65536 }, (call) => {
        if (call.queue.length) {
          clearTimeout(timer);
          resolve(call.queue[0][0]);
          call.end();
        } else if (call.ended) {
          clearTimeout(timer);
          reject(call.ended.error);
        } else if (call.wants) {
          call.granted = Math.max(call.granted, call.wants);
          call.grant();
        }
      });
      const give = (code) => {
        call.leave();
        clearTimeout(timer);
        reject(new CallError(code, "given up by the caller"));
      };
      signal?.addEventListener("abort", () => give("ABORTED"));
    });
  }

  // With `credit` items of window, or as a client that knows the four original events (credit: 0).
  async *subscribe(operationId, input, { credit = 8, creditBytes = 1 << 20, seen = {} } = {}) {
    let wake;
    const call = this.request(operationId, input, credit ? { credit, creditBytes } : {}, (call) => {
      if (call.wants) {
        seen.questions = (seen.questions ?? 0) + 1;
        room();
        call.grant(); // each question is answered at once, also if there is no room
        call.wants = 0;
      }
      wake?.();
    });
    let asked = 0;
    const room = () => {
      asked = Math.max(asked, call.wants ?? 0);
      const fits = asked - call.readBytes <= creditBytes || call.queue.length === 0;
      if (!fits || asked <= call.granted) return false;
      call.granted = asked;
      return true;
    };
    const life = credit ? setInterval(call.grant, 10_000) : undefined;
    let read = 0;
    try {
      for (;;) {
        while (call.queue.length) {
          const [output, bytes] = call.queue.shift();
          read += 1;
          call.readBytes = bytes;
          const half = call.total - read <= credit / 2;
          if (half) call.total = read + credit;
          if (credit && !call.ended && (room() || half)) call.grant();
          yield output;
        }
        if (call.ended?.error) throw call.ended.error;
        if (call.ended) return;
        await new Promise((resolve) => (wake = resolve));
      }
    } finally {
      clearInterval(life);
      call.leave();
    }
  }

  // --- serving

  // `repeatable`: those that may run again, because they are queries or idempotent.
  serve(operations, topics = [], repeatable = []) {
    for (const id of repeatable) this.repeatable.add(id);
    for (const [id, handler] of Object.entries(operations)) this.served.set(id, handler);
    return this.link.register([...Object.keys(operations).map((id) => `op:${id}`), ...topics]);
  }

  async run(payload, address, redelivered) {
    const { requestId, operationId, replyTo, credit, creditBytes } = payload;
    const answer = (type, more) => this.link.answer(replyTo, { type, id: "", payload: { requestId, ...more } });
    const handler = this.served.get(operationId);
    if (!handler || (address && address !== operationId))
      return answer("call.error", { code: "ACCESS_DENIED", message: "not at this address" });
    if (redelivered && !this.repeatable.has(operationId))
      return answer("call.error", { code: "UNAVAILABLE", message: "it may have run", details: { sent: true } });
    const { signal, abort } = controlled();
    let [total, allowed, sent, wake] = [credit ?? Infinity, creditBytes ?? Infinity, 0, undefined];
    const notice = (more) => answer("call.credit", { total: 0, ...this.mine, ...more });
    this.runs.set(this.key(payload), (type, event) => {
      if (type === "call.aborted") abort();
      if (type === "call.credit") {
        const repeated = event.total <= total && (event.totalBytes ?? 0) <= allowed;
        total = Math.max(total, event.total);
        allowed = Math.max(allowed, event.totalBytes ?? 0);
        if (repeated) notice();
      }
      wake?.();
    });
    if (this.link.inbox || payload.sentBytes) notice(); // where follow-ups go; and that a large request has come
    const changed = () => new Promise((resolve) => (wake = resolve));
    const send = async (data, seq) => {
      const output = { data, meta: { source: "local", operationId, timestamp: Date.now() } };
      const event = { requestId, output, ...(seq === undefined ? {} : { seq }), ...this.mine };
      sent += Buffer.byteLength(JSON.stringify({ type: "call.responded", id: "", payload: event }));
      while (sent > allowed && !signal.aborted) {
        notice({ wantsBytes: sent });
        const again = setTimeout(() => wake(), 1000);
        await changed();
        clearTimeout(again);
      }
      if (creditBytes !== undefined) event.sentBytes = sent;
      if (!signal.aborted) answer("call.responded", event);
    };
    try {
      const result = handler(payload.input, { signal, identity: payload.identity });
      if (!result?.[Symbol.asyncIterator]) {
        await send(await result, credit ? 0 : undefined);
        if (credit && !signal.aborted) answer("call.completed", { count: 1 });
        return;
      }
      let count = 0;
      for await (const data of result) {
        while (count >= total && !signal.aborted) await changed();
        if (signal.aborted) break;
        await send(data, count++);
      }
      if (!signal.aborted) answer("call.completed", { count });
      if (!signal.aborted && !credit) answer("call.aborted"); // for whoever knows the four original events only
    } catch (error) {
      const { code = "EXECUTION_ERROR", details } = error;
      const message = error instanceof CallError ? error.message : "it failed";
      if (!signal.aborted) answer("call.error", { code, message, ...(details === undefined ? {} : { details }) });
    } finally {
      this.runs.delete(this.key(payload));
    }
  }
}

const controlled = () => {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort() };
};

// --- a WebSocket hub; `how` the token is shown: "header" (no browser can), "protocol" or "frame"

export async function hubLink(url, token, how) {
  const text = token && Buffer.from(token).toString("base64url");
  const shown = { protocol: [`operad.bearer.${text}`], frame: ["operad.authenticate"] }[how] ?? [];
  const protocols = ["operad.v1", ...shown];
  const headers = { Authorization: `Bearer ${token}` };
  const socket = how === "header" ? new WebSocket(url, { protocols, headers }) : new WebSocket(url, protocols);
  socket.binaryType = "arraybuffer";
  const asked = new Map();
  const send = (event) => socket.send(JSON.stringify(event));
  const ask = (type, payload) =>
    new Promise((resolve, reject) => {
      const id = randomUUID();
      asked.set(id, { resolve, reject });
      send({ type, id, payload });
    });
  const link = { refused: [], request: send, follow: (_, event) => send(event), answer: (_, event) => send(event), send };
  link.register = (topics) => ask("link.register", { topics });
  link.close = () => {
    const closed = new Promise((resolve) => socket.addEventListener("close", resolve));
    socket.close(1000);
    return closed;
  };
  socket.addEventListener("message", ({ data }) => {
    const event = JSON.parse(typeof data === "string" ? data : Buffer.from(data).toString());
    if (!event.type.startsWith("link.")) return link.onevent?.(event);
    if (event.type === "link.error") link.refused.push({ id: event.id, code: event.payload.code });
    asked.get(event.id)?.[event.type === "link.error" ? "reject" : "resolve"](event.payload);
    asked.delete(event.id);
  });
  await new Promise((resolve, reject) => {
    socket.addEventListener("open", resolve);
    socket.addEventListener("error", () => reject(new CallError("REFUSED", "no connection")));
    socket.addEventListener("close", ({ code }) => {
      for (const { reject } of asked.values()) reject(new CallError("REFUSED", `closed with ${code}`));
    });
  });
  if (how === "frame") link.identity = (await ask("link.authenticate", { token })).identity;
  return link;
}

// --- NATS, as far as it is needed: its client protocol is lines of text

const encoded = (text) => {
  const plain = /[A-Za-z0-9_~-]/;
  const hex = (byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  const token = [...Buffer.from(text)].map((byte) => (plain.test(String.fromCharCode(byte)) && byte < 128 ? String.fromCharCode(byte) : hex(byte))).join("");
  return token.length > 180 || !token ? `=${createHash("sha256").update(text).digest("hex")}` : token;
};

export const subject = (address) => {
  const [kind, name] = [address.slice(0, address.indexOf(":")), address.slice(address.indexOf(":") + 1)];
  if (kind === "inbox") return `_INBOX.${name}.r`;
  if (kind === "all") return `operad.all.${encoded(name)}`;
  const dot = name.indexOf(".");
  return `operad.op.${encoded(name.slice(0, dot))}.${encoded(name.slice(dot + 1))}`;
};

export async function natsLink(url) {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const id = randomBytes(16).toString("hex");
  const subscriptions = new Map();
  const pongs = [];
  const publish = (to, event, reply = "") => {
    const data = JSON.stringify(event);
    socket.write(`PUB ${to} ${reply} ${Buffer.byteLength(data)}\r\n${data}\r\n`);
  };
  const subscribe = (to, queue, callback) => {
    const sid = String(subscriptions.size + 1);
    subscriptions.set(sid, callback);
    socket.write(`SUB ${to} ${queue} ${sid}\r\n`);
  };
  const flush = () => new Promise((resolve) => pongs.push(resolve) && socket.write("PING\r\n"));
  let buffer = Buffer.alloc(0);
  socket.on("data", (chunk) => {
    buffer = Buffer.concat([buffer, chunk]);
    for (let end; (end = buffer.indexOf("\r\n")) >= 0; ) {
      const words = buffer.subarray(0, end).toString().split(" ");
      if (words[0] === "MSG" || words[0] === "HMSG") {
        const [size, header] = [Number(words.at(-1)), words[0] === "HMSG" ? Number(words.at(-2)) : 0];
        if (buffer.length < end + 2 + size + 2) return;
        const text = buffer.subarray(end + 2, end + 2 + size);
        buffer = buffer.subarray(end + 2 + size + 2);
        subscriptions.get(words[2])(words[1], text.subarray(header).toString(), text.subarray(0, header).toString());
        continue;
      }
      buffer = buffer.subarray(end + 2);
      if (words[0] === "PING") socket.write("PONG\r\n");
      if (words[0] === "PONG") pongs.shift()();
      if (words[0] === "-ERR") throw new Error(words.join(" "));
    }
  });
  const link = { inbox: `inbox:${id}` };
  link.request = (event, operationId) =>
    publish(subject(`op:${operationId}`), event, `_INBOX.${id}.n.${event.payload.requestId}`);
  link.answer = (inbox, event) => publish(subject(inbox), event);
  link.follow = (handler, event) => handler && publish(subject(handler), event);
  link.register = async (topics) => {
    for (const topic of topics) {
      const operationId = topic.startsWith("op:") ? topic.slice("op:".length) : "operad.discover";
      const queue = topic.startsWith("op:") ? "operad" : "";
      subscribe(subject(topic), queue, (_, data) => link.onevent(JSON.parse(data), operationId));
    }
    await flush();
  };
  link.close = () => new Promise((resolve) => socket.end(resolve));
  socket.write(`CONNECT ${JSON.stringify({ verbose: false, pedantic: false, headers: true, no_responders: true })}\r\n`);
  subscribe(`_INBOX.${id}.>`, "", (to, data, header) => {
    const requestId = to.slice(`_INBOX.${id}.n.`.length);
    const payload = { requestId, code: "NO_RESPONDERS", message: "nobody serves it" };
    if (to.endsWith(".r")) link.onevent(JSON.parse(data));
    else if (header.startsWith("NATS/1.0 503")) link.onevent({ type: "call.error", payload });
  });
  await flush();
  return link;
}
