//! What machines cost whose nodes, caches and cores are not those of a plain server. Each price is
//! that of a figure which its file gives, so that a test fails where the figure is not used.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use crate::rows::Rows;
use freehold::platform::Word;
use freehold::{FrameCount, NodeId, Pfn};
use freehold_sim::{CpuHandle, Home, Machine, Spec};

fn spec(text: &str) -> Spec {
    Spec::from_toml("m.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

/// The time of `work` on a CPU that has the machine to itself, in ns.
fn time_of(machine: &mut Machine, cpu: usize, work: impl Fn(&CpuHandle) + 'static) -> f64 {
    let time = Rc::new(RefCell::new(0.0));
    let result = Rc::clone(&time);
    machine.spawn(cpu, move |handle| {
        let began = handle.now_ps();
        work(handle);
        *result.borrow_mut() = (handle.now_ps() - began) as f64 / 1e3;
    });
    machine.run().unwrap();
    time.take()
}

/// What a CPU pays for a line of each node's memory.
fn lines_of_nodes(spec: &Spec, cpu: usize) -> Vec<f64> {
    let mut machine = Machine::new(spec, 1).unwrap();
    let rows = Rows::new(&mut machine, spec.nodes());
    let of_node = |node: usize| {
        let home = Home::Node(NodeId::new(node as u16));
        machine.home(&rows.region, node * 64..(node + 1) * 64, home);
        let rows = rows.clone();
        time_of(&mut machine, cpu, move |_| _ = rows.get(node).words[0].load(Relaxed))
    };
    (0..spec.nodes()).map(of_node).collect()
}

const NPS2: &str = "base = 'epyc-2s'\n[topology]\nnodes_per_socket = 2\n[latency]\n\
    dram_local_ns = 100\ndram_same_socket_ns = 115\ndram_remote_ns = 200\n";

#[test]
fn memory_of_another_node_of_the_socket_has_a_price_of_its_own() {
    let spec = spec(NPS2);
    assert_eq!((spec.cpu_nodes(), spec.nodes(), spec.cpus()), (4, 4, 256));
    assert_eq!(lines_of_nodes(&spec, 0), [100.0, 115.0, 200.0, 200.0]);
    assert_eq!(lines_of_nodes(&spec, 40), [115.0, 100.0, 200.0, 200.0], "the second half");
    assert_eq!(lines_of_nodes(&spec, 64), [200.0, 200.0, 100.0, 115.0], "the second socket");
    let distance = |to: u16| spec.distance(NodeId::new(1), NodeId::new(to));
    assert_eq!([0, 1, 2].map(distance), [12, 10, 21]);
}

#[test]
fn lines_between_nodes_of_a_socket_cost_as_in_one_node() {
    let mut machine = Machine::new(&spec(NPS2), 1).unwrap();
    let rows = Rows::new(&mut machine, 1);
    let mut store = |cpu: usize| {
        let rows = rows.clone();
        time_of(&mut machine, cpu, move |_| rows.get(0).words[0].store(1, Relaxed))
    };
    store(0);
    assert_eq!(store(40), 132.1, "transfer.same_socket_ns");
    assert_eq!(store(64), 266.6, "transfer.remote_home_writer_ns");
}

#[test]
fn memory_without_cpus_costs_its_own_latency_and_bandwidth() {
    let text = "base = 'skylake-2s'\n[memory]\nnode_gib = [128, 0, 256, 64]\n\
        memory_only_gb_per_s = 10\n[latency]\nmemory_only_ns = 250\n";
    let spec = spec(text);
    assert_eq!((spec.cpu_nodes(), spec.nodes()), (2, 4));
    let gib = |node| spec.node_bytes(NodeId::new(node)) >> 30;
    assert_eq!([0, 1, 2, 3].map(gib), [128, 0, 256, 64]);
    // Node 2 is attached to socket 0 and node 3 to socket 1; the way there is that to the memory.
    assert_eq!(lines_of_nodes(&spec, 0), [81.3, 131.1, 250.0, 299.8]);
    assert_eq!(lines_of_nodes(&spec, 28), [131.1, 81.3, 299.8, 250.0]);
    let mut machine = Machine::new(&spec, 1).unwrap();
    machine.follow_frames(Pfn::new(0), FrameCount::new(16));
    let mut clear = |pfn: u64, node: u16| {
        let clear = move |handle: &CpuHandle| handle.clear_frame(Pfn::new(pfn), NodeId::new(node));
        time_of(&mut machine, 0, clear)
    };
    // 64 lines, 16 at a time, for 81.3 ns each, and for 250; but no faster than 10 GB/s.
    let near = (clear(0, 0), clear(1, 2));
    assert_eq!(near, (325.0, (325_000.0 * 250.0 / 81.3_f64).round() / 1e3));
    // Three frames at a time take what the bandwidth leaves: a first one is 4096 bytes at 10 GB/s.
    for cpu in 0..3 {
        let pfn = Pfn::new(2 + cpu as u64);
        machine.spawn(cpu, move |handle| handle.clear_frame(pfn, NodeId::new(2)));
    }
    assert_eq!(machine.run().unwrap().elapsed_ns, 1228.8);
}

#[test]
fn e_cores_compute_slower_and_have_one_thread_each() {
    let text = "base = 'desktop'\n[topology]\np_cores = 6\ne_cores = 8\nlp_cores = 2\n\
        [core]\ne_slowdown = 1.5\nlp_slowdown = 2.5\n[cache]\ne_l2_kib = 32\n";
    let spec = spec(text);
    assert_eq!((spec.cores(), spec.cpus()), (16, 22));
    let core_of = |cpu| spec.core_of(freehold::CpuId::new(cpu));
    assert_eq!([0, 15, 16, 21].map(core_of), [0, 15, 0, 5], "P cores have the second threads");
    let mut machine = Machine::new(&spec, 1).unwrap();
    let mut compute = |cpu| time_of(&mut machine, cpu, |handle| handle.compute_ns(1000));
    assert_eq!([0, 5, 6, 13, 14, 16].map(&mut compute), [1e3, 1e3, 1.5e3, 1.5e3, 2.5e3, 1e3]);
    // 600 lines are more than the 512 of an E core's cache, but not than the 4096 of a P core's.
    let mut twice = |cpu: usize| {
        let rows = Rows::new(&mut machine, 600);
        time_of(&mut machine, cpu, move |_| {
            for row in 0..1200 {
                rows.get(row % 600).words[0].load(Relaxed);
            }
        })
    };
    let (p_core, e_core) = (twice(0), twice(6));
    assert!(e_core > p_core + 600.0 * 4.0, "{e_core} and {p_core}: the second round is misses");
}

#[test]
fn each_doubling_of_threads_slows_a_core_once_more() {
    let spec =
        spec("base = 'uma-1'\n[topology]\nthreads_per_core = 8\n[core]\nsmt_slowdown = 1.5\n");
    for (threads, slowdown) in [(1, 1.0), (2, 1.5), (3, 1.875), (4, 2.25), (8, 3.375)] {
        let mut machine = Machine::new(&spec, 1).unwrap();
        for cpu in 0..threads {
            machine.spawn(cpu, |handle| handle.compute_ns(1000));
        }
        assert_eq!(machine.run().unwrap().elapsed_ns, 1000.0 * slowdown, "{threads} threads");
    }
}

#[test]
fn without_a_last_level_cache_lines_come_from_cores_or_memory() {
    let text =
        "base = 'uma-4'\n[cache]\nllc_kib = 0\nl2_kib = 32\n[transfer]\nsame_socket_ns = 70\n";
    let spec = spec(text);
    let mut machine = Machine::new(&spec, 1).unwrap();
    let rows = Rows::new(&mut machine, 2000);
    let mut on = |cpu: usize, work: fn(&Rows)| {
        let rows = rows.clone();
        time_of(&mut machine, cpu, move |_| work(&rows))
    };
    on(0, |rows| rows.get(0).words[0].store(1, Relaxed));
    assert_eq!(on(1, |rows| _ = rows.get(0).words[0].load(Relaxed)), 70.0, "CPU 0 has it");
    assert_eq!(on(2, |rows| _ = rows.get(0).words[0].load(Relaxed)), 81.3, "clean: from memory");
    assert_eq!(on(1, |rows| rows.get(0).words[0].store(2, Relaxed)), 70.0, "taken from the others");
    on(1, |rows| (1..2000).for_each(|row| _ = rows.get(row).words[0].load(Relaxed)));
    assert_eq!(on(1, |rows| _ = rows.get(0).words[0].load(Relaxed)), 81.3, "left the core");
}

#[test]
fn a_machine_of_a_thousand_cpus_runs() {
    let text = "base = 'epyc-9965-2s'\n[topology]\nllcs_per_socket = 16\n";
    let spec = spec(text);
    assert_eq!((spec.cores(), spec.cpus()), (512, 1024));
    let mut machine = Machine::new(&spec, 1).unwrap();
    let rows = Rows::new(&mut machine, 1);
    for cpu in 0..1024 {
        let rows = rows.clone();
        machine.spawn(cpu, move |_| _ = rows.get(0).words[0].fetch_add(1, Relaxed));
    }
    machine.run().unwrap();
    assert_eq!(rows.get(0).words[0].load(Relaxed), 1024);
}
