//! Machines from a TOML file: figures over a base machine, with errors that name the line.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::near::nearest;
use super::usual::usual;
use super::{BadSpec, Figure, Key, Spec, UnknownMachine, check_value, preset};

/// Why a machine file was refused. Displays as `file:line: what is wrong`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct FileError {
    /// The name of the file, as the caller gave it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, naming the key.
    pub problem: String,
}

/// A value with the name of its key and its place in the file.
struct Entry<'a, 'i> {
    name: &'a str,
    value: &'a DeValue<'i>,
    span: Range<usize>,
}

/// What a file may give for each node.
#[derive(Default)]
struct Lists {
    node_gib: Vec<f64>,
    distances: Vec<u8>,
}

/// The key of the distances between nodes, which are no figure.
const DISTANCES: (&str, &str) = ("memory", "distances");

/// What people call a key, and its name.
const OTHER_NAMES: [(&str, &str); 13] = [
    ("cores_per_socket", "cores_per_llc"),
    ("cxl_gb_per_s", "memory_only_gb_per_s"),
    ("cxl_gib", "node_gib"),
    ("cxl_ns", "memory_only_ns"),
    ("l3_kib", "llc_kib"),
    ("l3_ns", "llc_ns"),
    ("lpe_cores", "lp_cores"),
    ("nps", "nodes_per_socket"),
    ("numa_nodes", "nodes_per_socket"),
    ("size_gib", "node_gib"),
    ("smt", "threads_per_core"),
    ("snc", "nodes_per_socket"),
    ("threads", "threads_per_core"),
];

/// A problem and its position in the text.
type Problem = (Range<usize>, String);

impl Spec {
    /// Reads a machine from the text of a file. `file` is only used in errors and sources.
    ///
    /// The text has a `base`, which names a preset, and tables of figures that replace the base's.
    /// A figure is a number, or a table with `value` and `source`:
    ///
    /// ```
    /// let text = r#"
    /// name = "bigger-cache"
    /// base = "skylake-2s"
    /// [cache]
    /// llc_kib = 78848
    /// [latency]
    /// llc_ns = { value = 24.5, source = "measured with mlc" }
    /// "#;
    /// let spec = freehold_sim::Spec::from_toml("bigger.toml", text)?;
    /// assert_eq!(spec.get(freehold_sim::Key::LlcNs), 24.5);
    /// # Ok::<(), freehold_sim::FileError>(())
    /// ```
    ///
    /// Without a base every figure must be given.
    ///
    /// # Errors
    ///
    /// The line of the first text that is not TOML, key that is unknown (with the nearest known
    /// one), value of the wrong type or out of its range, figure that is missing, or topology that
    /// is too large.
    pub fn from_toml(file: &str, text: &str) -> Result<Spec, FileError> {
        read(file, text).map_err(|(span, problem)| FileError {
            file: file.to_owned(),
            // What is missing at the end of the file is told of its last line.
            line: (text[..span.start.min(text.len())].matches('\n').count() + 1)
                .min(text.lines().count().max(1)),
            problem,
        })
    }
}

fn read(file: &str, text: &str) -> Result<Spec, Problem> {
    let document = DeTable::parse(text)
        .map_err(|error| (error.span().unwrap_or(0..0), error.message().to_owned()))?;
    let mut top = entries(document.get_ref());
    let base = match take(&mut top, "base") {
        None => None,
        Some(entry) => {
            let name = string(&entry)?;
            let spec = preset(name)
                .map_err(|error: UnknownMachine| (entry.span.clone(), format!("base: {error}")))?;
            Some(spec)
        }
    };
    let name = take(&mut top, "name").map(|entry| string(&entry).map(str::to_owned)).transpose()?;
    let summary =
        take(&mut top, "summary").map(|entry| string(&entry).map(str::to_owned)).transpose()?;
    let mut figures: Vec<Option<Figure>> = match &base {
        Some(base) => base.figures().map(|(_, figure)| Some(taken_from(base, figure))).collect(),
        None => vec![None; Key::ALL.len()],
    };
    let mut lists = Lists::default();
    for table in &top {
        read_section(file, table, &mut figures, &mut lists)?;
    }
    let local_ns = figures[Key::DramLocalNs as usize].as_ref().map_or(0.0, |figure| figure.value);
    for &key in Key::ALL {
        let figure = &mut figures[key as usize];
        *figure = figure.take().or_else(|| usual(key, local_ns));
    }
    if let Some(missing) = Key::ALL.iter().find(|&&key| figures[key as usize].is_none()) {
        return Err((
            0..0,
            format!("{missing} is missing, and there is no `base` to take it from"),
        ));
    }
    let spec = Spec {
        name: name.unwrap_or_else(|| file.to_owned()),
        summary: summary.unwrap_or_else(|| match &base {
            Some(base) => format!("{} with changes from {file}", base.name()),
            None => format!("a machine from {file}"),
        }),
        figures: figures.into_iter().flatten().collect(),
        node_gib: lists.node_gib,
        distances: lists.distances,
    };
    spec.check().map_err(|BadSpec { reason, .. }| (0..0, reason))?;
    Ok(spec)
}

/// A figure of a machine that starts from this one.
fn taken_from(base: &Spec, figure: &Figure) -> Figure {
    let source = format!("taken from {}: {}", base.name, figure.source);
    Figure { value: figure.value, source: source.into() }
}

/// Reads one table of figures, such as `[latency]`.
fn read_section(
    file: &str,
    table: &Entry<'_, '_>,
    figures: &mut [Option<Figure>],
    lists: &mut Lists,
) -> Result<(), Problem> {
    let known = || Key::ALL.iter().map(|key| key.section()).chain(["name", "summary", "base"]);
    if !known().any(|section| section == table.name) {
        return Err((table.span.clone(), unknown(table.name, known())));
    }
    let DeValue::Table(values) = table.value else {
        let problem = format!("`{}` is {}, expected a table", table.name, type_of(table.value));
        return Err((table.span.clone(), problem));
    };
    let entries = entries(values);
    for entry in &entries {
        if (table.name, entry.name) == DISTANCES {
            lists.distances = read_distances(entry)?;
            continue;
        }
        // The plain name of the cores, where a machine has others as well.
        let name = if entry.name == "p_cores" { "cores_per_llc" } else { entry.name };
        let Some(key) = Key::find(table.name, name) else {
            return Err((entry.span.clone(), unknown_figure(table.name, entry.name)));
        };
        if name != entry.name && entries.iter().any(|other| other.name == name) {
            let problem = format!("`{}` is another name of `{name}`: give one", entry.name);
            return Err((entry.span.clone(), problem));
        }
        let (values, source) = read_figure(file, key, entry)?;
        let value = values.iter().copied().fold(f64::MIN, f64::max);
        figures[key as usize] = Some(Figure { value, source });
        if key == Key::NodeGib && values.len() > 1 {
            lists.node_gib = values;
        }
    }
    Ok(())
}

/// Reports an unknown key of a table of figures, with the one that was probably meant.
fn unknown_figure(table: &str, name: &str) -> String {
    let all = || Key::ALL.iter().filter(|key| key.section() == table).map(|key| key.name());
    let called = OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|(_, name)| *name);
    let elsewhere = Key::ALL.iter().find(|key| key.name() == called.unwrap_or(name));
    match (called, elsewhere) {
        (_, Some(key)) if key.section() != table => {
            format!(
                "[{table}] unknown key `{name}`, did you mean `{}` in [{}]?",
                key.name(),
                key.section()
            )
        }
        (Some(called), _) => format!("[{table}] unknown key `{name}`, did you mean `{called}`?"),
        _ => {
            let distances = (table == DISTANCES.0).then_some(DISTANCES.1);
            format!("[{table}] {}", unknown(name, all().chain(distances)))
        }
    }
}

/// Reads the distances between nodes: a list of rows.
fn read_distances(entry: &Entry<'_, '_>) -> Result<Vec<u8>, Problem> {
    let wrong = || {
        let problem = "memory.distances: expected a list of rows, each of numbers from 10 to \
                       255, such as [[10, 21], [21, 10]]";
        (entry.span.clone(), problem.to_owned())
    };
    let DeValue::Array(rows) = entry.value else { return Err(wrong()) };
    let mut distances = Vec::new();
    for row in rows.iter() {
        let DeValue::Array(row) = row.get_ref() else { return Err(wrong()) };
        if row.len() != rows.len() {
            return Err(wrong());
        }
        for distance in row.iter() {
            let DeValue::Integer(integer) = distance.get_ref() else { return Err(wrong()) };
            let distance = integer.as_str().parse().ok().filter(|&distance: &u8| distance >= 10);
            distances.push(distance.ok_or_else(wrong)?);
        }
    }
    Ok(distances)
}

/// Reads one figure: a number, or a table of `value` and `source`; a list of numbers where each
/// node has one.
fn read_figure(
    file: &str,
    key: Key,
    entry: &Entry<'_, '_>,
) -> Result<(Vec<f64>, Cow<'static, str>), Problem> {
    let mut source: Cow<'static, str> = Cow::Owned(format!("given in {file}"));
    let mut value = entry.value;
    if let DeValue::Table(fields) = entry.value {
        let mut fields = entries(fields);
        let given = take(&mut fields, "value")
            .ok_or_else(|| (entry.span.clone(), format!("{key} is a table without `value`")))?;
        if let Some(text) = take(&mut fields, "source") {
            source = Cow::Owned(string(&text)?.to_owned());
        }
        if let Some(other) = fields.first() {
            let problem = unknown(other.name, ["value", "source"].into_iter());
            return Err((other.span.clone(), format!("{key}: {problem}")));
        }
        value = given.value;
    }
    let at = |problem| (entry.span.clone(), problem);
    let values = match value {
        DeValue::Array(values) if key == Key::NodeGib && !values.is_empty() => {
            values.iter().map(|value| number(key, value.get_ref())).collect()
        }
        value => number(key, value).map(|value| vec![value]),
    };
    let values: Vec<f64> = values.map_err(at)?;
    // A node of several may have no memory.
    for &value in values.iter().filter(|&&value| value != 0.0 || values.len() == 1) {
        check_value(key, value).map_err(at)?;
    }
    Ok((values, source))
}

/// The entries of a table in the order of the text, so that errors are about the first line.
fn entries<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Entry<'a, 'i>> {
    let mut entries: Vec<_> = table
        .iter()
        .map(|(key, value): (&Spanned<_>, &Spanned<DeValue<'i>>)| Entry {
            name: key.get_ref(),
            value: value.get_ref(),
            span: key.span(),
        })
        .collect();
    entries.sort_by_key(|entry| entry.span.start);
    entries
}

/// Takes the entry of this name out of the list.
fn take<'a, 'i>(entries: &mut Vec<Entry<'a, 'i>>, name: &str) -> Option<Entry<'a, 'i>> {
    let at = entries.iter().position(|entry| entry.name == name)?;
    Some(entries.remove(at))
}

fn string<'a>(entry: &Entry<'a, '_>) -> Result<&'a str, Problem> {
    entry.value.as_str().ok_or_else(|| {
        let problem = format!("`{}` is {}, expected a string", entry.name, type_of(entry.value));
        (entry.span.clone(), problem)
    })
}

fn number(key: Key, value: &DeValue<'_>) -> Result<f64, String> {
    let wrong = |what: &str| format!("{key} is {what}, expected a number");
    // TOML allows underscores between digits and a leading plus, which Rust's parser does not.
    let parse = |digits: &str| {
        digits.replace('_', "").trim_start_matches('+').parse().map_err(|_| wrong(digits))
    };
    match value {
        DeValue::Integer(integer) if integer.radix() == 10 => parse(integer.as_str()),
        DeValue::Float(float) => parse(float.as_str()),
        other => Err(wrong(&type_of(other))),
    }
}

/// The type of a value for an error, with its article.
fn type_of(value: &DeValue<'_>) -> String {
    let name = value.type_str();
    let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {name}")
}

/// Reports an unknown key, with the nearest known one.
fn unknown(name: &str, known: impl Iterator<Item = &'static str>) -> String {
    match nearest(name, known) {
        Some(near) => format!("unknown key `{name}`, did you mean `{near}`?"),
        None => format!("unknown key `{name}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Spec::from_toml("m.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn figures_replace_those_of_the_base() {
        let text = "base = \"skylake-2s\"\nname = \"mine\"\n[latency]\nl2_ns = 5\n";
        let spec = Spec::from_toml("m.toml", text).unwrap();
        assert_eq!(spec.name(), "mine");
        assert_eq!(spec.get(Key::L2Ns), 5.0);
        assert_eq!(spec.figure(Key::L2Ns).source, "given in m.toml");
        assert_eq!(spec.get(Key::L1Ns), 1.1, "inherited");
    }

    #[test]
    fn errors_name_the_file_the_line_and_the_key() {
        assert_eq!(
            error("base = \"skylake-2s\"\n\n[latency]\nl2_sn = 5\n"),
            "m.toml:4: [latency] unknown key `l2_sn`, did you mean `l2_ns`?"
        );
        assert_eq!(
            error("base = \"skylake-2s\"\n[latencies]\n"),
            "m.toml:2: unknown key `latencies`, did you mean `latency`?"
        );
        assert_eq!(
            error("base = \"skylake-2s\"\n[latency]\nl1_ns = 1.1\nl2_ns = \"fast\"\n"),
            "m.toml:4: latency.l2_ns is a string, expected a number"
        );
        assert_eq!(
            error("base = \"skylake-2s\"\n[topology]\nsockets = 99\n"),
            "m.toml:3: topology.sockets is 99, expected 1 to 8"
        );
        assert_eq!(
            error("base = \"skylark-2s\"\n"),
            "m.toml:1: base: there is no machine `skylark-2s`, did you mean `skylake-2s`?"
        );
        assert_eq!(
            error("base = \"uma-2\"\n[latency]\nl2_ns = { value = 5, src = \"me\" }\n"),
            "m.toml:3: latency.l2_ns: unknown key `src`, did you mean `source`?"
        );
        assert_eq!(
            error("name = \"bare\"\n"),
            "m.toml:1: topology.sockets is missing, and there is no `base` to take it from"
        );
        assert!(error("name = \"x\"\nbase = \n").starts_with("m.toml:2: "));
    }

    #[test]
    fn near_misses_and_impossible_nodes_are_told_what_is_right() {
        for (text, line, problem) in [
            (
                "topology]\nnps = 4",
                3,
                "[topology] unknown key `nps`, did you mean `nodes_per_socket`?",
            ),
            (
                "memory]\nllc_kib = 4",
                3,
                "unknown key `llc_kib`, did you mean `llc_kib` in [cache]?",
            ),
            ("memory]\ncxl_ns = 4", 3, "`cxl_ns`, did you mean `memory_only_ns` in [latency]?"),
            ("memory]\ndistance = 4", 3, "unknown key `distance`, did you mean `distances`?"),
            ("topology]\np_cores = 4\ncores_per_llc = 4", 3, "is another name of `cores_per_llc`"),
            ("topology]\nnodes_per_socket = 4", 1, "is 1, expected a multiple of topology.nodes"),
            ("topology]\ne_cores = 4\n[cache]\ne_l2_kib = 16", 1, "larger than cache.e_l2_kib"),
            ("latency]\nl1_ns = [1]", 3, "latency.l1_ns is an array, expected a number"),
            ("memory]\nnode_gib = [0, 0]", 1, "memory.node_gib is 0, expected 0.0625 to 65536"),
            ("memory]\nnode_gib = [1, 1, 0]", 1, "has 0 for a node without CPUs: leave it out"),
            ("memory]\nnode_gib = [1, 2]\n[topology]\nsockets = 4", 1, "2 nodes, but 4 have CPUs"),
            ("memory]\ndistances = [[10]]", 1, "has 1 figures, expected 2 rows of 2"),
            (
                "memory]\ndistances = [[10, 9], [21, 10]]",
                3,
                "numbers from 10 to 255, such as [[10,",
            ),
        ] {
            let found = error(&format!("base = \"skylake-2s\"\n[{text}\n"));
            assert!(found.starts_with(&format!("m.toml:{line}: ")), "{found}: {text}");
            assert!(found.contains(problem), "{found}: {text}");
        }
    }

    #[test]
    fn lists_have_a_figure_a_node_and_files_without_a_base_need_not_name_the_usual() {
        let text = "base = 'skylake-2s'\n[memory]\n\
            node_gib = { value = [1.5, 2, 4], source = 'free' }\n\
            distances = [[10, 21, 14], [21, 10, 24], [14, 24, 10]]\n";
        let spec = Spec::from_toml("m.toml", text).unwrap();
        let node = freehold::NodeId::new;
        assert_eq!(spec.node_bytes(node(0)), 3 << 29);
        assert_eq!((spec.distance(node(1), node(2)), spec.distance(node(2), node(0))), (24, 14));
        assert_eq!(spec.figure(Key::NodeGib).source, "free");
        let base = preset("uma-2").unwrap();
        let given = Key::ALL.iter().filter(|&&key| usual(key, 1.0).is_none());
        let text: String = given
            .map(|&key| format!("{}.{} = {}\n", key.section(), key.name(), base.get(key)))
            .collect();
        let spec = Spec::from_toml("m.toml", &text).unwrap();
        assert_eq!((spec.get(Key::NodesPerSocket), spec.get(Key::ECores)), (1.0, 0.0));
    }

    mod fuzz {
        use std::time::Duration;

        use super::*;
        use crate::Machine;

        /// A machine that is accepted can be built, and its CPUs have nodes.
        fn check(text: &str) {
            match Spec::from_toml("m.toml", text) {
                Ok(spec) => {
                    assert!(spec.figures().all(|(_, figure)| figure.value.is_finite()));
                    let machine = Machine::new(&spec, 1).expect("it was checked");
                    for cpu in [0, spec.cpus() - 1] {
                        machine.spec().node_of(freehold::CpuId::new(cpu as u32));
                    }
                }
                Err(error) => {
                    let lines = text.lines().count().max(1);
                    assert!((1..=lines).contains(&error.line), "{error}");
                }
            }
        }

        #[test]
        fn any_machine_is_built_or_refused_with_a_line() {
            let check = |bytes: &[u8]| check(&String::from_utf8_lossy(bytes));
            bolero::check!().with_test_time(Duration::from_millis(200)).for_each(check);
        }
    }
}
