//! Compiles the C side of `dpdk`, if that feature is on: the calls that move packets through DPDK
//! are `static inline` functions of its headers, so only C can make them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk::compile();
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::process::Command;

    const SHIM: &str = "src/dpdk/shim.c";

    pub(super) fn compile() {
        println!("cargo::rerun-if-changed={SHIM}");
        // DPDK's interface changes with each November release; 22.11 is the one checked.
        let found = pkg_config::Config::new()
            .range_version("22.11".."23.11")
            .probe("libdpdk");
        if let Err(error) = found {
            panic!("feature `dpdk` needs DPDK 22.11 (apt install libdpdk-dev): {error}");
        }
        let mut build = cc::Build::new();
        build.file(SHIM).warnings(true).flag("-std=gnu11");
        for flag in compiler_flags() {
            build.flag(flag);
        }
        build.compile("mpps_dpdk");
    }

    /// The flags that are no paths, which the crate `pkg-config` leaves out: the instruction set
    /// that the inline functions are written for.
    fn compiler_flags() -> Vec<String> {
        let output = Command::new("pkg-config")
            .args(["--cflags", "libdpdk"])
            .output()
            .expect("pkg-config was found a moment ago");
        let text = String::from_utf8_lossy(&output.stdout);
        text.split_whitespace().map(str::to_owned).collect()
    }
}
