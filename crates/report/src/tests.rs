//! Made-up reports: one with every kind of block, in three media, and tables of any shape.

use crate::*;
use proptest::prelude::*;

/// A report with everything that a renderer has to cope with; `evil` stands wherever words do.
pub(crate) fn document(evil: &str) -> Document {
    let say = &|words: &str| format!("{words}{evil}");
    let columns = [
        Column::words(say("path"), 12).grow(14),
        Column::figure(say("Mpps"), 6),
        Column::figure(say("of offered"), 7),
        Column::figure(say("low-high"), 11).priority(1),
        Column::figure(say("app ns"), 6).priority(1),
        Column::figure(say("NAPI\u{a0}ns"), 7).priority(1),
        Column::words(say("mode"), 20).grow(60).priority(2),
        Column::bar(say("of peak"), 20).priority(3),
    ];
    let row = |name: &str, mpps: f64, full| {
        Row::new([
            Text::new().strong(say(name)).into(),
            Quantity::Mpps(mpps).figure().into(),
            Text::new()
                .flag(full > 500, Quantity::Share(0.661).to_string())
                .into(),
            range([Quantity::Mpps(mpps), Quantity::Mpps(mpps * 1.1)]).into(),
            Quantity::Nanoseconds(312.0).figure().into(),
            say("-").into(),
            say("copied | by a socket; NAPI: ksoftirqd").into(),
            Cell::Bar {
                full,
                missing: 1000 - full,
            },
        ])
    };
    let mut linked =
        row("af_xdp *zero copy*", 4.712, 900).below(Text::new().faint(say("note: <b>busy</b>")));
    linked.anchor = "row-af_xdp".to_owned();
    let skipped = Row::new([
        say("dpdk").into(),
        Text::new().faint(say("skipped: no hugepages")).into(),
    ]);
    let table = Table::new(columns).rows([row("recvmmsg", 1.1437, 240), linked, skipped]);
    let blocks = [
        Block::paragraph(say("two hosts   sender: CPU 0   Linux 6.18")),
        Block::Paragraph(
            Text::new()
                .plain(say("by "))
                .code(say("mpps bench --quick | tee `log`"))
                .flag(false, say(" quick run: not for comparison")),
        ),
        Block::Sentences(vec![
            say("1. af_xdp is 4.1 times as fast as recvmmsg").into(),
        ]),
        Block::heading(say("Rates")),
        bars(say).into(),
        table.into(),
        Block::Curves(vec![curve(say), latency(say)]),
        Block::Section(section(say)),
        Block::note(say("a second | third\nline of https://example.org")),
        Block::on_page([Block::paragraph(say("only a page says this"))]),
        Block::on_text([Block::paragraph(say("only text says this"))]),
        Block::On(
            Medium::Terminal,
            vec![Block::paragraph(say("only a terminal says this"))],
        ),
    ];
    Document::new(say("mpps sample: <every> block"), say("mpps 0.1.0"), blocks)
}

fn section(say: &dyn Fn(&str) -> String) -> Section {
    let part = |class, name: &str, count, share| EquationPart {
        class,
        name: say(name),
        count,
        share,
        source: say("/proc/net/snmp"),
    };
    let shares = Shares {
        unit: say("datagrams"),
        parts: vec![
            part("delivered", "delivered", 660, Some(0.66)),
            part("socket", "socket: buffer full", 337, Some(0.337)),
            part("unaccounted", "UNACCOUNTED", 3, None),
        ],
    };
    let equation = |name: &str, balance, count| Equation {
        name: say(name),
        terms: say("offered 1\u{a0}000 = delivered 660 + socket buffer full 337"),
        remainder: say(&format!("UNACCOUNTED {count}")),
        balance,
        notes: vec![say("the queue was drained")],
    };
    let repeats = [
        equation("", Balance::Balances, 3).into(),
        equation("repeat 2", Balance::Inexact, 3).into(),
        Table::of_json(&serde_json::json!({say("cpu_model"): say("Fast <1>"), "cpus": [0, 1]}))
            .into(),
    ];
    Section {
        heading: say("Rung 2: one socket").into(),
        anchor: say("rung-2"),
        figure: Text::new()
            .strong(say("1.14 Mpps"))
            .faint(say(" · 2015: 0.36-0.37")),
        blocks: vec![
            shares.into(),
            equation("ledger of rung 2", Balance::Unbalanced, 3).into(),
            Block::Details("2 repeats".to_owned(), repeats.into()),
        ],
    }
}

fn bars(say: &dyn Fn(&str) -> String) -> Bars {
    let bar = |name: &str, outcome| ChartBar {
        name: say(name).into(),
        link: say("rung-2"),
        outcome,
    };
    let measured = |first: f64, second: f64| {
        Ok(BarFigures {
            parts: vec![(Hue::Main, first), (Hue::Second, second)],
            spread: Some([first * 0.9, first * 1.1]),
            range: Some([0.36, 0.37]),
            figure: Quantity::Mpps(first).to_string(),
            beside: say("2015: 0.36-0.37"),
        })
    };
    Bars {
        unit: say("Mpps"),
        key: vec![(Hue::Main, say("received")), (Hue::Second, say("more"))],
        range: Some("article, 2015".to_owned()),
        break_at: Some(5.0),
        bars: vec![
            bar("one socket", measured(1.14, 0.3)),
            bar("a rule", measured(48.0, 0.0)),
            bar("wild", measured(f64::NAN, f64::INFINITY)),
            bar("numa", Err(say("skipped: this host has one NUMA node"))),
        ],
    }
}

fn curve(say: &dyn Fn(&str) -> String) -> Curve {
    let line = |name: &str, hue, points: &[(f64, f64)]| ChartLine {
        name: say(name),
        hue,
        points: points.to_vec(),
    };
    Curve {
        title: say("recvmmsg: keeps 24 % of its peak").into(),
        x: Axis {
            name: say("offered, Mpps"),
            scale: Scale::Linear,
        },
        y: Axis {
            name: say("received, Mpps"),
            scale: Scale::Linear,
        },
        lines: vec![
            line("ideal", Hue::Ideal, &[(0.0, 0.0), (1.0, 1.0), (4.0, 1.0)]),
            line(
                "received",
                Hue::Main,
                &[(0.5, 0.5), (1.0, 0.96), (4.0, 0.25)],
            ),
        ],
    }
}

fn latency(say: &dyn Fn(&str) -> String) -> Curve {
    Curve {
        title: say("time to the last byte").into(),
        x: Axis {
            name: say("per cent of requests"),
            scale: Scale::Nines,
        },
        y: Axis {
            name: say("µs"),
            scale: Scale::Logarithmic,
        },
        lines: vec![ChartLine {
            name: say("last byte"),
            hue: Hue::Main,
            points: vec![
                (0.0, 80.0),
                (50.0, 120.0),
                (99.0, 800.0),
                (99.999, 12_000.0),
                (f64::NAN, f64::INFINITY),
            ],
        }],
    }
}

#[test]
fn one_report_in_three_media() {
    let document = document("");
    for width in [60, 100, 160] {
        let text = Terminal::new(width, false).document(&document);
        insta::assert_snapshot!(format!("terminal_{width}"), text);
    }
    insta::assert_snapshot!("markdown", markdown(&document));
    // The style sheet is a file by itself, and a tag a line shows what changed.
    let page = page(&document);
    let body = page.split_once("<body>").map_or(&*page, |(_, body)| body);
    insta::assert_snapshot!("page", body.replace("><", ">\n<"));
}

/// A table of any shape with any words.
pub(crate) fn any_table() -> impl Strategy<Value = Table> {
    let column = (
        0_usize..30,
        0_usize..40,
        0_u8..4,
        0_usize..3,
        "[\\PC ]{0,12}",
    );
    let column = column.prop_map(|(width, grow, priority, kind, head)| Column {
        head,
        kind: [ColumnKind::Words, ColumnKind::Figure, ColumnKind::Bar][kind],
        width,
        grow,
        priority,
    });
    let bar = (any::<u16>(), any::<u16>()).prop_map(|(full, missing)| Cell::Bar { full, missing });
    let cell = prop_oneof![
        4 => "(?s).{0,30}".prop_map(Cell::from),
        4 => "[a-z0-9 |<>&_*`\u{a0}\u{1b}\n-]{0,60}".prop_map(Cell::from),
        1 => bar,
    ];
    let row = (prop::collection::vec(cell, 0..9), "[\\PC ]{0,60}");
    let row = row.prop_map(|(cells, below)| Row::new(cells).below(below));
    let columns = prop::collection::vec(column, 0..9);
    (columns, prop::collection::vec(row, 0..5))
        .prop_map(|(columns, rows)| Table::new(columns).rows(rows))
}
