// Asks for approval before each tool call that may change something. The question carries the id of the tool call.
const READS = new Set(["read", "grep", "find", "ls"]);

export default function (pi) {
	pi.on("tool_call", async (event, ctx) => {
		if (READS.has(event.toolName)) return undefined;
		// With the turn's signal, so that an abort of the turn also ends the question.
		const may = await ctx.ui.confirm("proctor", event.toolCallId, { signal: ctx.signal });
		return may ? undefined : { block: true, reason: "This was not allowed. Do not try it again." };
	});
}
