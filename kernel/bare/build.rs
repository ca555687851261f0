//! Names the linker script of the architecture.

fn main() {
    let variable = |name| std::env::var(name).expect("cargo sets it");
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let script = format!("{}/src/{arch}/link.ld", variable("CARGO_MANIFEST_DIR"));
    println!("cargo:rustc-link-arg-bins=-T{script}");
    println!("cargo:rerun-if-changed={script}");
}
