-- Signed cases of all offices. Cases without a month are those whose date did not fit (sync.rejects).
SELECT
    month,
    -- Where it is not known for one office, it is not known for all of them.
    CASE WHEN count(signed_cases) = count(*) THEN sum(signed_cases) END AS signed_cases,
    count(DISTINCT office_id) AS offices
FROM {{ source('casemirror_report', 'signed_cases') }}
WHERE month IS NOT NULL
GROUP BY month
