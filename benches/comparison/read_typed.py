"""To compare: DuckDB's own reader of JSON, over local files, with the types told.

python read_typed.py FOLDER: reads FOLDER/columns.json (table -> field -> type) and the pages under
FOLDER/pages, writes FOLDER/read_typed.duckdb and prints its rows.
"""

import json
import pathlib
import sys

import duckdb

folder = pathlib.Path(sys.argv[1])
database = folder / "read_typed.duckdb"
database.unlink(missing_ok=True)
connection = duckdb.connect(str(database))
# It runs out of memory at the limit that the mirror is given, so it has none but the machine's.
connection.execute("SET preserve_insertion_order = false")
rows = 0
for table, columns in json.loads((folder / "columns.json").read_text()).items():
    connection.execute(
        f"CREATE TABLE {table} AS SELECT * FROM read_json(?, columns = {json.dumps(columns)}, "
        "format = 'array', maximum_object_size = 100000000)",
        [f"{folder}/pages/{table}/*.json"],
    )
    rows += connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
connection.close()
print(rows)
