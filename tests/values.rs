//! Values as services send them: what a column takes is exact, what it does not take is kept and
//! noted, in the store, in the published database and in its snapshot alike.
//!
//! Every expectation is written by hand; nothing of the client computes it.

use crate::support::follow::assert_status;
use crate::support::one;
use crate::support::scripted::{property_rows, search_path};
use crate::support::stored::{
    ACTIVITIES, COSTS, EXTERNAL_ENTRIES, NOTES, Scripted, fits, misfit, none, texts,
};

#[test]
fn money_is_exact_up_to_the_limit_of_its_column() {
    Scripted::new().assert_values(
        &COSTS,
        "Amount",
        "amount",
        &[
            fits("0", "0.00"),
            fits("-0", "0.00"),
            fits("-0.00", "0.00"),
            fits("0.1", "0.10"),
            fits("12.5000000000", "12.50"),
            fits("-1234567.89", "-1234567.89"),
            fits("1e2", "100.00"),
            fits("1.5E+3", "1500.00"),
            fits("150e-2", "1.50"),
            // A binary float has no such number.
            fits("9007199254740993.01", "9007199254740993.01"),
            fits("9999999999999999.99", "9999999999999999.99"),
            fits("-9999999999999999.99", "-9999999999999999.99"),
            fits("9999999999999999.990", "9999999999999999.99"),
            misfit("10000000000000000", "out of the range of DECIMAL(18,2)"),
            misfit("10000000000000000.00", "out of the range of DECIMAL(18,2)"),
            misfit("-10000000000000000", "out of the range of DECIMAL(18,2)"),
            misfit("9999999999999999.995", "more than 2 decimals"),
            misfit("0.001", "more than 2 decimals"),
            misfit("1e400", "out of range"),
            misfit(r#""12.50""#, "a string where a number belongs"),
            misfit("true", "true or false where a number belongs"),
            misfit(r#"{"Value":1.50}"#, "an object where a number belongs"),
            none("null"),
            none(""),
        ],
    );
}

#[test]
fn fractions_are_exact_to_six_decimals() {
    Scripted::new().assert_values(
        &COSTS,
        "VAT",
        "vat",
        &[
            fits("25", "25.000000"),
            fits("0.333333", "0.333333"),
            fits("0.12345600000", "0.123456"),
            fits("999999999999.999999", "999999999999.999999"),
            misfit("1000000000000", "out of the range of DECIMAL(18,6)"),
            misfit("0.1234567", "more than 6 decimals"),
        ],
    );
}

#[test]
fn whole_numbers_are_those_of_64_bits_however_they_are_written() {
    Scripted::new().assert_values(
        &ACTIVITIES,
        "OrganizerId",
        "organizer_id",
        &[
            fits("9223372036854775807", "9223372036854775807"),
            fits("-9223372036854775808", "-9223372036854775808"),
            misfit("9223372036854775808", "out of the range of BIGINT"),
            misfit("-9223372036854775809", "out of the range of BIGINT"),
            misfit("123456789012345678901234567890", "out of the range of BIGINT"),
            fits("5.0", "5"),
            fits("1e2", "100"),
            fits("-0", "0"),
            misfit("5.5", "a fraction where a whole number belongs"),
            misfit(r#""5""#, "a string where a whole number belongs"),
            misfit(r#""""#, "a string where a whole number belongs"),
            none("null"),
            none(""),
        ],
    );
}

#[test]
fn true_and_false_are_no_text_and_no_number() {
    Scripted::new().assert_values(
        &ACTIVITIES,
        "IsCompleted",
        "is_completed",
        &[
            fits("true", "true"),
            fits("false", "false"),
            misfit(r#""true""#, "a string where true or false belongs"),
            misfit(r#""False""#, "a string where true or false belongs"),
            misfit("1", "a number where true or false belongs"),
            misfit("0", "a number where true or false belongs"),
            none("null"),
            none(""),
        ],
    );
}

#[test]
fn instants_are_cut_to_microseconds_and_nothing_of_them_is_kept_beside() {
    Scripted::new().assert_values(
        &ACTIVITIES,
        "DateTime",
        "date_time",
        &[
            fits(r#""2022-04-28T11:26:41.5334829+02:00""#, "2022-04-28 09:26:41.533482+00"),
            fits(r#""2022-04-28T11:26:41.9999999Z""#, "2022-04-28 11:26:41.999999+00"),
            fits(r#""1969-12-31T23:59:59.9999999Z""#, "1969-12-31 23:59:59.999999+00"),
            fits(r#""9999-12-31T23:59:59.9999999Z""#, "9999-12-31 23:59:59.999999+00"),
            fits(r#""2026-01-15T12:00:00-00:30""#, "2026-01-15 12:30:00+00"),
            none(r#""0001-01-01T00:00:00""#),
            none(r#""0001-01-01T00:00:00Z""#),
            none(r#""0001-01-01T00:00:00+00:00""#),
            none(r#""0001-01-01T00:00:00.0000000+01:00""#),
            fits(r#""0001-01-02T00:00:00Z""#, "0001-01-02 00:00:00+00"),
            none("null"),
            none(""),
            misfit(r#""""#, "not a date-time: no year of four digits"),
            misfit(r#""soon""#, "not a date-time: no year of four digits"),
            misfit(r#""2026-02-29T00:00:00Z""#, "not a date-time: no such day in the calendar"),
            misfit("1767225600", "a number where a date-time belongs"),
        ],
    );
}

#[test]
fn local_times_that_a_clock_change_skips_move_forward_and_those_it_repeats_are_the_first() {
    Scripted::new().assert_values(
        &ACTIVITIES,
        "DateTime",
        "date_time",
        &[
            // Oslo's clocks go from 02:00 to 03:00 on 2026-03-29, at 01:00 UTC.
            fits(r#""2026-03-29T01:59:59.9999999""#, "2026-03-29 00:59:59.999999+00"),
            fits(r#""2026-03-29T02:00:00""#, "2026-03-29 01:00:00+00"),
            fits(r#""2026-03-29T02:30:00""#, "2026-03-29 01:30:00+00"),
            fits(r#""2026-03-29T02:59:59.9999999""#, "2026-03-29 01:59:59.999999+00"),
            fits(r#""2026-03-29T03:00:00""#, "2026-03-29 01:00:00+00"),
            // And from 03:00 back to 02:00 on 2026-10-25, at 01:00 UTC.
            fits(r#""2026-10-25T01:59:59""#, "2026-10-24 23:59:59+00"),
            fits(r#""2026-10-25T02:00:00""#, "2026-10-25 00:00:00+00"),
            fits(r#""2026-10-25T02:30:00""#, "2026-10-25 00:30:00+00"),
            fits(r#""2026-10-25T02:59:59.9999999""#, "2026-10-25 00:59:59.999999+00"),
            fits(r#""2026-10-25T03:00:00""#, "2026-10-25 02:00:00+00"),
            // Only an offset says that it is the second.
            fits(r#""2026-10-25T02:30:00+01:00""#, "2026-10-25 01:30:00+00"),
            fits(r#""2026-01-15T00:00:00""#, "2026-01-14 23:00:00+00"),
            fits(r#""2026-07-15""#, "2026-07-14 22:00:00+00"),
        ],
    );
}

#[test]
fn text_is_kept_to_the_last_character() {
    let long = "<p>Å \"bo\" i 🏠 \\ 'her'</p>\n".repeat(7_000);
    assert!(long.len() > 200_000);
    let long_json = serde_json::Value::from(long.as_str()).to_string();
    Scripted::new().assert_values(
        &ACTIVITIES,
        "Subject",
        "subject",
        &[
            fits(r#""""#, ""),
            none("null"),
            none(""),
            fits(r#""NULL""#, "NULL"),
            fits(r#""  spaces  ""#, "  spaces  "),
            fits(r#""say \"hi\" and 'ho'""#, "say \"hi\" and 'ho'"),
            fits(r#""'); DROP TABLE main.cases; --""#, "'); DROP TABLE main.cases; --"),
            fits(r#""C:\\new\\table""#, r"C:\new\table"),
            fits(r#""one\r\ntwo\n\tthree""#, "one\r\ntwo\n\tthree"),
            fits(r#""\ud83c\udfe0 🏠 👩‍👩‍👧""#, "🏠 🏠 👩‍👩‍👧"),
            fits(
                r#""\u00e6\u00f8\u00e5 A\u030a \u202eright to left""#,
                "æøå A\u{30a} \u{202e}right to left",
            ),
            fits(
                r#""<b onclick=\"x()\">&amp;<\/b><!-- ]]>""#,
                r#"<b onclick="x()">&amp;</b><!-- ]]>"#,
            ),
            fits(r#""{\"a\":[1,null]}""#, r#"{"a":[1,null]}"#),
            fits(r#""\ufeffmark""#, "\u{feff}mark"),
            fits(r#""before\u0000after""#, "before\0after"),
            fits(r#""\u0000""#, "\0"),
            fits(&long_json, &long),
            misfit(r#""half \ud83c a pair""#, "not valid text (a broken escape)"),
            misfit("17", "a number where a string belongs"),
            misfit(r#"["text"]"#, "a list where a string belongs"),
        ],
    );
}

#[test]
fn enumerations_take_names_that_nobody_listed_and_numbers() {
    Scripted::new().assert_values(
        &ACTIVITIES,
        "ActivityType",
        "activity_type",
        &[
            fits(r#""PrivateShowing""#, "PrivateShowing"),
            fits(r#""AddedLastNight""#, "AddedLastNight"),
            fits(r#""Ærlig talt 🙃""#, "Ærlig talt 🙃"),
            fits(r#""""#, ""),
            fits("150", "150"),
            fits("-1", "-1"),
            none("null"),
            none(""),
            misfit("true", "true or false where a name or a number belongs"),
        ],
    );
}

#[test]
fn an_empty_list_is_another_than_one_that_is_null_or_absent() {
    Scripted::new().assert_values(
        &NOTES,
        "ContactIds",
        "to_json(contact_ids)",
        &[
            none("null"),
            none(""),
            fits("[]", "[]"),
            fits("[50001,50002]", "[50001,50002]"),
            fits("[2,null,1,2]", "[2,null,1,2]"),
            fits("[null]", "[null]"),
            misfit(r#"[1,"2"]"#, "element 2: a string where a whole number belongs"),
            misfit("[9223372036854775808]", "element 1: out of the range of BIGINT"),
            misfit("7", "a number where a list belongs"),
            misfit(r#""""#, "a string where a list belongs"),
            misfit(r#"{"0":1}"#, "an object where a list belongs"),
        ],
    );
    Scripted::new().assert_values(
        &NOTES,
        "InvoiceSerialNumbers",
        "to_json(invoice_serial_numbers)",
        &[
            fits(
                r#"["","a, b","[c]","\"d\"",null,"NULL"]"#,
                r#"["","a, b","[c]","\"d\"",null,"NULL"]"#,
            ),
            fits(r#"[""]"#, r#"[""]"#),
            // The reference says only that it is a list.
            fits(r#"["a",2]"#, r#"["a","2"]"#),
            misfit("7", "a number where a list belongs"),
        ],
    );
}

/// The built-in file with columns for parts of an object, as a user writes it.
fn entries_with_vendors() -> String {
    let column = |path: &str, kind: &str| {
        format!(
            "\n[[column]]\nfield = \"{path}\"\ntype = \"{kind}\"\ncomment = \"Of the vendor.\"\n"
        )
    };
    let built_in = include_str!("../schemas/external_entries.toml");
    built_in.to_owned()
        + &column("Vendor.Name", "string")
        + &column("Vendor.Home.City", "string")
        + &column("Vendor.Home.Number", "int")
}

#[test]
fn parts_of_an_object_are_columns_whether_it_is_there_or_not() {
    let scripted = Scripted::new();
    scripted.add_resource("external_entries", &entries_with_vendors());
    let sent = [
        r#""Vendor":{"Name":"A","Home":{"City":"Bodø","Number":7}}"#,
        r#""Vendor":{"Home":null,"Name":""}"#,
        r#""Vendor":{}"#,
        r#""Vendor":null"#,
        r#""Info":"no vendor""#,
        r#""Vendor":{"Name":"B","Rating":0.50,"Home":{"Floor":{"b":1,"a":2},"City":null}}"#,
        r#""Vendor":{"Name":"C","Home":{"Number":"7"}}"#,
        r#""Vendor":"D""#,
        r#""Vendor":{"Name":"E","Home":[]}"#,
    ];
    let records: Vec<String> =
        sent.iter().enumerate().map(|(n, field)| format!("{{\"Id\":{},{field}}}", n + 1)).collect();
    scripted.answer(&EXTERNAL_ENTRIES, &records);
    scripted.sync(true);

    let what = "vendor_name, vendor_home_city, vendor_home_number, _extra";
    let stored = scripted.rows(&EXTERNAL_ENTRIES, what);
    let expected: [[Option<&str>; 4]; 9] = [
        [Some("A"), Some("Bodø"), Some("7"), None],
        [Some(""), None, None, None],
        [None, None, None, None],
        [None, None, None, None],
        [None, None, None, None],
        [
            Some("B"),
            None,
            None,
            Some(r#"{"Vendor":{"Home":{"Floor":{"a":2,"b":1}},"Rating":0.50}}"#),
        ],
        [Some("C"), None, None, Some(r#"{"Vendor":{"Home":{"Number":"7"}}}"#)],
        [None, None, None, Some(r#"{"Vendor":"D"}"#)],
        [Some("E"), None, None, Some(r#"{"Vendor":{"Home":[]}}"#)],
    ];
    assert_eq!(stored, expected.map(owned));

    let key = |id: usize| scripted.key_of(&EXTERNAL_ENTRIES, id);
    let expected = [
        [&key(7), "vendor_home_number", r#""7""#, "a string where a whole number belongs"],
        [&key(8), "vendor_home_city", r#""D""#, "a string where an object belongs"],
        [&key(8), "vendor_home_number", r#""D""#, "a string where an object belongs"],
        [&key(8), "vendor_name", r#""D""#, "a string where an object belongs"],
        [&key(9), "vendor_home_city", "[]", "a list where an object belongs"],
        [&key(9), "vendor_home_number", "[]", "a list where an object belongs"],
    ];
    assert_eq!(scripted.rejects("external_entries"), expected.map(|row| owned(row.map(Some))));
    assert_eq!(
        drift(&scripted, "external_entries"),
        [["Vendor.Home.Floor", r#"{"a":2,"b":1}"#], ["Vendor.Rating", "0.50"]]
            .map(|row| owned(row.map(Some)))
    );
}

#[test]
fn fields_that_no_column_takes_are_kept_digit_by_digit_and_noted_once() {
    let scripted = Scripted::new();
    let records = [
        r#"{"Id":1,"Zeta":1.10,"Alpha":{"b":1e2,"a":[ 1 , -0.0, null,"\u00e6"]},"subject":"of another case"}"#,
        r#"{"Id":2,"Zeta":9223372036854775808.50,"Empty":"","Nothing":null,"":0}"#,
        r#"{"Id":3,"Subject":"known"}"#,
    ];
    scripted.answer(&ACTIVITIES, &records.map(str::to_owned));
    scripted.sync(false);
    let stored = scripted.rows(&ACTIVITIES, "subject, _extra");
    let expected = [
        [
            None,
            Some(
                r#"{"Alpha":{"a":[1,-0.0,null,"æ"],"b":1e2},"Zeta":1.10,"subject":"of another case"}"#,
            ),
        ],
        [None, Some(r#"{"":0,"Empty":"","Nothing":null,"Zeta":9223372036854775808.50}"#)],
        [Some("known"), None],
    ];
    assert_eq!(stored, expected.map(owned));
    let noted = drift(&scripted, "activities");
    let expected = [
        ["", "0"],
        ["Alpha", r#"{"a":[1,-0.0,null,"æ"],"b":1e2}"#],
        ["Empty", r#""""#],
        ["Nothing", "null"],
        ["Zeta", "1.10"],
        ["subject", r#""of another case""#],
    ];
    let of_ours = |row: &Vec<Option<String>>| row[0].as_deref() != Some("Participants");
    let noted: Vec<_> = noted.into_iter().filter(of_ours).collect();
    assert_eq!(noted, expected.map(|row| owned(row.map(Some))));
}

#[test]
fn of_two_records_with_one_key_the_last_counts() {
    let scripted = Scripted::new();
    let records = [
        // Equal ones are one.
        r#"{"Id":3,"Comment":"first"}"#,
        r#"{"Id":3,"Comment":"last","Amount":1e1}"#,
        r#"{"Id":4,"Comment":"same","Amount":2.50}"#,
        r#"{"Amount": 2.50, "Comment": "s\u0061me", "Id": 4}"#,
    ];
    scripted.answer(&COSTS, &records.map(str::to_owned));
    scripted.sync(true);
    let stored = scripted.rows(&COSTS, "id, amount, comment, _extra");
    let expected = [
        [Some("3"), Some("10.00"), Some("last"), None],
        [Some("4"), Some("2.50"), Some("same"), None],
    ];
    assert_eq!(stored, expected.map(owned));
    let key = |id: usize| scripted.key_of(&COSTS, id);
    let later = "another record with this key came later in the same answer, and was taken";
    let expected = [[Some(&*key(3)), None, None, Some(later)]];
    assert_eq!(scripted.rejects("costs"), expected.map(owned));
}

/// `records` as the answer of a search.
fn found(records: &[String]) -> String {
    format!(r#"{{"Count":{},"Results":[{}]}}"#, records.len(), records.join(","))
}

#[test]
fn rows_of_a_search_keep_their_values_as_well() {
    let scripted = Scripted::new();
    let fields = r#""AskingPrice":9999999999999999.99,"Street":"\"Vei\" 1\n<b>🏠</b>",
        "ShowingDates":["0001-01-01T00:00:00",null,"2026-10-25T02:30:00","2026-03-29T02:30:00.1234567"],
        "ShowingIds":[],"SellerIds":null,"AssignmentInfoTypes":["Nobody listed this",""],
        "SalePrice":1.234,"Revision":1E5,"#;
    let records: Vec<String> = property_rows(&scripted.world, None)
        .iter()
        .map(|record| {
            let mut record = record.clone();
            let all = record.as_object_mut().unwrap();
            for field in ["AskingPrice", "Street", "ShowingDates", "ShowingIds", "SellerIds"]
                .iter()
                .chain(&["AssignmentInfoTypes", "SalePrice", "BoligmappaStatus", "Score"])
            {
                all.remove(*field);
            }
            record.to_string().replacen('{', &format!("{{{fields}"), 1)
        })
        .collect();
    assert!(!records.is_empty());
    scripted.answer_at(&search_path("Property"), None, &found(&records));
    scripted.sync(true);
    let what = "asking_price, street, to_json(list_transform(showing_dates, lambda x: x::VARCHAR)),                 to_json(showing_ids), to_json(seller_ids), to_json(assignment_info_types),                 sale_price, _extra";
    let expected = owned([
        Some("9999999999999999.99"),
        Some("\"Vei\" 1\n<b>🏠</b>"),
        Some(r#"[null,null,"2026-10-25 00:30:00+00","2026-03-29 01:30:00.123456+00"]"#),
        Some("[]"),
        None,
        Some(r#"["Nobody listed this",""]"#),
        None,
        Some(r#"{"Revision":1E5,"SalePrice":1.234}"#),
    ]);
    for row in scripted.everywhere("cases", what, "ORDER BY id") {
        assert_eq!(row, expected);
    }
}

#[test]
fn bare_values_and_single_records_keep_theirs() {
    let scripted = Scripted::new();
    let case_id = scripted.case_id;
    scripted.answer_at(
        &format!("/api/Properties/{case_id}/PublicTaxes/DocumentCost"),
        None,
        "1.25e3",
    );
    scripted.answer_at(
        &format!("/api/Properties/{case_id}/Information"),
        None,
        r#"{"Id":7,"Details":"","CompletionDate":"2026-03-29T02:30:00","AsIs":"yes","Size":1e2}"#,
    );
    scripted.sync(true);
    let of_case = format!("WHERE case_id = {case_id}");
    let stored = scripted.everywhere("document_costs", "amount, _extra", &of_case);
    assert_eq!(stored, [owned([Some("1250.00"), None])]);
    let what = "details, contents, completion_date, as_is, _extra";
    let stored = scripted.everywhere("property_information", what, &of_case);
    let extra = Some(r#"{"AsIs":"yes","Size":1e2}"#);
    let expected = [Some(""), None, Some("2026-03-29 01:30:00+00"), None, extra];
    assert_eq!(stored, [owned(expected)]);
}

#[test]
fn lines_of_a_journal_keep_theirs_with_their_annotations() {
    let scripted = Scripted::new();
    let office_id =
        scripted.world.sandbox.tables(&["offices"])["tables"]["offices"][0]["id"].clone();
    let lines = r#"[
        {"RevenueReferralKey":"a","Payment":9999999999999999.99,"Annotations":null},
        {"RevenueReferralKey":"a","Payment":9999999999999999.99,"Annotations":[]},
        {"RevenueReferralKey":"a","Payment":9999999999999999.99},
        {"RevenueReferralKey":"","Payment":1e16,"SellerInfo":"Ola\u0000\n\"🙂\"","Annotations":[
            {"PaymentChange":0.10,"Annotation":"<i>&amp;<\/i>","AnnotationDate":"2026-10-25T02:30:00"},
            {"PaymentChange":"0.10","Annotation":"","Zeta":1.0}]}]"#;
    let month = jiff::Zoned::now().date().first_of_month();
    let path = format!("/api/Offices/{office_id}/RevenueJournals");
    scripted.answer_at(&path, Some(&format!("fromDate={month}")), lines);
    scripted.sync(true);

    let rest = format!(
        "WHERE journal_id = {office_id} AND journal_month = '{month}' ORDER BY line_number"
    );
    let what = "line_number, revenue_referral_key, payment, seller_info, _extra";
    let stored = scripted.everywhere("revenue_journals", what, &rest);
    let limit = Some("9999999999999999.99");
    let expected = [
        [Some("1"), Some("a"), limit, None, None],
        [Some("2"), Some("a"), limit, None, None],
        [Some("3"), Some("a"), limit, None, None],
        [Some("4"), Some(""), None, Some("Ola\0\n\"🙂\""), Some(r#"{"Payment":1e16}"#)],
    ];
    assert_eq!(stored, expected.map(owned));

    let what = "line_number, position, payment_change, annotation, annotation_date, _extra";
    let stored =
        scripted.everywhere("revenue_journal_annotations", what, &format!("{rest}, position"));
    let first = Some("2026-10-25 00:30:00+00");
    let expected = [
        [Some("4"), Some("1"), Some("0.10"), Some("<i>&amp;</i>"), first, None],
        [
            Some("4"),
            Some("2"),
            None,
            Some(""),
            None,
            Some(r#"{"PaymentChange":"0.10","Zeta":1.0}"#),
        ],
    ];
    assert_eq!(stored, expected.map(owned));
}

#[test]
fn what_is_read_again_unchanged_makes_no_version_and_what_is_mended_keeps_the_old_one() {
    let scripted = Scripted::new();
    let first = r#"{"Id":1,"Amount":1e400,"Comment":"a\u0000\n🏠","FromDate":"2026-10-25T02:30:00.1234567","New":-0.0}"#;
    scripted.answer(&COSTS, &[first.to_owned()]);
    scripted.sync(true);
    let what = "_synced_at";
    let synced = scripted.rows(&COSTS, what);
    assert_status(&scripted.world.run(&["sync", "--full"]), 3);
    assert_eq!(scripted.rows(&COSTS, what), synced);
    let of_case = format!("FROM history.costs WHERE case_id = {}", scripted.case_id);
    let versions = format!("SELECT count(*) {of_case} AND cost_type = 'Buyer'");
    assert_eq!(one::<i64>(&scripted.world.store(), &versions), 0);

    scripted.world.sandbox.clear_faults();
    scripted.answer(&COSTS, &[r#"{"Id":1,"Amount":12.50,"Comment":""}"#.to_owned()]);
    assert_status(&scripted.world.run(&["sync", "--full"]), 0);
    let what = "amount, comment, from_date, _extra";
    assert_eq!(scripted.rows(&COSTS, what), [owned([Some("12.50"), Some(""), None, None])]);
    assert_eq!(scripted.rejects("costs"), [[None; 0]; 0]);
    let earlier = format!("SELECT {what} {of_case} AND cost_type = 'Buyer'");
    let expected = owned([
        None,
        Some("a\0\n🏠"),
        Some("2026-10-25 00:30:00.123456+00"),
        Some(r#"{"Amount":1e400,"New":-0.0}"#),
    ]);
    for conn in [scripted.world.store(), scripted.world.published()] {
        assert_eq!(texts(&conn, &earlier), std::slice::from_ref(&expected));
    }
}

/// Fields of a table in `sync.drift` with their examples, as the store and its copy have them.
fn drift(scripted: &Scripted, table: &str) -> Vec<Vec<Option<String>>> {
    let sql =
        format!("SELECT field, example FROM sync.drift WHERE table_name = '{table}' ORDER BY ALL");
    let stored = texts(&scripted.world.store(), &sql);
    assert_eq!(texts(&scripted.world.published(), &sql), stored);
    stored
}

fn owned<const N: usize>(row: [Option<&str>; N]) -> Vec<Option<String>> {
    row.iter().map(|cell| cell.map(str::to_owned)).collect()
}
