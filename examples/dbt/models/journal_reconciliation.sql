-- The revenue journals against the platform's own sums, per month: how many offices there are, how many of them
-- agree, and by how much the others differ.
SELECT
    journal_month,
    count(*) AS offices,
    count(*) FILTER (WHERE status = 'matches') AS matching,
    count(*) FILTER (WHERE status = 'differs') AS differing,
    sum(lines) AS lines,
    -- A sum without a part would be no sum.
    CASE WHEN count(payment) = count(*) THEN sum(payment) END AS payment,
    coalesce(sum(abs(difference)) FILTER (WHERE status = 'differs'), 0) AS difference
FROM {{ source('casemirror_report', 'journal_reconciliation') }}
GROUP BY journal_month
