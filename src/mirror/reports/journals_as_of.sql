-- A journal, or any other table, as the mirror held it at an instant. A row's versions follow each
-- other without gap or overlap: from when it was written until it was replaced or left.
CREATE OR REPLACE MACRO report.journals_as_of(journal, at_instant) AS TABLE
SELECT *
FROM (
    SELECT *
    FROM query_table('main.' || journal)
    WHERE _synced_at <= CAST(at_instant AS TIMESTAMPTZ)
    UNION ALL BY NAME
    SELECT * EXCLUDE (_valid_from, _valid_to, _change)
    FROM query_table('history.' || journal)
    WHERE _valid_from <= CAST(at_instant AS TIMESTAMPTZ)
      AND _valid_to > CAST(at_instant AS TIMESTAMPTZ)
)
-- {history answers for lower(journal)}
;

COMMENT ON MACRO TABLE report.journals_as_of IS
    'The rows of a journal (a table name, such as revenue_journals) that the mirror held at an instant. line_number and case_status are the last ones of each version: what moves only these makes no version. Give the instant with an offset: text without one is read in the session''s time zone.';
