//! Modules that lie side by side do not use each other in a circle.
//!
//! A module is a file with all that lies below it. The modules of one parent lie side by side.
//! There is an edge if one of them names an item of another. The name is in a `use`, or in a path
//! that begins with `crate`, `super` or `self`. A name that a `use` passes on belongs to the module
//! that has it. A parent is made of its children, so names between parent and child are no edge.
//! Tests do not count.
//!
//! The modules of the command also have layers: command → experiment | program → udp → measure. No
//! experiment uses another.

use crate::finding::TidyFinding;
use crate::rust::{Token, tokens};
use crate::tree::RepositoryTree;
use std::collections::{BTreeMap, BTreeSet};

/// The modules of the command that have layers: each, and which of the others it may use.
const LAYERS: &[(&str, &[&str])] = &[
    ("measure", &[]),
    ("udp", &["measure"]),
    ("program", &["udp", "measure"]),
    ("experiment", &["program", "udp", "measure"]),
];

/// The crate that they are in.
const LAYERED: &str = "crates/mpps/";

/// The words of a path.
type ModulePath = Vec<String>;

/// The names in a module.
#[derive(Default)]
struct ModuleNames {
    file: String,
    /// Names that a `use` brings in, and their full paths.
    names: BTreeMap<String, ModulePath>,
    /// Names of other modules, as written, with the line.
    named: Vec<(usize, ModulePath)>,
}

/// The modules of a crate by their path from its root.
#[derive(Default)]
struct Modules {
    by_way: BTreeMap<ModulePath, ModuleNames>,
    declared: BTreeSet<ModulePath>,
}

/// An example of each edge: its file and line.
type Edges = BTreeMap<(ModulePath, ModulePath), (String, usize)>;

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let mut crates: BTreeMap<&str, Modules> = BTreeMap::new();
    for (path, text) in tree.ending("rs") {
        let Some((folder, inside)) = path.split_once("src/") else {
            continue;
        };
        // The compiler reports a file that is not Rust, if the file is a module.
        let Ok(tokens) = tokens(text) else { continue };
        let way = match inside.trim_end_matches(".rs") {
            "lib" | "main" => ModulePath::new(),
            inside => inside.split('/').map(str::to_owned).collect(),
        };
        let modules = crates.entry(folder).or_default();
        modules.read(&without_tests(&tokens), path, &way);
    }
    let found = crates.iter().flat_map(|(folder, modules)| {
        let edges = modules.edges();
        let mut found = circles(&edges);
        if *folder == LAYERED {
            found.extend(edges.iter().filter_map(upwards));
        }
        found
    });
    found
        .map(|(file, line, message)| TidyFinding::new(&file, line, message))
        .collect()
}

/// Describes an edge that leaves its layer.
fn upwards(
    ((from, to), (file, line)): (&(ModulePath, ModulePath), &(String, usize)),
) -> Option<(String, usize, String)> {
    let is_wrong = match (from.as_slice(), to.as_slice()) {
        ([from], [to]) => {
            let layer = |name: &str| LAYERS.iter().find(|(layer, _)| *layer == name);
            let (_, may) = layer(from)?;
            let is_above = layer(to).is_some() || to == "command";
            is_above && !may.contains(&to.as_str())
        }
        ([within, _], _) => within == "experiment",
        _ => false,
    };
    let (from, to) = (from.join("::"), to.join("::"));
    is_wrong.then(|| {
        let message = format!("{from} may not use {to}: move what both need to a layer below");
        (file.clone(), *line, message)
    })
}

/// Leaves out code that is compiled for tests only.
pub(super) fn without_tests(tokens: &[Token]) -> Vec<&Token> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let mark = tokens[at..].iter().map(|token| &*token.text).take(7);
        if mark.eq(MARK) {
            at = item_end(tokens, at + MARK.len());
        } else {
            kept.push(&tokens[at]);
            at += 1;
        }
    }
    kept
}

/// The end of the item that begins here: after its braces or its semicolon.
fn item_end(tokens: &[Token], begin: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(begin) {
        match &*token.text {
            "{" | "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "}" if depth <= 1 => return at + depth,
            "}" => depth -= 1,
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

impl Modules {
    /// Enters a file. Code inside `mod NAME { }` counts as the file's own.
    fn read(&mut self, tokens: &[&Token], file: &str, way: &ModulePath) {
        let module = self.by_way.entry(way.clone()).or_default();
        file.clone_into(&mut module.file);
        let text = |at: usize| tokens.get(at).map_or("", |token| &*token.text);
        let mut at = 0;
        while at < tokens.len() {
            let (before, line) = (at.checked_sub(1).map_or("", text), tokens[at].line);
            match text(at) {
                "mod" if text(at + 2) == ";" => {
                    let child = [&**way, &[text(at + 1).to_owned()]].concat();
                    self.declared.insert(child);
                }
                "use" if before != "<" && before != "+" => {
                    let mut used = Vec::new();
                    at += 1;
                    read_use(tokens, &mut at, &[], &mut used);
                    for (name, way) in used {
                        module.named.push((line, way.clone()));
                        module.names.insert(name, way);
                    }
                }
                "crate" | "super" | "self"
                    if text(at + 1) == ":" && !["$", "in"].contains(&before) =>
                {
                    let mut way = vec![text(at).to_owned()];
                    while text(at + 1) == ":" && text(at + 2) == ":" && is_word(text(at + 3)) {
                        way.push(text(at + 3).to_owned());
                        at += 3;
                    }
                    module.named.push((line, way));
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// The edges between the modules of each parent: one names an item of another.
    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        let there = self.by_way.iter().filter(|(way, _)| self.is_declared(way));
        for (way, module) in there {
            for (line, named) in &module.named {
                let Some(target) = self.owner(way, named, 0) else {
                    continue;
                };
                let same = way.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if same < way.len() && same < target.len() {
                    let edge = (way[..=same].to_vec(), target[..=same].to_vec());
                    let example = (module.file.clone(), *line);
                    edges.entry(edge).or_insert(example);
                }
            }
        }
        edges
    }

    fn is_declared(&self, way: &[String]) -> bool {
        (1..=way.len()).all(|length| self.declared.contains(&way[..length]))
    }

    /// The module that owns an item named in `from`. None if another crate owns it.
    fn owner(&self, from: &[String], named: &[String], depth: u32) -> Option<ModulePath> {
        let first = named.first()?;
        let mut place = from.to_vec();
        let mut rest = named;
        match &**first {
            "crate" => place.clear(),
            "self" | "super" => {}
            name => {
                let child = [from, std::slice::from_ref(first)].concat();
                let passed = self.by_way.get(from)?.names.get(name);
                // `use io::Read` in a file that says `use std::io` before.
                if !self.declared.contains(&child) && passed.is_none_or(|way| way == named) {
                    return None;
                }
            }
        }
        while let Some((word, after)) = rest.split_first() {
            match &**word {
                "crate" | "self" => {}
                "super" => drop(place.pop()),
                _ => {
                    place.push(word.clone());
                    if !self.declared.contains(&place) {
                        place.pop();
                        let passed = self.by_way.get(&place).and_then(|at| at.names.get(word));
                        let Some(passed) = passed.filter(|way| depth < 8 && *way != named) else {
                            return Some(place);
                        };
                        return self.owner(&place, &[passed, after].concat(), depth + 1);
                    }
                }
            }
            rest = after;
        }
        Some(place)
    }
}

/// The names that a `use` brings in from here to the end of its group, and their full paths.
fn read_use(
    tokens: &[&Token],
    at: &mut usize,
    before: &[String],
    used: &mut Vec<(String, ModulePath)>,
) {
    let mut way = before.to_vec();
    while let Some(token) = tokens.get(*at) {
        match &*token.text {
            "{" => {
                *at += 1;
                while tokens.get(*at).is_some_and(|token| token.text != "}") {
                    read_use(tokens, at, &way, used);
                    *at += usize::from(tokens.get(*at).is_some_and(|token| token.text == ","));
                }
                *at += 1;
                return;
            }
            "as" => {
                let name = tokens.get(*at + 1).map_or("", |token| &*token.text);
                used.push((name.to_owned(), way));
                *at += 2;
                return;
            }
            ";" | "," | "}" => break,
            ":" => {}
            // `use a::{self}` is `a`.
            "self" if !way.is_empty() => {}
            word => way.push(word.to_owned()),
        }
        *at += 1;
    }
    if let Some(name) = way.last().cloned() {
        used.push((name, way));
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Each circle once, at the first of its edges.
fn circles(edges: &Edges) -> Vec<(String, usize, String)> {
    let users = edges.keys().map(|(from, _)| (from, reached(edges, from)));
    let reach: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = users.collect();
    let circle = |(way, reached): (&&ModulePath, &BTreeSet<&ModulePath>)| {
        let back = |other: &&ModulePath| reach.get(*other).is_some_and(|back| back.contains(*way));
        told(edges, &reached.iter().copied().filter(back).collect())
    };
    // Each module of a circle gives the same text.
    let told: BTreeSet<_> = reach.iter().filter_map(circle).collect();
    told.into_iter().collect()
}

/// The modules that a module uses, directly or through others.
fn reached<'a>(edges: &'a Edges, from: &'a ModulePath) -> BTreeSet<&'a ModulePath> {
    let (mut reached, mut new) = (BTreeSet::new(), vec![from]);
    while let Some(from) = new.pop() {
        let next = edges.keys().filter(|edge| edge.0 == *from);
        new.extend(next.map(|edge| &edge.1).filter(|to| reached.insert(*to)));
    }
    reached
}

fn told(edges: &Edges, circle: &BTreeSet<&ModulePath>) -> Option<(String, usize, String)> {
    let inside =
        |edge: &(ModulePath, ModulePath)| circle.contains(&edge.0) && circle.contains(&edge.1);
    let inside = edges.iter().filter(|(edge, _)| inside(edge));
    let (_, (file, line)) = inside.clone().next()?;
    let edge = |((from, to), (file, line)): (&(ModulePath, ModulePath), &(String, usize))| {
        let (from, to) = (from.join("::"), to.join("::"));
        format!("{from} uses {to} ({file}:{line})")
    };
    let edges: Vec<String> = inside.map(edge).collect();
    let remedy = "move what they share to a module that uses none of them";
    let message = format!("a circle: {}; {remedy}", edges.join(", "));
    Some((file.clone(), *line, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let declared = [("c/src/lib.rs", "mod a; mod b; mod c; pub use b::B;")];
        places(check, &[&declared, files].concat())
    }

    #[test]
    fn two_that_use_each_other_are_a_circle_however_they_say_it() {
        let a = ("c/src/a.rs", "use std::io;\nuse crate::{b::{self, B}, c};");
        for b in [
            "fn f() { super::a::g(); }",
            "use super::a::*;",
            "use super::{a as other};",
            "use crate::a;",
            "impl crate::a::T for U {}",
        ] {
            assert_eq!(found(&[a, ("c/src/b.rs", b)]), ["c/src/a.rs:2"], "{b}");
        }
        for b in [
            "",
            "pub(in crate::a) fn f() {}",
            "use a::T;",
            "// crate::a::T",
        ] {
            assert!(found(&[a, ("c/src/b.rs", b)]).is_empty(), "{b}");
        }
    }

    #[test]
    fn a_long_circle_is_found_once_and_told_with_its_edges() {
        let files = [
            ("c/src/lib.rs", "mod a; mod b; mod c;"),
            ("c/src/a.rs", "use super::b;"),
            ("c/src/b.rs", "\nuse super::c;"),
            ("c/src/c.rs", "\n\nuse super::a;"),
        ];
        let findings = check(&RepositoryTree::of(&files));
        assert_eq!(findings.len(), 1);
        for edge in [
            "a uses b (c/src/a.rs:1)",
            "b uses c (c/src/b.rs:2)",
            "c uses a",
        ] {
            assert!(findings[0].message.contains(edge), "{}", findings[0]);
        }
        assert!(found(&files[1..3]).is_empty(), "it is not closed");
    }

    #[test]
    fn the_layers_of_the_command_are_used_downwards() {
        let files = |uses: &'static str| {
            [
                (
                    "crates/mpps/src/lib.rs",
                    "mod command; mod experiment; mod udp; mod measure;",
                ),
                (
                    "crates/mpps/src/experiment.rs",
                    "mod ladder; mod receive_paths; mod placement;",
                ),
                ("crates/mpps/src/experiment/ladder.rs", ""),
                ("crates/mpps/src/experiment/receive_paths.rs", ""),
                ("crates/mpps/src/experiment/placement.rs", ""),
                ("crates/mpps/src/measure.rs", ""),
                (
                    "crates/mpps/src/command.rs",
                    "use crate::experiment::receive_paths;",
                ),
                ("crates/mpps/src/udp.rs", uses),
            ]
        };
        assert_eq!(places(check, &files("use crate::measure::T;")).len(), 0);
        for uses in ["use crate::experiment::T;", "use crate::command;"] {
            assert!(!places(check, &files(uses)).is_empty(), "{uses}");
        }
        let from = "crates/mpps/src/experiment/ladder.rs";
        let mut files = files("").to_vec();
        files.retain(|(path, _)| *path != from);
        files.push((from, "use super::receive_paths::T;"));
        assert_eq!(places(check, &files).len(), 1);
    }

    #[test]
    fn a_folder_counts_with_all_that_lies_below_it() {
        let files = [
            ("c/src/a.rs", "mod inner;"),
            ("c/src/a/inner.rs", "use crate::b::B;"),
            ("c/src/b.rs", "mod deep;"),
            ("c/src/b/deep.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&files), ["c/src/a/inner.rs:1"]);
    }

    #[test]
    fn a_parent_and_its_children_are_none() {
        let files = [
            ("c/src/a.rs", "mod inner;\nuse inner::I;\nstruct A;"),
            ("c/src/a/inner.rs", "use super::A;\nuse crate::a::A as B;"),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn what_a_use_passes_on_belongs_to_the_module_that_has_it() {
        // lib.rs passes B on, and b owns it.
        let b = ("c/src/b.rs", "use crate::a::A;");
        assert_eq!(
            found(&[("c/src/a.rs", "use crate::B;"), b]),
            ["c/src/a.rs:1"]
        );
        assert!(found(&[("c/src/a.rs", "use crate::C;"), b]).is_empty());
    }

    #[test]
    fn tests_do_not_count() {
        let b = ("c/src/b.rs", "use crate::a::A;");
        for a in [
            "#[cfg(test)]\nmod tests { use crate::b::B; }",
            "#[cfg(test)]\nuse crate::b::{B};",
            "struct S { #[cfg(test)] b: crate::b::B }",
        ] {
            assert!(found(&[("c/src/a.rs", a), b]).is_empty(), "{a}");
        }
        let tests = ("c/src/a/tests.rs", "use crate::b::B;");
        let a = ("c/src/a.rs", "#[cfg(test)]\nmod tests;");
        assert!(found(&[a, tests, b]).is_empty());
    }
}
