# What kernel/linux/build and kernel/linux/vmlinux/build share. They source it as their first step,
# while $0 still names them from the folder that they were called in.

linux=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$linux/../.." && pwd)
script=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
install=no

say() { echo "build: $*" >&2; }
skip() {
    echo "SKIPPED: $*" >&2
    exit 77
}
# The comment at the head of the script.
usage() { sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$script"; }

# Installs packages, if that was asked for: need WHAT PACKAGE...
need() {
    local what=$1
    shift
    [ $install = yes ] || skip "no $what: run with --install as root, or: apt-get install $*"
    command -v apt-get >/dev/null || skip "no $what, and no apt-get to install it"
    say "installs $*"
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >&2 ||
        skip "apt-get cannot install $*: run apt-get update first; Debian 12 has 6.1, and 6.12 in" \
            "its security suite or in bookworm-backports"
}

# What compiles either kind, and the programs of the guest.
need_tools() {
    local libraries
    [ "$(uname -m)" = x86_64 ] || skip "it is for x86-64, and this machine is $(uname -m)"
    command -v gcc >/dev/null && command -v make >/dev/null || need "C compiler" gcc make
    command -v cpio >/dev/null || need cpio cpio
    { [ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1; } ||
        need "static busybox" busybox-static
    [ -e /usr/include/libelf.h ] || need libelf libelf-dev
    libraries=$(rustc --print target-libdir --target x86_64-unknown-none 2>/dev/null || true)
    [ -d "$libraries" ] ||
        skip "no Rust target x86_64-unknown-none: rustup target add x86_64-unknown-none"
}

# Whether the kernel whose sources or headers these are keeps the number of the CPU and the
# preemption count in one struct, as 6.2 to 6.14 do: the others have variables.
has_pcpu_hot() { grep -qs 'int[[:space:]]*preempt_count;' "$1/arch/x86/include/asm/current.h"; }

# The Rust side as one relocatable object, rust.o, whose symbols are the functions with a prefix:
# rust_object FOLDER FEATURES PREFIX[|PREFIX]... LOG [ARGUMENT OF harden]...
rust_object() {
    local folder=$1 features=$2 prefixes=$3 log=$4
    shift 4
    # The target has no SSE, no red zone and the kernel's code model.
    local flags="-Crelocation-model=static -Cforce-unwind-tables=no -Cjump-tables=no -Cdebuginfo=0"
    say "Rust side (features: ${features:-none})"
    (
        unset CARGO_ENCODED_RUSTFLAGS
        cd "$linux/freehold" && RUSTFLAGS=$flags CARGO_TARGET_DIR=${rust_target:-$folder/rust} \
            cargo rustc --locked --release --lib --target x86_64-unknown-none \
            --features "$features" -- --emit "asm=$folder/unhardened.s"
    ) >>"$log" 2>&1 || { tail -20 "$log" >&2 && say "the Rust side does not build: $log" && exit 1; }
    say "$("$linux/harden" "$@" <"$folder/unhardened.s" 2>&1 >"$folder/rust.s")"
    # The assembly is of all crates, as they were linked.
    (
        cd "$folder" && as --gdwarf-5 -o rust.unlinked rust.s &&
            nm --defined-only rust.unlinked | awk -v prefixes="^($prefixes)_" \
                '$2 == "T" && $3 ~ prefixes { print $3 }' >exported &&
            # shellcheck disable=SC2046 # words
            ld -r --gc-sections -e freehold_validate $(sed 's/^/-u /' exported) \
                -T "$linux/rust.lds" -o rust.o rust.unlinked &&
            objcopy --keep-global-symbols=exported rust.o
    ) >>"$log" 2>&1 || { tail -20 "$log" >&2 && say "the Rust side does not link: $log" && exit 1; }
}
