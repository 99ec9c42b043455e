//! Secrets: where they are read, and that no text shows them.

use super::*;

#[rstest]
#[case("https://user:pa55@example.com")]
#[case("https://example.com/?key=pa55")]
#[case("https://pa55@exa mple.com")]
fn an_address_that_may_hold_a_secret_is_not_shown(#[case] address: &str) {
    let text = Folder::with(REQUIRED).refusal(&[], &[("source.base_url", address)]);
    assert!(text.contains("command line: source.base_url: must"), "{text}");
    assert!(!text.contains("pa55"), "{text}");
}

#[test]
fn an_address_of_another_type_is_not_shown_either() {
    let folder = Folder::with("[source]\nbase_url = [\"https://user:pa55@example.com\"]\n");
    let text = folder.refusal(&[], &[]);
    assert!(text.contains("source.base_url: must be an address"), "{text}");
    assert!(!text.contains("pa55"), "{text}");
}

#[test]
fn the_secret_of_a_file_loses_its_line_end_and_nothing_else() {
    let folder = Folder::with(
        &REQUIRED.replace("client_secret = \"s3cret\"", "client_secret_file = \"secret\""),
    );
    folder.write("secret", " s3 cret \r\n");
    assert_eq!(folder.load(&[], &[]).unwrap().source.client_secret.expose_secret(), " s3 cret ");
}

#[test]
fn a_byte_order_mark_is_none_of_the_secret_and_a_blank_at_its_ends_is_told() {
    let folder = Folder::with(
        &REQUIRED.replace("client_secret = \"s3cret\"", "client_secret_file = \"secret\""),
    );
    for (content, secret, blank) in [
        ("\u{feff}s3cret\n", "s3cret", false),
        ("s3 cret", "s3 cret", false),
        ("\u{feff} s3cret\n", " s3cret", true),
        ("s3cret\t\n", "s3cret\t", true),
    ] {
        folder.write("secret", content);
        let config = folder.load(&[], &[]).unwrap();
        assert_eq!(config.source.client_secret.expose_secret(), secret);
        let told = config.cautions().join("\n");
        assert_eq!(told.contains("has a blank before or behind the secret"), blank, "{told}");
        assert!(!told.contains("s3"), "{told}");
    }
}

#[rstest]
#[case::empty("\n", "DIR/secret: is empty")]
#[case::mark_alone("\u{feff}\n", "DIR/secret: is empty")]
#[case::two_lines("hunter2\nhunter3\n", "DIR/secret: has more than one line")]
fn a_secret_file_that_holds_no_secret_is_named(#[case] content: &str, #[case] problem: &str) {
    let folder = Folder::with(
        &REQUIRED.replace("client_secret = \"s3cret\"", "client_secret_file = \"secret\""),
    );
    folder.write("secret", content);
    let text = folder.refusal(&[], &[]);
    assert!(violations(&text)[0].ends_with(problem), "{text}");
    assert!(!text.contains("hunter"), "{text}");
}

#[test]
fn a_secret_file_that_cannot_be_read_is_named() {
    let folder = Folder::with(
        &REQUIRED.replace("client_secret = \"s3cret\"", "client_secret_file = \"none\""),
    );
    let text = folder.refusal(&[], &[]);
    insta::assert_snapshot!(text, @r#"
    the configuration is refused:
      DIR/casemirror.toml:4: source.client_secret_file = "none": DIR/none: cannot read it: No such file or directory (os error 2)
    "#);
}

#[test]
fn only_one_kind_of_secret_may_be_set() {
    let folder = Folder::with(REQUIRED);
    let text = folder.refusal(&[("CASEMIRROR_SOURCE__CLIENT_SECRET_FILE", "secret")], &[]);
    insta::assert_snapshot!(text, @r#"
    the configuration is refused:
      environment variable CASEMIRROR_SOURCE__CLIENT_SECRET_FILE: source.client_secret_file = "secret": source.client_secret is set, too (DIR/casemirror.toml:4); only one of them may be
    "#);
    // An empty value in a higher layer takes it away again.
    assert!(folder.load(&[("CASEMIRROR_SOURCE__CLIENT_SECRET_FILE", "")], &[]).is_ok());
}

#[test]
fn a_secret_of_the_wrong_type_is_not_shown() {
    let text = Folder::with(&REQUIRED.replace("\"s3cret\"", "20011")).refusal(&[], &[]);
    assert!(text.contains("casemirror.toml:4: source.client_secret: must be"), "{text}");
    assert!(!text.contains("20011"), "{text}");
}

#[test]
fn no_text_made_of_a_configuration_holds_the_secret() {
    let config = load(REQUIRED);
    assert!(!format!("{config:?}").contains("s3cret"));
    let keys = config.compared_keys(&salt());
    assert!(keys.values().all(|value| !value.contains("s3cret")));
}

#[test]
fn secrets_are_compared_by_digests_that_say_nothing_elsewhere() {
    let lake =
        "[lake]\ncatalog = \"postgres:host=db password=CATALOG\"\ndata = \"s3://mirror/lake\"\n";
    let alert = "[alert]\nurl = \"https://chat.example.com/URL\"\nheartbeat = \"https://beat.example.com/BEAT\"\n";
    let text = format!("{REQUIRED}{lake}{alert}");
    let folder = Folder::with(&text);
    let keys = |text: &str, salt: &Salt| {
        folder.write("casemirror.toml", text);
        folder.load(&[], &[]).unwrap().compared_keys(salt)
    };
    let same = keys(&text, &salt());
    for (key, value) in [
        ("source.client_secret", "s3cret"),
        ("lake.catalog", "CATALOG"),
        ("alert.url", "URL"),
        ("alert.heartbeat", "BEAT"),
    ] {
        let other = keys(&text.replace(value, "another"), &salt());
        let differ: Vec<_> = same.iter().filter(|(key, value)| other[*key] != **value).collect();
        assert_eq!(differ.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), [key]);
        assert!(!same[key].contains(value), "{key}");
        assert_ne!(keys(&text, &Salt::random())[key], same[key], "{key}");
    }
}

#[test]
fn a_path_is_compared_by_where_it_leads() {
    let folder = Folder::with(REQUIRED);
    let linked = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(folder.0.path(), linked.path().join("link")).unwrap();
    let keys = |path: PathBuf| Config::load(&path, &[], |_| None).unwrap().compared_keys(&salt());
    let same = keys(folder.path());
    let name = folder.0.path().file_name().unwrap();
    assert_eq!(keys(linked.path().join("link/casemirror.toml")), same);
    assert_eq!(keys(folder.0.path().join("..").join(name).join("casemirror.toml")), same);
    folder.write("other.toml", &format!("{REQUIRED}[store]\npath = \"other.duckdb\"\n"));
    assert_ne!(keys(linked.path().join("link/other.toml")), same);
}

#[test]
fn the_compared_keys_leave_no_key_out() {
    let folder = Folder::with(REQUIRED);
    let before = folder.load(&[], &[]).unwrap().compared_keys(&salt());
    let named: Vec<&str> = before.keys().map(String::as_str).collect();
    let expected: Vec<&str> = {
        let mut names: Vec<&str> = keys::KEYS.iter().map(|key| key.name).collect();
        // The file is one of two ways to give the secret, and stands as `client_secret`.
        names.retain(|name| *name != "source.client_secret_file");
        names.sort_unstable();
        names
    };
    assert_eq!(named, expected);
}
