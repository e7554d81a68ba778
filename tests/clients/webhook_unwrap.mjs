// Verify webhooks with an official TypeScript client: arguments are the cases as JSON.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [packages, name, cases] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const { default: Anthropic } = await import(pathToFileURL(require.resolve(name)).href);
const { beta } = new Anthropic({ baseURL: "http://127.0.0.1:9", apiKey: "unused" });

for (const { body, headers, key, valid } of JSON.parse(cases)) {
  const unwrap = () => beta.webhooks.unwrap(body, { headers, key });
  if (valid) assert.equal(unwrap().data.type, JSON.parse(body).data.type);
  else assert.throws(unwrap);
}
console.log("all is well");
