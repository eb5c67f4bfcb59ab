// Asks before each tool call that may change something. What is asked about is the call that pi has just announced.
const READS = new Set(["read", "grep", "find", "ls"]);

export default function (pi) {
	pi.on("tool_call", async (event, ctx) => {
		if (READS.has(event.toolName)) return undefined;
		// With the turn's signal: a question of a turn that was aborted is over.
		const may = await ctx.ui.confirm("proctor", event.toolCallId, { signal: ctx.signal });
		return may ? undefined : { block: true, reason: "This was not allowed. Do not try it again." };
	});
}
