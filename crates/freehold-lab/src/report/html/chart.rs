//! Charts as SVG: small enough for a phone, with colours that a page can change.
//!
//! Colours are variables of CSS with a default, so that a figure looks right by itself, in a light
//! page and in a dark one.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::words::shown;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// As wide as a phone's screen.
const WIDTH: u32 = 440;
const LINE: i32 = 18;
const FONT: i32 = 12;

/// What is drawn in these colours is given a variable of CSS in their place.
const TEXT: RGBColor = RGBColor(1, 2, 3);
const GRID: RGBColor = RGBColor(2, 3, 4);
/// Of series: told apart by people who do not see all colours (Okabe and Ito).
const SERIES: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(240, 228, 66),
    RGBColor(120, 120, 120),
];

/// A named list of numbers.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
}

/// A named list of points.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Bars from left to right, a group for each label: side by side, or one behind the other.
pub(crate) fn bars(
    labels: &[String],
    series: &[Series],
    stacked: bool,
    unit: &str,
) -> Result<String> {
    let value =
        |series: &Series, row: usize| series.values.get(row).copied().unwrap_or(0.0).max(0.0);
    let length = |row: usize| {
        let values = series.iter().map(|series| value(series, row));
        if stacked { values.sum() } else { values.fold(0.0, f64::max) }
    };
    let longest = (0..labels.len()).map(length).fold(0.0, f64::max);
    let longest = if longest > 0.0 { longest } else { 1.0 };
    let bar = if stacked || series.len() == 1 { 14 } else { 8 };
    let group = if stacked { bar } else { bar * series.len() as i32 } + 8;
    let named = if series.len() > 1 { series } else { &[] };
    let names: Vec<_> = named.iter().map(|series| series.name.clone()).collect();
    let top = legend_height(&names);
    let left = labels.iter().map(|label| text_width(label)).max().unwrap_or(0) + 8;
    let right = 62;
    let height = top + group * labels.len() as i32 + 24;
    figure(height, |area| {
        legend(area, &names)?;
        let scale = f64::from(WIDTH as i32 - left - right) / longest;
        for (row, label) in labels.iter().enumerate() {
            let y = top + group * row as i32;
            text(area, label, (left - 6, y + (group - 8) / 2), HPos::Right, VPos::Center)?;
            let mut x = 0.0;
            for (nth, series) in series.iter().enumerate() {
                let value = value(series, row);
                let (from, at) = if stacked { (x, y) } else { (0.0, y + bar * nth as i32) };
                let pixels = |value: f64| left + (value * scale).round() as i32;
                let corners = [(pixels(from), at), (pixels(from + value), at + bar - 1)];
                area.draw(&Rectangle::new(corners, colour(nth).filled())).map_err(failed)?;
                x += value;
            }
            let end = left + (length(row) * scale).round() as i32 + 4;
            let shown = shown(length(row), unit);
            text(area, &shown, (end, y + (group - 8) / 2), HPos::Left, VPos::Center)?;
        }
        Ok(())
    })
}

/// Lines over a common axis, with points where there are values. `dashed` is drawn behind them. The
/// vertical axis begins at 0, unless the lines are about how a number changes.
pub(crate) fn lines(
    lines: &[Line],
    dashed: Option<&Line>,
    from_zero: bool,
    (x_name, y_name): (&str, &str),
) -> Result<String> {
    let mut names: Vec<_> = lines.iter().map(|line| line.name.clone()).collect();
    names.extend(dashed.map(|line| line.name.clone()));
    let top = legend_height(&names);
    let points = || lines.iter().chain(dashed).flat_map(|line| line.points.iter().copied());
    let most = |of: fn((f64, f64)) -> f64| points().map(of).fold(0.0, f64::max);
    let (x_max, y_max) = (most(|point| point.0).max(1e-9), most(|point| point.1).max(1e-9));
    let least = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let room = ((y_max - least) * 0.05).max(y_max * 0.01);
    let y_min = if from_zero { 0.0 } else { (least - room).max(0.0) };
    figure(top + 250, |area| {
        legend(area, &names)?;
        let (_, below) = area.split_vertically(top);
        let mut chart = ChartBuilder::on(&below)
            .margin_right(14)
            .margin_top(6)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..x_max, y_min..y_max + room)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc(x_name)
            .y_desc(y_name)
            .x_labels(6)
            .y_labels(6)
            .axis_style(GRID)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(font())
            .x_label_formatter(&|value| shown(*value, ""))
            .y_label_formatter(&|value| shown(*value, ""))
            .draw()
            .map_err(failed)?;
        if let Some(line) = dashed {
            let style = colour(lines.len()).stroke_width(1);
            let series = DashedLineSeries::new(line.points.iter().copied(), 5, 4, style);
            chart.draw_series(series).map_err(failed)?;
        }
        for (nth, line) in lines.iter().enumerate() {
            let style = colour(nth).stroke_width(2);
            let points = || line.points.iter().copied();
            chart.draw_series(LineSeries::new(points(), style)).map_err(failed)?;
            let marks = points().map(|point| Circle::new(point, 2, colour(nth).filled()));
            chart.draw_series(marks).map_err(failed)?;
        }
        Ok(())
    })
}

/// Points, each with its name beside it.
pub(crate) fn scatter(
    points: &[(String, f64, f64)],
    (x_name, y_name): (&str, &str),
) -> Result<String> {
    let most = |of: fn(&(String, f64, f64)) -> f64| points.iter().map(of).fold(0.0, f64::max);
    let (x_max, y_max) = (most(|point| point.1).max(1e-9), most(|point| point.2).max(1e-9));
    figure(260, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_right(70)
            .margin_top(14)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..x_max * 1.1, 0.0..y_max * 1.1)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc(x_name)
            .y_desc(y_name)
            .x_labels(5)
            .y_labels(5)
            .axis_style(GRID)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(font())
            .x_label_formatter(&|value| shown(*value, ""))
            .y_label_formatter(&|value| shown(*value, ""))
            .draw()
            .map_err(failed)?;
        let marks = points
            .iter()
            .enumerate()
            .map(|(nth, (_, x, y))| Circle::new((*x, *y), 4, colour(nth).filled()));
        chart.draw_series(marks).map_err(failed)?;
        // From the top down; names of points that lie together are drawn one below the other.
        let place =
            |(name, x, y): &(String, f64, f64)| (chart.backend_coord(&(*x, *y)), name.clone());
        let mut names: Vec<_> = points.iter().map(place).collect();
        names.sort_by_key(|((_, y), _)| *y);
        let mut taken: Vec<(i32, i32)> = Vec::new();
        for ((x, mut y), name) in names {
            let lowest = taken.iter().filter(|other| (other.0 - x).abs() < 90).map(|other| other.1);
            y = y.max(lowest.max().map_or(i32::MIN, |lowest| lowest + 13));
            taken.push((x, y));
            text(area, &name, (x + 8, y), HPos::Left, VPos::Center)?;
        }
        Ok(())
    })
}

/// A map of shares from 0 to 1: a row for each moment, the first on top.
pub(crate) fn heat(rows: &[Vec<f64>], (x_name, y_name): (&str, &str)) -> Result<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let (left, bottom, cell) = (24, 22, 9);
    let height = cell * rows.len() as i32 + bottom + 4;
    figure(height, |area| {
        let width = f64::from(WIDTH as i32 - left - 6) / columns as f64;
        for (row, shares) in rows.iter().enumerate() {
            // Neighbours that look alike are one rectangle, which makes a small file.
            let tone = |share: &f64| (share.clamp(0.0, 1.0) * 20.0).round();
            let mut first = 0;
            for alike in shares.chunk_by(|one, other| tone(one) == tone(other)) {
                let x = |column: usize| left + (column as f64 * width).round() as i32;
                let y = 4 + cell * row as i32;
                let corners = [(x(first), y), (x(first + alike.len()), y + cell)];
                let style = colour(0).mix(tone(&alike[0]) / 20.0 * 0.95 + 0.05).filled();
                area.draw(&Rectangle::new(corners, style)).map_err(failed)?;
                first += alike.len();
            }
        }
        text(area, x_name, (left, height - 6), HPos::Left, VPos::Center)?;
        let style = font().transform(FontTransform::Rotate270).color(&TEXT);
        area.draw(&Text::new(y_name.to_owned(), (4, height - bottom), style)).map_err(failed)
    })
}

/// Draws, and replaces colours by variables.
fn figure(height: i32, draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let backend = SVGBackend::with_string(&mut svg, (WIDTH, height.max(1) as u32));
        let area = backend.into_drawing_area();
        draw(&area)?;
        area.present().map_err(failed)?;
    }
    let mut variables =
        vec![(TEXT, "text".to_owned(), "#333333"), (GRID, "grid".to_owned(), "#d0d0d0")];
    variables.extend(SERIES.iter().enumerate().map(|(nth, of)| (*of, format!("series-{nth}"), "")));
    for (colour, name, default) in variables {
        let hex = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
        let default = if default.is_empty() { hex.clone() } else { default.to_owned() };
        svg = svg.replace(&format!("\"{hex}\""), &format!("\"var(--{name}, {default})\""));
    }
    Ok(svg)
}

fn colour(nth: usize) -> RGBColor {
    SERIES[nth % SERIES.len()]
}

fn font() -> TextStyle<'static> {
    ("sans-serif", FONT).into_font().color(&TEXT)
}

fn text(area: &Area<'_>, text: &str, at: (i32, i32), h: HPos, v: VPos) -> Result<()> {
    let style = font().pos(Pos::new(h, v));
    area.draw(&Text::new(text.to_owned(), at, style)).map_err(failed)
}

/// About how wide a text is: what draws the figure is not known here.
fn text_width(text: &str) -> i32 {
    text.chars().count() as i32 * 7
}

/// The place of each name in the lines above a figure.
fn legend_places(names: &[String]) -> Vec<(i32, i32)> {
    let (mut x, mut y) = (4, 4);
    let mut places = Vec::new();
    for name in names {
        let width = text_width(name) + 26;
        if x > 4 && x + width > WIDTH as i32 {
            (x, y) = (4, y + LINE);
        }
        places.push((x, y));
        x += width;
    }
    places
}

fn legend_height(names: &[String]) -> i32 {
    legend_places(names).last().map_or(4, |(_, y)| y + LINE + 6)
}

fn legend(area: &Area<'_>, names: &[String]) -> Result<()> {
    for (nth, (name, (x, y))) in names.iter().zip(legend_places(names)).enumerate() {
        let corners = [(x, y + 2), (x + 11, y + 13)];
        area.draw(&Rectangle::new(corners, colour(nth).filled())).map_err(failed)?;
        text(area, name, (x + 16, y + 8), HPos::Left, VPos::Center)?;
    }
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("a figure cannot be drawn: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let labels = ["one".to_owned(), "two".to_owned()];
        let series = [Series { name: "a".to_owned(), values: vec![1.0, 2.0] }];
        let svg = bars(&labels, &series, false, "").unwrap();
        let widths: Vec<f64> = svg
            .split("<rect ")
            .skip(1)
            .filter_map(|rect| rect.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert_eq!(widths.len(), 2, "{svg}");
        assert!((widths[1] / widths[0] - 2.0).abs() < 0.05, "{widths:?}");
        assert!(svg.contains("var(--series-0, #0072B2)") && svg.contains("var(--text, #333333)"));
    }
}
