//! Rows of the store as sheets of a workbook (`.xlsx`), for people without other tools.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use duckdb::Connection;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use rust_xlsxwriter::{
    DocProperties, ExcelDateTime, Format, Workbook as Book, Worksheet, XlsxError,
};

use crate::error::{Error, Kind, Result, io};
use crate::sql::{self, db, from_micros};

/// Rows of a sheet, its header included; what is more goes on in another sheet.
const MOST_ROWS: u32 = 1_048_576;
/// UTF-16 units of a cell. The CSV file has longer texts whole.
const MOST_UNITS: usize = 32_767;
/// Ends a text that was cut.
const CUT: char = '…';
/// Significant digits that Excel keeps. A number of more is written as text, so that none is lost.
const MOST_DIGITS: usize = 15;
/// A column is no wider than so many characters, and no narrower.
const WIDTHS: (i64, i64) = (8, 60);

/// Number of the paper's size.
const A4: u8 = 9;

/// How the values of a column are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Text,
    Integer,
    /// Two decimals, negative amounts in red.
    Money,
    Fraction,
    Date,
    Instant,
    Boolean,
}

impl Shown {
    /// By the type that DuckDB gives a column.
    fn of(kind: &str) -> Shown {
        match kind {
            "BIGINT" | "INTEGER" | "HUGEINT" => Shown::Integer,
            "DATE" => Shown::Date,
            "TIMESTAMP WITH TIME ZONE" => Shown::Instant,
            "BOOLEAN" => Shown::Boolean,
            money if money.starts_with("DECIMAL") && money.ends_with(",2)") => Shown::Money,
            fraction if fraction.starts_with("DECIMAL") => Shown::Fraction,
            _ => Shown::Text,
        }
    }

    fn format(self) -> Format {
        let format = Format::new();
        match self {
            Shown::Integer => format.set_num_format("0"),
            Shown::Money => format.set_num_format("#,##0.00;[Red]-#,##0.00"),
            Shown::Fraction => format.set_num_format("0.00####;[Red]-0.00####"),
            Shown::Date => format.set_num_format("yyyy-mm-dd"),
            Shown::Instant => format.set_num_format("yyyy-mm-dd hh:mm:ss"),
            Shown::Text | Shown::Boolean => format,
        }
    }
}

struct Column {
    name: String,
    shown: Shown,
    format: Format,
    /// In characters.
    width: f64,
}

impl Column {
    /// SQL for the text of its values.
    fn text_of(shown: Shown, name: &str) -> String {
        let name = sql::ident(name);
        match shown {
            // As DuckDB writes it, too: neither jiff nor Excel has all of its times.
            Shown::Instant => format!("epoch_us({name}) || ' ' || {name}"),
            _ => format!("CAST({name} AS VARCHAR)"),
        }
    }
}

/// Writes a workbook of what `fill` adds to it, whose times are shown in `zone`. Its rows wait on the disk that it goes to.
///
/// # Errors
/// Those of `fill`; `DiskFull`, `Io`.
pub(super) fn write(
    path: &Path,
    zone: &TimeZone,
    fill: impl FnOnce(&mut Workbook<'_>) -> Result<()>,
) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = catch_unwind(AssertUnwindSafe(|| {
        let mut workbook = Workbook::new(zone, folder)?;
        fill(&mut workbook)?;
        workbook.save(path)
    }));
    // The library panics where rows find no room.
    written.unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<String>().map_or("it was given up", String::as_str);
        let kind = if why.contains("StorageFull") { Kind::DiskFull } else { Kind::Io };
        Err(Error::new(kind, format!("cannot write {}: {why}", path.display())))
    })
}

/// A workbook that is being written; rows wait in a temporary file.
pub(super) struct Workbook<'a> {
    book: Book,
    zone: &'a TimeZone,
}

impl<'a> Workbook<'a> {
    /// An empty one, whose times are shown in `zone`, and whose rows wait in `folder`.
    fn new(zone: &'a TimeZone, folder: &Path) -> Result<Workbook<'a>> {
        let mut book = Book::new();
        book.set_tempdir(folder).map_err(|e| failed(&folder.display().to_string(), e))?;
        Ok(Workbook { book, zone })
    }

    /// What it says of its own making: the time of its content, so that equal content gives equal bytes.
    pub(super) fn created_at(&mut self, at: Option<Timestamp>) -> Result<()> {
        let seconds = at.map_or(0, Timestamp::as_second);
        let at = ExcelDateTime::from_timestamp(seconds).map_err(|e| failed("date", e))?;
        let properties = DocProperties::new().set_creation_datetime(&at).set_author("casemirror");
        self.book.set_properties(&properties);
        Ok(())
    }

    /// Adds the rows of a query as a sheet of this name; as several where one cannot hold them.
    pub(super) fn add(&mut self, conn: &Connection, name: &str, query: &str) -> Result<()> {
        let columns = columns(conn, query)?;
        let reading = |e| db(&format!("cannot read the rows of {name}"), e);
        let texts = columns.iter().map(|column| Column::text_of(column.shown, &column.name));
        let texts = texts.collect::<Vec<_>>().join(", ");
        let mut statement =
            conn.prepare(&format!("SELECT {texts} FROM ({query})")).map_err(reading)?;
        let mut rows = statement.query([]).map_err(reading)?;

        let zone = self.zone;
        let mut part = 1;
        let mut sheet = self.begin(name, &columns)?;
        let mut at = 1;
        while let Some(row) = rows.next().map_err(reading)? {
            if at == MOST_ROWS {
                part += 1;
                at = 1;
                sheet = self.begin(&format!("{name} {part}"), &columns)?;
            }
            for (n, column) in (0..).zip(&columns) {
                let value: Option<String> = row.get(usize::from(n)).map_err(reading)?;
                if let Some(value) = value {
                    write_cell(sheet, (at, n), &value, column, zone)
                        .map_err(|e| failed(name, e))?;
                }
            }
            at += 1;
        }
        Ok(())
    }

    /// A new sheet with its header.
    fn begin(&mut self, name: &str, columns: &[Column]) -> Result<&mut Worksheet> {
        let sheet = self.book.add_worksheet_with_constant_memory().map_err(|e| failed(name, e))?;
        let header = Format::new().set_bold();
        let begin = |sheet: &mut Worksheet| -> std::result::Result<(), XlsxError> {
            sheet.set_name(name)?.set_freeze_panes(1, 0)?;
            // Printed, all columns are on one page, below their names.
            sheet.set_landscape().set_paper_size(A4).set_print_fit_to_pages(1, 0);
            sheet.set_repeat_rows(0, 0)?;
            for (n, column) in (0..).zip(columns) {
                sheet.set_column_width(n, column.width)?;
                sheet.write_string_with_format(0, n, &column.name, &header)?;
            }
            Ok(())
        };
        begin(sheet).map_err(|e| failed(name, e))?;
        Ok(sheet)
    }

    /// Writes it.
    fn save(mut self, path: &Path) -> Result<()> {
        self.book.save(path).map_err(|e| match e {
            XlsxError::IoError(e) => io("write", path, e),
            e => failed(&path.display().to_string(), e),
        })
    }
}

fn failed(what: &str, error: XlsxError) -> Error {
    Error::caused(Kind::Io, format!("cannot write the workbook ({what})"), error)
}

fn write_cell(
    sheet: &mut Worksheet,
    (row, column): (u32, u16),
    value: &str,
    as_: &Column,
    zone: &TimeZone,
) -> std::result::Result<(), XlsxError> {
    let format = &as_.format;
    match as_.shown {
        Shown::Integer | Shown::Money | Shown::Fraction => {
            if let Some(number) = number(value) {
                sheet.write_number_with_format(row, column, number, format)?;
                return Ok(());
            }
        }
        Shown::Date => {
            if let Some(date) = value.parse().ok().and_then(excel_date) {
                sheet.write_datetime_with_format(row, column, &date, format)?;
                return Ok(());
            }
        }
        Shown::Instant => {
            return match instant(value, zone) {
                Ok(at) => sheet.write_datetime_with_format(row, column, &at, format),
                Err(text) => sheet.write_string(row, column, text),
            }
            .map(drop);
        }
        Shown::Boolean => {
            sheet.write_boolean(row, column, value == "true")?;
            return Ok(());
        }
        Shown::Text => {}
    }
    sheet.write_string(row, column, shortened(value)).map(drop)
}

/// A text as a cell can hold it.
fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= MOST_UNITS || text.encode_utf16().count() <= MOST_UNITS {
        return text.into();
    }
    let mut units = CUT.len_utf16();
    let fits = |c: &char| {
        units += c.len_utf16();
        units <= MOST_UNITS
    };
    let mut cut: String = text.chars().take_while(fits).collect();
    cut.push(CUT);
    cut.into()
}

/// A decimal as a workbook keeps it. A number of up to 15 significant digits comes out of a binary float
/// digit by digit as it went in; `None` where it has more.
fn number(text: &str) -> Option<f64> {
    let digits = text.bytes().filter(u8::is_ascii_digit).skip_while(|digit| *digit == b'0');
    if digits.count() > MOST_DIGITS {
        return None;
    }
    text.parse().ok()
}

/// `None` before 1900, where Excel has no days.
fn excel_date(date: Date) -> Option<ExcelDateTime> {
    let part = |number: i8| u8::try_from(number).ok();
    ExcelDateTime::from_ymd(
        u16::try_from(date.year()).ok()?,
        part(date.month())?,
        part(date.day())?,
    )
    .ok()
}

/// The time of a clock in `zone`; as a text where Excel has none such, and in UTC where jiff has not.
fn instant(text: &str, zone: &TimeZone) -> std::result::Result<ExcelDateTime, String> {
    let (micros, in_utc) = text.split_once(' ').unwrap_or((text, text));
    let local = from_micros(micros.parse().ok()).ok_or(in_utc)?.to_zoned(zone.clone());
    let part = |number: i8| u8::try_from(number).ok();
    let excel = || {
        let date = excel_date(local.date())?;
        let hour = u16::try_from(local.hour()).ok()?;
        date.and_hms(hour, part(local.minute())?, f64::from(local.second())).ok()
    };
    excel().ok_or_else(|| local.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// The columns of a query, as wide as their longest value.
fn columns(conn: &Connection, query: &str) -> Result<Vec<Column>> {
    let described = sql::query(
        conn,
        &format!("SELECT column_name, column_type FROM (DESCRIBE {query})"),
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)),
    )?;
    let longest = described.iter().map(|(name, _)| {
        format!("coalesce(max(length(CAST({} AS VARCHAR))), 0)", sql::ident(name))
    });
    let longest = longest.collect::<Vec<_>>().join(", ");
    let lengths = sql::query(conn, &format!("SELECT {longest} FROM ({query})"), |row| {
        (0..described.len()).map(|n| row.get::<_, i64>(n)).collect::<duckdb::Result<Vec<i64>>>()
    })?;
    let lengths = lengths.into_iter().flatten().chain(std::iter::repeat(0));
    Ok(described
        .into_iter()
        .zip(lengths)
        .map(|((name, kind), length)| {
            let shown = Shown::of(&kind);
            let length = match shown {
                // With the separators of thousands.
                Shown::Money => length + length / 3,
                // Shown without fractions of a second and offset.
                Shown::Instant => 19,
                _ => length,
            };
            let header = i64::try_from(name.len()).unwrap_or(WIDTHS.1);
            #[expect(clippy::cast_precision_loss, reason = "a handful of characters")]
            let width = (length.max(header) + 2).clamp(WIDTHS.0, WIDTHS.1) as f64;
            Column { format: shown.format(), name, shown, width }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_that_excel_has_not_is_a_text_of_the_same_clock() {
        let conn = Connection::open_in_memory().unwrap();
        let zone = TimeZone::get("Europe/Oslo").unwrap();
        let shown = |at: &str| {
            let query = format!("SELECT TIMESTAMPTZ '{at}+00' AS at");
            let text = Column::text_of(Shown::Instant, "at");
            let value: String = conn
                .query_row(&format!("SELECT {text} FROM ({query})"), [], |row| row.get(0))
                .unwrap();
            match instant(&value, &zone) {
                Ok(_) => "a time".to_owned(),
                Err(text) => text,
            }
        };
        assert_eq!(shown("2026-10-31 23:30:00"), "a time");
        assert_eq!(shown("1899-12-29 23:00:00"), "1899-12-30 00:00:00");
        assert_eq!(shown("9999-12-30 12:00:00"), "a time");
        assert_eq!(shown("9999-12-31 23:59:59"), "9999-12-31 23:59:59+00");
    }

    #[test]
    fn rows_wait_beside_the_workbook_and_what_finds_no_room_is_no_defect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("book.xlsx");
        let nowhere = folder.path().join("missing").join("book.xlsx");
        let utc = TimeZone::UTC;
        assert_eq!(write(&nowhere, &utc, |_| Ok(())).unwrap_err().kind(), Kind::Io);
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = write(&path, &utc, |_| panic!("cannot write to a temporary file: {full:?}"));
        assert_eq!(error.unwrap_err().kind(), Kind::DiskFull);
        let conn = Connection::open_in_memory().unwrap();
        write(&path, &utc, |workbook| workbook.add(&conn, "one", "SELECT 1 AS n")).unwrap();
        assert!(path.exists());
    }

    #[test]
    fn a_text_that_no_cell_holds_ends_in_a_mark() {
        let long = "x".repeat(MOST_UNITS);
        assert_eq!(shortened(&long), long);
        let cut = shortened(&(long.clone() + "x")).into_owned();
        assert_eq!((cut.chars().count(), cut.chars().last()), (MOST_UNITS, Some(CUT)));
        // Each takes two units.
        let cut = shortened(&"😀".repeat(MOST_UNITS)).into_owned();
        assert_eq!(cut.encode_utf16().count(), MOST_UNITS);
    }
}
