// The official TypeScript client of version 1: the whole cycle, or one session made or read.
import { SCRIPT, answered, cwd, listed, refusal, run, sdk, sessions, task, text } from "./ts_common.mjs";

const acp = await sdk("/unstable");
const { methods } = acp;
let updates = [];
let asked = 0;

const app = acp
  .client({ name: "segue-tests" })
  .onNotification(methods.client.session.update, ({ params }) => {
    updates.push(params.update);
  })
  .onRequest(methods.client.session.requestPermission, () => {
    asked += 1;
    return { outcome: { outcome: "selected", optionId: "allow" } };
  });

const said = () => {
  const entries = new Map();
  for (const update of updates) {
    const kind = update.sessionUpdate;
    if (kind.endsWith("_chunk")) {
      const key = `${kind} ${update.messageId}`;
      const before = entries.get(key)?.[1] ?? "";
      entries.set(key, [kind.replace("_chunk", ""), before + update.content.text]);
    } else if (kind.startsWith("tool_call")) {
      const key = `tool ${update.toolCallId}`;
      const title = update.title ?? entries.get(key)?.[1];
      entries.set(key, ["tool", title, update.status]);
    }
  }
  return [...entries.values()];
};

await run(acp, app, async (agent) => {
  const greeting = await agent.request(methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: {},
  });
  const ask = (method, params) => answered(agent.request(method, params));
  const { session: s } = methods.agent;
  const report = { version: greeting.protocolVersion, agent: greeting.agentInfo.name };

  const make = async () => {
    const { sessionId } = await ask(s.new, { cwd, mcpServers: [] });
    const turn = await ask(s.prompt, { sessionId, prompt: text(SCRIPT) });
    return [sessionId, turn.stopReason];
  };

  if (task === "make") {
    [report.session] = await make();
    return report;
  }
  if (task === "read") {
    report.said = [];
    for (const sessionId of sessions) {
      updates = [];
      await ask(s.load, { sessionId, cwd, mcpServers: [] });
      report.said.push(said());
    }
    return report;
  }

  report.empty = (await ask(s.list, {})).sessions;
  const [sessionId, stopReason] = await make();
  Object.assign(report, { session: sessionId, stopReason, asked, live: said() });
  report.listed = (await ask(s.list, listed)).sessions;
  report.elsewhere = (await ask(s.list, { cwd: "/nowhere" })).sessions;
  report.badCursor = await refusal(ask(s.list, { cursor: "nonsense" }));

  report.mode = (
    await ask(s.setConfigOption, { sessionId, configId: "mode", value: "plan" })
  ).configOptions[0].currentValue;
  await ask(s.setMode, { sessionId, modeId: "default" });
  report.title = (await ask(s.setTitle, { sessionId, title: " Named " })).title;
  report.open = (await ask(s.status, { sessionId })).status;

  const slow = ask(s.prompt, { sessionId, prompt: text("/wait 60") });
  await agent.notify(s.cancel, { sessionId });
  report.cancelled = (await slow).stopReason;

  await ask(s.close, { sessionId });
  report.closed = await refusal(ask(s.prompt, { sessionId, prompt: text("no") }));
  updates = [];
  await ask(s.load, { sessionId, cwd, mcpServers: [] });
  report.loaded = said();
  await ask(s.close, { sessionId });
  updates = [];
  await ask(s.resume, { sessionId, cwd });
  report.resumed = updates.length;
  const fork = (await ask(s.fork, { sessionId, cwd, mcpServers: [] })).sessionId;
  await ask(s.archive, { sessionId: fork });
  report.archived = (await ask(s.list, { archived: "only" })).sessions.length;
  await ask(s.unarchive, { sessionId: fork });
  for (const each of [fork, sessionId]) await ask(s.delete, { sessionId: each });
  report.left = (await ask(s.list, {})).sessions;
  report.deleted = await refusal(ask(s.load, { sessionId, cwd, mcpServers: [] }));
  report.unknown = await refusal(agent.request("_segue/nothing", {}));
  return report;
});
