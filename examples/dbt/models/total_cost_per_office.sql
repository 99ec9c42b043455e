-- What the sales of each office cost in all. A case of which a component is not known has no total: it is
-- counted in `unknown_cases` and is in no sum.
SELECT
    c.office_id,
    any_value(o.name) AS office,
    count(*) AS cases,
    count(*) FILTER (WHERE c.total_cost IS NULL) AS unknown_cases,
    sum(c.total_cost) AS total_cost
FROM {{ source('casemirror_report', 'total_cost') }} AS c
LEFT JOIN {{ source('casemirror', 'offices') }} AS o ON o.id = c.office_id
WHERE c.office_id IS NOT NULL
GROUP BY c.office_id
