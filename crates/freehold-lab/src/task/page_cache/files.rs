//! Files side by side: a block is a number over all of them, one file after the other.

/// Files of so many blocks each.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The first block behind each file.
    ends: Vec<u64>,
}

impl Files {
    /// Files of these sizes, in blocks.
    pub(crate) fn new(sizes: impl IntoIterator<Item = u64>) -> Self {
        let end = |sum: &mut u64, size| {
            *sum += size;
            Some(*sum)
        };
        Files { ends: sizes.into_iter().scan(0, end).collect() }
    }

    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The number of the first block of a file.
    pub(crate) fn first(&self, file: usize) -> u64 {
        file.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// How many blocks all files have.
    pub(crate) fn blocks(&self) -> u64 {
        self.first(self.count())
    }

    /// How many blocks a file has.
    pub(super) fn size(&self, file: usize) -> u64 {
        self.ends[file] - self.first(file)
    }

    /// The file of a block, and which one of that file it is.
    pub(super) fn place(&self, block: u64) -> (usize, u64) {
        let file = self.ends.partition_point(|&end| end <= block);
        (file, block - self.first(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_in_the_file_that_it_was_counted_in() {
        let files = Files::new([3, 1, 5]);
        assert_eq!((files.count(), files.blocks(), files.size(2)), (3, 9, 5));
        for (block, place) in [(0, (0, 0)), (2, (0, 2)), (3, (1, 0)), (4, (2, 0)), (8, (2, 4))] {
            assert_eq!(files.place(block), place);
            assert_eq!(files.first(place.0) + place.1, block);
        }
    }
}
