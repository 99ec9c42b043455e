-- What this copy shows.
CREATE OR REPLACE VIEW report.snapshot AS
SELECT snapshot_id, taken_at, watermark, complete
FROM sync.snapshot;

COMMENT ON VIEW report.snapshot IS
    'One row: what this copy shows. The Parquet snapshot published with it has the same id.';
COMMENT ON COLUMN report.snapshot.snapshot_id IS 'Name of the snapshot: 2026-11-20T020000Z.';
COMMENT ON COLUMN report.snapshot.taken_at IS 'When the copy was taken.';
COMMENT ON COLUMN report.snapshot.watermark IS
    'Every change at the source with a ModifiedDate up to here is in, but for sync.pending.';
COMMENT ON COLUMN report.snapshot.complete IS
    'Whether every scope that the configuration asks for has been fetched once.';
