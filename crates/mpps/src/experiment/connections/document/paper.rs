//! Gains of the 2014 paper beside ours, as far as the paper says them in numbers.

use super::{CellGroup, cps, first_word};
use crate::experiment::connections::paper_2014;
use crate::experiment::connections::result::{TcpCell, TcpFigures};
use crate::measure::samples::extremes;
use mpps_http::Switch;
use mpps_report::{BarFigures, Bars, Block, ChartBar, Hue, Quantity, Text};

/// A gain: its name, our figures with it and without, and the paper's ratio.
type BothGains<'a> = (String, [&'a TcpFigures; 2], f64);

/// Our gains in connections per second and the paper's, a bar each; nothing if none compares.
pub(super) fn chart(group: &CellGroup<'_>) -> Vec<Block> {
    let servers = group.servers.iter();
    let gains = servers.flat_map(|(name, cells)| {
        let measured = cells.iter();
        let measured = measured.filter_map(|cell| Some((*cell, cell.figures.as_ref()?)));
        let measured: Vec<_> = measured.collect();
        match group.experiment {
            1 => settings(name, &measured),
            _ => steps(name, &measured),
        }
    });
    let gains: Vec<BothGains<'_>> = gains.collect();
    if gains.is_empty() {
        return Vec::new();
    }
    let bar = |name: String, hue, ratio, spread, beside| ChartBar {
        name: name.into(),
        link: String::new(),
        outcome: Ok(BarFigures {
            parts: vec![(hue, ratio)],
            spread,
            figure: Quantity::Times(ratio).to_string(),
            beside,
            ..BarFigures::default()
        }),
    };
    let bars = gains.into_iter();
    let bars = bars.flat_map(|(name, [with, without], paper)| {
        // Runs of one round stood beside each other.
        let rounds = with.cps_samples.iter().zip(&without.cps_samples);
        let rounds: Vec<f64> = rounds.map(|(with, without)| with / without).collect();
        let own = cps(with) / cps(without);
        [
            bar(name, Hue::Main, own, extremes(&rounds), limit(with)),
            bar(
                "the paper".to_owned(),
                Hue::Reference,
                paper,
                None,
                String::new(),
            ),
        ]
    });
    let title = "Gain in connections per second, here and in the 2014 paper";
    vec![
        Block::Paragraph(Text::new().strong(title)),
        Block::Bars(Bars {
            unit: "times".to_owned(),
            key: vec![
                (
                    Hue::Main,
                    "here, of medians; the range is that of the rounds".to_owned(),
                ),
                (
                    Hue::Reference,
                    "the paper: Linux 3.4, a 10G card".to_owned(),
                ),
            ],
            bars: bars.collect(),
            ..Bars::default()
        }),
    ]
}

/// The limit of a cell, if it was not the server: its connections per second say less then.
fn limit(figures: &TcpFigures) -> String {
    match first_word(&figures.limited_by).trim_end_matches(',') {
        "server" => String::new(),
        limit => format!("limited by {limit}"),
    }
}

/// Settings of moderation against the adaptive one, with all other techniques on, as the paper had
/// them.
fn settings<'a>(name: &str, measured: &[(&TcpCell, &'a TcpFigures)]) -> Vec<BothGains<'a>> {
    let sweep = || measured.iter().filter(|(cell, _)| cell.is_sweep());
    let Some((_, base)) = sweep().find(|(cell, _)| cell.step == "adaptive") else {
        return Vec::new();
    };
    let server = first_word(name).trim_end_matches(',');
    let gains = paper_2014::MODERATION.iter().filter_map(|(rate, paper)| {
        let step = rate.to_string();
        let (_, figures) = sweep().find(|(cell, _)| cell.step == step)?;
        let name = format!("{server}: {step} against adaptive");
        Some((name, [*figures, *base], (*paper)?))
    });
    gains.collect()
}

/// Each step of a server of ours against the one before, and all five together.
fn steps<'a>(server: &str, measured: &[(&TcpCell, &'a TcpFigures)]) -> Vec<BothGains<'a>> {
    let is_ours = server.starts_with("mpps");
    let steps = measured.windows(2).filter(|_| is_ours).filter_map(|two| {
        let [(before, base), (cell, figures)] = two else {
            return None;
        };
        let switch = Switch::ALL.into_iter();
        let switch = switch
            .rev()
            .find(|switch| switch.to_string() == cell.step)?;
        let name = format!("{server}: {} after {}", cell.step, before.step);
        Some((name, [*figures, *base], paper_2014::step(switch)))
    });
    let mut gains: Vec<BothGains<'a>> = steps.collect();
    if let [(base, none), .., (last, all)] = measured
        && base.switches.is_empty()
        && last.switches.len() == Switch::ALL.len()
        && let Some(paper) = paper_2014::all(server)
    {
        let name = format!("{server}: all five");
        gains.push((name, [*all, *none], paper));
    }
    gains
}
