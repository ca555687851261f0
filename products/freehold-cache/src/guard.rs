//! Guards: the content of a block, for as long as they live.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::key::Block;
use crate::slot::Page;
use crate::sync::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLockReadGuard, RwLockWriteGuard,
};

/// A block, to be read. While it lives, the block stays in the cache, and other threads read it as
/// well. Created by [`CachedFile::read`](crate::CachedFile::read).
#[must_use = "the block may be evicted as soon as this is dropped"]
pub struct BlockRef<'a> {
    bytes: MappedRwLockReadGuard<'a, [u8]>,
    block: Block,
}

/// A block, to be changed by one thread alone. While it lives, the block stays in the cache; it is
/// dirty from the beginning. Created by [`CachedFile::write`](crate::CachedFile::write).
#[must_use = "what is written goes to storage after this is dropped"]
pub struct BlockMut<'a> {
    bytes: MappedRwLockWriteGuard<'a, [u8]>,
    block: Block,
}

impl<'a> BlockRef<'a> {
    pub(crate) fn new(page: RwLockReadGuard<'a, Page>, block: Block) -> Self {
        BlockRef { bytes: RwLockReadGuard::map(page, Page::bytes), block }
    }

    /// Which block of its file it is.
    pub fn block(&self) -> Block {
        self.block
    }
}

impl<'a> BlockMut<'a> {
    pub(crate) fn new(page: RwLockWriteGuard<'a, Page>, block: Block) -> Self {
        BlockMut { bytes: RwLockWriteGuard::map(page, Page::bytes_mut), block }
    }

    /// Which block of its file it is.
    pub fn block(&self) -> Block {
        self.block
    }
}

impl Deref for BlockRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Deref for BlockMut<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for BlockMut<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl fmt::Debug for BlockRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlockRef").field(&self.block).finish()
    }
}

impl fmt::Debug for BlockMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlockMut").field(&self.block).finish()
    }
}
