//! Kinds of frames, and the lists that frames of each kind are on.

/// The content of a frame, which determines its pair of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Memory of processes, which must be written somewhere before it can be dropped.
    Anon = 0,
    /// Content of files, which can be read again.
    File = 1,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = 2;

    /// Both kinds.
    pub const ALL: [Self; Self::COUNT] = [Self::Anon, Self::File];
}

/// Something for each list.
pub(crate) type PerList<T> = [T; List::COUNT];

/// The lists of an lruvec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// Anonymous frames, not recently used.
    InactiveAnon = 0,
    /// Anonymous frames in use.
    ActiveAnon = 1,
    /// Frames of files, not recently used or used only once.
    InactiveFile = 2,
    /// Frames of files that were used twice.
    ActiveFile = 3,
    /// Pinned frames.
    Unevictable = 4,
}

impl List {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// All lists.
    pub const ALL: [Self; Self::COUNT] = [
        Self::InactiveAnon,
        Self::ActiveAnon,
        Self::InactiveFile,
        Self::ActiveFile,
        Self::Unevictable,
    ];

    /// The lists that frames are reclaimed from.
    pub(super) const EVICTABLE: [Self; 4] =
        [Self::InactiveAnon, Self::ActiveAnon, Self::InactiveFile, Self::ActiveFile];

    /// The list for frames of a kind that are in use, or are not.
    pub(super) const fn of(kind: Kind, active: bool) -> Self {
        match (kind, active) {
            (Kind::Anon, false) => List::InactiveAnon,
            (Kind::Anon, true) => List::ActiveAnon,
            (Kind::File, false) => List::InactiveFile,
            (Kind::File, true) => List::ActiveFile,
        }
    }

    /// Whether it is a list of active frames.
    pub(super) const fn is_active(self) -> bool {
        matches!(self, List::ActiveAnon | List::ActiveFile)
    }

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            List::InactiveAnon => "inactive_anon",
            List::ActiveAnon => "active_anon",
            List::InactiveFile => "inactive_file",
            List::ActiveFile => "active_file",
            List::Unevictable => "unevictable",
        }
    }
}
