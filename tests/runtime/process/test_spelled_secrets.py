"""A command prints a secret in the spellings of other programs; none of them reaches a file."""

import pytest

from tests.lab import Lab, jsonl
from tests.runtime.process.commands import flow, run_flows

ODD = 'zq7/"päss"\\w0rd+?'
DIGITS = "8123456790"

M = "[redacted:ODD_PASSWORD]"
N = "[redacted:LONG_TOKEN]"

# Each spelling is made by the program that makes it in practice. After it: what is recorded.
PRINTING = {
    """printf '%s\\n' "$ODD_PASSWORD" | cat -v""": M,
    """python3 -c 'import os; v = os.environ["ODD_PASSWORD"]; print([v], [v.encode()])'""": f"['{M}'] [b'{M}']",
    """python3 -c 'import os; print(ascii(os.environ["ODD_PASSWORD"]))'""": f"'{M}'",
    """python3 -c 'import os; print("".join(f"%{b:02x}" for b in os.environb[b"ODD_PASSWORD"]))'""": M,
    r"""python3 -c 'import os; print("".join(f"\\u{{{ord(c):x}}}" for c in os.environ["ODD_PASSWORD"]))'""": M,
    r"""python3 -c 'import os; print("".join(f"\\{b:03o}" for b in os.environb[b"ODD_PASSWORD"]))'""": M,
    """printf '%s' "$ODD_PASSWORD" | iconv -f utf-8 -t utf-16le; echo""": f"{M}\0",
    """printf '%s' "$ODD_PASSWORD" | iconv -f utf-8 -t utf-16be; echo""": f"\0{M}",
    """printf '%s\\n' "$ODD_PASSWORD" | tr a-z A-Z""": M,
    """LC_ALL=C.UTF-8 bash -c 'printf "%q\\n" "$ODD_PASSWORD"'""": M,
    """LC_ALL=C bash -c 'printf "%q\\n" "$ODD_PASSWORD"'""": f"$'{M}'",
    """git init -q . && mkdir -p "$ODD_PASSWORD" && touch "$ODD_PASSWORD/f" && git status --short -uall""": (
        f'?? "{M}/f"'
    ),
    """LC_ALL=C ls --quoting-style=escape -d "$ODD_PASSWORD" """: M,
    """LC_ALL=C ls --quoting-style=shell-escape -d "$ODD_PASSWORD" """: f"'{M}'",
    """LC_ALL=C ls --quoting-style=c -d "$ODD_PASSWORD" | sed 's/^/> /'""": f'> "{M}"',
    """python3 -c 'import os, json; print(json.dumps(float(os.environ["LONG_TOKEN"])))'""": N,
    """printf '{"n": 8.12345679e9, "m": %s.0}\\n' "$LONG_TOKEN" """: {"n": N, "m": N},
}


@pytest.mark.long
@pytest.mark.requirement("evidence.redaction")
def test_spellings_of_other_programs_reach_no_file(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD_PASSWORD", ODD)
    monkeypatch.setenv("LONG_TOKEN", DIGITS)
    command = "\n".join(('cd "$(mktemp -d)"', *PRINTING))
    [paths] = run_flows(lab, {"printing": flow(command, forward=["ODD_PASSWORD", "LONG_TOKEN"])}).values()
    recorded = [row.get("text", row.get("frame")) for row in jsonl(paths.frames) if row["dir"] == "in"]
    assert recorded == list(PRINTING.values())
