// Run with each official TypeScript client: the whole life of sessions, and what they refer to.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [packages, name, baseURL, apiKey] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const { default: Anthropic, toFile } = await import(pathToFileURL(require.resolve(name)).href);
const { version } = JSON.parse(readFileSync(`${packages}/node_modules/${name}/package.json`));
const [major, minor] = version.split(".").map(Number);
const NEW = major > 0 || minor >= 118; // knows overrides, initial events and deltas

const { beta } = new Anthropic({ baseURL, apiKey, maxRetries: 0 });
const message = (text) => ({ type: "user.message", content: [{ type: "text", text }] });

// Everything in a list, by the client's own paging.
async function all(list) {
  const found = [];
  for await (const each of list) found.push(each);
  return found;
}

async function status(promise) {
  try {
    await promise;
  } catch (error) {
    return error.status;
  }
  return null;
}

async function records() {
  const agent = await beta.agents.create({
    name: "Tester",
    model: "claude-sonnet-4-6",
    system: "Be brief.",
    tools: [{ type: "agent_toolset_20260401", configs: [{ name: "bash", enabled: true }] }],
  });
  const second = await beta.agents.update(agent.id, { version: agent.version, system: "Brief!" });
  assert.equal(second.version, 2);
  assert.equal(await status(beta.agents.update(agent.id, { version: 1, system: "late" })), 409);
  assert.equal((await beta.agents.retrieve(agent.id, { version: 1 })).system, "Be brief.");
  const versions = await all(beta.agents.versions.list(agent.id, { limit: 1 }));
  assert.deepEqual(versions.map((each) => each.version), [2, 1]);
  const environment = await beta.environments.create({ name: "e" });
  assert.equal((await beta.environments.update(environment.id, { name: "f" })).name, "f");
  assert.ok((await all(beta.environments.list({ limit: 1 }))).some((e) => e.id === environment.id));
  assert.deepEqual((await all(beta.models.list())).map((each) => each.id), ["demo"]);
  return [second, environment];
}

async function sessions(agent, environment) {
  const store = await beta.memoryStores.create({ name: "Preferences" });
  const made = [];
  for (let number = 0; number < 5; number++) {
    const resources = number ? [] : [{ type: "memory_store", memory_store_id: store.id }];
    made.push(
      await beta.sessions.create({
        agent: { type: "agent", id: agent.id, version: 1 + (number % 2) },
        environment_id: environment.id,
        title: String(number),
        metadata: { number: String(number) },
        resources,
      }),
    );
  }
  const mine = { agent_id: agent.id };
  const titles = async (filters) =>
    (await all(beta.sessions.list({ limit: 2, ...filters }))).map((each) => each.title);
  assert.deepEqual(await titles(mine), ["4", "3", "2", "1", "0"]);
  assert.deepEqual(await titles({ ...mine, order: "asc" }), ["0", "1", "2", "3", "4"]);
  const hour = 3_600_000;
  const past = new Date(Date.now() - hour).toISOString();
  const future = new Date(Date.now() + hour).toISOString();
  for (const [filters, count] of [
    [{ ...mine, agent_version: 1 }, 3],
    [{ ...mine, "created_at[gt]": past, "created_at[lt]": future }, 5],
    [{ ...mine, "created_at[gte]": future }, 0],
    [{ ...mine, "created_at[lte]": "2001-01-01T00:00:00+02:00" }, 0],
    [{ ...mine, statuses: ["idle", "running"] }, 5],
    [{ ...mine, statuses: ["terminated"] }, 0],
    [{ ...mine, include_archived: true }, 5],
    [{ deployment_id: "depl_1" }, 0],
    [{ memory_store_id: store.id }, 1],
  ]) {
    assert.equal((await titles(filters)).length, count, JSON.stringify(filters));
  }
  const ours = beta.sessions.list(mine, { query: { ...mine, q: "nothing like it" } });
  assert.equal((await all(ours)).length, 0);
  const page = await beta.sessions.list({ ...mine, limit: 2 });
  const next = await page.getNextPage();
  const back = await beta.sessions.list({ ...mine, limit: 2, page: next.prev_page });
  assert.deepEqual(back.data.map((each) => each.id), page.data.map((each) => each.id));
  const one = made[0].id;
  const updated = await beta.sessions.update(one, { title: "new", metadata: { number: null } });
  assert.deepEqual([updated.title, updated.metadata], ["new", {}]);
  assert.equal((await beta.sessions.archive(made[1].id)).status, "terminated");
  assert.equal((await titles({ ...mine, include_archived: true })).length, 5);
  assert.equal((await titles(mine)).length, 4);
  assert.equal((await beta.sessions.delete(made[2].id)).type, "session_deleted");
  assert.equal(await status(beta.sessions.retrieve(made[2].id)), 404);
  return one;
}

async function conversation(id) {
  await beta.sessions.events.send(id, { events: [message("/say Hello\n/tool ls a\n/usage 5 6")] });
  const heard = [];
  for await (const event of await beta.sessions.events.stream(id)) {
    heard.push(event);
    if (event.type === "session.status_idle") break;
  }
  assert.equal(heard[0].type, "session.status_running");
  const said = heard.filter((each) => each.type === "agent.message");
  assert.deepEqual(said.map((each) => each.content[0].text), ["Hello"]);
  const listed = (await all(beta.sessions.events.list(id, { limit: 3 }))).map((each) => each.id);
  const newest = await all(beta.sessions.events.list(id, { limit: 3, order: "desc" }));
  assert.deepEqual(newest.map((each) => each.id), listed.toReversed());
  const only = await all(beta.sessions.events.list(id, { types: ["agent.message"] }));
  assert.deepEqual(only.map((each) => each.id), said.map((each) => each.id));

  // Listen first, answer a question, then interrupt.
  let stream = await beta.sessions.events.stream(id);
  await beta.sessions.events.send(id, { events: [message("/ask May I?")] });
  for await (const event of stream) {
    if (event.type !== "session.status_idle") continue;
    if (event.stop_reason.type === "end_turn") break;
    const [tool_use_id] = event.stop_reason.event_ids;
    const answer = { type: "user.tool_confirmation", tool_use_id, result: "allow" };
    await beta.sessions.events.send(id, { events: [answer] });
  }
  stream = await beta.sessions.events.stream(id);
  await beta.sessions.events.send(id, { events: [message("/say begun\n/wait 60")] });
  for await (const event of stream) {
    if (event.type === "agent.message") {
      await beta.sessions.events.send(id, { events: [{ type: "user.interrupt" }] });
    }
    if (event.type === "session.status_idle") break;
  }
  assert.equal((await beta.sessions.retrieve(id)).usage.output_tokens, 6);
  const [thread] = await all(beta.sessions.threads.list(id));
  const inside = await all(beta.sessions.threads.events.list(thread.id, { session_id: id }));
  const outside = await all(beta.sessions.events.list(id));
  assert.deepEqual(inside.map((each) => each.id), outside.map((each) => each.id));
}

async function things(agent, environment) {
  const upload = async (text) =>
    await beta.files.upload({ file: await toFile(Buffer.from(text), "a.txt", { type: "text/plain" }) });
  const files = [await upload("one"), await upload("two"), await upload("three")];
  const names = (await all(beta.files.list({ limit: 2 }))).map((each) => each.id);
  assert.deepEqual(names.slice(0, 3), files.map((each) => each.id).toReversed());
  assert.equal((await beta.files.retrieveMetadata(files[0].id)).size_bytes, 3);
  assert.equal(await (await beta.files.download(files[2].id)).text(), "three");
  const session = await beta.sessions.create({
    agent: agent.id,
    environment_id: environment.id,
    resources: [{ type: "file", file_id: files[0].id, mount_path: "/data/one" }],
  });
  const added = await beta.sessions.resources.add(session.id, { type: "file", file_id: files[1].id });
  assert.equal((await all(beta.sessions.resources.list(session.id, { limit: 1 }))).length, 2);
  await beta.sessions.resources.delete(added.id, { session_id: session.id });
  assert.equal((await beta.files.delete(files[0].id)).type, "file_deleted");

  const skill = await beta.skills.create({
    files: [await toFile(Buffer.from("---\nname: hi\ndescription: d\n---\n"), "hi/SKILL.md")],
  });
  assert.deepEqual(await beta.skills.retrieve(skill.id), skill);
  const [version] = await all(beta.skills.versions.list(skill.id));
  assert.deepEqual([version.name, version.description, version.skill_id], ["hi", "d", skill.id]);
  assert.equal((await beta.skills.delete(skill.id)).type, "skill_deleted");

  const vault = await beta.vaults.create({ display_name: "v" });
  const auth = { type: "static_bearer", mcp_server_url: "https://a.example", token: "S3CRET" };
  const secret = await beta.vaults.credentials.create(vault.id, { auth });
  assert.ok(!JSON.stringify(secret).includes("S3CRET"));
  const named = { vault_id: vault.id };
  const changed = await beta.vaults.credentials.update(secret.id, { ...named, display_name: "d" });
  assert.deepEqual(await beta.vaults.credentials.retrieve(secret.id, named), changed);
  await beta.vaults.credentials.archive(secret.id, named);
  await beta.vaults.delete(vault.id);

  const store = await beta.memoryStores.create({ name: "m" });
  const held = { memory_store_id: store.id };
  const note = await beta.memoryStores.memories.create(store.id, { path: "/a", content: "one" });
  await beta.memoryStores.memories.update(note.id, { ...held, content: "two" });
  assert.equal((await beta.memoryStores.memories.retrieve(note.id, held)).content, "two");
  const history = await all(beta.memoryStores.memoryVersions.list(store.id, { limit: 1 }));
  assert.deepEqual(history.map((each) => each.operation), ["modified", "created"]);
  await beta.memoryStores.memories.delete(note.id, held);

  const deployment = await beta.deployments.create({
    name: "d",
    agent: agent.id,
    environment_id: environment.id,
    initial_events: [message("hello")],
  });
  const run = await beta.deployments.run(deployment.id);
  const [made] = await all(beta.sessions.list({ deployment_id: deployment.id }));
  assert.equal(made.id, run.session_id);
}

async function newer(agent, environment) {
  const made = await beta.sessions.create({
    agent: { type: "agent_with_overrides", id: agent.id, system: null, model: "m" },
    environment_id: environment.id,
    initial_events: [message("/slow 0.02\n/say one two three four five six")],
  });
  assert.deepEqual([made.status, made.agent.system, made.agent.model.id], ["running", null, "m"]);
  const kinds = [];
  const deltas = { event_deltas: ["agent.message"] };
  for await (const event of await beta.sessions.events.stream(made.id, deltas)) {
    kinds.push(event.type);
    if (event.type === "session.status_idle") break;
  }
  assert.ok(kinds.includes("event_start") && kinds.includes("event_delta"), kinds.join());
}

const [agent, environment] = await records();
await conversation(await sessions(agent, environment));
await things(agent, environment);
if (NEW) await newer(agent, environment);
console.log(`@anthropic-ai/sdk ${version}: all is well`);
