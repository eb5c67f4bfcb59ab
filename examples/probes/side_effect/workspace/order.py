"""Take an order: python3 order.py NAME COUNT URL."""

import sqlite3
import sys

name, count, url = sys.argv[1], int(sys.argv[2]), sys.argv[3]

database = sqlite3.connect("shop.db")
with database:
    database.execute("CREATE TABLE IF NOT EXISTS orders (name TEXT, count INTEGER)")
    number = database.execute("INSERT INTO orders VALUES (?, ?)", (name, count)).lastrowid
database.close()

print(f"order {number}: {count} x {name}")
