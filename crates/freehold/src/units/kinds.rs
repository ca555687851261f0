//! What frames are for: the kinds of their content and of their zones.

use core::fmt;

/// What the content of a frame can do when memory has to be defragmented. Frames of one kind are
/// kept together, a pageblock at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum MigrateType {
    /// The frame must stay where it is: a kernel's own data.
    Unmovable = 0,
    /// The content can be copied elsewhere: the memory of processes.
    #[default]
    Movable = 1,
    /// The content can be dropped and made again: caches.
    Reclaimable = 2,
}

impl MigrateType {
    /// How many types there are.
    pub const COUNT: usize = 3;

    /// All types, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [Self::Unmovable, Self::Movable, Self::Reclaimable];

    /// The type as an index of tables.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in reports and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmovable => "unmovable",
            Self::Movable => "movable",
            Self::Reclaimable => "reclaimable",
        }
    }
}

impl fmt::Display for MigrateType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The class of a zone: which users can address its frames. Larger is less restricted to the
/// machine and more restricted in use, as in Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneKind {
    /// Frames that the most limited devices can address.
    Dma = 0,
    /// Frames that 32-bit devices can address.
    Dma32 = 1,
    /// Ordinary memory.
    #[default]
    Normal = 2,
    /// Memory for movable content only, so that it can be taken away again.
    Movable = 3,
}

impl ZoneKind {
    /// How many kinds there are.
    pub const COUNT: usize = 4;

    /// All kinds, most restricted to the machine first.
    pub const ALL: [Self; Self::COUNT] = [Self::Dma, Self::Dma32, Self::Normal, Self::Movable];

    /// The kind as an index of tables.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dma => "DMA",
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
            Self::Movable => "Movable",
        }
    }
}

impl fmt::Display for ZoneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
