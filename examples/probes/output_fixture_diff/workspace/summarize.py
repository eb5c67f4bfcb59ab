import csv
import json
import sys
import time
from pathlib import Path

source, out = map(Path, sys.argv[1:])
with source.open(newline="") as stream:
    sales = list(csv.DictReader(stream))
units = {}

summary = {"count": len(sales), "units": units, "created": time.time()}
Path("summary.json").write_text(json.dumps(summary))
with (out / "units.csv").open("w", newline="") as stream:
    csv.writer(stream).writerows([("product", "units"), *units.items()])
