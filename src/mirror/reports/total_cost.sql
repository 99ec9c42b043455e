-- What a sale costs in all, per case (reference 4.7, rules 2 and 3).
--
-- Each component passes three steps: its value, whether it is known, whether it is needed for this
-- kind of sale. Known is: the resource is readable, the case was read completely once, its own last
-- call did not fail, and no value that the component needs is rejected. What fails for another case
-- says nothing of this one.
CREATE OR REPLACE VIEW report.total_cost AS
WITH
readable AS (
    -- Rows of a resource that is not read any more stay as they are and count as not known. One that
    -- is failing is still read; which of its cases failed says sync.failures.
    SELECT table_name FROM sync.resources WHERE status IN ('ok', 'failing')
),
failed AS (
    -- A search that does not show a case yet, or shows it as it was, is no call that failed, and neither is one that
    -- was not made.
    SELECT DISTINCT table_name, id AS case_id
    FROM sync.failures
    WHERE part = ''
      AND coalesce(kind, '') NOT IN ('Lag', 'NotAsked', 'NotShown', 'Suspect')
      AND NOT (table_name = 'cases' AND coalesce(kind, '') = 'Held')
      AND table_name IN (
          'cases', 'costs', 'document_costs', 'common_conditions', 'case_conditions',
          'property_conditions', 'resale_information'
      )
),
fetched AS (
    SELECT
        f.id AS case_id,
        bool_or(f.table_name = 'costs') AS costs,
        bool_or(f.table_name = 'document_costs') AS document_costs,
        bool_or(f.table_name = 'common_conditions') AS common_conditions,
        bool_or(f.table_name = 'case_conditions') AS case_conditions,
        bool_or(f.table_name = 'property_conditions') AS property_conditions,
        bool_or(f.table_name = 'resale_information') AS resale_information
    FROM sync.read_scopes AS f
    JOIN readable USING (table_name)
    LEFT JOIN failed AS x ON x.table_name = f.table_name AND x.case_id = f.id
    WHERE f.table_name IN (
            'costs', 'document_costs', 'common_conditions', 'case_conditions',
            'property_conditions', 'resale_information'
        )
      AND f.part = ''
      AND f.complete
      AND x.case_id IS NULL
    GROUP BY f.id
),
open_rejects AS (
    -- Without column_name the whole record was rejected: of one with a key another was taken, so that its values
    -- are known. '#' names one without, which may be any of the case.
    SELECT
        table_name,
        scope AS case_key,
        record_key,
        column_name
    FROM sync.rejects
    WHERE resolved_at IS NULL
      AND (column_name IS NOT NULL OR contains(record_key, '#'))
      AND table_name IN (
          'cases', 'costs', 'document_costs', 'common_conditions', 'case_conditions',
          'property_conditions', 'resale_information'
      )
),
rejected AS (
    SELECT
        case_key,
        bool_or(table_name = 'cases' AND column_name = 'assignment_type') AS assignment_type,
        bool_or(table_name = 'cases' AND column_name = 'asking_price') AS case_price,
        bool_or(
            table_name = 'document_costs' AND coalesce(column_name, 'amount') = 'amount'
        ) AS document_cost,
        bool_or(
            table_name = 'common_conditions' AND coalesce(column_name, 'debt') = 'debt'
        ) AS debt,
        bool_or(
            table_name = 'case_conditions'
            AND coalesce(column_name, 'asking_price') = 'asking_price'
        ) AS case_conditions_price,
        bool_or(
            table_name = 'property_conditions'
            AND coalesce(column_name, 'asking_price') = 'asking_price'
        ) AS property_conditions_price,
        bool_or(
            table_name = 'resale_information'
            AND coalesce(column_name, 'entry_into_contract') = 'entry_into_contract'
        ) AS entry_into_contract,
        bool_or(
            table_name = 'resale_information'
            AND coalesce(column_name, 'original_sale_price') = 'original_sale_price'
        ) AS original_sale_price,
        bool_or(
            table_name = 'resale_information'
            AND coalesce(column_name, 'sum_original_buyer_costs') = 'sum_original_buyer_costs'
        ) AS sum_original_buyer_costs,
        bool_or(
            table_name = 'resale_information'
            AND coalesce(column_name, 'customer_changes') = 'customer_changes'
        ) AS customer_changes,
        bool_or(
            table_name = 'resale_information'
            AND coalesce(column_name, 'other_buyer_costs') = 'other_buyer_costs'
        ) AS other_buyer_costs,
        -- A cost record without a usable key may be a buyer's.
        bool_or(
            table_name = 'costs'
            AND contains(record_key, '#')
            AND coalesce(column_name, 'amount') IN ('amount', 'selected', 'deleted')
            AND record_key NOT LIKE case_key || '/Seller/%'
        ) AS cost_record
    FROM open_rejects
    GROUP BY case_key
),
rejected_costs AS (
    SELECT
        record_key,
        bool_or(column_name = 'selected') AS selected,
        bool_or(column_name = 'deleted') AS deleted
    FROM open_rejects
    WHERE table_name = 'costs' AND column_name IN ('amount', 'selected', 'deleted')
    GROUP BY record_key
),
buyer_costs AS (
    -- A rejected value matters where the cost counts, or would but for a rejected value.
    SELECT
        c.case_id,
        sum(c.amount) FILTER (WHERE c.selected AND c.deleted IS NOT TRUE) AS amount,
        coalesce(
            bool_or(
                r.record_key IS NOT NULL
                AND (c.selected IS TRUE OR r.selected)
                AND (c.deleted IS NOT TRUE OR r.deleted)
            ),
            false
        ) AS rejected
    FROM main.costs AS c
    LEFT JOIN rejected_costs AS r
      ON r.record_key = concat_ws('/', c.case_id, c.cost_type, c.id)
    WHERE c.cost_type = 'Buyer'
    GROUP BY c.case_id
),
gathered AS (
    SELECT
        c.id AS case_id,
        c.office_id,
        c.assignment_type,
        CASE
            WHEN cases_readable.table_name IS NULL
                OR search_failed.case_id IS NOT NULL
                OR coalesce(r.assignment_type, false) THEN NULL
            WHEN c.assignment_type IN (
                'ResaleOfContractPositionConsumer', 'ResaleOfContractPositionProff'
            ) THEN 'resale'
            ELSE 'regular'
        END AS kind,

        coalesce(f.costs, false)
            AND NOT coalesce(b.rejected, false)
            AND NOT coalesce(r.cost_record, false) AS buyer_costs_known,
        CAST(b.amount AS DECIMAL(38, 2)) AS buyer_costs,

        coalesce(f.document_costs, false)
            AND NOT coalesce(r.document_cost, false) AS document_cost_known,
        d.amount AS document_cost,

        coalesce(f.common_conditions, false) AND NOT coalesce(r.debt, false) AS debt_known,
        cc.debt,

        coalesce(f.case_conditions, false)
            AND NOT coalesce(r.case_conditions_price, false) AS case_conditions_price_known,
        ca.asking_price AS case_conditions_price,
        coalesce(f.property_conditions, false)
            AND NOT coalesce(r.property_conditions_price, false) AS property_conditions_price_known,
        pc.asking_price AS property_conditions_price,
        cases_readable.table_name IS NOT NULL
            AND search_failed.case_id IS NULL
            AND NOT coalesce(r.case_price, false) AS case_price_known,
        c.asking_price AS case_price,

        coalesce(f.resale_information, false)
            AND NOT coalesce(r.entry_into_contract, false) AS entry_into_contract_known,
        ri.entry_into_contract,
        coalesce(f.resale_information, false)
            AND NOT coalesce(r.original_sale_price, false) AS original_sale_price_known,
        ri.original_sale_price,
        coalesce(f.resale_information, false)
            AND NOT coalesce(r.sum_original_buyer_costs, false) AS sum_original_buyer_costs_known,
        ri.sum_original_buyer_costs,
        coalesce(f.resale_information, false)
            AND NOT coalesce(r.customer_changes, false) AS customer_changes_known,
        ri.customer_changes,
        coalesce(f.resale_information, false)
            AND NOT coalesce(r.other_buyer_costs, false) AS other_buyer_costs_known,
        ri.other_buyer_costs
    FROM main.cases AS c
    LEFT JOIN readable AS cases_readable ON cases_readable.table_name = 'cases'
    LEFT JOIN failed AS search_failed
        ON search_failed.table_name = 'cases' AND search_failed.case_id = c.id
    LEFT JOIN fetched AS f ON f.case_id = c.id
    LEFT JOIN rejected AS r ON r.case_key = CAST(c.id AS VARCHAR)
    LEFT JOIN buyer_costs AS b ON b.case_id = c.id
    LEFT JOIN main.document_costs AS d ON d.case_id = c.id
    LEFT JOIN main.common_conditions AS cc ON cc.case_id = c.id
    LEFT JOIN main.case_conditions AS ca ON ca.case_id = c.id
    LEFT JOIN main.property_conditions AS pc ON pc.case_id = c.id
    LEFT JOIN main.resale_information AS ri ON ri.case_id = c.id
),
priced AS (
    -- The first asking price that is there; one that may be hidden before it leaves it open.
    SELECT
        *,
        CASE
            WHEN NOT case_conditions_price_known THEN false
            WHEN case_conditions_price IS NOT NULL THEN true
            WHEN NOT property_conditions_price_known THEN false
            WHEN property_conditions_price IS NOT NULL THEN true
            ELSE case_price_known
        END AS asking_price_known,
        coalesce(case_conditions_price, property_conditions_price, case_price) AS asking_price
    FROM gathered
),
named AS (
    -- Names of components, in the order of the columns, as text: list functions with several lists
    -- or lambdas do not read the same in all versions of DuckDB that open this file.
    SELECT
        *,
        CASE kind
            WHEN 'regular' THEN concat_ws(
                ',',
                CASE WHEN NOT buyer_costs_known THEN 'buyer_costs' END,
                CASE WHEN NOT document_cost_known THEN 'document_cost' END,
                CASE WHEN NOT debt_known THEN 'debt' END,
                CASE WHEN NOT asking_price_known THEN 'asking_price' END
            )
            WHEN 'resale' THEN concat_ws(
                ',',
                CASE WHEN NOT debt_known THEN 'debt' END,
                CASE WHEN NOT entry_into_contract_known THEN 'entry_into_contract' END,
                CASE WHEN NOT original_sale_price_known THEN 'original_sale_price' END,
                CASE WHEN NOT sum_original_buyer_costs_known THEN 'sum_original_buyer_costs' END,
                CASE WHEN NOT customer_changes_known THEN 'customer_changes' END,
                CASE WHEN NOT other_buyer_costs_known THEN 'other_buyer_costs' END
            )
            ELSE 'assignment_type'
        END AS unknown_names,
        CASE kind
            WHEN 'regular' THEN concat_ws(
                ',',
                CASE WHEN buyer_costs_known AND buyer_costs IS NULL THEN 'buyer_costs' END,
                CASE WHEN document_cost_known AND document_cost IS NULL THEN 'document_cost' END,
                CASE WHEN debt_known AND debt IS NULL THEN 'debt' END,
                CASE WHEN asking_price_known AND asking_price IS NULL THEN 'asking_price' END
            )
            WHEN 'resale' THEN concat_ws(
                ',',
                CASE WHEN debt_known AND debt IS NULL THEN 'debt' END,
                CASE
                    WHEN entry_into_contract_known AND entry_into_contract IS NULL
                        THEN 'entry_into_contract'
                END,
                CASE
                    WHEN original_sale_price_known AND original_sale_price IS NULL
                        THEN 'original_sale_price'
                END,
                CASE
                    WHEN sum_original_buyer_costs_known AND sum_original_buyer_costs IS NULL
                        THEN 'sum_original_buyer_costs'
                END,
                CASE
                    WHEN customer_changes_known AND customer_changes IS NULL
                        THEN 'customer_changes'
                END,
                CASE
                    WHEN other_buyer_costs_known AND other_buyer_costs IS NULL
                        THEN 'other_buyer_costs'
                END
            )
            ELSE ''
        END AS missing_names
    FROM priced
),
applied AS (
    -- A component that is not known, or does not belong to the kind of sale, has no value.
    SELECT
        case_id,
        office_id,
        assignment_type,
        kind,
        CASE WHEN kind = 'regular' AND buyer_costs_known THEN buyer_costs END AS buyer_costs,
        CASE WHEN kind = 'regular' AND document_cost_known THEN document_cost END AS document_cost,
        CASE WHEN kind IS NOT NULL AND debt_known THEN debt END AS debt,
        CASE WHEN kind = 'regular' AND asking_price_known THEN asking_price END AS asking_price,
        CASE
            WHEN kind = 'resale' AND entry_into_contract_known
                THEN entry_into_contract
        END AS entry_into_contract,
        CASE
            WHEN kind = 'resale' AND original_sale_price_known
                THEN original_sale_price
        END AS original_sale_price,
        CASE
            WHEN kind = 'resale' AND sum_original_buyer_costs_known
                THEN sum_original_buyer_costs
        END AS sum_original_buyer_costs,
        CASE
            WHEN kind = 'resale' AND customer_changes_known
                THEN customer_changes
        END AS customer_changes,
        CASE
            WHEN kind = 'resale' AND other_buyer_costs_known
                THEN other_buyer_costs
        END AS other_buyer_costs,
        CASE
            WHEN missing_names = '' THEN CAST([] AS VARCHAR[])
            ELSE string_split(missing_names, ',')
        END AS missing,
        CASE
            WHEN unknown_names = '' THEN CAST([] AS VARCHAR[])
            ELSE string_split(unknown_names, ',')
        END AS unknown
    FROM named
)
SELECT
    case_id,
    office_id,
    assignment_type,
    kind,
    buyer_costs,
    document_cost,
    debt,
    asking_price,
    entry_into_contract,
    original_sale_price,
    sum_original_buyer_costs,
    customer_changes,
    other_buyer_costs,
    -- What is missing counts 0, except the price itself. What is not known leaves the total open.
    -- The reference names the original buyer costs twice. Two amounts as large as fit are more than DECIMAL(18, 2) holds.
    CAST(
        CASE
            WHEN len(unknown) > 0 THEN NULL
            WHEN kind = 'regular' THEN
                CAST(asking_price AS DECIMAL(38, 2))
                + coalesce(buyer_costs, 0)
                + coalesce(document_cost, 0)
                + coalesce(debt, 0)
            ELSE
                CAST(original_sale_price AS DECIMAL(38, 2))
                + coalesce(entry_into_contract, 0)
                + coalesce(sum_original_buyer_costs, 0)
                + coalesce(customer_changes, 0)
                + coalesce(sum_original_buyer_costs, 0)
                + coalesce(debt, 0)
        END AS DECIMAL(38, 2)
    ) AS total_cost,
    CAST(
        CASE
            WHEN len(unknown) > 0 THEN NULL
            WHEN kind = 'regular' THEN
                CAST(asking_price AS DECIMAL(38, 2))
                + coalesce(buyer_costs, 0)
                + coalesce(document_cost, 0)
                + coalesce(debt, 0)
            ELSE
                CAST(original_sale_price AS DECIMAL(38, 2))
                + coalesce(entry_into_contract, 0)
                + coalesce(sum_original_buyer_costs, 0)
                + coalesce(customer_changes, 0)
                + coalesce(other_buyer_costs, 0)
                + coalesce(debt, 0)
        END AS DECIMAL(38, 2)
    ) AS total_cost_once,
    missing,
    unknown
FROM applied;

COMMENT ON VIEW report.total_cost IS
    'What a sale costs in all, per case. Reference 4.7, rules 2 and 3.';
COMMENT ON COLUMN report.total_cost.case_id IS 'cases.id.';
COMMENT ON COLUMN report.total_cost.office_id IS 'offices.id.';
COMMENT ON COLUMN report.total_cost.assignment_type IS 'cases.assignment_type.';
COMMENT ON COLUMN report.total_cost.kind IS
    'regular, or resale (of a contract position); NULL where the assignment type is not known.';
COMMENT ON COLUMN report.total_cost.buyer_costs IS
    'Regular: sum of costs.amount of type Buyer, selected and not deleted.';
COMMENT ON COLUMN report.total_cost.document_cost IS 'Regular: document_costs.amount.';
COMMENT ON COLUMN report.total_cost.debt IS 'common_conditions.debt.';
COMMENT ON COLUMN report.total_cost.asking_price IS
    'Regular: the first that is there of case_conditions, property_conditions and cases.';
COMMENT ON COLUMN report.total_cost.entry_into_contract IS
    'Resale: resale_information.entry_into_contract.';
COMMENT ON COLUMN report.total_cost.original_sale_price IS
    'Resale: resale_information.original_sale_price.';
COMMENT ON COLUMN report.total_cost.sum_original_buyer_costs IS
    'Resale: resale_information.sum_original_buyer_costs.';
COMMENT ON COLUMN report.total_cost.customer_changes IS
    'Resale: resale_information.customer_changes.';
COMMENT ON COLUMN report.total_cost.other_buyer_costs IS
    'Resale: resale_information.other_buyer_costs.';
COMMENT ON COLUMN report.total_cost.total_cost IS
    'Sum as the reference writes it: a resale counts the original buyer costs twice. NULL where a component is not known, or the asking price (original sale price) is missing.';
COMMENT ON COLUMN report.total_cost.total_cost_once IS
    'The same with the original buyer costs once and the other buyer costs added; equal to total_cost for regular sales.';
COMMENT ON COLUMN report.total_cost.missing IS
    'Components that the source has none of: they count 0.';
COMMENT ON COLUMN report.total_cost.unknown IS
    'Components that were never fetched for this case, whose last call for it failed, whose table cannot be read, or whose value was rejected: they make the totals NULL.';
