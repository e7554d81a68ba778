// What the two TypeScript clients share: the SDK, the agent as a child, and what they report.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [packages, command, cwd, task, ...sessions] = process.argv.slice(2);

export { cwd, task, sessions };

export async function sdk(entry) {
  const require = createRequire(`${packages}/`);
  return await import(pathToFileURL(require.resolve(`@agentclientprotocol/sdk${entry}`)).href);
}

// Runs `work` against the agent, and prints what it returns.
export async function run(acp, app, work) {
  const [program, ...words] = JSON.parse(command);
  const agent = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => agent.on("exit", resolve));
  const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
  const report = await app.connectWith(stream, work);
  agent.stdin.end();
  report.exit = await ended;
  console.log(JSON.stringify(report));
}

// The response of an agent, after the updates before it. The SDK may resolve a response before it
// has handled an update that came in the same read.
export async function answered(response) {
  const result = await response;
  await new Promise((resolve) => setImmediate(resolve));
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
