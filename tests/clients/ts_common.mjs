// What the two TypeScript clients share: the SDK, the agent as a child, and what they report.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [packages, command, cwd, task, ...sessions] = process.argv.slice(2);

// The agent is a command, or the address of a server with its key.
const server = JSON.parse(command);
const remote = !Array.isArray(server);

// A client with a key cannot choose the directory of its sessions, so it does not filter by it.
const listed = remote ? {} : { cwd };

export { cwd, listed, task, sessions };

export async function sdk(entry) {
  const require = createRequire(`${packages}/`);
  return await import(pathToFileURL(require.resolve(`@agentclientprotocol/sdk${entry}`)).href);
}

// Runs `work` against the agent, and prints what it returns.
export async function run(acp, app, work) {
  if (remote) {
    const report = await app.connectWith(await remoteStream(), work);
    console.log(JSON.stringify({ ...report, exit: 0 }));
    return;
  }
  const [program, ...words] = server;
  const agent = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => agent.on("exit", resolve));
  const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
  const report = await app.connectWith(stream, work);
  agent.stdin.end();
  report.exit = await ended;
  console.log(JSON.stringify(report));
}

async function remoteStream() {
  const headers = { "x-api-key": server.key };
  if (!server.url.startsWith("ws")) {
    const { createHttpStream } = await sdk("/experimental/http-client");
    return createHttpStream(server.url, { headers });
  }
  const { createWebSocketStream } = await sdk("/experimental/ws-client");
  // Node's own WebSocket has its headers in the second argument.
  class NodeWebSocket extends WebSocket {
    constructor(url, protocols, options) {
      super(url, { protocols: protocols ?? [], headers: options?.headers });
    }
  }
  return createWebSocketStream(server.url, { WebSocket: NodeWebSocket, headers });
}

// The response of an agent, after the updates before it. The SDK may resolve a response before it
// has handled an update that came in the same read.
export async function answered(response) {
  const result = await response;
  // Over HTTP, updates and some responses come on different streams.
  await new Promise((resolve) => (remote ? setTimeout(resolve, 100) : setImmediate(resolve)));
  return result;
}

export const text = (words) => [{ type: "text", text: words }];

export const SCRIPT = "Hello there\n/think hm\n/say hi\n/tool ls a b\n/plan one; x two\n/ask May I?";

// The code of the error that a promise ends with.
export async function refusal(promise) {
  try {
    await promise;
  } catch (error) {
    return error.code;
  }
  return null;
}
