//! The cargo profile that this program was built with. Times measured on the host depend on it.

/// The name of the profile's folder: `release`, `figures`, or `debug` for `dev` and `test`.
pub(crate) const PROFILE: &str = env!("FREEHOLD_PROFILE");

/// The start of every report of times measured on the host.
pub(crate) const MEASURED: &str =
    concat!("Measured on this host with profile ", env!("FREEHOLD_PROFILE"));

#[cfg(test)]
mod tests {
    use super::*;

    /// Cargo puts this test into target/PROFILE/deps.
    #[test]
    fn the_profile_is_the_folder_of_the_program() {
        let own = std::env::current_exe().unwrap();
        let folder = own.ancestors().nth(2).and_then(|path| path.file_name());
        assert_eq!(folder, Some(PROFILE.as_ref()), "{own:?}");
    }
}
