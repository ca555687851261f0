//! Typed tables of records in a buffer that they do not own.
//!
//! A table counts the records that it has initialised, and reads and drops only these. A panic
//! while it is being filled, in code of the platform, therefore leaves a shorter table, which is
//! dropped while the stack unwinds. A panic while records are dropped leaks the rest of their
//! table.

#![expect(unsafe_code, reason = "records are made, lent and dropped in a raw buffer here")]

use core::marker::PhantomData;
use core::mem::{ManuallyDrop, needs_drop};
use core::ptr::NonNull;

/// How far apart the records of a table are.
pub trait Stride: Copy {
    /// In bytes, if the records are of type `T`.
    fn stride_bytes<T>(self) -> usize;
}

/// Contiguous records: the stride is a constant, which saves a load and a multiplication on every
/// hot path.
#[derive(Clone, Copy, Debug)]
pub struct SideBySide;

impl Stride for SideBySide {
    #[inline(always)]
    fn stride_bytes<T>(self) -> usize {
        size_of::<T>()
    }
}

/// Records with a stride chosen at run time.
#[derive(Clone, Copy, Debug)]
pub struct Apart {
    stride_bytes: usize,
}

impl Apart {
    /// A stride in bytes: a multiple of the alignment of the records, and at least their size.
    pub(super) const fn new(stride_bytes: usize) -> Self {
        Apart { stride_bytes }
    }
}

impl Stride for Apart {
    #[inline(always)]
    fn stride_bytes<T>(self) -> usize {
        self.stride_bytes
    }
}

/// A table of contiguous records in the metadata.
pub type Table<T> = Rows<T, SideBySide>;

/// A table in the metadata whose records are spaced further apart than their size.
pub type StridedTable<T> = Rows<T, Apart>;

/// A table of records in the metadata.
#[derive(Debug)]
#[repr(C)]
pub struct Rows<T, S: Stride> {
    base: NonNull<u8>,
    /// How many records are initialised: only these may be read, and are dropped.
    len: usize,
    stride: S,
    record: PhantomData<T>,
}

// SAFETY: a table owns its records, so it may move to another thread if they may.
unsafe impl<T: Send, S: Stride> Send for Rows<T, S> {}
// SAFETY: a shared table gives access to shared records only, so it may be shared if they may.
unsafe impl<T: Sync, S: Stride> Sync for Rows<T, S> {}

/// Without arguments, so that a function has one call of it for all its lookups.
#[cold]
#[inline(never)]
fn no_such_record() -> ! {
    panic!("a table has no such record")
}

impl<T, S: Stride> Rows<T, S> {
    /// Initialises `len` records from `base` on, one after the other. If `init` panics, the records
    /// initialised before are dropped, and nothing else.
    ///
    /// # Safety
    ///
    /// The table's bytes, `len` strides from `base`, are valid for reads and writes and belong to
    /// the table alone as long as it lives. `base` and the stride are multiples of the alignment of
    /// `T`, and the stride is at least the size of `T`.
    pub(super) unsafe fn init(
        base: NonNull<u8>,
        len: usize,
        stride: S,
        mut init: impl FnMut(usize) -> T,
    ) -> Self {
        let mut rows = Rows { base, len: 0, stride, record: PhantomData };
        while rows.len < len {
            let record = init(rows.len);
            // SAFETY: the offset lies within the table's bytes (contract), as `rows.len` is below
            // `len`.
            let place = unsafe { base.add(rows.len * stride.stride_bytes::<T>()) }.cast();
            // SAFETY: the place is the table's and aligned for the record (contract).
            unsafe { place.write(record) };
            // Only now: `init` runs code of the platform, which may panic.
            rows.len += 1;
        }
        rows
    }

    /// The same for records that the table's bytes already hold.
    ///
    /// # Safety
    ///
    /// As for [`init`](Self::init), and the table's bytes are `len` valid records.
    pub(super) const unsafe fn assume_init(base: NonNull<u8>, len: usize, stride: S) -> Self {
        Rows { base, len, stride, record: PhantomData }
    }

    /// The address of a record. `index` is below `len`.
    #[inline(always)]
    fn record(&self, index: usize) -> NonNull<T> {
        debug_assert!(index < self.len);
        // SAFETY: `index` is below `len` at every call in this file, so the record lies within the
        // table's bytes.
        unsafe { self.base.add(index * self.stride.stride_bytes::<T>()) }.cast()
    }

    /// How many records there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The record at `index`.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[inline(always)]
    pub fn get(&self, index: usize) -> &T {
        match self.try_get(index) {
            Some(record) => record,
            None => no_such_record(),
        }
    }

    /// The record at `index`, if there is one.
    #[inline(always)]
    pub fn try_get(&self, index: usize) -> Option<&T> {
        if index >= self.len {
            return None;
        }
        // SAFETY: the record lies within the table (checked above), was initialised by `init` or
        // valid before (`assume_init`), and only shared references to it exist.
        Some(unsafe { self.record(index).as_ref() })
    }
}

impl<T, S: Stride> Drop for Rows<T, S> {
    fn drop(&mut self) {
        if needs_drop::<T>() {
            for index in 0..self.len {
                // SAFETY: the record is initialised, and `drop` holds the only access to it.
                unsafe { self.record(index).drop_in_place() };
            }
        }
    }
}

impl<T> Table<T> {
    /// All records in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Consecutive records as a slice.
    ///
    /// # Panics
    ///
    /// If the range is not within the table.
    #[inline(always)]
    pub fn slice(&self, start: usize, len: usize) -> &[T] {
        if start > self.len() || len > self.len() - start {
            no_such_record();
        }
        // SAFETY: `start` is at most `len`, so the address is within the table or at its end.
        let first = unsafe { self.base.add(start * size_of::<T>()) }.cast::<T>();
        // SAFETY: the records from `first` lie side by side within the table, are initialised, and
        // only shared references to them exist.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), len) }
    }

    /// All records as a slice, to fill a table before it is shared.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        let first = self.base.cast::<T>();
        // SAFETY: the records lie side by side from `base`, are initialised, and are borrowed from
        // the table as a whole.
        unsafe { core::slice::from_raw_parts_mut(first.as_ptr(), self.len) }
    }
}

/// Two tables of the same length, which is stored and checked once for both.
// In this order: the fast paths need all of it but the length of the first table, which comes last.
#[derive(Debug)]
#[repr(C)]
pub struct Twins<A, B> {
    /// How many records `try_get_shown` shows.
    shown: usize,
    /// The first record of the second table.
    second: NonNull<B>,
    first: Table<A>,
}

// SAFETY: as for `Rows`, of both kinds of records.
unsafe impl<A: Send, B: Send> Send for Twins<A, B> {}
// SAFETY: as for `Rows`, of both kinds of records.
unsafe impl<A: Sync, B: Sync> Sync for Twins<A, B> {}

impl<A, B> Twins<A, B> {
    /// How many bytes of it the fast paths read.
    #[cfg(test)]
    pub const FAST_BYTES: usize = core::mem::offset_of!(Self, first) + size_of::<usize>();

    /// # Panics
    ///
    /// If the tables differ in length.
    pub fn new(first: Table<A>, second: Table<B>) -> Self {
        assert!(first.len() == second.len(), "twins are of the same length");
        // From now on this drops the records.
        let second = ManuallyDrop::new(second);
        Twins { shown: first.len(), first, second: second.base.cast() }
    }

    /// The same tables, of which [`try_get_shown`](Self::try_get_shown) shows the first ones alone.
    pub fn showing(mut self, records: usize) -> Self {
        self.shown = records.min(self.len());
        self
    }

    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.first.len()
    }

    /// The first table.
    #[inline(always)]
    pub const fn first(&self) -> &Table<A> {
        &self.first
    }

    /// The record of the second table at `index`. Panics if there is none.
    #[inline(always)]
    pub fn second(&self, index: usize) -> &B {
        let record = self.try_get(index).map(|(_, record)| record);
        record.unwrap_or_else(|| no_such_record())
    }

    /// The records at `index`, if there are such.
    #[inline(always)]
    pub fn try_get(&self, index: usize) -> Option<(&A, &B)> {
        if index >= self.first.len() {
            return None;
        }
        // SAFETY: the index is below the length (checked above).
        Some(unsafe { self.get_unchecked(index) })
    }

    /// The same of those that are [shown](Self::showing).
    #[inline(always)]
    pub fn try_get_shown(&self, index: usize) -> Option<(&A, &B)> {
        if index >= self.shown {
            return None;
        }
        // SAFETY: `shown` is at most the length, and the index is below it (checked above).
        Some(unsafe { self.get_unchecked(index) })
    }

    /// # Safety
    ///
    /// `index` is below the length.
    #[inline(always)]
    unsafe fn get_unchecked(&self, index: usize) -> (&A, &B) {
        // SAFETY: the record lies within the table (contract), is initialised as in
        // `Rows::try_get`, and only shared references to it exist.
        let first = unsafe { self.first.record(index).as_ref() };
        // SAFETY: the tables are of the same length (checked by `new`), so the record lies within
        // the second one as well.
        let second = unsafe { self.second.add(index) };
        // SAFETY: as for the first.
        (first, unsafe { second.as_ref() })
    }
}

impl<A, B> Drop for Twins<A, B> {
    fn drop(&mut self) {
        if needs_drop::<B>() {
            for index in 0..self.len() {
                // SAFETY: as in `try_get`.
                let record = unsafe { self.second.add(index) };
                // SAFETY: the record is initialised, `drop` holds the only access to it, and the
                // table that it came from does not drop it (see `new`).
                unsafe { record.drop_in_place() };
            }
        }
    }
}

#[cfg(test)]
mod tests;
