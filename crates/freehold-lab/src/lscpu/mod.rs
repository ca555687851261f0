//! `freehold machine from-lscpu`: a machine file from what lscpu and numactl print, and from what
//! `freehold survey` has measured.

mod derive;
mod text;

use std::fmt::Write;
use std::io::Read;

use anyhow::{Context, Result};
use freehold_sim::{Key, Spec, preset};

use crate::cli::FromLscpuArgs;
use crate::error::UsageError;
use crate::input;
use crate::report::out;
use derive::Derived;
use text::Facts;

/// Reads the texts and prints the machine.
pub(crate) fn from_lscpu(args: &FromLscpuArgs) -> Result<()> {
    let mut text = String::new();
    let mut names = Vec::new();
    for file in &args.files {
        let name = input::name_of(file);
        let mut bytes = Vec::new();
        input::open(file)
            .and_then(|mut input| input.read_to_end(&mut bytes))
            .with_context(|| format!("cannot read {name}"))?;
        text += &String::from_utf8_lossy(&bytes);
        text.push('\n');
        names.push(name);
    }
    let machine = machine_file(&text, &[])
        .map_err(|problem| UsageError(format!("{}: {problem}", names.join(", "))))?;
    out!("{}", machine.trim_end());
    Ok(())
}

/// A figure that was measured, and its unit's number.
pub(crate) type Measured = (Key, f64);

/// The machine file for the texts; the error says what they lack. Figures that were measured are in
/// the place of the nearest machine's.
pub(crate) fn machine_file(text: &str, measured: &[Measured]) -> Result<String, String> {
    let mut derived = Derived::of(&Facts::read(text)?);
    let file = rendered(&derived, measured);
    let spec = Spec::from_toml("the machine", &file)
        .map_err(|error| format!("it cannot be described: {}", error.problem))?;
    if derived.cpus > 0 && spec.cpus() != derived.cpus {
        derived.notes.push(format!(
            "lscpu has {} CPUs, this machine {}",
            derived.cpus,
            spec.cpus()
        ));
    }
    Ok(rendered(&derived, measured))
}

/// The machine of `freehold list machines` that is nearest to that of the texts.
pub(crate) fn nearest(text: &str) -> Result<&'static str, String> {
    Ok(Derived::of(&Facts::read(text)?).base)
}

fn rendered(derived: &Derived, measured: &[Measured]) -> String {
    let base = preset(derived.base).expect("it comes with the tool");
    let mut file = String::new();
    let mut line = |text: String| _ = writeln!(file, "{text}");
    line(match measured {
        [] => "# By `freehold machine from-lscpu`: what follows from lscpu and numactl. What does \
               not, is"
            .into(),
        _ => "# By `freehold survey`: what follows from lscpu and numactl, or was measured. The \
              rest is"
            .into(),
    });
    line(format!("# commented out, with the figure of {}: to be given.", derived.base));
    for note in &derived.notes {
        line(format!("# Note: {note}."));
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' };
    let words: String = derived.model.chars().map(plain).collect();
    let name: Vec<_> =
        words.split_whitespace().filter(|word| !["r", "tm", "cpu"].contains(word)).collect();
    let model = derived.model.replace(['"', '\\'], "");
    let model: String = model.chars().filter(|c| !c.is_control()).collect();
    let name = if name.is_empty() { "machine".to_owned() } else { name.join("-") };
    line(format!("name = \"{name}\"\nbase = \"{}\"", derived.base));
    line(format!("summary = \"{model}, {} CPUs, from lscpu\"", derived.cpus));
    // What the text does not say is in its place, as a comment with the base's figure.
    let figure = |key: Key| measured.iter().find(|(of, _)| *of == key).map(|(_, figure)| figure);
    let given = |key: Key, value: Option<String>| match (value, figure(key)) {
        (_, Some(figure)) => {
            format!("{} = {{ value = {figure:.1}, source = \"measured\" }}", key.name())
        }
        (Some(value), None) => format!("{} = {value}", key.name()),
        (None, None) => format!("# {} = {}", key.name(), base.get(key)),
    };
    line("\n[topology]".into());
    for (key, count) in [
        (Key::Sockets, derived.sockets),
        (Key::NodesPerSocket, derived.nodes_per_socket),
        (Key::LlcsPerSocket, derived.llcs_per_socket),
        (Key::CoresPerLlc, derived.cores_per_llc),
        (Key::ECores, derived.e_cores),
        (Key::LpCores, derived.lp_cores),
        (Key::ThreadsPerCore, derived.threads_per_core),
    ] {
        if count > 0 {
            line(given(key, Some(count.to_string())));
        }
    }
    line("\n[memory]".into());
    let sizes = (!derived.node_gib.is_empty()).then(|| format!("{:?}", derived.node_gib));
    line(given(Key::NodeGib, sizes));
    if !derived.distances.is_empty() {
        line(format!("distances = {:?}", derived.distances));
    }
    let part = base.get(Key::NodeGbPerS) / derived.nodes_per_socket as f64;
    let source = format!("derived: that of a socket of {}, divided", derived.base);
    let divided = format!("{{ value = {part:.1}, source = \"{source}\" }}");
    line(given(Key::NodeGbPerS, (derived.nodes_per_socket > 1).then_some(divided)));
    if derived.memory_only > 0 {
        line(given(Key::MemoryOnlyGbPerS, None));
    }
    line("\n[cache]".into());
    let has_e_cores = derived.e_cores + derived.lp_cores > 0;
    for (key, kib, is_there) in [
        (Key::L1Kib, derived.l1_kib, true),
        (Key::L2Kib, derived.l2_kib, true),
        (Key::EL2Kib, derived.e_l2_kib, has_e_cores),
        (Key::LlcKib, Some(derived.llc_kib), true),
    ] {
        if is_there {
            line(given(key, kib.map(|kib| kib.round().to_string())));
        }
    }
    line(match measured {
        [] => "\n# `freehold survey` measures most of these, and so does `mlc`: --latency_matrix, \
               --c2c_latency."
            .into(),
        _ => String::new(),
    });
    let is_there = |key: &Key| match key {
        Key::MemoryOnlyNs => derived.memory_only > 0,
        Key::DramSameSocketNs => derived.nodes_per_socket > 1,
        Key::ESlowdown => derived.e_cores > 0,
        Key::LpSlowdown => derived.lp_cores > 0,
        Key::SmtSlowdown => derived.threads_per_core > 1,
        key => match key.section() {
            "latency" | "transfer" => true,
            // It has a table of its own, above.
            "memory" => false,
            _ => figure(*key).is_some(),
        },
    };
    let mut section = "";
    for &key in Key::ALL.iter().filter(|key| is_there(key)) {
        if key.section() != section {
            section = key.section();
            let any = measured.iter().any(|(of, _)| of.section() == section);
            line(format!("{}[{section}]", if any { "" } else { "# " }));
        }
        line(given(key, None));
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPYC_NPS4: &str = "\
On Tue, 4 Mar, somebody wrote:
> the box:   (lscpu | head -30)
> Architecture:            x86_64
> CPU(s):                  384
>   On-line CPU(s) list:   0-383
> Vendor ID:               AuthenticAMD
>   BIOS Vendor ID:        AMD
>   Model name:            AMD EPYC 9654 96-Core Processor
>     CPU family:          25
>     Thread(s) per core:  2
>     Core(s) per socket:  96
>     Socket(s):           2
>     Flags:               fpu vme de pse: tsc
> Caches (sum of all):
>   L1d:                   6 MiB (192 instances)
>   L2:                    192 MiB (192 instances)
>   L3:                    768 MiB (24 instances)
> NUMA:
>   NUMA node(s):          8
>   NUMA node0 CPU(s):     0-23,192-215
";

    const NODES_WITH_CXL: &str = "\
available: 3 nodes (0-2)
node 0 cpus:
node 0 size: 131072 MB
node 1 cpus: 0 1
node 1 size: 64167 MB
node 1 free: 62245 MB
node 2 cpus: 2 3
node 2 size: 0 MB
node distances:
node   0   1   2
  0:  10  14  24
  1:  14  10  21
  2:  24  21  10
";

    fn old_lscpu(
        head: &str,
        (cpus, threads, cores, sockets): (usize, usize, usize, usize),
        tail: &str,
    ) -> String {
        format!(
            "{head}\nCPU(s):              {cpus}\nOn-line CPU(s) list: 0-{}\n\
             Thread(s) per core:  {threads}\nCore(s) per socket:  {cores}\n\
             Socket(s):           {sockets}\n{tail}",
            cpus - 1
        )
    }

    /// The machine of a text, and its file.
    fn machine(text: &str) -> (Spec, String) {
        let file = machine_file(text, &[]).unwrap_or_else(|problem| panic!("{problem}\n{text}"));
        (Spec::from_toml("m.toml", &file).unwrap(), file)
    }

    #[test]
    fn texts_become_machines() {
        use Key::*;
        let nodes = (0..8).map(|node| format!("> NUMA node{node} CPU(s):   {node}\n"));
        let nps4 = EPYC_NPS4.to_owned() + &nodes.collect::<String>();
        let power9 = old_lscpu(
            "Architecture:        ppc64le",
            (128, 4, 16, 2),
            "NUMA node(s):        2\nModel name:          POWER9 (raw), altivec supported\n\
             L1d cache:           32K\nL2 cache:            512K\nL3 cache:            10240K\n\
             NUMA node0 CPU(s):   0-63\nNUMA node8 CPU(s):   64-127\n",
        );
        let hybrid = old_lscpu(
            "Model name: Intel(R) Core(TM) Ultra 9 185H",
            (22, 2, 16, 1),
            "L1d cache: 544 KiB (14 instances)\nL2 cache: 18 MiB (9 instances)\n\
             L3 cache: 24 MiB (1 instance)\nNUMA node(s): 1\nNUMA node0 CPU(s): 0-21\n",
        );
        let guest = old_lscpu(
            "Vendor ID: GenuineIntel\nModel name: Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz",
            (4, 1, 1, 4),
            "Hypervisor vendor: VMware\nL3 cache: 27.5 MiB\nNUMA node(s): 0\nL1d cache: 32K\n",
        );
        let guest_of_one_node = guest.replace("NUMA node(s): 0", "NUMA node0 CPU(s): 0-3");
        let zen = old_lscpu(
            "Vendor ID: AuthenticAMD\nCPU family: 23\nModel name: AMD EPYC 7451 24-Core Processor",
            (96, 2, 24, 2),
            "L1d cache: 32K\nL2 cache: 512K\nL3 cache: 8192K\nNUMA node(s): 8\n",
        );
        let altra = old_lscpu(
            "Vendor ID: ARM\nModel name: Neoverse-N1",
            (80, 1, 80, 1),
            "L1d: 5 MiB (80 instances)\nL2: 80 MiB (80 instances)\nNUMA node(s): 1\n",
        );
        let little = "Vendor ID: ARM\nModel name: Cortex-A510\nThread(s) per core: 1\n\
            Core(s) per socket: 3\nSocket(s): 1\nCPU max MHz: 2016.0\n\
            Model name: Cortex-A715\nThread(s) per core: 1\nCore(s) per socket: 4\n\
            Socket(s): 1\nCPU max MHz: 2803.2\n\
            Model name: Cortex-X3\nThread(s) per core: 1\nCore(s) per cluster: 1\n\
            Socket(s): -\nCluster(s): 1\nCPU max MHz: 3187.2\n";
        let clusters = old_lscpu(
            "Model name: Cortex-A72",
            (16, 1, 16, 1),
            "L1d cache: 512 KiB (16 instances)\nL2 cache: 8 MiB (4 instances)\nNUMA node(s): 1\n",
        );
        let books = old_lscpu(
            "Architecture: s390x",
            (20, 1, 4, 1),
            "Book(s) per drawer: 5\nNUMA node(s): 1\nOff-line CPU(s) list:\n",
        );
        let with_cxl = old_lscpu("Model name: Intel(R) Xeon(R) 6960P", (4, 1, 2, 2), "")
            + "L3 cache: 864 MiB (2 instances)\n"
            + NODES_WITH_CXL;
        let table: &[(&str, &[(Key, f64)])] = &[
            (
                &nps4,
                &[
                    (Sockets, 2.0),
                    (NodesPerSocket, 4.0),
                    (LlcsPerSocket, 12.0),
                    (CoresPerLlc, 8.0),
                    (L1Kib, 32.0),
                    (LlcKib, 32768.0),
                    (NodeGbPerS, 115.2),
                    (LlcNs, 13.5),
                ],
            ),
            (&power9, &[(ThreadsPerCore, 4.0), (CoresPerLlc, 16.0), (L2Kib, 512.0), (L1Ns, 0.8)]),
            (&hybrid, &[(CoresPerLlc, 6.0), (ECores, 10.0), (L2Kib, 2048.0), (EL2Kib, 614.0)]),
            (&guest, &[(Sockets, 4.0), (CoresPerLlc, 1.0), (LlcKib, 7040.0)]),
            (&guest_of_one_node, &[(Sockets, 1.0), (CoresPerLlc, 4.0), (L2Kib, 1024.0)]),
            (&zen, &[(NodesPerSocket, 4.0), (LlcsPerSocket, 8.0), (CoresPerLlc, 3.0)]),
            (&altra, &[(CoresPerLlc, 80.0), (LlcKib, 0.0), (L2Kib, 1024.0), (L1Ns, 1.2)]),
            (little, &[(CoresPerLlc, 1.0), (ECores, 4.0), (LpCores, 3.0)]),
            (&clusters, &[(CoresPerLlc, 4.0), (LlcKib, 2048.0), (L2Kib, 32.0)]),
            (&books.replace("Off-line CPU(s) list:\n", ""), &[(CoresPerLlc, 20.0)]),
            (&books, &[(CoresPerLlc, 4.0)]),
            (&with_cxl, &[(Sockets, 2.0), (CoresPerLlc, 2.0), (LlcKib, 442368.0)]),
        ];
        for (text, figures) in table {
            let (spec, file) = machine(text);
            for &(key, value) in *figures {
                assert_eq!(spec.get(key), value, "{key}\n{text}\n{file}");
            }
        }
        let cpus =
            [&nps4, &power9, &hybrid, &guest, &zen, &altra].map(|text| machine(text).0.cpus());
        assert_eq!(cpus, [384, 128, 22, 4, 96, 80]);
        let (spec, file) = machine(&with_cxl);
        let node = freehold::NodeId::new;
        let mib = [0, 1, 2].map(|of| spec.node_bytes(node(of)) >> 20);
        assert_eq!(mib, [64163, 0, 131072], "the node without CPUs is last\n{file}");
        let distances = [(0, 1), (0, 2), (1, 2)].map(|(a, b)| spec.distance(node(a), node(b)));
        assert_eq!(distances, [21, 14, 24]);
        assert!(file.contains("# memory_only_ns = 275"), "{file}");
    }

    #[test]
    fn comments_can_be_turned_into_figures() {
        let (before, file) = machine(&old_lscpu("Model name: Xeon", (8, 2, 4, 1), ""));
        let is_figure =
            |line: &str| line.starts_with("# [") || line.contains(" = ") && !line.contains("Note");
        let bare = |line: &str| match line.strip_prefix("# ") {
            Some(figure) if is_figure(line) => figure.to_owned(),
            _ => line.to_owned(),
        };
        let all: Vec<String> = file.lines().map(bare).collect();
        let after = Spec::from_toml("m.toml", &all.join("\n")).unwrap();
        assert!(Key::ALL.iter().all(|&key| after.get(key) == before.get(key)), "{file}");
        assert_eq!(after.figure(Key::DramRemoteNs).source, "given in m.toml");
        assert_ne!(before.figure(Key::DramRemoteNs).source, "given in m.toml");
    }

    #[test]
    fn texts_that_will_not_do_are_refused_with_the_remedy() {
        let german = "Architektur: x86_64\nCPU(s): 8\nThread(s) pro Kern: 2\nSockel: 1\n";
        let twice = "Architecture: x86_64\nCPU(s): 2\n".repeat(2);
        let many = old_lscpu("Model name: Xeon", (9000, 1, 4500, 2), "NUMA node(s): 2\n");
        for (text, problem) in [
            ("", "this is no output of lscpu: give what `LC_ALL=C lscpu` prints"),
            ("hello: world", "this is no output of lscpu: give what `LC_ALL=C lscpu` prints"),
            (german, "perhaps since it is in another language: give what `LC_ALL=C lscpu` prints"),
            (NODES_WITH_CXL, "numactl's output alone, without caches and threads: also give what"),
            (&twice, "line 3 begins a second machine: give one at a time"),
            (&many, "it cannot be described: topology.cores_per_llc is 4500, expected 1 to 1024"),
        ] {
            let found = machine_file(text, &[]).unwrap_err();
            assert!(found.contains(problem), "{found}\n{text}");
        }
    }

    #[test]
    fn any_text_is_a_machine_or_refused() {
        for text in crate::mangled::of(&(EPYC_NPS4.to_owned() + NODES_WITH_CXL)) {
            if let Ok(file) = machine_file(&text, &[]) {
                assert!(Spec::from_toml("m.toml", &file).is_ok(), "{text}\n{file}");
            }
        }
    }
}
