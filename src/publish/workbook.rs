//! Rows of the store as sheets of a workbook (`.xlsx`), for people without other tools.

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
/// Characters of a cell. The CSV file has longer texts whole.
const MOST_CHARACTERS: usize = 32_767;
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

/// A workbook that is being written; rows wait in a temporary file.
pub(super) struct Workbook<'a> {
    book: Book,
    zone: &'a TimeZone,
}

impl<'a> Workbook<'a> {
    /// An empty one, whose times are shown in `zone`.
    pub(super) fn new(zone: &'a TimeZone) -> Workbook<'a> {
        Workbook { book: Book::new(), zone }
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
        let texts = columns.iter().map(|column| {
            let name = sql::ident(&column.name);
            match column.shown {
                Shown::Instant => format!("CAST(epoch_us({name}) AS VARCHAR)"),
                _ => format!("CAST({name} AS VARCHAR)"),
            }
        });
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
                    write(sheet, (at, n), &value, column, zone).map_err(|e| failed(name, e))?;
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
    pub(super) fn save(mut self, path: &Path) -> Result<()> {
        self.book.save(path).map_err(|e| match e {
            XlsxError::IoError(e) => io("write", path, e),
            e => failed(&path.display().to_string(), e),
        })
    }
}

fn failed(what: &str, error: XlsxError) -> Error {
    Error::caused(Kind::Io, format!("cannot write the workbook ({what})"), error)
}

fn write(
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
            let micros = value.parse().ok();
            if let Some(at) = from_micros(micros).and_then(|at| excel_instant(at, zone)) {
                sheet.write_datetime_with_format(row, column, &at, format)?;
                return Ok(());
            }
        }
        Shown::Boolean => {
            sheet.write_boolean(row, column, value == "true")?;
            return Ok(());
        }
        Shown::Text => {}
    }
    let cut = value.char_indices().nth(MOST_CHARACTERS).map_or(value, |(end, _)| &value[..end]);
    sheet.write_string(row, column, cut).map(drop)
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

fn excel_instant(at: Timestamp, zone: &TimeZone) -> Option<ExcelDateTime> {
    let local = at.to_zoned(zone.clone());
    let part = |number: i8| u8::try_from(number).ok();
    let time = (u16::try_from(local.hour()).ok()?, part(local.minute())?, local.second());
    excel_date(local.date())?.and_hms(time.0, time.1, f64::from(time.2)).ok()
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
