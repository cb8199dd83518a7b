// Everything that is asked of the server: with the token of the address, one query of a kind at a time.
const token = new URLSearchParams(location.search).get("token") ?? "";

async function ask(path, body) {
  let answer;
  try {
    answer = await fetch(`api/${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { "x-token": token, "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Error("The server does not answer. What was shown as decided is on disk; start hardsight explore again.");
  }
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw new Error(told.error ?? `The server answered ${answer.status}.`);
  }
  return answer;
}

export const told = async (path, body) => (await ask(path, body)).json();

const ARRAYS = { "<u4": Uint32Array, "<f4": Float32Array, "|u1": Uint8Array };

export async function counts(body) {
  const buffer = await (await ask("counts", body)).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const facts = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  let at = 8 + Math.ceil(length / 8) * 8;
  const parts = {};
  for (const { name, type, shape } of facts.parts) {
    const size = shape.reduce((one, other) => one * other, 1);
    const array = new ARRAYS[type](buffer, at, size);
    parts[name] = array;
    at += Math.ceil(array.byteLength / 8) * 8;
  }
  return { count: facts.count, exact: facts.exact, parts };
}

export const picture = (row, side, heat = false) =>
  `api/picture?row=${row}&side=${side}${heat ? "&heat=1" : ""}&token=${encodeURIComponent(token)}`;

// Runs the newest of the jobs it is given, one at a time: what came between is never asked.
export function newest(run, fail) {
  let running = false;
  let next;
  return async function (...given) {
    next = given;
    if (running) return;
    running = true;
    while (next) {
      const now = next;
      next = undefined;
      try {
        await run(...now);
      } catch (problem) {
        fail(problem);
      }
    }
    running = false;
  };
}
