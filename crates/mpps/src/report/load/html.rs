//! What a load found, as one HTML file: no network, no script, no font of its own.

use super::{equation, manner, sentences};
use crate::connections::{LOAD_SCHEMA, LoadAccount, LoadResult, Times};
use crate::report::html::{document, fingerprint};
use maud::{Markup, html};
use mpps_host::Grouped;

/// The drawing, in its own units: its whole size, and the frame that the curves lie in.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 700.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 270.0;
/// Percentages that the lower edge names; each is a tenth of the rest further.
const TICKS: [f64; 6] = [0.0, 90.0, 99.0, 99.9, 99.99, 99.999];
/// What lies beyond is drawn at the right edge, as the longest is.
const RIGHTMOST: f64 = 99.9995;

/// Renders the page.
pub(crate) fn page(result: &LoadResult) -> String {
    let title = "mpps load: every connection accounted for";
    let body = html! {
        (head(result, title))
        main {
            h2 id="rates" { "Rates" }
            (rates(result))
            h2 id="latency" { "Latency" }
            (latency(result))
            h2 id="ledger" { "Where the connections and requests went" }
            (account("connections", &result.ledger.connections))
            (account("requests", &result.ledger.requests))
            h2 id="machine" { "Machine and settings" }
            (fingerprint(&result.fingerprint))
        }
        footer { p { "The data behind this page has the schema " (LOAD_SCHEMA) "; " code { "--json" } " writes it." } }
    };
    document(title, &result.version, &body)
}

fn head(result: &LoadResult, title: &str) -> Markup {
    let good = result.is_fine();
    let failed = result.ledger.requests.failed_total();
    html! {
        header {
            h1 { (title) }
            p.faint { (result.started) " · mpps " (result.version) " · " code { (result.command) } }
            p.placement {
                (result.url) " at " (result.target) "; " (result.connections) " in flight, " (mode(result))
                ", by " (result.engine) " in " (result.threads) @if result.threads == 1 { " thread" } @else { " threads" }
            }
            @if !result.complete { p { span.flag.bad { "interrupted: shorter than asked for" } } }
            p {
                span.flag.good[good].bad[!good] {
                    @if !result.balances() { "the account does not balance" }
                    @else if failed > 0 { (Grouped(failed)) " requests failed" }
                    @else if good { "every request was completed" }
                    @else { "connections failed" }
                }
            }
            @for sentence in sentences(result) { p { (sentence) } }
            @for note in &result.notes { p { b { "Note: " } (note) } }
        }
    }
}

/// What was asked of the connections: without it no rate can be compared with another.
fn mode(result: &LoadResult) -> String {
    let asked = manner(result.requests_per_connection, result.rate);
    let closed = match &*result.close {
        "client" => "closed by this side",
        "rst" => "closed by this side with a RST",
        _ => "closed by the server",
    };
    format!("{asked}, {closed}")
}

fn rates(result: &LoadResult) -> Markup {
    let mebibytes = result.bytes_per_second / f64::from(1 << 20);
    html! {
        table.cards {
            thead { tr { @for head in ["Connections/s", "Requests/s", "MiB/s", "Seconds"] { th.number { (head) } } } }
            tbody { tr {
                td.number data-name="connections/s" { (format!("{:.0}", result.cps)) }
                td.number data-name="requests/s" { (format!("{:.0}", result.requests_per_second)) }
                td.number data-name="MiB/s" { (format!("{mebibytes:.2}")) }
                td.number data-name="seconds" { (format!("{:.2}", result.seconds)) }
            } }
        }
    }
}

fn latency(result: &LoadResult) -> Markup {
    let latency = &result.latency_us;
    let all = [
        ("connect", "connect", &latency.connect),
        ("first", "first byte", &latency.first_byte),
        ("last", "last byte", &latency.last_byte),
    ];
    let scale = Scale::of(all.iter().map(|(_, _, times)| *times));
    html! {
        p.faint { "Microseconds, kept to three digits. Both edges are logarithmic." }
        p.key { @for (class, name, _) in &all {
            span { svg height="14" aria-hidden="true" { line.series.(class) x1="0" x2="100%" y1="50%" y2="50%" {} } (name) }
        } }
        figure {
            svg.curve.latency viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label="latency by percentage of the requests" {
                @for tick in scale.ticks() {
                    line.guide x1=(LEFT) x2=(RIGHT) y1=(scale.y(tick)) y2=(scale.y(tick)) {}
                    text x=(LEFT - 6.0) y=(scale.y(tick) + 4.0) text-anchor="end" { (tick_name(tick)) }
                }
                @for tick in TICKS {
                    line.guide x1=(x(tick)) x2=(x(tick)) y1=(TOP) y2=(BOTTOM) {}
                    text x=(x(tick)) y=(BOTTOM + 24.0) text-anchor=(if tick == 0.0 { "start" } else { "middle" }) { (tick) " %" }
                }
                text.faint x=(RIGHT) y=(BOTTOM + 54.0) text-anchor="end" { "of the requests took no longer" }
                @for (class, _, times) in &all {
                    @if times.count > 0 { polyline.series.(class) points=(scale.line(times)) {} }
                }
            }
        }
        table.cards {
            thead { tr { th { "µs" } @for head in ["p50", "p90", "p99", "p99.9", "max"] { th.number { (head) } } } }
            tbody { @for (_, name, times) in &all { tr {
                td { (name) }
                @for (head, figure) in [("p50", times.p50), ("p90", times.p90), ("p99", times.p99), ("p99.9", times.p999), ("max", times.max)] {
                    td.number data-name=(head) { (super::time(times, figure)) }
                }
            } } }
        }
    }
}

fn account(what: &str, account: &LoadAccount) -> Markup {
    let good = account.unaccounted == 0;
    html! { p.equation.bad[!good] { (equation(what, account)) } }
}

/// Where a percentage lies: each further nine is one step to the right.
fn x(percentage: f64) -> f64 {
    let rest = |percentage: f64| (1.0 - percentage.clamp(0.0, RIGHTMOST) / 100.0).max(1e-9);
    let share = rest(percentage).log10() / rest(RIGHTMOST).log10();
    LEFT + inside(share) * (RIGHT - LEFT)
}

/// From microseconds to a height, by powers of ten.
#[derive(Debug)]
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of<'a>(times: impl Iterator<Item = &'a Times>) -> Self {
        let (mut low, mut high) = (f64::MAX, 0.0_f64);
        for [_, us] in times.flat_map(|times| &times.percentiles) {
            // An hour is the longest time that is kept apart.
            if (0.01..=4e9).contains(us) {
                (low, high) = (low.min(*us), high.max(*us));
            }
        }
        if low > high {
            (low, high) = (1.0, 1000.0);
        }
        let (low, high) = (low.log10().floor(), high.log10().ceil());
        Self {
            low,
            high: high.max(low + 1.0),
        }
    }

    fn y(&self, us: f64) -> f64 {
        let power = if us > 0.0 { us.log10() } else { self.low };
        let share = (power - self.low) / (self.high - self.low);
        BOTTOM - inside(share) * (BOTTOM - TOP)
    }

    fn ticks(&self) -> Vec<f64> {
        // There are ten powers of ten at most from 0.01 to 4e9, and one more at each end.
        let count = (self.high - self.low) as u32;
        (0..=count.min(14))
            .map(|power| 10_f64.powf(self.low + f64::from(power)))
            .collect()
    }

    fn line(&self, times: &Times) -> String {
        let points = times.percentiles.iter();
        let places = points.map(|[at, us]| format!("{:.1},{:.1}", x(*at), self.y(*us)));
        places.collect::<Vec<_>>().join(" ")
    }
}

/// What is no number, or outside, is put at the edge.
fn inside(share: f64) -> f64 {
    if share.is_nan() {
        0.0
    } else {
        share.clamp(0.0, 1.0)
    }
}

/// `10 µs`, `1 ms`, `1 s`.
fn tick_name(us: f64) -> String {
    match us {
        _ if us >= 1e6 => format!("{:.0} s", us / 1e6),
        _ if us >= 1e3 => format!("{:.0} ms", us / 1e3),
        _ if us >= 1.0 => format!("{us:.0} µs"),
        _ => format!("{us:.2} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::load::tests::fixture;

    #[test]
    fn nothing_in_a_result_becomes_markup() {
        let evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>";
        let mut result = fixture();
        for to in [
            &mut result.url,
            &mut result.target,
            &mut result.command,
            &mut result.engine,
            &mut result.granted,
            &mut result.version,
            &mut result.started,
        ] {
            evil.clone_into(to);
        }
        result.notes = vec![evil.to_owned()];
        result.error_examples = [(evil.to_owned(), evil.to_owned())].into();
        let failed = &mut result.ledger.requests.failed;
        failed.insert(evil.to_owned(), 1);
        let page = page(&result);
        assert!(!page.contains("<script"), "a script element came through");
        assert!(!page.contains("<img"), "an image element came through");
        assert!(page.matches("&lt;script&gt;").count() > 8);
    }

    #[test]
    fn what_was_asked_is_told() {
        let mut result = fixture();
        (result.requests_per_connection, result.rate) = (Some(1), None);
        (result.close, result.threads) = ("rst".to_owned(), 1);
        let told =
            "a connection per request, as fast as it goes, closed by this side with a RST, by";
        assert!(page(&result).contains(told));
        assert!(page(&result).contains(" in 1 thread<"));
        (result.requests_per_connection, result.rate) = (Some(5), Some(1000.0));
        assert!(page(&result).contains("5 requests per connection, 1000 requests/s, closed by"));
        crate::report::html::tests::many_columns_fold(&page(&result));
    }

    #[test]
    fn the_page_needs_no_network_and_no_script() {
        let mut result = fixture();
        result.url = "the address of the server".to_owned();
        result.command = "mpps load".to_owned();
        let page = page(&result);
        for foreign in ["http://", "https://", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(foreign), "the page has {foreign}");
        }
    }

    #[test]
    fn figures_out_of_any_range_make_a_page_too() {
        let mut result = fixture();
        let odd = [0.0, -1.0, f64::MAX, f64::NAN, f64::INFINITY];
        for (point, us) in result.latency_us.last_byte.percentiles.iter_mut().zip(odd) {
            *point = [us, us];
        }
        result.latency_us.connect.percentiles.clear();
        let text = page(&result);
        for bad in ["NaN,", ",NaN", "inf,", ",inf"] {
            assert!(!text.contains(bad), "{bad}");
        }
    }

    #[test]
    fn the_curve_rises_inside_its_frame() {
        let result = fixture();
        let times = &result.latency_us.last_byte;
        let scale = Scale::of([times].into_iter());
        let mut last = (0.0, f64::MAX);
        for [at, us] in &times.percentiles {
            let place = (x(*at), scale.y(*us));
            assert!((LEFT..=RIGHT).contains(&place.0) && (TOP..=BOTTOM).contains(&place.1));
            assert!(
                place.0 >= last.0 && place.1 <= last.1,
                "{place:?} after {last:?}"
            );
            last = place;
        }
        assert_eq!(x(0.0), LEFT);
        assert_eq!(x(100.0), RIGHT);
    }
}
