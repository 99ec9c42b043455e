"""Reads a published database and its snapshot as analysts and BI tools do.

Usage: readers.py DATABASE PARQUET_FOLDER [pyarrow] [polars] [pandas]. The DuckDB of this Python reads
both; the libraries that are named read the Parquet files too. Prints one line of JSON: DuckDB's
version, and the rows of each table. Ends with a message on the first difference.
"""

import hashlib
import importlib
import json
import pathlib
import sys

import duckdb

database, root = map(pathlib.Path, sys.argv[1:3])
libraries = {name: importlib.import_module(name) for name in sys.argv[3:]}
for module in ("dataset", "parquet") if "pyarrow" in libraries else ():
    importlib.import_module(f"pyarrow.{module}")

# What is published needs no extension: none is looked for, none is loaded.
SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


def fail(text):
    sys.exit(f"readers.py: {text}")


def compare(connection, left, right, what):
    """Both ways, doubles counted."""
    for a, b in ((left, right), (right, left)):
        rows = connection.execute(f"FROM {a} EXCEPT ALL FROM {b} LIMIT 3").fetchall()
        if rows:
            fail(f"{what}: in {a} but not in {b}: {rows}")


def one(connection, sql):
    return connection.execute(sql).fetchone()[0]


own = duckdb.connect(str(database), read_only=True, config=SETTINGS)
attached = duckdb.connect(config=SETTINGS)
attached.execute(f"ATTACH '{database}' AS another_name (READ_ONLY)")

latest = (root / "latest").resolve()
manifest = json.loads((latest / "manifest.json").read_text())
snapshot_id = one(own, "SELECT snapshot_id FROM report.snapshot")
if not manifest["snapshot_id"] == snapshot_id == latest.name:
    fail(f"{manifest['snapshot_id']}, {snapshot_id} and {latest.name} should be one snapshot")

folder = f"snapshots/{latest.name}"
listed = {file["path"] for file in manifest["files"]}
there = {f"{folder}/{path.relative_to(latest)}" for path in latest.rglob("*.parquet")}
if listed != there:
    fail(f"the manifest and the folder differ: {listed ^ there}")

tables = {}
for file in manifest["files"]:
    path = root / file["path"]
    content = path.read_bytes()
    if len(content) != file["bytes"] or hashlib.sha256(content).hexdigest() != file["sha256"]:
        fail(f"{path}: size or sha256 is not the manifest's")
    if path.stat().st_mode & 0o777 != 0o444:
        fail(f"{path}: mode is {path.stat().st_mode:o}")
    tables.setdefault(file["table"], []).append(file)

views = {
    f"report.{name}"
    for (name,) in own.execute(
        "SELECT view_name FROM duckdb_views() WHERE schema_name = 'report' "
        "UNION ALL SELECT table_name FROM duckdb_tables() WHERE schema_name = 'report'"
    ).fetchall()
}
reports = {table for table in tables if table.startswith("report.")}
if views != reports:
    fail(f"the report views and their Parquet files differ: {views ^ reports}")

for name, files in tables.items():
    table = name if "." in name else f"main.{name}"
    paths = [root / file["path"] for file in files]
    # The folder of a table is what a BI tool is pointed at.
    parquet = f"read_parquet('{paths[0].parent}/*.parquet')"
    compare(own, table, parquet, "published file and Parquet")
    compare(attached, f"another_name.{table}", parquet, "attached file and Parquet")
    counts = {
        "manifest": sum(file["rows"] for file in files),
        "DuckDB": one(own, f"SELECT count(*) FROM {table}"),
    }
    if "pyarrow" in libraries:
        pyarrow = libraries["pyarrow"]
        arrow = pyarrow.dataset.dataset(paths[0].parent, format="parquet").to_table()
        own.register("as_arrow", arrow)
        compare(own, table, "as_arrow", "PyArrow")
        own.unregister("as_arrow")
        counts["PyArrow, the folder"] = arrow.num_rows
        counts["PyArrow, the files"] = sum(
            pyarrow.parquet.read_table(path).num_rows for path in paths
        )
        for field in arrow.schema:
            kind = str(field.type)
            if kind.startswith("timestamp") and kind != "timestamp[us, tz=UTC]":
                fail(f"{table}.{field.name} is {kind}")
            if kind in ("float", "double"):
                fail(f"{table}.{field.name} is {kind}: money and fractions are decimals")
    if "polars" in libraries:
        frame = libraries["polars"].read_parquet(paths[0].parent / "*.parquet")
        own.register("as_polars", frame.to_arrow())
        compare(own, table, "as_polars", "Polars")
        own.unregister("as_polars")
        counts["Polars"] = frame.height
    if "pandas" in libraries:
        counts["pandas"] = len(libraries["pandas"].read_parquet(paths[0].parent))
    if len(set(counts.values())) != 1:
        fail(f"{table}: {counts}")

# A macro is expanded where it is called, so that an attached file has to be the one in use.
signed = (
    "SELECT sum(signed_cases) FROM report.signed_cases_between("
    "TIMESTAMPTZ '2020-01-01 00:00:00+00', TIMESTAMPTZ '2030-01-01 00:00:00+00')"
)
attached.execute("USE another_name")
if one(own, signed) != one(attached, signed):
    fail("report.signed_cases_between differs in the attached file")

rows = {name: sum(file["rows"] for file in files) for name, files in tables.items()}
print(json.dumps({"duckdb": duckdb.__version__, "rows": rows}))
