//! Lines of text, for people.

use core::fmt::{self, Write};

use crate::arch;
use crate::sync::Mutex;

/// Prints a line.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::console::say_line(format_args!($($text)*))
    };
}
pub(crate) use say;

struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        arch::write(text.as_bytes());
        Ok(())
    }
}

static SERIAL: Mutex<Serial> = Mutex::new(Serial);

/// Prints a line; lines of several CPUs do not mix.
pub(crate) fn say_line(text: fmt::Arguments<'_>) {
    SERIAL.with(|serial| writeln!(serial, "{text}").expect("a serial port takes everything"));
}

/// Prints a line, even if this CPU is just printing another.
pub(crate) fn say_at_once(text: fmt::Arguments<'_>) {
    writeln!(Serial, "\n{text}").expect("a serial port takes everything");
}
