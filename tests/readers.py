"""Reads a published database and its snapshot as analysts and BI tools do.

Usage: readers.py DATABASE PARQUET_FOLDER. Prints one line of JSON per table: its name and rows as
each library counts them. Ends with a message on the first difference.
"""

import hashlib
import json
import pathlib
import sys

import duckdb
import pandas
import polars
import pyarrow.dataset
import pyarrow.parquet

database, root = map(pathlib.Path, sys.argv[1:])


def fail(text):
    sys.exit(f"readers.py: {text}")


def compare(connection, left, right, what):
    """Both ways, doubles counted."""
    for a, b in ((left, right), (right, left)):
        rows = connection.execute(f"FROM {a} EXCEPT ALL FROM {b} LIMIT 3").fetchall()
        if rows:
            fail(f"{what}: in {a} but not in {b}: {rows}")


own = duckdb.connect(str(database), read_only=True)
attached = duckdb.connect()
attached.execute(f"ATTACH '{database}' AS another_name (READ_ONLY)")

latest = (root / "latest").resolve()
manifest = json.loads((latest / "manifest.json").read_text())
snapshot_id = own.execute("SELECT snapshot_id FROM report.snapshot").fetchone()[0]
if not manifest["snapshot_id"] == snapshot_id == latest.name:
    fail(f"{manifest['snapshot_id']}, {snapshot_id} and {latest.name} should be one snapshot")

listed = {file["path"] for file in manifest["files"]}
there = {str(path.relative_to(root)) for path in latest.rglob("*.parquet")}
there = {path.replace("latest/", f"snapshots/{latest.name}/") for path in there}
if listed != there:
    fail(f"the manifest and the folder differ: {listed ^ there}")

for file in manifest["files"]:
    path = root / file["path"]
    content = path.read_bytes()
    if len(content) != file["bytes"] or hashlib.sha256(content).hexdigest() != file["sha256"]:
        fail(f"{path}: size or sha256 is not the manifest's")
    table = file["table"] if "." in file["table"] else f"main.{file['table']}"
    compare(own, table, f"read_parquet('{path}')", "published file and Parquet")
    compare(attached, f"another_name.{table}", f"read_parquet('{path}')", "attached file")

    arrow = pyarrow.parquet.read_table(path)
    own.register("as_arrow", arrow)
    compare(own, table, "as_arrow", "PyArrow")
    own.unregister("as_arrow")
    # The folder of a table is what a BI tool is pointed at.
    dataset = pyarrow.dataset.dataset(path.parent, format="parquet")
    frame = polars.read_parquet(path)
    own.register("as_polars", frame.to_arrow())
    compare(own, table, "as_polars", "Polars")
    own.unregister("as_polars")
    panda = pandas.read_parquet(path)
    counts = {
        "manifest": file["rows"],
        "duckdb": own.execute(f"SELECT count(*) FROM {table}").fetchone()[0],
        "arrow": arrow.num_rows,
        "dataset": dataset.count_rows(),
        "polars": frame.height,
        "pandas": len(panda),
    }
    if len(set(counts.values())) != 1:
        fail(f"{table}: {counts}")
    for field in arrow.schema:
        kind = str(field.type)
        if kind.startswith("timestamp") and kind != "timestamp[us, tz=UTC]":
            fail(f"{table}.{field.name} is {kind}")
        if kind in ("float", "double"):
            fail(f"{table}.{field.name} is {kind}: money and fractions are decimals")
    print(json.dumps({"table": file["table"], "rows": file["rows"]}))
