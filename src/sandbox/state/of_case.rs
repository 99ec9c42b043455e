//! The rows of everything that hangs on a case.

use std::cell::LazyCell;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::super::record::{Record, Value};
use super::super::records::{bookkeeping, conditions, dossier, economy, on_case};
use super::super::wire::{self, Ticks};
use super::super::world::case::Case;
use super::super::world::dossier::Dossier;
use super::super::world::economy::Economy;
use super::super::world::people::Basis;
use super::Wanted;

/// The tables of a case.
pub(crate) const TABLES: &[&str] = &[
    "case_roles",
    "activities",
    "costs",
    "document_costs",
    "common_conditions",
    "case_conditions",
    "property_conditions",
    "resale_information",
    "entries",
    "entry_drafts",
    "estimated_costs",
    "commission_sharing",
    "external_entries",
    "bank_transfers",
    "publications",
    "case_files",
    "case_file_access",
    "notes",
    "settlement_statuses",
    "property_information",
    "housing_associations",
    "dynamic_sale_text_use",
    "dynamic_sale_texts",
    "public_showings",
];

/// Hands out the rows of a case, table by table.
pub(crate) fn rows(
    basis: &Basis,
    case: &Case,
    now: Ticks,
    wanted: Wanted<'_>,
    put: &mut impl FnMut(&str, Vec<Json>),
) {
    let economy = LazyCell::new(|| case.economy(basis));
    let written = LazyCell::new(|| case.dossier(basis));
    for table in TABLES.iter().filter(|table| wanted.has(table)) {
        let rows = of_itself(case, now, table)
            .or_else(|| of_economy(&economy, case, table))
            .or_else(|| of_dossier(&written, case, table));
        put(table, rows.unwrap_or_default());
    }
}

fn id(case: &Case) -> (&'static str, Value) {
    ("case_id", Value::Int(case.id()))
}

/// The rows of a list whose only key of the path is the case.
fn each<'a, T: 'a>(
    case: &Case,
    list: impl IntoIterator<Item = &'a T>,
    record: impl Fn(&'a T) -> Record,
) -> Vec<Json> {
    list.into_iter().map(|one| record(one).canonical(&[id(case)])).collect()
}

fn of_itself(case: &Case, now: Ticks, table: &str) -> Option<Vec<Json>> {
    Some(match table {
        "case_roles" => each(case, &case.roles, |role| on_case::role(case, role)),
        "activities" => each(case, &case.activities, |one| on_case::activity(case, one)),
        "costs" => {
            let sides = [("Buyer", &case.buyer_costs), ("Seller", &case.seller_costs)];
            let costs = sides.into_iter().flat_map(|(side, list)| {
                let keys = [id(case), ("cost_type", Value::from(side))];
                list.iter().map(move |cost| bookkeeping::cost(case, cost).canonical(&keys))
            });
            costs.collect()
        }
        "document_costs" => {
            let amount = case.document_cost.map(wire::canonical_money);
            let row = |amount| json!({"case_id": case.id(), "amount": amount, "_extra": null});
            amount.map(row).into_iter().collect()
        }
        "common_conditions" => each(case, &case.common, |one| conditions::common(case, one)),
        "case_conditions" => each(case, [case], conditions::of_case),
        "property_conditions" => each(case, [case], conditions::of_property),
        "resale_information" => {
            let resale = case.resale.as_ref().filter(|_| case.is_resale());
            each(case, resale, conditions::resale)
        }
        "entries" => each(case, &case.entries, |entry| bookkeeping::entry(case, entry)),
        "entry_drafts" => each(case, &case.drafts, |draft| bookkeeping::draft(case, draft)),
        "settlement_statuses" => {
            let status = on_case::settlement_status(case);
            status.map(|record| record.canonical(&[id(case)])).into_iter().collect()
        }
        "public_showings" => {
            let keys = [id(case), ("case_guid", Value::Guid(case.guid))];
            let showings = case.public_showings(now).into_iter();
            showings.map(|one| on_case::public_showing(one).canonical(&keys)).collect()
        }
        _ => return None,
    })
}

fn of_economy(
    economy: &impl Deref<Target = Arc<Economy>>,
    case: &Case,
    table: &str,
) -> Option<Vec<Json>> {
    Some(match table {
        "estimated_costs" => each(case, &economy.estimated, economy::estimated),
        "commission_sharing" => {
            let items = economy.sharing.iter().map(|share| {
                let kind = economy::share_type(share.is_amount);
                economy::share(case, share).canonical(&[id(case), ("type", kind.into())])
            });
            items.collect()
        }
        "external_entries" => {
            each(case, &economy.external_entries, |one| economy::external_entry(case, one))
        }
        "bank_transfers" => {
            each(case, &economy.bank_transfers, |one| economy::bank_transfer(case, one))
        }
        _ => return None,
    })
}

fn of_dossier(
    written: &impl Deref<Target = Arc<Dossier>>,
    case: &Case,
    table: &str,
) -> Option<Vec<Json>> {
    Some(match table {
        "publications" => each(case, &written.publications, dossier::publication),
        "case_files" => each(case, &written.files, dossier::file),
        "case_file_access" => {
            let access = written.files.iter().flat_map(|file| {
                (1_i64..).zip(dossier::access(file)).map(|(position, shared)| {
                    shared.canonical(&[id(case), ("position", Value::Int(position))])
                })
            });
            access.collect()
        }
        "notes" => each(case, &written.notes, |note| dossier::note(case, note)),
        "property_information" => {
            each(case, &written.information, |one| dossier::information(case, one))
        }
        "housing_associations" => {
            each(case, &written.association, |one| dossier::association(case, one))
        }
        "dynamic_sale_text_use" => {
            let used = written.uses_sale_text;
            vec![json!({"case_id": case.id(), "value": used, "_extra": null})]
        }
        "dynamic_sale_texts" => {
            let used = written.sale_texts.iter().filter(|_| written.uses_sale_text);
            each(case, used, dossier::sale_text)
        }
        _ => return None,
    })
}
