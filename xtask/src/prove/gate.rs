//! What must hold before a change lands: at most 15 minutes on two cores from an empty clone.

use super::Step;
use super::table::GOLDEN_COUNTS;

/// The lab's program is that of the tests.
pub(super) const STEPS: &[Step] = &[
    Step::new("format", r#"cargo fmt --all -- --check"#),
    Step::new("clippy", r#"cargo clippy --workspace --all-targets -- -D warnings"#),
    Step::new(
        "documentation",
        r#"RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps \
    --document-private-items"#,
    ),
    Step::new("tests", r#"cargo test --workspace"#),
    // All but the eleven that take two thirds of the time: `cargo xtask prove models` has them.
    Step::new(
        "models of the core",
        r#"cargo test -p freehold -p freehold-lru --test models -- \
    --skip frees::a_block_and_two_parts_of_it_are_freed_at_once \
    --skip frees::a_frame_is_freed_twice_while_it_becomes_part_of_a_block \
    --skip frees::frames_of_a_pageblock_are_freed_together_while_another_one_is \
    --skip frees::parts_of_pageblocks_are_freed_at_once \
    --skip compact::a_frame_is_allocated_where_content_is_compacted_to \
    --skip ranges::a_frame_is_allocated_while_its_pageblock_is_isolated \
    --skip ranges::two_ranges_are_taken_at_once \
    --skip remove::a_user_looks_at_its_frame_while_frames_beside_it_are_freed \
    --skip seam_loom::a_pageblock_changes_its_type_under_a_free \
    --skip seam_loom::two_threads_share_a_cpu \
    --skip designs_loom::two_requests_merge_late"#,
    ),
    GOLDEN_COUNTS,
    Step::new(
        "dependencies",
        r#"if ! command -v cargo-deny >/dev/null; then
    echo "there is no cargo-deny. Remedy: cargo install cargo-deny --locked"
    exit 77
fi
cargo deny --locked check licenses bans sources
cd products; cargo deny --locked check --config ../deny.toml licenses bans sources"#,
    ),
    Step::new("public items", r#"cargo xtask public-items"#),
    Step::new(
        "schedules of each design",
        r#"printf '%s\n' freehold zone-lock lazy-merge cluster merge-ahead block-owner \
    | xargs -P 2 -I{} target/debug/freehold check --design {} --seeds 30"#,
    ),
    Step::new(
        "delayed threads on each design",
        r#"printf '%s\n' freehold zone-lock lazy-merge cluster merge-ahead block-owner \
    | xargs -P 2 -I{} target/debug/freehold check --subject chaos --design {} --seeds 8"#,
    ),
    Step::finds(
        "planted: a CPU that stops",
        r#"target/debug/freehold check --stop-cpu --canary --seeds 40"#,
    ),
    Step::finds(
        "planted: race",
        r#"target/debug/freehold check --design zone-lock --seeds 200 --canary=race"#,
    ),
    Step::finds(
        "planted: loss",
        r#"target/debug/freehold check --design zone-lock --seeds 200 --canary=loss"#,
    ),
    Step::finds(
        "planted: race of delayed threads",
        r#"target/debug/freehold check --subject chaos --design zone-lock --seeds 3 --canary=race"#,
    ),
    Step::finds(
        "planted: lock of delayed threads",
        r#"target/debug/freehold check --subject chaos --design zone-lock --seeds 3 --canary=lock"#,
    ),
    Step::new("products: format", r#"cd products; cargo fmt --all -- --check"#),
    Step::new(
        "products: clippy",
        r#"cd products; cargo clippy --workspace --all-targets -- -D warnings"#,
    ),
    Step::new(
        "products: documentation",
        r#"cd products; RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps \
    --document-private-items"#,
    ),
    Step::new("products: tests", r#"cd products; cargo test --workspace"#),
    Step::new("bare kernel: format", r#"cd kernel/bare; cargo fmt -- --check"#),
    Step::new("bare kernel: a boot", r#"kernel/bare/run --arch x86_64"#),
];
