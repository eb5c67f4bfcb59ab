// As `pi --mode rpc`: a state when asked for it, and 30 frames for an attempt. It is a script for Node, as pi is.
const PIECES = 17;
const PIECE = "So it is done, and this is the answer to it. ";
const SAID = PIECE.repeat(PIECES - 1) + 'PROCTOR-RESULT: {"done": true, "answer": ""}';
const USED = { input: 12, output: 7, cacheRead: 0, cacheWrite: 0, totalTokens: 19 };

const say = (frames) => process.stdout.write(frames.map((frame) => JSON.stringify(frame) + "\n").join(""));
const reply = (ask, data) => ({ id: ask.id, type: "response", command: ask.type, success: true, data });
const state = { sessionId: "01a1e1a9-ddf0-71c3-af1a-000000000001", isStreaming: false, isCompacting: false, messageCount: 0 };

function turn(ask) {
  const question = { role: "user", content: [{ type: "text", text: "Do it." }] };
  const answer = { role: "assistant", content: [{ type: "text", text: SAID }], usage: USED, stopReason: "stop" };
  const grown = (event) => ({ type: "message_update", message: answer, assistantMessageEvent: { contentIndex: 0, ...event } });
  return [
    reply(ask),
    { type: "agent_start" },
    { type: "turn_start" },
    { type: "message_start", message: question },
    { type: "message_end", message: question },
    { type: "message_start", message: { ...answer, content: [] } },
    grown({ type: "text_start" }),
    ...Array(PIECES - 1).fill(grown({ type: "text_delta", delta: PIECE })),
    grown({ type: "text_delta", delta: SAID.slice(-44) }),
    grown({ type: "text_end", content: SAID }),
    { type: "message_end", message: answer },
    { type: "turn_end", message: answer, toolResults: [] },
    { type: "agent_end", messages: [question, answer] },
  ];
}

require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const ask = JSON.parse(line);
  say(ask.type === "prompt" ? turn(ask) : [reply(ask, state)]);
});
