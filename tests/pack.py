"""Opens the pack of a closed month as its readers do, and prints what it finds as JSON."""

import json
import pathlib
import sys

import duckdb
import openpyxl
import pandas

folder = pathlib.Path(sys.argv[1])
workbook = next(folder.glob("*.xlsx"))
book = openpyxl.load_workbook(workbook)
found = {}
for sheet in book.worksheets:
    name = sheet.title
    rows = duckdb.sql(f"SELECT count(*) FROM '{folder / name}.parquet'").fetchone()[0]
    lines = duckdb.sql(f"SELECT count(*) FROM read_csv('{folder / name}.csv')").fetchone()[0]
    frame = pandas.read_excel(workbook, sheet_name=name)
    types = {cell.value: set() for cell in sheet[1]}
    formats = {cell.value: None for cell in sheet[1]}
    for row in sheet.iter_rows(min_row=2):
        for header, cell in zip(sheet[1], row):
            if cell.value is not None:
                types[header.value].add(type(cell.value).__name__)
                formats[header.value] = cell.number_format
    # Neighbours of one width are one entry.
    widths = {
        column: entry.width
        for entry in sheet.column_dimensions.values()
        for column in range(entry.min, entry.max + 1)
    }
    narrow = [cell.value for cell in sheet[1] if widths[cell.column] < len(cell.value)]
    found[name] = {
        "rows": [rows, lines, len(frame)],
        "types": {column: sorted(kinds) for column, kinds in types.items()},
        "formats": formats,
        "narrow": narrow,
        "frozen": sheet.freeze_panes,
        # All columns on one page, below their names.
        "printed": [
            sheet.page_setup.orientation,
            f"fit to width: {sheet.sheet_properties.pageSetUpPr.fitToPage}",
            f"height: {sheet.page_setup.fitToHeight}",
            f"titles: {sheet.print_title_rows}",
        ],
    }
    if "payment" in frame.columns:
        exact = duckdb.sql(
            f"SELECT CAST(sum(payment) AS VARCHAR) FROM '{folder / name}.parquet'"
        ).fetchone()[0]
        found[name]["payment"] = [exact, f"{frame['payment'].sum():.2f}"]
json.dump(found, sys.stdout)
