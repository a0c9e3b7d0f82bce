// Receives webhooks as an app would, and prints what it has verified: one line for each request.
// Every secret must verify each of them. PORT; SECRETS: separated by commas; MODULES: of npm.
import { createServer } from "node:http";
import { createRequire } from "node:module";

const { Webhook } = createRequire(process.env.MODULES + "/")("standardwebhooks");
const webhooks = process.env.SECRETS.split(",").map((secret) => new Webhook(secret));

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString();
  try {
    for (const webhook of webhooks) webhook.verify(body, request.headers);
  } catch (error) {
    console.log(JSON.stringify({ bad: String(error) }));
    response.writeHead(400).end();
    return;
  }
  const message = JSON.parse(body);
  console.log(JSON.stringify({ id: request.headers["webhook-id"], type: message.type, subject: message.data.id ?? "" }));
  response.writeHead(204).end();
}).listen(Number(process.env.PORT), "127.0.0.1", () => console.log(JSON.stringify({ ready: true })));
