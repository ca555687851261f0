//! The text format of Prometheus, version 0.0.4, for the crates of this repository: one line for
//! each number, so it needs no library.

/// Metrics whose names begin with the same prefix.
#[derive(Debug)]
pub struct Metrics {
    prefix: &'static str,
    text: String,
}

impl Metrics {
    /// None yet.
    pub const fn new(prefix: &'static str) -> Self {
        Metrics { prefix, text: String::new() }
    }

    /// Appends a metric and its values, each behind its labels, which may be empty.
    pub fn add(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        values: impl IntoIterator<Item = (String, u64)>,
    ) {
        let name = format!("{}{name}", self.prefix);
        self.text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in values {
            let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
            self.text += &format!("{name}{labels} {value}\n");
        }
    }

    /// A label with its value.
    pub fn label(name: &str, value: &str) -> String {
        let escaped = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        format!("{name}=\"{escaped}\"")
    }

    /// The text of all of them.
    pub fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_braces_are_only_around_some() {
        let mut metrics = Metrics::new("freehold_");
        let values = [(Metrics::label("a", "x\"\\\ny"), 1), (String::new(), u64::MAX)];
        metrics.add("things_total", "counter", "What there is.", values);
        let text = "\
# HELP freehold_things_total What there is.
# TYPE freehold_things_total counter
freehold_things_total{a=\"x\\\"\\\\\\ny\"} 1
freehold_things_total 18446744073709551615
";
        assert_eq!(metrics.into_text(), text);
    }
}
