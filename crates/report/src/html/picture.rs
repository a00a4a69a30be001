//! A bar chart as an SVG file of its own, for a page that others render.

use super::chart::{class, drawn, edge_of, per_cent};
use super::finished;
use crate::{Bars, Block, Document};
use maud::{Markup, PreEscaped, html};

/// The whole picture, and where its three columns are, in CSS pixels.
const WIDTH: u32 = 800;
/// Room for the longest name, and the most of it. A letter of DejaVu Sans, 14 px, has 9 px at most
/// on average; other fonts are narrower.
const NAMES_MIN: u32 = 120;
const NAMES_MAX: u32 = 400;
const LETTER: u32 = 9;
const FIGURES: u32 = 100;
/// Height of a bar with the space to the next.
const ROW: u32 = 28;

/// Colours for light and dark pages; a picture has no page of its own to take them from.
const STYLE: &str = "text{font:14px system-ui,-apple-system,'DejaVu Sans',sans-serif;fill:#1b2026}\
    .small{font-size:12px}.strong{font-weight:600}.faint{fill:#57606a}.main{fill:#2f6fb0}\
    .reference{fill:#8a5a9e}.second{fill:#d08b2f}.range{fill:#f2b441}\
    .sender{fill:#8a6d3b}.wire{fill:#b5541c}.backlog{fill:#c9a000}.ip{fill:#6f42c1}.udp{fill:#a13d8f}\
    .socket{fill:#c4314b}.application{fill:#5c6670}.unaccounted{fill:#777777}\
    .whisker{stroke:#1b2026;stroke-width:1.5}.guide{stroke:#c9d1d9}\
    .break{stroke:#ffffff;stroke-width:3;fill:none}\
    @media(prefers-color-scheme:dark){text{fill:#e4e9ee}.faint{fill:#a3adb8}.main{fill:#5b9bd9}\
    .whisker{stroke:#ffffff}.guide{stroke:#3a444f}.break{stroke:#12161b}}";

/// The first bars of a report, those with figures, as one SVG file with everything in it; none if
/// the report has no bars.
pub fn picture(document: &Document) -> Option<String> {
    Some(drawing(&document.title, first(&document.blocks)?))
}

fn first(blocks: &[Block]) -> Option<&Bars> {
    blocks.iter().find_map(|block| match block {
        Block::Bars(bars) => Some(bars),
        Block::On(_, blocks) | Block::Details(_, blocks) => first(blocks),
        Block::Section(section) => first(&section.blocks),
        _ => None,
    })
}

fn drawing(title: &str, bars: &Bars) -> String {
    let edge = edge_of(bars);
    let rows = || {
        let measured = bars.bars.iter();
        let measured = measured.filter_map(|bar| Some((bar, bar.outcome.as_ref().ok()?)));
        (0..).zip(measured)
    };
    let end = ROW * (1 + rows().count() as u32);
    let height = end + 48;
    let longest = rows().map(|(_, (bar, _))| bar.name.words().chars().count());
    let names = (LETTER * longest.max().unwrap_or(0) as u32).clamp(NAMES_MIN, NAMES_MAX);
    let place = WIDTH - names - FIGURES;
    let body = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}")) role="img" {
            title { (title) }
            style { (PreEscaped(STYLE)) }
            text.small.faint x="0" y="16" {
                (title) "; lines are the lowest to the highest repeat"
                @if let Some(range) = &bars.range { "; yellow: " (range) }
            }
            text.small x="0" y=(height - 6) {
                @for (hue, meaning) in &bars.key { tspan class=(class(*hue)) { "■ " } (meaning) "   " }
            }
            @for (at, (bar, one)) in rows() {
                @let top = ROW * (at + 1);
                text x="0" y=(top + 21) { (bar.name.words()) }
                svg x=(names) y=(top) width=(place) height=(ROW) { (drawn(one, &edge, bars)) }
                text.strong x=(WIDTH) y=(top + 21) text-anchor="end" { (one.figure) }
            }
            svg x=(names) y=(end) width=(place) height="24" overflow="visible" { (ticks(&edge)) }
            text.small.faint x=(WIDTH) y=(end + 16) text-anchor="end" { (bars.unit) }
        }
    };
    finished(body) + "\n"
}

fn ticks(edge: &crate::edge::Edge) -> Markup {
    html! {
        @for (at, name) in edge.ticks() {
            text.small.faint x=(per_cent(at)) y="16" text-anchor="middle" { (name) }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{BarFigures, Bars, Block, ChartBar, Document, Hue};

    #[test]
    fn a_picture_has_every_bar_with_a_figure_and_no_markup_of_others() {
        let bar = |name: &str, length: Result<f64, &str>| ChartBar {
            name: name.into(),
            link: String::new(),
            outcome: length.map_err(str::to_owned).map(|length| BarFigures {
                parts: vec![(Hue::Main, length)],
                figure: "some Mpps".to_owned(),
                ..BarFigures::default()
            }),
        };
        let bars = Bars {
            unit: "Mpps".to_owned(),
            key: Vec::new(),
            range: None,
            break_at: None,
            bars: vec![
                bar("<script>", Ok(1.5)),
                bar("skipped", Err("no CPU")),
                bar("most", Ok(f64::NAN)),
                bar("a name of thirty-four letters or so", Ok(1.0)),
            ],
        };
        let document = Document::new("a & b\x1b\u{202e}", "mpps", [Block::on_page([bars.into()])]);
        let picture = super::picture(&document).unwrap();
        assert_eq!(
            picture.matches("text-anchor=\"end\"").count(),
            4,
            "{picture}"
        );
        assert!(picture.contains("&lt;script&gt;") && !picture.contains("<script"));
        assert!(!picture.contains(['\x1b', '\u{202e}']), "{picture}");
        assert!(!picture.contains("=\"NaN") && !picture.contains("skipped"));
    }
}
