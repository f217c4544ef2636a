// The client of version 1 of the TypeScript SDK: lists the tools of a server, calls each, and prints the results.
// `node ts_v1_client.mjs URL` reads {name: arguments} on standard input.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { readFileSync } from "node:fs";

const client = new Client({ name: "ts", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const results = {};
const { tools } = await client.listTools();
for (const [name, input] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
  try {
    results[name] = await client.callTool({ name, arguments: input });
  } catch (error) {
    results[name] = { raised: String(error) };
  }
}
console.log(JSON.stringify({ outputs: tools.filter((tool) => tool.outputSchema).map((tool) => tool.name), results }));
await client.close();
