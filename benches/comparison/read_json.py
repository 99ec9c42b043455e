"""To compare: what a script does that fetches the same pages and lets DuckDB read them.

python read_json.py BASE_URL CLIENT_ID CLIENT_SECRET FOLDER: writes FOLDER/read_json.duckdb and prints
its rows.
"""

import pathlib
import shutil
import sys

import duckdb
import requests

TOP = 1000
SEARCHES = {"cases": "AdvancedPropertySearch", "projects": "AdvancedProjectSearch"}

base_url, client_id, client_secret, folder = sys.argv[1:]
folder = pathlib.Path(folder)
session = requests.Session()
login = session.post(
    base_url + "/authtoken",
    data={
        "grant_type": "client_credentials",
        "client_id": client_id,
        "client_secret": client_secret,
    },
)
login.raise_for_status()
session.headers["Authorization"] = "Bearer " + login.json()["access_token"]

database = folder / "read_json.duckdb"
database.unlink(missing_ok=True)
connection = duckdb.connect(str(database))
connection.execute("SET autoinstall_known_extensions = false")
rows = 0
for table, search in SEARCHES.items():
    pages = folder / f"read_json-{table}"
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir()
    first = 0
    while True:
        query = f"$filter=Id%20ge%20{first}&$orderby=Id&$top={TOP}"
        answer = session.post(f"{base_url}/api/Search/{search}?{query}")
        answer.raise_for_status()
        (pages / f"{first:012}.json").write_bytes(answer.content)
        records = answer.json()
        if len(records) < TOP:
            break
        first = records[-1]["Id"] + 1
    connection.execute(
        f"CREATE TABLE {table} AS SELECT * FROM read_json(?, format = 'array', "
        "maximum_object_size = 100000000, union_by_name = true)",
        [f"{pages}/*.json"],
    )
    rows += connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
connection.close()
print(rows)
