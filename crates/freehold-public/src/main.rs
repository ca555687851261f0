//! Lists the public items of a crate, one a line, from the JSON of rustdoc: see `tools/public-api`.
//!
//! Of what the compiler writes for each type, which would be most of the list, it has the names of
//! derived traits, and where `Send` or `Sync` is missing: losing one breaks users.

use std::collections::HashSet;
use std::error::Error;
use std::path::Path;

/// The items of a crate, without blanket impls.
fn items(json: &Path, derived: bool, auto: bool) -> Result<Vec<String>, public_api::Error> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_derived_impls(!derived)
        .omit_auto_trait_impls(!auto)
        .build()?;
    Ok(api.items().map(ToString::to_string).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let json = std::env::args_os().nth(1).ok_or("expected the JSON file of a crate")?;
    let json = Path::new(&json);
    let written: HashSet<_> = items(json, false, false)?.into_iter().collect();
    let or_derived: HashSet<_> = items(json, true, false)?.into_iter().collect();
    // Derived for `match` alone; what users see is `PartialEq`.
    let is_seen = |item: &str| item.starts_with("impl") && !item.contains("::StructuralPartialEq");
    let is_lost =
        |item: &str| ["!core::marker::Send", "!core::marker::Sync"].map(|of| item.contains(of));
    for item in items(json, true, true)? {
        let derived = or_derived.contains(&item) && is_seen(&item);
        if written.contains(&item) || derived || is_lost(&item).contains(&true) {
            println!("{item}");
        }
    }
    Ok(())
}
