// A minimal agent with the official TypeScript SDK: it only answers `initialize`.
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.argv[2]}/`);
const acp = await import(pathToFileURL(require.resolve("@agentclientprotocol/sdk")).href);

acp
  .agent({ name: "minimal" })
  .onRequest(acp.methods.agent.initialize, () => ({ protocolVersion: 1, agentCapabilities: {} }))
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
