"""A bucket as its readers see it, by PyArrow's own S3 client.

Usage: buckets.py make|list|read|empty ENDPOINT BUCKET [PREFIX]. `make` makes the bucket; `list` prints the names of
all objects under the prefix as JSON; `read` begins with latest.json, as a reader does, holds every file of the
manifest against its size and sha256 and prints the rows of each table, and in which snapshot each file is, as JSON;
`empty` removes everything under the prefix. Ends with a message on the first difference.
"""

import hashlib
import io
import json
import sys

import pyarrow.fs
import pyarrow.parquet

act, endpoint, bucket, *prefix = sys.argv[1:]
root = "/".join([bucket, *prefix])
s3 = pyarrow.fs.S3FileSystem(
    endpoint_override=endpoint,
    scheme="http",
    region="us-east-1",
    force_virtual_addressing=False,
    allow_bucket_creation=True,
    allow_bucket_deletion=True,
)


def content(name):
    with s3.open_input_stream(f"{root}/{name}") as stream:
        return stream.read()


if act == "make":
    s3.create_dir(bucket)
elif act == "empty":
    s3.delete_dir_contents(root)
elif act == "list":
    selector = pyarrow.fs.FileSelector(root, recursive=True, allow_not_found=True)
    files = [info for info in s3.get_file_info(selector) if info.is_file]
    print(json.dumps(sorted(info.path[len(root) + 1 :] for info in files)))
elif act == "read":
    latest = json.loads(content("latest.json"))
    manifest = json.loads(content(latest["manifest"]))
    if latest["snapshot_id"] != manifest["snapshot_id"]:
        sys.exit(f"buckets.py: {latest} names {manifest['snapshot_id']}")
    rows, snapshots, paths = {}, {}, {}
    for file in manifest["files"]:
        data = content(file["path"])
        if (len(data), hashlib.sha256(data).hexdigest()) != (file["bytes"], file["sha256"]):
            sys.exit(f"buckets.py: {file['path']} is not what the manifest says")
        count = pyarrow.parquet.read_table(io.BytesIO(data)).num_rows
        if count != file["rows"]:
            sys.exit(f"buckets.py: {file['path']}: {count} and {file['rows']} rows")
        rows[file["table"]] = rows.get(file["table"], 0) + count
        snapshots[file["table"]] = file["path"].split("/")[1]
        paths.setdefault(file["table"], []).append(f"{root}/{file['path']}")
    # As docs/bi.md has it, straight from the store: a table of one file and one of several.
    for table in ["cases", "revenue_journals"]:
        count = pyarrow.parquet.read_table(paths[table], filesystem=s3).num_rows
        if count != rows[table]:
            sys.exit(f"buckets.py: {table}: {count} and {rows[table]} rows")
    print(json.dumps({"id": manifest["snapshot_id"], "rows": rows, "snapshots": snapshots}))
else:
    sys.exit(f"buckets.py: {act}?")
