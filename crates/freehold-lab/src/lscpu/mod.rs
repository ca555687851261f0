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
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    /// What lscpu prints, and what is to be made of it.
    #[derive(Deserialize)]
    struct Sample {
        name: String,
        cpus: Option<usize>,
        text: String,
        figures: BTreeMap<String, BTreeMap<String, f64>>,
    }

    #[derive(Deserialize)]
    struct Samples {
        sample: Vec<Sample>,
    }

    fn samples() -> Vec<Sample> {
        let samples: Samples = toml::from_str(include_str!("samples.toml")).unwrap();
        samples.sample
    }

    fn sample(name: &str) -> String {
        samples().into_iter().find(|sample| sample.name == name).expect("there is such a one").text
    }

    /// A machine of two sockets, with so many cores each.
    fn two_sockets(cores: usize) -> String {
        format!(
            "Model name: Xeon\nCPU(s): {}\nThread(s) per core: 1\nCore(s) per socket: {cores}\n\
             Socket(s): 2\nNUMA node(s): 2\n",
            2 * cores
        )
    }

    /// The machine of a text, and its file.
    fn machine(text: &str) -> (Spec, String) {
        let file = machine_file(text, &[]).unwrap_or_else(|problem| panic!("{problem}\n{text}"));
        (Spec::from_toml("m.toml", &file).unwrap(), file)
    }

    #[test]
    fn texts_become_machines() {
        for Sample { name, cpus, text, figures } in samples() {
            let (spec, file) = machine(&text);
            for (section, figures) in &figures {
                for (key, &value) in figures {
                    let key = Key::find(section, key).expect("there is such a figure");
                    assert_eq!(spec.get(key), value, "{name}: {key}\n{file}");
                }
            }
            assert_eq!(spec.cpus(), cpus.unwrap_or(spec.cpus()), "{name}");
        }
    }

    #[test]
    fn nodes_without_cpus_come_last() {
        let (spec, file) = machine(&sample("cxl"));
        let node = freehold::NodeId::new;
        let mib = [0, 1, 2].map(|of| spec.node_bytes(node(of)) >> 20);
        assert_eq!(mib, [64163, 0, 131072], "the node without CPUs is last\n{file}");
        let distances = [(0, 1), (0, 2), (1, 2)].map(|(a, b)| spec.distance(node(a), node(b)));
        assert_eq!(distances, [21, 14, 24]);
        assert!(file.contains("# memory_only_ns = 275"), "{file}");
    }

    #[test]
    fn comments_can_be_turned_into_figures() {
        let (before, file) = machine(&two_sockets(4));
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
        let many = two_sockets(4500);
        let with_cxl = sample("cxl");
        let numactl = &with_cxl[with_cxl.find("available:").expect("it is there")..];
        for (text, problem) in [
            ("", "this is no output of lscpu: give what `LC_ALL=C lscpu` prints"),
            ("hello: world", "this is no output of lscpu: give what `LC_ALL=C lscpu` prints"),
            (german, "perhaps since it is in another language: give what `LC_ALL=C lscpu` prints"),
            (numactl, "numactl's output alone, without caches and threads: also give what"),
            (&twice, "line 3 begins a second machine: give one at a time"),
            (&many, "it cannot be described: topology.cores_per_llc is 4500, expected 1 to 1024"),
        ] {
            let found = machine_file(text, &[]).unwrap_err();
            assert!(found.contains(problem), "{found}\n{text}");
        }
    }

    #[test]
    fn any_text_is_a_machine_or_refused() {
        for text in crate::mangled::of(&(sample("epyc-nps4") + &sample("cxl"))) {
            if let Ok(file) = machine_file(&text, &[]) {
                assert!(Spec::from_toml("m.toml", &file).is_ok(), "{text}\n{file}");
            }
        }
    }
}
