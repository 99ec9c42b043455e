-- Months whose lines do not add up to the platform's sum.
SELECT * FROM {{ ref('journal_reconciliation') }} WHERE differing > 0
