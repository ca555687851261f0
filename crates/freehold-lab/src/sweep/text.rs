//! TOML with the line of every key and value, and errors that name them.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::settings::nearest;

/// A line of a file, from 1.
pub(super) type Line = usize;

/// What is wrong, and in which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) line: Line,
    pub(super) what: String,
}

/// A problem in a line, for `Result::map_err` and the like.
pub(super) fn problem(line: Line, what: impl Into<String>) -> Problem {
    Problem { line, what: what.into() }
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: Line,
    pub(super) value: Value,
}

/// A value of a list.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) line: Line,
    pub(super) value: Value,
}

/// A value, as far as the files of the lab have them.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    /// Decimal digits, perhaps with a sign and a fraction.
    Number(String),
    List(Vec<Item>),
    /// In the order of the text.
    Table(Vec<Entry>),
    /// What has no use here, by the name of its type.
    Other(&'static str),
}

impl Value {
    /// The type, with its article.
    pub(super) fn type_name(&self) -> String {
        let name = match self {
            Value::Text(_) => "string",
            Value::Number(_) => "number",
            Value::List(_) => "list",
            Value::Table(_) => "table",
            Value::Other(name) => name,
        };
        let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        format!("{article} {name}")
    }
}

/// Reads a file's text.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, Problem> {
    // What is missing at the end of the file is told of its last line.
    let last = text.lines().count().max(1);
    let before = |span: Range<usize>| text[..span.start.min(text.len())].matches('\n').count();
    let line = |span| (before(span) + 1).min(last);
    let document = DeTable::parse(text)
        .map_err(|error| problem(line(error.span().unwrap_or(0..0)), error.message()))?;
    Ok(entries(document.get_ref(), &line))
}

fn entries(table: &DeTable<'_>, line: &impl Fn(Range<usize>) -> Line) -> Vec<Entry> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<_>)| Entry {
        key: AsRef::<str>::as_ref(key.get_ref()).to_owned(),
        line: line(key.span()),
        value: read(value.get_ref(), line),
    };
    entries.into_iter().map(entry).collect()
}

fn read(value: &DeValue<'_>, line: &impl Fn(Range<usize>) -> Line) -> Value {
    // TOML allows underscores between digits and a leading plus, which Rust's parsers do not.
    let number =
        |digits: &str| Value::Number(digits.replace('_', "").trim_start_matches('+').to_owned());
    match value {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Integer(integer) if integer.radix() == 10 => number(integer.as_str()),
        DeValue::Integer(_) => Value::Other("integer that is not decimal"),
        DeValue::Float(float) => number(float.as_str()),
        DeValue::Array(list) => {
            let item = |item: &toml::Spanned<DeValue<'_>>| Item {
                line: line(item.span()),
                value: read(item.get_ref(), line),
            };
            Value::List(list.iter().map(item).collect())
        }
        DeValue::Table(table) => Value::Table(entries(table, line)),
        DeValue::Boolean(_) => Value::Other("boolean"),
        DeValue::Datetime(_) => Value::Other("date or time"),
    }
}

impl Entry {
    /// The values of a list; a value that is not a list is a list of one. A list without values is
    /// a mistake: it would take away all cells.
    pub(super) fn items(self) -> Result<Vec<Item>, Problem> {
        match self.value {
            Value::List(items) if items.is_empty() => {
                Err(problem(self.line, format!("{}: the list has no values", self.key)))
            }
            Value::List(items) => Ok(items),
            value => Ok(vec![Item { line: self.line, value }]),
        }
    }

    /// The entries of a table.
    pub(super) fn table(self) -> Result<Vec<Entry>, Problem> {
        match self.value {
            Value::Table(entries) => Ok(entries),
            other => Err(wrong_type(self.line, &self.key, &other, "a table")),
        }
    }
}

impl Item {
    /// A text. `key` is whose value it is.
    pub(super) fn text(&self, key: &str) -> Result<&str, Problem> {
        match &self.value {
            Value::Text(text) => Ok(text),
            other => Err(wrong_type(self.line, key, other, "a string")),
        }
    }

    /// A whole number from `least` on.
    pub(super) fn whole(&self, key: &str, least: u64, most: u64) -> Result<u64, Problem> {
        let Value::Number(digits) = &self.value else {
            return Err(wrong_type(self.line, key, &self.value, "a whole number"));
        };
        let number = digits.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| {
            let range = match most {
                u64::MAX => format!("from {least}"),
                _ => format!("from {least} to {most}"),
            };
            problem(self.line, format!("{key} is {digits}, expected a whole number {range}"))
        })
    }
}

fn wrong_type(line: Line, key: &str, value: &Value, expected: &str) -> Problem {
    problem(line, format!("{key} is {}, expected {expected}", value.type_name()))
}

/// A name that is none of the known ones, with the nearest of them.
pub(super) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("unknown {what} `{name}`, did you mean `{near}`?"),
        None => format!("unknown {what} `{name}`; there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_and_value_has_its_line() {
        let text =
            "a = 1_000\n[t]\nlist = [\n  'x',\n  2.5,\n]\n[[run]]\n\n[[run]]\nset.b = true\n";
        let top = parse(text).unwrap();
        let lines: Vec<_> = top.iter().map(|entry| (entry.key.as_str(), entry.line)).collect();
        assert_eq!(lines, [("a", 1), ("t", 2), ("run", 7)]);
        assert!(matches!(&top[0].value, Value::Number(digits) if digits == "1000"));
        let list = top[1].clone().table().unwrap()[0].clone().items().unwrap();
        assert_eq!(list.iter().map(|item| item.line).collect::<Vec<_>>(), [4, 5]);
        let runs = top[2].clone().items().unwrap();
        assert_eq!(runs.iter().map(|item| item.line).collect::<Vec<_>>(), [7, 9]);
        assert_eq!(parse("a = 1\nb = \n").unwrap_err().line, 2);
    }

    #[test]
    fn a_value_of_the_wrong_type_is_named_with_what_is_expected() {
        let item = |text: &str| parse(text).unwrap().remove(0).items().unwrap().remove(0);
        let error = item("seed = 'one'").whole("seed", 0, u64::MAX).unwrap_err();
        assert_eq!(error.what, "seed is a string, expected a whole number");
        let error = item("cpus = -1").whole("cpus", 1, 9).unwrap_err();
        assert_eq!(error.what, "cpus is -1, expected a whole number from 1 to 9");
        let error = item("design = 3").text("design").unwrap_err();
        assert_eq!(error.what, "design is a number, expected a string");
        assert!(parse("x = []").unwrap().remove(0).items().is_err());
    }
}
