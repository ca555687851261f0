//! The texts of `lscpu` and `numactl --hardware`, of any version, as people paste them: quoted, in
//! lists, with other output around them.

use std::collections::BTreeMap;

/// What the texts say.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) cpus: Option<usize>,
    pub(super) has_offline_cpus: bool,
    pub(super) vendor: String,
    pub(super) family: Option<usize>,
    /// One for each type of core.
    pub(super) types: Vec<CpuType>,
    /// The first three levels of caches.
    pub(super) caches: [Option<Cache>; 3],
    /// How many nodes lscpu counts.
    pub(super) nodes_said: Option<usize>,
    pub(super) nodes: BTreeMap<usize, Node>,
    /// The rows of distances, by node.
    pub(super) distances: BTreeMap<usize, Vec<u8>>,
}

/// A type of core.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuType {
    pub(super) model: Option<String>,
    pub(super) threads: Option<usize>,
    pub(super) cores_per_socket: Option<usize>,
    pub(super) sockets: Option<usize>,
    cores_per_cluster: Option<usize>,
    clusters: Option<usize>,
    pub(super) max_mhz: f64,
}

impl CpuType {
    /// All cores of this type.
    pub(super) fn cores(&self) -> usize {
        match (self.cores_per_socket, self.cores_per_cluster) {
            (Some(cores), _) => cores * self.sockets.unwrap_or(1),
            (None, Some(cores)) => cores * self.clusters.unwrap_or(1),
            (None, None) => 0,
        }
    }
}

/// A level of caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cache {
    pub(super) kib: f64,
    /// Whether that is the size of one, as lscpu says up to version 2.33, and not of all.
    pub(super) is_of_one: bool,
    pub(super) count: Option<usize>,
}

/// A memory node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node {
    pub(super) has_cpus: Option<bool>,
    pub(super) mib: Option<f64>,
}

/// What to do if a text cannot be used.
const REMEDY: &str = "give what `LC_ALL=C lscpu` prints";

impl Facts {
    /// Reads texts. The error says what is missing.
    pub(super) fn read(text: &str) -> Result<Facts, String> {
        let mut facts = Facts::default();
        let (mut machines, mut in_distances) = (Vec::new(), false);
        for (number, line) in (1..).zip(text.lines()) {
            let line = without_quotes(line);
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim(), value.trim());
            if key == "Architecture" {
                machines.push(number);
            }
            in_distances |= key == "node distances";
            facts.take(key, value, in_distances);
        }
        if let [_, second, ..] = machines[..] {
            return Err(format!("line {second} begins a second machine: give one at a time"));
        }
        if facts.types.iter().any(|of| of.threads.is_some() && of.cores() > 0) {
            return Ok(facts);
        }
        // What lscpu prints of any machine, in all languages.
        let architectures = ["x86_64", "aarch64", "ppc64", "s390x", "riscv64", "i686"];
        let is_of_lscpu = |line: &str| {
            line.contains("CPU(s)") || architectures.iter().any(|name| line.contains(name))
        };
        Err(if !facts.nodes.is_empty() && facts.cpus.is_none() {
            format!("this is numactl's output alone, without caches and threads: also {REMEDY}")
        } else if text.lines().any(is_of_lscpu) {
            format!(
                "there is no `Thread(s) per core` and `Core(s) per socket`, perhaps since it is in \
                 another language: {REMEDY}"
            )
        } else {
            format!("this is no output of lscpu: {REMEDY}")
        })
    }

    fn take(&mut self, key: &str, value: &str, in_distances: bool) {
        // No machine has more of anything; sums of these stay small.
        let first = || value.split_whitespace().next()?.parse().ok();
        let number = || first().filter(|&number: &usize| number < 10_000);
        match key {
            "CPU(s)" => self.cpus = number(),
            "Off-line CPU(s) list" => self.has_offline_cpus = true,
            "Vendor ID" => self.vendor = value.to_owned(),
            "CPU family" => self.family = number(),
            "NUMA node(s)" => self.nodes_said = number(),
            "L1d cache" | "L1d" => self.caches[0] = cache(value),
            "L2 cache" | "L2" | "L2d cache" | "L2d" => self.caches[1] = cache(value),
            "L3 cache" | "L3" => self.caches[2] = cache(value),
            // Before the figures in new versions, behind them in old ones.
            "Model name" if self.types.last().is_none_or(|of| of.model.is_some()) => {
                self.types.push(CpuType { model: Some(value.to_owned()), ..CpuType::default() });
            }
            "Model name" => self.last_type().model = Some(value.to_owned()),
            "Thread(s) per core" => self.last_type().threads = number(),
            "Core(s) per socket" => self.last_type().cores_per_socket = number(),
            "Core(s) per cluster" => self.last_type().cores_per_cluster = number(),
            "Socket(s)" => self.last_type().sockets = number(),
            "Cluster(s)" => self.last_type().clusters = number(),
            "CPU max MHz" => {
                let mhz = value.parse().unwrap_or(0.0);
                self.last_type().max_mhz = mhz;
            }
            _ => self.take_node(key, value, in_distances),
        }
    }

    fn take_node(&mut self, key: &str, value: &str, in_distances: bool) {
        let words: Vec<&str> = key.split_whitespace().collect();
        let first = value.split_whitespace().next();
        match words[..] {
            ["NUMA", node, "CPU(s)"] => {
                if let Some(number) = node.strip_prefix("node").and_then(|node| node.parse().ok()) {
                    self.nodes.entry(number).or_default().has_cpus = Some(first.is_some());
                }
            }
            ["node", number, what @ ("cpus" | "size")] => {
                let Ok(number) = number.parse() else { return };
                let node = self.nodes.entry(number).or_default();
                match what {
                    "cpus" => node.has_cpus = Some(first.is_some()),
                    _ => node.mib = first.and_then(|mib| mib.parse().ok()),
                }
            }
            [number] if in_distances => {
                let row: Option<Vec<u8>> =
                    value.split_whitespace().map(|distance| distance.parse().ok()).collect();
                if let (Ok(number), Some(row)) = (number.parse(), row) {
                    self.distances.insert(number, row);
                }
            }
            _ => {}
        }
    }

    fn last_type(&mut self) -> &mut CpuType {
        if self.types.is_empty() {
            self.types.push(CpuType::default());
        }
        let last = self.types.len() - 1;
        &mut self.types[last]
    }
}

/// A line without marks of quotation and of lists, nor HTML's of paragraphs.
fn without_quotes(line: &str) -> String {
    let line = ["<p>", "</p>", "<br>", "<br/>"]
        .iter()
        .fold(line.to_owned(), |line, mark| line.replace(mark, ""));
    let marks = |c: char| c.is_whitespace() || ">|#*`-".contains(c);
    line.trim_start_matches(marks).trim_end_matches(marks).to_owned()
}

/// The size of a cache, such as `32K`, `4 MiB` or `1.5 MiB (48 instances)`.
fn cache(value: &str) -> Option<Cache> {
    let (size, count) = match value.split_once('(') {
        None => (value, None),
        Some((size, count)) => (size, count.split_whitespace().next()?.parse().ok()),
    };
    let digits = size.trim_start().find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = size.trim_start().split_at(digits);
    let kib_of_unit = match unit.trim().chars().next()? {
        'K' => 1.0,
        'M' => 1024.0,
        'G' => 1024.0 * 1024.0,
        _ => return None,
    };
    let is_of_one = count.is_none() && !unit.contains("iB");
    Some(Cache { kib: number.parse::<f64>().ok()? * kib_of_unit, is_of_one, count })
}
