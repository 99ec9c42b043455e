//! What is to be seen no more is in no byte of the mirror's files (docs/architecture.md, "Privacy").

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use casemirror::failpoint;
use casemirror::sandbox::{Act, Facet};

use crate::privacy::texts;
use crate::support::follow::{self, UNTHROTTLED, assert_status, unthrottled};
use crate::support::{World, one, shown};

const KEEP: &str = "contact_details = \"keep\"\n";
const DROP: &str = "contact_details = \"drop\"\n";

/// A mirror that keeps contact details, in history and in two snapshots too.
fn kept() -> World {
    let world = World::with(unthrottled(25));
    world.configure(&format!("{KEEP}{UNTHROTTLED}"));
    world.publish_snapshots();
    world.bootstrap();
    for _ in 0..2 {
        world.sandbox.act(&Act::EditContact { contact_id: Some(50_001), at: None }).unwrap();
        world.sync();
    }
    assert!(snapshots(&world).len() > 1);
    world
}

fn tighten(world: &World) {
    world.configure(&format!("{DROP}{UNTHROTTLED}"));
}

/// All telephone numbers and e-mail addresses of persons, history included.
fn details(world: &World) -> BTreeSet<String> {
    let store = world.store();
    let all = ["main", "history"].into_iter().flat_map(|place| {
        ["email", "phone_number"].map(|column| texts(&store, &format!("{place}.contacts"), column))
    });
    let all: BTreeSet<String> = all.flatten().collect();
    assert!(all.len() > 20, "{all:?}");
    all
}

fn snapshots(world: &World) -> Vec<String> {
    let names = fs::read_dir(world.path("data/parquet/snapshots")).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// All files of the mirror, those that are hidden and those that a killed process left too.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all.extend(files(&entry.path())),
            kind if kind.is_file() => all.push(entry.path()),
            _ => {}
        }
    }
    all
}

/// In which files which of the texts stand, byte by byte.
pub(crate) fn found<'t>(
    world: &World,
    texts: impl IntoIterator<Item = &'t String>,
) -> BTreeSet<(PathBuf, String)> {
    let files: Vec<(PathBuf, Vec<u8>)> = files(&world.path("data"))
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    let mut all = BTreeSet::new();
    for text in texts {
        for (path, bytes) in &files {
            if memchr::memmem::find(bytes, text.as_bytes()).is_some() {
                all.insert((
                    path.strip_prefix(world.path("data")).unwrap().to_owned(),
                    text.clone(),
                ));
            }
        }
    }
    all
}

#[test]
fn what_privacy_hides_is_in_no_byte_of_store_published_file_and_snapshots() {
    let world = kept();
    let details = details(&world);
    let before = found(&world, &details);
    for file in ["store.duckdb", "casemirror.duckdb"] {
        assert!(before.iter().any(|(path, _)| path == Path::new(file)), "{file}: {before:?}");
    }
    fs::set_permissions(world.path("data/store.duckdb"), fs::Permissions::from_mode(0o640))
        .unwrap();

    tighten(&world);
    let output = world.run(&["sync"]);
    assert_status(&output, 0);
    for said in ["written anew", "out of reach are backups"] {
        assert!(shown(&output).contains(said), "{}", shown(&output));
    }
    assert_eq!(found(&world, &details), BTreeSet::new());
    assert_eq!(snapshots(&world).len(), 1, "earlier snapshots are gone");
    world.assert_nothing_left_over();
    let mode = fs::metadata(world.path("data/store.duckdb")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "as it was set");

    // Once: the next run has nothing to write anew.
    let text = shown(&world.run(&["sync"]));
    assert!(!text.contains("written anew"), "{text}");
}

fn aborting_at(world: &World, args: &[&str], point: &str) -> Output {
    world.command(args).env("CASEMIRROR_ABORT_AT", point).output().unwrap()
}

#[test]
fn a_killed_run_is_followed_by_one_that_does_what_is_left() {
    let world = kept();
    let details = details(&world);
    tighten(&world);
    for point in failpoint::ERASING {
        let output = aborting_at(&world, &["sync"], point);
        assert!(output.status.signal().is_some(), "{point}: {}", shown(&output));
        let rows = "SELECT count(*) FROM main.contacts WHERE email IS NOT NULL";
        assert_eq!(one::<i64>(&world.store(), rows), 0, "{point}");
    }
    assert_status(&world.run(&["sync"]), 0);
    assert_eq!(found(&world, &details), BTreeSet::new());
    assert_eq!(snapshots(&world).len(), 1);
    world.assert_nothing_left_over();
}

#[test]
fn a_store_that_cannot_be_written_anew_for_now_is_followed_all_the_same() {
    let world = kept();
    let details = details(&world);
    tighten(&world);
    let limited = |kilobytes: u64| {
        let mut command = std::process::Command::new("sh");
        let sync = world.command(&["sync"]);
        command.current_dir(world.folder.path()).envs(
            sync.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))),
        );
        command.args(["-c", "trap '' XFSZ; ulimit -f $0; exec \"$1\" sync"]);
        command.arg((kilobytes * 2).to_string()).arg(sync.get_program());
        command.output().unwrap()
    };
    let size = fs::metadata(world.path("data/store.duckdb")).unwrap().len();
    let output = limited(size / 1024 / 2);
    assert!(shown(&output).contains("tries again"), "{}", shown(&output));
    assert_ne!(found(&world, &details), BTreeSet::new());
    world.sync();
    assert_eq!(found(&world, &details), BTreeSet::new());
}

/// What the mirror holds of a contact that tells of nobody else: name, details, and their earlier values.
fn values(world: &World, contact: i64) -> Vec<String> {
    let store = world.store();
    let mut all = BTreeSet::new();
    for place in ["main", "history"] {
        let of_contact = format!("(SELECT * FROM {place}.contacts WHERE id = {contact})");
        for column in
            ["name", "email", "phone_number", "address", "street", "identification_number"]
        {
            all.extend(texts(&store, &of_contact, column));
        }
    }
    all.into_iter().collect()
}

/// In which columns of a database which of the texts stand, cell by cell: files are compressed.
fn cells_with(conn: &duckdb::Connection, values: &[String]) -> Vec<String> {
    let columns: Vec<(String, String)> = conn
        .prepare(
            "SELECT format('\"{}\".\"{}\"', schema_name, table_name), format('\"{}\"', column_name) \
             FROM duckdb_columns() WHERE NOT internal AND data_type LIKE '%VARCHAR%'",
        )
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(columns.len() > 500, "{}", columns.len());
    let mut all = Vec::new();
    for (table, column) in columns {
        let stands = values.iter().map(|value| {
            format!("contains(lower({column}::VARCHAR), lower('{}'))", value.replace('\'', "\'\'"))
        });
        let stands: Vec<String> = stands.collect();
        let sql = format!("SELECT count(*) FROM {table} WHERE {}", stands.join(" OR "));
        if one::<i64>(conn, &sql) > 0 {
            all.push(format!("{table}.{column}"));
        }
    }
    all
}

/// A seller whose name nobody else has.
fn seller(world: &World) -> i64 {
    one(
        &world.store(),
        "SELECT min(c.id) FROM main.contacts c JOIN main.case_roles r ON r.contact_id = c.id \
         WHERE r.type = 'Seller' AND c.email IS NOT NULL AND c.phone_number IS NOT NULL \
           AND c.name IN (SELECT name FROM main.contacts GROUP BY name HAVING count(*) = 1)",
    )
}

fn forget(world: &World, contact: i64) -> Output {
    world.run(&["forget", "--contact", &contact.to_string()])
}

/// The platform masks the identity numbers of employees: hashed, they are all the same.
#[test]
fn a_mask_that_stands_in_everybodys_row_tells_of_nobody() {
    let world = follow::brisk(unthrottled(12));
    world.bootstrap();
    let others = |person: i64| -> i64 {
        let sql = format!(
            "SELECT count(*) FROM main.employees WHERE id <> {person} AND identification_number IS NOT NULL"
        );
        one(&world.store(), &sql)
    };
    let person: i64 = one(&world.store(), "SELECT min(id) FROM main.employees");
    let masks = "SELECT count(DISTINCT identification_number) FROM main.employees";
    assert_eq!(one::<i64>(&world.store(), masks), 1, "it is a mask");
    let before = others(person);
    assert!(before > 3, "{before}");
    assert_status(&forget(&world, person), 0);
    assert_eq!(others(person), before);
    let own = format!("SELECT identification_number FROM main.employees WHERE id = {person}");
    assert_eq!(one::<Option<String>>(&world.store(), &own), None);
    // What is no text is the person's as well, and does not come back.
    let kept = |which: &str| -> i64 {
        let sql = format!(
            "SELECT count(guid) + count(primary_image_id) + count(employee_number) + \
               count(country_of_nationality_id) FROM main.employees WHERE id {which} {person}"
        );
        one(&world.store(), &sql)
    };
    assert!(kept("<>") > 0);
    assert_eq!(kept("="), 0);
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(kept("="), 0);
}

#[test]
fn a_person_who_is_forgotten_is_in_no_byte_and_does_not_come_back() {
    let world = kept();
    let person = seller(&world);
    world.sandbox.act(&Act::EditContact { contact_id: Some(person), at: None }).unwrap();
    world.sync();
    let mut values = values(&world, person);
    assert!(values.len() > 5, "{values:?}");
    let remark = "kastanjebrune hester i Lillehammer";
    values.push(remark.to_owned());

    // Where else a person can stand: what people wrote, what did not fit, what was found to differ, and the
    // pack of a closed month.
    let of_person = |column: &str| {
        let text = format!("SELECT {column} FROM main.contacts WHERE id = {person}");
        one::<String>(&world.store(), &text)
    };
    let (name, email) = (of_person("name"), of_person("email"));
    let phone = of_person("phone_number");
    let last_eight: Vec<char> = phone.chars().filter(char::is_ascii_digit).collect();
    let last_eight: String = last_eight[last_eight.len() - 8..].iter().collect();
    let grouped = [&last_eight[..3], &last_eight[3..5], &last_eight[5..]].join(" ");
    let last = crate::support::journals::month(1);
    let repeat = format!(
        "UPDATE main.notes SET message = 'Skriv til {email}, sa {name}!' WHERE rowid = 0; \
         UPDATE main.notes SET message = 'Ring {grouped} eller {last_eight}' WHERE rowid = 1; \
         UPDATE main.notes SET _extra = '{{\"Written\":[\"{name}\",1.50]}}' WHERE rowid = 0; \
         UPDATE main.notes SET _extra = '{{\"Owners\":{{\"{name}\":0.5}}}}' WHERE rowid = 1; \
         INSERT INTO sync.drift (table_name, field, example) \
           VALUES ('notes', 'Owners.{name}', '{{\"{name}\":0.5}}'); \
         INSERT INTO sync.rejects (table_name, column_name, value, resolved_at) \
           VALUES ('notes', 'message', '{{\"a\":\"{name}\"}}', now()); \
         INSERT INTO sync.drift (table_name, field, example) VALUES ('contacts', 'Remark', '\"{remark}\"'); \
         INSERT INTO sync.verifications (what, source, mirror) VALUES ('x', '{name}', 'y'); \
         CREATE TABLE history.left_behind AS SELECT '{name}' AS name, ['{email}', 'x'] AS many, \
           '{{\"a\":\"{name}\"}}' AS _extra, 'updated' AS _change; \
         INSERT INTO sync.journal_scopes (journal_level, journal_id, name, gone_at) \
           VALUES ('offices', 990, '{name} Eiendom', now()); \
         UPDATE sync.runs SET error = '500: {name}';"
    );
    duckdb::Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch(&repeat)
        .unwrap();
    // What a killed process had no memory for.
    std::fs::create_dir_all(world.path("data/store.duckdb.tmp")).unwrap();
    let spilled = world.path("data/store.duckdb.tmp/duckdb_temp_storage_DEFAULT-0.tmp");
    std::fs::write(&spilled, &name).unwrap();
    let output = world.run(&["close", "--month", &last, "--force"]);
    assert!(!spilled.exists());
    assert!(world.path("data/parquet/closings").join(&last).exists(), "{}", shown(&output));
    let before = cells_with(&world.published(), &values);
    for place in [
        "\"main\".\"cases\"",
        "\"history\".\"contacts\"",
        "\"sync\".\"verifications\"",
        "\"sync\".\"drift\"",
        "\"sync\".\"journal_scopes\"",
    ] {
        assert!(before.iter().any(|cell| cell.starts_with(place)), "{place}: {before:?}");
    }
    assert_ne!(found(&world, &values), BTreeSet::new());
    let rows =
        |table: &str| one::<i64>(&world.store(), &format!("SELECT count(*) FROM main.{table}"));
    let counts = || ["contacts", "case_roles", "cases", "notes"].map(rows);
    let counted = counts();

    let tried = world.run(&["forget", "--contact", &person.to_string(), "--dry-run"]);
    assert_status(&tried, 0);
    assert_eq!(cells_with(&world.store(), &values).len(), before.len(), "only tried");
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM sync.forgotten"), 0);

    let output = forget(&world, person);
    assert_status(&output, 0);
    let told = |output: &Output| {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        text.lines().take_while(|line| !line.starts_with(['n', 'p'])).count()
    };
    assert_eq!(told(&tried), told(&output), "it said what it would do");
    let said = shown(&output);
    assert!(said.contains("main.cases.seller_emails") && said.contains("out of reach"), "{said}");
    for value in &values {
        assert!(!said.contains(value.as_str()), "{said}");
    }
    let assert_gone = |when: &str| {
        assert_eq!(cells_with(&world.store(), &values), [""; 0], "{when}");
        assert_eq!(cells_with(&world.published(), &values), [""; 0], "{when}");
        assert_eq!(found(&world, &values), BTreeSet::new(), "{when}");
    };
    assert_gone("forgotten");
    assert_eq!(snapshots(&world).len(), 1);
    assert_eq!(counts(), counted, "every row is there");
    let notes = "SELECT string_agg(message, '; ' ORDER BY message) FROM main.notes \
                 WHERE message LIKE '%forgotten%'";
    assert_eq!(
        one::<String>(&world.store(), notes),
        "Ring [forgotten] eller [forgotten]; Skriv til [forgotten], sa [forgotten]!"
    );
    let extra = "SELECT _extra FROM main.notes WHERE message LIKE 'Skriv%forgotten%'";
    assert_eq!(one::<String>(&world.store(), extra), "{\"Written\":[null,1.50]}");

    // Whatever is read again, and however it changed: no value, and no version for what was taken out.
    let versions =
        |table: &str| one::<i64>(&world.store(), &format!("SELECT count(*) FROM history.{table}"));
    let before = ["cases", "revenue_journals", "contacts"].map(versions);
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_gone("read again");
    assert_eq!(["cases", "revenue_journals", "contacts"].map(versions), before);
    world.sandbox.act(&Act::EditContact { contact_id: Some(person), at: None }).unwrap();
    world.sync();
    assert_gone("changed");
    let own = format!("FROM main.contacts WHERE id = {person}");
    let texts = format!("SELECT count(*) {own} AND coalesce(name, phone_number, email) IS NULL");
    assert_eq!(one::<i64>(&world.store(), &texts), 1, "the row is there, and says nothing");
    assert!(one::<bool>(&world.store(), &format!("SELECT active IS NOT NULL {own}")));

    // A second time there is nothing to do, and it is done.
    let published = snapshots(&world);
    let output = forget(&world, person);
    assert_status(&output, 0);
    assert!(shown(&output).contains("there is nothing to do"), "{}", shown(&output));
    assert_eq!(snapshots(&world), published);
    assert_gone("again");
}

/// Identity numbers are hashed unless somebody wants them kept.
#[test]
fn the_number_that_is_hashed_in_the_persons_row_goes_where_others_wrote_it() {
    let world = World::with(unthrottled(8));
    world.configure(UNTHROTTLED);
    let hashed = ["--set", "privacy.identifiers=hash"];
    let run = |args: &[&str]| world.run(&[&hashed[..], args].concat());
    assert_status(&run(&["sync"]), 0);
    let contacts = world.sandbox.tables(&["contacts"]);
    let known = contacts["tables"]["contacts"].as_array().unwrap().iter().find_map(|contact| {
        let number = contact["identification_number"].as_str()?;
        Some((contact["id"].to_string(), number.to_owned()))
            .filter(|(_, number)| number.len() == 11)
    });
    let (person, number) = known.unwrap();
    let written = format!("Fnr {} {} er oppgitt", &number[..6], &number[6..]);
    duckdb::Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute("UPDATE main.notes SET message = ? WHERE rowid = 0", [&written])
        .unwrap();
    assert_status(&run(&["forget", "--contact", &person]), 0);
    let note = "SELECT message FROM main.notes WHERE message LIKE 'Fnr%'";
    assert_eq!(one::<String>(&world.store(), note), "Fnr [forgotten] er oppgitt");
}

/// The person is forgotten while snapshots go elsewhere.
#[test]
fn snapshots_elsewhere_are_replaced_when_they_are_published_to_again() {
    let world = kept();
    let person = seller(&world);
    let elsewhere = ["--set", "publish.parquet=elsewhere"];
    assert_status(&world.run(&[&elsewhere[..], &["sync"]].concat()), 0);
    let forget = ["forget", "--contact", &person.to_string()];
    assert_status(&world.run(&[&elsewhere[..], &forget].concat()), 0);
    let before = snapshots(&world);
    world.sync();
    let after = snapshots(&world);
    assert_eq!(after.len(), 1, "{after:?}");
    assert!(!before.contains(&after[0]));
    // From then on they are kept as ever.
    follow::change(&world, follow::shown_cases(&world)[0], Facet::Note);
    world.sync();
    assert_eq!(snapshots(&world).len(), 2);
}

#[test]
fn snapshots_are_replaced_when_they_are_published_to_again() {
    let world = kept();
    let person = seller(&world);
    let off = ["--set", "publish.parquet="];
    let forget = ["forget", "--contact", &person.to_string()];
    let output = world.run(&[&off[..], &forget].concat());
    assert_status(&output, 0);
    let said = shown(&output);
    assert!(said.contains("still hold values that were erased"), "{said}");
    assert!(!said.contains("earlier snapshots are removed"), "{said}");
    let in_parquet = |world: &World| {
        let files = world.path("data/parquet/snapshots/*/contacts/*.parquet");
        let named = format!(
            "SELECT count(*) FROM read_parquet('{}') WHERE id = {person} AND name IS NOT NULL",
            files.display()
        );
        one::<i64>(&duckdb::Connection::open_in_memory().unwrap(), &named) > 0
    };
    assert!(in_parquet(&world));
    // Nothing is forgotten of it meanwhile.
    for command in ["sync", "status"] {
        let output = world.run(&[&off[..], &[command]].concat());
        let said = shown(&output);
        assert_eq!(
            said.contains("still hold values that were erased"),
            command == "status",
            "{said}"
        );
    }
    assert!(in_parquet(&world));
    let output = world.run(&["status"]);
    assert!(shown(&output).contains("are still in the Parquet snapshots"), "{}", shown(&output));
    world.sync();
    assert!(!in_parquet(&world));
    assert_eq!(snapshots(&world).len(), 1);
    assert!(!shown(&world.run(&["status"])).contains("erased"));
}

#[test]
fn a_forgetting_that_is_killed_is_gone_on_with_by_the_next_sync() {
    let world = kept();
    let person = seller(&world);
    let values = values(&world, person);
    for (n, point) in failpoint::ERASING.into_iter().enumerate() {
        let command: &[&str] =
            if n == 0 { &["forget", "--contact", &person.to_string()] } else { &["sync"] };
        let output = aborting_at(&world, command, point);
        assert!(output.status.signal().is_some(), "{point}: {}", shown(&output));
        assert_eq!(cells_with(&world.store(), &values), [""; 0], "{point}");
    }
    world.sync();
    assert_eq!(cells_with(&world.published(), &values), [""; 0]);
    assert_eq!(found(&world, &values), BTreeSet::new());
    assert_eq!(snapshots(&world).len(), 1);
    world.assert_nothing_left_over();
}

#[test]
fn a_contact_that_is_unknown_is_kept_out_when_it_comes_and_rows_of_others_stay() {
    let world = World::with(unthrottled(25));
    world.configure(&format!("{KEEP}{UNTHROTTLED}"));
    assert_status(&forget(&world, 50_001), 1); // There is no store yet.
    world.bootstrap();
    // Two contacts of one name and telephone, which is the office's: the others keep it.
    let person = seller(&world);
    let other = "(SELECT min(id) FROM main.contacts WHERE id <> $1 AND contact_type = 'Person')";
    let store = duckdb::Connection::open(world.path("data/store.duckdb")).unwrap();
    let own = "SELECT name, phone_number FROM main.contacts WHERE id = $1";
    let (name, phone): (String, String) =
        store.query_row(own, [person], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let namesake = format!(
        "UPDATE main.contacts SET name = '{name}', phone_number = '{phone}', job_title = 'Ring {phone}' \
         WHERE id = {other} RETURNING id"
    );
    let namesake: i64 = store.query_row(&namesake, [person], |row| row.get(0)).unwrap();
    store.execute_batch(&format!("UPDATE main.offices SET telephone = '{phone}'")).unwrap();
    drop(store);
    let output = forget(&world, person);
    assert_status(&output, 0);
    let said = shown(&output);
    assert!(said.contains("1 text of it stands in rows about other people"), "{said}");
    let kept = |what: &str| one::<i64>(&world.store(), &format!("SELECT count(*) FROM {what}"));
    let of_namesake = format!("main.contacts WHERE id = {namesake} AND");
    assert_eq!(kept(&format!("{of_namesake} name = '{name}' AND phone_number = '{phone}'")), 1);
    let title = format!("SELECT job_title FROM main.contacts WHERE id = {namesake}");
    assert_eq!(one::<String>(&world.store(), &title), "Ring +[forgotten]");
    assert!(kept(&format!("main.offices WHERE telephone = '{phone}'")) > 0);

    let listed = |world: &World| one::<i64>(&world.store(), "SELECT count(*) FROM sync.forgotten");
    let snapshot = "SELECT snapshot_id FROM report.snapshot";
    let (before, published) = (listed(&world), one::<String>(&world.published(), snapshot));
    let output = forget(&world, 999_999);
    assert_status(&output, 2);
    assert!(shown(&output).contains("999999 is not in the mirror"), "{}", shown(&output));
    assert_eq!(listed(&world), before);
    let output = world.run(&["forget", "--contact", "999999", "--unknown"]);
    assert_status(&output, 0);
    assert!(shown(&output).contains("should it come"), "{}", shown(&output));
    assert_eq!(listed(&world), before + 1);
    let now = one::<String>(&world.published(), snapshot);
    assert_ne!(now, published, "what was published before may tell of the person");
    // Once is enough.
    assert_status(&world.run(&["forget", "--contact", "999999", "--unknown"]), 0);
    assert_eq!(one::<String>(&world.published(), snapshot), now);

    // The list is worth nothing without its key.
    std::fs::remove_file(world.path("data/store.duckdb.secrets")).unwrap();
    let output = world.run(&["sync"]);
    assert_status(&output, 2);
    assert!(shown(&output).contains("store.duckdb.secrets is gone"), "{}", shown(&output));
}

/// A contact whose name and e-mail address stand in a case, and are nobody else's, by what the platform has.
fn named_in_a_case(world: &World) -> (i64, Vec<String>) {
    let all = world.sandbox.tables(&["contacts", "cases"]);
    let (contacts, cases) = (&all["tables"]["contacts"], all["tables"]["cases"].to_string());
    let everybody = contacts.to_string();
    let is_own = |text: &&str| {
        let quoted = format!("\"{text}\"");
        cases.contains(&quoted) && everybody.matches(&quoted).count() <= 2
    };
    let own = |contact: &serde_json::Value| {
        let name = contact["name"].as_str().filter(is_own)?;
        let email = contact["email"].as_str().filter(is_own)?;
        let has_namesake = everybody.matches(&format!("\"name\":\"{name}\"")).count() > 1;
        let values = vec![name.to_owned(), email.to_owned()];
        (!has_namesake).then(|| (contact["id"].as_i64().unwrap(), values))
    };
    contacts.as_array().unwrap().iter().find_map(own).unwrap()
}

#[test]
fn who_is_forgotten_before_its_row_comes_is_taken_out_of_all_other_rows_when_it_comes() {
    let world = World::with(unthrottled(25));
    world.configure(&format!("{KEEP}{UNTHROTTLED}"));
    world.publish_snapshots();
    assert_status(&world.run(&["sync", "--only", "cases,offices"]), 0);
    let (person, values) = named_in_a_case(&world);
    let unknown = ["forget", "--contact", &person.to_string(), "--unknown"];
    let output = world.run(&unknown);
    assert_status(&output, 0);
    let said = shown(&output);
    assert!(said.contains("should it come") && said.contains("only its id is known"), "{said}");
    assert_ne!(cells_with(&world.store(), &values), [""; 0], "nobody knows whose name that is");
    let said = shown(&world.run(&unknown));
    assert!(
        said.contains("was forgotten before") && said.contains("only its id is known"),
        "{said}"
    );
    assert!(!said.contains("nothing to do"), "{said}");

    let output = world.run(&["sync"]);
    assert_status(&output, 0);
    for value in &values {
        assert!(!shown(&output).contains(value.as_str()), "{}", shown(&output));
    }
    assert_eq!(cells_with(&world.store(), &values), [""; 0]);
    assert_eq!(cells_with(&world.published(), &values), [""; 0]);
    assert_eq!(snapshots(&world).len(), 1);
    let own = format!("SELECT count(*) FROM main.contacts WHERE id = {person} AND name IS NULL");
    assert_eq!(one::<i64>(&world.store(), &own), 1);
    let of_person = format!(
        "SELECT count(*) FROM main.cases WHERE list_contains(seller_ids, {person}) \
           OR list_contains(buyer_ids, {person})"
    );
    assert!(one::<i64>(&world.store(), &of_person) > 0, "the rows are there");
    // The next one writes the store's file anew, and reads all again.
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(cells_with(&world.store(), &values), [""; 0]);
    assert_eq!(found(&world, &values), BTreeSet::new());
    let said = shown(&forget(&world, person));
    assert!(said.contains("nothing to do") && !said.contains("only its id"), "{said}");

    // What it gets later is its own, too.
    let edit = Act::EditContact { contact_id: Some(person), at: None };
    world.sandbox.act(&edit).unwrap();
    let listed = |world: &World| one::<i64>(&world.store(), "SELECT count(*) FROM sync.forgotten");
    let before = listed(&world);
    world.sync();
    assert!(listed(&world) > before, "its new number is known");
}

#[test]
fn a_store_that_a_daemon_holds_is_not_touched() {
    let world = kept();
    let person = seller(&world);
    let values = values(&world, person);
    let mut daemon = world.start_daemon();
    daemon.wait_for_socket();
    let output = forget(&world, person);
    assert_status(&output, 1);
    assert!(shown(&output).contains("is held by"), "{}", shown(&output));
    daemon.signal("TERM");
    assert_eq!(daemon.ends().code(), Some(0));
    assert_ne!(cells_with(&world.store(), &values), [""; 0]);
}
