//! Charts of the page, as SVG. Their colours are marks that the page's style replaces, so that they follow
//! the light and the dark mode.

use plotters::prelude::{
    ChartBuilder, Color, IntoDrawingArea, IntoFont, RGBColor, Rectangle, SVGBackend,
};

use crate::error::{Error, Kind, Result};

/// What the style knows as bars, lines and text.
const BAR: RGBColor = RGBColor(1, 1, 1);
const LINE: RGBColor = RGBColor(2, 2, 2);
const TEXT: RGBColor = RGBColor(3, 3, 3);

/// How large a chart is drawn, in pixels of the page: text that is scaled is too small, or too large.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) width: u32,
    pub(super) height: u32,
    /// Labels below the bars.
    pub(super) labels: usize,
}

/// On a phone.
pub(super) const NARROW: Size = Size { width: 330, height: 170, labels: 4 };
/// Two beside each other.
pub(super) const HALF: Size = Size { width: 560, height: 190, labels: 8 };
/// As wide as the page.
pub(super) const WHOLE: Size = Size { width: 1160, height: 220, labels: 12 };

/// Bars, each with what stands below it, from left to right.
///
/// # Errors
/// `Internal` where it cannot be drawn.
pub(super) fn bars(bars: &[(String, i64)], size: Size) -> Result<String> {
    let mut svg = String::new();
    draw(bars, size, &mut svg)
        .map_err(|e| Error::new(Kind::Internal, format!("cannot draw a chart: {e}")))?;
    // As wide as there is room for, and without the size that it was drawn with. What it shows is said beside
    // it.
    let sized = format!("width=\"{}\" height=\"{}\" ", size.width, size.height);
    Ok(svg.replacen(&sized, "aria-hidden=\"true\" focusable=\"false\" ", 1))
}

fn draw(bars: &[(String, i64)], size: Size, svg: &mut String) -> std::result::Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| e.to_string();
    let area = SVGBackend::with_string(svg, (size.width, size.height)).into_drawing_area();
    let highest = bars.iter().map(|(_, value)| *value).max().unwrap_or(0).max(4);
    let count = i32::try_from(bars.len()).map_err(|e| failed(&e))?;
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .x_label_area_size(22)
        .y_label_area_size(40)
        .build_cartesian_2d(0..count.max(1), 0..highest + highest / 10)
        .map_err(|e| failed(&e))?;
    let label = |at: &i32| {
        let bar = usize::try_from(*at).ok().and_then(|at| bars.get(at));
        bar.map(|(label, _)| label.clone()).unwrap_or_default()
    };
    // The backend takes a size for the height of a line.
    let font = ("sans-serif", 15).into_font().color(&TEXT);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(LINE.mix(0.0))
        .bold_line_style(LINE)
        .axis_style(LINE)
        .x_labels(size.labels)
        .y_labels(4)
        .x_label_formatter(&label)
        .y_label_formatter(&|value| short(*value))
        .label_style(font)
        .draw()
        .map_err(|e| failed(&e))?;
    let rectangles = (0..count).zip(bars).map(|(at, (_, value))| {
        let mut bar = Rectangle::new([(at, 0), (at + 1, *value)], BAR.filled());
        bar.set_margin(0, 0, 1, 1);
        bar
    });
    chart.draw_series(rectangles).map_err(|e| failed(&e))?;
    area.present().map_err(|e| failed(&e))
}

/// `12`, `12k`, `12M`: short enough for an axis.
fn short(value: i64) -> String {
    match value {
        ..10_000 => value.to_string(),
        10_000..1_000_000 => format!("{}k", value / 1_000),
        _ => format!("{}M", value / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(values: &[i64]) -> Vec<(String, i64)> {
        values.iter().enumerate().map(|(at, value)| (format!("m{at}"), *value)).collect()
    }

    #[test]
    fn every_value_is_a_bar_whatever_it_is() {
        for values in [&[][..], &[0], &[0, 0, 0], &[1, 7, 3], &[i64::MAX / 4, 0]] {
            for size in [NARROW, HALF, WHOLE] {
                let svg = bars(&named(values), size).unwrap();
                assert_eq!(svg.matches("fill=\"#010101\"").count(), values.len(), "{values:?}");
                let has_size = svg.contains(&format!("width=\"{}\" height", size.width));
                assert!(svg.contains("viewBox") && !has_size, "{svg}");
            }
        }
    }

    #[test]
    fn a_label_is_text_whatever_stands_in_it() {
        let svg = bars(&[("<b>&".to_owned(), 1)], HALF).unwrap();
        assert!(!svg.contains("<b>"), "{svg}");
    }

    #[test]
    fn numbers_of_an_axis_are_short() {
        let all = [0, 9_999, 10_000, 999_999, 1_000_000, 12_345_678].map(short);
        assert_eq!(all, ["0", "9999", "10k", "999k", "1M", "12M"]);
    }
}
