"""The campaign's ledger, a SQLite file: one schema, one writer, one reader.

Use `reader.read_ledger` to read one. Only `campaign` imports `writer`.
"""
