"""Everything Proctor can say went wrong, in one tree and one table.

ProctorError
├── InputError                  the user's file or argument        exit 2
├── MachineError                this machine cannot                exit 3
├── PeerError                   the other process broke its side   exit 3
│   ├── WireError               bytes that are not its protocol
│   ├── RefusedError            a well-formed error reply
│   ├── HangupError             it died or closed the channel
│   └── DeadlineError           it did not answer in time
└── EvidenceError               evidence that cannot be trusted    exit 5

An exception means *we could not observe*. An agent that fails, stalls or refuses is an Outcome, not an exception.
"""

import errno
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar


class Exit(IntEnum):
    """What a command tells its caller, the same everywhere."""

    OK = 0
    JUDGED_NO = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    UNVERIFIED = 4
    EVIDENCE = 5
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Meaning:
    """One row of the table: what a code means, whether trying again can help, and what to do."""

    means: str
    todo: str
    retryable: bool = False


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
    "spec.unsupported": Meaning("The spec asks for what this runtime cannot do.", "Choose what the message offers."),
    "spec.unknown-runtime": Meaning("No runtime has this id.", "Run `proctor runtimes list` for the ids."),
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
    "policy.login": Meaning("The login asked for is not available.", "Use `login: api-key` or the scripted model."),
    "sign.key": Meaning(
        "The key cannot be used to sign.",
        "Give a private SSH key, or its public half where an agent holds it; `ssh-keygen -t ed25519` makes one.",
    ),
    "sign.allowed-signers": Meaning(
        "The list of allowed signers cannot be read, or is needed and was not given.",
        "Give a file with a line for each signer: its name, then its public key.",
    ),
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
        "The campaign's ledger is damaged, of something else, or of a newer Proctor.",
        "Use the Proctor that wrote it, or move the file away: the sealed attempts are the truth.",
    ),
    "machine.git": Meaning("git did not do its part.", "Read the reason given; try the same by hand."),
    "machine.spawn-failed": Meaning("A process could not be started.", "Read the reason given; check the path."),
    "machine.port": Meaning("No loopback port could be opened.", "Choose another port.", retryable=True),
    # ── the other process ──
    "peer.wire": Meaning("The agent sent bytes that are not its protocol.", "Read frames.jsonl at the row named."),
    "peer.refused": Meaning("The agent answered a request with an error.", "Read the message; see runtimes list."),
    "peer.hangup": Meaning(
        "The agent ended or closed its channel.", "Read its stderr rows in frames.jsonl.", retryable=True
    ),
    "peer.deadline": Meaning(
        "The agent did not answer in time.", "Try again; raise the limit if it is slow.", retryable=True
    ),
    "peer.overloaded": Meaning(
        "The agent kept refusing because it is overloaded.", "Lower `parallel`.", retryable=True
    ),
    # ── how attempts end ──
    "agent.turn-failed": Meaning("The agent ended its turn as failed.", "Read the error in the transcript."),
    "agent.interrupted": Meaning(
        "The turn ended as interrupted without our asking.", "Read the transcript.", retryable=True
    ),
    "limit.turn": Meaning("The turn ran past its limit.", "Raise limits.turn, or make the task smaller."),
    "limit.attempt": Meaning("The attempt ran past its limit.", "Raise limits.attempt."),
    "limit.stall": Meaning(
        "The agent said nothing for too long.", "Raise limits.stall, or see why it hangs.", retryable=True
    ),
    "run.cancelled": Meaning(
        "The attempt was cancelled.", "Run the spec again: it makes a new campaign.", retryable=True
    ),
    "run.harness": Meaning("Proctor itself failed in an unforeseen way.", "Report it with the detail given."),
    "run.redaction": Meaning(
        "A secret that was planted as a canary reached the disk, so redaction did not work and there is no seal.",
        "Keep the evidence folder to yourself, and report it with the file named.",
    ),
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
    "evidence.not-found": Meaning("There is no evidence at this path.", "Run `proctor attempt list`."),
    "evidence.ambiguous": Meaning("The name fits more than one attempt.", "Name one of them whole."),
    "evidence.root": Meaning("The evidence root is not a folder.", "Name a folder with --root; it need not exist."),
    "evidence.partial": Meaning(
        "The attempt has no seal: it was cut off.",
        "Keep it as it is. Run the spec again: it makes a new campaign.",
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
    "evidence.bounds": Meaning("A text or a file is longer than its bound.", "Check which Proctor wrote it."),
    "evidence.gate": Meaning("The report's verdict is not what its probes give.", "Trust probes.jsonl instead."),
    "evidence.containment": Meaning("A path leads out of the evidence folder.", "Treat the attempt as damaged."),
}


class ProctorError(Exception):
    """Root of all. Fields, not prose: `code` is a row of CODES, the rest says where and what."""

    exit: ClassVar[Exit] = Exit.INFRASTRUCTURE

    def __init__(
        self,
        code: str,
        what: str,
        *,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.file = file
        self.line = line
        self.key = key
        self.suggestion = suggestion

    @property
    def meaning(self) -> Meaning:
        return CODES[self.code]

    @property
    def where(self) -> str | None:
        """
        >>> InputError("spec.type", "not a number", file="a.yaml", line=3, key="limits.turn").where
        'a.yaml:3 limits.turn'
        """
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return " ".join(part for part in (place, self.key) if part) or None

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class InputError(ProctorError):
    """The user's file or argument is at fault."""

    exit = Exit.USAGE


class CollectedInputError(InputError):
    """Several faults of one file, all told at once."""

    def __init__(self, errors: tuple[InputError, ...]) -> None:
        first = errors[0]
        super().__init__(
            first.code, first.what, file=first.file, line=first.line, key=first.key, suggestion=first.suggestion
        )
        self.errors = errors


class MachineError(ProctorError):
    """This machine lacks something, or refuses it."""


def disk_refusal(error: OSError, *, path: object) -> MachineError:
    """What this machine says when it will not let us write.

    >>> disk_refusal(OSError(errno.ENOSPC, "No space left on device"), path="a").code
    'machine.disk-full'
    """
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return MachineError(
        "machine.disk-full" if is_full else "machine.unwritable", error.strerror or str(error), file=str(path)
    )


class PeerError(ProctorError):
    """The other process broke its side of the protocol."""


class WireError(PeerError):
    """Bytes that are not its protocol."""


class RefusedError(PeerError):
    """A well-formed error reply."""


class HangupError(PeerError):
    """It died or closed the channel."""


class DeadlineError(PeerError):
    """It did not answer in time."""


class EvidenceError(ProctorError):
    """Evidence that cannot be trusted."""

    exit = Exit.EVIDENCE


def lone(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The only thing that went wrong inside a task group, or the group where it was more than one.

    >>> lone(BaseExceptionGroup("", [BaseExceptionGroup("", [KeyError("a")])]))
    KeyError('a')
    """
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return found
