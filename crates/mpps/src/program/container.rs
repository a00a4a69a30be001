//! Containers, found by process, by ID, or by the name in the files of their runtime. No program of a
//! runtime is called.

use crate::input::believed;
use anyhow::{Context, Result, bail, ensure};
use mpps_os::text::Foreign;
use mpps_os::user::is_believed;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files with the names of a runtime's containers.
struct RuntimeFiles {
    /// A path. Each part `*` stands for any name.
    path: &'static str,
    /// Where the ID is in the file: a JSON pointer, or none for the name of its directory.
    id: Option<&'static str>,
    /// Where its names are.
    names: &'static [&'static str],
}

/// The names in the annotations of containerd, CRI-O and nerdctl.
const ANNOTATIONS: &[&str] = &[
    "/annotations/io.kubernetes.cri.container-name",
    "/annotations/io.kubernetes.cri.sandbox-name",
    "/annotations/io.kubernetes.container.name",
    "/annotations/io.kubernetes.pod.name",
    "/annotations/nerdctl~1name",
    "/hostname",
];

/// The files of docker below its data directory.
const DOCKER: &str = "/containers/*/config.v2.json";

const fn docker(path: &'static str) -> RuntimeFiles {
    RuntimeFiles {
        path,
        id: Some("/ID"),
        names: &["/Name"],
    }
}

/// Not those of ordinary users, in their home directories: root would believe what they write.
const FILES: [RuntimeFiles; 6] = [
    docker("/var/lib/docker/containers/*/config.v2.json"),
    docker("/var/snap/docker/common/var-lib-docker/containers/*/config.v2.json"),
    RuntimeFiles {
        path: "/var/lib/containers/storage/overlay-containers/containers.json",
        id: Some("/id"),
        names: &["/names/0", "/names/1"],
    },
    RuntimeFiles {
        path: "/run/containers/storage/overlay-containers/*/userdata/config.json",
        id: None,
        names: ANNOTATIONS,
    },
    RuntimeFiles {
        path: "/run/containerd/io.containerd.runtime.v2.task/*/*/config.json",
        id: None,
        names: ANNOTATIONS,
    },
    RuntimeFiles {
        path: "/run/k3s/containerd/io.containerd.runtime.v2.task/*/*/config.json",
        id: None,
        names: ANNOTATIONS,
    },
];

/// The shortest beginning of an ID, and the length of a whole one: the ID is in hexadecimal digits.
const ID: [usize; 2] = [4, 64];

/// The process of the container that began first.
pub(crate) fn process_of(root: &Path, name: &str) -> Result<u32> {
    processes_of(root, name).map(|all| all[0])
}

/// The processes of the container, that which began first at first. Those with a process in no container, which is
/// first then, are those of its network namespace.
///
/// # Errors
/// There is none, or several containers are meant, or a container and a process outside of it, or the
/// processes of a container are in different network namespaces.
pub(crate) fn processes_of(root: &Path, name: &str) -> Result<Vec<u32>> {
    let is_there = |pid: &u32| root.join(format!("proc/{pid}/ns")).exists();
    let process: Option<u32> = name.parse().ok().filter(is_there);
    let wanted = ids_of(root, name);
    let (mut found, mut own) = (BTreeMap::<String, Vec<u32>>::new(), None);
    let all = containers(root);
    for (pid, id) in all.iter().cloned() {
        if process == Some(pid) {
            own = Some(id.clone());
        }
        if wanted.iter().any(|wanted| id.starts_with(&**wanted)) {
            found.entry(id).or_default().push(pid);
        }
    }
    let namespace = |pid: &u32| root.join(format!("proc/{pid}/ns/net")).read_link().ok();
    if let Some(pid) = process {
        let other = found.keys().find(|id| own.as_ref() != Some(id));
        ensure!(
            other.is_none(),
            "--container {pid}: both a process and container {} are called so; use --netns {pid} for the \
             process, or more of the ID",
            other.map_or("", String::as_str)
        );
        let others = match own {
            Some(own) => all
                .into_iter()
                .filter(|(_, id)| *id == own)
                .map(|(pid, _)| pid)
                .collect(),
            None => numbers(root)
                .into_iter()
                .filter(|other| namespace(other).is_some_and(|it| namespace(&pid) == Some(it)))
                .collect::<Vec<u32>>(),
        };
        let others = others.into_iter().filter(|other| *other != pid);
        return Ok(iter::once(pid).chain(others).collect());
    }
    for (id, pids) in &found {
        let same = in_one_namespace(id, pids, namespace);
        same.with_context(|| format!("--container {}", Foreign(name)))?;
    }
    // A pod has several containers, and one namespace.
    let firsts = found.values().map(|pids| &pids[0]);
    let namespaces: BTreeSet<_> = firsts.clone().map(namespace).collect();
    let mut every: Vec<u32> = found.values().flatten().copied().collect();
    every.sort_unstable();
    let is_short = wanted.iter().any(|wanted| wanted.len() < ID[1]);
    let is_ambiguous = found.len() > 1 && (is_short || namespaces.len() > 1);
    ensure!(
        !is_ambiguous,
        "--container {}: several containers are called so: {}; write more of an ID",
        Foreign(name),
        found.into_keys().collect::<Vec<_>>().join(", ")
    );
    if wanted.is_empty() {
        bail!(
            "--container {}: no file of docker, podman, CRI-O or containerd has that name (as root all can be \
             read); use the ID, or the PID of a process in it",
            Foreign(name)
        );
    }
    ensure!(
        !every.is_empty(),
        "--container {}: no process is in it (/proc/PID/cgroup); it does not run, or use the PID of a \
         process in it",
        Foreign(name)
    );
    Ok(every)
}

/// The network namespaces of containers and those with a name of `ip netns`, by number: a file that stands
/// for each, and the container's ID. Others are left out: any user may make some.
pub(crate) fn namespaces(root: &Path) -> BTreeMap<u64, (PathBuf, Option<String>)> {
    let in_containers = containers(root).into_iter();
    let in_containers =
        in_containers.map(|(pid, id)| (root.join(format!("proc/{pid}/ns/net")), Some(id)));
    let directory = root.join("run/netns");
    let named = names(&directory).into_iter();
    let named = named.map(|name| (directory.join(name), None));
    let mut all = BTreeMap::new();
    for (path, id) in in_containers.chain(named) {
        if let Ok(file) = fs::metadata(&path) {
            all.entry(file.ino()).or_insert((path, id));
        }
    }
    all
}

/// The names of containers by ID.
pub(crate) fn names_by_id(root: &Path) -> BTreeMap<String, String> {
    let named = named(root).into_iter();
    let first = named.filter_map(|(id, names)| Some((id, names.into_iter().next()?)));
    first.collect()
}

/// The IDs of containers with their names.
fn named(root: &Path) -> Vec<(String, Vec<String>)> {
    let usual = FILES.iter().map(|files| (files, files.path.to_owned()));
    let other = docker_directories(root).into_iter();
    let other = other.map(|directory| (&FILES[0], directory + DOCKER));
    let all = usual.chain(other);
    all.flat_map(|(files, path)| files.named(root, &path))
        .collect()
}

/// The IDs, or their beginnings, that a name may mean.
fn ids_of(root: &Path, name: &str) -> Vec<String> {
    let mut named = named(root);
    named.retain(|(_, names)| names.iter().any(|own| own == name));
    let named: Vec<String> = named.into_iter().map(|(id, _)| id).collect();
    let is_id = name.len() >= ID[0] && name.chars().all(|digit| digit.is_ascii_hexdigit());
    match named.is_empty() && is_id {
        true => vec![name.to_ascii_lowercase()],
        false => named,
    }
}

/// Fails if processes of a container are in different network namespaces, as far as these can be seen.
fn in_one_namespace(
    id: &str,
    pids: &[u32],
    namespace: impl Fn(&u32) -> Option<PathBuf>,
) -> Result<()> {
    let seen = pids.iter().filter_map(|pid| Some((pid, namespace(pid)?)));
    let seen: Vec<_> = seen.collect();
    let differs = seen.windows(2).find(|pair| pair[0].1 != pair[1].1);
    let Some([(one, _), (other, _)]) = differs else {
        return Ok(());
    };
    bail!(
        "processes {one} and {other} of container {id} are in different network namespaces; name the process: \
         --container PID"
    )
}

/// The data directories that docker was given, by its configuration or on its command line (dockerd(8)).
fn docker_directories(root: &Path) -> Vec<String> {
    const OPTIONS: [&str; 3] = ["--data-root", "--graph", "-g"];
    let text = believed(&root.join("etc/docker/daemon.json")).unwrap_or_default();
    let configured: Value = serde_json::from_str(&text).unwrap_or_default();
    let configured = configured["data-root"].as_str().map(str::to_owned);
    let pids = names(&root.join("proc")).into_iter();
    let pids = pids.filter(|name| name.parse::<u32>().is_ok());
    // Another user's process may have any name, and keep the reader of its command line waiting.
    let paths = pids.map(|pid| root.join("proc").join(pid));
    let paths = paths.filter(|path| fs::metadata(path).is_ok_and(|it| is_believed(it.uid())));
    let lines = paths.filter_map(|path| fs::read_to_string(path.join("cmdline")).ok());
    let given = lines.filter_map(|line| {
        let words: Vec<&str> = line.split('\0').collect();
        words.first()?.ends_with("dockerd").then_some(())?;
        let mut pairs = words.windows(2);
        let directory = pairs.find_map(|pair| match pair[0].split_once('=') {
            Some((name, value)) => OPTIONS.contains(&name).then_some(value),
            None => OPTIONS.contains(&pair[0]).then_some(pair[1]),
        });
        directory.map(str::to_owned)
    });
    given.chain(configured).collect()
}

/// The processes in containers with the ID of theirs, in the order of their numbers.
fn containers(root: &Path) -> Vec<(u32, String)> {
    let ids = numbers(root).into_iter().flat_map(|pid| {
        let text = fs::read_to_string(root.join(format!("proc/{pid}/cgroup")));
        let id = id_in(root, &text.unwrap_or_default());
        id.into_iter().map(move |id| (pid, id))
    });
    ids.collect()
}

/// The numbers of all processes in order.
fn numbers(root: &Path) -> Vec<u32> {
    let pids = names(&root.join("proc")).into_iter();
    let mut pids: Vec<u32> = pids.filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// The ID in a text of `/proc/PID/cgroup`: `docker-ID.scope`, `libpod-ID.scope`, `cri-containerd-ID.scope`,
/// `crio-ID.scope`, `/docker/ID`, `/kubepods/burstable/podUID/ID`. Of several the last is the innermost.
fn id_in(root: &Path, text: &str) -> Option<String> {
    let is_id =
        |word: &&str| word.len() == ID[1] && word.chars().all(|digit| digit.is_ascii_hexdigit());
    text.lines().rev().find_map(|line| {
        let (controllers, mut path) = line.split_once(':')?.1.split_once(':')?;
        loop {
            let (above, name) = path.rsplit_once('/')?;
            let mut words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
            if let Some(id) = words.rfind(is_id) {
                let is_ours = is_cgroup_believed(root, controllers, above);
                return is_ours.then(|| id.to_ascii_lowercase());
            }
            path = above;
        }
    })
}

/// Whether only root or this user makes cgroups in this one, as far as its owner can be seen. Users have
/// cgroups of their own, and name those below as they like.
fn is_cgroup_believed(root: &Path, controllers: &str, path: &str) -> bool {
    let mounts = match controllers.trim_start_matches("name=") {
        "" => ["", "unified/"].map(str::to_owned).to_vec(),
        controllers => vec![format!("{controllers}/")],
    };
    let mut owners = mounts.iter().filter_map(|mount| {
        let path = format!("sys/fs/cgroup/{mount}{}", path.trim_start_matches('/'));
        fs::metadata(root.join(path)).ok()
    });
    owners.all(|owner| is_believed(owner.uid()))
}

impl RuntimeFiles {
    /// The IDs of the containers with their names.
    fn named(&self, root: &Path, path: &str) -> Vec<(String, Vec<String>)> {
        let mut named = Vec::new();
        for path in expand(root, path) {
            let all = match serde_json::from_str(&believed(&path).unwrap_or_default()) {
                Ok(Value::Array(all)) => all,
                Ok(one) => vec![one],
                Err(_) => continue,
            };
            let directory = path.components().rev().nth(1);
            let directory = match self.path.contains("/userdata/") {
                true => path.components().rev().nth(2),
                false => directory,
            };
            for one in all {
                let text = |pointer: &&str| one.pointer(pointer).and_then(Value::as_str);
                let names = self.names.iter().filter_map(text);
                let names = names.map(|own| own.trim_start_matches('/').to_owned());
                let of_directory =
                    || directory.map(|part| part.as_os_str().to_string_lossy().into_owned());
                let id = match self.id {
                    Some(pointer) => text(&pointer).map(str::to_owned),
                    None => of_directory(),
                };
                named.extend(id.map(|id| (id, names.collect())));
            }
        }
        named
    }
}

/// The paths that a pattern stands for: a part `*` is any name.
fn expand(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let parts = pattern.split('/').filter(|part| !part.is_empty());
    parts.fold(vec![root.to_path_buf()], |paths, part| match part {
        "*" => {
            let below = paths.iter().flat_map(|path| {
                let names = names(path).into_iter();
                names.map(|name| path.join(name))
            });
            below.collect()
        }
        part => paths.into_iter().map(|path| path.join(part)).collect(),
    })
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_trial::mentions;
    use std::os::unix::fs::{chown, symlink};

    const WEB: &str = "a1";
    const DNS: &str = "a2";

    fn id(start: &str) -> String {
        format!("{start:0<64}")
    }

    /// A machine with containers of several runtimes.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
            fs::write(path, text).expect("a file");
        };
        let process = |pid: u32, group: &str| {
            write(&format!("proc/{pid}/cgroup"), &format!("0::{group}\n"));
            write(&format!("proc/{pid}/ns/net"), "");
        };
        process(1, "/init.scope");
        process(50, &format!("/system.slice/docker-{}.scope", id(WEB)));
        process(7, &format!("/docker/{}", id(DNS)));
        process(
            60,
            &format!("/machine.slice/libpod-{}.scope/container", id("b")),
        );
        let pod = "/kubepods.slice/kubepods-podd0d1.slice/cri-containerd-";
        process(70, &format!("{pod}{}.scope", id("c1")));
        process(72, &format!("{pod}{}.scope", id("c10000f")));
        process(71, &format!("{pod}{}.scope", id("c2")));
        process(80, &format!("/docker/{}", id("6001")));
        process(81, &format!("/docker/{}", id("6000")));
        process(5000, &format!("/docker/{}", id("5000")));
        process(6000, "/init.scope");
        write(
            &format!("var/lib/docker/containers/{}/config.v2.json", id(WEB)),
            &format!("{{\"ID\": \"{}\", \"Name\": \"/web\"}}", id(WEB)),
        );
        write("var/lib/docker/containers/broken/config.v2.json", "{");
        for (pid, line, directory, name) in [
            (
                90,
                "/usr/bin/dockerd\0-H\0fd://\0--data-root\0/data/a\0",
                "data/a",
                "moved",
            ),
            (91, "dockerd\0--data-root=/data/b\0", "data/b", "second"),
            (92, "vi\0--data-root=/data/c\0", "data/c", "not docker's"),
            (93, "sh\0", "data/d", "configured"),
            (94, "sh\0", "home/kim/.local/share/docker", "own"),
            (95, "dockerd\0--data-root\0/data/e\0", "data/e", "foreign"),
            (96, "dockerd\0--data-root\0/data/f\0", "data/f", "planted"),
        ] {
            write(&format!("proc/{pid}/cmdline"), line);
            let id = id(&format!("d{pid}"));
            process(pid + 100, &format!("/docker/{id}"));
            write(
                &format!("{directory}/containers/{id}/config.v2.json"),
                &format!("{{\"ID\": \"{id}\", \"Name\": \"/{name}\"}}"),
            );
        }
        write("etc/docker/daemon.json", "{\"data-root\": \"/data/d\"}");
        write(
            "var/lib/containers/storage/overlay-containers/containers.json",
            &format!("[{{\"id\": \"{}\", \"names\": [\"mail\"]}}]", id("b")),
        );
        for (start, name) in [("c1", "pause"), ("c2", "resolver")] {
            let annotations = format!(
                "{{\"io.kubernetes.cri.container-name\": \"{name}\", \"io.kubernetes.cri.sandbox-name\": \"dns-0\"}}"
            );
            let at = "run/containerd/io.containerd.runtime.v2.task/k8s.io";
            write(
                &format!("{at}/{}/config.json", id(start)),
                &format!("{{\"annotations\": {annotations}}}"),
            );
        }
        root
    }

    #[test]
    fn containers_are_found_by_process_by_id_and_by_name() {
        let root = machine();
        for (name, expected) in [
            ("50", 50),
            ("web", 50),
            // The first is of the container whose ID begins so; the second has no process of that number.
            ("5000", 5000),
            ("6001", 80),
            (&*id(DNS), 7),
            ("a200", 7),
            ("A200", 7),
            ("mail", 60),
            ("moved", 190),
            ("second", 191),
            ("configured", 193),
            ("resolver", 71),
            // A pod has one namespace: any of its containers will do.
            ("dns-0", 70),
        ] {
            assert_eq!(
                process_of(root.path(), name).expect("it is found"),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn namespaces_of_containers_have_names() {
        let root = machine();
        let names = names_by_id(root.path());
        assert_eq!(names[&id("c1")], "pause");
        assert_eq!(names[&id(WEB)], "web");
        let all = namespaces(root.path());
        let ids: BTreeSet<_> = all.values().flat_map(|(_, id)| id.clone()).collect();
        assert!(ids.contains(&id(DNS)) && all.len() == ids.len(), "{all:?}");
    }

    #[test]
    fn neither_a_process_nor_a_file_of_another_user_is_believed() {
        let root = machine();
        let file = format!("data/f/containers/{}/config.v2.json", id("d96"));
        for (name, given) in [("foreign", "proc/95"), ("planted", &*file)] {
            process_of(root.path(), name).expect("it is this user's");
            if chown(root.path().join(given), Some(65_533), None).is_ok() {
                let error = process_of(root.path(), name).expect_err(name).to_string();
                assert!(error.contains("no file of"), "{name}: {error}");
            }
        }
    }

    #[test]
    fn a_cgroup_that_a_user_named_stands_for_no_container() {
        let root = machine();
        let planted = format!("user.slice/docker-{}.scope", id(WEB));
        let process = |pid: u32, group: &str, namespace: &str| {
            let proc = root.path().join(format!("proc/{pid}"));
            fs::create_dir_all(proc.join("ns")).expect("a directory");
            fs::write(proc.join("cgroup"), format!("0::/{group}\n")).expect("a file");
            let _ = fs::remove_file(proc.join("ns/net"));
            symlink(namespace, proc.join("ns/net")).expect("a link");
        };
        let real = format!("system.slice/docker-{}.scope", id(WEB));
        for (pid, group) in [(50, &real), (51, &real), (40, &planted)] {
            process(pid, group, "net:[1]");
        }
        let found = || process_of(root.path(), "web").map_err(|error| format!("{error:#}"));
        process(60, "system.slice/ssh.service", "net:[1]");
        assert_eq!(found(), Ok(40), "one namespace");
        let all = processes_of(root.path(), "50").expect("it is there");
        assert_eq!(all, [50, 40, 51], "its container, not its namespace");
        process(40, &planted, "net:[2]");
        let error = found().expect_err("two namespaces");
        mentions(&error, "processes 40 and 50 of container a1");
        assert_eq!(process_of(root.path(), "40").ok(), Some(40));
        let owned = root.path().join("sys/fs/cgroup/user.slice");
        fs::create_dir_all(&owned).expect("a directory");
        if chown(&owned, Some(65_533), None).is_ok() {
            assert_eq!(found(), Ok(50), "it is another user's");
        }
    }

    #[test]
    fn what_is_no_container_is_told() {
        let root = machine();
        for (name, words) in [
            ("", "no file of"),
            ("a", "no file of"),
            ("nothing", "no file of"),
            ("99", "no file of"),
            ("not docker's", "no file of"),
            ("own", "no file of"),
            ("dead00", "no process is in it"),
            ("c1000", "several containers are called so: c1000"),
            ("6000", "both a process and container 6000"),
            ("c\u{1b}[2J", "c\u{fffd}[2J: no file"),
        ] {
            let error = process_of(root.path(), name).expect_err(name).to_string();
            assert!(error.contains(words), "{name}: {error}");
        }
        let text = format!("0::/docker/{}\n1:cpu:/docker/{}", id("1"), id("2"));
        assert_eq!(id_in(root.path(), &text), Some(id("2")));
        let none = "0::/user.slice/user-1000.slice";
        assert_eq!(id_in(root.path(), none), None);
    }
}
