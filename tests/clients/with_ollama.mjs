// The official Ollama client for JavaScript.

import { Ollama } from "ollama";

import { collect, expect, expectSimulated, expectThat, run } from "./suite.mjs";

const CHAT = "qwen3.6:27b";
const EMBEDDER = "nomic-embed-text:latest";
const SHORT = { num_predict: 12 };

const client = (url) => new Ollama({ host: url });
const user = (content) => ({ role: "user", content });

await run("npm ollama", {
  "list has every model once": async (url) => {
    const { models } = await client(url).list();
    expect("models", models.map((model) => model.name).sort(), ["llama3.2:3b", EMBEDDER, CHAT]);
  },

  chat: async (url) => {
    const answer = await client(url).chat({ model: CHAT, messages: [user("hello")], options: SHORT });
    expectSimulated(answer.message.content);
    expect("done_reason, eval_count", [answer.done_reason, answer.eval_count], ["length", SHORT.num_predict]);
    expectThat(answer.prompt_eval_count > 0, "prompt_eval_count", answer.prompt_eval_count, "tokens");
  },

  "chat in pieces says the same": async (url) => {
    const asked = { model: CHAT, messages: [user("stream")], options: SHORT };
    const whole = await client(url).chat(asked);
    const pieces = await collect(await client(url).chat({ ...asked, stream: true }));
    expect("pieces", pieces.length, SHORT.num_predict + 1);
    expect("text", pieces.map((piece) => piece.message.content).join(""), whole.message.content);
    expect("done", pieces.at(-1).done, true);
  },

  "two turns meet the same node": async (url) => {
    const heads = [];
    const watched = async (...request) => {
      const answer = await fetch(...request);
      heads.push(answer.headers);
      return answer;
    };
    const talker = new Ollama({ host: url, fetch: watched });
    const messages = [user("a long question in JavaScript ".repeat(40))];
    const { message } = await talker.chat({ model: CHAT, messages, options: SHORT });
    await talker.chat({ model: CHAT, messages: [...messages, message, user("And then?")], options: SHORT });
    const [first, second] = heads.map((head) => head.get("x-fleet-node"));
    expect("node of the second turn", second, first);
    expect("affinity", heads.map((head) => head.get("x-fleet-affinity")), ["new", "session"]);
  },

  generate: async (url) => {
    const answer = await client(url).generate({ model: CHAT, prompt: "tell me", options: SHORT });
    expectSimulated(answer.response);
    expectThat(answer.context.length > 0, "context", answer.context, "tokens");
  },

  "embed gives a vector for each text": async (url) => {
    const { embeddings } = await client(url).embed({ model: EMBEDDER, input: ["one", "two"] });
    expect("lengths", embeddings.map((vector) => vector.length), [768, 768]);
  },

  "a tool is called": async (url) => {
    const parameters = { type: "object", required: ["city"], properties: { city: { type: "string" } } };
    const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
    const { message } = await client(url).chat({ model: CHAT, messages: [user("call get_weather")], tools });
    const calls = message.tool_calls?.map((call) => [call.function.name, call.function.arguments]);
    expect("calls", calls, [["get_weather", { city: "[simulated]" }]]);
  },

  "a stream can be left": async (url) => {
    const asked = { model: CHAT, messages: [user("leave")], stream: true };
    const stream = await client(url).chat(asked);
    for await (const piece of stream) {
      expect("done", piece.done, false);
      break;
    }
    stream.abort();
  },
});
