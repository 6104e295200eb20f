//! Statistics of a number over several documents with several repetitions each.

use serde::Serialize;
use weft_plot::{Value, Whiskers};
use weft_stats::Spread;

/// A number of one document over its repetitions, or of several documents. Documents differ by far more than repetitions of one:
/// the interval of several is over their means, `n` is how many documents they are, and the range is there beside it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Over {
    /// Of the repetitions of one document, or of the means of several.
    #[serde(flatten)]
    pub spread: Spread,
    /// The least and the most mean of a document.
    pub range: [f64; 2],
    /// Number of documents.
    #[serde(skip)]
    pub documents: usize,
}

impl Over {
    /// Statistics of the repetitions of each document. `None`: a document has no repetitions, or a
    /// number is not finite.
    pub fn of<D: AsRef<[f64]>>(documents: &[D]) -> Option<Over> {
        let spread = Spread::over(documents)?;
        let means = documents.iter().filter_map(|one| Spread::of(one.as_ref()));
        let range = means.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], one| {
            [low.min(one.mean), high.max(one.mean)]
        });
        Some(Over {
            spread,
            range,
            documents: documents.len(),
        })
    }

    /// In a figure, with whiskers as [`whiskers`] describes them.
    pub fn value(&self) -> Value {
        match self.documents {
            1 => value(self.spread),
            several => Value::between(self.spread.mean, self.range[0], self.range[1], several),
        }
    }
}

/// A number of one document in a figure.
pub(crate) fn value(spread: Spread) -> Value {
    Value::mean(spread.mean, spread.ci95, spread.n)
}

/// Meaning of a figure's whiskers: the interval of one document's repetitions, or the range of
/// several documents.
pub(crate) fn whiskers(documents: usize) -> Whiskers {
    match documents {
        1 => Whiskers::ci95("repetitions"),
        _ => Whiskers::range("documents"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whiskers_are_an_interval_of_one_document_and_the_range_of_several() {
        let several = Over::of(&[vec![3.0, 3.2], vec![44.0, 44.0]]).expect("numbers");
        assert_eq!((several.spread.n, several.range), (2, [3.1, 44.0]));
        assert_eq!(several.value(), Value::between(23.55, 3.1, 44.0, 2));
        let one = Over::of(&[vec![3.0, 3.2]]).expect("numbers");
        let half = one.spread.ci95.expect("two repetitions");
        assert!(half > 1.0, "{half}");
        assert_eq!(one.value(), Value::mean(3.1, Some(half), 2));
        let alone = Over::of(&[vec![3.0]]).expect("a number");
        assert_eq!(alone.value(), Value::exact(3.0));
        assert_eq!(Over::of::<Vec<f64>>(&[]), None);
    }
}
