// List sessions with the TypeScript SDK: read one limit per line from standard input (0 for none),
// and print the milliseconds and the number of sessions.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const sdk = join(process.argv[2], "node_modules/@anthropic-ai/claude-agent-sdk/sdk.mjs");
const { listSessions } = await import(pathToFileURL(sdk));
for await (const line of createInterface({ input: process.stdin })) {
  const limit = Number(line);
  const start = performance.now();
  const sessions = await listSessions(limit ? { limit } : {});
  console.log(`${performance.now() - start} ${sessions.length}`);
}
