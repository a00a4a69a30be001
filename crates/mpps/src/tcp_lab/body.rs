//! The bodies that are served: files of zeros, one for each size.

/// The sizes of the files, in bytes.
#[derive(Debug)]
pub(crate) struct Bodies(Vec<usize>);

impl Bodies {
    /// A file for each of these sizes.
    pub(crate) fn new(sizes: &[usize]) -> Self {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        Self(sizes)
    }

    /// The path of a size in an address.
    pub(crate) fn path(bytes: usize) -> String {
        format!("/body-{bytes}.bin")
    }

    /// Shell commands that write the files into a directory.
    pub(super) fn script(&self, root: &str) -> String {
        let mut script = format!("mkdir -p {root}\n");
        for bytes in &self.0 {
            let path = Self::path(*bytes);
            script.push_str(&format!("head -c {bytes} /dev/zero > {root}{path}\n"));
        }
        script
    }
}
