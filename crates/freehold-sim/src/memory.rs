//! The memory of the nodes: a bandwidth limit, and traffic counters.

use crate::account::Window;
use crate::spec::Picos;

/// The memory of one node, as a server of lines that takes the same time for each.
///
/// The state is the remaining work at the time of the latest request. CPUs ask in the order of
/// virtual time, but for a lock that is handed over: the next holder asks a little ahead. A request
/// from before the latest one sees the remaining work of the latest; it does not wait for the time
/// in between to pass.
#[derive(Clone, Debug, Default)]
struct Node {
    /// How long it is busy with one line.
    line_service: Picos,
    backlog: Picos,
    as_of: Picos,
    lines_read: u64,
    lines_written: u64,
}

impl Node {
    /// The remaining work at `now`.
    fn backlog_at(&self, now: Picos) -> Picos {
        self.backlog.saturating_sub(now.saturating_sub(self.as_of))
    }

    /// Adds lines at `now`; returns how long they wait for the work before them.
    fn add(&mut self, now: Picos, lines: u64) -> Picos {
        let waits = self.backlog_at(now);
        self.backlog = waits + lines * self.line_service;
        self.as_of = self.as_of.max(now);
        waits
    }
}

/// The memory of all nodes.
#[derive(Debug)]
pub(crate) struct Memory {
    nodes: Vec<Node>,
    /// What is counted of the traffic.
    window: Window,
}

impl Memory {
    /// The memory of nodes that are busy with one line for so long each.
    pub(crate) fn new(line_services: &[Picos]) -> Self {
        let node = |&line_service: &Picos| Node { line_service, ..Node::default() };
        Memory {
            nodes: line_services.iter().map(node).collect(),
            window: Window::new(0, Picos::MAX),
        }
    }

    /// Requests lines at `now`; returns how long they wait for earlier requests.
    pub(crate) fn read(&mut self, now: Picos, node: usize, lines: u64) -> Picos {
        self.nodes[node].lines_read += self.counted(now, lines);
        self.nodes[node].add(now, lines)
    }

    /// Writes lines to the memory at `now`. No CPU waits for them, but later requests do.
    pub(crate) fn write(&mut self, now: Picos, node: usize, lines: u64) {
        self.nodes[node].lines_written += self.counted(now, lines);
        self.nodes[node].add(now, lines);
    }

    fn counted(&self, now: Picos, lines: u64) -> u64 {
        if self.window.is_open_at(now) { lines } else { 0 }
    }

    /// How long after `now` the memory of a node has completed all requests.
    pub(crate) fn backlog(&self, now: Picos, node: usize) -> Picos {
        self.nodes[node].backlog_at(now)
    }

    /// Lines read from and written to the memory of each node.
    pub(crate) fn traffic(&self) -> impl Iterator<Item = (u64, u64)> {
        self.nodes.iter().map(|node| (node.lines_read, node.lines_written))
    }

    /// Restarts the counters, for requests within `window`; those under way continue.
    pub(crate) fn restart_traffic(&mut self, window: Window) {
        self.window = window;
        for node in &mut self.nodes {
            node.lines_read = 0;
            node.lines_written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_queue_behind_each_other_on_one_node_only() {
        let mut memory = Memory::new(&[1_000, 2_000]);
        assert_eq!(memory.read(0, 0, 1), 0);
        assert_eq!(memory.read(0, 0, 1), 1_000);
        assert_eq!(memory.read(0, 1, 1), 0);
        assert_eq!(memory.read(0, 1, 1), 2_000, "this one is slower");
        memory.write(0, 0, 10);
        assert_eq!(memory.read(500, 0, 1), 11_500);
        assert_eq!(memory.read(1_000_000, 0, 1), 0, "an idle memory keeps no debt");
        assert_eq!(
            memory.read(5_000, 0, 1),
            1_000,
            "a request from the past finds the backlog only"
        );
        assert_eq!(memory.traffic().collect::<Vec<_>>(), [(5, 10), (2, 0)]);
    }
}
