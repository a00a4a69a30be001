//! The middle of repeated measurements, how far they lie apart, and counts by time.

/// The middle value, or the mean of the middle two; nothing of an empty list.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[middle - 1], upper))
}

/// The lowest and the highest of the rates that are numbers.
pub(crate) fn extremes(rates: &[f64]) -> Option<[f64; 2]> {
    let mut finite = rates.iter().copied().filter(|rate| rate.is_finite());
    let first = finite.next()?;
    Some(finite.fold([first, first], |[low, high], rate| {
        [low.min(rate), high.max(rate)]
    }))
}

/// A rate; zero over no time at all.
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!((median(&[]), median(&[5.0])), (None, Some(5.0)));
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn nothing_has_a_rate_over_no_time() {
        let rates = [(6, 1.5), (6, 0.0), (0, 0.0), (6, -1.0)].map(|(n, s)| per_second(n, s));
        assert_eq!(rates, [4.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_spread_is_of_numbers() {
        assert_eq!(
            extremes(&[2.0, f64::NAN, 0.5, f64::INFINITY]),
            Some([0.5, 2.0])
        );
        assert_eq!(extremes(&[f64::NAN]), None);
    }
}
