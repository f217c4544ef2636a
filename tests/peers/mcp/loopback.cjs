// Loaded before a server of others: it listens on this machine alone, and instead of on the port that its author
// wrote down, on the one that the test chose.
const net = require("node:net");
const listen = net.Server.prototype.listen;
const written = [3000, 3001];
net.Server.prototype.listen = function (...given) {
  const callback = given.find((argument) => typeof argument === "function");
  const first = given[0];
  if (typeof first === "object" && first?.path) return listen.apply(this, given);
  const asked = Number(typeof first === "object" ? first?.port : first) || 0;
  const port = written.includes(asked) ? Number(process.env.OPERAD_TEST_PORT ?? 0) : asked;
  return listen.call(this, { host: "127.0.0.1", port }, callback);
};
