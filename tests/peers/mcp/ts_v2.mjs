// A server with version 2 of the TypeScript SDK, over streamable HTTP: `node ts_v2.mjs stateful|stateless`.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { NodeStreamableHTTPServerTransport } from "@modelcontextprotocol/node";
import { McpServer } from "@modelcontextprotocol/server";

const sessions = new Map();

async function connected(options) {
  const server = new McpServer({ name: "v2", version: "1.0.0" });
  server.registerTool("whoami", { description: "The process." }, async () => ({
    content: [{ type: "text", text: String(process.pid) }],
  }));
  const transport = new NodeStreamableHTTPServerTransport(options);
  await server.connect(transport);
  return transport;
}

async function transportOf(request) {
  if (process.argv[2] === "stateless") return connected({ sessionIdGenerator: undefined });
  const known = sessions.get(request.headers["mcp-session-id"]);
  if (known) return known;
  const transport = await connected({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  return transport;
}

createServer(async (request, response) => {
  await (await transportOf(request)).handleRequest(request, response);
}).listen(Number(process.env.OPERAD_TEST_PORT), "127.0.0.1");
