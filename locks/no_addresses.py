"""Takes out of an npm lock what names addresses and does not pin: where to give money, why a package is old."""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    path = Path(sys.argv[1])
    lock = json.loads(path.read_text())
    for package in lock["packages"].values():
        for key in ("funding", "deprecated"):
            package.pop(key, None)
    path.write_text(json.dumps(lock, indent=2) + "\n")
