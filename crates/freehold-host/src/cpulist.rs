//! The list format of the kernel: `0-3,8,10-11`.

/// The largest number that a list may contain: beyond what any kernel is built for.
const NUMBER_MAX: u32 = u16::MAX as u32 - 1;

/// The numbers in a list, ascending, each once. An empty list is well-formed.
///
/// # Errors
///
/// The problem with the list, to be appended to the name of its file.
pub(crate) fn parse(text: &str) -> Result<Vec<u32>, String> {
    let mut numbers = Vec::new();
    for item in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (parse_number(first)?, parse_number(last)?);
        if first > last {
            return Err(format!("the range `{item}` runs backwards"));
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

fn parse_number(text: &str) -> Result<u32, String> {
    match text.trim().parse() {
        Ok(number) if number <= NUMBER_MAX => Ok(number),
        Ok(number) => Err(format!("{number} is larger than {NUMBER_MAX}")),
        Err(_) => Err(format!("`{text}` is not a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(parse("0-3,8,10-11\n").unwrap(), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse("0\n").unwrap(), [0]);
        assert_eq!(parse("4,0-1,1").unwrap(), [0, 1, 4]);
        assert_eq!(parse("\n").unwrap(), []);
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn malformed_lists_say_what_is_wrong() {
        for (text, problem) in [
            ("0-3,x", "`x` is not a number"),
            ("3-0", "the range `3-0` runs backwards"),
            ("0-4000000000", "4000000000 is larger than 65534"),
            ("0,,1", "`` is not a number"),
            ("-1", "`` is not a number"),
        ] {
            assert_eq!(parse(text).unwrap_err(), problem, "{text}");
        }
    }

    mod fuzz {
        use std::time::Duration;

        use super::*;

        #[test]
        fn any_list_is_read_or_refused() {
            bolero::check!().with_test_time(Duration::from_millis(200)).for_each(
                |bytes: &[u8]| {
                    let text = String::from_utf8_lossy(bytes);
                    let Ok(numbers) = parse(&text) else { return };
                    assert!(numbers.is_sorted() && numbers.len() <= NUMBER_MAX as usize + 1);
                    let written: Vec<_> = numbers.iter().map(u32::to_string).collect();
                    assert_eq!(parse(&written.join(",")), Ok(numbers));
                },
            );
        }
    }
}
