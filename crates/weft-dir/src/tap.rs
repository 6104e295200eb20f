//! Whether our descriptor has a TAP onion key, which nobody builds circuits with any more.
//!
//! As C tor, by the consensus: `publish-dummy-tap-key`, until which authorities refuse descriptors without one
//! ("Missing TAP key in descriptor."). Beyond C tor, an authority that refuses one form by name gets the other: the
//! rule may change at the authorities before it does in the consensus that this relay has, and a relay that nobody
//! lists does not learn of it.

/// The form of our descriptor. No I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TapForm {
    /// The consensus' rule, as last seen.
    rule: Option<bool>,
    /// The form of the last descriptor.
    made: bool,
    /// Forms that an authority has refused since the rule is this: without, with.
    refused: [bool; 2],
}

impl TapForm {
    /// Whether the next descriptor has a TAP key.
    pub(crate) fn next(&mut self, rule: bool) -> bool {
        if self.rule != Some(rule) {
            *self = Self {
                rule: Some(rule),
                ..Self::default()
            };
        }
        let [without, with] = self.refused;
        self.made = match rule {
            true => !with || without,
            false => without && !with,
        };
        self.made
    }

    /// An authority has refused the last descriptor for this reason; whether it may take another form that
    /// is to be made.
    pub(crate) fn refused(&mut self, reason: &str) -> bool {
        let Some(rule) = self.rule.filter(|_| names_tap(reason)) else {
            return false;
        };
        let made = self.made;
        let [without, with] = &mut self.refused;
        match made {
            true => *with = true,
            false => *without = true,
        }
        self.next(rule) != made
    }
}

/// Whether an authority's reason is about the TAP key.
fn names_tap(reason: &str) -> bool {
    reason
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .any(|word| word.eq_ignore_ascii_case("tap"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISSING: &str = "Missing TAP key in descriptor.";

    #[test]
    fn the_consensus_rules() {
        let mut form = TapForm::default();
        assert!(form.next(true));
        assert!(!form.next(false));
        assert!(form.next(true));
    }

    #[test]
    fn an_authority_that_refuses_one_form_gets_the_other() {
        let mut form = TapForm::default();
        assert!(!form.next(false));
        assert!(form.refused(MISSING));
        assert!(form.next(false), "and so does every later one");
        let mut form = TapForm::default();
        assert!(form.next(true));
        assert!(form.refused("Unexpected tap onion-key"));
        assert!(!form.next(true));
    }

    #[test]
    fn where_both_are_refused_the_consensus_rules_and_nothing_is_tried_again() {
        for rule in [true, false] {
            let mut form = TapForm::default();
            assert_eq!(form.next(rule), rule);
            assert!(form.refused(MISSING));
            assert_eq!(form.next(rule), !rule);
            // The other form is refused, too: the rule's is made once more, and then no other.
            assert!(form.refused(MISSING));
            assert_eq!(form.next(rule), rule);
            assert!(!form.refused(MISSING));
            assert_eq!(form.next(rule), rule);
        }
    }

    #[test]
    fn what_was_refused_is_forgotten_when_the_rule_changes() {
        let mut form = TapForm::default();
        form.next(false);
        form.refused(MISSING);
        assert!(form.next(true));
        assert!(!form.next(false));
    }

    #[test]
    fn other_reasons_change_nothing() {
        let mut form = TapForm::default();
        assert!(!form.refused(MISSING), "nothing was made");
        form.next(true);
        for reason in [
            "",
            "Fingerprint is marked rejected",
            "tape",
            "Router is stapled",
        ] {
            assert!(!form.refused(reason), "{reason}");
            assert!(form.next(true));
        }
    }
}
