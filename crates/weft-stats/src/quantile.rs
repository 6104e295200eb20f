//! Quantiles between the numbers that were measured.

/// The value below which this share of the numbers is, between neighbours in proportion; `None` if
/// there are none.
#[must_use]
pub fn quantile(numbers: &[f64], share: f64) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let low = sorted.get(place as usize)?;
    let high = sorted.get(place.ceil() as usize).unwrap_or(low);
    Some(low + (high - low) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let numbers = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&numbers, 0.5), Some(2.5));
        assert_eq!(quantile(&numbers, 1.0), Some(4.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
