//! A panic is a defect of the allocator: the kernel prints the place, and stops with `BUG`.

use core::panic::PanicInfo;

unsafe extern "C" {
    /// `module/glue.c`: prints a place in a source and ends in `BUG()`.
    fn fh_bug(file: *const u8, len: usize, line: u32) -> !;
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let (file, line) = info.location().map_or(("", 0), |place| (place.file(), place.line()));
    // SAFETY: the name of the file is text of this length, which the function reads only.
    unsafe { fh_bug(file.as_ptr(), file.len(), line) }
}
