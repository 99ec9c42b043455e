//! What hangs neither on a case nor on an office: consents, tags, permissions, subscriptions.

use serde_json::{Value as Json, json};

use super::super::records::{consents, registers};
use super::super::world::World;

/// Their tables.
pub(crate) const TABLES: &[&str] = &[
    "processing_bases",
    "processing_basis_relations",
    "file_tags",
    "api_permissions",
    "webhook_subscriptions",
];

/// All their rows, by table.
pub(crate) fn of_registers(
    world: &World,
    permissions: &[(&'static str, Vec<&'static str>)],
) -> Vec<(&'static str, Vec<Json>)> {
    let known = &world.consents;
    let relations = known.relations.iter().map(|one| {
        let given = known.versions(one.basis).find(|given| given.version == one.version);
        consents::relation_row(one, given).canonical(&[])
    });
    let permissions = permissions.iter().map(
        |(area, kinds)| json!({"permission": area, "permission_types": kinds, "_extra": null}),
    );
    let tags = world.registers.tags.iter();
    let subscriptions = world.registers.subscriptions.iter();
    vec![
        (
            "processing_bases",
            known.bases.iter().map(|b| consents::basis(b).canonical(&[])).collect(),
        ),
        ("processing_basis_relations", relations.collect()),
        ("file_tags", tags.map(|tag| registers::tag(tag).canonical(&[])).collect()),
        ("api_permissions", permissions.collect()),
        (
            "webhook_subscriptions",
            subscriptions.map(|one| registers::subscription_row(one).canonical(&[])).collect(),
        ),
    ]
}
