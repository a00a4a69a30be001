//! Checks the report of the experiments.

use super::*;
use mpps_http::{Failure, Switch};
use mpps_report::{Terminal, page};

/// A made-up run with everything that a report has to cope with.
const FIXTURE: &str = include_str!("../../../../tests/fixtures/lab_tcp.json");

fn fixture() -> TcpLabResult {
    TcpLabResult::parse(FIXTURE).expect("the fixture is a result file")
}

fn text(result: &TcpLabResult, width: usize) -> String {
    let files = [("data", Path::new("lab-tcp.json"))];
    let text = Terminal::new(width, false).document(&document(result, &files));
    text.replace('\u{a0}', " ")
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_report_is_what_it_was() {
    insta::assert_snapshot!("text", text(&fixture(), 100));
}

#[test]
fn what_was_read_is_written_back_byte_for_byte() {
    let text = serde_json::to_string_pretty(&fixture()).unwrap();
    assert_eq!(text + "\n", FIXTURE);
}

#[test]
fn many_bodies_have_no_column_each() {
    let heads = |bodies: usize| {
        let mut result = fixture();
        let cell = result.cells.iter().find(|cell| cell.figures.is_some());
        let cell = cell.expect("one was measured").clone();
        let with = |body_bytes| TcpCell {
            body_bytes,
            ..cell.clone()
        };
        result.cells = (1..=bodies).map(with).collect();
        let blocks = document(&result, &[]).blocks;
        let tables = blocks.iter().filter_map(|block| match block {
            Block::Table(table) => Some(table.columns.len()),
            _ => None,
        });
        let is_cut = text(&result, 100).contains("larger bodies are not shown");
        (tables.max(), is_cut)
    };
    let whole = heads(BODIES_MAX);
    assert_eq!(whole, (Some(1 + BODIES_MAX), false));
    assert_eq!(heads(BODIES_MAX + 30), (whole.0, true));
}

#[test]
fn a_changed_ledger_is_refused() {
    let mut result = fixture();
    let ledger = result.cells[0].ledger.as_mut().expect("it was measured");
    ledger.account.completed -= 1;
    let text = serde_json::to_string(&result).unwrap();
    assert!(TcpLabResult::parse(&text).is_err());
}

#[test]
fn a_server_is_measured_against_its_own_base() {
    let result = fixture();
    for group in CellGroup::all(&result) {
        for (name, cells) in &group.servers {
            let is_measured = cells.iter().any(|cell| cell.figures.is_some());
            assert_eq!(base(cells).is_some(), is_measured, "{name}");
        }
    }
}

#[test]
fn the_summary_names_every_other_server_that_ran() {
    let mut result = fixture();
    let is_last = |cell: &&TcpCell| cell.server == "mpps" && cell.step == "events";
    let files = result.cells.iter().find(is_last).cloned();
    result.cells.push(TcpCell {
        server: "mpps-files".to_owned(),
        step: "all".to_owned(),
        ..files.expect("it is there")
    });
    let [own, engines, files] = &like_for_like::claims(&result)[..] else {
        panic!("{:?}", like_for_like::claims(&result))
    };
    // A server's base is only compared with its own techniques, or with another server's base.
    let [own, engines, files] = [own, engines, files].map(|said| said.replace('\u{a0}', " "));
    let all = "affinity+moderation+buffers";
    for (said, parts) in [
        (
            own,
            [
                format!(
                    "mpps with {all}+fds+events 13.6 µs and mpps at base 17.0 µs (0.80x, at 1.25x"
                ),
                format!(
                    "; mpps-epoll with {all}+events 16.0 µs and mpps-epoll at base 20.0 µs (0.80x"
                ),
            ],
        ),
        (
            engines,
            [
                ": mpps at base 17.0 µs and mpps-epoll at base 20.0 µs (0.85x, at 1.10x the"
                    .to_owned(),
                format!(
                    "; mpps with {all}+fds+events 13.6 µs and mpps-epoll with {all}+events 16.0 µs"
                ),
            ],
        ),
        (
            files,
            [
                ": mpps-files 13.6 µs and apache-event with moderation 53.4 µs (0.25x".to_owned(),
                "connections per second".to_owned(),
            ],
        ),
    ] {
        for part in parts {
            assert!(said.contains(&part), "{part}: {said}");
        }
        assert!(!said.contains("nginx"), "{said}");
    }
    result.cells.retain(|cell| !cell.server.starts_with("mpps"));
    assert!(like_for_like::claims(&result).is_empty());
}

/// The names and the figures of a chart's bars.
fn bars(result: &TcpLabResult, experiment: u8) -> Vec<String> {
    let groups = CellGroup::all(result).into_iter();
    let mut groups = groups.filter(|group| group.experiment == experiment);
    let blocks = paper::chart(&groups.next().expect("it was measured"));
    let bars = blocks.into_iter().find_map(|block| match block {
        Block::Bars(bars) => Some(bars.bars),
        _ => None,
    });
    let bar = |bar: ChartBar| {
        let figure = bar.outcome.expect("it has figures").figure;
        format!("{} {figure}", bar.name.words())
    };
    bars.into_iter().flatten().map(bar).collect()
}

#[test]
fn the_papers_gains_stand_beside_ours_where_both_have_the_step() {
    let mut result = fixture();
    let own = |result: &TcpLabResult, experiment| {
        let all = bars(result, experiment);
        let pairs = all.chunks(2).map(|two| two.join(", "));
        pairs
            .filter(|two| two.starts_with("mpps"))
            .collect::<Vec<_>>()
    };
    let third = own(&result, 3);
    for pair in [
        "mpps: moderation after affinity 1.05x, the paper 1.15x",
        "mpps: fds after buffers 1.04x, the paper 1.07x",
        // Without fds, the step before it counts, and there are no five.
        "mpps-epoll: events after buffers 1.09x, the paper 1.06x",
        "mpps: all five 1.25x, the paper 1.40x",
    ] {
        assert!(third.iter().any(|one| one == pair), "{pair}: {third:#?}");
    }
    assert_eq!(third.len(), 4 + 5 + 1, "{third:#?}");
    // A setting compares with the adaptive one only.
    assert!(own(&result, 1).is_empty());
    for cell in &mut result.cells[..2] {
        cell.switches.push(Switch::Events);
    }
    let first = result.cells[0].clone();
    result.cells.push(TcpCell {
        step: "adaptive".to_owned(),
        moderation_us: None,
        adaptive: true,
        ..first
    });
    assert_eq!(
        own(&result, 1),
        [
            "mpps-epoll: 1000 per s against adaptive 1.00x, the paper 1.15x",
            "mpps-epoll: off against adaptive 1.00x, the paper 0.79x",
        ]
    );
    assert!(page(&document(&result, &[])).contains("here and in the 2014 paper"));
}

#[test]
fn a_servers_figures_are_drawn_against_the_body_with_the_link_if_it_has_a_rate() {
    let result = fixture();
    let groups = CellGroup::all(&result);
    let third = groups.iter().filter(|group| group.experiment == 3);
    let third: Vec<&CellGroup<'_>> = third.collect();
    for (rate, links) in [(None, 0), (Some(1_000_000_000), 3)] {
        let Block::Curves(curves) = by_body::curves(&third, rate) else {
            panic!("they are drawings");
        };
        let names: Vec<String> = curves.iter().map(|curve| curve.title.words()).collect();
        assert!(
            names.contains(&"mpps: Mbit/s of bodies".to_owned()),
            "{names:?}"
        );
        assert_eq!(names.len(), 2 * 3, "{names:?}");
        let lines = curves.iter().flat_map(|curve| &curve.lines);
        let points: Vec<_> = lines.clone().map(|line| line.points.len()).collect();
        assert!(points.iter().all(|points| *points == 2), "{points:?}");
        assert_eq!(lines.filter(|line| line.name == "the link").count(), links);
    }
}

#[test]
fn the_worth_of_packet_buffers_is_told_of_servers_with_both_cells() {
    let mut result = fixture();
    let said = skb_reuse(&result).expect("a sentence");
    for word in ["skb_defer_max 64", "mpps-epoll ", ", mpps ", "1.05x"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let is_other = |cell: &TcpCell| cell.server != "mpps" || cell.step != NO_SKB_DEFER;
    result.cells.retain(is_other);
    assert!(!skb_reuse(&result).is_some_and(|said| said.contains(", mpps ")));
    result.cells.retain(|cell| cell.step != NO_SKB_DEFER);
    assert_eq!(skb_reuse(&result), None);
}

#[test]
fn no_line_is_wider_than_the_terminal_and_no_fact_is_lost() {
    let result = fixture();
    for width in [40, 63, 80, 100, 132, 200] {
        let text = text(&result, width);
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
        let flat = flat(&text);
        for cell in &result.cells {
            if let Some(figures) = &cell.figures {
                let cps = Quantity::PerSecond(figures.cps_median).figure();
                let cps = cps.replace('\u{a0}', " ");
                assert!(
                    flat.contains(&cps),
                    "{width}: {cps} of {}\n{text}",
                    cell.key()
                );
            }
            if let Some(why) = &cell.skipped {
                assert!(flat.contains(why), "{width}: {why}\n{text}");
            }
            let paper = cell.paper.as_deref().unwrap_or_default();
            assert!(
                !(63..=160).contains(&width) || flat.contains(paper),
                "{width}: {paper}\n{text}"
            );
        }
        for fact in ["UNACCOUNTED 0", "data lab-tcp.json", "timed out 1"] {
            assert!(flat.contains(fact), "{width}: {fact}\n{text}");
        }
    }
}

#[test]
fn what_does_not_balance_or_agree_or_passed_by_is_named() {
    let mut result = fixture();
    let doubtful = ["DOES NOT BALANCE", "it says 7", "passed by the queues: "];
    let text_of = |result: &TcpLabResult| text(result, 400);
    let page_of = |result: &TcpLabResult| page(&document(result, &[]));
    for fault in doubtful {
        assert!(!text_of(&result).contains(fault), "{fault}");
    }
    assert!(!page_of(&result).contains("flag bad"));
    let cell = &mut result.cells[0];
    let ledger = cell.ledger.as_mut().expect("it was measured");
    ledger.account.started += 56;
    ledger.account.unaccounted += 5;
    ledger.witnesses[0].witness = 7;
    ledger.account.failed = [(Failure::Other, 51)].into();
    ledger.examples = [(Failure::Other, mpps_os::errno_text(92))].into();
    let figures = cell.figures.as_mut().expect("it was measured");
    figures.load_ring_share = Some(0.5);
    let text = text_of(&result);
    let more = [
        "other, the first: ENOPROTOOPT, Protocol not available",
        "1 contradicted by a kernel's count",
    ];
    for fault in doubtful.into_iter().chain(more) {
        assert!(text.contains(fault), "{fault}: {text}");
    }
    let page = page_of(&result);
    assert!(page.contains("DOES NOT BALANCE") && page.contains("flag bad"));
}

#[test]
fn every_cell_has_its_units_and_its_ledger() {
    let result = fixture();
    let page = page(&document(&result, &[]));
    let ledgers = result.cells.iter().filter(|cell| cell.ledger.is_some());
    let told = page.matches("<p class=\"equation number\">").count();
    assert_eq!(told, ledgers.count());
    for cell in &result.cells {
        assert!(page.contains(&cell.key()) || cell.ledger.is_none());
    }
}

#[test]
fn nothing_in_a_result_becomes_markup() {
    let evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>";
    let mut result = fixture();
    let text = |to: &mut String| evil.clone_into(to);
    for to in [
        &mut result.command,
        &mut result.version,
        &mut result.started,
        &mut result.body.placement,
        &mut result.body.load,
        &mut result.body.cpu_method,
    ] {
        text(to);
    }
    result.notes = vec![evil.to_owned()];
    for server in &mut result.servers {
        text(&mut server.name);
        server.version.iter_mut().for_each(text);
        server.set_up = vec![evil.to_owned()];
        server.skipped.iter_mut().for_each(text);
    }
    for cell in &mut result.cells {
        text(&mut cell.step);
        cell.paper.iter_mut().for_each(text);
        cell.skipped.iter_mut().for_each(text);
        cell.notes = vec![evil.to_owned()];
        if let Some(figures) = &mut cell.figures {
            text(&mut figures.limited_by);
        }
        if let Some(ledger) = &mut cell.ledger {
            ledger.kernel.insert(evil.to_owned(), 1);
            ledger.examples = [(Failure::Reset, evil.to_owned())].into();
            for witness in &mut ledger.witnesses {
                text(&mut witness.about);
                text(&mut witness.source);
            }
        }
    }
    let page = page(&document(&result, &[("data", Path::new(evil))]));
    assert!(!page.contains("<script"), "a script element came through");
    assert!(!page.contains("<img"), "an image element came through");
    assert!(page.matches("&lt;script&gt;").count() > 100);
}

#[test]
fn figures_out_of_any_range_make_a_report_too() {
    let mut result = fixture();
    let odd = [0.0, -1.0, f64::MAX, f64::NAN, f64::INFINITY];
    for (cell, odd) in result.cells.iter_mut().zip(odd) {
        let figures = cell.figures.as_mut().expect("it was measured");
        figures.cps_median = odd;
        figures.cps_samples = vec![odd, 1.0];
        figures.own_us_per_connection_median = odd;
        figures.cpu_us_per_connection_median = odd;
        figures.server_ring_share = Some(odd);
    }
    let told = [text(&result, 100), page(&document(&result, &[]))];
    for wild in ["NaN", " inf", ">inf", "infx", "inf%"] {
        assert!(told.iter().all(|told| !told.contains(wild)), "{wild}");
    }
    result.cells.clear();
    assert!(text(&result, 100).contains("0 cells measured; 0 of 0 connection"));
}
