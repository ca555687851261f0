//! Numbers of the machine's CPUs and memory nodes.

use core::fmt;

/// The number of a CPU, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct CpuId(u32);

impl CpuId {
    /// The CPU with this number.
    #[inline]
    pub const fn new(number: u32) -> Self {
        CpuId(number)
    }

    /// The number itself.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number as an index of tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<u32> for CpuId {
    fn from(number: u32) -> Self {
        CpuId(number)
    }
}

impl From<CpuId> for u32 {
    fn from(of: CpuId) -> Self {
        of.0
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}", self.0)
    }
}

/// The number of a memory node, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct NodeId(u16);

impl NodeId {
    /// The node with this number.
    #[inline]
    pub const fn new(number: u16) -> Self {
        NodeId(number)
    }

    /// The number itself.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number as an index of tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<u16> for NodeId {
    fn from(number: u16) -> Self {
        NodeId(number)
    }
}

impl From<NodeId> for u16 {
    fn from(of: NodeId) -> Self {
        of.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}
