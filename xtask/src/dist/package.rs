//! The Debian package, and the files made from it. It depends on nothing.

use super::Release;
use crate::vm::run_quietly as run;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// dpkg's name of the target.
const ARCHITECTURE: &str = "amd64";

/// The project has no address yet.
const MAINTAINER: &str = "The mpps developers <mpps@localhost>";

/// The text before the MIT licence. The other licence is part of every Debian.
const COPYRIGHT: &str =
    "mpps may be used under the MIT licence or the Apache licence 2.0, as you like.
The Apache licence is in /usr/share/common-licenses/Apache-2.0; the other one is:

";

/// Before the package is removed, the exporter is stopped.
const PRERM: &str = "#!/bin/sh
set -e
if [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --quiet disable --now mpps-exporter.service || true
    systemctl --quiet stop 'mpps-fix@*.service' || true
fi
";

const UNITS: &str = "usr/lib/systemd/system";

/// systemd reads its units again after the package is installed or removed.
const RELOAD: &str = "#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || true
fi
";

const LIBRARY: &str = "usr/lib/mpps/libmpps_accelerate.so";

/// Builds it. Returns the name of its file.
pub(super) fn build(release: &Release, program: &Path, pages: &Path) -> Result<String> {
    let tree = release.folder.join("tree");
    let put = |from: &Path, to: &str, mode: u32| -> Result<()> {
        let bytes = fs::read(from).with_context(|| from.display().to_string())?;
        write(&tree, to, &bytes, mode)
    };
    put(program, "usr/bin/mpps", 0o755)?;
    put(&release.library(), LIBRARY, 0o644)?;
    for entry in fs::read_dir(pages)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match &*name {
            "mpps.bash" => put(&path, "usr/share/bash-completion/completions/mpps", 0o644)?,
            "_mpps" => put(&path, "usr/share/zsh/vendor-completions/_mpps", 0o644)?,
            "mpps.fish" => put(
                &path,
                "usr/share/fish/vendor_completions.d/mpps.fish",
                0o644,
            )?,
            page => {
                let to = format!("usr/share/man/man1/{page}");
                put(&path, &to, 0o644)?;
                compress(&tree.join(to))?;
            }
        }
    }
    let packaging = release.root.join("packaging");
    for name in ["mpps-exporter.service", "mpps-fix@.service"] {
        let unit = fs::read_to_string(packaging.join(name))?;
        let unit = unit.replace("/usr/local/bin/mpps", "/usr/bin/mpps");
        write(&tree, &format!("{UNITS}/{name}"), unit.as_bytes(), 0o644)?;
    }
    for example in ["prometheus-rules.yml", "grafana-dashboard.json"] {
        let to = format!("usr/share/doc/mpps/examples/{example}");
        put(&packaging.join(example), &to, 0o644)?;
    }
    let mit = fs::read_to_string(release.root.join("LICENSE-MIT"))?;
    let copyright = format!("{COPYRIGHT}{mit}");
    write(
        &tree,
        "usr/share/doc/mpps/copyright",
        copyright.as_bytes(),
        0o644,
    )?;
    put(
        &release.root.join("CHANGELOG.md"),
        "usr/share/doc/mpps/CHANGELOG.md",
        0o644,
    )?;
    let date = run(Command::new("date")
        .args(["--utc", "--rfc-email", "--date"])
        .arg(format!("@{}", release.epoch)))?;
    let entry = format!(
        "mpps ({}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {MAINTAINER}  {date}",
        release.version
    );
    let changelog = "usr/share/doc/mpps/changelog";
    write(&tree, changelog, entry.as_bytes(), 0o644)?;
    compress(&tree.join(changelog))?;
    control(release, &tree)?;

    let file = format!("mpps_{}_{ARCHITECTURE}.deb", release.version);
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "--build", "-Zxz", "tree", &file]);
    run(pack
        .env("SOURCE_DATE_EPOCH", &release.epoch)
        .current_dir(&release.folder))?;
    fs::remove_dir_all(tree)?;
    Ok(file)
}

/// Writes the files that dpkg reads: deb-control(5), deb-prerm(5) and so on.
fn control(release: &Release, tree: &Path) -> Result<()> {
    let kilobytes = run(Command::new("du")
        .args(["--summarize", "--apparent-size", "--block-size=1K"])
        .arg(tree))?;
    let kilobytes = kilobytes.split_whitespace().next().unwrap_or_default();
    let text = format!(
        "Package: mpps\n\
         Version: {}\n\
         Architecture: {ARCHITECTURE}\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {kilobytes}\n\
         Section: net\n\
         Priority: optional\n\
         Description: receive millions of packets a second, and know where the rest went\n \
         Receives and sends UDP by every path that Linux has, counts each packet in\n \
         a ledger that balances, names what limits a host and why a server drops\n \
         packets, and brings a lab of two hosts. The exporter for Prometheus is not\n \
         started by the installation: systemctl enable --now mpps-exporter\n",
        release.version
    );
    let files = run(Command::new("find")
        .args(["usr", "-type", "f", "-printf", "%p\\0"])
        .current_dir(tree))?;
    let files = files.split('\0').filter(|file| !file.is_empty());
    let mut files: Vec<&str> = files.collect();
    files.sort_unstable();
    let sums = run(Command::new("md5sum").args(files).current_dir(tree))?;
    write(tree, "DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
    write(tree, "DEBIAN/control", text.as_bytes(), 0o644)?;
    write(tree, "DEBIAN/prerm", PRERM.as_bytes(), 0o755)?;
    write(tree, "DEBIAN/postinst", RELOAD.as_bytes(), 0o755)?;
    write(tree, "DEBIAN/postrm", RELOAD.as_bytes(), 0o755)
}

/// Writes a file of the tree, whatever the caller's umask.
fn write(tree: &Path, to: &str, bytes: &[u8], mode: u32) -> Result<()> {
    let path = tree.join(to);
    let mut folder = tree.to_owned();
    for part in Path::new(to)
        .parent()
        .into_iter()
        .flat_map(Path::components)
    {
        folder.push(part);
        if !folder.exists() {
            fs::create_dir_all(&folder)?;
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
    }
    fs::set_permissions(tree, fs::Permissions::from_mode(0o755))?;
    fs::write(&path, bytes)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// Compresses a file as Debian wants manual pages and changelogs, without the time.
fn compress(file: &Path) -> Result<()> {
    run(Command::new("gzip").args(["-9", "--no-name"]).arg(file)).map(drop)
}
