// A client that knows a WebSocket, JSON, and the four original events; nothing of operad is installed here.
// usage: node ws_four_events.mjs <url>; prints one JSON object with what it saw.
const url = process.argv[2];
const socket = new WebSocket(url);
const pending = new Map();
let counter = 0;

const send = (type, payload) => socket.send(JSON.stringify({ type, id: String(++counter), payload }));

socket.addEventListener("message", (message) => {
  const { type, payload } = JSON.parse(message.data);
  const request = pending.get(payload?.requestId);
  if (!request) return;
  if (type === "call.responded") {
    request.items.push(payload.output);
    if (!request.stream) finish(payload.requestId, { output: payload.output });
    else if (request.items.length === request.take) {
      send("call.aborted", { requestId: payload.requestId });
      finish(payload.requestId, { items: request.items, left: true });
    }
  } else if (type === "call.error") {
    finish(payload.requestId, { code: payload.code, message: payload.message, details: payload.details });
  } else if (type === "call.aborted") {
    finish(payload.requestId, { items: request.items, aborted: true });
  } // anything else is unknown here, and ignored
});

const finish = (requestId, result) => {
  pending.get(requestId).resolve(result);
  pending.delete(requestId);
};

const request = (operationId, input, options = {}) =>
  new Promise((resolve) => {
    const requestId = options.requestId ?? `node-${++counter}`;
    pending.set(requestId, { resolve, items: [], ...options });
    send("call.requested", { requestId, operationId, input, ...options.payload });
    if (options.abortAfter !== undefined)
      setTimeout(() => {
        send("call.aborted", { requestId });
        finish(requestId, { gaveUp: true });
      }, options.abortAfter);
  });

socket.addEventListener("open", async () => {
  const seen = {};
  seen.call = await request("math.add", { a: 1, b: 2 });
  seen.error = await request("math.fail", {});
  seen.invalid = await request("math.add", { a: "one" });
  seen.unknown = await request("math.unknown", {});
  seen.stream = await request("math.count", { to: 5 }, { stream: true });
  seen.left = await request("math.count", { to: 1000000000 }, { stream: true, take: 3 });
  seen.aborted = await request("math.wait", {}, { abortAfter: 100 });
  seen.guarded = await request("math.guarded", {}, { payload: { identity: { id: "root", scopes: ["admin"] } } });
  seen.many = (await Promise.all([...Array(50).keys()].map((n) => request("math.add", { a: n, b: n })))).map(
    (answer) => answer.output.data,
  );
  seen.after = await request("math.add", { a: 20, b: 22 });
  console.log(JSON.stringify(seen));
  socket.close();
});
socket.addEventListener("error", (event) => {
  console.error("socket error", event.message ?? event.error ?? "");
  process.exit(1);
});
