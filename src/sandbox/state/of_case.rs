//! The rows of everything that hangs on a case.

use serde_json::{Value as Json, json};

use super::super::record::{Record, Value};
use super::super::records::{bookkeeping, conditions, economy, on_case};
use super::super::wire;
use super::super::world::case::Case;
use super::super::world::people::Basis;

/// All rows of a case, by table.
pub fn of_case(basis: &Basis, case: &Case) -> Vec<(&'static str, Vec<Json>)> {
    let id = || ("case_id", Value::Int(case.id()));
    let plain = |record: Record| record.canonical(&[id()]);
    let mut costs = Vec::new();
    for (side, list) in [("Buyer", &case.buyer_costs), ("Seller", &case.seller_costs)] {
        for cost in list {
            let keys = [id(), ("cost_type", Value::from(side))];
            costs.push(bookkeeping::cost(case, cost).canonical(&keys));
        }
    }
    let document_cost = case.document_cost.map(
        |ore| json!({"case_id": case.id(), "amount": wire::canonical_money(ore), "_extra": null}),
    );
    let resale = case.resale.as_ref().filter(|_| case.is_resale());
    let economy = case.economy(basis);
    let sharing = economy.sharing.iter().map(|share| {
        let kind = economy::share_type(share.is_amount);
        economy::share(case, share).canonical(&[id(), ("type", kind.into())])
    });
    vec![
        ("case_roles", case.roles.iter().map(|r| plain(on_case::role(case, r))).collect()),
        ("activities", case.activities.iter().map(|a| plain(on_case::activity(case, a))).collect()),
        ("costs", costs),
        ("document_costs", document_cost.into_iter().collect()),
        (
            "common_conditions",
            case.common.iter().map(|common| plain(conditions::common(case, common))).collect(),
        ),
        ("case_conditions", vec![plain(conditions::of_case(case))]),
        ("property_conditions", vec![plain(conditions::of_property(case))]),
        ("resale_information", resale.into_iter().map(|r| plain(conditions::resale(r))).collect()),
        ("entries", case.entries.iter().map(|e| plain(bookkeeping::entry(case, e))).collect()),
        (
            "estimated_costs",
            economy.estimated.iter().map(|known| plain(economy::estimated(known))).collect(),
        ),
        ("commission_sharing", sharing.collect()),
        ("entry_drafts", case.drafts.iter().map(|d| plain(bookkeeping::draft(case, d))).collect()),
    ]
}
