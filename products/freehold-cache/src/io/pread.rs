//! Files, by `preadv` and `pwritev`.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

use rustix::io::{Errno, pread, preadv, pwritev};

use super::Storage;

/// What a file opened with `O_DIRECT` may be read at multiples of. A read of it that ends elsewhere
/// has come to the end of the file.
const SECTOR_BYTES: usize = 512;

/// A file of the operating system, read by `preadv` and written by `pwritev`; `sync` is
/// `fdatasync`, which includes the file's length.
#[derive(Debug)]
pub struct FileStorage {
    file: File,
}

impl FileStorage {
    /// Storage in this file, which is open for reading, and for writing if blocks are written.
    pub fn new(file: File) -> Self {
        FileStorage { file }
    }

    #[cfg(feature = "io-uring")]
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Storage for FileStorage {
    fn read_at(&self, offset: u64, mut buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut done = 0;
        while !buffers.is_empty() {
            let at = offset + done as u64;
            // A call with one buffer costs the kernel less than one with a list of them.
            let read = match &mut *buffers {
                [only] => pread(&self.file, &mut **only, at),
                _ => preadv(&self.file, buffers, at),
            };
            match read {
                Ok(0) => break,
                Ok(read) => {
                    done += read;
                    IoSliceMut::advance_slices(&mut buffers, read);
                }
                Err(Errno::INTR) => {}
                // Direct I/O, and the end of the file was within a sector.
                Err(Errno::INVAL) if !done.is_multiple_of(SECTOR_BYTES) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, mut buffers: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut done = 0;
        while !buffers.is_empty() {
            match pwritev(&self.file, buffers, offset + done) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    done += written as u64;
                    IoSlice::advance_slices(&mut buffers, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_beyond_the_end_is_short() {
        let storage = FileStorage::new(tempfile::tempfile().unwrap());
        let data = [7; 700];
        storage
            .write_at(100, &mut [IoSlice::new(&data[..300]), IoSlice::new(&data[300..])])
            .unwrap();
        let (mut one, mut other) = ([1; 512], [1; 512]);
        let buffers = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)];
        assert_eq!(storage.read_at(0, buffers).unwrap(), 800);
        assert_eq!((one[99], one[100], other[287], other[288]), (0, 7, 7, 1));
        storage.sync().unwrap();
    }
}
