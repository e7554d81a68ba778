// The official TypeScript client of version 2: the whole cycle, or one session made or read.
import { SCRIPT, answered, cwd, listed, refusal, run, sdk, sessions, task, text } from "./ts_common.mjs";

const acp = await sdk("/experimental/v2/unstable");
const { methods } = acp;
let updates = [];
let asked = 0;
let waiting = [];

const app = acp
  .client({ name: "segue-tests" })
  .onNotification(methods.client.session.update, ({ params }) => {
    updates.push(params.update);
    waiting = waiting.filter((each) => !each());
  })
  .onRequest(methods.client.session.requestPermission, () => {
    asked += 1;
    return { outcome: { outcome: "selected", optionId: "allow" } };
  });

// The first update like that from a place on, when it comes.
const until = (seen, after) =>
  new Promise((resolve) => {
    const look = () => {
      const found = updates.slice(after).find(seen);
      if (found) resolve(found);
      return Boolean(found);
    };
    if (!look()) waiting.push(look);
  });

const rested = (update) =>
  update.sessionUpdate === "state_update" && update.state === "idle" && update.stopReason;

const said = () => {
  const entries = new Map();
  const join = (content) => (content ?? []).map((block) => block.text).join("");
  for (const update of updates) {
    const kind = update.sessionUpdate;
    if (kind.endsWith("_chunk")) {
      const key = `${kind.replace("_chunk", "")} ${update.messageId}`;
      const before = entries.get(key)?.[1] ?? "";
      entries.set(key, [kind.replace("_chunk", ""), before + update.content.text]);
    } else if (update.messageId) {
      entries.set(`${kind} ${update.messageId}`, [kind, join(update.content)]);
    } else if (kind === "tool_call_update") {
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
    info: { name: "segue-tests", version: "1" },
  });
  const ask = (method, params) => answered(agent.request(method, params));
  const { session: s } = methods.agent;
  const report = { version: greeting.protocolVersion, agent: greeting.info.name };

  const turn = async (sessionId, words) => {
    const before = updates.length;
    const { messageId } = await ask(s.prompt, { sessionId, prompt: text(words) });
    const { stopReason } = await until(rested, before);
    const mine = updates.slice(before).find((update) => update.sessionUpdate === "user_message");
    return { stopReason, echoed: mine.messageId === messageId };
  };
  const make = async () => {
    const { sessionId } = await ask(s.new, { cwd });
    return [sessionId, await turn(sessionId, SCRIPT)];
  };
  const replay = async (sessionId) => {
    updates = [];
    await ask(s.resume, { sessionId, cwd, replayFrom: { type: "start" } });
    return said();
  };

  if (task === "make") {
    [report.session] = await make();
    return report;
  }
  if (task === "read") {
    report.said = [];
    for (const sessionId of sessions) report.said.push(await replay(sessionId));
    return report;
  }

  report.empty = (await ask(s.list, {})).sessions;
  const [sessionId, first] = await make();
  Object.assign(report, { session: sessionId, ...first, asked, live: said() });
  report.listed = (await ask(s.list, listed)).sessions;
  report.elsewhere = (await ask(s.list, { cwd: "/nowhere" })).sessions;
  report.badCursor = await refusal(ask(s.list, { cursor: "nonsense" }));

  const option = { sessionId, configId: "mode", type: "id", value: "plan" };
  report.mode = (await ask(s.setConfigOption, option)).configOptions[0].currentValue;
  report.title = (await ask(s.setTitle, { sessionId, title: " Named " })).title;
  report.open = (await ask(s.status, { sessionId })).status;

  const before = updates.length;
  await ask(s.prompt, { sessionId, prompt: text("/wait 60") });
  const held = refusal(ask(s.prompt, { sessionId, prompt: text("/say never") }));
  await agent.notify(s.cancel, { sessionId });
  report.cancelled = (await until(rested, before)).stopReason;
  report.held = await held;

  await ask(s.close, { sessionId });
  report.closed = await refusal(ask(s.prompt, { sessionId, prompt: text("no") }));
  report.loaded = await replay(sessionId);
  await ask(s.close, { sessionId });
  updates = [];
  await ask(s.resume, { sessionId, cwd });
  report.resumed = updates.filter((update) => update.messageId).length;
  report.state = updates.at(-1).state;
  const fork = (await ask(s.fork, { sessionId, cwd })).sessionId;
  await ask(s.archive, { sessionId: fork });
  report.archived = (await ask(s.list, { archived: "only" })).sessions.length;
  await ask(s.unarchive, { sessionId: fork });
  for (const each of [fork, sessionId]) await ask(s.delete, { sessionId: each });
  report.left = (await ask(s.list, {})).sessions;
  report.deleted = await refusal(ask(s.resume, { sessionId, cwd }));
  report.unknown = await refusal(agent.request("_segue/nothing", {}));
  return report;
});
