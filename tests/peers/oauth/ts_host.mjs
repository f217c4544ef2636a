// The client of version 1 of the TypeScript SDK as a host with a login: `node ts_host.mjs URL CALLBACK`, run in the folder
// tests/peers/mcp. Prints the URL for the browser, reads the URL to which the browser came back, and calls a tool.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const sdk = (name) => import(pathToFileURL(createRequire(`${process.cwd()}/`).resolve(`@modelcontextprotocol/sdk/client/${name}`)));
const { Client } = await sdk("index.js");
const { StreamableHTTPClientTransport } = await sdk("streamableHttp.js");
const { UnauthorizedError } = await sdk("auth.js");

const [server, callback] = process.argv.slice(2);
const kept = {};
const provider = {
  redirectUrl: callback,
  clientMetadata: { client_name: "TypeScript host", redirect_uris: [callback], token_endpoint_auth_method: "none" },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  redirectToAuthorization: (url) => { console.log(String(url)); },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
};
const client = new Client({ name: "ts", version: "1.0.0" });
const first = new StreamableHTTPClientTransport(new URL(server), { authProvider: provider });
try {
  await client.connect(first);
} catch (error) {
  if (!(error instanceof UnauthorizedError)) throw error;
}
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
await first.finishAuth(new URL((await lines.next()).value).searchParams.get("code"));
await client.connect(new StreamableHTTPClientTransport(new URL(server), { authProvider: provider }));
const before = await client.callTool({ name: "shop_whoami", arguments: {} });
kept.tokens = { ...kept.tokens, access_token: "expired" }; // the host refreshes
const after = await client.callTool({ name: "shop_whoami", arguments: {} });
console.log(JSON.stringify([before.content[0].text, after.content[0].text]));
await client.close();
process.exit(0);
