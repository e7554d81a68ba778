// Lists sessions with the TypeScript SDK: a limit a line on standard input (0 for none), and the
// milliseconds and the number of sessions on standard output.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const sdk = join(process.argv[2], "node_modules/@anthropic-ai/claude-agent-sdk/sdk.mjs");
const { listSessions } = await import(pathToFileURL(sdk));
for await (const line of createInterface({ input: process.stdin })) {
  const limit = Number(line);
  const start = performance.now();
  const found = await listSessions(limit ? { limit } : {});
  console.log(`${performance.now() - start} ${found.length}`);
}
