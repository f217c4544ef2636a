// usage: node call_peer_run.mjs <url> [token]; calls py.*, prints one JSON line with what it saw, then serves js.*
// and prints what it sees of that, until its standard input ends.
import { once } from "node:events";
import { CallError, Peer, hubLink, natsLink } from "./call_peer.mjs";
import { redisLink } from "./call_peer_redis.mjs";

const [url, token] = process.argv.slice(2);
const print = (value) => console.log(JSON.stringify(value));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const tried = (promise) => promise.then(({ data }) => data, ({ code, details }) => ({ code, ...(details ? { details } : {}) }));
const all = async (stream) => {
  const items = [];
  for await (const { data } of stream) items.push(data);
  return items;
};
const first = async (stream, count) => {
  const items = [];
  for await (const { data } of stream) if (items.push(data) === count) break;
  return items;
};

const seen = {};
if (url.startsWith("ws")) {
  for (const how of ["header", "protocol", "frame"]) {
    const link = await hubLink(url, token, how);
    seen[how] = [link.identity ?? null, await tried(new Peer(link).call("py.add", { a: 1, b: 2 }))];
    await link.close();
    seen[`wrong ${how}`] = await hubLink(url, "wrong", how).catch((error) => error.message ?? error);
  }
}
const links = { "ws:": () => hubLink(url, token, "header"), "nats:": () => natsLink(url), "redis:": () => redisLink(url) };
const link = await links[new URL(url).protocol]();
const peer = new Peer(link);
seen.add = await tried(peer.call("py.add", { a: 1, b: 2 }));
seen.named = await tried(peer.call("py.we!rd~(x)*.é/ß'", {}));
seen.long = await tried(peer.call(`py.${"l".repeat(190)}`, {}));
seen.invalid = (await tried(peer.call("py.add", { a: "one", b: 2 }))).code;
seen.unknown = (await tried(peer.call("py.unknown", {}))).code;
seen.declared = await tried(peer.call("py.fails", {}));
seen.large = (await tried(peer.call("py.large", { size: 300_000 }))).length;
seen.aborted = (await tried(peer.call("py.wait", {}, { signal: AbortSignal.timeout(200) }))).code;
seen.late = (await tried(peer.call("py.wait", {}, { timeoutMs: 200 }))).code;
seen.stream = await all(peer.subscribe("py.count", { to: 20 }, { credit: 4 }));
seen.original = await all(peer.subscribe("py.count", { to: 20 }, { credit: 0 }));
seen.query = await all(peer.subscribe("py.add", { a: 1, b: 2 }));
seen.left = await first(peer.subscribe("py.count", { to: 1e9 }), 3);
seen.dropped = await first(peer.subscribe("py.count", { to: 1e9 }, { credit: 0 }), 3);
const flow = {};
seen.wide = (await all(peer.subscribe("py.wide", { items: 8, size: 100_000 }, { creditBytes: 150_000, seen: flow }))).join("").length;
seen.questions = flow.questions > 0;
if (url.startsWith("ws")) {
  const twice = { type: "call.requested", id: "again", payload: { requestId: "1", operationId: "py.wait", input: {} } };
  link.send(twice);
  link.send(twice);
  link.send({ type: "call.requested", id: "none", payload: { operationId: "py.wait", input: {} } });
  while (link.refused.length < 2) await pause(5);
  link.send({ type: "call.aborted", payload: { requestId: "1" } });
  seen.refused = link.refused;
}

const until = async (signal, what) => {
  if (!signal.aborted) await once(signal, "abort");
  print({ aborted: what });
};
const specs = [
  { id: "js.greet", namespace: "js", name: "greet", type: "query" },
  { id: "js.slow", namespace: "js", name: "slow", type: "query" },
  { id: "js.count", namespace: "js", name: "count", type: "subscription" },
];
const instance = `node${process.pid}`;
const list = async () => ({ operations: specs });
const describe = async ({ operationId }) => specs.find(({ id }) => id === operationId);
await peer.serve(
  {
    "js.greet": async ({ name }, { identity }) => `hello ${name} of ${identity?.id}`,
    "js.fails": async () => {
      throw new CallError("OUT_OF_STOCK", "none left", { left: 0 });
    },
    "js.large": async ({ size }) => "x".repeat(size),
    "js.slow": async ({ ms }) => (await pause(ms), process.pid),
    "js.wait": (_, { signal }) => until(signal, "js.wait"),
    "js.count": async function* ({ to }, { signal }) {
      for (let number = 0; number < to; number++) yield number;
      if (to > 1000) await until(signal, "js.count");
    },
    "js.wide": async function* ({ items, size }) {
      for (let item = 0; item < items; item++) yield "x".repeat(size);
    },
    "js.ticks": async function* (_, { signal }) {
      for (let number = 0; !signal.aborted; number++, await pause(5)) yield number;
      print({ aborted: "js.ticks" });
    },
    [`operad.list.${instance}`]: list,
    [`operad.describe.${instance}`]: describe,
  },
  ["all:operad.discover"],
  specs.filter(({ type }) => type === "query").map(({ id }) => id),
);
peer.served.set("operad.discover", async () => ({ instance }));
print(seen);
process.stdin.resume();
process.stdin.on("end", async () => {
  await link.close();
  process.exit(0); // Node keeps the connections that were refused
});
