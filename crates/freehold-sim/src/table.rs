//! A user's own records on a simulated machine.

#![expect(unsafe_code, reason = "places records in a region")]

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::machine::Machine;
use crate::region::{Home, Region};

/// Records of a data structure that lies beside an allocator: their words, cells and locks are in a
/// [`Region`] of a machine, so that every access to them is charged.
///
/// ```
/// use freehold::platform::{LockClass, RawLock};
/// use freehold_sim::{Home, Machine, SimLock, SimTable, preset};
///
/// let mut machine = Machine::new(&preset("uma-2")?, 1)?;
/// let each = |_| (SimLock::new(LockClass::Owner), Home::FirstTouch);
/// let locks = SimTable::new(&mut machine, "locks", 2, each);
/// assert_eq!(locks.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SimTable<T> {
    first: NonNull<T>,
    len: usize,
    /// Keeps the records alive.
    _region: Region,
    records: PhantomData<T>,
}

impl<T> SimTable<T> {
    /// Places `len` records on `machine`, outside virtual time and at no cost. `make` returns each
    /// with the home of its lines. Cache misses are reported under `name`.
    ///
    /// Records are as far apart as in a slice: align them to lines if they are not to share any.
    ///
    /// # Panics
    ///
    /// If records need to be dropped, or a home is no node of the machine.
    pub fn new(
        machine: &mut Machine,
        name: &str,
        len: usize,
        mut make: impl FnMut(usize) -> (T, Home),
    ) -> Self {
        assert!(!std::mem::needs_drop::<T>(), "records are never dropped");
        let bytes = len.checked_mul(size_of::<T>()).expect("records that fit the address space");
        let region = machine.map_region(bytes, align_of::<T>());
        let kind = machine.kind(name);
        machine.label(&region, 0..region.len(), kind);
        let first: NonNull<T> = region.as_ptr().cast();
        for nth in 0..len {
            let (record, home) = make(nth);
            machine.home(&region, nth * size_of::<T>()..(nth + 1) * size_of::<T>(), home);
            // SAFETY: Within the region, which is large enough for `len` of the type.
            let place = unsafe { first.add(nth) };
            // SAFETY: The place is aligned to the type, as the region is, and nobody else's yet.
            unsafe { place.write(record) };
        }
        SimTable { first, len, _region: region, records: PhantomData }
    }
}

impl<T> Deref for SimTable<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: All records were written, live as long as the region, and are only shared.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sim, preset};
    use freehold::NodeId;
    use freehold::platform::{Platform, Word};
    use std::rc::Rc;
    use std::sync::atomic::Ordering::Relaxed;

    type Count = <Sim as Platform>::U64;

    #[test]
    fn records_are_charged_and_keep_their_values() {
        let mut machine = Machine::new(&preset("skylake-2s").unwrap(), 1).unwrap();
        let node = |nth: usize| Home::Node(NodeId::new(nth as u16 % 2));
        let each = |nth| (Count::new(nth as u64), node(nth));
        let table = Rc::new(SimTable::new(&mut machine, "counts", 3, each));
        let shared = Rc::clone(&table);
        machine.spawn(0, move |_| {
            for word in shared.iter() {
                word.fetch_add(10, Relaxed);
            }
        });
        let report = machine.run().unwrap();
        let counts: Vec<u64> = table.iter().map(|word| word.load(Relaxed)).collect();
        assert_eq!(counts, [10, 11, 12]);
        let data = report.data.iter().find(|data| data.data == "counts").unwrap();
        assert_eq!(data.accesses, 3);
    }
}
