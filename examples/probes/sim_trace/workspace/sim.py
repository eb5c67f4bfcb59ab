"""Two tanks of water, joined by a pipe. At every tick a random amount flows through it.

python3 sim.py SEED TICKS prints one JSON object for each tick.
"""

import json
import random
import sys


def main() -> None:
    ticks = int(sys.argv[2])
    chance = random.Random()
    left, right = 20, 10
    for tick in range(1, ticks + 1):
        flow = chance.randint(-5, 5)
        left, right = left - flow, right + flow
        print(json.dumps({"tick": tick, "left": left, "right": right}))


if __name__ == "__main__":
    main()
