// A client of the TypeScript SDK's first interface, `ClientSideConnection`: every method that a release has.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [packages, name, command, cwd] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const acp = await import(pathToFileURL(require.resolve(name)).href);
const [program, ...words] = JSON.parse(command);
const agent = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => agent.on("exit", resolve));
const kinds = new Set();
let asked = 0;
const client = {
  async sessionUpdate({ update }) {
    kinds.add(update.sessionUpdate);
  },
  async requestPermission({ options }) {
    asked += 1;
    return { outcome: { outcome: "selected", optionId: options[0].optionId } };
  },
};
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const connection = new acp.ClientSideConnection(() => client, stream);
const report = { called: [] };

// Call a method by the names that releases gave it; null if this release has none of them.
async function call(method, params) {
  const known = [method, `unstable_${method}`].find((each) => each in connection);
  if (known === undefined) return null;
  report.called.push(method);
  return await connection[known](params);
}

const text = (words) => [{ type: "text", text: words }];
const greeting = await call("initialize", { protocolVersion: 1, clientCapabilities: {} });
report.version = greeting.protocolVersion;
const { sessionId } = await call("newSession", { cwd, mcpServers: [] });
const prompt = text("/think hm\n/say hi\n/tool ls a\n/plan one\n/ask May I?");
report.stopReason = (await call("prompt", { sessionId, prompt })).stopReason;
await call("setSessionMode", { sessionId, modeId: "plan" });
await call("setSessionConfigOption", { sessionId, configId: "mode", value: "default" });
report.listed = (await call("listSessions", { cwd }))?.sessions.length ?? 1;
const waiting = call("prompt", { sessionId, prompt: text("/wait 60") });
await call("cancel", { sessionId });
report.cancelled = (await waiting).stopReason;
await call("closeSession", { sessionId });
kinds.clear();
await call("loadSession", { sessionId, cwd, mcpServers: [] });
await new Promise((resolve) => setTimeout(resolve, 100)); // it hands on updates after the response
report.replayed = [...kinds].filter((kind) => kind !== "session_info_update").sort();
await call("resumeSession", { sessionId, cwd, mcpServers: [] });
await call("forkSession", { sessionId, cwd, mcpServers: [] });
await call("deleteSession", { sessionId });
await call("logout", {});
await call("authenticate", { methodId: "segue-local" });
report.asked = asked;
agent.stdin.end();
report.exit = await ended;
console.log(JSON.stringify(report));
