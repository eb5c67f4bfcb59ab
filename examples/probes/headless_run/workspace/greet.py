import sys

name = sys.argv[1] if len(sys.argv) > 1 else "world"
print("Hello, world")
