//! Compiles the XDP program: the crate `xdp` brings none.

use std::env;
use std::error::Error;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=redirect.c");
    // The place of asm/types.h in Debian. With the target bpf, clang does not look there.
    let headers = format!(
        "-I/usr/include/{}-linux-gnu",
        env::var("CARGO_CFG_TARGET_ARCH")?
    );
    let object = format!("{}/redirect.o", env::var("OUT_DIR")?);
    let mut clang = Command::new("clang");
    clang.args([
        "-O2",
        "-g",
        "-target",
        "bpf",
        &headers,
        "-c",
        "redirect.c",
        "-o",
        &object,
    ]);
    if !clang.status()?.success() {
        return Err("clang cannot compile redirect.c".into());
    }
    Ok(())
}
