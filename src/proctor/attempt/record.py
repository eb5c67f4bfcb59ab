"""attempt.json: who, what, which plan, which workspace, written before the agent is asked anything."""

from proctor import canonical
from proctor.attempt.model import AttemptAsk
from proctor.evidence import layout
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.redact import Redactor
from proctor.ids import Digest
from proctor.probe.model import require


def write_record(ask: AttemptAsk, *, base: Digest, prompt: bytes, redactor: Redactor) -> bytes:
    """Writes it, and gives what stands in it now. `prompt` is prompt.txt as it was written."""
    flow = ask.flow
    record = AttemptRecord(
        attempt_id=ask.attempt_id,
        cell=ask.cell.id,
        n=ask.n,
        campaign_id=ask.campaign_id,
        run_id=ask.run_id,
        mission_id=ask.mission.id,
        flow_id=flow.id,
        repeat=ask.cell.repeat,
        strategy=ask.runtime.id,
        plan_digest=ask.plan_digest,
        plan_file_digest=ask.plan_file_digest,
        cell_digest=ask.cell.digest,
        prompt_digest=canonical.digest_bytes(prompt),
        workspace_digest=base,
        required_probes=tuple(probe.digest for probe in require(ask.mission.probes)),
        expect=ask.mission.expect,
        isolation=flow.isolation,
        sandbox=flow.sandbox,
        approvals=flow.approvals,
        limits=ask.limits,
        tools=flow.tools,
        secret_names=tuple(secret.name for secret in ask.secrets),
        created_at_ms=ask.clock.wall_ms(),
    )
    return layout.write_artifact(ask.paths.attempt, record, redactor=redactor, is_durable=False)
