//! Numbers as people read them.

/// A number with three digits.
pub(crate) fn shown(value: f64, unit: &str) -> String {
    if unit == "%" {
        return format!("{value:.1} %");
    }
    if unit == "ns" && value.abs() >= 1e3 {
        let (scaled, unit) =
            if value.abs() >= 1e6 { (value / 1e6, "ms") } else { (value / 1e3, "µs") };
        return shown(scaled, unit);
    }
    let (scaled, prefix) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let decimals = match scaled.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let space = if prefix.is_empty() && unit.is_empty() { "" } else { " " };
    format!("{scaled:.decimals$}{space}{prefix}{unit}")
}

/// A time in its largest unit, up to milliseconds.
pub(crate) fn time_in_words(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.1} µs", ns / 1e3),
        _ => format!("{:.1} ms", ns / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = |value| shown(value, "");
        assert_eq!(shown(0.0), "0");
        assert_eq!((shown(1234.0), shown(45_600_000.0)), ("1.23 k".into(), "45.6 M".into()));
        assert_eq!(super::shown(241_000.0, "ns"), "241 µs");
        assert_eq!((shown(0.25), shown(12.34)), ("0.25".into(), "12.3".into()));
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time_in_words(999.4), "999 ns");
        assert_eq!(time_in_words(1_500.0), "1.5 µs");
        assert_eq!(time_in_words(2.5e6), "2.5 ms");
    }
}
