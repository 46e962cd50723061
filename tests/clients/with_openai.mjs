// The official OpenAI client for JavaScript.

import OpenAI from "openai";

import { collect, expect, expectSimulated, expectThat, run } from "./suite.mjs";

const CHAT = "qwen3.6:27b";
const EMBEDDER = "nomic-embed-text:latest";
const TOKENS = 12;

const client = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0, timeout: 30_000 });
const user = (content) => ({ role: "user", content });

await run("npm openai", {
  "models are listed": async (url) => {
    const models = await collect(client(url).models.list());
    expect("models", models.map((model) => model.id).sort(), ["llama3.2:3b", EMBEDDER, CHAT]);
  },

  chat: async (url) => {
    const asked = { model: CHAT, messages: [user("hello")], max_tokens: TOKENS };
    const { choices, usage } = await client(url).chat.completions.create(asked);
    expectSimulated(choices[0].message.content);
    expect("completion tokens", usage.completion_tokens, TOKENS);
    expect("total tokens", usage.total_tokens, usage.prompt_tokens + TOKENS);
  },

  "chat in pieces says the same": async (url) => {
    const asked = { model: CHAT, messages: [user("stream")], max_tokens: TOKENS };
    const { choices } = await client(url).chat.completions.create(asked);
    const chunks = await collect(await client(url).chat.completions.create({ ...asked, stream: true }));
    const pieces = chunks.map((chunk) => chunk.choices[0].delta.content).filter(Boolean);
    expect("pieces", pieces.length, TOKENS);
    expect("text", pieces.join(""), choices[0].message.content);
  },

  "two turns meet the same node": async (url) => {
    const messages = [user("another long question in JavaScript ".repeat(40))];
    const say = () => client(url).chat.completions.create({ model: CHAT, messages, max_tokens: TOKENS }).withResponse();
    const first = await say();
    messages.push(first.data.choices[0].message, user("And then?"));
    const second = await say();
    const [before, after] = [first, second].map((turn) => turn.response.headers);
    expect("node of the second turn", after.get("x-fleet-node"), before.get("x-fleet-node"));
    expect("affinity", [before.get("x-fleet-affinity"), after.get("x-fleet-affinity")], ["new", "session"]);
  },

  "embeddings packed and plain are the same": async (url) => {
    const asked = { model: EMBEDDER, input: ["one", "two"] };
    const plain = await client(url).embeddings.create({ ...asked, encoding_format: "float" });
    // Left out, the client asks for base64 and unpacks it.
    const packed = await client(url).embeddings.create(asked);
    expect("lengths", packed.data.map((entry) => entry.embedding.length), [768, 768]);
    packed.data.forEach((entry, index) => {
      const differences = entry.embedding.map((number, at) => Math.abs(number - plain.data[index].embedding[at]));
      expectThat(Math.max(...differences) < 1e-6, "largest difference", Math.max(...differences), "none");
    });
  },

  "a tool call comes in a stream": async (url) => {
    const parameters = { type: "object", required: ["city"], properties: { city: { type: "string" } } };
    const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
    const asked = { model: CHAT, messages: [user("call get_weather")], tools };
    const completion = await client(url).chat.completions.stream(asked).finalChatCompletion();
    const calls = completion.choices[0].message.tool_calls?.map((call) => call.function.name);
    expect("finish reason, calls", [completion.choices[0].finish_reason, calls], ["tool_calls", ["get_weather"]]);
  },

  "a response, whole and in pieces, says the same": async (url) => {
    const asked = { model: CHAT, input: "hello", max_output_tokens: TOKENS };
    const whole = await client(url).responses.create(asked);
    expectSimulated(whole.output_text);
    const events = await collect(await client(url).responses.create({ ...asked, stream: true }));
    const pieces = events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta);
    expect("pieces", pieces.length, TOKENS);
    expect("text", pieces.join(""), whole.output_text);
  },
});
