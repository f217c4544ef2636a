// Loaded before a server of others: it listens on this machine alone, and on the port that the test chose.
const net = require("node:net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...given) {
  const callback = given.find((argument) => typeof argument === "function");
  return listen.call(this, { host: "127.0.0.1", port: Number(process.env.OPERAD_TEST_PORT) }, callback);
};
