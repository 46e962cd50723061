// The same as suite.py, for clients in JavaScript: checks that run one after another and say how they went.

import { isDeepStrictEqual } from "node:util";

class Mismatch extends Error {}

const show = (value) => JSON.stringify(value) ?? String(value);

export function expect(what, got, wanted) {
  if (!isDeepStrictEqual(got, wanted)) {
    throw new Mismatch(`${what}: expected ${show(wanted)}, got ${show(got)}`);
  }
}

export function expectThat(holds, what, got, wanted) {
  if (!holds) {
    throw new Mismatch(`${what}: expected ${wanted}, got ${show(got)}`);
  }
}

export function expectSimulated(text) {
  expectThat(text?.startsWith("[simulated] "), "text", text, "text that begins with '[simulated] '");
}

/** Everything that a stream gives. */
export async function collect(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return pieces;
}

/** Runs the functions of `checks` with the URL given on the command line. */
export async function run(client, checks) {
  const url = process.argv[2];
  for (const [name, check] of Object.entries(checks)) {
    const [outcome, reason] = await attempt(check, url);
    console.log(`${outcome.padEnd(8)} ${client}: ${name}${reason && ` (${reason})`}`);
  }
}

async function attempt(check, url) {
  try {
    await check(url);
    return ["passed", ""];
  } catch (error) {
    return ["failed", error instanceof Mismatch ? error.message : `expected no error, got ${error}`];
  }
}
