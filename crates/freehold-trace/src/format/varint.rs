//! Integers in as few bytes as they need: seven bits a byte, the lowest first (LEB128).

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number from the front of `bytes`; none if it is cut short or longer than 64 bits.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has one bit.
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// From `old` to `new`, as a number that is small if they are near, whichever is larger.
pub(super) fn difference(old: u64, new: u64) -> u64 {
    let signed = new.wrapping_sub(old) as i64;
    (signed << 1 ^ signed >> 63) as u64
}

/// The `new` of a [`difference`].
pub(super) fn apply(old: u64, difference: u64) -> u64 {
    old.wrapping_add(difference >> 1 ^ (difference & 1).wrapping_neg())
}
