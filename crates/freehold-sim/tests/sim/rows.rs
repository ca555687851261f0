//! Memory of a machine as typed rows, for tests.

#![expect(unsafe_code, reason = "a region is bytes, and tests want words in it")]

use freehold::platform::Platform;
use freehold_sim::{CpuHandle, Machine, Region, Report, Sim, SimLock, preset};

pub(crate) type U64 = <Sim as Platform>::U64;
pub(crate) type Local64 = <Sim as Platform>::LocalCell<u64>;

/// Two sockets of 28 cores, each with a sibling.
pub(crate) fn skylake() -> Machine {
    Machine::new(&preset("skylake-2s").unwrap(), 1).unwrap()
}

/// One line: a lock, three words, and a cell of one CPU.
#[repr(C, align(64))]
pub(crate) struct Row {
    pub(crate) lock: SimLock,
    pub(crate) words: [U64; 3],
    pub(crate) local: Local64,
}

/// Rows in their own region.
#[derive(Clone)]
pub(crate) struct Rows {
    pub(crate) region: Region,
    count: usize,
}

impl Rows {
    pub(crate) fn new(machine: &mut Machine, count: usize) -> Self {
        use freehold::platform::{LockClass, RawLock, SharedCell, Word};
        let region = machine.map_region(count * size_of::<Row>(), 64);
        let rows = Rows { region, count };
        for index in 0..count {
            let row = Row {
                lock: SimLock::new(LockClass::Zone),
                words: [Word::new(0), Word::new(0), Word::new(0)],
                local: SharedCell::new(0),
            };
            // SAFETY: The region has `count` rows' worth of memory at their alignment, `index` is
            // below it, and there is no reference into it yet.
            unsafe { rows.pointer(index).write(row) };
        }
        rows
    }

    /// Gives the same work on these rows to several CPUs, with their numbers.
    pub(crate) fn share(
        &self,
        machine: &mut Machine,
        cpus: impl IntoIterator<Item = usize>,
        work: impl Fn(&Rows, usize, &CpuHandle) + Clone + 'static,
    ) {
        for cpu in cpus {
            let (rows, work) = (self.clone(), work.clone());
            machine.spawn(cpu, move |handle| work(&rows, cpu, handle));
        }
    }

    /// Runs the same work on so many rows of [`skylake`].
    pub(crate) fn run(
        count: usize,
        cpus: impl IntoIterator<Item = usize>,
        work: impl Fn(&Rows, usize, &CpuHandle) + Clone + 'static,
    ) -> Report {
        let mut machine = skylake();
        Rows::new(&mut machine, count).share(&mut machine, cpus, work);
        machine.run().unwrap()
    }

    fn pointer(&self, index: usize) -> *mut Row {
        self.region.as_ptr().as_ptr().cast::<Row>().wrapping_add(index)
    }

    pub(crate) fn get(&self, index: usize) -> &Row {
        assert!(index < self.count);
        // SAFETY: `new` wrote `count` rows, the region lives as long as `self`, and only shared
        // references to rows are ever lent out.
        unsafe { &*self.pointer(index) }
    }
}
