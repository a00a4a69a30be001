//! The rate that the first experiment finds best, which the others have.

use super::result::TcpCell;
use super::server::SERVERS;
use crate::measure::noise::leader;

/// Returns the fixed rate with the most connections per second, with all other techniques on. It is
/// the rate of the paper's server, or of our other server. The rate is in microseconds from poll to
/// poll. A sentence explains it.
pub(super) fn best(sweep: &[TcpCell]) -> Option<(f64, String)> {
    let fixed = |server: &str| -> Vec<(&str, Vec<f64>)> {
        let own = sweep.iter().filter(|cell| {
            cell.server == server && cell.is_sweep() && cell.moderation_us.is_some()
        });
        own.filter_map(|cell| Some((&*cell.step, cell.figures.as_ref()?.cps_samples.clone())))
            .collect()
    };
    let ours = SERVERS.iter().filter(|server| server.is_ours());
    let (server, (step, alike)) = ours
        .map(|server| server.name)
        .find_map(|name| Some((name, leader(&fixed(name))?)))?;
    let cell = sweep
        .iter()
        .find(|cell| cell.server == server && cell.step == step)?;
    let alike = match alike.is_empty() {
        true => String::new(),
        false => format!("; the noise hides any difference to {}", alike.join(", ")),
    };
    let note = format!(
        "moderation in experiments 2 and 3 is {step}, the fixed rate with the most connections a \
         second of {server} in experiment 1, as the paper's was{alike}"
    );
    Some((cell.moderation_us?, note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::connections::result::TcpFigures;
    use mpps_http::Switch;
    use mpps_trial::mentions;

    fn cell(
        server: &str,
        step: &str,
        us: Option<f64>,
        cps: f64,
        load_share: Option<f64>,
    ) -> TcpCell {
        TcpCell {
            experiment: 1,
            server: server.to_owned(),
            step: step.to_owned(),
            switches: vec![Switch::Moderation, Switch::Events],
            moderation_us: us,
            load_share,
            figures: Some(TcpFigures {
                cps_samples: vec![cps, cps * 1.01, cps * 1.02],
                ..TcpFigures::default()
            }),
            ..TcpCell::default()
        }
    }

    #[test]
    fn it_is_a_fixed_one_of_the_papers_server_at_full_load_with_the_others_on() {
        let epoll = |step, us, cps| cell("mpps-epoll", step, us, cps, None);
        let mut cells = vec![
            cell("mpps", "19000 per s", Some(52.6), 90_000.0, None),
            epoll("1000 per s", Some(1000.0), 20_000.0),
            epoll("1900 per s", Some(526.3), 19_900.0),
            epoll("4000 per s", Some(250.0), 10_000.0),
            epoll("off", None, 30_000.0),
            epoll("adaptive", None, 40_000.0),
            cell(
                "mpps-epoll",
                "4000 per s at 10 %",
                Some(250.0),
                50_000.0,
                Some(0.1),
            ),
        ];
        cells.push(TcpCell {
            switches: vec![Switch::Moderation],
            ..epoll("4000 per s alone", Some(250.0), 60_000.0)
        });
        let (us, note) = best(&cells).expect("one is best");
        assert_eq!(us, 1000.0);
        mentions(
            &note,
            "is 1000 per s,  | of mpps-epoll | the noise hides any difference to 1900 per s$",
        );
        cells.retain(|cell| cell.server == "mpps");
        assert_eq!(best(&cells).map(|(us, _)| us), Some(52.6));
        assert_eq!(best(&[]), None);
    }
}
