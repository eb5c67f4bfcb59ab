"""Writes attempt.json, before the agent gets its prompt."""

from proctor import canonical
from proctor.attempt.model import AttemptRequest
from proctor.evidence import layout
from proctor.evidence.artifacts import AttemptRecord
from proctor.evidence.redact import Redactor
from proctor.ids import Digest
from proctor.spec.model import SCRIPTED


def write_record(request: AttemptRequest, *, base: Digest, prompt: bytes, redactor: Redactor) -> bytes:
    """Write attempt.json and return its bytes. `prompt` is the content of prompt.txt."""
    flow = request.flow
    record = AttemptRecord(
        attempt_id=request.attempt_id,
        trial=request.trial.id,
        n=request.n,
        campaign_id=request.campaign_id,
        run_id=request.run_id,
        mission_id=request.mission.id,
        flow_id=flow.id,
        repeat=request.trial.repeat,
        runtime_id=request.runtime.id,
        is_scripted=request.model.provider == SCRIPTED,
        plan_digest=request.plan_digest,
        plan_file_digest=request.plan_file_digest,
        trial_digest=request.trial.digest,
        prompt_digest=canonical.digest_bytes(prompt),
        workspace_digest=base,
        required_probes=request.required_probes,
        waivers=tuple(request.mission.waive),
        expect=request.mission.expect,
        isolation=flow.isolation,
        sandbox=flow.sandbox,
        approvals=flow.approvals,
        limits=request.limits,
        tools=flow.tools,
        secret_names=tuple(secret.name for secret in request.secrets),
        created_at_ms=request.clock.wall_ms(),
    )
    return layout.write_artifact(request.paths.attempt, record, redactor=redactor, is_durable=False)
