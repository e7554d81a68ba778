// The official TypeScript client's worker of a self-hosted environment. It runs until it is stopped.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [packages, name, baseURL, key, environmentId, workdir] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const { default: Anthropic } = await import(pathToFileURL(require.resolve(name)).href);
const client = new Anthropic({ baseURL, authToken: key });
await client.beta.environments.work
  .worker({ environmentId, environmentKey: key, workdir, maxIdleMs: 200 })
  .run();
