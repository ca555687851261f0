//! The proofs.

use super::{Proof, Step};

// The gate has this too.
pub(super) const GOLDEN_COUNTS: Step = Step::new(
    "golden counts",
    r#"cargo bench --profile figures -q -p freehold-linux --bench golden"#,
);

/// In the order in which `all` runs them.
pub(super) const PROOFS: &[Proof] = &[
    Proof {
        name: "models",
        what: "loom and shuttle on the protocols: core, host, C library, products",
        steps: &[
            Step::new("core", r#"cargo test -p freehold -p freehold-lru --test models"#),
            Step::new("host", r#"cargo test -p freehold-host --test models"#),
            Step::new("C library", r#"cargo test -p freehold-c --test models"#),
            Step::new("block cache", r#"cd products; cargo test -p freehold-cache --test models"#),
            Step::new("pool", r#"cd products; cargo test -p freehold-pool --test models"#),
            Step::new("mallocs", r#"cd products; cargo test -p freehold-malloc --test models"#),
        ],
    },
    Proof {
        name: "stops",
        what: "a CPU stopped at each of its steps while others go on; exhaustive interleavings",
        steps: &[Step::new("core", r#"cargo test -p freehold -p freehold-lru --test steps"#)],
    },
    Proof {
        name: "mutants",
        what: "broken protocols, each killed by its test or with the reason why not",
        steps: &[Step::new("all", r#"cargo xtask mutants"#)],
    },
    Proof {
        name: "fuzz",
        what: "libFuzzer on parsers and lists of calls, a minute a target",
        steps: &[Step::new("all", r#"tools/fuzz"#)],
    },
    Proof {
        name: "litmus",
        what: "forbidden outcomes under RC11 and AArch64, and what weakened tests show",
        steps: &[Step::new("all", r#"tools/litmus"#)],
    },
    Proof {
        name: "sanitizers",
        what: "AddressSanitizer, ThreadSanitizer and valgrind",
        steps: &[
            Step::new("address", r#"tools/test-sanitizers address"#),
            Step::new("thread", r#"tools/test-sanitizers thread"#),
            Step::new("valgrind", r#"tools/test-sanitizers valgrind"#),
        ],
    },
    Proof {
        name: "aarch64",
        what: "tests as AArch64 programs in QEMU",
        steps: &[Step::new("all", r#"tools/test-aarch64"#)],
    },
    Proof {
        name: "footprint",
        what: "what the core takes in a kernel: text, panics, the stack of each call",
        steps: &[Step::new("all", r#"tools/footprint --check"#)],
    },
    Proof { name: "golden", what: "instruction counts of the hot paths", steps: &[GOLDEN_COUNTS] },
    Proof {
        name: "kernels",
        what: "bare metal, the Linux module, and Linux on Freehold, booted in QEMU",
        steps: &[
            Step::new("bare: boots", r#"kernel/bare/run"#),
            Step::new("Linux module: format", r#"cd kernel/linux/freehold; cargo fmt -- --check"#),
            Step::new("Linux module: boots", r#"kernel/linux/test"#),
            Step::new("Linux on Freehold: boots", r#"kernel/linux/vmlinux/test"#),
            Step::new(
                "x86-64: clippy",
                r#"for of in bare linux/freehold; do
    (cd "kernel/$of"; cargo clippy --release --target x86_64-unknown-none -- -D warnings)
done
cd kernel/linux/freehold
cargo clippy --release --target x86_64-unknown-none --features own -- -D warnings"#,
            ),
            Step::new(
                "AArch64: clippy",
                r#"cd kernel/bare
cargo clippy --release --target aarch64-unknown-none-softfloat -- -D warnings"#,
            ),
        ],
    },
    Proof {
        name: "msrv",
        what: "the oldest Rust that is promised",
        steps: &[Step::new("all", r#"tools/msrv"#)],
    },
    Proof {
        name: "knobs",
        what: "pageblocks of order 13; beyond its range, a knob does not compile",
        steps: &[
            Step::new(
                "order 13",
                r#"export FREEHOLD_PAGEBLOCK_ORDER=13 CARGO_TARGET_DIR=target/geometry
cargo test -p freehold --test any_order"#,
            ),
            Step::new(
                "out of range",
                r#"for knob in PAGEBLOCK_ORDER=6 PAGEBLOCK_ORDER=14 \
    PAGEBLOCK_ORDER=many FRAME_BYTES=12288; do
    if env "FREEHOLD_$knob" CARGO_TARGET_DIR=target/geometry cargo check -q -p freehold; then
        echo "FREEHOLD_$knob compiles, and should not"
        exit 1
    fi
done"#,
            ),
        ],
    },
    Proof {
        name: "mallocs",
        what: "features that compile C, and programs on the mallocs",
        steps: &[
            Step::new(
                "clippy",
                r#"cargo clippy --workspace --all-targets --all-features -- -D warnings"#,
            ),
            Step::new(
                "documentation",
                r#"export RUSTDOCFLAGS="-D warnings"
cargo doc --workspace --all-features --no-deps --document-private-items"#,
            ),
            Step::new(
                "peers",
                r#"cargo test --release -p freehold-lab --features mallocs peers::"#,
            ),
            Step::new("programs", "products/tools/test-preload"),
            Step::new(
                "race",
                r#"cargo run --release --features mallocs -- race \
    fill random bulk huge mixed --rounds 2 --frames 512 \
    --sample-ms 0 --contestants mimalloc,jemalloc"#,
            ),
        ],
    },
    Proof {
        name: "packages",
        what: "packages as crates.io would get them, and the C library as it is installed",
        steps: &[
            Step::new("C library", "tools/test-install-c"),
            Step::new(
                "all",
                r#"rm -f target/package/*.crate
cargo package -q --workspace --exclude xtask --no-verify --allow-dirty
for package in target/package/*.crate; do
    tar -tzf "$package" --wildcards '*/README.md' '*/LICENSE-APACHE' '*/LICENSE-MIT' >/dev/null || {
        echo "$package lacks a file"
        exit 1
    }
done"#,
            ),
        ],
    },
    Proof {
        name: "races",
        what: "races with a peer from a shared library, compared; benches: each ends",
        steps: &[
            Step::new(
                "races",
                r#"cargo build --release
freehold=target/release/freehold tiny="--rounds 2 --frames 512 --sample-ms 0"
cc -std=c11 -Wall -Wextra -Werror -O2 -shared -fPIC -Iinclude -o target/spinlock_stack.so \
    examples/peers/spinlock_stack.c
$freehold race $tiny --peer target/spinlock_stack.so
$freehold race fill $tiny --contestants zone-lock --json
$freehold race pair $tiny --csv
$freehold race pair $tiny --json >target/race.json
$freehold diff target/race.json target/race.json"#,
            ),
            Step::new(
                "benches",
                r#"for bench in double_free failing lru_cost tebibyte; do
    timeout 300 cargo bench -q -p freehold-host --bench $bench
done
cd products; timeout 300 cargo bench -q -p freehold-malloc --bench heap_policies -- 1"#,
            ),
        ],
    },
    Proof {
        name: "commands",
        what: "every command of the lab, small",
        steps: &[Step::new("all", r#".ci/commands"#)],
    },
    Proof {
        name: "sweep",
        what: "a sweep through Slurm, killed and gone on",
        steps: &[Step::new(
            "all",
            r#"cargo build --release; tools/test-slurm-sweep target/release/freehold"#,
        )],
    },
    Proof {
        name: "schedules",
        what: "random schedules for every design, with CPUs that stop",
        steps: &[
            Step::new(
                "designs",
                r#"cargo build --release
printf '%s\n' freehold zone-lock lazy-merge cluster merge-ahead block-owner \
    | xargs -P 2 -I{} target/release/freehold check --design {} --seeds 300
printf '%s\n' freehold zone-lock lazy-merge cluster merge-ahead block-owner \
    | xargs -P 2 -I{} target/release/freehold check --design {} --stop-cpu --seeds 30"#,
            ),
            Step::new(
                "LRU",
                r#"cargo build --release
printf '%s\n' zone-lock freehold \
    | xargs -P 2 -I{} target/release/freehold check --subject lru --design {} --seeds 200"#,
            ),
        ],
    },
    Proof {
        name: "minutes",
        what: "ten minutes of every subject on every design, and a planted defect",
        steps: &[
            Step::new(
                "ten minutes",
                r#"cargo run --release -- check --minutes 10 --save target/findings"#,
            ),
            Step::finds(
                "planted",
                r#"cargo build --release
target/release/freehold check --minutes 0.02 --subject host --design freehold --canary \
    --save target/findings-planted"#,
            ),
        ],
    },
    Proof {
        name: "stress",
        what: "threads that make all calls at once, for minutes",
        steps: &[
            Step::new(
                "core",
                r#"FREEHOLD_STRESS_TIMES=8 cargo test --release -p freehold --test native stress"#,
            ),
            Step::new(
                "LRU",
                r#"FREEHOLD_STRESS_SECONDS=60 \
    cargo test --release -p freehold-lru --test native stress"#,
            ),
        ],
    },
    Proof {
        name: "chaos",
        what: "an hour of threads that are delayed at any step, on all designs",
        steps: &[Step::new(
            "an hour",
            r#"cargo run --release -- check --minutes 60 --subject chaos \
    --save target/findings"#,
        )],
    },
    Proof {
        name: "planted",
        what: "defects of every layer, each found within a minute",
        steps: &[Step::new("all", r#"tools/planted"#)],
    },
];
