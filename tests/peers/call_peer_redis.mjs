// A link for call_peer.mjs over Redis, made from docs/protocol.md alone: RESP2 on sockets of its own, no library.
import { createHash, randomBytes } from "node:crypto";
import { connect } from "node:net";

const BUS = "operad:{operad}:";
const LEASE_MS = 10_000;
const LIFETIME_MS = 60_000;

// --- the client protocol of Redis: requests are arrays of strings, answers come in their order

const parse = (buffer, at) => {
  const end = buffer.indexOf("\r\n", at);
  if (end < 0) return undefined;
  const [kind, text] = [String.fromCharCode(buffer[at]), buffer.toString("utf8", at + 1, end)];
  let next = end + 2;
  if (kind === "$" && text !== "-1") {
    const stop = next + Number(text);
    return buffer.length < stop + 2 ? undefined : [buffer.toString("utf8", next, stop), stop + 2];
  }
  if (kind === "*" && text !== "-1") {
    const items = [];
    while (items.length < Number(text)) {
      const found = parse(buffer, next);
      if (!found) return undefined;
      items.push(found[0]);
      next = found[1];
    }
    return [items, next];
  }
  if (text === "-1" && kind !== ":") return [null, next];
  return [{ ":": Number(text), "-": new Error(text) }[kind] ?? text, next];
};

class Connection {
  waiting = [];
  buffer = Buffer.alloc(0);

  constructor(url, onanswer) {
    const { hostname, port } = new URL(url);
    this.onanswer = onanswer ?? ((answer) => this.waiting.shift()(answer));
    this.socket = connect(Number(port), hostname).setNoDelay();
    this.socket.on("data", (chunk) => {
      this.buffer = Buffer.concat([this.buffer, chunk]);
      let at = 0;
      for (let found; (found = parse(this.buffer, at)); at = found[1]) this.onanswer(found[0]);
      this.buffer = this.buffer.subarray(at);
    });
  }

  post(...words) {
    const parts = words.map((word) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`);
    this.socket.write(`*${words.length}\r\n${parts.join("")}`);
  }

  ask(...words) {
    return new Promise((resolve, reject) => {
      this.waiting.push((answer) => (answer instanceof Error ? reject(answer) : resolve(answer)));
      this.post(...words);
    });
  }
}

// --- what has to happen in one step on the server

const NOW = "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) ";
const SCRIPTS = {
  // KEYS: operation, load. ARGV: streams, inboxes, event, address, redelivered, first dispatched
  dispatch: `
    local best, least = {}, {}
    for _, member in ipairs(redis.call('SMEMBERS', KEYS[1])) do
      local link, group = string.match(member, '^(%S+) (.*)$')
      if redis.call('PUBSUB', 'NUMSUB', ARGV[2] .. link)[2] > 0 then
        local load = tonumber(redis.call('HMGET', KEYS[2], link)[1] or 0)
        if not best[group] or load < least[group] then best[group], least[group] = link, load end
      end
    end
    local taken = 0
    for _, link in pairs(best) do
      local entry = {'e', ARGV[3], 'o', ARGV[4], 'r', ARGV[5]}
      if ARGV[6] ~= '' then entry[7], entry[8] = 't', ARGV[6] end
      if redis.call('XADD', ARGV[1] .. link, 'NOMKSTREAM', '*', unpack(entry)) then
        redis.call('HINCRBY', KEYS[2], link, 1)
        taken = taken + 1
      end
    end
    return taken`,
  // KEYS: stream, load. ARGV: link, entry
  done: `
    if redis.call('XACK', KEYS[1], 'operad', ARGV[2]) == 1 then
      redis.call('XDEL', KEYS[1], ARGV[2])
      redis.call('HINCRBY', KEYS[2], ARGV[1], -1)
    end`,
  // KEYS: links, load, stream. ARGV: link, lifetime
  enroll: `${NOW}
    redis.call('ZADD', KEYS[1], now, ARGV[1])
    redis.call('HSETNX', KEYS[2], ARGV[1], 0)
    redis.call('XGROUP', 'CREATE', KEYS[3], 'operad', '0', 'MKSTREAM')
    redis.call('PEXPIRE', KEYS[3], ARGV[2])`,
  // KEYS: operation, served. ARGV: link
  register: `
    redis.call('SADD', KEYS[1], ARGV[1] .. ' operad')
    redis.call('SADD', KEYS[2], 'operad\\n' .. KEYS[1])`,
  // KEYS: links, stream. ARGV: link, inboxes, lease, lifetime. Those that look dead
  beat: `${NOW}
    redis.call('ZADD', KEYS[1], now, ARGV[1])
    redis.call('PEXPIRE', KEYS[2], ARGV[4])
    local dead = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3], 'LIMIT', 0, 8)
    for _, link in ipairs(redis.call('ZRANDMEMBER', KEYS[1], 8)) do
      if redis.call('PUBSUB', 'NUMSUB', ARGV[2] .. link)[2] == 0 then dead[#dead + 1] = link end
    end
    return dead`,
  // KEYS: links, load, stream, served, dead. ARGV: link, inboxes, lease, whether in any case.
  // The last entry that it had read, or nothing: it lives, somebody else was quicker, or it left nothing
  bury: `${NOW}
    local seen = redis.call('ZSCORE', KEYS[1], ARGV[1])
    if not seen then return false end
    local lives = now - seen <= tonumber(ARGV[3]) and redis.call('PUBSUB', 'NUMSUB', ARGV[2] .. ARGV[1])[2] > 0
    if lives and ARGV[4] == '' then return false end
    redis.call('ZREM', KEYS[1], ARGV[1])
    redis.call('HDEL', KEYS[2], ARGV[1])
    for _, entry in ipairs(redis.call('SMEMBERS', KEYS[4])) do
      local group, operation = string.match(entry, '^(.*)\\n(.*)$')
      redis.call('SREM', operation, ARGV[1] .. ' ' .. group)
    end
    redis.call('DEL', KEYS[4])
    if redis.call('EXISTS', KEYS[3]) == 0 then return false end
    local info = redis.call('XINFO', 'GROUPS', KEYS[3])[1]
    redis.call('RENAME', KEYS[3], KEYS[5])
    for i = 1, #info, 2 do
      if info[i] == 'last-delivered-id' then return info[i + 1] end
    end
    return '0-0'`,
};

const encoded = (text) => {
  const plain = encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  const name = plain.replaceAll("%2F", "/");
  return name.length > 500 ? `=${createHash("sha256").update(text).digest("hex")}` : name;
};
const channel = (address) => `${BUS}${address.startsWith("inbox:") ? address : `all:${encoded(address.slice("all:".length))}`}`;
const named = (fields) => Object.fromEntries(fields.flatMap((name, i) => (i % 2 ? [] : [[name, fields[i + 1]]])));
const order = (entry) => entry.split("-").map(Number);
const isAfter = ([time, number], [otherTime, otherNumber]) => time > otherTime || (time === otherTime && number > otherNumber);

export async function redisLink(url) {
  const id = randomBytes(16).toString("hex");
  const [links, load, streams, inboxes] = [`${BUS}links`, `${BUS}load`, `${BUS}in:`, `${BUS}inbox:`];
  const link = { inbox: `inbox:${id}` };
  const commands = new Connection(url);
  const digests = {};
  for (const [name, script] of Object.entries(SCRIPTS)) digests[name] = await commands.ask("SCRIPT", "LOAD", script);
  const run = (name, keys, ...more) => commands.ask("EVALSHA", digests[name], keys.length, ...keys, ...more);

  const subscribed = new Map();
  const channels = new Connection(url, ([kind, name, data]) => {
    if (kind === "subscribe") subscribed.get(name)();
    else link.onevent(JSON.parse(data), name === `${BUS}all:operad.discover` ? "operad.discover" : undefined);
  });
  const listen = (name) =>
    new Promise((resolve) => {
      subscribed.set(name, resolve);
      channels.post("SUBSCRIBE", name);
    });

  const dispatch = (address, text, redelivered = "", first = "") =>
    run("dispatch", [`${BUS}op:${encoded(address.slice("op:".length))}`, load], streams, inboxes, text, address, redelivered, first);
  const publish = (inbox, event) => commands.ask("PUBLISH", channel(inbox), JSON.stringify(event));
  link.request = async (event, operationId) => {
    if (await dispatch(`op:${operationId}`, JSON.stringify(event))) return;
    const { requestId } = event.payload;
    link.onevent({ type: "call.error", payload: { requestId, code: "NO_RESPONDERS", message: "nobody serves it" } });
  };
  link.answer = publish;
  link.follow = (handler, event) => handler && publish(handler, event);

  // --- serving

  const take = async (entry, fields) => {
    const { e, o, r } = named(fields);
    await link.onevent(JSON.parse(e), o.slice("op:".length), r === "1");
    if (!link.closing) await run("done", [streams + id, load], id, entry);
  };
  const serve = async () => {
    await run("enroll", [links, load, streams + id], id, LIFETIME_MS);
    const next = () => reader.post("XREADGROUP", "GROUP", "operad", "peer", "COUNT", 16, "BLOCK", 0, "STREAMS", streams + id, ">");
    const reader = new Connection(url, (answer) => {
      for (const [, entries] of answer ?? []) for (const [entry, fields] of entries) take(entry, fields);
      next();
    });
    next();
    const life = setInterval(async () => {
      const dead = await run("beat", [links, streams + id], id, inboxes, LEASE_MS, LIFETIME_MS);
      for (const other of dead) if (other !== id) await bury(other, "");
    }, 1000);
    link.leave = async () => {
      clearInterval(life);
      reader.socket.destroy();
      await bury(id, "1");
    };
  };
  const bury = async (other, anyway) => {
    const [served, dead] = [`${BUS}reg:${other}`, `${BUS}dead:${other}`];
    const read = await run("bury", [links, load, streams + other, served, dead], other, inboxes, LEASE_MS, anyway);
    if (read === null) return;
    for (const [entry, fields] of await commands.ask("XRANGE", dead, "-", "+")) {
      const { e, o, r, t } = named(fields);
      const wasRead = r === "1" || !isAfter(order(entry), order(read));
      if (await dispatch(o, e, wasRead ? "1" : "", t ?? order(entry)[0])) continue;
      const { requestId, replyTo } = JSON.parse(e).payload;
      const payload = { requestId, code: "UNAVAILABLE", message: "its handler was lost", details: { sent: wasRead } };
      publish(replyTo, { type: "call.error", id: "", payload });
    }
    await commands.ask("DEL", dead);
  };
  link.register = async (topics) => {
    if (!link.leave) await serve();
    for (const topic of topics) {
      if (topic.startsWith("all:")) await listen(channel(topic));
      else await run("register", [`${BUS}op:${encoded(topic.slice("op:".length))}`, `${BUS}reg:${id}`], id);
    }
  };
  link.close = async () => {
    link.closing = true;
    await link.leave?.();
    for (const { socket } of [commands, channels]) await new Promise((resolve) => socket.end(resolve));
  };
  await listen(channel(link.inbox));
  return link;
}
