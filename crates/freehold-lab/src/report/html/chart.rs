//! Charts as SVG: small enough for a phone, with colours that a page can change.
//!
//! Colours are variables of CSS with a default, so that a figure looks right by itself, in a light
//! page and in a dark one.

use maud::{Markup, html};

use crate::report::words::shown;

/// As wide as a phone's screen.
const WIDTH: f64 = 440.0;
const LINE: f64 = 18.0;

const TEXT: &str = "var(--text, #333333)";
const GRID: &str = "var(--grid, #d0d0d0)";
/// Of series: told apart by people who do not see all colours (Okabe and Ito).
const SERIES: [&str; 8] = [
    "var(--series-0, #0072b2)",
    "var(--series-1, #e69f00)",
    "var(--series-2, #009e73)",
    "var(--series-3, #cc79a7)",
    "var(--series-4, #56b4e9)",
    "var(--series-5, #d55e00)",
    "var(--series-6, #b8a800)",
    "var(--series-7, #787878)",
];

/// A named list of numbers.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
}

/// A named list of points.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// A bar below each label, with a part for each series.
pub(crate) fn bars(labels: &[String], series: &[Series], unit: &str) -> Markup {
    let parts = |row: usize| series.iter().map(move |series| series.values[row].max(0.0));
    let longest = (0..labels.len()).map(|row| parts(row).sum()).fold(1e-9, f64::max);
    let named = if series.len() > 1 { series } else { &[] };
    let (legend, top) = legend(named.iter().map(|series| &*series.name));
    let row_height = 2.0 * LINE;
    figure(
        top + row_height * labels.len() as f64,
        html! {
            (legend)
            @for (row, label) in labels.iter().enumerate() {
                @let y = top + row_height * row as f64;
                // The number stands behind the bar.
                @let ends = parts(row).scan(0.0, |end, part| {
                    let start = *end;
                    *end += part / longest * (WIDTH - 66.0);
                    Some((start, *end))
                });
                @let ends = ends.collect::<Vec<_>>();
                text x="0" y=(y + 12.0) { (label) }
                @for (nth, (start, end)) in ends.iter().enumerate() {
                    rect x=(px(*start)) y=(y + LINE) width=(px(end - start)) height="13"
                        fill=(colour(nth)) {}
                }
                text x=(px(ends.last().map_or(0.0, |of| of.1) + 4.0)) y=(y + LINE + 11.0) {
                    (shown(parts(row).sum(), unit))
                }
            }
        },
    )
}

/// Lines over axes that begin at 0, with points where there are values. `dashed` lies behind them.
pub(super) fn lines(lines: &[Line], dashed: &Line, (x_name, y_name): (&str, &str)) -> Markup {
    let all = || lines.iter().chain([dashed]);
    let (legend, top) = legend(all().map(|line| &*line.name));
    let most = |of: fn(&(f64, f64)) -> f64| {
        all().flat_map(|line| &line.points).map(of).fold(1e-9, f64::max)
    };
    let (x_max, y_max) = (most(|point| point.0), most(|point| point.1));
    let (left, right, bottom) = (56.0, WIDTH - 14.0, top + 230.0);
    let x = |value: f64| px(left + value / x_max * (right - left));
    let y = |value: f64| px(bottom - value / y_max * 200.0);
    let path = |line: &Line| -> String {
        line.points.iter().map(|point| format!("{},{} ", x(point.0), y(point.1))).collect()
    };
    figure(
        bottom + 36.0,
        html! {
            (legend)
            text x="0" y=(top + 12.0) { (y_name) }
            @for tick in ticks(y_max) {
                path d=(format!("M{left},{} H{right}", y(tick))) stroke=(GRID) {}
                text x=(left - 6.0) y=(y(tick) + 4.0) text-anchor="end" { (shown(tick, "")) }
            }
            @for tick in ticks(x_max) {
                text x=(x(tick)) y=(bottom + 16.0) text-anchor="middle" { (tick) }
            }
            text x=(right) y=(bottom + 32.0) text-anchor="end" { (x_name) }
            polyline points=(path(dashed)) fill="none" stroke=(colour(lines.len()))
                stroke-dasharray="5 4" {}
            @for (nth, line) in lines.iter().enumerate() {
                polyline points=(path(line)) fill="none" stroke=(colour(nth)) stroke-width="2" {}
                @for point in &line.points {
                    circle cx=(x(point.0)) cy=(y(point.1)) r="2.5" fill=(colour(nth)) {}
                }
            }
        },
    )
}

fn figure(height: f64, content: Markup) -> Markup {
    html! {
        svg xmlns="http://www.w3.org/2000/svg" role="img" width=(WIDTH) height=(height)
            viewBox=(format!("0 0 {WIDTH} {height}")) fill=(TEXT) font-family="sans-serif"
            font-size="12" { (content) }
    }
}

fn colour(nth: usize) -> &'static str {
    SERIES[nth % SERIES.len()]
}

/// A coordinate with as many digits as can be seen.
fn px(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// From three to six round numbers, from 0 to at most `max`.
fn ticks(max: f64) -> impl Iterator<Item = f64> {
    let power = 10_f64.powf((max / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0].map(|of| of * power).into_iter().find(|step| step * 5.0 >= max);
    let step = step.unwrap_or(10.0 * power);
    (0..=5).map(move |nth| step * f64::from(nth)).take_while(move |tick| *tick <= max)
}

/// Names with their colours, and how high they are.
fn legend<'n>(names: impl Iterator<Item = &'n str>) -> (Markup, f64) {
    let (mut x, mut y, mut places) = (0.0, 0.0, Vec::new());
    for name in names {
        // About: what draws the figure is not known here.
        let width = name.chars().count() as f64 * 7.0 + 26.0;
        if x > 0.0 && x + width > WIDTH {
            (x, y) = (0.0, y + LINE);
        }
        places.push((name, x, y));
        x += width;
    }
    let height = if places.is_empty() { 0.0 } else { y + LINE + 6.0 };
    let names = html! {
        @for (nth, (name, x, y)) in places.iter().enumerate() {
            rect x=(x) y=(y + 2.0) width="11" height="11" fill=(colour(nth)) {}
            text x=(x + 16.0) y=(y + 12.0) { (name) }
        }
    };
    (names, height)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let labels = ["one".to_owned(), "<two>".to_owned()];
        let series = [Series { name: "a".to_owned(), values: vec![1.0, 2.0] }];
        let svg = bars(&labels, &series, "").into_string();
        let widths: Vec<f64> = svg
            .split("<rect ")
            .skip(1)
            .filter_map(|rect| rect.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert_eq!(widths.len(), 2, "{svg}");
        assert!((widths[1] / widths[0] - 2.0).abs() < 0.05, "{widths:?}");
        assert!(svg.contains("var(--series-0, #0072b2)") && svg.contains("&lt;two&gt;"), "{svg}");
    }

    #[test]
    fn ticks_are_round_numbers() {
        let ticks = |max| ticks(max).collect::<Vec<_>>();
        assert_eq!(ticks(112.0), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(4.0), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(ticks(1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
    }
}
