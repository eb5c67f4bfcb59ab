"""Counts from one to the number it is given, or should."""

import sys

print(*range(int(sys.argv[1])))
