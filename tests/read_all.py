"""Reads all rows of all tables and views of a published database, and prints the version of this Python's DuckDB.

Usage: read_all.py DATABASE
"""

import sys

import duckdb

database = duckdb.connect(sys.argv[1], read_only=True)
names = "SELECT table_schema, table_name FROM information_schema.tables"
for schema, name in database.execute(names).fetchall():
    database.execute(f'SELECT sum(hash(t)) FROM "{schema}"."{name}" AS t').fetchall()
print(duckdb.__version__)
