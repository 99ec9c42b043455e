//! Which address is answered by what.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, patch, post, put};
use tower_http::compression::{CompressionLayer, CompressionLevel};

use super::super::world::journals::{Journal, Level};
use super::super::{DefinitionsAt, Options, Shared, control};
use super::answer::Refusal;
use super::{
    case, consents, domain_events, dossier, economics, feed, files, invoicing, journals, office,
    on_the_way, public, search, token, user, webhooks, writes,
};

/// All routes: the API below the base path, the control endpoints below `/sandbox`.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let base_path = shared.options.base_path.clone();
    let gzip = shared.options.gzip;
    let mut api = routes(&shared.options);
    if gzip {
        api = api.layer(CompressionLayer::new().quality(CompressionLevel::Fastest));
    }
    let api = api.layer(from_fn_with_state(shared.clone(), on_the_way));
    let api = if base_path.is_empty() { api } else { Router::new().nest(&base_path, api) };
    control::router().merge(api).with_state(shared)
}

fn routes(options: &Options) -> Router<Arc<Shared>> {
    let mut routes = of_cases()
        .merge(of_dossiers())
        .merge(of_offices())
        .merge(of_registers())
        .merge(of_journals());
    if options.lists_offices {
        routes = routes.route("/api/Offices", get(office::offices));
    }
    if options.definitions_at != DefinitionsAt::Economics {
        let path = "/api/Integrations/Bookkeeping/ExtendedEntryDefinitions";
        routes = routes.route(path, get(economics::extended_definitions));
    }
    if options.definitions_at != DefinitionsAt::Bookkeeping {
        let path = "/api/Economics/ExtendedEntryDefinitions";
        routes = routes.route(path, get(economics::extended_definitions_elsewhere));
    }
    routes
        .route("/authtoken", post(token::issue))
        .route("/api/User", get(user::user))
        .route("/api/User/ApiPermissions", get(user::permissions))
        .route("/api/Integrations/RecentlyModified/Cases", get(feed::cases))
        .route("/api/Integrations/RecentlyModified/Contacts", get(feed::contacts))
        .route("/api/Search/AdvancedPropertySearch", post(search::properties))
        .route("/api/Search/AdvancedProjectSearch", post(search::projects))
        .route("/api/Search/AdvancedContactSearch", post(search::contacts))
        .route("/api/Search/Cases/SearchVisibility/Ids", post(writes::visibility))
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "There is no such resource"))
        .method_not_allowed_fallback(async || {
            Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "The requested resource does not support this method",
            )
        })
}

/// What hangs on a case.
fn of_cases() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/Cases/{case_id}/Roles", get(case::roles))
        .route("/api/Cases/{case_id}/Activities", get(case::activities))
        .route("/api/Conditions/Cases/{case_id}/Costs/{type}", get(case::costs))
        .route("/api/Conditions/Properties/{case_id}", get(case::property_conditions))
        .route(
            "/api/Conditions/Properties/{case_id}/Costs/{cost_id}/{type}",
            patch(writes::patch_cost),
        )
        .route("/api/Properties/{case_id}/PublicTaxes/DocumentCost", get(case::document_cost))
        .route("/api/Properties/{case_id}/CommonConditions", get(case::common_conditions))
        .route("/api/Properties/{case_id}/Conditions", get(case::case_conditions))
        .route("/api/Properties/{case_id}/ResaleInformation", get(case::resale_information))
        .route(
            "/api/Integrations/Bookkeeping/Cases/{case_id}/Entries",
            get(case::entries).post(writes::add_entry),
        )
        .route(
            "/api/Integrations/Bookkeeping/Cases/{case_id}/EntryDrafts",
            get(case::drafts).post(writes::add_draft),
        )
        .route(
            "/api/Conditions/Cases/{case_id}/EstimatedCosts/{recalculate}",
            get(economics::estimated_costs),
        )
        .route(
            "/api/Salaries/Cases/{case_id}/CommissionSharing/Type/{type}",
            get(economics::commission_sharing),
        )
        .route("/api/Cases/{case_id}/ExternalEntries", get(invoicing::external_entries))
        .route("/api/Economics/ExternalEntries", post(invoicing::add_external_entry))
        .route(
            "/api/Integrations/Invoicing/Cases/{case_id}/BankTransfers",
            get(invoicing::bank_transfers).post(invoicing::add_bank_transfer),
        )
        .route(
            "/api/Integrations/Invoicing/Cases/{case_id}/BankTransfers/{transfer_id}",
            patch(invoicing::patch_bank_transfer),
        )
}

/// What is written about a case, and what the public sees of it.
fn of_dossiers() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/Cases/{case_id}/Publications", get(dossier::publications))
        .route("/api/Properties/{case_id}/SettlementStatuses", get(dossier::settlement_status))
        .route("/api/Properties/{case_id}/Information", get(dossier::information))
        .route("/api/Properties/{case_id}/HousingAssociation", get(dossier::association))
        .route(
            "/api/DynamicSaleText/Cases/{case_id}/UseDynamicSaleText",
            get(dossier::uses_sale_text),
        )
        .route(
            "/api/DynamicSaleText/Cases/{case_id}/DynamicSaleTextItems",
            get(dossier::sale_texts),
        )
        .route("/api/Notes/Case/{case_id}", get(dossier::notes))
        .route("/api/Notes", post(dossier::add_note))
        .route("/api/Notes/{note_id}", patch(dossier::patch_note))
        .route("/api/Cases/{case_id}/Directory/Search", post(files::search))
        .route("/api/Cases/{case_id}/Directory/CreateFolder", post(files::create_folder))
        .route("/api/Cases/{case_id}/Directory/{folder_id}/File", post(files::upload))
        .route("/api/Cases/{case_id}/File/{file_id}", delete(files::delete))
        .route("/api/Public/Properties/{case_guid}/Showings", get(public::showings))
        .route("/api/Public/Cases/{case_guid}/Stakeholders", post(public::add_stakeholder))
}

/// Processing bases, tags and subscriptions.
fn of_registers() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/ProcessingBases/Newest", get(consents::newest))
        .route("/api/ProcessingBases/{id}/VersionHistory", get(consents::history))
        .route("/api/ProcessingBases/Relations/Contacts/Extended", post(consents::relations))
        .route("/api/FileTags", get(files::tags))
        .route("/api/WebHooks/Subscribe", post(webhooks::subscribe))
        .route("/api/WebHooks/Subscriptions", get(webhooks::list))
        .route(
            "/api/WebHooks/Subscriptions/{id}",
            get(webhooks::one).put(webhooks::replace).delete(webhooks::remove),
        )
        .route("/api/WebHooks/Subscriptions/{id}/UpdateSecret", put(webhooks::renew_secret))
        .route(
            "/api/domainevents/url",
            get(domain_events::one)
                .post(domain_events::subscribe)
                .put(domain_events::replace)
                .delete(domain_events::remove),
        )
        .route("/api/Persons/{id}/FullIdentityNumber", get(office::identity_number))
}

/// Offices, the people there, and what schedules look at.
fn of_offices() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/Contacts/{id}", get(office::contact))
        .route("/api/Employees", get(office::employees))
        .route("/api/Employees/{employee_id}/Offices", get(office::affiliations))
        .route("/api/Offices/{office_id}/Accounts", get(office::accounts))
        .route("/api/Economics/{case_category}/EntryDefinitions", get(economics::entry_definitions))
}

/// The journals, at all three levels.
fn of_journals() -> Router<Arc<Shared>> {
    let mut routes = Router::new();
    for level in Level::ALL {
        let id = match level {
            Level::Offices => "{office_id}",
            Level::BrokerCompanies | Level::Chain => "{id}",
        };
        let of_level = format!("/api/{}/{id}", level.segment());
        for journal in Journal::ALL {
            let path = format!("{of_level}/{}", journal.segment());
            routes = routes.route(
                &path,
                get(move |shared, id, query| journals::lines((level, journal), shared, id, query)),
            );
        }
        let path = format!("{of_level}/RevenueJournals/Sum");
        routes = routes.route(
            &path,
            put(move |shared, id, bare, body| journals::sum(level, shared, id, bare, body)),
        );
    }
    routes
}
