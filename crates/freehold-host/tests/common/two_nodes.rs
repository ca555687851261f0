//! The topology of a machine that the tests do not run on.

use std::fs;

use freehold_host::Topology;

/// A machine of two nodes, of which this one has at least the first.
pub(crate) fn two_nodes() -> Topology {
    let sys = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("cpu/online", "0-1"),
        ("node/online", "0-1"),
        ("node/has_memory", "0-1"),
        ("node/node0/cpulist", "0"),
        ("node/node0/distance", "10 20"),
        ("node/node1/cpulist", "1"),
        ("node/node1/distance", "20 10"),
    ] {
        let path = sys.path().join("devices/system").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Topology::read(sys.path()).unwrap()
}
