//! The topology of a machine from what lscpu says of it, as far as a machine file can have it.

use freehold_sim::LLCS_MAX;

use super::text::{Cache, CpuType, Facts};

/// A machine as its file has it.
#[derive(Debug, Default)]
pub(super) struct Derived {
    pub(super) model: String,
    pub(super) base: &'static str,
    pub(super) cpus: usize,
    pub(super) sockets: usize,
    pub(super) nodes_per_socket: usize,
    pub(super) llcs_per_socket: usize,
    pub(super) cores_per_llc: usize,
    pub(super) e_cores: usize,
    pub(super) lp_cores: usize,
    pub(super) threads_per_core: usize,
    /// Sizes in KiB; absent ones are the base's.
    pub(super) l1_kib: Option<f64>,
    pub(super) l2_kib: Option<f64>,
    pub(super) e_l2_kib: Option<f64>,
    pub(super) llc_kib: f64,
    /// Of each node, those without CPUs last; empty if unknown.
    pub(super) node_gib: Vec<f64>,
    pub(super) distances: Vec<Vec<u8>>,
    /// Nodes without CPUs.
    pub(super) memory_only: usize,
    /// What a reader should know of how this follows from the text.
    pub(super) notes: Vec<String>,
}

/// How many cores there are of each class: P, E, low-power E.
struct Cores {
    of_class: [usize; 3],
    threads: usize,
}

impl Derived {
    pub(super) fn of(facts: &Facts) -> Derived {
        let mut derived = Derived { cpus: facts.cpus.unwrap_or(0), ..Derived::default() };
        let mut models: Vec<_> = facts.types.iter().filter_map(|of| of.model.clone()).collect();
        models.dedup();
        derived.model = models.join(" + ");
        derived.base = base(facts, &derived.model);
        let cores = derived.cores(facts);
        derived.threads_per_core = cores.threads;
        let with_cpus = derived.nodes(facts);
        derived.caches(facts, &cores, with_cpus);
        derived.memory(facts, with_cpus);
        derived
    }

    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    fn cores(&mut self, facts: &Facts) -> Cores {
        let threads = facts.types.iter().filter_map(|of| of.threads).max().unwrap_or(1).max(1);
        let total: usize = facts.types.iter().map(CpuType::cores).sum();
        if facts.types.len() > 1 {
            let mut types = facts.types.clone();
            types.sort_by(|a, b| b.max_mhz.total_cmp(&a.max_mhz));
            let of = |types: &[CpuType]| types.iter().map(CpuType::cores).sum();
            let slowest = if types.len() > 2 { types.len() - 1 } else { types.len() };
            self.note("the types of cores are ordered by CPU max MHz: P cores, E cores, slowest");
            let of_class = [types[0].cores(), of(&types[1..slowest]), of(&types[slowest..])];
            return Cores { of_class, threads };
        }
        // Where only some cores have a second thread, lscpu counts as if all had.
        let p_cores = self.cpus.saturating_sub(total) / (threads - 1).max(1);
        if threads > 1 && (1..total).contains(&p_cores) && !facts.has_offline_cpus {
            self.note(format!(
                "{} CPUs on {total} cores: {p_cores} cores have {threads} threads, so the others \
                 are E cores; low-power ones among them cannot be told, see lp_cores",
                self.cpus
            ));
            return Cores { of_class: [p_cores, total - p_cores, 0], threads };
        }
        if facts.has_offline_cpus {
            self.note("some CPUs are off-line: they count as there");
        } else if total * threads < self.cpus {
            // On s390 sockets are counted within books, and these within drawers.
            self.note(
                "there are more CPUs than the sockets have, as where they are counted within books",
            );
            return Cores { of_class: [self.cpus / threads, 0, 0], threads };
        }
        Cores { of_class: [total, 0, 0], threads }
    }

    /// Sets the sockets and nodes; returns how many nodes have CPUs.
    fn nodes(&mut self, facts: &Facts) -> usize {
        let said = facts.types.iter().filter_map(|of| of.sockets).max().unwrap_or(1).max(1);
        let listed = facts.nodes.values().filter(|node| node.has_cpus == Some(true)).count();
        let with_cpus = match (listed, facts.nodes_said) {
            (0, Some(nodes @ 1..)) => nodes,
            (0, _) => {
                self.note("no NUMA node is listed: each socket is taken as one");
                said
            }
            (listed, _) => listed,
        };
        self.sockets = said.min(with_cpus);
        if with_cpus % self.sockets != 0 {
            self.sockets = with_cpus;
        }
        if self.sockets != said {
            self.note(format!(
                "lscpu counts {said} as sockets and {with_cpus} as nodes with CPUs, as under a \
                 hypervisor or with interleaved memory: sockets = {}",
                self.sockets
            ));
        }
        self.nodes_per_socket = with_cpus / self.sockets;
        with_cpus
    }

    fn caches(&mut self, facts: &Facts, cores: &Cores, with_cpus: usize) {
        let [p_total, e_total, lp_total] = cores.of_class;
        let total: usize = p_total + e_total + lp_total;
        let even = |count: usize| ((count as f64 / with_cpus as f64).round() as usize).max(1);
        let p_of_node = even(p_total);
        if p_of_node * with_cpus != p_total {
            self.note(format!("{p_total} cores do not divide among {with_cpus} nodes: rounded"));
        }
        let each = |cache: &Cache, count: usize| match cache.is_of_one {
            true => cache.kib,
            false => cache.kib / cache.count.unwrap_or(count) as f64,
        };
        let [l1, mut l2, mut l3] = facts.caches;
        self.l1_kib = l1.map(|cache| each(&cache, total));
        if let (Some(cache), None) = (l2, l3)
            && cache.count.is_some_and(|count| count < total)
        {
            self.note("there is no L3, and cores share an L2: that is the last-level cache");
            (l3, l2) = (l2, None);
            self.l2_kib = self.l1_kib;
        }
        if let Some(cache) = l2 {
            let size = each(&cache, total);
            let parts = cache.count.unwrap_or(total);
            let is_hybrid = e_total + lp_total > 0;
            // The parts that P cores leave are shared by the others.
            let of_others = parts.saturating_sub(p_total) as f64 / (total - p_total).max(1) as f64;
            if is_hybrid {
                self.e_l2_kib = (parts > p_total).then(|| (size * of_others).round());
            }
            let shared = parts < total && !is_hybrid;
            self.l2_kib = Some(if shared { (cache.kib / total as f64).floor() } else { size });
            if shared {
                self.note(format!("{total} cores share {parts} L2 caches: each has its part"));
            }
        }
        self.e_cores = if e_total > 0 { even(e_total) } else { 0 };
        self.lp_cores = if lp_total > 0 { even(lp_total) } else { 0 };
        let Some(l3) = l3 else {
            self.note(
                "no last-level cache is listed: llc_kib = 0; where the system has one that lscpu \
                 does not see, give it",
            );
            (self.llcs_per_socket, self.cores_per_llc) = (self.nodes_per_socket, p_of_node);
            return;
        };
        let count = l3.count.unwrap_or_else(|| {
            let of_amd = match (facts.vendor.as_str(), facts.family) {
                ("AuthenticAMD", Some(..=23)) => Some(4),
                ("AuthenticAMD", Some(_)) => Some(8),
                _ => None,
            };
            let Some(complex) = of_amd.filter(|_| p_of_node > 1) else { return self.sockets };
            let cores = (1..=complex).rev().find(|cores| p_of_node % cores == 0).unwrap_or(1);
            p_total / cores
        });
        if l3.count.is_none() {
            self.note(format!("the number of L3 caches is not in the text: taken as {count}"));
        }
        let all_kib = if l3.is_of_one { l3.kib * count as f64 } else { l3.kib };
        let wanted = total as f64 / count.max(with_cpus) as f64;
        let is_possible = |cores: &usize| {
            p_of_node % cores == 0
                && p_of_node / cores * with_cpus <= LLCS_MAX
                && (total == p_total || *cores == p_of_node)
        };
        let distance = |cores: usize| (cores as f64 - wanted).abs();
        let nearest = (1..=p_of_node.min(4096))
            .filter(is_possible)
            .min_by(|&a, &b| distance(a).total_cmp(&distance(b)));
        self.cores_per_llc = nearest.unwrap_or(p_of_node);
        let llcs = p_of_node / self.cores_per_llc * with_cpus;
        if llcs != count {
            self.note(format!(
                "{count} L3 caches are described as {llcs}, of the same size in all"
            ));
        }
        self.llcs_per_socket = llcs / self.sockets;
        self.llc_kib = (all_kib / llcs as f64).round();
    }

    fn memory(&mut self, facts: &Facts, with_cpus: usize) {
        let has_memory = |mib: Option<f64>| mib.is_some_and(|mib| mib > 0.0);
        let listed = facts.nodes.iter();
        let (cpu_nodes, others): (Vec<_>, Vec<_>) =
            listed.partition(|(_, node)| node.has_cpus == Some(true));
        let others: Vec<_> = others.into_iter().filter(|(_, node)| has_memory(node.mib)).collect();
        let nodes: Vec<_> = cpu_nodes.into_iter().chain(others.iter().copied()).collect();
        let sizes: Option<Vec<f64>> = nodes.iter().map(|(_, node)| node.mib).collect();
        let Some(sizes) =
            sizes.filter(|sizes| sizes.len() >= with_cpus && sizes.iter().any(|&mib| mib > 0.0))
        else {
            self.note("the sizes of the nodes are not in the text; `numactl --hardware` has them");
            return;
        };
        let gib =
            |mib: &f64| if *mib > 0.0 { ((mib / 10.24).round() / 100.0).max(0.07) } else { 0.0 };
        self.node_gib = sizes.iter().map(gib).collect();
        self.memory_only = others.len();
        let order: Vec<usize> = nodes.iter().map(|(number, _)| **number).collect();
        let column = |number| facts.distances.keys().position(|&of| of == number);
        let row = |from: &usize| -> Option<Vec<u8>> {
            let row = facts.distances.get(from)?;
            order.iter().map(|&to| row.get(column(to)?).copied()).collect()
        };
        self.distances = order.iter().map(row).collect::<Option<_>>().unwrap_or_default();
        if self.distances.iter().flatten().any(|&distance| distance < 10) {
            self.distances.clear();
        }
        if order != (0..order.len()).collect::<Vec<_>>() {
            self.note(format!("the nodes here are numactl's {order:?}, those without CPUs last"));
        }
    }
}

/// The machine that comes with the tool and is nearest.
fn base(facts: &Facts, model: &str) -> &'static str {
    let has = |name: &str| model.contains(name);
    let epyc = model.split_once("EPYC ").map(|(_, rest)| rest.as_bytes());
    match epyc {
        Some([b'8' | b'9', _, _, b'4', ..]) => return "epyc-9654-2s",
        Some([b'8' | b'9', _, _, b'5', ..]) => return "epyc-9965-2s",
        _ => {}
    }
    match () {
        () if has("POWER") => "power9",
        () if has("Neoverse-N1") => "altra",
        () if has("Neoverse") || has("Cortex") || facts.vendor == "ARM" => "graviton-4",
        () if facts.vendor == "AuthenticAMD" => "epyc-2s",
        () if has("Xeon(R) 6") => "granite-rapids-2s",
        () if has("Core(TM)") => "desktop",
        () => "skylake-2s",
    }
}
