//! A packaged kernel with its modules, and the few files that must be in memory when it starts.

use super::apt::Apt;
use super::machine::Source;
use super::run_quietly as run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The first process of a machine.
const INIT: &str = include_str!("../../vm/init");
/// The modules for access to the host's files. A kernel may have some of them built in.
const WANTED: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// A kernel that can be started.
#[derive(Debug)]
pub(super) struct VmKernel {
    /// Its file.
    pub(super) image: PathBuf,
    /// The folder with its modules.
    pub(super) modules: PathBuf,
    /// The files in memory at its start.
    pub(super) initramfs: PathBuf,
}

impl VmKernel {
    /// Fetches the parts that are not in the cache yet.
    pub(super) fn fetch(cache: &Path, apt: &Apt, source: &Source) -> Result<Self> {
        let (first, version) = apt.newest(&source.packages[0])?;
        let folder = cache.join("kernel").join(&first);
        if !folder.exists() {
            println!("vm: fetching {first}");
            let partial = emptied(&append(&folder, ".partial"))?;
            for package in &source.packages {
                apt.unpack(&package.replace('*', &version), &partial)?;
            }
            // Debian moves /lib to /usr/lib, suite by suite.
            let old = partial.join("lib");
            if old.exists() {
                fs::create_dir_all(partial.join("usr"))?;
                fs::rename(old, partial.join("usr/lib"))?;
            }
            let release = only_entry(&partial.join("usr/lib/modules"))?;
            let mut depmod = Command::new("depmod");
            run(depmod.arg("-b").arg(partial.join("usr")).arg(&release))?;
            fs::rename(partial, &folder)?;
        }
        let release = only_entry(&folder.join("usr/lib/modules"))?;
        let modules = folder.join("usr/lib/modules").join(&release);
        let images = [
            folder.join(format!("boot/vmlinuz-{release}")),
            modules.join("vmlinuz"),
        ];
        let image = images.into_iter().find(|image| image.exists());
        let image = image.with_context(|| format!("{first} has no vmlinuz"))?;
        let initramfs = folder.join("initramfs");
        let files = initial_files(cache, apt, &modules)?;
        fs::write(&initramfs, archive(&files))?;
        Ok(Self {
            image,
            modules,
            initramfs,
        })
    }
}

/// A file of the archive: path, permissions, content.
type File = (String, u32, Vec<u8>);

/// busybox, the first process, and the modules in the order of their insertion.
fn initial_files(cache: &Path, apt: &Apt, modules: &Path) -> Result<Vec<File>> {
    let folder = cache.join("busybox");
    if !folder.exists() {
        let partial = emptied(&append(&folder, ".partial"))?;
        apt.unpack("busybox-static", &partial)?;
        fs::rename(partial, &folder)?;
    }
    let shells = [folder.join("bin/busybox"), folder.join("usr/bin/busybox")];
    let busybox = shells.iter().find_map(|path| fs::read(path).ok());
    let busybox = busybox.context("busybox-static has no busybox")?;
    let mut files = vec![
        ("init".to_owned(), 0o100_755, INIT.into()),
        ("bin/busybox".to_owned(), 0o100_755, busybox),
    ];
    let dependencies = fs::read_to_string(modules.join("modules.dep"))?;
    let mut names = String::new();
    for path in in_order(&dependencies, &WANTED) {
        let name = path
            .rsplit('/')
            .next()
            .unwrap_or(path)
            .trim_end_matches(".xz");
        let content = fs::read(modules.join(path))?;
        let content = if path.ends_with(".xz") {
            unpacked(&modules.join(path))?
        } else {
            content
        };
        files.push((format!("modules/{name}"), 0o100_644, content));
        names.push_str(&format!("{name}\n"));
    }
    files.push(("modules/order".to_owned(), 0o100_644, names.into()));
    Ok(files)
}

/// The paths of modules and their dependencies, each after its dependencies (modules.dep(5)).
fn in_order<'a>(dependencies: &'a str, wanted: &[&str]) -> Vec<&'a str> {
    let mut order: Vec<&str> = Vec::new();
    for name in wanted {
        let is_it = |path: &str| {
            let file = path.rsplit('/').next().unwrap_or(path);
            file.split('.').next() == Some(name)
        };
        let row = dependencies.lines().find_map(|line| {
            let (path, needs) = line.split_once(':')?;
            is_it(path).then_some((path, needs))
        });
        let Some((path, needs)) = row else { continue };
        // modprobe inserts dependencies from the last to the first.
        for path in needs.split_whitespace().rev().chain([path]) {
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    order
}

fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let output = Command::new("xz")
        .arg("-dc")
        .arg(path)
        .output()
        .context("xz")?;
    if !output.status.success() {
        bail!("xz cannot read {}", path.display());
    }
    Ok(output.stdout)
}

/// The files in the format that the kernel reads (Documentation/driver-api/early-userspace,
/// "initramfs buffer format").
fn archive(files: &[File]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut entry = |name: &str, mode: u32, content: &[u8]| {
        let (size, length) = (content.len(), name.len() + 1);
        let _ = write!(
            bytes,
            "070701{:08X}{mode:08X}{:08X}{:08X}{:08X}{:08X}{size:08X}{:08X}{:08X}{:08X}{:08X}{length:08X}{:08X}",
            0, 0, 0, 1, 0, 0, 0, 0, 0, 0
        );
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    };
    for folder in ["bin", "modules"] {
        entry(folder, 0o040_755, &[]);
    }
    for (name, mode, content) in files {
        entry(name, *mode, content);
    }
    entry("TRAILER!!!", 0, &[]);
    bytes
}

/// A path with more text at the end of its name.
fn append(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// A folder without leftovers of an interrupted run.
fn emptied(folder: &Path) -> Result<PathBuf> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    Ok(folder.to_owned())
}

/// The only entry in a folder.
fn only_entry(folder: &Path) -> Result<String> {
    let entry = fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .next()
        .with_context(|| format!("{} is empty", folder.display()))??;
    entry
        .file_name()
        .into_string()
        .ok()
        .context("a version in UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_stands_behind_what_it_needs() {
        let dependencies = "kernel/net/9p/9pnet.ko:\n\
            kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko kernel/fs/fscache.ko kernel/fs/netfs.ko\n\
            kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/virtio.ko\n";
        assert_eq!(
            in_order(dependencies, &["built_in", "9pnet_virtio", "9p"]),
            [
                "kernel/virtio.ko",
                "kernel/net/9p/9pnet.ko",
                "kernel/net/9p/9pnet_virtio.ko",
                "kernel/fs/netfs.ko",
                "kernel/fs/fscache.ko",
                "kernel/fs/9p/9p.ko.xz",
            ]
        );
    }

    #[test]
    fn an_archive_is_aligned_and_ends_with_its_trailer() {
        let bytes = archive(&[("init".to_owned(), 0o100_755, b"#!x".to_vec())]);
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..6], b"070701");
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("070701").count(), 4);
        assert!(text.contains("TRAILER!!!"));
    }
}
