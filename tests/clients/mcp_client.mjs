// The official MCP clients in TypeScript, the newer one of which the MCP Inspector uses.
// Arguments: the directory of node_modules, the package, and a JSON object with the transport's
// settings and the calls. Prints what each call answers as one JSON object.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [directory, name, settings] = process.argv.slice(2);
const require = createRequire(`${directory}/package.json`);
const load = async (path) => import(pathToFileURL(require.resolve(path)).href);
const isSdk = name.endsWith("/sdk");
const { Client } = await load(isSdk ? `${name}/client/index.js` : name);
const { StdioClientTransport } = await load(isSdk ? `${name}/client/stdio.js` : `${name}/stdio`);
const { StreamableHTTPClientTransport } = await load(isSdk ? `${name}/client/streamableHttp.js` : name);

const { url, key, command, args, env, calls, session } = JSON.parse(settings);
const transport = url
  ? new StreamableHTTPClientTransport(new URL(url), {
      requestInit: { headers: { authorization: `Bearer ${key}` } },
    })
  : new StdioClientTransport({ command, args, env });
const client = new Client({ name: "test", version: "1" });
await client.connect(transport);
const answers = {};
answers.tools = (await client.listTools()).tools.map((tool) => tool.name);
for (const [tool, values] of Object.entries(calls)) {
  const result = await client.callTool({ name: tool, arguments: values });
  answers[tool] = { error: result.isError ?? false, text: result.content[0].text };
}
const uri = `segue://session/${session}`;
answers.resources = (await client.listResources()).resources.map((resource) => resource.uri);
answers.templates = (await client.listResourceTemplates()).resourceTemplates.length;
answers.resource = (await client.readResource({ uri: `${uri}/turn/1` })).contents[0].text;
answers.prompts = (await client.listPrompts()).prompts.map((prompt) => prompt.name);
const prompt = await client.getPrompt({ name: "continue_from", arguments: { session } });
answers.prompt = prompt.messages[0].content.text;
answers.refused = await client
  .readResource({ uri: "segue://session/none" })
  .then(() => null, (error) => error.code);
await client.close();
console.log(JSON.stringify(answers));
