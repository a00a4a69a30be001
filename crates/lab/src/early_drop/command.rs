//! Running the programs that set up the host's packet filters.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{LabError, LabHost};

/// Where these programs are, for users whose `PATH` is without the folders of the administrator.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Runs a program on a host, and returns what it wrote to its standard output.
pub(super) fn run(host: &LabHost, program: &str, arguments: &[&str]) -> Result<String, LabError> {
    let path = find(program).ok_or_else(|| LabError::NoProgram(program.to_owned()))?;
    let mut command = Command::new(path);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let failed = |why: String| LabError::Program {
        command: format!("{program} {}", arguments.join(" ")),
        why,
    };
    let mut child = host.spawn(command)?;
    // The error output fits into a pipe, so the program never waits for the second read.
    let output = read(child.stdout()).map_err(|error| failed(error.to_string()))?;
    let complaint = read(child.stderr()).map_err(|error| failed(error.to_string()))?;
    let status = child.wait()?;
    if status.success() {
        return Ok(output);
    }
    Err(failed(match complaint.trim() {
        "" => status.to_string(),
        complaint => complaint.to_owned(),
    }))
}

/// The first file of that name in the folders of `PATH` and of the administrator.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| Path::is_file(file))
}

fn read(stream: Option<impl Read>) -> io::Result<String> {
    stream.map_or(Ok(String::new()), io::read_to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_others_are_not() {
        assert!(find("sh").is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
