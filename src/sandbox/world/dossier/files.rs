//! Folders, files and images as metadata (reference 2.7, 2.9).

use std::borrow::Cow;

use super::super::super::wire::Ticks;
use super::super::case::Case;
use super::super::dice::{Dice, Trivia, mix};
use super::super::names;
use super::Dossier;

/// What an item of the directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Folder,
    File,
    Media,
}

impl FileKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            FileKind::Folder => "Folder",
            FileKind::File => "File",
            FileKind::Media => "Media",
        }
    }
}

/// A folder, a file or an image.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) id: u128,
    pub(crate) kind: FileKind,
    pub(crate) external_id: Option<String>,
    pub(crate) name: Cow<'static, str>,
    pub(crate) parent: Option<u128>,
    /// Which of the system's folders it lies in.
    pub(crate) folder: Option<&'static str>,
    pub(crate) mime: Option<Cow<'static, str>>,
    pub(crate) size: i64,
    pub(crate) modified: Ticks,
    pub(crate) modified_by: Option<i64>,
    pub(crate) tags: Option<Vec<String>>,
    pub(crate) access: Access,
    pub(crate) media: Option<Media>,
    pub(crate) trivia: Trivia,
}

/// Who may see a file. All of these occur on the wire.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    Absent,
    Null,
    /// Records: id, role, when it was shared.
    Shared(Vec<(i64, &'static str, Option<Ticks>)>),
    /// Names of roles only.
    Bare(Vec<&'static str>),
}

/// What images have beside (reference 2.9).
#[derive(Debug, Clone)]
pub(crate) struct Media {
    pub(crate) title: Option<Cow<'static, str>>,
    pub(crate) priority: i64,
    pub(crate) version: i64,
    pub(crate) category: &'static str,
    pub(crate) export: bool,
    pub(crate) exported: Option<Ticks>,
}

/// The folder whose files move `AttachmentChangedDate`.
pub(crate) const ATTACHMENTS: &str = "Attachments";
const IMAGES: &str = "Images";
const CONTRACTS: &str = "Contracts";

const FILES: &[(&str, &str)] = &[
    ("Salgsoppgave \"endelig\".pdf", "application/pdf"),
    ("Egenerklæring & skjema.pdf", "application/pdf"),
    ("Takst 🏠.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("Vedtekter", "application/octet-stream"),
    ("Nabovarsel.PDF", ""),
];

const ROLES: &[&str] = &["Appraiser", "Buyer", "Seller", "Stakeholder"];

/// A file as it comes in; its contents are not kept.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) name: String,
    pub(crate) mime: Option<String>,
    pub(crate) size: i64,
    pub(crate) external_id: Option<String>,
    pub(crate) tags: Vec<String>,
}

/// An item with nothing but a name.
fn blank(kind: FileKind, name: Cow<'static, str>, trivia: Trivia, at: Ticks) -> File {
    File {
        id: trivia.guid(0),
        kind,
        external_id: None,
        name,
        parent: None,
        folder: None,
        mime: None,
        size: 0,
        modified: at,
        modified_by: None,
        tags: None,
        access: Access::Absent,
        media: None,
        trivia,
    }
}

/// The folders of a case and what lies in them.
pub(crate) fn of_seed(case: &Case, at: Ticks, dice: &mut Dice) -> Vec<File> {
    let mut files = Vec::new();
    for (n, folder) in (0..).zip([ATTACHMENTS, IMAGES, CONTRACTS]) {
        let trivia = Trivia(mix(case.trivia.0, 9_000 + n));
        files.push(blank(FileKind::Folder, Cow::Borrowed(folder), trivia, case.created));
    }
    let mut dossier = Dossier { files, ..Dossier::default() };
    for _ in 0..dice.below(4) {
        dossier.add_file(case, ATTACHMENTS, at, dice);
    }
    for _ in 0..dice.below(2) {
        dossier.add_file(case, CONTRACTS, at, dice);
    }
    for _ in 0..dice.below(4) {
        dossier.add_image(case, at, dice);
    }
    dossier.files
}

impl Dossier {
    /// What the next file's GUID and incidental values follow from.
    fn next_file(&self, case: &Case) -> Trivia {
        // The number alone would come again once a file has gone.
        let count = u64::try_from(self.files.len()).unwrap_or(0);
        Trivia(mix(case.trivia.0 ^ case.facts.dates.modified.0.unsigned_abs(), 10_000 + count))
    }

    /// The system folder of a name.
    fn folder(&self, name: &str) -> Option<u128> {
        let is = |file: &&File| file.kind == FileKind::Folder && file.name == name;
        self.files.iter().find(is).map(|folder| folder.id)
    }

    /// Adds a file to a system folder.
    pub(crate) fn add_file(
        &mut self,
        case: &Case,
        folder: &'static str,
        at: Ticks,
        dice: &mut Dice,
    ) {
        let trivia = self.next_file(case);
        let (name, mime) = dice.pick(FILES);
        let file = File {
            external_id: dice.chance(30).then(|| format!("ekstern-{}", trivia.at(1) % 1_000_000)),
            parent: self.folder(folder),
            folder: Some(folder),
            mime: (!mime.is_empty()).then_some(Cow::Borrowed(mime)),
            size: dice.between(0, 90_000_000),
            modified: at.plus_ms(dice.below(5_000)),
            modified_by: dice.chance(70).then_some(case.broker),
            tags: match dice.below(4) {
                0 => None,
                1 => Some(Vec::new()),
                _ => Some(vec!["Salgsoppgave".to_owned(), "Internt \"bruk\"".to_owned()]),
            },
            access: match dice.below(6) {
                0 => Access::Absent,
                1 => Access::Null,
                2 => Access::Shared(Vec::new()),
                3 => Access::Bare(ROLES[..2].to_vec()),
                _ => {
                    let id = i64::try_from(trivia.at(2) % 1_000_000).unwrap_or(0);
                    Access::Shared(vec![(id, dice.pick(ROLES), Some(at)), (id + 1, "Ukjent", None)])
                }
            },
            ..blank(FileKind::File, Cow::Borrowed(name), trivia, at)
        };
        self.files.push(file);
    }

    /// Adds an image.
    pub(crate) fn add_image(&mut self, case: &Case, at: Ticks, dice: &mut Dice) {
        let trivia = self.next_file(case);
        let images = self.files.iter().filter(|file| file.kind == FileKind::Media).count();
        let categories = ["General", "Interior", "FloorPlan", "Facade", "Panorama", "Drone"];
        let media = Media {
            title: dice.chance(70).then(|| Cow::Borrowed(dice.pick(names::TEXTS))),
            priority: i64::try_from(images).unwrap_or(0) + 1,
            version: 1,
            category: dice.pick(&categories),
            export: dice.chance(80),
            exported: dice.chance(50).then_some(at),
        };
        let name = format!("bilde {}.jpg", images + 1).into();
        let file = File {
            parent: self.folder(IMAGES),
            folder: Some(IMAGES),
            mime: Some(Cow::Borrowed("image/jpeg")),
            size: dice.between(20_000, 9_000_000),
            modified_by: Some(case.broker),
            media: Some(media),
            ..blank(FileKind::Media, name, trivia, at)
        };
        self.files.push(file);
    }

    /// Adds a folder; where there is one of that name already, that one is returned.
    pub(crate) fn create_folder(&mut self, case: &Case, name: String, at: Ticks) -> File {
        let is = |file: &&File| file.kind == FileKind::Folder && file.name == name;
        if let Some(known) = self.files.iter().find(is) {
            return known.clone();
        }
        let trivia = self.next_file(case);
        let folder = blank(FileKind::Folder, name.into(), trivia, at);
        self.files.push(folder.clone());
        folder
    }

    /// Adds a file that was uploaded to a folder; none where there is no such folder.
    pub(crate) fn upload(
        &mut self,
        case: &Case,
        folder: u128,
        upload: Upload,
        at: Ticks,
    ) -> Option<File> {
        let is = |file: &&File| file.kind == FileKind::Folder && file.id == folder;
        let name = self.files.iter().find(is)?.name.clone();
        let trivia = self.next_file(case);
        let file = File {
            external_id: upload.external_id,
            parent: Some(folder),
            folder: [ATTACHMENTS, IMAGES, CONTRACTS].into_iter().find(|known| name == *known),
            mime: upload.mime.map(Cow::Owned),
            size: upload.size,
            tags: Some(upload.tags),
            ..blank(FileKind::File, upload.name.into(), trivia, at)
        };
        self.files.push(file.clone());
        Some(file)
    }

    /// Removes the last item that fits; whether there was one.
    pub(crate) fn remove_file(&mut self, fits: impl Fn(&File) -> bool) -> bool {
        let last = self.files.iter().rposition(fits);
        if let Some(last) = last {
            self.files.remove(last);
        }
        last.is_some()
    }
}
