//! How a facet of the dossier changes.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::super::wire::Ticks;
use super::super::act::Facet;
use super::super::case::{Case, Moved};
use super::super::dice::Dice;
use super::super::people::Basis;
use super::files::ATTACHMENTS;
use super::{Access, Dossier, FileKind, PROVIDERS, texts};

/// The date that moves with a facet of the dossier, beside `ModifiedDate`: narrow ones do not move
/// with everything that a table holds.
pub(crate) fn date(facet: Facet) -> Option<Moved> {
    match facet {
        Facet::Publication | Facet::PublicationRemoved => Some(Moved::Publication),
        Facet::Image | Facet::ImageRemoved => Some(Moved::Image),
        Facet::Attachment | Facet::AttachmentRemoved => Some(Moved::Attachment),
        Facet::Association
        | Facet::AssociationRemoved
        | Facet::SaleText
        | Facet::SaleTextAdded
        | Facet::SaleTextRemoved
        | Facet::SaleTextSwitched => Some(Moved::Description),
        _ => None,
    }
}

/// Changes a facet of the dossier; the ids of what was concerned, where they are numbers. Where
/// there is nothing to change or remove, something is added instead.
pub(crate) fn change(
    basis: &Basis,
    case: &mut Case,
    facet: Facet,
    at: Ticks,
    dice: &mut Dice,
) -> Vec<i64> {
    let mut dossier = Dossier::clone(&case.dossier(basis));
    let concerned = change_files(&mut dossier, case, facet, at, dice)
        .or_else(|| change_texts(&mut dossier, case, facet, at, dice));
    case.dossier = Some(Arc::new(dossier));
    concerned.into_iter().collect()
}

fn change_files(
    dossier: &mut Dossier,
    case: &Case,
    facet: Facet,
    at: Ticks,
    dice: &mut Dice,
) -> Option<i64> {
    match facet {
        Facet::Image => dossier.add_image(case, at, dice),
        Facet::ImageRemoved => {
            if !dossier.remove_file(|file| file.kind == FileKind::Media) {
                dossier.add_image(case, at, dice);
            }
        }
        Facet::ImageReordered => {
            let mut media: Vec<_> =
                dossier.files.iter_mut().filter_map(|file| file.media.as_mut()).collect();
            let count = i64::try_from(media.len()).unwrap_or(0);
            media.sort_by_key(|one| one.priority);
            for (n, one) in (0..).zip(&mut media) {
                // The last one comes to the front; a lone one gets another title.
                one.priority = (n + 1) % count.max(1) + 1;
                if count == 1 {
                    one.title = Some(Cow::Owned(format!("Bilde nr. 1 ({})", at.0)));
                }
            }
            if count == 0 {
                dossier.add_image(case, at, dice);
            }
        }
        Facet::Attachment => dossier.add_file(case, ATTACHMENTS, at, dice),
        Facet::AttachmentRemoved => {
            if !dossier.remove_file(|file| file.folder == Some(ATTACHMENTS)) {
                dossier.add_file(case, ATTACHMENTS, at, dice);
            }
        }
        Facet::FileElsewhere => dossier.add_file(case, "Contracts", at, dice),
        Facet::FileShared => {
            if !dossier.files.iter().any(|file| file.kind == FileKind::File) {
                dossier.add_file(case, "Contracts", at, dice);
            }
            let file = dossier.files.iter_mut().find(|file| file.kind == FileKind::File);
            let id = at.0.rem_euclid(1_000_000_000);
            if let Some(file) = file {
                match &mut file.access {
                    Access::Shared(list) => list.push((id, "Buyer", Some(at))),
                    other => *other = Access::Shared(vec![(id, "Buyer", Some(at))]),
                }
            }
        }
        _ => return None,
    }
    None
}

fn change_texts(
    dossier: &mut Dossier,
    case: &Case,
    facet: Facet,
    at: Ticks,
    dice: &mut Dice,
) -> Option<i64> {
    match facet {
        Facet::Publication => {
            let Some(first) = dossier.publications.first_mut() else {
                return Some(dossier.add_publication(case.id(), PROVIDERS[0], "Published", false));
            };
            first.status = if first.status == "Published" { "Paused" } else { "Published" };
            Some(first.id)
        }
        Facet::PublicationRemoved => match dossier.publications.pop() {
            Some(gone) => Some(gone.id),
            None => Some(dossier.add_publication(case.id(), PROVIDERS[1], "NotPublished", false)),
        },
        Facet::Note => Some(dossier.add_note(case, at, dice)),
        Facet::NoteEdited => {
            let Some(note) = dossier.notes.first_mut() else {
                return Some(dossier.add_note(case, at, dice));
            };
            note.message = Cow::Owned(format!("Rettet {}: \"{}\"", at.exact(), note.message));
            note.contacts = Some(vec![case.broker]);
            note.important = !note.important;
            Some(note.id)
        }
        Facet::NoteRemoved => match dossier.notes.pop() {
            Some(note) => Some(note.id),
            None => Some(dossier.add_note(case, at, dice)),
        },
        Facet::Information => {
            let known =
                dossier.information.get_or_insert_with(|| texts::some_information(case, dice));
            known.edition += 1;
            known.insurance = if known.insurance == "Yes" { "SellerNo" } else { "Yes" };
            None
        }
        Facet::Association => {
            let known = dossier.association.get_or_insert(super::Association {
                id: 60_091,
                name: Cow::Borrowed("Nytt borettslag"),
                active: false,
            });
            known.active = !known.active;
            known.name = Cow::Owned(format!("{} AL", known.name));
            Some(known.id)
        }
        Facet::AssociationRemoved => dossier.association.take().map(|known| known.id),
        Facet::SaleText => {
            let Some(first) = dossier.sale_texts.first_mut() else {
                return Some(dossier.add_sale_text(case, at, dice));
            };
            first.text = Some(Cow::Owned(format!("<p>Endret {}</p>", at.exact())));
            first.updated = at;
            Some(first.id)
        }
        Facet::SaleTextAdded => Some(dossier.add_sale_text(case, at, dice)),
        Facet::SaleTextRemoved => match dossier.sale_texts.pop() {
            Some(gone) => Some(gone.id),
            None => Some(dossier.add_sale_text(case, at, dice)),
        },
        Facet::SaleTextSwitched => {
            dossier.uses_sale_text = !dossier.uses_sale_text;
            None
        }
        _ => None,
    }
}
