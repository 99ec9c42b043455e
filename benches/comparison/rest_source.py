"""To compare: dlt's REST source, merging the same pages into DuckDB.

python rest_source.py BASE_URL CLIENT_ID CLIENT_SECRET FOLDER: writes FOLDER/rest_source.duckdb and
prints its rows.
"""

import os
import pathlib
import shutil
import sys

base_url, client_id, client_secret, folder = sys.argv[1:]
folder = pathlib.Path(folder)
home = folder / "dlt"
shutil.rmtree(home, ignore_errors=True)
home.mkdir()
os.environ["DLT_DATA_DIR"] = str(home)
os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
# Which columns no row had is no news here.
os.environ["RUNTIME__LOG_LEVEL"] = "ERROR"
os.chdir(home)

import dlt
import duckdb
from dlt.sources.rest_api import rest_api_source

TOP = 1000
SEARCHES = {"cases": "AdvancedPropertySearch", "projects": "AdvancedProjectSearch"}

source = rest_api_source(
    {
        "client": {
            "base_url": base_url,
            "auth": {
                "type": "oauth2_client_credentials",
                "access_token_url": base_url + "/authtoken",
                "client_id": client_id,
                "client_secret": client_secret,
            },
        },
        "resources": [
            {
                "name": table,
                "primary_key": "Id",
                "write_disposition": "merge",
                "endpoint": {
                    "path": f"api/Search/{search}",
                    "method": "POST",
                    "params": {"$orderby": "Id"},
                    "paginator": {
                        "type": "offset",
                        "limit": TOP,
                        "limit_param": "$top",
                        "offset_param": "$skip",
                        "total_path": None,
                        "stop_after_empty_page": True,
                    },
                },
            }
            for table, search in SEARCHES.items()
        ],
    },
    max_table_nesting=0,
)
database = folder / "rest_source.duckdb"
database.unlink(missing_ok=True)
pipeline = dlt.pipeline(
    "comparison", destination=dlt.destinations.duckdb(str(database)), dataset_name="main_data"
)
pipeline.run(source)
connection = duckdb.connect(str(database), read_only=True)
count = "SELECT count(*) FROM main_data."
print(sum(connection.execute(count + table).fetchone()[0] for table in SEARCHES))
