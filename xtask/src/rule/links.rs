//! Links between the project's own pages must have a target.

use crate::finding::TidyFinding;
use crate::tree::RepositoryTree;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Addresses outside this repository begin so.
const ELSEWHERE: &[&str] = &["https://", "http://", "mailto:"];

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending("md") {
        for (line, target) in targets(text) {
            if ELSEWHERE.iter().any(|scheme| target.starts_with(scheme)) {
                continue;
            }
            let (file, fragment) = match target.split_once('#') {
                Some((file, fragment)) => (file, Some(fragment)),
                None => (target.as_str(), None),
            };
            let page = if file.is_empty() {
                Some(path.to_owned())
            } else {
                resolve(path, file)
            };
            let Some(page) = page.filter(|page| tree.has(page)) else {
                let message = format!("the link to {target} leads nowhere: no such file");
                findings.push(TidyFinding::new(path, line, message));
                continue;
            };
            let (Some(fragment), Some(there)) = (fragment, tree.text(&page)) else {
                continue;
            };
            if page.ends_with(".md") && !anchors(there).any(|anchor| anchor == fragment) {
                let message = format!("the link to {target} leads nowhere: no such heading");
                findings.push(TidyFinding::new(path, line, message));
            }
        }
    }
    findings
}

/// The targets of links and images, with their lines.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (event, place) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let line = 1 + text[..place.start].matches('\n').count();
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                targets.push((line, dest_url.into_string()));
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                for attribute in ["src=\"", "srcset=\"", "href=\""] {
                    let values = html.split(attribute).skip(1);
                    let values = values.filter_map(|rest| rest.split('"').next());
                    targets.extend(values.map(|value| (line, value.to_owned())));
                }
            }
            _ => {}
        }
    }
    targets
}

/// The path that a link on a page means, from the root. None if it leaves the repository.
fn resolve(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let mut titles = Vec::new();
    let mut title: Option<String> = None;
    for event in Parser::new(text) {
        match (event, &mut title) {
            (Event::Start(Tag::Heading { .. }), _) => title = Some(String::new()),
            (Event::End(TagEnd::Heading(_)), _) => titles.extend(title.take()),
            (Event::Text(part) | Event::Code(part), Some(title)) => title.push_str(&part),
            _ => {}
        }
    }
    titles.into_iter().map(|title| {
        let kept = title.to_lowercase().replace(' ', "-");
        kept.replace(|c: char| !c.is_alphanumeric() && c != '-' && c != '_', "")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = "[a](b.md)\n[gone](c.md)\n![gone](c.png)\n<img src=\"d.png\">\n\n\
                    [out](../../x.md) [up](../README.md)\n[b](b.md#two-words) [no](b.md#three)\n\n\
                    [self](#top) [web](https://example.com) `[code](e.md)` [folder](raw/)\n";
        let files = [
            ("README.md", "# Top\n"),
            ("docs/a.md", page),
            ("docs/b.md", "# Two `words`?\n"),
            ("docs/raw/lab.json", "{}"),
        ];
        let found = [2, 3, 4, 6, 7, 9].map(|line| format!("docs/a.md:{line}"));
        assert_eq!(places(check, &files), found);
    }
}
