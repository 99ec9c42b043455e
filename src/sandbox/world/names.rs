//! Lists that the world is made of: common Norwegian given names and family names combined at
//! random (nobody real), towns, street names, and texts that are unpleasant on purpose.

pub(crate) const FIRST_NAMES: &[&str] = &[
    "Anne", "Bjørn", "Cecilie", "Dag", "Eirik", "Frida", "Gunnar", "Hanne", "Ingrid", "Jonas",
    "Kari", "Lars", "Marit", "Nils", "Oda", "Per", "Ragnhild", "Siri", "Tor", "Unni", "Vegard",
    "Wenche", "Yngve", "Øystein", "Åse", "Astrid", "Håkon", "Solveig", "Mathias", "Nora", "Ola",
    "Thea", "Even", "Sunniva", "Aksel", "Ylva", "Birk", "Live", "Stian", "Tuva",
];

pub(crate) const SURNAMES: &[&str] = &[
    "Hansen",
    "Johansen",
    "Olsen",
    "Larsen",
    "Andersen",
    "Pedersen",
    "Nilsen",
    "Kristiansen",
    "Jensen",
    "Karlsen",
    "Berg",
    "Haugen",
    "Hagen",
    "Eriksen",
    "Bakken",
    "Lie",
    "Solberg",
    "Moen",
    "Strand",
    "Lund",
    "Myhre",
    "Dahl",
    "Ødegård",
    "Aas",
    "Nygård",
    "Sæther",
    "Fjeld",
    "Brekke",
    "Tveit",
    "Sandvik",
    "Vik",
    "Rønning",
    "Skår",
    "Haugland",
    "D'Angelo",
    "Foss",
];

/// A town: municipality, its number, county, post code, town.
pub(crate) struct Town {
    pub(crate) municipality: &'static str,
    pub(crate) number: &'static str,
    pub(crate) county: &'static str,
    pub(crate) zip: &'static str,
    pub(crate) city: &'static str,
}

const fn town(
    municipality: &'static str,
    number: &'static str,
    county: &'static str,
    zip: &'static str,
    city: &'static str,
) -> Town {
    Town { municipality, number, county, zip, city }
}

pub(crate) const TOWNS: &[Town] = &[
    town("Oslo", "0301", "Oslo", "0178", "Oslo"),
    town("Bergen", "4601", "Vestland", "5014", "Bergen"),
    town("Trondheim", "5001", "Trøndelag", "7013", "Trondheim"),
    town("Stavanger", "1103", "Rogaland", "4006", "Stavanger"),
    town("Tromsø", "5501", "Troms", "9008", "Tromsø"),
    town("Kristiansand", "4204", "Agder", "4611", "Kristiansand S"),
    town("Bærum", "3201", "Akershus", "1337", "Sandvika"),
    town("Ålesund", "1508", "Møre og Romsdal", "6002", "Ålesund"),
    town("Bodø", "1804", "Nordland", "8006", "Bodø"),
    town("Hamar", "3403", "Innlandet", "2317", "Hamar"),
    town("Fredrikstad", "3107", "Østfold", "1607", "Fredrikstad"),
    town("Drammen", "3301", "Buskerud", "3015", "Drammen"),
];

pub(crate) const STREETS: &[&str] = &[
    "Storgata",
    "Kirkeveien",
    "Skolegata",
    "Bjørkeveien",
    "Granlia",
    "Fjordveien",
    "Øvre Bakke",
    "Nedre Strandgate",
    "Solsvingen",
    "Lyngveien",
    "Ærfuglveien",
    "Åsveien",
    "Tyttebærstien",
    "Havnegata",
    "Parkveien",
    "Elvebredden",
    "Sørliveien",
    "Nordre Allé",
];

pub(crate) const OFFICES: &[&str] = &[
    "Sentrum",
    "Vest",
    "Øst",
    "Nordre",
    "Søndre",
    "Fjorden",
    "Åsen",
    "Havnen",
    "Sjøsiden",
    "Prosjekt & Nybygg",
    "Landsted",
    "Bryggen",
    "Elvekanten",
    "Høyden",
];

pub(crate) const BROKERAGES: &[&str] =
    &["Nordlys Eiendom AS", "Fjellhus Megling AS", "Kyst & By Bolig AS"];

pub(crate) const JOB_TITLES: &[&str] =
    &["Snekker", "Lærer", "Sykepleier", "Ingeniør", "Student", "Pensjonist", "Bonde"];

pub(crate) const PROJECTS: &[&str] =
    &["Solhagen", "Fjordgløtt", "Elveparken", "Utsikten", "Tunet \"Øvre\"", "Bryggerikvartalet"];

pub(crate) const SUBJECTS: &[(&str, &str)] = &[
    ("ShowingActivity", "Fellesvisning"),
    ("ShowingActivity", "Privatvisning"),
    ("InspectionActivity", "Befaring med takstmann"),
    ("ContractMeetingActivity", "Kontraktsmøte"),
    ("TransferActivity", "Overtakelse"),
    ("TaskActivity", "Bestill fotograf & stylist"),
    ("TaskActivity", "Innhent opplysninger fra kommunen"),
    ("TelephoneActivity", "Ring selger tilbake"),
    ("MeetingActivity", "Statusmøte"),
    ("LeadActivity", "Nytt tips"),
    ("StakeholderActivity", "Følg opp interessent"),
    ("BuyerLeadActivity", "Kjøpers egen bolig"),
    ("Unknown", "?"),
];

/// Texts as people type them: quotes, markup, line breaks, emoji, separators, nothing at all.
pub(crate) const TEXTS: &[&str] = &[
    "Avtalt på telefon.",
    "Selger sier \"ikke før kl. 17\" – ring 'Per' først.",
    "<p>Husk <b>nøkler</b> &amp; adgangskort<br/></p>",
    "Første linje\nAndre linje\r\n\tinnrykket",
    "Fin utsikt 🏔️ og to katter 🐈‍⬛",
    "C:\\Bilder\\ny; kolonne1,kolonne2\u{2028}neste",
    "",
    "   mellomrom foran og bak   ",
    "null",
    "Ærlig talt: æøå ÆØÅ é ü ß 漢字 עברית",
    "{\"ikke\": \"json\"}",
    "-- '; drop table cases; --",
];

pub(crate) const COST_NAMES: &[(&str, i64)] = &[
    ("Tinglysingsgebyr skjøte", 54_500),
    ("Tinglysingsgebyr pantedokument", 54_500),
    ("Attest for panterett", 17_200),
    ("Eierskiftegebyr", 656_250),
    ("Panteregister", 22_450),
    ("Boligkjøperforsikring", 1_190_000),
    ("Markedspakke", 2_490_000),
    ("Tilrettelegging", 1_290_000),
    ("Visning", 350_000),
    ("Oppgjør", 695_000),
];

/// A text of several kilobytes, for fields that people paste documents into.
pub(crate) fn long_text(number: usize) -> String {
    let parts =
        ["Eiendommen ligger fritt til med gode solforhold. ", "Det er \"nylig\" pusset opp. "];
    (0..80 + number % 40).map(|n| parts[n % parts.len()]).collect()
}
