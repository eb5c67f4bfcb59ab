"""Every code in one table: what it means, whether trying again can help, and what to do."""

from proctor.errors.meaning import Bucket, Meaning

CODES: dict[str, Meaning] = {
    # ── the user's files ──
    "spec.unreadable": Meaning("The file cannot be read.", "Check the path and its permissions."),
    "spec.syntax": Meaning("The file is not valid YAML.", "Mend the line named."),
    "spec.unknown-key": Meaning("A key that Proctor does not know.", "Remove it, or use the key suggested."),
    "spec.duplicate-key": Meaning("One mapping holds the same key twice.", "Keep one of them."),
    "spec.type": Meaning("A value of the wrong type or out of range.", "Write the kind of value the message names."),
    "spec.missing-key": Meaning("A key that is required is absent.", "Add it."),
    "spec.duplicate-id": Meaning("Two entries have the same id.", "Give each its own id."),
    "spec.missing-file": Meaning(
        "The spec names a file or folder that does not exist.", "Create it, or correct the path."
    ),
    "spec.version": Meaning(
        "The spec is of a version this Proctor does not read.", "Use version: 1, or a newer Proctor."
    ),
    "spec.secret-literal": Meaning("A secret is written out in the spec.", "Name an environment variable instead."),
    "spec.selection": Meaning("The selection names what is not there, or leaves no mission.", "Name what is there."),
    "spec.template": Meaning("A prompt template holds a token that is none.", "Write one of those that are named."),
    "spec.unsupported": Meaning("The spec asks for what this runtime cannot do.", "Choose what the message offers."),
    "spec.unknown-runtime": Meaning("No runtime has this id.", "Run `proctor runtimes list` for the ids."),
    "config.syntax": Meaning("The config file is not valid TOML.", "Mend the line named."),
    "runtime.uninvited": Meaning(
        "The runtime is a plugin that is installed, but that no config names, so nothing of it is run.",
        "Add the line that the message gives, if you trust it.",
    ),
    "runtime.locked": Meaning(
        "The runtime's lane is locked: nobody may use it.", "Choose another, or change the setting that is named."
    ),
    "runtime.disabled": Meaning(
        "The runtime's lane is switched off.", "Choose another, or change the setting that is named."
    ),
    "runtime.no-lane": Meaning(
        "`auto` may choose default lanes only, and there is none for this model.",
        "Name a runtime, or make a lane the default in the config.",
    ),
    "runtime.not-served": Meaning(
        "The runtime does not claim the flow's provider and model.", "Choose a runtime that does, or another model."
    ),
    "runtime.none": Meaning(
        "No runtime of the flow's chain can be used.", "Do what is said of one of them, or add another to the chain."
    ),
    "workspace.link-out": Meaning(
        "A link in the workspace leads out of it.", "Replace the link by what it leads to, or remove it."
    ),
    "workspace.special-file": Meaning(
        "The workspace holds a socket, pipe or device, which cannot be copied.", "Remove it from the folder."
    ),
    "workspace.git": Meaning(
        "A copy of the workspace would reach into another git repository.",
        "Copy a folder without `.git`, or a plain clone of its own.",
    ),
    "workspace.not-a-repository": Meaning(
        "The path is not the top of a git repository.", "Name its top folder, or use `copy`."
    ),
    "workspace.ref": Meaning("The repository has no such commit.", "Name a branch, a tag or the id of a commit."),
    "workspace.history": Meaning(
        "The repository does not hold the whole history of the ref.",
        "Fetch the rest: `git fetch --unshallow`, or clone without a filter.",
    ),
    "workspace.submodule": Meaning(
        "The repository has submodules, which a private clone cannot hold.",
        "Put what they hold into a folder and use `copy`.",
    ),
    "workspace.unreadable": Meaning("Part of the workspace cannot be read.", "Change its permissions."),
    "workspace.too-large": Meaning("The workspace is too large to copy and hash.", "Leave out what is not needed."),
    "workspace.inside-itself": Meaning(
        "The workspace holds the folder it would be copied to.", "Copy a smaller folder, or move the cache folder."
    ),
    "runtime.capability": Meaning(
        "The runtime cannot do what was asked of it.",
        "Ask for something else, or choose a runtime that claims it: `proctor runtimes list`.",
    ),
    "usage": Meaning("The command was called wrongly.", "Run it with --help."),
    "policy.shared-full-access": Meaning(
        "A shared server cannot clean one thread's escaped children.",
        "Use `isolation: process` with danger-full-access.",
    ),
    "policy.tmpdir-above-home": Meaning(
        "A TMPDIR above the agent's home silently disables its sandboxed shell.",
        "Remove TMPDIR from the flow's env, or point it elsewhere.",
    ),
    "policy.reserved-variable": Meaning(
        "A flow sets a variable that the runtime must set itself.", "Remove it from the flow's env."
    ),
    "policy.blocked-variable": Meaning(
        "A flow asks for a variable that no agent is handed.",
        "Take it out; docs/howto/logins.md says what is handed on and what never is.",
    ),
    "policy.variable-unset": Meaning("A flow forwards a variable that is not set.", "Set it, or take it out."),
    "policy.login": Meaning(
        "The login asked for is not to be had, or not in this way.",
        "Run `proctor doctor`: it shows which logins are there.",
    ),
    "policy.login-refused": Meaning(
        "The provider refused the credential: it answered 401 or 403.", "Correct or renew it, then run again."
    ),
    "policy.nobody-to-ask": Meaning(
        "A flow says `approvals: ask`, and nobody can be asked.",
        "Run it on a terminal or give a callback, or write `approvals: deny`, `accept` or `workspace`.",
    ),
    "policy.spending": Meaning(
        "The campaign may cost money, and nobody has agreed to that.",
        "See what it comes to with `--dry-run`, then say `--yes`.",
    ),
    "session.over": Meaning("The session has ended.", "Open another one; `resume` continues a persistent thread."),
    "session.busy": Meaning("A turn is running.", "Wait for its end, steer it, or interrupt it."),
    "session.idle": Meaning("No turn is running.", "Say something first."),
    "session.offset": Meaning(
        "No event of this offset can be read.", "Read from a later one, or keep evidence in memory or on disk."
    ),
    "sign.key": Meaning(
        "The key cannot be used to sign.",
        "Give a private SSH key, or its public half where an agent holds it; `ssh-keygen -t ed25519` makes one.",
    ),
    "sign.allowed-signers": Meaning(
        "The list of allowed signers cannot be read, or is needed and was not given.",
        "Give a file with a line for each signer: its name, then its public key.",
    ),
    "campaign.changed": Meaning(
        "The campaign's spec, or a file it names, is not what it was when the campaign began.",
        "Put back what was changed, or run the spec as it is now: it makes a new campaign.",
    ),
    "campaign.not-begun": Meaning("The campaign was cut off before anything ran.", "Run the spec again."),
    "campaign.no-spec": Meaning(
        "The campaign's spec is not found: it was moved or built, its path holds a secret, or none was kept.",
        "Say where it lies with `--spec FILE`; go on with what Python built by `proctor.run(…, resume=ID)`.",
    ),
    "campaign.not-running": Meaning("Nobody runs the campaign now.", "There is nothing to cancel."),
    "campaign.canary": Meaning("A canary is a trial, and no campaign.", "Run the campaign, or another canary."),
    # ── this machine ──
    "machine.ssh-keygen": Meaning(
        "ssh-keygen is missing, too old to sign, or did not answer.", "Install OpenSSH 8.2 or newer."
    ),
    "workspace.base-changed": Meaning(
        "An agent or somebody else changed the frozen workspace.",
        "Do not use danger-full-access beside other attempts.",
    ),
    "machine.binary-missing": Meaning("The agent program is not installed.", "Install what the message names."),
    "machine.extra-missing": Meaning("A part of Proctor is not installed.", "Install what the message names."),
    "machine.binary-too-old": Meaning(
        "The agent program is older than Proctor supports.", "Install the version named."
    ),
    "machine.binary-incompatible": Meaning(
        "The agent program's own schema lacks a method that Proctor cannot do without.",
        "Install what the message names.",
    ),
    "runtime.ambiguous": Meaning("Two packages offer a runtime of the same id.", "Uninstall one of them."),
    "runtime.broken": Meaning(
        "The runtime cannot be loaded, or is not what a runtime must be.", "Report it to whoever made it."
    ),
    "runtime.degraded": Meaning(
        "The runtime's program failed to start several times in a row, a short while ago.",
        "Run `proctor doctor` for the reason; it is tried again when an hour has passed, or alone in its chain.",
        retryable=True,
    ),
    "machine.health": Meaning(
        "The record of how agents start is damaged, of something else, or of a newer Proctor.",
        "Move the file away: it holds nothing but counts.",
    ),
    "machine.no-containment": Meaning(
        "Nothing on this machine can hold a process tree.",
        "Install bubblewrap or util-linux (unshare, setpriv), or delegate a cgroup v2.",
    ),
    "machine.no-fences": Meaning(
        "Files and network cannot be contained on this machine.",
        "Install bubblewrap, or let the probe say `contain: none`.",
    ),
    "machine.disk-full": Meaning("The disk is full.", "Free space, then run again.", retryable=True),
    "machine.unwritable": Meaning(
        "A folder Proctor needs cannot be written.",
        "Change its permissions, or move it: evidence by --root, the cache by XDG_CACHE_HOME, state by XDG_STATE_HOME.",
    ),
    "machine.locked": Meaning("Another live Proctor holds this campaign.", "Wait for it, or stop it.", retryable=True),
    "machine.ledger": Meaning(
        "The campaign's ledger is gone, damaged, of something else, or of a newer Proctor.",
        "Use the Proctor that wrote it, put back a copy of ledger.db, or run the spec again: it makes a new campaign.",
    ),
    "machine.proofs": Meaning(
        "proofs.db is damaged, of something else, or of a newer Proctor.",
        "Use the Proctor that wrote it, or move the file away and run the conformance suite again.",
    ),
    "machine.git": Meaning("git did not do its part.", "Read the reason given; try the same by hand."),
    "machine.spawn-failed": Meaning("A process could not be started.", "Read the reason given.", retryable=True),
    "machine.port": Meaning("No loopback port could be opened.", "Choose another port.", retryable=True),
    # ── the other process ──
    "peer.wire": Meaning("The agent sent bytes that are not its protocol.", "Read frames.jsonl at the row named."),
    "peer.refused": Meaning(
        "The agent answered a request with an error.", "Read the message; see runtimes list.", bucket=Bucket.HARNESS
    ),
    "peer.hangup": Meaning(
        "The agent ended or closed its channel.", "Read its stderr rows in frames.jsonl.", retryable=True
    ),
    "peer.killed": Meaning(
        "The agent's process was killed.",
        "See who did it: somebody's hand, or the kernel where memory ran out (`dmesg`).",
        retryable=True,
        bucket=Bucket.INFRA,
    ),
    "peer.login": Meaning(
        "The agent did not take the login it was given.",
        "Log in anew with the agent's own command, or renew the token.",
        bucket=Bucket.AUTH,
    ),
    "peer.deadline": Meaning(
        "The agent did not answer in time.", "Try again; raise the limit if it is slow.", retryable=True
    ),
    "peer.overloaded": Meaning(
        "The agent kept refusing because it is overloaded.", "Lower `parallel`.", retryable=True, bucket=Bucket.INFRA
    ),
    # ── the agent's model provider ──
    "provider.unreachable": Meaning(
        "The agent could not reach its model provider.", "Check `model.base_url` and the network.", retryable=True
    ),
    "provider.key-missing": Meaning(
        "The agent has no credential for its provider.", "Set the variable that is named.", bucket=Bucket.AUTH
    ),
    "provider.unauthorized": Meaning(
        "The provider does not accept the credential.", "Check the key that the flow's login uses.", bucket=Bucket.AUTH
    ),
    "provider.forbidden": Meaning(
        "The credential does not allow this.", "Give it access to the model, or use another.", bucket=Bucket.AUTH
    ),
    "provider.not-found": Meaning(
        "The provider has no such model or address.", "Check `model.name`, `model.base_url`.", bucket=Bucket.HARNESS
    ),
    "provider.bad-request": Meaning(
        "The provider rejects what the agent asks.", "See which option the detail names.", bucket=Bucket.HARNESS
    ),
    "script.unfit": Meaning(
        "The mission's script does not fit what the agent did.",
        "Change the script as the detail says: add the step that was asked for, or use a tool that is offered.",
        bucket=Bucket.HARNESS,
    ),
    "provider.prompt-refused": Meaning(
        "The provider refuses the prompt.", "Change the mission's prompt.", bucket=Bucket.AGENT
    ),
    "provider.policy": Meaning(
        "The provider's policy stopped the agent.", "Read the detail; change the mission.", bucket=Bucket.AGENT
    ),
    "provider.context-full": Meaning(
        "The conversation outgrew the model's context.", "Make the task smaller.", bucket=Bucket.AGENT
    ),
    "provider.rate-limited": Meaning(
        "The provider is asked too often.", "Wait, or lower `parallel`.", retryable=True, bucket=Bucket.QUOTA
    ),
    "provider.usage-limit": Meaning(
        "The account's usage limit is reached.", "Wait until it resets.", retryable=True, bucket=Bucket.QUOTA
    ),
    "provider.quota": Meaning("The account's quota is used up.", "Add credit to the account.", bucket=Bucket.QUOTA),
    "provider.plan": Meaning(
        "The account's plan does not include this.", "Upgrade it, or use another account.", bucket=Bucket.QUOTA
    ),
    "provider.error": Meaning("The provider failed inside.", "Try again later.", retryable=True),
    "provider.unavailable": Meaning(
        "The provider, or a gateway before it, is down.", "Try again later.", retryable=True
    ),
    "provider.overloaded": Meaning("The provider has no capacity left.", "Try again later.", retryable=True),
    "provider.stream-cut": Meaning("The provider's reply broke off.", "Try again.", retryable=True),
    "provider.stream-silent": Meaning(
        "The provider fell silent in the middle of a reply.", "Try again.", retryable=True
    ),
    "provider.stream-garbled": Meaning(
        "The provider's reply was not of its protocol.", "Check what `model.base_url` leads to.", retryable=True
    ),
    "provider.reply-failed": Meaning("The provider gave up on a reply.", "Try again; read the detail.", retryable=True),
    # ── how attempts end ──
    "agent.turn-failed": Meaning("The agent ended its turn as failed.", "Read the error in the transcript."),
    "agent.interrupted": Meaning(
        "The turn ended as interrupted without our asking.", "Read the transcript.", retryable=True
    ),
    "agent.exit-status": Meaning(
        "The command ended with an exit status that does not mean success.",
        "Read what it said; name the status under `options.process.exit` if it is a good one.",
    ),
    "agent.result-missing": Meaning(
        "There is no result where the agent was to leave it.",
        "See what it said instead; PROCTOR_RESULT names the file.",
    ),
    "agent.result-invalid": Meaning(
        "What the agent left as its result is none.",
        'Have it write {"done": true or false, "answer": "…", "result": …}, at most 64 KiB.',
    ),
    "agent.budget": Meaning("The agent's own budget for a session is used up.", "Raise it, or make the task smaller."),
    "agent.denials": Meaning("The agent gave up: too much was denied to it.", "Allow what it needs by `approvals`."),
    "agent.sandbox": Meaning("The agent's own sandbox failed.", "Run `proctor doctor`.", bucket=Bucket.INFRA),
    "hook.failed": Meaning(
        "A hook before the attempt failed, so the agent was not asked.", "Read what it said; mend it.", retryable=True
    ),
    "limit.turn": Meaning("The turn ran past its limit.", "Raise limits.turn, or make the task smaller."),
    "limit.attempt": Meaning("The attempt ran past its limit.", "Raise limits.attempt."),
    "limit.mission": Meaning("The attempts of a cell together ran past their limit.", "Raise limits.mission."),
    "limit.campaign": Meaning(
        "The campaign ran past its limit, so what was running was ended.",
        "Raise limits.campaign and run the spec again: it makes a new campaign.",
        retryable=True,
        bucket=Bucket.HARNESS,
    ),
    "limit.tokens": Meaning("It used more tokens than it may.", "Raise limits.tokens, or make the task smaller."),
    "limit.stall": Meaning(
        "The agent said nothing for too long.", "Raise limits.stall, or see why it hangs.", retryable=True
    ),
    "run.no-attempt": Meaning(
        "No attempt listens for this command.", "Call it from the command that an attempt runs, while it runs."
    ),
    "run.cancelled": Meaning("The attempt was cancelled.", "Go on with `proctor campaign resume`.", retryable=True),
    "run.cut-off": Meaning(
        "The attempt was cut off: Proctor was killed in the middle of it.",
        "`proctor campaign resume` tries its cell again.",
        retryable=True,
        bucket=Bucket.INFRA,
    ),
    "run.harness": Meaning("Proctor itself failed in an unforeseen way.", "Report it with the detail given."),
    "run.redaction": Meaning(
        "A secret that was planted as a canary reached the disk, so redaction did not work and there is no seal.",
        "Keep the evidence folder to yourself, and report it with the file named.",
    ),
    # ── why results may not be shown to others ──
    "publish.canary": Meaning(
        "A canary tries a few missions; it is never the campaign itself.", "Run the campaign, and check that."
    ),
    "publish.running": Meaning("The campaign is being run.", "Wait for its end.", retryable=True),
    "publish.incomplete": Meaning(
        "Cells of the plan have no result.", "Run `proctor campaign resume`: it tries exactly what is missing."
    ),
    "publish.unscored": Meaning(
        "Results tell of the machine or the provider, and nothing of an agent.",
        "Mend what failed, then run `proctor retry --only infra`.",
    ),
    "publish.vacuous": Meaning(
        "Nothing was required of the agents, so that nothing is shown.", "Give the missions probes, and run again."
    ),
    "publish.gate": Meaning("A gate of the campaign blocks.", "See what it names with `proctor campaign report`."),
    # ── evidence ──
    "evidence.signature": Meaning(
        "A signature is not of the seal beside it, or cannot be read.",
        "Treat the evidence as forged until its signer explains.",
    ),
    "evidence.signer": Meaning(
        "The key that signed is of nobody allowed.", "Find out whose key it is before you add it to the list."
    ),
    "evidence.unsigned": Meaning(
        "A signature was demanded, and there is none.", "Ask whoever made the evidence to run `proctor sign`."
    ),
    "evidence.not-found": Meaning(
        "There is no evidence of that name here.", "Run `proctor attempt list`: what was run elsewhere, --root names."
    ),
    "evidence.ambiguous": Meaning("The name fits more than one attempt.", "Name one of them whole."),
    "evidence.root": Meaning("The evidence root is not a folder.", "Name a folder with --root; it need not exist."),
    "evidence.partial": Meaning(
        "The attempt has no seal: it was cut off.",
        "Keep it as it is. Where its cell has no result, `proctor campaign resume` tries it again.",
    ),
    "evidence.running": Meaning("It is still running.", "Wait for it to end.", retryable=True),
    "evidence.missing-file": Meaning(
        "A file of the layout is absent.", "Restore it from a copy; do not edit evidence."
    ),
    "evidence.unreadable": Meaning("A file of the evidence cannot be read.", "Check its permissions and the disk."),
    "evidence.extra-file": Meaning("A file that the seal does not name.", "Remove it, or find who put it there."),
    "evidence.digest": Meaning("A file's bytes are not those that were sealed.", "Treat the attempt as damaged."),
    "evidence.seal": Meaning(
        "The seal does not match its own digest, or is unreadable.", "Treat the attempt as damaged."
    ),
    "evidence.chain": Meaning(
        "A row does not follow from the row before it.", "Treat the rows from there on as damaged."
    ),
    "evidence.torn": Meaning(
        "The last row of a stream is incomplete.", "Expected after a crash; the rest is readable."
    ),
    "evidence.syntax": Meaning("A row or file is not valid JSON.", "Treat it as damaged."),
    "evidence.schema": Meaning("A row or file does not fit its schema.", "Check which Proctor wrote it."),
    "evidence.ids": Meaning("Files of one attempt disagree about whose they are.", "Treat the attempt as damaged."),
    "evidence.derived": Meaning("A derived file is not what its frames give.", "Run `proctor attempt rederive`."),
    "evidence.laws": Meaning("A recorded stream breaks the grammar of events.", "Report it: a normalizer is at fault."),
    "evidence.counts": Meaning("The counts of frames do not add up.", "Treat the run as incomplete."),
    "evidence.ledger": Meaning(
        "The campaign's ledger cannot be read, or disagrees with what is on disk.",
        "Trust the sealed attempts: the ledger only indexes them.",
    ),
    "evidence.plan": Meaning(
        "The campaign's plan or frozen spec is not the one that its attempts were made from.",
        "Treat the campaign's folder as damaged: the sealed attempts name the plan that was run.",
    ),
    "evidence.report": Meaning(
        "A campaign's report is not what its attempts give.",
        "Trust `proctor report` instead: it works the report out again.",
    ),
    "evidence.bounds": Meaning("A text or a file is longer than its bound.", "Check which Proctor wrote it."),
    "evidence.gate": Meaning("The report's verdict is not what its probes give.", "Trust probes.jsonl instead."),
    "evidence.containment": Meaning("A path leads out of the evidence folder.", "Treat the attempt as damaged."),
}
