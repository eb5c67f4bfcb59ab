"""Every error code, with its meaning, the action to take and whether a retry can help."""

from proctor.errors.meaning import Bucket, Meaning

CODES: dict[str, Meaning] = {
    # ── the user's files ──
    "spec.unreadable": Meaning("A file cannot be read.", "Check the path and the file's permissions."),
    "spec.syntax": Meaning(
        "The file is not valid YAML, or not valid UTF-8 text.", "Fix the line that the message names."
    ),
    "spec.unknown-key": Meaning("A key is unknown.", "Remove the key, or use the key that the message suggests."),
    "spec.duplicate-key": Meaning("A key occurs twice in one mapping.", "Remove one of the two."),
    "spec.type": Meaning(
        "A value has the wrong type, the wrong format or is out of range.",
        "Write a value of the kind that the message names.",
    ),
    "spec.missing-key": Meaning("A required key is missing.", "Add the key that the message names."),
    "spec.duplicate-id": Meaning("Two missions or two flows have the same id.", "Rename one of them."),
    "spec.missing-file": Meaning(
        "The spec names a file or folder that does not exist.",
        "Create it, or correct the path. Paths are relative to the spec's folder.",
    ),
    "spec.version": Meaning(
        "This version of Proctor cannot read this version of the spec.",
        "Write `version: 1`, or install a newer Proctor.",
    ),
    "spec.secret-literal": Meaning(
        "The spec contains a secret.", "Put the secret in an environment variable and write the variable's name."
    ),
    "spec.selection": Meaning(
        "The selection names an unknown mission or tag, or selects no mission.",
        "Select missions and tags that exist.",
    ),
    "spec.template": Meaning(
        "A prompt template contains an unknown or unclosed token, or lacks `{{prompt}}`.",
        "Use only the tokens that the message lists.",
    ),
    "spec.unsupported": Meaning(
        "The spec combines settings that do not work together, or requests something the runtime cannot do.",
        "Change the key that the message names, as it suggests.",
    ),
    "spec.prompt-argument": Meaning(
        "A command gets its prompt as an argument, and the prompt is too long for one, or has a NUL character.",
        "Write `prompt: stdin` or `prompt: file` in the flow's `options.process`.",
    ),
    "spec.unknown-runtime": Meaning("No runtime has this id.", "Run `proctor runtimes list` to see the ids."),
    "config.syntax": Meaning("The config file is not valid TOML.", "Fix the line that the message names."),
    "runtime.not-allowed": Meaning(
        "The runtime, kind of probe or context engine is an installed plugin that no config file lists, so Proctor "
        "does not load it.",
        "If you trust the plugin, add the config line that the message gives.",
    ),
    "runtime.locked": Meaning(
        "The runtime's rollout state is `locked`, so it cannot be used.",
        "Choose another runtime, or change the setting that the message names.",
    ),
    "runtime.disabled": Meaning(
        "The config disables the runtime.", "Choose another runtime, or change the setting that the message names."
    ),
    "runtime.no-default": Meaning(
        "`auto` chooses only among default runtimes, and no default runtime supports this model.",
        'Name a runtime in the flow, or set `state = "default"` for one in the config.',
    ),
    "runtime.not-served": Meaning(
        "The runtime does not declare support for the flow's provider and model.",
        "Choose a runtime that supports them, or another model.",
    ),
    "runtime.none": Meaning(
        "No runtime in the flow's chain can be used.",
        "Fix one of the errors that the message lists, or add a fallback runtime to the chain.",
    ),
    "task.nothing-fails": Meaning(
        "No command is known that fails on the untouched files, so nothing could verify that a task was done.",
        "Give a task, and a probe that fails now and passes when the task is done.",
    ),
    "task.no-script": Meaning(
        "The scripted model has no script for this task.", "Write a script, and give it with --script FILE."
    ),
    "workspace.link-out": Meaning(
        "A symbolic link in the workspace points outside it.", "Replace the link with its target, or remove it."
    ),
    "workspace.special-file": Meaning(
        "The workspace contains a socket, pipe or device, which cannot be copied.", "Remove that file from the folder."
    ),
    "workspace.git": Meaning(
        "The workspace's `.git` refers to a repository outside the workspace, so a copy would share it.",
        "Use a folder without `.git`, or a self-contained clone.",
    ),
    "workspace.not-a-repository": Meaning(
        "The path is not the top folder of a git repository.", "Name the repository's top folder, or use `copy`."
    ),
    "workspace.ref": Meaning(
        "The repository has no such ref.", "Name a branch, a tag or a commit id that exists in the repository."
    ),
    "workspace.history": Meaning(
        "The repository lacks objects of the ref's history.",
        "Clone it again without a filter, or run `git fsck` to find what is missing.",
    ),
    "workspace.submodule": Meaning(
        "The repository has submodules, which a private clone does not include.",
        "Put all files into one folder and use `copy`.",
    ),
    "workspace.unreadable": Meaning("Part of the workspace cannot be read.", "Change its permissions."),
    "workspace.patch": Meaning(
        "A patch does not apply to the workspace.",
        "Make the patch again: change a copy of the workspace, and run `git diff` there.",
    ),
    "workspace.too-large": Meaning(
        "The workspace is too large to copy and hash.", "Remove files that the mission does not need."
    ),
    "workspace.inside-itself": Meaning(
        "The workspace contains the folder that it would be copied into.",
        "Use a smaller folder as the workspace, or move the cache folder with XDG_CACHE_HOME.",
    ),
    "runtime.capability": Meaning(
        "The runtime does not support the requested feature.",
        "Remove the request, or choose a runtime that supports it: `proctor runtimes list`.",
    ),
    "usage": Meaning("The command line is invalid.", "Run the command with --help."),
    "policy.shared-full-access": Meaning(
        "`sandbox: danger-full-access` needs a separate process per attempt: a shared server cannot end the processes "
        "that one session leaves behind.",
        "Write `isolation: process`.",
    ),
    "policy.judge-visible": Meaning(
        "A file or folder that must be hidden from the agent lies in a folder that the agent's program needs.",
        "Move it, or the program; or write `contain: none`, and nothing is hidden from the agents of that flow.",
    ),
    "policy.hidden-files": Meaning(
        "A mission has hidden files (`overlay`), and the agent of a flow could see them.",
        "Remove `overlay`, or use a flow whose agent has a sandbox and is contained by bubblewrap or unshare.",
    ),
    "policy.tmpdir-above-home": Meaning(
        "TMPDIR is a parent of the agent's home folder, which silently disables the agent's sandboxed shell.",
        "Remove TMPDIR from the flow's env, or set it to another folder.",
    ),
    "policy.reserved-variable": Meaning(
        "The flow sets a variable that the runtime sets itself.", "Remove the variable from the flow's env."
    ),
    "policy.blocked-variable": Meaning(
        "The flow passes a variable that Proctor never passes to an agent.",
        "Remove it from the flow; docs/howto/logins.md lists what is passed on and what never is.",
    ),
    "policy.variable-unset": Meaning(
        "The flow forwards an environment variable that is not set.",
        "Set the variable, or remove it from the flow's `forward`.",
    ),
    "policy.login": Meaning(
        "The flow's login is missing, or the flow cannot use it.",
        "Run `proctor doctor` to see which logins are available.",
    ),
    "policy.login-refused": Meaning(
        "The provider rejected the credential with status 401 or 403.",
        "Correct or renew the credential, then run again.",
    ),
    "policy.no-approver": Meaning(
        "The flow has `approvals: ask`, but there is no terminal and no callback to answer.",
        "Run on a terminal, pass a `decide` callback, or write `approvals: deny`, `accept` or `workspace`.",
    ),
    "policy.spending": Meaning(
        "The campaign may cost money, and the cost was not confirmed.",
        "Run with `--dry-run` to see the estimate, then with `--yes` to confirm it.",
    ),
    "session.over": Meaning(
        "The session has ended.", "Open a new session. One with an id can be continued: open it again by its id."
    ),
    "session.id": Meaning("The id is no valid name of a session.", "Use letters, digits and any of `. _ @ + = -`."),
    "session.unknown": Meaning("No session has this id.", "Run `proctor session list` to see the ids."),
    "session.no-id": Meaning(
        "The session was opened without an id, so nothing of it is kept.", "Open it with an `id`."
    ),
    "session.exists": Meaning("A session has this id already.", "Use another id, or delete that session."),
    "session.differs": Meaning(
        "The session's mirror differs from the record of its sittings.",
        "Run `proctor session verify ID --rebuild` to rebuild it from the evidence.",
    ),
    "session.no-evidence": Meaning(
        "The record of a sitting was deleted, so the session cannot be compared with it.",
        "Nothing, if the evidence was deleted on purpose.",
    ),
    "session.held": Meaning(
        "Another process has the session open.", "Wait until it is closed there, or use another id.", retryable=True
    ),
    "session.stale": Meaning(
        "Another holder has changed the session since it was read.", "Open the session again.", retryable=True
    ),
    "session.damaged": Meaning(
        "The session's store is damaged, or written by another program or version.",
        "Run `proctor session verify ID --rebuild` to rebuild it from the evidence.",
    ),
    "session.header": Meaning(
        "The session's header, session.json, cannot be read. It has the place of the agents' homes.",
        "Restore the file from a backup. Without one, move the session's folder elsewhere and begin another session;"
        " the evidence in `runs/` is not affected.",
    ),
    "session.layout": Meaning(
        "The folder holds conversations in a layout that this Proctor does not read.",
        "Move the folder elsewhere, or delete it.",
    ),
    "session.thread-lost": Meaning(
        "The session's engine remembers nothing, and its native thread cannot be continued.",
        "Continue on the runtime and with the tools of the thread, or open the session with an engine that remembers"
        " (`--engine lossless`), or run `proctor session reset ID` to begin a new history.",
    ),
    "session.busy": Meaning("A turn is already running.", "Wait for the turn to end, steer it, or interrupt it."),
    "session.idle": Meaning("No turn is running.", "Start a turn first."),
    "session.offset": Meaning(
        "No event can be read at this offset: it does not exist yet, or was not kept.",
        "Read from another offset; keep evidence in memory or on disk to read old events.",
    ),
    "sign.key": Meaning(
        "The key cannot be used to sign.",
        "Pass a private SSH key, or the public key if ssh-agent holds the private one. `ssh-keygen -t ed25519` creates "
        "a key.",
    ),
    "sign.allowed-signers": Meaning(
        "The allowed-signers file is missing or unreadable.",
        "Pass a file with one signer per line: the name, then the public key.",
    ),
    "campaign.changed": Meaning(
        "The spec, or a file it names, has changed since the campaign began.",
        "Restore the old content to resume, or run the changed spec as a new campaign.",
    ),
    "campaign.not-begun": Meaning(
        "The campaign was cut off before its first attempt, so it cannot be resumed.", "Run the spec again."
    ),
    "campaign.no-spec": Meaning(
        "The campaign's spec file is not found: it was moved, was built in Python, was not recorded, or its path "
        "contains a secret.",
        "Pass its path with `--spec FILE`. Resume a spec built in Python with `proctor.run(…, resume=ID)`.",
    ),
    "campaign.not-running": Meaning(
        "The campaign is not running, so it cannot be cancelled.", "Check the id with `proctor campaign list`."
    ),
    "campaign.silent": Meaning(
        "The process that runs the campaign does not answer on its control socket.",
        "Try again; if it stays silent, stop it with `proctor campaign cancel --now`.",
        retryable=True,
    ),
    "attempt.over": Meaning(
        "The attempt's turn has ended, so that it cannot be cancelled.",
        "`proctor attempt explain` shows how it ended.",
    ),
    "attempt.not-running": Meaning(
        "No attempt of this name is running.", "`proctor campaign status` lists the attempts that are running."
    ),
    "policy.not-operator": Meaning(
        "A process that the campaign started, such as an agent, asked to cancel an attempt.",
        "Cancel attempts only from outside the campaign.",
    ),
    "campaign.canary": Meaning(
        "A canary is a sample run and cannot be resumed.", "Run the campaign, or run another canary."
    ),
    "campaign.scored-result": Meaning(
        "A trial that already has a scored result would be tried again. The first scored attempt of a trial counts, so "
        "that no one can pick the best of several.",
        "Retry only trials without a scored result (`--only unscored`). To replace results anyway, add `--replace "
        "--reason TEXT`; the campaign can then not be published. To publish a re-run, start a new campaign.",
    ),
    "probe.passes-untouched": Meaning(
        "A probe passes on the untouched workspace, before the agent did anything, so it cannot verify its work.",
        "Change the probe so that it fails until the task is done, or add `--allow-unjudgeable`: its trials then run "
        "and end unscored.",
    ),
    "probe.fails-untouched": Meaning(
        "A guard fails on the untouched workspace, before the agent did anything, so it protects nothing.",
        "Repair the workspace or the guard, or make it a goal; or add `--allow-unjudgeable`: its trials then run and "
        "end unscored.",
    ),
    "probe.passes-mutant": Meaning(
        "A guard passes on its mutant, so it does not notice when what it protects is broken.",
        "Change the guard so that it fails on the mutant, or write a mutant that breaks what it protects; or add "
        "`--allow-unjudgeable`: its trials then run and end unscored.",
    ),
    # ── this machine ──
    "probe.cannot-run": Meaning(
        "A probe cannot run on this machine, so it cannot judge any result.",
        "Correct the probe's command, or install what the message names; with `--allow-unjudgeable` its trials run and "
        "end unscored.",
    ),
    "machine.ssh-keygen": Meaning(
        "ssh-keygen is missing, is too old to sign, or did not answer.", "Install OpenSSH 8.2 or newer."
    ),
    "workspace.base-changed": Meaning(
        "The frozen copy of the workspace was changed during the run, by an agent or by another process.",
        "Do not run danger-full-access flows together with others. Then run the campaign again.",
    ),
    "machine.binary-missing": Meaning(
        "The agent program is not installed.", "Install the program that the message names."
    ),
    "machine.extra-missing": Meaning(
        "An optional part of Proctor is not installed.", "Install the package that the message names."
    ),
    "machine.binary-too-old": Meaning(
        "The agent program is older than Proctor supports.", "Install the version that the message names."
    ),
    "machine.binary-incompatible": Meaning(
        "The agent program's protocol lacks a method that Proctor requires.",
        "Install the version that the message names.",
    ),
    "machine.binary-changed": Meaning(
        "The agent program that runs is not the one that was located, for example because it was updated meanwhile.",
        "Run again. If that does not help, reinstall the agent program.",
    ),
    "runtime.ambiguous": Meaning(
        "Two installed packages offer a runtime, model dialect, kind of probe or context engine with the same id.",
        "Uninstall one of them.",
    ),
    "runtime.broken": Meaning(
        "The plugin's runtime, model dialect, kind of probe or context engine cannot be loaded, or does not implement "
        "its interface.",
        "Update or uninstall the plugin, or report the error to its author.",
    ),
    "runtime.unproven": Meaning(
        "The config requires that the runtime's capabilities are proven with its current program, and they are not.",
        "Run `proctor runtimes conformance` for the runtime, or change `requires` in the config.",
    ),
    "runtime.degraded": Meaning(
        "The runtime's program recently failed to start several times in a row.",
        "Run `proctor doctor` for the cause. Proctor tries the runtime again after one hour, or at once if it is the "
        "only one in its chain.",
        retryable=True,
    ),
    "machine.health": Meaning(
        "The record of runtime starts is damaged, is another kind of file, or was written by a newer Proctor.",
        "Delete or move the file; it contains only counters.",
    ),
    "machine.no-containment": Meaning(
        "No way to contain a process tree is available on this machine.",
        "Install bubblewrap or util-linux (unshare, setpriv), or delegate a cgroup v2.",
    ),
    "machine.no-fences": Meaning(
        "File and network access cannot be restricted on this machine.",
        "Install bubblewrap, or write `contain: none` for the probe.",
    ),
    "machine.disk-full": Meaning("The disk is full.", "Free disk space, then run again.", retryable=True),
    "machine.unwritable": Meaning(
        "A folder that Proctor needs is not writable.",
        "Change its permissions, or move it: evidence with --root, the cache with XDG_CACHE_HOME, state with "
        "XDG_STATE_HOME.",
    ),
    "machine.locked": Meaning(
        "Another Proctor process is running this campaign.", "Wait for it to end, or stop it.", retryable=True
    ),
    "machine.ledger": Meaning(
        "The campaign's ledger is missing, damaged, another kind of file, or written by a newer Proctor.",
        "Use the Proctor that wrote it, restore ledger.db from a backup, or run the spec again as a new campaign.",
    ),
    "machine.proofs": Meaning(
        "proofs.db is damaged, another kind of file, or written by a newer Proctor.",
        "Use the Proctor that wrote it, or move the file away and run the conformance suite again.",
    ),
    "machine.git": Meaning("A git command failed.", "Read the reason in the message; run the same command by hand."),
    "machine.exhausted": Meaning(
        "This machine ran out of memory, processes or file descriptors, or its disk failed.",
        "Lower `schedule.parallel`, raise the limits of this machine (`ulimit -a`), or free memory.",
        retryable=True,
    ),
    "machine.spawn-failed": Meaning(
        "A process could not be started.", "Read the reason in the message.", retryable=True
    ),
    "machine.port": Meaning("No loopback port could be opened.", "Choose another port.", retryable=True),
    # ── a context engine ──
    "engine.unknown": Meaning("No context engine has this id.", "Run `proctor engines list` to see the ids."),
    "engine.options": Meaning(
        "The context engine does not accept one of the session's `context.options`, or its value.",
        "Correct the option that the message names.",
    ),
    "engine.key-reused": Meaning(
        "A turn was committed to a context engine before, with other messages.",
        "Run `proctor session verify`: the session may differ from its record.",
    ),
    "engine.damaged": Meaning(
        "A file of a context engine is damaged or of another kind.",
        "Run `proctor session verify ID --rebuild`: the next turn then makes it again from the session.",
    ),
    "engine.newer": Meaning(
        "A file of a context engine was written by a newer version.",
        "Use the version that wrote it, or run `proctor session verify ID --rebuild`, which sets the file aside: the "
        "next turn then makes it again from the session.",
    ),
    "engine.failed": Meaning(
        "A context engine raised an error.",
        "Report the error to the engine's author; `proctor engines check ID` shows whether the engine is sound.",
    ),
    "engine.timeout": Meaning(
        "A context engine did not answer in time.",
        "Run `proctor engines check ID`. A method that blocks must be a plain function, which runs in a thread.",
        retryable=True,
    ),
    "engine.bad-result": Meaning(
        "A context engine returned something that its contract does not allow.",
        "Report the message to the engine's author; `proctor engines check ID` shows whether the engine is sound.",
    ),
    "engine.quarantined": Meaning(
        "A context engine failed several times in a row, so it is not called for a minute.",
        "Correct the failure that the message names, or use another engine. One call tests it again after that.",
        retryable=True,
    ),
    "engine.complete": Meaning(
        "A context engine called a model, and the call failed or exceeded its limit.",
        "Read the reason in the message. The engine continues without the model.",
        retryable=True,
    ),
    "engine.no-place": Meaning(
        "The runtime has no place for the instructions of a context engine.",
        "Use a runtime that declares `takes_instructions` and `takes_turn_instructions` (`proctor runtimes matrix`).",
    ),
    "engine.hook": Meaning(
        "A hook of the caller raised an error, did not answer in time, or returned something invalid.",
        "Correct the hook. It must be a coroutine function that returns a PromptDraft or None.",
    ),
    # ── the other process ──
    "peer.wire": Meaning(
        "The agent sent bytes that do not follow its protocol.", "Read the row of frames.jsonl that the message names."
    ),
    "peer.refused": Meaning(
        "The agent answered a request with an error.",
        "Read the error in the message; `proctor runtimes list` shows what the runtime supports.",
        bucket=Bucket.HARNESS,
    ),
    "peer.thread-lost": Meaning(
        "The agent does not have the thread any more that the attempt was to continue.",
        "Nothing: the trial's next attempt starts fresh.",
        retryable=True,
        bucket=Bucket.INFRA,
    ),
    "peer.hangup": Meaning(
        "The agent process exited by itself before its turn was over.", "Read its stderr rows in frames.jsonl."
    ),
    "peer.not-listening": Meaning(
        "The agent's server ended, or did not print its address, before it listened for connections.",
        "Read the program's output in the process's frames.jsonl. Proctor tries again.",
        retryable=True,
        bucket=Bucket.INFRA,
    ),
    "peer.lost": Meaning(
        "The connection to the agent ended, and it is unknown whether the agent caused it: its process did not exit by "
        "itself, or other attempts used the same process.",
        "It is retried automatically. With `isolation: process` every attempt has its own process, and the end of one "
        "can be attributed.",
        retryable=True,
        bucket=Bucket.INFRA,
    ),
    "peer.killed": Meaning(
        "The agent process was killed by a signal from outside.",
        "Find the sender: a user, a service manager, or the kernel when memory ran out (`dmesg`).",
        retryable=True,
        bucket=Bucket.INFRA,
    ),
    "peer.login": Meaning(
        "The agent did not accept the login.",
        "Log in again with the agent's own command, or renew the token.",
        bucket=Bucket.AUTH,
    ),
    "peer.deadline": Meaning(
        "The agent did not answer in time.", "Read its stderr rows; raise the limit if the agent is slow."
    ),
    "peer.overloaded": Meaning(
        "The agent repeatedly refused requests because it was overloaded.",
        "Lower `schedule.parallel`.",
        retryable=True,
        bucket=Bucket.INFRA,
    ),
    # ── the agent's model provider ──
    "provider.unreachable": Meaning(
        "The agent could not reach its model provider.", "Check `model.base_url` and the network.", retryable=True
    ),
    "provider.key-missing": Meaning(
        "The agent has no credential for its provider.", "Set the variable that the message names.", bucket=Bucket.AUTH
    ),
    "provider.unauthorized": Meaning(
        "The provider rejected the credential.", "Check the credential that the flow's login uses.", bucket=Bucket.AUTH
    ),
    "provider.forbidden": Meaning(
        "The credential does not permit this request.",
        "Grant it access to the model, or use another credential.",
        bucket=Bucket.AUTH,
    ),
    "provider.not-found": Meaning(
        "The provider has no such model or address.",
        "Check `model.name` and `model.base_url`.",
        bucket=Bucket.HARNESS,
    ),
    "provider.bad-request": Meaning(
        "The provider rejected the agent's request as invalid.",
        "Correct the option that the detail names.",
        bucket=Bucket.HARNESS,
    ),
    "script.unfit": Meaning(
        "The mission's script does not match what the agent did.",
        "Change the script as the detail says: add the missing step, or use a tool that the agent offers.",
        bucket=Bucket.HARNESS,
    ),
    "provider.prompt-refused": Meaning(
        "The provider refused the prompt.", "Change the mission's prompt.", bucket=Bucket.AGENT
    ),
    "provider.policy": Meaning(
        "The provider's content policy stopped the agent.",
        "Read the detail and change the mission.",
        bucket=Bucket.AGENT,
    ),
    "provider.context-full": Meaning(
        "The conversation exceeded the model's context window.", "Make the task smaller.", bucket=Bucket.AGENT
    ),
    "provider.rate-limited": Meaning(
        "The provider's rate limit was reached.",
        "Wait, or lower `schedule.parallel`.",
        retryable=True,
        bucket=Bucket.QUOTA,
    ),
    "provider.usage-limit": Meaning(
        "The account's usage limit was reached.", "Wait until the limit resets.", retryable=True, bucket=Bucket.QUOTA
    ),
    "provider.quota": Meaning("The account's quota is used up.", "Add credit to the account.", bucket=Bucket.QUOTA),
    "provider.plan": Meaning(
        "The account's plan does not include this model or feature.",
        "Upgrade the plan, or use another account.",
        bucket=Bucket.QUOTA,
    ),
    "provider.error": Meaning("The provider reported an internal error.", "Run again later.", retryable=True),
    "provider.unavailable": Meaning(
        "The provider, or a gateway in front of it, is down.", "Run again later.", retryable=True
    ),
    "provider.overloaded": Meaning("The provider has no free capacity.", "Run again later.", retryable=True),
    "provider.stream-cut": Meaning("The provider's reply was cut off.", "Run again.", retryable=True),
    "provider.stream-silent": Meaning("The provider stopped sending in mid-reply.", "Run again.", retryable=True),
    "provider.stream-garbled": Meaning(
        "The provider's reply does not follow its protocol.",
        "Check which server `model.base_url` names.",
        retryable=True,
    ),
    "provider.reply-failed": Meaning(
        "The provider reported that its reply failed.", "Read the detail, then run again.", retryable=True
    ),
    # ── how attempts end ──
    "agent.turn-failed": Meaning("The agent reported that its turn failed.", "Read the error in the transcript."),
    "agent.interrupted": Meaning("The turn was interrupted, but not by Proctor.", "Read the transcript for the cause."),
    "agent.exit-status": Meaning(
        "The command exited with a status that does not mean success.",
        "Read its output; if the status means success, list it under `options.process.exit`.",
    ),
    "agent.result-missing": Meaning(
        "The agent did not write a result file.",
        "Read what it printed instead; the variable PROCTOR_RESULT names the file to write.",
    ),
    "agent.result-invalid": Meaning(
        "The agent's result file is invalid.",
        'Make the agent write {"done": true or false, "answer": "…", "result": …}, at most 64 KiB.',
    ),
    "agent.budget": Meaning(
        "The agent reached its own budget for a session.", "Raise that budget, or make the task smaller."
    ),
    "agent.denials": Meaning(
        "The agent gave up after too many denied requests.", "Allow what it needs with `approvals`."
    ),
    "agent.sandbox": Meaning(
        "The agent's own sandbox failed.", "Run `proctor doctor` for the cause.", bucket=Bucket.INFRA
    ),
    "agent.workspace": Meaning(
        "The agent left a workspace that cannot be judged: a part of it is unreadable, too large or missing.",
        "Read what the detail names. It counts as a failure of the agent.",
    ),
    "agent.disk": Meaning(
        "The agent used up the scratch disk.",
        "Read in workspace.diff what it wrote. It counts as a failure of the agent.",
    ),
    "agent.killed": Meaning(
        "The agent was killed by a signal that only its own commands could send.",
        "Read the transcript for the command that killed it. It counts as a failure of the agent; stop attempts with "
        "`proctor campaign cancel`, not by hand.",
    ),
    "hook.failed": Meaning(
        "A `before` hook failed, so the agent was not started.", "Read the hook's output and fix it.", retryable=True
    ),
    "limit.turn": Meaning("The turn exceeded its time limit.", "Raise `limits.turn`, or make the task smaller."),
    "limit.attempt": Meaning(
        "The attempt exceeded its time limit.", "Raise `limits.attempt`, or make the task smaller."
    ),
    "limit.mission": Meaning(
        "The attempts of one trial together exceeded their time limit.", "Raise `limits.mission`."
    ),
    "limit.campaign": Meaning(
        "The campaign exceeded its time limit, so running attempts were ended.",
        "Raise `limits.campaign` and run the spec again as a new campaign.",
        retryable=True,
        bucket=Bucket.HARNESS,
    ),
    "limit.tokens": Meaning(
        "The attempt exceeded its token limit.", "Raise `limits.tokens`, or make the task smaller."
    ),
    "limit.evidence": Meaning(
        "The attempt recorded more evidence than its limit.",
        "Find in frames.jsonl what the agent prints so much of, or raise `limits.evidence`.",
    ),
    "limit.stall": Meaning(
        "The agent sent nothing for too long.",
        "Read the transcript to see where it hangs, or raise `limits.stall`.",
    ),
    "listener.failed": Meaning(
        "A function that the caller passed to Proctor (an approval callback, a tool or a watcher) raised, or returned "
        "an invalid value.",
        "Fix the function that the message names. A failed approval is denied; a failed watcher ends its attempt.",
    ),
    "listener.stuck": Meaning(
        "A function that the caller passed to Proctor did not end when it was cancelled, and was abandoned.",
        "Let the function end when it is cancelled.",
    ),
    "run.no-attempt": Meaning(
        "`proctor feedback` or `proctor note` was called outside an attempt.",
        "Call it only from a command that an attempt runs, while the attempt is running.",
    ),
    "run.interrupted": Meaning(
        "The command was interrupted before it had started a campaign.", "Run the command again.", retryable=True
    ),
    "run.cancelled": Meaning("The attempt was cancelled.", "Run `proctor campaign resume`.", retryable=True),
    "run.operator-cancel": Meaning(
        "An operator cancelled this attempt alone, with `proctor attempt cancel`.",
        "Run `proctor campaign resume`: it tries the trial again. The campaign can then not be published.",
        retryable=True,
    ),
    "run.cut-off": Meaning(
        "The attempt was cut off because its Proctor process was killed.",
        "Run `proctor campaign resume`: it tries the trial again.",
        retryable=True,
        bucket=Bucket.INFRA,
    ),
    "run.harness": Meaning("Proctor failed unexpectedly.", "Report it as a bug, with the detail."),
    "run.redaction": Meaning(
        "Redaction failed: a planted tripwire secret reached the disk, so the attempt was not sealed.",
        "Do not share the evidence folder. Report it as a bug, with the file that the message names.",
    ),
    # ── why results must not be published ──
    "publish.selected": Meaning(
        "The campaign has only trials that failed in another campaign, so its rates say nothing about the agent.",
        "Run the whole campaign again, and check that one.",
    ),
    "publish.canary": Meaning(
        "The results are those of a canary, which runs only a few missions.",
        "Run the whole campaign and check that one.",
    ),
    "publish.running": Meaning("The campaign is still running.", "Wait for it to end.", retryable=True),
    "publish.incomplete": Meaning(
        "Some trials of the plan have no result.", "Run `proctor campaign resume`: it runs only the missing trials."
    ),
    "publish.unscored": Meaning(
        "Some attempts failed for reasons other than the agent, such as the machine or the provider.",
        "Fix the cause, then run `proctor retry --only infra`.",
    ),
    "publish.vacuous": Meaning(
        "The results prove nothing: there is no trial, no probe was required, or no result was scored.",
        "Add probes to the missions and run again.",
    ),
    "publish.unjudged": Meaning(
        "The probes could not judge some results, so they are not scored.",
        "Fix the probes that `proctor campaign report` names, then run the spec as a new campaign; if the machine was "
        "the cause, run `proctor retry --only unscored`.",
    ),
    "publish.replaced": Meaning(
        "Scored results were replaced on request.",
        "Run a new campaign and publish that one; a campaign with replaced results can never be published.",
    ),
    "publish.cancelled": Meaning(
        "An operator cancelled single attempts, so that the results may have been picked.",
        "Run a new campaign and publish that one.",
    ),
    "publish.gate": Meaning(
        "A gate of the campaign blocks.", "Run `proctor campaign report` to see which missions it blocks, and why."
    ),
    # ── evidence ──
    "evidence.signature": Meaning(
        "A signature does not match the seal beside it, or cannot be read.",
        "Treat the evidence as forged until the signer explains the difference.",
    ),
    "evidence.signer": Meaning(
        "The signing key is not in the allowed-signers file.", "Verify who owns the key before you add it to the file."
    ),
    "evidence.unsigned": Meaning(
        "A signature is required, and the evidence is not signed.",
        "Ask the person who produced the evidence to run `proctor sign`.",
    ),
    "evidence.not-found": Meaning(
        "No evidence with this name exists below the evidence root.",
        "Run `proctor attempt list` to see the names; use --root for evidence in another folder.",
    ),
    "evidence.ambiguous": Meaning("The name matches more than one attempt.", "Write the full name of one of them."),
    "evidence.root": Meaning(
        "The evidence root is not a folder.", "Pass a folder with --root; Proctor creates it if necessary."
    ),
    "evidence.partial": Meaning(
        "The attempt was cut off and has no seal.",
        "Leave it unchanged. If its trial has no result, `proctor campaign resume` tries the trial again.",
    ),
    "evidence.running": Meaning("The attempt is still running.", "Wait for it to end.", retryable=True),
    "evidence.missing-file": Meaning(
        "A required evidence file is missing.", "Restore it from a backup; do not edit evidence."
    ),
    "evidence.unreadable": Meaning("An evidence file cannot be read.", "Check its permissions and the disk."),
    "evidence.extra-file": Meaning(
        "The folder contains a file that the seal does not list.", "Find out which program wrote it, then remove it."
    ),
    "evidence.digest": Meaning("A file has changed since it was sealed.", "Treat the attempt as damaged."),
    "evidence.seal": Meaning(
        "The seal is unreadable, or does not match its own digest.", "Treat the attempt as damaged."
    ),
    "evidence.chain": Meaning(
        "A row does not contain the digest of the row before it.", "Treat that row and all later rows as damaged."
    ),
    "evidence.torn": Meaning(
        "The last row of a file is incomplete.",
        "Nothing: this is expected after a crash, and the other rows are readable.",
    ),
    "evidence.syntax": Meaning("A row or file is not valid JSON.", "Treat the attempt as damaged."),
    "evidence.schema": Meaning("A row or file does not match its schema.", "Check which version of Proctor wrote it."),
    "evidence.version": Meaning(
        "A file has another version of its format than this Proctor reads.",
        "Use the Proctor that wrote it. `docs/reference/versioning.md` lists the versions that are read.",
    ),
    "evidence.ids": Meaning("Files of one attempt contain different ids.", "Treat the attempt as damaged."),
    "evidence.derived": Meaning(
        "A derived file differs from what its frames produce.", "Run `proctor attempt rederive`."
    ),
    "evidence.laws": Meaning(
        "The recorded events break the event grammar, which is a bug in the runtime's normalizer.",
        "Report it as a bug, with the attempt's frames.jsonl.",
    ),
    "evidence.counts": Meaning(
        "The recorded counts of frames do not match.", "Treat the attempt's recording as incomplete."
    ),
    "evidence.ledger": Meaning(
        "The campaign's ledger is unreadable, or disagrees with the evidence on disk.",
        "Trust the sealed attempts; the ledger is only an index of them.",
    ),
    "evidence.continuation": Meaning(
        "An attempt does not agree with the one that it continues.",
        "Treat both attempts as unverified, and run the trial again.",
    ),
    "evidence.plan": Meaning(
        "The campaign's plan or frozen spec differs from the one its attempts were made from.",
        "Treat the campaign folder as damaged; each sealed attempt names the plan that was run.",
    ),
    "evidence.report": Meaning(
        "The campaign's report differs from what its attempts produce.",
        "Run `proctor report`, which computes the report again.",
    ),
    "evidence.bounds": Meaning("A text or a file exceeds its size limit.", "Check which version of Proctor wrote it."),
    "evidence.gate": Meaning(
        "The attempt report's verdict differs from what its probes produce.", "Trust probes.jsonl, not the report."
    ),
    "evidence.containment": Meaning(
        "A path in the evidence points outside the evidence folder.", "Treat the attempt as damaged."
    ),
}
